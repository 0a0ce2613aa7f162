# SPDX-License-Identifier: Apache-2.0
"""Makes a bundle of records: the files of a product in the layout of results/, cleaned, hashed and checked.

The statement, totals and environment are computed from the records. publish.validate checks the bundle before it is
moved to its place, so this module refuses everything that a reviewer would refuse. A dirty suite, or a claimed level
that is not met, can be marked instead. The marks stay with the product.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from meshmark import __version__
from meshmark.core import files
from meshmark.core.errors import BadInput
from meshmark.core.escaping import field as field_of
from meshmark.devices.environment import CPU_DEVICES_A_PROCESS, DEFAULT_CPU_DEVICES
from meshmark.levels import must_pass as levels
from meshmark.levels import statements
from meshmark.levels.expectations import Expectations
from meshmark.levels.statements import Statement
from meshmark.operations.choosing import MANY
from meshmark.publish import (
    bundles,
    environments,
    file_checks,
    logs,
    publishable,
    signatures,
    totals,
    validate,
)
from meshmark.publish.bundles import Bundle, File, Room
from meshmark.publish.definition import Manifest
from meshmark.publish.file_checks import DIRTY, INCOMPLETE
from meshmark.publish.lines import as_records, entries
from meshmark.publish.review import Entry, Review
from meshmark.publish.workload import MOST_WORK
from meshmark.records import results, run_line, sealing, writing
from meshmark.records.definition import KINDS
from meshmark.records.product_definition import NoteData, ProductData
from meshmark.records.results import ENVIRONMENT, MANIFEST, PRODUCT
from meshmark.records.run_definition import RunFacts, RunLine

Value = TypeVar("Value")

STANDS_FOR = "meshmark test"
"""The command if the records give none, so that the other fields are still checked."""


class BundleRefused(Exception):
    """A bundle is not made; each of `complaints` is one line with the correction."""

    def __init__(self, complaints: Sequence[str]) -> None:
        super().__init__("; ".join(complaints))
        self.complaints = list(complaints)


class SubmitError(BundleRefused, BadInput, ValueError):
    """Records or options that can't be used, together with all other complaints."""


class SubmitRefused(BundleRefused):
    """The records could be read, but a reviewer would refuse them."""


class Wrong:
    """Collects everything that is wrong, to report it at once."""

    def __init__(self) -> None:
        self.input: list[str] = []
        self.refused: list[str] = []

    def attempt(self, made: Callable[..., Value], *arguments: Any) -> Value | None:
        """made(*arguments). If its input can't be used, keeps the complaints and returns None."""
        try:
            return made(*arguments)
        except SubmitError as error:
            self.input += error.complaints
        except BadInput as error:
            self.input.append(str(error))
        return None

    def end(self) -> None:
        """Raise SubmitError or SubmitRefused if anything is wrong."""
        if self.input:
            raise SubmitError([*self.input, *self.refused])
        if self.refused:
            raise SubmitRefused(self.refused)


@dataclass(frozen=True)
class Wanted:
    """The description of a product, in addition to its records."""

    name: str
    by: str
    command: str = ""
    """If empty, the run lines give it."""
    title: str = ""
    contact: str = ""
    hardware: str = ""
    level: str | None = None
    """The claimed level: "" for none, None for the highest level that is met."""
    notes: Sequence[NoteData] = ()
    mark: bool = False
    """Whether to mark a dirty suite or an unmet level instead of refusing it."""
    logs: Sequence[Path] = ()
    """Files with the output of the runs, to be cleaned and packed with the records."""
    key: Path | None = None
    """The SSH key that signs the manifest; None for no signature."""
    unusable: Sequence[str] = ()
    """What is wrong with the options themselves, one line each; it is reported with all other complaints."""


@dataclass(frozen=True)
class Made:
    """A bundle that was written."""

    path: Path
    """The product's directory."""
    report: Review
    archive: Path | None = None
    files: Mapping[str, int] = field(default_factory=dict)
    """The size in bytes of each file, by name."""


