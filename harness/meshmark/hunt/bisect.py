# SPDX-License-Identifier: Apache-2.0
"""Finds the releases of JAX that show a finding: runs its script in one environment per release.

It first tries the last release of every minor version. Between two of them whose outcomes differ it then tries the
release in the middle, until it knows the first release after each change. There may be several changes. An environment
takes some 500 MB. It is removed after its scripts have run, unless a directory to keep environments is given.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import InvalidVersion, Version

from meshmark.core.errors import BadInput

INDEX = "https://pypi.org/pypi/jax/json"
OLDEST = "0.4.30"
MISSING = "not installed"
"""The outcome for a release that can't be installed here."""
DEADLINE = 120.0
"""The time limit of a script, in seconds."""

INEXPRESSIBLE = re.compile(
    r"AttributeError: module 'jax[\w.]*' has no attribute|ImportError|ModuleNotFoundError"
    r"|unexpected keyword argument|TypeError: .*(?:got an unexpected|missing)"
)
"""The errors that a script prints on a release that lacks a function or an option."""


class BisectError(BadInput, RuntimeError):
    """The index or an environment is not available; the message is one line."""


@dataclass(frozen=True)
class Release:
    """A release of JAX and the day it came out."""

    version: str
    day: str

    @property
    def minor(self) -> tuple[int, ...]:
        """The major and minor number, such as (0, 4)."""
        return Version(self.version).release[:2]


