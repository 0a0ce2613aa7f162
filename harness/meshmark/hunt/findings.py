# SPDX-License-Identifier: Apache-2.0
"""The store of findings: one directory per finding, with its data, script and report.

results/findings/NAME/finding.json    the data and all that is known about it
results/findings/NAME/repro.py        the script
results/findings/NAME/report.md       the text of a report

A store may also be one file with the data of several findings. The package has its findings in this form, so that an
installation without a checkout knows them.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from meshmark.core import files
from meshmark.core.errors import BadInput, unknown
from meshmark.core.installation import CHECKOUT
from meshmark.program_data.program import Program, ProgramData, from_json
from meshmark.records import checking

STORE = Path("results") / "findings"
"""The path of the store in a checkout."""

PACKED = Path(__file__).parent / "data" / "findings.json"
"""The same findings in one file of the package. `python -m meshmark.hunt.packing` makes it."""

DEFAULT = CHECKOUT / STORE if CHECKOUT and (CHECKOUT / STORE).is_dir() else PACKED
"""The store that commands use unless an option names another one: the checkout's, or the package's."""

SEVERITIES = ("silent", "crash", "internal", "refused")
"""The severities of findings, the worst first: wrong numbers without an error; the process dies; the compiler raises an
internal error; a correct program is refused."""


class FindingError(BadInput, ValueError):
    """A finding that can't be read; the message is one line."""


@dataclass
class Finding:
    """A finding: one root cause."""

    name: str
    title: str
    severity: str
    groups: list[str]
    """The keys of the groups that it explains, as `meshmark.hunt.grouping` makes them."""
    program: ProgramData
    mode: str
    expected: list[Any]
    seen: str
    what: str
    sentence: str = ""
    """What it means for a user."""
    releases: dict[str, str] = field(default_factory=dict)
    """The outcome by release of JAX, such as wrong, right, crash, internal, refused or inexpressible."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    """The outcome over several processes, and in the interpreted programs of topologies, with what compiled them."""
    compiled: str = ""
    """What a person read in the text that a compiler made: the instruction that is wrong, and for which devices."""
    workarounds: list[str] = field(default_factory=list)
    reported: str = ""
    """A link to a report, or "none found: WORDS, DATE"."""
    topology: str = ""
    """The topology whose compiled program showed it when interpreted; "" if it was seen on devices."""
    found: dict[str, Any] = field(default_factory=dict)
    """Its origin: the release of JAX, the seed and number of the program that showed it first, and the minute."""

    def data(self) -> Program:
        """The program, read from its JSON values."""
        return from_json(self.program)

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON values."""
        return asdict(self)


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""The form of a finding's name, which is also the name of its directory."""

_CHECKS = {name: checking.check_of(hint) for name, hint in get_type_hints(Finding).items()}


def _wrong(found: Finding) -> str:
    """The problem with the form of a finding; "" if it has none."""
    if not (problem := checking.inside(vars(found), _CHECKS)):
        if found.severity not in SEVERITIES:
            return f"its severity is none of {', '.join(SEVERITIES)}"
        if not NAME.fullmatch(found.name):
            return f"its name {found.name[:40]!a} can't be that of a directory"
    return problem and f"it {problem}"


def read_finding(path: Path) -> Finding:
    """Read one finding by its directory, or by the file in it; FindingError if it is not a finding."""
    file = path / "finding.json" if path.is_dir() else path
    if not file.exists() and (path / "evidence.txt").exists():
        raise FindingError(
            f"{path} is a finding of a compiler without its hardware: it has evidence.txt and no program to judge; run"
            " its repro.py"
        )
    return _from_json(_load(file, path), path)


def _load(file: Path, path: Path) -> Any:
    try:
        return json.loads(files.read_text(file))
    except (OSError, ValueError, RecursionError) as error:
        raise FindingError(f"{path} is not a finding: {str(error)[:200]}") from None