def make(
    paths: Sequence[Path],
    wanted: Wanted,
    output: Path,
    archive: bool = False,
    expected: Expectations | None = None,
    most_work: int = MOST_WORK,
) -> Made:
    """Make the bundle of these record files below `output`, and on request a .tar.gz beside its release.

    `expected` holds a vendor's known issues and counters, in addition to the suite's. `most_work`: bytes of answers to
    compute again. SubmitError for input that can't be used, SubmitRefused for content that a reviewer
    would refuse. Then no file is left.
    """
    wrong = Wrong()
    bundle = _bundled(paths, wanted, wrong)
    wrong.input += wanted.unusable
    if why := describe_unwritable(output):
        wrong.input.append(why)
    if bundle is None:
        wrong.end()
        raise AssertionError("a bundle that can't be made has a reason")
    report = validate.check_product(bundle, expected, most_work=0 if wrong.input else most_work)
    wrong.refused += report.complaints
    target = output / bundle.release / bundle.name
    packed = output / f"{bundle.name}-{bundle.release}.tar.gz" if archive else None
    for path in filter(None, (target, packed)):
        if path.exists() or path.is_symlink():
            wrong.input.append(
                f"{path} exists: results are never overwritten, name another product or directory"
            )
    wrong.end()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".submit-", dir=target.parent))
        try:
            for file in bundle.files.values():
                (temporary / file.name).write_bytes(file.data)
            temporary.chmod(0o755)
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        if packed:
            packed.write_bytes(_tar(bundle))
    except OSError as error:
        raise SubmitError([f"can't write {target}: {os.strerror(error.errno or 0)}"]) from None
    return Made(target, report, packed, {n: len(f.data) for n, f in sorted(bundle.files.items())})


def describe_unwritable(directory: Path) -> str:
    """Why nothing can be written below a directory, which need not be there yet; "" if something can.

    It is asked before the answers are computed again, which takes minutes."""
    there = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    if not there.is_dir():
        return f"can't write into {directory}: {there} is not a directory; name another --output"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"can't write into {directory}: {there} may not be written; name another --output"
    return ""


def bundled(paths: Sequence[Path], wanted: Wanted) -> Bundle:
    """The bundle in memory, not checked yet; raises as `make` does."""
    wrong = Wrong()
    bundle = _bundled(paths, wanted, wrong)
    wrong.end()
    assert bundle is not None
    return bundle


def _bundled(paths: Sequence[Path], wanted: Wanted, wrong: Wrong) -> Bundle | None:
    """The bundle, also if only a mark is missing; None if its input can't be used. `wrong` collects the complaints."""
    read = {path: lines for path in paths if (lines := wrong.attempt(_read, path)) is not None}
    facts = wrong.attempt(_facts, read) if read else None
    if wrong.input or facts is None:
        _try_options(wanted, wrong, frozenset())
        return None
    release = facts["versions"]["jax"]
    versions = publishable.versions_of(facts)
    files: dict[str, list[Entry]] = {}
    for lines in read.values():
        cleaned = [(number, publishable.clean_record(record, versions)) for number, record in lines]
        files[_choose_file_name(lines, files)] = cleaned
    merged = as_records([entry for lines in files.values() for entry in lines])
    statement = wrong.attempt(statements.statement, merged)
    if statement is None:
        _try_options(wanted, wrong, versions)
        return None
    product = wrong.attempt(_product, wanted, files, statement, facts, wrong.refused)
    if product is None:
        _try_files(wanted, wrong, versions)
        return None
    bundle = Bundle(release, product["name"])
    for name, lines in files.items():
        text = "".join(writing.dumps(record) + "\n" for _, record in lines)
        _put(bundle, name, gzip.compress(text.encode(), 9, mtime=0))
    for number, path in enumerate(wanted.logs, 1):
        if (packed := wrong.attempt(logs.pack, path, versions)) is not None:
            _put(bundle, logs.name(number), packed)
    _put(bundle, ENVIRONMENT, _json(file_checks.environment_content(files)))
    _put(bundle, PRODUCT, results.product_text(product).encode())
    manifest: Manifest = {
        "schema": 1,
        "made_by": f"meshmark {__version__}",
        "files": {n: {"sha256": f.sha256, "bytes": len(f.data)} for n, f in sorted(bundle.files.items())},
        "totals": totals.add_up(files),
        "statement": statement.to_json(),
    }
    _put(bundle, MANIFEST, _json(manifest))
    if wanted.key and (signed := wrong.attempt(signatures.sign, bundle.files[MANIFEST].data, wanted.key)):
        _put(bundle, signatures.FILE, signed)
    return bundle


