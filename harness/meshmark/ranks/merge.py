# SPDX-License-Identifier: Apache-2.0
"""Merges FILE.rank0, FILE.rank1 ... into FILE: one line per check of each case, as one process would write it.

Timings have one line per case and cadence. `samples_s` has the slowest rank's sample at each position,
`samples_by_rank` has the samples of each rank, and `skew` has their differences (meshmark.core.skew).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark.core.skew import measure_skew, slowest
from meshmark.core.verdicts import BAD, VERDICTS
from meshmark.ranks.agreement import merge_findings
from meshmark.records import run_line
from meshmark.records.closing import Account
from meshmark.records.definition import TimingLine
from meshmark.records.reading import TORN, RecordError, Records, read_records
from meshmark.records.writing import dumps


def rank_files(path: Path, size: int) -> list[Path]:
    """The paths FILE.rank0 to FILE.rank<size-1>."""
    return [path.with_name(f"{path.name}.rank{rank}") for rank in range(size)]


def own_file(path: Path, rank: int, size: int, resume: bool, exist: Sequence[bool]) -> tuple[Path, bool]:
    """(path FILE.rankK of this rank, whether to append to it). exist: whether each rank's file exists.

    RecordError if no rank has a file to resume, or FILE would be overwritten at the end.
    """
    own = rank_files(path, size)[rank]
    if not resume:
        must_not_exist(path)
    elif not any(exist):
        raise RecordError(f"no {path}.rank* to go on with: name what --record named, or use --record")
    return own, resume and exist[rank]


def must_not_exist(path: Path) -> None:
    """RecordError if FILE exists, because it would be overwritten at the end."""
    if path.exists():
        raise RecordError(f"{path} exists: records are never overwritten, name another file")


def sizes(path: Path) -> int:
    """The number of ranks that wrote these files, from the first existing one; RecordError if there is none."""
    found = sorted(path.parent.glob(f"{path.name}.rank*"))
    found = [p for p in found if p.name.removeprefix(f"{path.name}.rank").isdecimal()]
    if not found:
        raise RecordError(f"no {path}.rank*: name the file that --record named, without .rankK")
    size = read_records(found[0]).runs[0]["facts"].get("num_processes")
    if type(size) is not int or size < 1:
        raise RecordError(f"{found[0]} does not say its number of processes: use what --record wrote")
    return size


def merged(path: Path, size: int) -> list[dict[str, Any]]:
    """The lines of FILE; RecordError if a rank's file is missing, is of another run, or can't be read completely.

    A case that not every rank has finished is left out, unless a rank has a bad verdict for it.
    """
    files = []
    for rank, file in enumerate(rank_files(path, size)):
        if not file.exists():
            raise RecordError(f"{file} is missing: bring the files of all {size} ranks together")
        files.append(read_records(file))
        if lost := [problem for problem in files[rank].problems if not problem.endswith(TORN)]:
            raise RecordError(f"{lost[0]}: what is lost may be a failure, so nothing is merged")
        for run in files[rank].runs:
            _belongs(files[0].runs[0], run, file, rank, size)
    _must_be_of_one_launch(path, files)
    first = files[0].runs[0]
    lines: list[Any] = [{k: v for k, v in first.items() if k != "rank"} | {"ranks": size}]
    order = dict.fromkeys(name for file in files for name in file.cases)
    for name in order:
        lines += _case({rank: file for rank, file in enumerate(files)}, name)
    lines += _timings(files)
    return _closed([line | {"run": first["run"]} for line in lines], files)


def _closed(lines: list[dict[str, Any]], files: Sequence[Records]) -> list[dict[str, Any]]:
    """The lines with the line of the chosen cases, and with an end line that has the largest exit code of all ranks. If
    a rank's file has no end line, the merged one has none either. RecordError if ranks chose different cases."""
    of_run = {"run": lines[0]["run"]}
    if every := [file.chosen[-1] for file in files if file.chosen]:
        if len({(one["cases"], one["digest"]) for one in every}) > 1:
            numbers = ", ".join(str(one["cases"]) for one in every)
            raise RecordError(
                f"the ranks chose different cases ({numbers} of them): their files are of several runs, bring those of"
                " one together"
            )
        lines.insert(1, dict(every[0]) | of_run)
    if all(file.closed for file in files):
        account = Account()
        for line in lines:
            account.add(json.loads(dumps(line)))
        lines.append(account.end(max(file.ends[-1]["exit_code"] for file in files)) | of_run)
    return lines


def _case(files: Mapping[int, Records], name: str) -> list[dict[str, Any]]:
    found = {
        rank: file.cases[name]
        for rank, file in files.items()
        if name in file.cases and file.cases[name].finished
    }
    if len(found) < len(files) and not any(judged.verdict in BAD for judged in found.values()):
        return []
    return merge_findings({rank: judged.lines for rank, judged in found.items()})


