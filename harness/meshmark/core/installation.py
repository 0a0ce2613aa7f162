# SPDX-License-Identifier: Apache-2.0
"""Where this package is installed, and its state: version, commit, and a digest of its files."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from meshmark import __version__

PACKAGE = Path(__file__).resolve().parent.parent
"""The directory of the package `meshmark`."""

SOURCE = PACKAGE.parent
"""The directory to put on PYTHONPATH so that a child process imports this package."""

BUILD = PACKAGE / "_build.json"
"""Which commit a wheel or source distribution was built from, and whether it was clean. The build writes it (setup.py);
a checkout has none."""


SEARCHED = ("PYTHONPATH", "LD_LIBRARY_PATH", "TPU_LIBRARY_PATH")
"""The environment variables with directories or files from which Python and JAX load code."""

PLUGINS = "PJRT_NAMES_AND_LIBRARY_PATHS"
"""JAX's variable of PJRT plugins: `name:path,name:path`."""


def make_paths_absolute(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the relative paths of these variables made absolute, for a child that starts in another
    directory. An empty entry is the working directory, as it is for Python and for the system's loader."""
    made = dict(environment)
    for name in filter(made.get, SEARCHED):
        made[name] = os.pathsep.join(map(os.path.abspath, made[name].split(os.pathsep)))
    if made.get(PLUGINS):
        made[PLUGINS] = ",".join(map(_plugin_with_absolute_path, made[PLUGINS].split(",")))
    return made


def _plugin_with_absolute_path(plugin: str) -> str:
    name, separator, path = plugin.partition(os.pathsep)
    is_path = os.sep in path or path.endswith(".json")  # otherwise the loader searches for the library
    return f"{name}{separator}{os.path.abspath(path) if is_path else path}"


def _is_checkout(directory: Path) -> bool:
    return SOURCE.name == "harness" and (directory / "pyproject.toml").is_file()


CHECKOUT = SOURCE.parent if _is_checkout(SOURCE.parent) else None
"""The checkout that holds this package; None if the package is installed without a checkout."""


def describe_version() -> str:
    """The version, the commit and whether it was clean, where they are known, and the release of JAX, in one line."""
    state = _state()
    parts = [f"meshmark {__version__}"]
    if state.get("commit"):
        clean = {True: " (clean)", False: " (with changes)", None: ""}[state.get("clean")]
        parts.append(f"commit {state['commit'][:12]}{clean}")
    try:
        parts.append(f"jax {metadata.version('jax')}")
    except metadata.PackageNotFoundError:
        parts.append("no jax")
    return ", ".join(parts)


def suite() -> dict[str, Any]:
    """The state of the suite, for the first line of a run.

    `version`; `commit` and `clean` (whether the files are as committed), from git in a checkout and from the build
    in an installed wheel or an unpacked source distribution, None if neither gives them; `digest`, of the package's
    files.
    """
    state = _state()
    named = {name: state.get(name) for name in ("commit", "clean")}
    return {"version": __version__, **named, "digest": digest_package()}


def _state() -> dict[str, Any]:
    return (_git_state(CHECKOUT) if CHECKOUT else {}) or _built_state()


def _built_state() -> dict[str, Any]:
    return dict(json.loads(BUILD.read_text(encoding="utf-8"))) if BUILD.is_file() else {}


def _git_state(checkout: Path) -> dict[str, Any]:
    if _git(checkout, "rev-parse", "--show-toplevel") != os.fsencode(checkout) + b"\n":
        return {}  # unpacked somewhere below another checkout
    commit = (_git(checkout, "rev-parse", "HEAD") or b"").decode().strip()
    return {"commit": commit or None, "clean": _is_clean(checkout) if commit else False}


RUNS = ("harness", "conformance")
"""The directories of a checkout that hold what runs."""

BY_STAT = ("-c", "core.fsmonitor=false", "-c", "core.checkStat=default", "-c", "core.trustctime=true")
"""Options with which git looks at each file again whose time, size or place is another one."""


def _is_clean(checkout: Path) -> bool | None:
    """Whether the files of a checkout are as committed, and no others are there but those that the committed .gitignore
    names; None if git does not answer.

    Git's index and configuration are personal: they can tell git to look away from a file (skip-worktree,
    assume-unchanged), to edit it first (filters), to show no untracked files, and to exclude some. So such files are
    compared here, and personal excludes do not count.
    """
    changed = _git(checkout, "status", "--porcelain", "-z", "--untracked-files=no")
    marked = _git(checkout, "ls-files", "-v", "-z")
    others = ["ls-files", "--others", "-z"]
    untracked = [_git(checkout, *others, "--exclude-per-directory=.gitignore")]
    if (
        checkout / ".gitignore"
    ).is_file():  # a file of this name that is not committed hides nothing of what runs
        untracked.append(_git(checkout, *others, "--exclude-from=.gitignore", "--", *RUNS))
    if changed is None or marked is None or None in untracked:
        return None
    if changed or any(untracked):
        return False
    entries = [line for line in marked.split(b"\0") if line]
    filters = _git(
        checkout, "config", "--get-regexp", r"^filter\."
    )  # what may edit a file before git looks at it
    passed_over = {line[2:] for line in entries if filters or line[:1] != b"H"}
    if not passed_over:
        return True
    committed = _git(checkout, "ls-tree", "-r", "-z", "HEAD")
    blobs = [line.split(b"\t", 1) for line in (committed or b"").split(b"\0") if line]
    return all(
        _is_as_committed(checkout, os.fsdecode(name), *head.split())
        for head, name in blobs
        if name in passed_over
    )


def _is_as_committed(checkout: Path, name: str, mode: bytes, kind: bytes, digest: bytes) -> bool:
    """Whether a file has the contents that git has for it. One that a sparse checkout left out counts as such, unless
    it runs. Line ends of Windows count as those of the commit."""
    if kind != b"blob":
        return True
    path = os.path.join(checkout, name)
    try:
        if os.path.islink(path):
            data = os.fsencode(os.readlink(path))
        else:
            with open(path, "rb") as file:
                data = file.read()
    except FileNotFoundError:
        return "/" in name and not name.startswith(tuple(f"{one}/" for one in RUNS))
    except OSError:
        return False
    size = len(digest)
    return _blob_id(data, size) == digest or _blob_id(data.replace(b"\r\n", b"\n"), size) == digest


def _blob_id(data: bytes, length: int) -> bytes:
    """The name that git gives to a file with these contents, of so many digits."""
    found = hashlib.sha1(usedforsecurity=False) if length == 40 else hashlib.sha256()
    found.update(b"blob %d\0" % len(data) + data)
    return found.hexdigest().encode()


def git_environment() -> dict[str, str]:
    """The environment for git: without the variables that name another repository, index or set of objects. Those that
    say where git's configuration is stay, since it names the directories that git may trust."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or (name.startswith("GIT_CONFIG_") and name != "GIT_CONFIG_PARAMETERS")
    }
    return kept | {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0"}


def _git(checkout: Path, *arguments: str) -> bytes | None:
    """The output of git about a checkout; None if git fails."""
    command = ["git", "-C", str(checkout), *BY_STAT, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, env=git_environment())
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


@cache
def digest_package() -> str:
    """The digest of the package's files at the first call in this process. It differs for an edited installation, and
    shows whether all ranks use the same package."""
    return compute_digest()


def compute_digest() -> str:
    """SHA-256 (the first 16 hexadecimal digits) of the names and contents of the package's files as they are now."""
    found = hashlib.sha256()
    for path in sorted(p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        if path != BUILD:
            found.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]