def _try_options(wanted: Wanted, wrong: Wrong, versions: frozenset[str]) -> None:
    """Find what else is wrong if the records can't be used, so that everything is reported at once."""
    known = (*levels.names(), *levels.names(processes=2))
    if wanted.level and wanted.level not in known:
        wrong.input.append(f"no level {wanted.level[:20]!a}: choose from {', '.join(known)}, or none")
    wrong.attempt(_said, wanted, wanted.command or STANDS_FOR, versions)
    _try_files(wanted, wrong, versions)


def _try_files(wanted: Wanted, wrong: Wrong, versions: frozenset[str]) -> None:
    """Check that the logs can be packed, and that the key exists."""
    for path in wanted.logs:
        wrong.attempt(logs.pack, path, versions)
    if wanted.key and not wanted.key.exists():
        wrong.input.append(f"there is no key {wanted.key}: name a key of SSH, or submit without --sign")


def _read(path: Path) -> list[Entry]:
    """The lines of a record file, without their seals; a torn, foreign or changed line is refused."""
    try:
        with files.opened(path) as file:
            data = file.read(4 * bundles.MOST_PACKED + 1)
    except OSError as error:
        raise SubmitError([f"can't read {path}: {os.strerror(error.errno or 0)}"]) from None
    if len(data) > 4 * bundles.MOST_PACKED:
        raise SubmitError(
            [f"{path} has more than {4 * bundles.MOST_PACKED >> 20} MiB: submit fewer runs at once"]
        )
    bundle, report = Bundle("", "", {path.name: File(path.name, data)}), Review("")
    lines = entries(bundle, path.name, Room(), report, submitted=False)
    if report.complaints:
        more = f" ({len(report.complaints) - 1} more)" if len(report.complaints) > 1 else ""
        where = path.parent / report.complaints[0] if path.parent != Path() else report.complaints[0]
        raise SubmitError([f"{where}{more}"])
    by_number, seals = dict(lines), sealing.Seals()
    for number, text in bundles.whole_lines(bundle.files[path.name], Room()):
        if isinstance(text, bytes) and (
            why := seals.add(text.decode("utf-8", "replace"), by_number.get(number))
        ):
            raise SubmitError([f"{path}:{number}: {why}"])
    for _, record in lines:
        cast(dict[str, object], record).pop(sealing.FIELD, None)
    if not any(record["kind"] != "run" for _, record in lines):
        raise SubmitError([f"{path} holds nothing but run lines: name what --record wrote"])
    last = {r["case"]: "seconds" in r for _, r in lines if r["kind"] == "conformance"}
    if cut := [case for case, closed in last.items() if not closed]:
        raise SubmitError(
            [f"{path}: {cut[0]} is not judged to the end: continue the run, --resume {path.name}"]
        )
    return lines


def _facts(read: Mapping[Path, Sequence[Entry]]) -> RunFacts:
    runs = [as_records([entry for entry in lines if entry[1]["kind"] == "run"]) for lines in read.values()]
    facts = statements.shared_environment(runs)
    if facts.get("topology"):
        raise SubmitError(
            ["these are compile-only runs, in which nothing ran: they belong in results/compile-only"]
        )
    release = facts["versions"]["jax"]
    if not results.RELEASE.fullmatch(release):
        raise SubmitError([f"JAX {release[:40]!a} is not a release that results/ can hold"])
    return facts


