# SPDX-License-Identifier: Apache-2.0
"""Finds the environments of a comparison: an interpreter, a virtual environment, a JAX release, or a commit.

A JAX release becomes a virtual environment in the cache (`$XDG_CACHE_HOME/meshmark` or `~/.cache/meshmark`). It is made
once, by `pip install` of that release and nothing else, and used again later. A commit is one of this checkout. Its
files are copied into a temporary directory, and its own harness times itself under the present interpreter. This
harness times all other environments.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from meshmark.core.errors import BadInput
from meshmark.core.installation import CHECKOUT, PACKAGE, SOURCE
from meshmark.core.privacy import redact
from meshmark.devices.environment import of_child
from meshmark.devices.probe import MARK
from meshmark.operations.versions import TABLE_VERSION

FORMS = (
    "a Python interpreter, a virtual environment's directory, a JAX release such as 0.11.2, commit:REF,"
    " or a record file (.jsonl; then the other side is one too)"
)
"""What a comparison takes."""

OLDEST_JAX = "0.10.2"
"""The oldest release of JAX in which this package times (pyproject.toml asks for the same)."""

PROBE_SECONDS = 300.0
"""How long an interpreter may take to list its devices."""

_RELEASE = re.compile(r"(?:jax(?P<extras>\[[\w,-]+\])?==)?(?P<version>\d+(?:\.\d+)+(?:(?:a|b|rc|\.dev)\d+)?)")
_PIP_SAYS = ("Collecting", "Downloading", "Installing", "Successfully")

_MISSING = """
import json, sys
from {cases} import find, SelectionError
ids, number = json.load(sys.stdin)
missing = []
for case in ids:
    try:
        find(case, number)
    except SelectionError:
        missing.append(case)
print({mark!r} + json.dumps(missing))
"""

_TABLE_VERSION = """
import json
try:
    from {versions} import TABLE_VERSION
except ModuleNotFoundError:  # a commit from before the case table had versions
    TABLE_VERSION = 1
print({mark!r} + json.dumps(TABLE_VERSION))
"""


class NoEnvironment(BadInput, ValueError):
    """An environment that is not available; the message is one line that names it and the mend."""


@dataclass(frozen=True)
class Layout:
    """The names of the modules that a comparison starts or imports in another environment."""

    source: str
    """The directory of a checkout that holds the package."""
    timer: str
    probe: str
    cases: str
    versions: str = ""
    """Where the version of the case table stands; "" where it has none, which means version 1."""


TODAY = Layout(
    "harness",
    "meshmark.timing.timer",
    "meshmark.devices.probe",
    "meshmark.operations.cases",
    "meshmark.operations.versions",
)
BEFORE_ROOMS = Layout(".", "harness.timer", "harness.devices", "harness.cases")
"""Commits from before the package was called meshmark. They speak the same protocol with their parent."""


@dataclass(frozen=True)
class Environment:
    """One side of a comparison."""

    name: str
    """As it was given."""
    python: str
    """The interpreter."""
    path: Path = SOURCE
    """The directory that holds the package that times."""
    commit: str = ""
    """The commit of that package, where one was asked for."""
    jax: str = ""
    """The JAX release that it must have; "" where none was asked for."""
    layout: Layout = TODAY
    """What the modules of that package are called."""

    @property
    def shown(self) -> str:
        """The name, with the start of the commit's hash."""
        return f"{self.name} ({self.commit[:12]})" if self.commit else self.name


def resolve(
    text: str, python: str, directory: Path, say: Callable[[str], None], oldest: str = ""
) -> Environment:
    """The environment that a text names; NoEnvironment if there is none.

    python: the interpreter for releases and commits. directory: a directory for files that are removed after the
    comparison. say: takes a line about each long step. oldest: the oldest JAX release that is allowed; "" for any.
    """
    if text.startswith("commit:"):
        path, commit = exported(text.removeprefix("commit:"), directory)
        layout = layout_of(path, text)
        return Environment(text, _interpreter(python), path / layout.source, commit, layout=layout)
    release = _RELEASE.fullmatch(text)
    if release:
        if oldest and Version(release["version"]) < Version(oldest):
            raise NoEnvironment(
                f"{text}: JAX {oldest} is the oldest release that can be timed: name a newer one"
            )
        made = environment_of(release["version"], release["extras"] or "", _interpreter(python), say)
        return Environment(text, str(made), _package(directory), jax=release["version"])
    return Environment(text, _interpreter(text), _package(directory))