def _timings(files: Sequence[Records]) -> Iterator[TimingLine]:
    """The timing lines of those cases that all ranks have timed together, or for which a rank has a bad verdict."""
    found: dict[tuple[Any, ...], dict[int, TimingLine]] = {}
    for rank, file in enumerate(files):
        groups = {run["run"]: run.get("group") for run in file.runs}
        for record in file.timings:
            key = (groups.get(record["run"]), record["case"], record["cadence"], record["process"])
            found.setdefault(key, {})[rank] = record
    for by_rank in found.values():
        if len(by_rank) == len(files) or any(one["verdict"] in BAD for one in by_rank.values()):
            yield merge_timing(by_rank, len(files))


def merge_timing(by_rank: Mapping[int, Any], size: int) -> TimingLine:
    """The merged timing line of one case and cadence: that of the lowest rank with the worst verdict. If all ranks
    passed, it has the samples of all. RecordError if the ranks have different numbers of samples."""
    worst = min(by_rank, key=lambda rank: (VERDICTS.index(by_rank[rank]["verdict"]), rank))
    line: Any = dict(by_rank[worst]) | {"samples_s": []}
    for name in ("lower_s", "compile_s", "seconds"):
        if values := [one[name] for one in by_rank.values() if name in one]:
            line[name] = max(values)
    samples = [by_rank[rank]["samples_s"] for rank in range(size) if rank in by_rank]
    if line["verdict"] == "pass" and len(samples) == size and any(samples):
        try:
            line |= {"samples_s": slowest(samples), "samples_by_rank": samples, "skew": measure_skew(samples)}
            if all("control_s" in one for one in by_rank.values()):
                line["control_s"] = slowest([by_rank[rank]["control_s"] for rank in range(size)])
        except ValueError:
            numbers = ", ".join(str(len(s)) for s in samples)
            raise RecordError(
                f"{line['case']}: the ranks have {numbers} samples, and each call was of all: use the files as they"
                " were written"
            ) from None
    made: TimingLine = line
    return made


def _belongs(first: Mapping[str, Any], run: Mapping[str, Any], file: Path, rank: int, size: int) -> None:
    own = run["facts"]
    if run.get("rank") != rank or own.get("num_processes") != size:
        raise RecordError(
            f"{file} is of rank {run.get('rank')} of {own.get('num_processes')}, not of rank {rank} of {size}"
        )
    for part in (_alike, run_line.settings):
        if found := run_line.spell_difference(part(first), part(run)):
            raise RecordError(f"{file} is of another run: it differs from that of rank 0 in {found}")


def _must_be_of_one_launch(path: Path, files: Sequence[Records]) -> None:
    """RecordError if ranks that did not start together have judged the cases to merge.

    Files of earlier versions do not have the group that started together. In a resumed run the ranks have started
    together more than once. A bad verdict counts independent of the group of its rank."""
    groups = [{run["run"]: run.get("group") for run in file.runs} for file in files]
    common = set.intersection(*(set(own.values()) for own in groups))
    for file, own, name in zip(files, groups, rank_files(path, len(files)), strict=True):
        passes = [judged for judged in file.cases.values() if judged.verdict not in BAD]
        apart = [judged.case for judged in passes if own.get(judged.lines[-1]["run"]) not in common]
        if not common or apart:
            judged = f", such as {apart[0]}" if apart and common else ""
            raise RecordError(
                f"{name} is of another launch than the files of the other ranks{judged} (`group` of the run lines):"
                " bring the files of one launch together"
            )


COUNTS = ("cores", "usable", "quota")
"""The fields of a host that count its cores."""


def _alike(run: Mapping[str, Any]) -> dict[str, Any]:
    """The environment of a run line without values that may differ between hosts and ranks: the numbers of cores, and
    variables that select a rank's devices."""
    found = run_line.environment_fields(run)
    host = {name: value for name, value in (found["host"] or {}).items() if name not in COUNTS}
    flags = {name: value for name, value in found["flags"].items() if run_line.of_every_rank(name)}
    return found | {"host": host, "flags": flags}


def write_where_seen(path: Path, size: int) -> str:
    """Merge the files of all ranks into FILE, if they are all on this machine, and give "". Otherwise give one line
    with the command that merges them later."""
    missing = [file for file in rank_files(path, size) if not file.exists()]
    if missing:
        return f"{missing[0]} is not here: bring the files together and run `meshmark merge {path}`"
    write_merged_file(path, merged(path, size))
    return ""


def write_merged_file(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write FILE completely or not at all. An earlier merged file is replaced. RecordError if FILE is another file, or
    can't be written."""
    if path.exists() and "ranks" not in read_records(path).runs[0]:
        raise RecordError(
            f"{path} exists and is not a merged file: records are never overwritten, move it away"
        )
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text("".join(dumps(line) + "\n" for line in lines), encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise RecordError(f"can't write records to {path}: {os.strerror(error.errno or 0)}") from None