def _choose_file_name(lines: Sequence[Entry], taken: Mapping[str, Any]) -> str:
    """A file name made only from the content, such as conformance.jsonl.gz. No name in `taken` comes again."""
    held = {record["kind"] for _, record in lines}
    kinds = [k for k in KINDS if k in held and k != "run"]
    base = next((k for k in ("conformance", "comparison", "timing") if k in kinds), "ceiling")
    number = 1
    while (name := f"{base}{'' if number == 1 else f'-{number}'}.jsonl.gz") in taken:
        number += 1
    return name


def _product(
    wanted: Wanted,
    files: Mapping[str, Sequence[Entry]],
    statement: Statement,
    facts: RunFacts,
    lacking: list[str],
) -> ProductData:
    """The content of product.yaml, with its marks. `lacking` collects the marks that are missing."""
    refused: list[str] = []
    marks: list[str] = []
    wrong: list[str] = []
    suites = [r["facts"]["suite"] for lines in files.values() for _, r in lines if r["kind"] == "run"]
    dirty = [s for s in suites if s["commit"] is None or s["clean"] is not True]
    if dirty:
        commit = str(dirty[0]["commit"])[:12] if dirty[0]["commit"] else "no commit"
        why = f"{len(dirty)} of {len(suites)} runs used a suite with changes or without a commit ({commit})"
        marks.append(f"{DIRTY}: {why}")
        refused.append(f"{why}: run again from a clean checkout, or publish it marked (--mark)")
    of_runs = [r["facts"] for lines in files.values() for _, r in lines if r["kind"] == "run"]
    if strange := sorted({name for one in of_runs for name in environments.foreign(one)}):
        why = f"runs with what is not JAX's or NumPy's own ({', '.join(strange)[:80]})"
        marks.append(f"{DIRTY}: {why}")
        refused.append(f"{why}: run again without it, or publish it marked (--mark)")
    level = statement.met if wanted.level is None else wanted.level
    names = levels.names(statement.processes)
    if level and level not in names:
        over = f" of {statement.processes} processes" if statement.processes > 1 else " of one process"
        wrong.append(f"no level {level[:20]!a}{over}: choose from {', '.join(names)}, or none")
        level = ""
    judged = any(r["kind"] == "conformance" for lines in files.values() for _, r in lines)
    if level and level > statement.met:
        told = [s.describe() for s in statement.standings if s.must.level <= level and not s.complete]
        marks.append(f"{INCOMPLETE}: {level} is claimed; {'; '.join(told)}"[:500])
        refused += [
            f"{level} is claimed and not met: {one}: run the missing cases, or claim a lower level (--level)"
            for one in told
        ]
    elif not level and judged and wanted.level is None:
        told = [s.describe() for s in statement.standings if not s.complete]
        marks.append(f"{INCOMPLETE}: {told[0]}"[:500])
        refused.append(
            f"no level is met ({told[0]}): run the missing cases, or submit without a level (--level none)"
        )
    if not wanted.mark:
        lacking += refused
    versions = publishable.versions_of(facts)
    command = wanted.command or "; ".join(dict.fromkeys(commands(files)))
    return _said(wanted, command, versions, level, marks, wrong)


def _said(
    wanted: Wanted,
    command: str,
    versions: frozenset[str],
    level: str = "",
    marks: Sequence[str] = (),
    wrong: Sequence[str] = (),
) -> ProductData:
    """The fields of product.yaml. SubmitError lists `wrong`, fields with private text, and fields that are not one
    line."""
    keep = {wanted.contact, *wanted.contact.replace("<", " ").replace(">", " ").split()}
    product: ProductData = {
        "name": wanted.name,
        "title": wanted.title,
        "by": wanted.by,
        "contact": wanted.contact,
        "hardware": wanted.hardware,
        "command": command,
        "level": level,
        "notes": [note.copy() for note in wanted.notes],
        "marks": list(marks),
    }
    wrong = list(wrong)
    shown = {k: v for k, v in product.items() if v not in ("", [])}
    for name in ("title", "by", "hardware", "command"):
        if found := publishable.find_private_text(str(shown.get(name, "")), versions, keep):
            what, hit = found[0]
            wrong.append(f"{name} holds {what} ({hit!a}), which is not published: leave it out")
    if wrong := [*wrong, *results.problems_of_product(shown)]:
        raise SubmitError(wrong)
    return results.checked_product(shown)