def _interpreter(text: str) -> str:
    """The interpreter that a text names: a file, a directory that holds bin/python, or a command on the path."""
    if not text or "\0" in text:
        raise NoEnvironment(f"{text!a} names nothing: name {FORMS}")
    path = Path(os.path.expanduser(text))
    if os.path.isdir(path):  # which, unlike path.is_dir, takes a name of any length
        if (found := _python_of(path)) is None:
            raise NoEnvironment(f"{text} holds no bin/python: name a virtual environment, or {FORMS}")
        return os.path.abspath(found)
    if os.path.isfile(path):
        if not os.access(path, os.X_OK):
            raise NoEnvironment(f"{text} is a file that can't be run: name {FORMS}")
        return os.path.abspath(path)  # a link stays one: it tells Python its virtual environment
    if (command := shutil.which(text)) is None:
        raise NoEnvironment(f"there is no {text!r}: name {FORMS}")
    return command


def _python_of(directory: Path) -> Path | None:
    for found in (directory / "bin" / "python", directory / "Scripts" / "python.exe"):
        if found.exists():
            return found
    return None


def _package(directory: Path) -> Path:
    """A directory with this package and no JAX, for the children's path. An installed package lies beside a JAX, so it
    is copied."""
    if SOURCE.name not in ("site-packages", "dist-packages") and not (SOURCE / "jax").exists():
        return SOURCE
    copy = directory / "package-alone"
    if not copy.exists():
        shutil.copytree(PACKAGE, copy / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


# A JAX release ----------------------------------------------------------------------------------------------


def cache() -> Path:
    """The directory of the virtual environments that this module makes."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else Path.home() / ".cache") / "meshmark" / "environments"


def environment_of(version: str, extras: str, python: str, say: Callable[[str], None]) -> Path:
    """The interpreter of the virtual environment with this JAX release, which is made if there is none."""
    wanted = f"jax{extras}=={version}"
    tag = _output_of(
        [python, "-c", "import platform, sys; print(sys.implementation.cache_tag, platform.machine())"]
    )
    home = cache() / f"jax{extras}-{version}-{tag.replace(' ', '-')}"
    if (ready := _python_of(home)) is not None:
        return ready
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=".making-", dir=home.parent))
    except OSError as error:
        raise NoEnvironment(
            f"can't make an environment in {home.parent}: {os.strerror(error.errno or 0)}; see XDG_CACHE_HOME"
        ) from None
    try:
        say(f"{wanted}: making a virtual environment, once ({tag})")
        _output_of([python, "-m", "venv", str(making)])
        made = _python_of(making)
        if made is None:
            raise NoEnvironment(f"{python} -m venv made no interpreter")
        _pip(str(made), wanted, say)
        if home.exists():  # the base of an old one is gone
            shutil.rmtree(home)
        os.rename(making, home)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return _python_of(home) or home


def _pip(python: str, wanted: str, say: Callable[[str], None]) -> None:
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", wanted]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout
        complaints = []
        try:
            for line in map(str.strip, pip.stdout):
                if line.startswith(_PIP_SAYS):
                    say(f"{wanted}: {redact(line)[:100]}")
                elif line.startswith("ERROR:"):
                    complaints.append(line.removeprefix("ERROR:").strip())
        except KeyboardInterrupt:
            pip.kill()  # leaving the block would wait for the end of the installation
            raise
    if pip.returncode:
        why = complaints[-1] if complaints else f"exit code {pip.returncode}"
        raise NoEnvironment(
            f"pip could not install {wanted}: {redact(why)[:300]}; choose another release, or another --python"
        )


def _output_of(command: Sequence[str]) -> str:
    """The output of a short command; NoEnvironment if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoEnvironment(f"{command[0]} does not run: {error}") from None
    if done.returncode:
        last = ((done.stderr + done.stdout).strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise NoEnvironment(f"{' '.join(command[:3])} failed: {redact(last)[:300]}")
    return done.stdout.strip()


# A commit ---------------------------------------------------------------------------------------------------


def exported(ref: str, directory: Path) -> tuple[Path, str]:
    """(a copy of this checkout's files at a commit, its hash)."""

    def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(["git", "-C", str(CHECKOUT), *arguments], capture_output=True, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoEnvironment(f"commit:{ref} needs git, which does not run: {error}") from None

    if CHECKOUT is None or git("rev-parse", "--show-toplevel").stdout.decode().strip() != str(CHECKOUT):
        raise NoEnvironment(f"commit:{ref} needs a git checkout of this project: it is installed without one")
    found = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    commit = found.stdout.decode().strip()
    if found.returncode or not commit:
        raise NoEnvironment(f"commit:{ref} is not a commit of this checkout: see `git log --oneline`")
    path = directory / commit
    if not path.exists():
        archive = git("archive", "--format=tar", commit)
        if archive.returncode:
            raise NoEnvironment(f"commit:{ref}: git archive failed: {redact(archive.stderr.decode()[:200])}")
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            # An attribute, not the argument `filter`: Python 3.11.0 to 3.11.3 do not know it.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(path)
    return path, commit


def layout_of(path: Path, name: str) -> Layout:
    """The layout of a commit's files; NoEnvironment if the commit can't time itself."""
    for layout in (TODAY, BEFORE_ROOMS):
        if (path / layout.source / f"{layout.timer.replace('.', '/')}.py").exists():
            return layout
    raise NoEnvironment(f"{name} can't time itself: choose a later commit, one with harness/timer.py")


# What an environment says -----------------------------------------------------------------------------------


def read_facts(environment: Environment, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The facts of an environment (devices.facts), read by its interpreter with `variables` set. NoEnvironment if JAX
    is missing, finds no device, or is not the requested release."""
    found = _ask_interpreter(environment, ["-m", environment.layout.probe], "", variables)
    version = found["versions"]["jax"]
    if environment.jax and version != environment.jax:
        raise NoEnvironment(
            f"{environment.name} runs jax {version}: something else comes first on its path; unset PYTHONPATH"
        )
    if environment.commit:
        found["suite"] = {**found.get("suite", {}), "commit": environment.commit, "clean": True}
    return found


def table_version(environment: Environment) -> int:
    """The version of the environment's case table. Only that of a commit can differ from the present one."""
    if not environment.commit:
        return TABLE_VERSION
    if not environment.layout.versions:
        return 1
    code = _TABLE_VERSION.format(mark=MARK, versions=environment.layout.versions)
    return int(_ask_interpreter(environment, ["-c", code], ""))


def missing(environment: Environment, ids: Sequence[str], num_devices: int) -> set[str]:
    """The case ids among these that the environment's table lacks. Only the table of a commit can lack any."""
    if not environment.commit:
        return set()
    return set(
        _ask_interpreter(
            environment,
            ["-c", _MISSING.format(mark=MARK, cases=environment.layout.cases)],
            json.dumps([list(ids), num_devices]),
        )
    )


def _ask_interpreter(
    environment: Environment,
    arguments: Sequence[str],
    words: str,
    variables: Mapping[str, str] | None = None,
) -> Any:
    """Run the interpreter with the harness on its path, and return the JSON value that it printed after MARK."""
    try:
        done = subprocess.run(
            [environment.python, *arguments],
            input=words,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            cwd=environment.path,
            env=of_child(variables, environment.path),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoEnvironment(f"{environment.name}: {environment.python} does not run: {error}") from None
    marked = [line.removeprefix(MARK) for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not marked:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        absent = "No module named" in last
        mend = f"try {environment.python} -m pip install jax" if absent else "see JAX_PLATFORMS"
        raise NoEnvironment(f"{environment.name} can't time: {redact(last)[:300]}; {mend}")
    return json.loads(marked[-1])