def _from_json(data: Any, path: Path) -> Finding:
    try:
        found = Finding(**data)
        wrong = _wrong(found)
    except (TypeError, ValueError, RecursionError) as error:
        raise FindingError(f"{path} is not a finding: {str(error)[:200]}") from None
    if wrong:
        raise FindingError(f"{path} is not a finding: {wrong}")
    return found


def find_finding(name: str, store: Path = DEFAULT) -> Finding:
    """Read the finding of this name in the store, or at this path; FindingError, with near names, if there is none."""
    if store.is_file():
        every = {f.name: f for f in read_findings(store)}
        if name in every:
            return every[name]
    for path in (store / name, Path(name)):
        if path.exists():
            return read_finding(path)
    if names := [f.name for f in read_findings(store)]:
        raise FindingError(unknown("finding", name, names, f"ls {store}" if store.is_dir() else ""))
    raise FindingError(f"unknown finding {name[:80]!a}: {store} holds none")


def read_findings(store: Path = DEFAULT) -> list[Finding]:
    """Read all findings of a store, the worst first, then by name; FindingError if one can't be read. A store that is
    missing has none."""
    if store.is_file():
        packed = _load(store, store)
        if not isinstance(packed, list):
            raise FindingError(f"{store} is not a store: it is not a list of findings")
        found = [_from_json(data, store) for data in packed]
    else:
        found = [read_finding(path.parent) for path in sorted(store.glob("*/finding.json"))]
    return sorted(found, key=lambda f: (SEVERITIES.index(f.severity), f.name))


def pack(found: Iterable[Finding]) -> str:
    """The text of a store in one file: a JSON list with one finding per line."""
    lines = [json.dumps(f.to_json(), separators=(",", ":")) for f in found]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def describe_empty(store: Path) -> str:
    """A warning for a store without findings."""
    why = "has no findings" if store.exists() else "does not exist"
    return f"the store of findings {store} {why}: every finding is reported as new"


def read_script(name: str, store: Path = DEFAULT) -> str:
    """Read the text of the script of a finding, named as for `find_finding`; FindingError if it is missing."""
    beside = Path(name) if Path(name).is_dir() else Path(name).parent
    for path in (store / name / "repro.py", beside / "repro.py"):
        if path.exists():
            try:
                return files.read_text(path)
            except (OSError, ValueError) as error:
                raise FindingError(f"{path} is not a script: {str(error)[:200]}") from None
    raise FindingError(f"the finding {name[:80]!a} has no repro.py")


def known_groups(findings: Iterable[Finding], release: str = "") -> Mapping[str, str]:
    """The name of the finding that explains each group, by the group's key. A finding that is right on this release of
    JAX explains no group, because a similar failure there has a new cause."""
    return {g: f.name for f in findings if f.releases.get(release) != "right" for g in f.groups}


def choose_free_name(name: str, store: Path) -> str:
    """This name, or this name with "-2", "-3" ... appended if the store already has a finding of that name."""
    names = [name, *(f"{name}-{k}" for k in range(2, 1000))]
    return next(n for n in names if not (store / n).exists())


def prepare_store(store: Path) -> None:
    """Make a store's directory if it is missing; FindingError if no finding can be written into it, or if one that is
    there can't be read."""
    require_directory(store)
    try:
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=store):
            pass
    except OSError as error:
        raise FindingError(f"can't write into {store}: {error.strerror}; name another directory") from None
    read_findings(store)


def require_directory(store: Path) -> None:
    """FindingError if a store is one file, into which no finding can be written."""
    if store.is_file():
        raise FindingError(f"{store} is one file: name a directory of findings to write into it")


def write_finding(finding: Finding, script: str, report: str, store: Path) -> Path:
    """Write the directory of a finding, and give its path; FindingError if the store is one file."""
    require_directory(store)
    directory = store / finding.name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "finding.json").write_text(json.dumps(finding.to_json(), indent=1) + "\n", encoding="utf-8")
    (directory / "repro.py").write_text(script, encoding="utf-8")
    (directory / "report.md").write_text(report, encoding="utf-8")
    return directory