def commands(files: Mapping[str, Sequence[Entry]]) -> list[str]:
    """The commands that repeat these runs, from their run lines."""
    found = []
    for lines in files.values():
        for _, run in lines:
            if run["kind"] == "run":
                found.append(
                    find_repeating_command(run, {r["kind"] for _, r in lines if r["run"] == run["run"]})
                )
    return list(filter(None, found))


OPTIONS = {field: option for option, field in MANY.items()}
"""The command-line option of each field of a selection."""


def find_repeating_command(run: RunLine, kinds: set[str]) -> str:
    """The command that repeats one run of `meshmark test` or `meshmark bench`; "" for other runs."""
    chosen, facts, timed = run.get("selection", {}), run["facts"], bool(kinds & {"timing", "ceiling"})
    if "comparison" in kinds or "environment" in run:
        return "meshmark compare (see the notes)"
    words = ["meshmark", "bench" if timed else "test"]
    words += ["--profile", str(chosen.get("profile", "standard"))]
    for name, option in OPTIONS.items():
        if isinstance(values := chosen.get(name), list) and values:
            words += [f"--{option}", ",".join(map(str, values))]
    words += _expecting(chosen)
    if timed:
        timing = run.get("timing", {})
        words += ["--scaling"] if chosen.get("scaling") else []
        words += ["--cadence", ",".join(map(str, timing.get("cadences", ["isolated", "stream"])))]
        words += ["--seconds", str(timing["seconds"])] if "seconds" in timing else []
        words += ["--processes", str(run["repeat"])] if run.get("repeat", 1) != 1 else []
    elif run.get("repeat", 1) != 1:
        words += ["--repeat", str(run["repeat"])]
    words += ["--seed", str(run["seed"])] if run.get("seed") else []
    return shlex.join([*_launched(words, facts), "--record", "records.jsonl"])


def _expecting(chosen: Mapping[str, Any]) -> list[str]:
    """The options that name a vendor's known issues and counters, with only the names of file and directory."""
    listed, directory = chosen.get("known_issues"), field_of(chosen.get("counters"), "directory")
    words = [
        word
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(name := field_of(one, "file"), str)
        for word in ("--known-issues", name)
    ]
    return words + (["--counters", directory] if isinstance(directory, str) else [])


def _launched(words: list[str], facts: RunFacts) -> list[str]:
    """The command with its number of devices, and with the launch of its processes if there are several.

    Virtual devices are started by `meshmark launch`. If JAX found the processes itself, the cluster's launcher starts
    the command, and the records do not name that launcher.
    """
    processes, virtual = run_line.processes(facts), facts["backend"] == "cpu"
    each = facts["num_devices"] // processes
    if processes == 1:
        return words + (["--num-devices", str(each)] if virtual and each != DEFAULT_CPU_DEVICES else [])
    detected = field_of(facts.get("group"), "detected") is True
    if virtual and not detected:
        started = ["-n", str(processes), "--devices-per-process", str(each)]
        return ["meshmark", "launch", *started, "--", *words]
    if virtual and each != CPU_DEVICES_A_PROCESS:
        words = [*words, "--num-devices", str(each)]
    if detected:
        return [*words, "--distributed"]
    return [*words, "--coordinator", "HOST:PORT", "--num-processes", str(processes), "--process-id", "I"]


def _put(bundle: Bundle, name: str, data: bytes) -> None:
    bundle.files[name] = File(name, data)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _tar(bundle: Bundle) -> bytes:
    """The files as a .tar.gz without the packing user and time."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, file in sorted(bundle.files.items()):
            member = tarfile.TarInfo(f"{bundle.place}/{name}")
            member.size, member.mode = len(file.data), 0o644
            archive.addfile(member, io.BytesIO(file.data))
    return gzip.compress(packed.getvalue(), 9, mtime=0)
