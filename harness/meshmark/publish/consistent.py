# SPDX-License-Identifier: Apache-2.0
"""Checks that the lines of a product do not contradict each other.

Every published run follows each of these rules.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshmark.core.errors import BadInput
from meshmark.core.verdicts import BAD, worst
from meshmark.operations import cases
from meshmark.operations.cases import Case
from meshmark.publish import against_table, origin
from meshmark.publish.definition import Challenge
from meshmark.publish.review import AS_WRITTEN, CaseEntry, Entry, TimingEntry
from meshmark.publish.shapes import MIRRORED, Shapes, are_near
from meshmark.records import run_line
from meshmark.records.definition import ComparisonLine, ConformanceLine, TimingLine
from meshmark.records.run_definition import RunFacts, RunLine

LEAST_PROGRAM = 5e-4
"""Seconds: no case compiles a program faster. The least in the published runs is 3 ms."""

FEW_SAMPLES = 12
"""With at least this many samples, equality is not chance."""

AT_THE_TOP = 1 / 8
"""The largest share of samples that may equal the slowest one; the largest in the published runs is 0.05."""

SPREAD = 1e-5
"""The resolution of logarithms of sample ratios: below it, two lines of samples have the same shape."""

MOST_COMPARED = 100
"""The most lines with which one line is compared. More than these are alike only in a file that was made to be slow to
check, and the comparison of all pairs would take days."""

DIGITS = 3
"""A clock gives more digits than this to samples of at least 0.1 ms; the least in the published runs is 6."""


def of_cases(lines: Sequence[CaseEntry]) -> Iterator[tuple[int, str]]:
    """(line, problem) of the conformance lines of one file."""
    compiled = {(r["run"], r["case"]) for _, r in lines if r["check"] == "communication"}
    for number, record in lines:
        if len(set(said := record.get("told", ()))) < len(said):
            yield number, f"{record['case']} tells the same twice: {AS_WRITTEN}"
    answers: dict[tuple[str, ...], tuple[int, tuple[Any, Any]]] = {}
    seen: dict[tuple[str, str], ConformanceLine] = {}
    for number, record in lines:
        own = record["case"]
        key_of = record["run"], own
        if key_of in seen and key_of != next(reversed(seen)):
            yield number, f"the lines of {own} are not together, and a case is written at once: {AS_WRITTEN}"
        head = seen.setdefault(key_of, record)
        if differing := [name for name in ("level", "size_bytes") if record.get(name) != head.get(name)]:
            name = differing[0]
            told = f"{str(record.get(name))[:20]!a} here, and {head.get(name)!a} in its first line"
            yield number, f"{name} of {own} is {told}: {AS_WRITTEN}"
        if record["verdict"] == "pass" and record["reason"]:
            yield number, f"{own} passes, and gives a reason, {record['reason'][:60]!a}: {AS_WRITTEN}"
        if record.get("interpreted") and "@" not in own:
            yield number, f"{own} is interpreted in a run on devices: {AS_WRITTEN}"
        if record["verdict"] == "pass" and record.get("wrong_runs"):
            yield number, f"{own} passes, and {record['wrong_runs']} of its runs were wrong: {AS_WRITTEN}"
        if record.get("seconds", 1.0) < LEAST_PROGRAM and (record["run"], own) in compiled:
            yield number, f"{own} took {record['seconds']:.3g} s, and no compiler is as fast: {AS_WRITTEN}"
        if record["verdict"] == "pass" and record["check"] in ("numbers", "gradient") and "bits" in record:
            operation, variant, mode, *rest = own.split("/")
            if mode == "pmap":
                continue
            key = (record["run"], operation, variant, *rest, record["bits"])
            found = record.get("error"), record.get("bound")
            first, before = answers.setdefault(key, (number, found))
            if before != found:
                yield (
                    number,
                    f"{own} has the same output (`bits`) as line {first}, and another error or bound: {AS_WRITTEN}",
                )


def of_timings(lines: Sequence[TimingEntry], runs: Mapping[str, RunLine]) -> Iterator[tuple[int, str]]:
    """(line, problem) of the timing lines of one file."""
    taken_once: dict[tuple[Any, ...], int] = {}
    for number, record in lines:
        run = runs[record["run"]]
        of = record["run"], record["case"], record["cadence"], record["process"]
        if of in taken_once:
            text = f"is timed in line {taken_once[of]} too, in the same run, cadence and process"
            yield number, f"{record['case']}: {text}: {AS_WRITTEN}"
        taken_once.setdefault(of, number)
        if why := _untaken(record):
            yield number, f"{record['case']}: {why}: {AS_WRITTEN}"
        taken = (run.get("timing") or {}).get("cadences")
        if taken and record["cadence"] not in taken:
            yield (
                number,
                f"{record['case']}: cadence {record['cadence']}, and the run took {', '.join(taken)}",
            )
        if "environment" not in run and record["process"] >= run.get("repeat", 1):
            text = f"process {record['process']}, and the run had {run.get('repeat', 1)}"
            yield number, f"{record['case']}: {text}: {AS_WRITTEN}"
        if record["samples_s"] and (why := of_one_rank(record.get("samples_by_rank", ()))):
            yield number, f"{record['case']}: {why}: {AS_WRITTEN}"
    yield from missing_processes(lines, runs)


def missing_processes(lines: Sequence[TimingEntry], runs: Mapping[str, RunLine]) -> Iterator[tuple[int, str]]:
    """(line, missing process) of the timing lines of one file. A run times every cell in every process, and a process
    that dies still leaves a line. Without this rule, a product could keep only its best processes.

    A resumed run has a run line for each part. The parts count together, and a later part has later processes.
    """
    whole = {name: whole_run(run) for name, run in runs.items()}
    there: dict[tuple[str, str], dict[str, set[int]]] = {}
    first: dict[tuple[str, str], tuple[int, RunLine]] = {}
    for number, record in lines:
        run = runs[record["run"]]
        if "environment" in run:
            continue  # comparisons stop by pairs, not by processes
        operation, variant, _, *rest = record["case"].split("/")
        cell = whole[record["run"]], "/".join([operation, variant, *rest])
        there.setdefault(cell, {}).setdefault(record["run"], set()).add(record["process"])
        first.setdefault(cell, (number, run))
    for cell, parts in there.items():
        number, run = first[cell]
        every, taken = run.get("repeat", 1), set().union(*parts.values())
        lacking = [process for process in range(min(every, len(taken) + 1)) if process not in taken]
        if lacking:
            text = f"not timed in process {lacking[0]}, and its run had {every}"
            mend = "go on with the run (--resume)" if lacking[0] == len(taken) else AS_WRITTEN
            yield number, f"{cell[1]}: {text}: {mend}"
        for before, after in itertools.pairwise(parts.values()):
            if min(after) <= max(before):
                text = f"timed in process {min(after)} again after process {max(before)}, and a resumed run goes on"
                yield number, f"{cell[1]}: {text}: {AS_WRITTEN}"
                break


def whole_run(run: RunLine) -> str:
    """What the run lines of all parts of one resumed run have in common."""
    return json.dumps([run_line.settings(run), run_line.environment_fields(run)], sort_keys=True, default=str)


def of_samples(lines: Sequence[TimingEntry]) -> Iterator[tuple[int, str]]:
    """(line, problem) of samples that are copies of those of another line."""
    seen: dict[frozenset[float], int] = {}
    for number, record in lines:
        values = frozenset(record["samples_s"])
        if len(values) < FEW_SAMPLES:
            continue
        if values in seen:
            text = f"its samples are those of line {seen[values]} in another order"
            yield number, f"{record['case']}: {text}: {AS_WRITTEN}"
        seen.setdefault(values, number)
    yield from _scaled(lines)
    yield from _jittered(lines)


def of_one_rank(by_rank: Sequence[Sequence[float]]) -> str:
    """Why the samples of two ranks are the same, in any order, with any common factor or constant, mirrored, or with a
    little noise; "" if they are not."""
    seen = Shapes[int]()
    ordered = [sorted(samples) for samples in by_rank]
    for rank, samples in enumerate(by_rank):
        for before in range(rank)[-MOST_COMPARED:]:
            if are_near(ordered[rank], ordered[before]):
                return f"ranks {before} and {rank} have the same samples, but for a little noise"
        if hit := seen.find(samples):
            return f"ranks {hit[0]} and {rank} have the same samples, but for their order, a factor or a constant"
        seen.add(rank, samples)
    return ""


def _untaken(record: TimingLine) -> str:
    """Why no clock can give these samples, or no run this line; "" if it can."""
    samples, took = record["samples_s"], record.get("seconds")
    compiled = record.get("compile_s")
    if record["mode"] != "host" and compiled is not None and compiled < LEAST_PROGRAM:
        return f"it was compiled in {compiled:.3g} s, and no compiler is as fast"
    if not samples:
        return ""
    if took is not None and took < 0.99 * sum(samples) * record.get("calls", 1):
        return f"the line took {took:.4g} s, and its samples {sum(samples) * record.get('calls', 1):.4g} s"
    if len(samples) < FEW_SAMPLES:
        return ""
    slowest = samples.count(max(samples))
    if slowest > max(2, AT_THE_TOP * len(samples)) and len(set(samples)) > 1:
        return f"{slowest} of {len(samples)} samples are the slowest, as if slower ones were cut"
    if min(samples) >= 1e-4 and all(float(f"{s:.{DIGITS - 1}e}") == s for s in samples):
        return f"no sample has more than {DIGITS} digits"
    return ""


def _scaled(lines: Sequence[TimingEntry]) -> Iterator[tuple[int, str]]:
    """Finds samples that equal those of another line times a factor, in any order."""
    seen: dict[tuple[int, int], list[tuple[int, list[float]]]] = {}
    for number, record in lines:
        samples = sorted(record["samples_s"])
        if len(samples) < FEW_SAMPLES or samples[0] <= 0 or len(set(samples)) < FEW_SAMPLES:
            continue
        place = round((math.log(samples[-1]) - math.log(samples[0])) / SPREAD)
        near = [
            one
            for at in (place - 1, place, place + 1)
            for one in seen.get((len(samples), at), [])[-MOST_COMPARED:]
        ]
        for before, other in near:
            factor = samples[0] / other[0]
            if factor != 1 and all(
                math.isclose(s, o * factor, rel_tol=SPREAD) for s, o in zip(samples, other, strict=True)
            ):
                text = f"its samples are those of line {before} times {factor:.4g}"
                yield number, f"{record['case']}: {text}: {AS_WRITTEN}"
                break
        seen.setdefault((len(samples), place), []).append((number, samples))


def _jittered(lines: Sequence[TimingEntry]) -> Iterator[tuple[int, str]]:
    """Finds samples that equal those of another process or mode of the same cell, or of its control, with a little
    noise, in any order."""
    seen: dict[tuple[Any, ...], list[tuple[int, list[float]]]] = {}
    for number, record in lines:
        samples = sorted(record["samples_s"])
        operation, variant, _, *rest = record["case"].partition(" ")[0].split("/")
        key = operation, variant, *rest, record["cadence"], len(samples)
        for before, other in seen.get(key, [])[-MOST_COMPARED:]:
            if are_near(samples, other):
                text = f"its samples are those of line {before}, with a little noise"
                yield number, f"{record['case']}: {text}: {AS_WRITTEN}"
                break
        seen.setdefault(key, []).append((number, samples))


def of_files(files: Mapping[str, Sequence[Entry]]) -> Iterator[tuple[str, int, str]]:
    """(file, line, problem) of lines that another file of the product contradicts."""
    verdicts: dict[str, list[str]] = {}
    for lines in files.values():
        for _, record in lines:
            if record["kind"] == "conformance":
                wrong = record["check"] in ("numbers", "gradient") and record.get("was") == "fail"
                verdict = "fail" if record["verdict"] == "known" and wrong else record["verdict"]
                verdicts.setdefault(record["case"], []).append(verdict)
    bad = {case: found for case, each in verdicts.items() if (found := worst(each)) in BAD}
    for name, lines in files.items():
        for number, record in lines:
            if record["kind"] == "timing" and record["verdict"] == "pass" and record["case"] in bad:
                text = f"{record['case']}: timed with values that are right, and judged {bad[record['case']]}"
                yield name, number, f"{text}: find out which holds, and run both again"
    yield from _copied(files)
    yield from _overtaken(files)
    yield from _recompiled(files)
    yield from _absent(files)


def _absent(files: Mapping[str, Sequence[Entry]]) -> Iterator[tuple[str, int, str]]:
    """(file, line, problem) of programs that pass, and that need a capability which another run of the product calls
    absent."""
    runs = {r["run"]: r for lines in files.values() for _, r in lines if r["kind"] == "run"}
    lacking = {name: _lacking(run) for name, run in runs.items()}
    every, told = set().union(*lacking.values()), set[str]()
    for name, lines in files.items() if every else ():
        for number, record in lines:
            elsewhere = every - lacking[record["run"]]
            own = str(record.get("case", ""))
            if not elsewhere or record.get("verdict") != "pass" or own in told:
                continue
            told.add(own)
            case = _found(own, runs[record["run"]]["facts"])
            if case is not None and (there := sorted(elsewhere & set(case.cell.capabilities))):
                text = f"passes, and another run of this product lacks the capability {there[0]}"
                yield name, number, f"{own} {text}: find out which holds, and run both again"


def _lacking(run: RunLine) -> set[str]:
    """The capabilities that a run calls absent."""
    answers = run["facts"].get("capabilities") or {}
    return {name for name, answer in answers.items() if str(answer).startswith("lacks")}


OVERTAKEN = 0.5
"""The least part of the time that devices are busy with a call that the call may take: both are of other runs. The
least in the published runs is 1.6."""


def _overtaken(files: Mapping[str, Sequence[Entry]]) -> Iterator[tuple[str, int, str]]:
    """(file, line, problem) of calls that are shorter than the time that the devices are busy with them."""
    lines = [
        (name, n, r)
        for name, own in files.items()
        for n, r in own
        if r["kind"] == "timing" and r["samples_s"]
    ]
    busy: dict[str, float] = {}
    for _, _, record in lines:
        if record["cadence"] == "device":
            middle = statistics.median(record["samples_s"])
            busy[record["case"]] = min(middle, busy.get(record["case"], middle))
    for name, number, record in lines:
        least = OVERTAKEN * busy.get(record["case"], 0.0)
        if (
            least
            and record["cadence"] != "device"
            and (own := statistics.median(record["samples_s"])) < least
        ):
            text = f"a call in cadence {record['cadence']} takes {own:.4g} s, and its devices are busy for"
            yield name, number, f"{record['case']}: {text} {busy[record['case']]:.4g} s: {AS_WRITTEN}"


COMPILED = ("wire_bytes", "flops", "bytes_accessed", "temp_bytes")
"""The counters that are equal wherever one compiler compiles one program. A GPU's compiler chooses kernels by their
times, so only the bytes on the wire are."""


def _recompiled(files: Mapping[str, Sequence[Entry]]) -> Iterator[tuple[str, int, str]]:
    """(file, line, problem) of programs that are judged and timed, or timed twice, with other counters."""
    runs = {r["run"]: r for lines in files.values() for _, r in lines if r["kind"] == "run"}
    seen: dict[str, tuple[str, int, RunLine, dict[str, Any]]] = {}
    for name, lines in files.items():
        for number, record in lines:
            if record["kind"] == "conformance":
                there = record.get("collectives")
            elif record["kind"] == "timing":
                there = record.get("communication")
            else:
                continue
            if record["verdict"] != "pass" or there is None:
                continue
            run = runs[record["run"]]
            if "environment" in run:
                continue
            same = COMPILED if run["facts"]["backend"] in ("cpu", "tpu") else COMPILED[:1]
            own: dict[str, Any] = {"collectives": sorted(json.dumps(one, sort_keys=True) for one in there)}
            own |= {what: record.get(what) for what in same}
            at = seen.setdefault(record["case"], (name, number, run, own))
            if at[3] != own and _is_one_program(record["case"], run, at[2]):
                what = next(what for what in own if own[what] != at[3][what])
                was = "" if what == "collectives" else f" ({own[what]} and {at[3][what]})"
                text = f"`{what}` is not that of the same program in line {at[1]} of {at[0]}{was}"
                yield name, number, f"{record['case']}: {text}: {AS_WRITTEN}"


def _is_one_program(name: str, *runs: RunLine) -> bool:
    """Whether a case is the same program in the versions of the table of these runs."""
    case = _found(name, runs[0]["facts"])
    return case is not None and all(against_table.compiles_as_today(case, run) for run in runs)


def _found(name: str, facts: RunFacts) -> Case | None:
    """The case of this name; None if there is none, which another rule reports."""
    try:
        return cases.find(name, facts["num_devices"], run_line.processes(facts))
    except (BadInput, ValueError, OverflowError):
        return None


def _copied(files: Mapping[str, Sequence[Entry]]) -> Iterator[tuple[str, int, str]]:
    """(file, line, problem) of samples that are those of another line of the product, in any file. Those of the same
    file in another order or times a factor have their own rules."""
    seen = Shapes[tuple[str, int]]()
    for name, lines in files.items():
        for number, record in lines:
            if record["kind"] != "timing":
                continue
            for samples in (record["samples_s"], record.get("control_s", ())):
                hit = seen.find(samples)
                if hit and (hit[0][0] != name or "constant" in hit[1] or hit[1] == MIRRORED):
                    (there, line), how = hit
                    text = f"its samples are those of line {line} of {there}, {how}"
                    yield name, number, f"{record['case']}: {text}: {AS_WRITTEN}"
                    break
                seen.add((name, number), samples)


CHOSEN = {"levels": "level", "operations": "operation", "modes": "mode", "dtypes": "dtype", "sizes": "size"}
"""The choices of a run that each of its records shows: from the name in the selection to the name in the record."""


def of_selection(lines: Sequence[CaseEntry], runs: Mapping[str, RunLine]) -> Iterator[tuple[int, str]]:
    """(line, problem) of cases that their run did not choose."""
    for number, record in lines:
        selection = runs[record["run"]].get("selection") or {}
        parts: Mapping[str, object] = record
        for choice, name in CHOSEN.items():
            own = record["case"].partition("@")[0].rpartition("/")[2] if name == "size" else parts[name]
            if isinstance(chosen := selection.get(choice), list) and chosen and own not in chosen:
                yield (
                    number,
                    f"{record['case']}: the run chose {choice} {', '.join(chosen)[:80]}: {AS_WRITTEN}",
                )


def of_time(lines: Sequence[CaseEntry], runs: Mapping[str, RunLine]) -> Iterator[tuple[int, str]]:
    """(line, problem) of cases that took longer than the time since their run began."""
    now = time.time() + origin.SLACK
    for number, record in lines:
        began = origin.parse_started(runs[record["run"]].get("started"))
        if began is not None and began <= now and record.get("seconds", 0.0) > now - began:
            text = f"took {record['seconds']:.4g} s, and its run began {now - began:.4g} s ago at most"
            yield number, f"{record['case']} {text}: {AS_WRITTEN}"


FINDINGS = {"slower": 1, "faster": -1, "no change": 0, "inconclusive": 0, "left out": 0}
"""The verdicts of a comparison, and the side of 1 on which its ratio and interval must be."""

SURE = 0.05
"""The largest p at which a verdict may be a change."""


def of_comparison(record: ComparisonLine) -> Iterator[str]:
    """Yields contradictions between the figures of a comparison."""
    if record["what"] == "verdict":
        yield from _of_finding(record)
    p, adjusted = record.get("p"), record.get("adjusted")
    for what, value in (("p", p), ("adjusted", adjusted)):
        if isinstance(value, (int, float)) and not 0 <= value <= 1:
            yield f"{what} = {value} is not a probability: compare again"
    if isinstance(p, (int, float)) and isinstance(adjusted, (int, float)) and adjusted < p:
        yield f"adjusted p {adjusted} is below p {p}: compare again"
    ends = [record.get(what) for what in ("low", "ratio", "high")]
    numbers = [v for v in ends if isinstance(v, (int, float))]
    if numbers != sorted(numbers):
        yield f"ratio {record.get('ratio')} is outside of its interval: compare again"


def _of_finding(record: ComparisonLine) -> Iterator[str]:
    """Yields contradictions between the verdict of a comparison and its figures."""
    verdict = str(record.get("verdict"))
    if verdict not in FINDINGS:
        yield f"{verdict[:40]!a} is not a verdict of a comparison: {AS_WRITTEN}"
        return
    if not (side := FINDINGS[verdict]):
        return
    values = [record.get(name) for name in ("low", "ratio", "high")]
    numbers = [v for v in values if isinstance(v, (int, float))]
    if len(numbers) < len(values) or any((v > 1) - (v < 1) != side for v in numbers):
        yield f"{verdict}, and its ratio and interval are {', '.join(map(str, values))[:80]}: compare again"
    p = record.get("adjusted", record.get("p"))
    if not isinstance(p, (int, float)) or p > SURE:
        yield f"{verdict}, and its p is {str(p)[:20]}: compare again"
    if not record.get("pairs"):
        yield f"{verdict}, and no pair of processes was compared: compare again"


def of_log(said: Mapping[str, int], files: Sequence[Mapping[str, int]]) -> str:
    """Why a log belongs to another run; "" if it does not. said: the verdicts that the log counts at its end, and
    `cases`. files: the same counts for each record file."""
    if not said or any(all(own.get(k, 0) == n for k, n in said.items()) for own in files):
        return ""
    told = ", ".join(f"{number} {name}" for name, number in said.items())
    return f"the log counts {told}, and no record file does: attach what these runs printed"


def answers(run: RunLine, challenge: Challenge) -> str:
    """Why a run is not on the devices that a challenge names; "" if it is."""
    facts = run["facts"]
    for name, seen, asked in (
        ("devices", facts["num_devices"], challenge["devices"]),
        ("processes", run_line.processes(facts), challenge["processes"]),
    ):
        if asked != seen:
            return f"run {run['run']} is on {seen} {name}, and the challenge for {asked}"
    return ""