def list_releases(oldest: str = OLDEST, url: str = INDEX) -> list[Release]:
    """All final releases of JAX from version `oldest` on, the oldest first, by the JSON of a package index at `url`.

    Raises BisectError if the index can't be read, or has no such release."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            files = json.load(answer)["releases"]
    except (OSError, ValueError, KeyError) as error:
        raise BisectError(f"the package index can't be read at {url}: {error}") from None
    found = []
    for text, uploads in files.items():
        try:
            version = Version(text)
        except InvalidVersion:
            continue
        if (
            uploads
            and not version.is_prerelease
            and version >= Version(oldest)
            and not uploads[0].get("yanked")
        ):
            found.append(Release(text, uploads[0]["upload_time_iso_8601"][:10]))
    if not found:
        raise BisectError(f"JAX has no release from {oldest} on: name an older one (--oldest)")
    return sorted(found, key=lambda r: Version(r.version))


def choose_minor_ends(every: Sequence[Release]) -> list[Release]:
    """The first of these releases (at least one, the oldest first), and the last one of each minor version."""
    last = {r.minor: r for r in every}
    return list(dict.fromkeys([every[0], *last.values()]))


def adapt_to_old_releases(script: str) -> str:
    """The text of a script without its lines that set `jax_num_cpu_devices`, which old releases do not have.

    Old releases take the number of CPU devices from XLA_FLAGS only."""
    lines = [line for line in script.splitlines() if "jax_num_cpu_devices" not in line]
    return "\n".join(lines) + "\n"


def count_devices(script: str) -> int:
    """The number of virtual CPU devices that a script asks for; 8 if it names none."""
    found = re.search(r'"jax_num_cpu_devices", (\d+)', script)
    return int(found[1]) if found else 8


def run_script(python: Path | str, script: str) -> str:
    """Run a script (its text) with the interpreter `python` on virtual CPU devices, for DEADLINE seconds at most.

    Gives its outcome: right, wrong, crash, hang, internal, refused, inexpressible, or "exit code N"."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "PYTHONPATH"))}
    environment |= {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={count_devices(script)}",
        "JAX_PLATFORMS": "cpu",
    }
    with tempfile.TemporaryDirectory(prefix="meshmark-bisect-") as directory:
        file = Path(directory) / "script.py"
        file.write_text(adapt_to_old_releases(script), encoding="utf-8")
        try:
            ended = subprocess.run(
                [str(python), str(file)],
                capture_output=True,
                text=True,
                env=environment,
                timeout=DEADLINE,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            return "hang"
    return classify_outcome(ended.returncode, ended.stderr)


def classify_outcome(code: int, said: str) -> str:
    """The outcome, as `run_script` gives it, by exit code (negative for a signal) and the text on standard error."""
    if code == 0:
        return "right"
    if code < 0:
        return "crash"
    if "Traceback" not in said:
        return "wrong" if code == 1 else f"exit code {code}"
    last = [line for line in said.strip().splitlines() if line and not line.startswith((" ", "\t"))]
    raised = "\n".join(last[-12:])
    if INEXPRESSIBLE.search(raised):
        return "inexpressible"
    return "internal" if re.search(r"INTERNAL|RET_CHECK|hlo verifier|Check failed", raised) else "refused"


@dataclass
class Environments:
    """Makes environments with releases of JAX, one at a time."""

    say: Callable[[str], None]
    keep: Path | None = None
    """The directory that keeps the environments; None to remove each one before the next one is made."""
    made: list[Path] = field(default_factory=list)

    def python(self, release: Release) -> Path | None:
        """The interpreter of an environment with this release; None if the release can't be installed here."""
        if self.keep is None:
            self.close()
        root = (self.keep or Path(tempfile.mkdtemp(prefix="meshmark-bisect-"))) / f"jax-{release.version}"
        python = root / "bin" / "python"
        if python.exists() and (root / "done").exists():
            return python
        self.made.append(root)
        self.say(f"installing JAX {release.version}")
        for command in list_commands(root, release):
            ended = subprocess.run(command, capture_output=True, text=True)
            if ended.returncode:
                last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
                self.say(f"JAX {release.version} can't be installed: {last[:200]}")
                return None
        (root / "done").touch()
        return python

    def close(self) -> None:
        """Remove the environments that were made, unless `keep` is set."""
        if self.keep is None:
            for root in self.made:
                shutil.rmtree(root.parent, ignore_errors=True)
        self.made.clear()


def list_commands(root: Path, release: Release) -> Iterator[list[str]]:
    """The commands, as lists of words, that make an environment with this release at `root`.

    With uv, numpy and ml-dtypes are the newest ones of the day of the release. Without uv, pip takes the newest ones of
    today."""
    wanted = [f"jax=={release.version}", f"jaxlib=={release.version}"]
    if uv := os.environ.get("UV") or shutil.which("uv"):
        yield [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(root)]
        newest = f"{release.day}T23:59:59Z"
        installing = [uv, "pip", "install", "--quiet", "--python", str(root / "bin" / "python")]
        yield [
            *installing,
            "--exclude-newer-package",
            f"numpy={newest}",
            "--exclude-newer-package",
            f"ml-dtypes={newest}",
            *wanted,
        ]
        return
    yield [sys.executable, "-m", "venv", "--clear", str(root)]
    yield [str(root / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input", *wanted]


def choose_midpoints(known: Mapping[str, str], every: Sequence[Release]) -> Iterator[Release]:
    """The next releases to try: the middle of each gap between tried neighbours whose outcomes differ.

    known: outcomes by version. every: all releases, the oldest first."""
    tried = [k for k, r in enumerate(every) if r.version in known]
    for low, high in itertools.pairwise(tried):
        if high - low > 1 and known[every[low].version] != known[every[high].version]:
            yield every[(low + high) // 2]


def bisect(
    scripts: Mapping[str, str], every: Sequence[Release], environments: Environments, whole: bool = True
) -> dict[str, dict[str, str]]:
    """Run scripts with releases, and find each place between two releases where an outcome changes.

    scripts: texts by name. every: the releases, the oldest first. whole: also search between the last releases of the
    minor versions. Gives, by name of the script, the outcomes by version, the oldest version first. The outcome is
    MISSING for a release that can't be installed."""
    found: dict[str, dict[str, str]] = {name: {} for name in scripts}

    def run(release: Release, names: Sequence[str]) -> None:
        python = environments.python(release)
        for name in names:
            found[name][release.version] = run_script(python, scripts[name]) if python else MISSING
            environments.say(f"JAX {release.version}: {name}: {found[name][release.version]}")

    for release in choose_minor_ends(every):
        run(release, list(scripts))
    while whole:
        wanted: dict[Release, list[str]] = {}
        for name, known in found.items():
            for release in choose_midpoints(known, every):
                wanted.setdefault(release, []).append(name)
        if not wanted:
            break
        for release, names in wanted.items():
            run(release, names)
    order = [r.version for r in every]
    return {
        name: dict(sorted(known.items(), key=lambda kv: order.index(kv[0]))) for name, known in found.items()
    }
