# SPDX-License-Identifier: Apache-2.0
"""Checks where a run comes from: its commit is the project's, its package is the commit's, and its date is later.

All of this is asked of the git history of the checkout that reviews. A commit that only a pull request brings is not
one of the project: it must be on the main branch. An installed package has no history, and can't tell.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from meshmark.core.installation import CHECKOUT
from meshmark.publish.review import AS_WRITTEN
from meshmark.records import run_line

MAIN = ("refs/remotes/origin/main", "refs/remotes/upstream/main", "refs/heads/main", "HEAD")
"""What holds the project's commits: the first of these that there is."""

PACKAGE, EARLIER = "harness/meshmark", "harness"
"""Where the package is, and where it was before it was called meshmark."""

VERSION = ("__init__.py", r'^__version__ = "([^"]+)"')
TABLE = ("operations/versions.py", r"^TABLE_VERSION = (\d+)")
CLOSES = ("records/closing.py", r"^CLOSES = (.+)")
AROUND = ("devices/surroundings.py", r"^def (around)\(")
"""The files of the package that name its version and that of its case table, that runs close records, and that they say
what is not as JAX comes; and how."""

FIRST = 1793491200
"""The first day on which a run can have begun, as seconds: 2026-11-01, before the suite's first commit."""

SLACK = 86400
"""Seconds by which two clocks may differ."""


@dataclass(frozen=True)
class Commit:
    """What the history says of a commit."""

    time: int
    """When it was made, in seconds."""
    digest: str
    """The digest of its package (core.installation.digest); "" where it has none of today's name."""
    version: str = ""
    """The version of its package; "" where it names none."""
    table: int = 0
    """The version of its case table; 0 where it names none."""
    closes: bool = False
    """Whether its runs close their records with a line (meshmark.records.closing)."""
    tells: bool = False
    """Whether its runs say what is not as JAX comes (meshmark.devices.surroundings)."""


def problems(run: Mapping[str, Any], marked: bool) -> Iterator[str]:
    """What a run line says of its origin that can't be. `marked`: the product concedes changes to the suite."""
    suite, started = run["facts"]["suite"], begin(run.get("started"))
    if started is None or not FIRST <= started < time.time() + SLACK:
        yield f"`started` is missing, or no time at which the suite could run: {AS_WRITTEN}"
    if not re.fullmatch(r"[0-9a-f]{40}", suite["commit"] or ""):
        return  # told as a suite without a commit
    found = look_up(suite["commit"])
    if isinstance(found, str):
        return  # nothing to ask
    if found is None:
        yield f"suite commit {suite['commit']} is not one of the project's main branch: run a published commit"
        return
    if started is not None and started < found.time - SLACK:
        yield f"`started` is {run['started']}, and its commit was made later: {AS_WRITTEN}"
    if found.version and suite["version"] != found.version:
        yield f"suite version {suite['version'][:40]!a}, and its commit has {found.version}: {AS_WRITTEN}"
    if found.table and run_line.table_version(run) != found.table:
        yield (
            f"`table` is {run_line.table_version(run)}, and its commit has version {found.table} of the case table:"
            f" {AS_WRITTEN}"
        )
    if found.closes and not run.get("closes"):
        yield f"`closes` is missing, and the commit closes its records: {AS_WRITTEN}"
    if found.tells and run["facts"].get("surroundings") is None:
        yield f"`surroundings` is missing, and the commit tells of settings and functions: {AS_WRITTEN}"
    if not found.digest and "digest" in suite:
        yield f"the package has digest {suite['digest']}, and the commit has none of its name: {AS_WRITTEN}"
    if found.digest and suite.get("digest") != found.digest and not marked:
        yield (
            f"the package that ran ({suite.get('digest', 'no digest')}) is not that of its commit ({found.digest}): run"
            " it from a clean checkout, or submit with --mark"
        )


def begin(text: Any) -> float | None:
    """The seconds of a run's `started`; None for text that is not a time."""
    try:
        return float(calendar_seconds(time.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return None


def calendar_seconds(moment: time.struct_time) -> int:
    """Seconds since 1970 of a time in UTC."""
    import calendar

    return calendar.timegm(moment)


@cache
def look_up(commit: str) -> Commit | str | None:
    """A commit of the main branch; None if the branch does not have it; the reason, as text, if there is no history."""
    return _ask(commit)


def _ask(commit: str) -> Commit | str | None:
    if CHECKOUT is None:
        return f"suite commit {commit} could not be looked up: validate in a checkout of the suite to look for it"
    try:
        main = next((ref for ref in MAIN if _git("rev-parse", "--verify", "--quiet", ref) is not None), None)
        if main is None:
            return f"suite commit {commit} could not be looked up: the checkout has no history"
        if _git("merge-base", "--is-ancestor", commit, main) is None:
            shallow = _git("rev-parse", "--is-shallow-repository") == b"true\n"
            cut = f"suite commit {commit} could not be looked up: the checkout is shallow (git fetch --unshallow)"
            return cut if shallow else None
        made = _git("show", "--no-patch", "--format=%ct", commit)
        version, table = (_said(commit, *place) for place in (VERSION, TABLE))
        version = version or _said(commit, *VERSION, package=EARLIER)
        closes, tells = (bool(_said(commit, *place)) for place in (CLOSES, AROUND))
        return Commit(int(made or b"0"), _digest(commit), version, int(table or 0), closes, tells)
    except (OSError, subprocess.TimeoutExpired):
        return f"suite commit {commit} could not be looked up: git is not at hand"


def _said(commit: str, name: str, pattern: str, package: str = PACKAGE) -> str:
    """What a line of a file of the package says in a commit; "" where there is no such file or line."""
    text = (_git("show", f"{commit}:{package}/{name}") or b"").decode(errors="replace")
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else ""


def _digest(commit: str) -> str:
    """The digest of the package's files in a commit, as core.installation.digest has it of a checkout."""
    listed = _git("ls-tree", "-r", "-z", commit, PACKAGE)
    entries = [line.split(b"\t", 1) for line in (listed or b"").split(b"\0") if line]
    files = sorted(
        (PurePosixPath(name.decode()).relative_to(PACKAGE), head.split()[2]) for head, name in entries
    )
    if not files:
        return ""
    found = hashlib.sha256()
    contents = _git("cat-file", "--batch", given=b"".join(blob + b"\n" for _, blob in files)) or b""
    for name, _ in files:
        head, _, contents = contents.partition(b"\n")
        size = int(head.split()[2])
        found.update(name.as_posix().encode() + b"\0" + contents[:size] + b"\0")
        contents = contents[size + 1 :]
    return found.hexdigest()[:16]


def _git(*arguments: str, given: bytes | None = None) -> bytes | None:
    """What git prints; None where it says no."""
    command = ["git", "-C", str(CHECKOUT), *arguments]
    done = subprocess.run(command, capture_output=True, input=given, timeout=60)
    return done.stdout if done.returncode == 0 else None
