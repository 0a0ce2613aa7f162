# SPDX-License-Identifier: Apache-2.0
"""Finds known pitfalls of asv by reading benchmark files and configurations. It imports and runs none of them.

meshmark.asv.pitfalls lists the pitfalls, and meshmark.asv.sources finds those in Python. A line of Python, of a
script or of a configuration with the comment `asv-doctor: ok` is accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meshmark.asv.pitfalls import ACCEPTED, DoctorError, Pitfall, read_text
from meshmark.asv.sources import Benchmarks
from meshmark.core.text import printable

# fmt: off
KEYS = frozenset({
    "project", "project_url", "repo", "repo_subdir", "branches", "pythons", "matrix", "exclude", "include",
    "env_dir", "benchmark_dir", "results_dir", "html_dir", "show_commit_url", "hash_length",
    "environment_type", "install_timeout", "default_benchmark_timeout", "dvcs", "regressions_first_commits",
    "regressions_thresholds", "plugins", "conda_channels", "conda_environment_file", "build_command",
    "install_command", "uninstall_command", "launch_method",
})
# fmt: on
"""The keys of asv 0.6.6: the attributes of `asv.config.Config()`. A test compares them."""

OTHER_KEYS = frozenset({"version", "build_cache_size", "wheel_cache_size"})
"""Keys that asv reads but that are not attributes of `Config()`."""

SCRIPTS = (
    "tox.ini",
    "Makefile",
    "noxfile.py",
    "*.sh",
    ".ci/*",
    ".github/workflows/*.yml",
    ".github/workflows/*.yaml",
)
"""The files of a directory that may hold commands of asv."""

# Files ------------------------------------------------------------------------------------------------------


def find_files(path: Path) -> list[Path]:
    """The files to examine: this file, or a directory's configurations, their benchmarks and its scripts.

    DoctorError if there are none.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DoctorError(
            f"{path} is neither a file nor a directory: name a benchmark file, asv.conf.json or a directory"
        )
    configurations = sorted({*path.glob("asv*.conf.json"), *path.glob("asv*.conf.jsonc")})
    where = {path / str(load_configuration(c).get("benchmark_dir", "benchmarks")) for c in configurations}
    if not configurations:
        where = {path / "benchmarks"} if (path / "benchmarks").is_dir() else {path}
    benchmarks = sorted(f for d in where for f in d.rglob("*.py") if not _tests(f))
    if not configurations and not benchmarks:
        raise DoctorError(f"{path} holds no asv.conf.json and no benchmark file: name a directory that does")
    scripts = sorted({f for pattern in SCRIPTS for f in path.glob(pattern) if f.is_file()})
    return list(dict.fromkeys([*configurations, *benchmarks, *scripts]))


def _tests(path: Path) -> bool:
    """Whether the file belongs to pytest."""
    return path.name.startswith("test_") or path.name == "conftest.py"


def examine(path: Path) -> list[Pitfall]:
    """The pitfalls of one file, in the order of its lines; DoctorError if it can't be read."""
    if path.suffix in (".json", ".jsonc"):
        found = [*_configuration(path), *_commands(path)]
    elif path.suffix == ".py" and path.name != "noxfile.py":
        try:
            found = Benchmarks(path).findings()
        except RecursionError:
            raise DoctorError(f"{path} is nested too deeply to be a benchmark file") from None
    else:
        found = list(_commands(path))
    return sorted(set(found), key=lambda f: (f.line, f.name, f.what))


# Scripts ----------------------------------------------------------------------------------------------------


def _commands(path: Path) -> Iterator[Pitfall]:
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not re.search(r"\basv\s+(run|continuous|find)\b", line) or ACCEPTED.search(line):
            continue
        words = line.split()
        if ("--quick" in words or "-q" in words) and not {"--dry-run", "-n"} & set(words):
            yield Pitfall(path, number, "quick")
        if re.search(r"--python[= ]same\b", line):
            yield Pitfall(path, number, "same-python")


# Configurations ---------------------------------------------------------------------------------------------


def keys() -> frozenset[str]:
    """The keys that the installed asv knows, or those of 0.6.6 if it is not installed."""
    try:
        from asv.config import Config
    except ImportError:
        return KEYS | OTHER_KEYS
    return frozenset(vars(Config())) | OTHER_KEYS


def load_configuration(path: Path) -> dict[str, Any]:
    """A configuration: JSON with // and /* */ comments and trailing commas. DoctorError if it is not valid."""
    text = _strip_comments(read_text(path))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise DoctorError(f"{path} is not JSON with comments{where}: see `asv quickstart`") from None
    if not isinstance(found, dict):
        raise DoctorError(f"{path} is not a configuration of asv: it must hold an object")
    return found


_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA = re.compile(r'"(?:\\.|[^"\\\n])*"|,(?=\s*[}\]])')


def _strip_comments(text: str) -> str:
    """The text without comments and trailing commas, with unchanged line numbers."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else "\n" * match[0].count("\n")

    return _COMMA.sub(lambda m: m[0] if m[0].startswith('"') else "", _TOKEN.sub(blank, text))


def _configuration(path: Path) -> Iterator[Pitfall]:
    accepted = {n for n, text in enumerate(read_text(path).splitlines(), 1) if ACCEPTED.search(text)}
    yield from (found for found in _settings(path) if found.line not in accepted)


def _settings(path: Path) -> Iterator[Pitfall]:
    settings, lines = load_configuration(path), _strip_comments(read_text(path)).splitlines()

    def line(key: str) -> int:
        return next((n for n, text in enumerate(lines, 1) if f'"{key}"' in text), 1)

    known = keys()
    for key in settings:
        if key not in known:
            yield Pitfall(path, line(key), "unknown-key", printable(key))
    if settings.get("launch_method") != "spawn":
        yield Pitfall(path, line("launch_method"), "launch-method")
    if settings.get("environment_type") == "existing":
        return
    pinned = dict(_pins(settings))
    runner = {name for name in pinned if name.removeprefix("pip+") == "asv_runner"}
    if not runner:
        yield Pitfall(path, line("matrix"), "runner")
    command = settings.get("install_command")
    commands = command if isinstance(command, list) else [command]
    safe = command is not None and all(
        "--no-deps" in str(c) or not re.search(r"\bpip3? install\b", str(c)) for c in commands
    )
    if set(pinned) - runner and not safe:
        yield Pitfall(path, line("install_command"), "install-dependencies")


def _pins(settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each requirement and version that the matrix or an include pins."""
    for part in (settings.get("matrix"), *_list(settings.get("include"))):
        if not isinstance(part, dict):
            continue
        typed = any(kind in part for kind in ("req", "env", "env_nobuild"))
        requirements = part.get("req", {}) if typed else part
        for name, versions in requirements.items() if isinstance(requirements, dict) else ():
            for version in _list(versions):
                if (
                    isinstance(version, str)
                    and version
                    and name not in ("python", "sys_platform", "environment_type")
                ):
                    yield name, version


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
