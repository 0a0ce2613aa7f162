# SPDX-License-Identifier: Apache-2.0
"""Checks the fields of each line: fields that belong to another check, and figures that contradict each other or the
case.

Every published run follows each of these rules.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from meshmark.core.dtypes import DTYPES
from meshmark.core.errors import BadInput
from meshmark.judge import communication, theory
from meshmark.judge.checks import has_special_values
from meshmark.levels import deviations
from meshmark.levels.known_issues import Issue
from meshmark.operations import cases, versions
from meshmark.operations.base import nbytes
from meshmark.operations.cases import Case
from meshmark.operations.selection import CAPABILITIES, Selection, SelectionError
from meshmark.operations.versions import TABLE_VERSION
from meshmark.publish import against_contract, against_table, any_version, comparisons, origin
from meshmark.publish.review import AS_WRITTEN, CaseEntry, Entry, Review, TimingEntry
from meshmark.records import run_line
from meshmark.records.definition import ComparisonLine, ConformanceLine, ScheduleLine, TimingLine
from meshmark.records.fields import entries
from meshmark.records.run_definition import RunFacts, RunLine
from meshmark.records.shared import EveryLine
from meshmark.timing import bench, ceilings

HEAD = {entry.name for entry in entries(EveryLine)} | {
    *("kind", "case", "operation", "variant", "mode", "mesh", "dtype", "size_bytes", "level", "seed"),
    *("verdict", "reason", "check", "seconds", "fixed", "ranks"),
}
"""The fields that the line of any check may have."""

OF_A_FAILURE = {"was", "link"}
"""The fields that a listed failure has in addition to those of its check."""

ALWAYS = ("error", "bound", "bits")
"""The fields that a failed comparison of numbers has, as a passing one has."""

OF_AN_END: Mapping[Any, set[str]] = {
    "error": {"stack", "stderr"},
    "crash": {"stacks", "stderr", "signal", "ended_rank"},
    "hang": {"stacks", "stderr", "signal", "ended_rank"},
}
"""The fields that a listed failure has when it ended in this way."""

NUMBERS = {
    *("error", "bound", "bits", "subnormals", "deviation", "precision"),
    *("runs", "differing_runs", "wrong_runs"),
}
OF_A_CHECK: Mapping[str, set[str]] = {
    "communication": {
        *(
            "collectives",
            "wire_bytes",
            "flops",
            "bytes_accessed",
            "temp_bytes",
            "workspace_bytes",
            "excess_bytes",
            "theory",
            "told",
        )
    },
    "numbers": NUMBERS,
    "gradient": NUMBERS,
}
"""The fields that only this check gives, on devices."""

LISTED = {entry.name for entry in entries(ConformanceLine)}
"""Every field that the record definition lists. A line may also have unlisted fields."""

LEAST_PREPARED = 1e-3
"""Seconds: compile times below this are not compared with the cell's seconds, because both are rounded."""

OF_DEVICE_TIMES = ("per_device_s", "launch_skew_s", "wire_s")
"""The fields that only cadence `device` has."""

COUNT_COLLECTIVES = ("cpu", "tpu")
"""The backends whose compilers count the bytes that collectives read and write, as observed."""

GATHERS = "gathers all of argument "
"""The start of the judge's text when a program gathers a whole argument on each device."""

CONTRACTED = "contractions of "
"""The start of the judge's text when a program has more contractions than the plan; the judge counts them in the
HLO."""

POINTER = 8
"""Bytes of one pointer. A program with several results has a table with a pointer for each result."""

MOST_ASKED = 2**32
"""The most bytes of library scratch memory that are not counted against the plan: XLA's autotuner allows this much."""

UNKNOWN: Mapping[str, range] = {"gpu": range(-1000, 0)}
"""By backend, XLA's values for a count that it does not know: -1, and on GPU also -1 for each library call."""

OF_JUDGING = LISTED - {entry.name for entry in entries(TimingLine)}
"""The fields that the line of a check has and a timing line has not."""

ENDED = ("stack", "stacks", "stderr", "signal", "ended_rank", "link", "was")
"""The fields that describe a failure; a passing timing has none."""


def check_case(
    name: str,
    lines: Sequence[CaseEntry],
    case: Case,
    run: RunLine,
    issues: Sequence[Issue],
    review: Review,
) -> None:
    """Complain about the lines of one case that passed and contain contradictions."""
    for number, record in lines:
        if record["verdict"] == "pass":
            for text in of_conformance(record, case, run, issues):
                review.complain(name, f"{case.id}: {text}: {AS_WRITTEN}", number, "fields")


def of_conformance(
    record: ConformanceLine, case: Case, run: RunLine, issues: Sequence[Issue]
) -> Iterator[str]:
    """Yields the contradictions in the line of a check that passed on devices, without the correction."""
    check, facts = record["check"], run["facts"]
    if record.get("fixed") and not any(i.covers(case.id) and check in i.checks for i in issues):
        yield "is called fixed, and no known issue lists it"
    if "deviation" in record:
        listed = deviations.find_deviation(case, facts["versions"]["jax"], facts["backend"])
        if listed is None or listed.why != record["deviation"]:
            yield "gives a deviation that the suite does not list for it"
    if check in ("numbers", "gradient"):
        yield from _repeated(record, case, run.get("repeat", 1))
        special = has_special_values(case.cell) and case.plan.judge != "bits"
        if "subnormals" in record and not special:
            yield f"says of subnormal numbers that they were {record['subnormals']}, and none is among its inputs"
        if "subnormals" not in record and special and run.get("closes"):
            yield "has subnormal numbers among its inputs, and does not say what it did with them (`subnormals`)"
    if check == "communication":
        yield from _counted(record, facts)
        yield from _owed(record, case, run)
        yield from _worked(record, case, run)
        yield from _gathered(record, case) if run.get("closes") else ()


def strange(record: ConformanceLine) -> str:
    """The first field of a passing or known line on devices that such lines never have; "" if there is none."""
    own = HEAD | OF_A_CHECK.get(record["check"], set())
    if record["verdict"] == "known":
        own |= OF_A_FAILURE | OF_AN_END.get(record.get("was"), set())
    return next((name for name in record if name in LISTED and name not in own), "")


def unlike(record: ConformanceLine) -> str:
    """How the fields of a passing or known line on devices differ from other lines of its check; "" if they do not."""
    ends = "passes" if record["verdict"] == "pass" else "is known"
    if found := strange(record):
        return f"{ends} with `{found}`, which such a line does not have"
    wrong = record["verdict"] == "known" and record.get("was") == "fail"
    if wrong and record["check"] in ("numbers", "gradient"):
        lacking = [name for name in ALWAYS if name not in record]
        return f"{ends} without `{lacking[0]}`" if lacking else ""
    return ""


def _owed(record: ConformanceLine, case: Case, run: RunLine) -> Iterator[str]:
    """Checks the theory of the case, and that the line is compared with the spelled bytes of manual mode. Lines of
    older versions may lack either."""
    owed, said = theory.by_axes(case, against_table.plan_of(case, run)), record.get("theory")
    if (said is None and owed is not None and run.get("closes")) or (
        said is not None and (owed is None or not _alike(said, owed))
    ):
        yield f"`theory` is {str(said)[:60]}, and the case's is {str(owed)[:60]}"
    if run.get("closes") and "excess_bytes" not in record and communication.spelled_bytes(case) is not None:
        yield "its communication is not compared with that of manual mode (`excess_bytes`)"


def _worked(record: ConformanceLine, case: Case, run: RunLine) -> Iterator[str]:
    """Checks the FLOPs and the memory of a program. The judge compared the same figures with the same plan. A passing
    line is therefore within the plan, or its `told` says by how much it is not."""
    figures = _work_of(record)
    if far := theory.beyond_all(case, *figures):
        yield f"passes, and {far}"
    elif against_table.compiles_as_today(case, run) and (beyond := theory.find_overcount(case, *figures)):
        if case.operation.complete:
            yield f"passes, and {beyond}"
        elif run.get("closes") and not any(
            t == beyond or t.startswith(CONTRACTED) for t in record.get("told", ())
        ):
            yield f"{beyond}, and it does not tell so"
    accessed = _figure(record, "bytes_accessed")
    exchanged = max((one["bytes"] for one in record.get("collectives", ())), default=0)
    counts = run["facts"]["backend"] in COUNT_COLLECTIVES
    if counts and accessed is not None and 0 <= accessed < exchanged:
        yield f"`bytes_accessed` is {accessed:.0f}, and one of its collectives alone has {exchanged} B"


def _work_of(record: ConformanceLine | TimingLine) -> tuple[float | None, float | None]:
    """(operations, bytes of temporaries without a library's scratch memory) of a program; None if unknown."""
    flops, held = _figure(record, "flops"), _figure(record, "temp_bytes")
    asked = _figure(record, "workspace_bytes") or 0
    return flops, None if held is None else held - min(held, asked, MOST_ASKED)


def _gathered(record: ConformanceLine, case: Case) -> Iterator[str]:
    """Checks that the line names the arguments that a global program gathers whole, as its collectives show."""
    found = [against_contract.with_members(one) for one in record.get("collectives", ())]
    if case.mode in communication.SPELLED or None in found:
        return
    there = theory.whole_gathers([one for one in found if one is not None], case)
    said = [text for text in record.get("told", ()) if text.startswith(GATHERS)]
    if said != there:
        yield f"tells that it {(said or ['gathers nothing whole'])[0][:60]}, and its collectives show {len(there)}"


def _figure(record: ConformanceLine | TimingLine, name: str) -> float | None:
    """A counter; None if it is not a number."""
    value = record.get(name)
    return value if isinstance(value, (int, float)) else None


def _repeated(record: ConformanceLine, case: Case, repeat: int) -> Iterator[str]:
    runs = record.get("runs")
    if repeat == 1 and runs is not None:
        yield f"its program ran {runs} times, and the run repeats none"
    elif repeat > 1 and case.mode != "host" and runs != repeat:
        yield f"its program ran {runs or 1} times, and the run repeats each {repeat} times"


def _counted(record: ConformanceLine | TimingLine | ScheduleLine, facts: RunFacts) -> Iterator[str]:
    """Yields counters that no program has."""
    for name in (
        "wire_bytes",
        "flops",
        "bytes_accessed",
        "temp_bytes",
        "workspace_bytes",
        "argument_bytes",
        "output_bytes",
        "memory_bytes",
        "peak_bytes",
    ):
        value = record.get(name)
        if value is None or value in UNKNOWN.get(facts["backend"], range(-1, 0)):
            continue
        if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            yield f"`{name}` is {value}"


def _alike(one: Mapping[str, Any], other: Mapping[str, float]) -> bool:
    return set(one) == set(other) and all(
        isinstance(one[name], (int, float)) and math.isclose(one[name], other[name], rel_tol=1e-9)
        for name in other
    )


def of_timing(record: TimingLine, run: RunLine) -> Iterator[str]:
    """Yields contradictions in a timing line."""
    if record["seed"] != run.get("seed", 0):
        yield f"is of seed {record['seed']}, and its run of another: {AS_WRITTEN}"
    yield from _sampled(record, run)
    if record["verdict"] != "pass":
        return
    found = [name for name in record if name in OF_JUDGING or name in ENDED]
    if record["cadence"] != "device":
        found += [name for name in OF_DEVICE_TIMES if name in record]
    if "samples_by_rank" not in record and "skew" in record:
        found.append("skew")
    if found:
        yield f"passes in cadence {record['cadence']} with `{found[0]}`, which such a line does not have"
    if record.get("contract"):
        yield f"passes, and departs from its contract ({record['contract'][:60]}): {AS_WRITTEN}"
    yield from (f"{text}: {AS_WRITTEN}" for text in _counted(record, run["facts"]))
    trips = [one["trips"] for one in record.get("communication", ())]
    known, number = [times for times in trips if times is not None], record.get("collectives")
    if "communication" in record and len(known) == len(trips) and number != (there := sum(known)):
        yield f"has {there} collectives, and counts {number}: {AS_WRITTEN}"
    if (whole := record.get("seconds")) is not None and (
        prepared := record.get("lower_s", 0.0) + record.get("compile_s", 0.0)
    ) > max(whole, LEAST_PREPARED):
        yield f"took {prepared:.4g} s to compile, and {whole:.4g} s in all: {AS_WRITTEN}"
    began, took = (
        origin.parse_started(run.get("started")),
        record.get("lower_s", 0.0) + record.get("compile_s", 0.0),
    )
    if began is not None and took > max(0.0, time.time() + origin.SLACK - began):
        yield f"took {took:.4g} s to compile, and its run began later: {AS_WRITTEN}"
    control = record.get("control_s")
    if control is not None and record["cadence"] != "plain" and len(control) != len(record["samples_s"]):
        yield f"has {len(control)} samples of its control, and {len(record['samples_s'])} of its own: {AS_WRITTEN}"


def of_timed_program(record: TimingLine, case: Case, run: RunLine) -> Iterator[str]:
    """Yields where the collectives of a timed program contradict the contract of its case."""
    if record["verdict"] != "pass":
        return
    if against_table.compiles_as_today(case, run) and record.get("precision") != case.plan.precision:
        text = (
            f"precision {str(record.get('precision'))[:40]!a} of a case at {case.plan.precision or 'none'!a}"
        )
        yield f"{text}: {AS_WRITTEN}"
    yield from (f"{text}: {AS_WRITTEN}" for text in _held(record, case, run["facts"]["backend"]))
    if far := theory.beyond_all(case, *_work_of(record)):
        yield f"{far}: {AS_WRITTEN}"
    if "communication" not in record:
        return
    if against_table.compiles_as_today(case, run):
        said: against_contract.RecordedTraffic = {"collectives": record["communication"]}
        if "wire_bytes" in record:
            said["wire_bytes"] = record["wire_bytes"]
        yield from (
            f"{text}: {AS_WRITTEN}"
            for text in against_contract.find_impossible_traffic(case, said, run["facts"])
        )


def _held(record: TimingLine, case: Case, backend: str) -> Iterator[str]:
    """Checks the argument and result bytes of a timed program against its plan. A TPU allocates whole tiles, so it may
    have more. Several results form a tuple, which adds one pointer for each result."""
    plan, pointers = case.plan, POINTER * len(case.plan.results)
    for name, said, parts, more in (
        ("argument_bytes", record.get("argument_bytes"), plan.arguments, 0),
        ("output_bytes", record.get("output_bytes"), plan.results, pointers),
    ):
        least = sum(nbytes(part, case.mesh) for part in parts)
        if said is None or backend not in ("cpu", "gpu", "tpu"):
            continue
        if said < least or (backend != "tpu" and said not in (least, least + more)):
            yield f"`{name}` is {said}, and the plan has {least}"


def of_others(lines: Sequence[Entry], runs: Mapping[str, RunLine]) -> Iterator[tuple[int, str]]:
    """(line, problem) of the lines of a file that need no case: its ceilings and its schedules."""
    yield from any_version.of_file(lines, runs)
    yield from comparisons.of_file(lines, runs)
    yield from of_timed_choice(lines)
    for number, record in lines:
        if (
            record["kind"] == "conformance"
            and record["verdict"] in ("pass", "known")
            and (found := unlike(record))
        ):
            text = f"its check {record['check']} {found}"
            yield number, f"{record['case']}: {text}: {AS_WRITTEN}"
    yield from of_ceilings(lines)
    for number, record in lines:
        if record["kind"] != "schedule":
            continue
        facts = runs[record["run"]]["facts"]
        if record["place"] not in (facts["backend"], facts.get("topology")):
            text = f"is compiled for {record['place'][:40]!a}, and its run was elsewhere"
            yield number, f"{record['case']} {text}: {AS_WRITTEN}"
        if isinstance(exposed := record.get("exposed_s"), (int, float)) and not 0 <= exposed < math.inf:
            yield number, f"{record['case']}: `exposed_s` is {exposed}: {AS_WRITTEN}"
        if why := _no_case(record["case"].partition("@")[0], runs[record["run"]]):
            yield number, f"{record['case']}: {why}: {AS_WRITTEN}"
        yield from ((number, f"{record['case']}: {text}: {AS_WRITTEN}") for text in _counted(record, facts))


def of_comparison(record: ComparisonLine, run: RunLine) -> Iterator[str]:
    """Checks that the case of a comparison exists."""
    if record["what"] == "verdict" and (why := _no_case(str(record.get("case")).partition(" ")[0], run)):
        yield f"{why}: {AS_WRITTEN}"


def _no_case(own: str, run: RunLine) -> str:
    """Why the table has no such case; "" if it has, or if the run is not of today's table."""
    if run_line.table_version(run) != TABLE_VERSION:
        return ""
    try:
        cases.find(own, run["facts"]["num_devices"])
    except (BadInput, ValueError) as error:
        return f"there is no such case ({str(error)[:80]})"
    return ""


def _sampled(record: TimingLine, run: RunLine) -> Iterator[str]:
    samples, asked = len(record["samples_s"]), run.get("timing", {})
    if samples and samples < asked.get("least", 1):
        yield f"{samples} samples, and the run takes {asked['least']} at least: give the samples as they were taken"
    if samples > asked.get("most", samples):
        yield f"{samples} samples, and the run takes {asked['most']} at most: give the samples as they were taken"


def with_controls(lines: Sequence[TimingEntry]) -> list[TimingEntry]:
    """The timing lines, and their controls as extra lines, so that every check of samples also applies to the
    controls."""
    found = list(lines)
    for number, record in lines:
        if len(record.get("control_s", ())) and record["mode"] != "host":
            control = record.copy()
            control.update({"case": f"{record['case']} (control)", "samples_s": record["control_s"]})
            control.pop("seconds", None)
            found.append((number, control))
    return found


def of_ceilings(lines: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """(line, problem) of the ceilings of a file: a run measures each once, and all of them or none: without the one
    that binds, a share of it would be a share of another."""
    seen: dict[tuple[Any, ...], int] = {}
    for number, record in lines:
        if record["kind"] != "ceiling":
            continue
        if record.get("dtype", "float32") not in DTYPES:
            yield (
                number,
                f"{record['name']} is of dtype {str(record['dtype'])[:20]!a}, which there is not: {AS_WRITTEN}",
            )
        key = record["run"], record["name"], record.get("dtype")
        if key in seen:
            yield number, f"{record['name']} is in line {seen[key]} too, of the same run: {AS_WRITTEN}"
        seen.setdefault(key, number)
    every = (("copy bandwidth", "float32"), *(("largest matmul", dtype) for dtype in ceilings.DTYPES))
    last = {run: number for (run, _, _), number in seen.items()}
    for run, number in last.items():
        for name, dtype in every:
            if (run, name, dtype) not in seen and (run, name, None) not in seen:
                yield number, f"the run has ceilings, but not that of {name} in {dtype}: {AS_WRITTEN}"


def differing(runs: Mapping[str, RunLine]) -> str:
    """The version, compiler flag or setting in which the runs of one product differ; also the version of the case
    table, for runs of one commit. "" if they agree."""
    every = [
        {
            **{f"versions.{name}": value for name, value in run["facts"]["versions"].items()},
            "departures": run_line.departures(run["facts"]),
        }
        for run in runs.values()
    ]
    if found := next(filter(None, (run_line.spell_difference(every[0], other) for other in every[1:])), ""):
        return found
    tables: dict[str, int] = {}
    for run in runs.values():
        suite, version = run["facts"]["suite"], run_line.table_version(run)
        if suite["commit"] and suite["clean"] and tables.setdefault(suite["commit"], version) != version:
            return f"the version of the case table ({tables[suite['commit']]} and {version}), and are of one commit"
    return ""


def of_runs(
    lines: Sequence[Entry], judged: Collection[str], passing: Mapping[str, set[str]]
) -> Iterator[tuple[int, str]]:
    """(line, problem) of the runs of a file: their selections, and the capabilities of their devices. judged: the cases
    of the file. passing: by run, the capabilities of the cases that pass."""
    runs = {record["run"]: record for _, record in lines if record["kind"] == "run"}
    deselected = {record["run"]: record["deselected"] for _, record in lines if record["kind"] == "chosen"}
    for number, record in lines:
        own = record["run"]
        if record["kind"] == "conformance" and "environment" in runs[own]:
            yield (
                number,
                f"{record['case']} is judged by a run of a comparison, which judges no cases: {AS_WRITTEN}",
            )
            return
        if record["kind"] == "run":
            for text in of_capabilities(record, passing.get(own, set())):
                yield number, f"the run {text}"
        elif record["kind"] == "end" and (text := of_choice(runs[own], judged, deselected.get(own, 0))):
            yield number, f"{text}: {AS_WRITTEN}"


ANSWERS = ("has", "lacks", "crash", "hang")
"""How the answers of capability probes begin."""


def of_choice(run: RunLine, judged: Collection[str], deselected: int) -> str:
    """Why a run did not judge what its selection gives; "" if it did. A run that closes its file records how many cases
    pytest options or plugins deselected (`deselected`). In an earlier version of the table, chosen cases that today's
    table lacks are unknown and allowed."""
    version = run_line.table_version(run)
    if (run.get("selection") or {}).get("timed"):
        return ""
    try:
        chosen = set(given(run))
    except (SelectionError, versions.TableError, TypeError, ValueError) as error:
        told = f"its selection can't be repeated ({str(error)[:80]})"
        return told if version == TABLE_VERSION else ""
    missing, strange = chosen - set(judged), set(judged) - chosen
    if strange and version == TABLE_VERSION:
        return f"its selection does not give {min(strange)}"
    if len(missing) > deselected:
        told = f", and {deselected} were deselected" if deselected else ""
        return f"its selection gives {len(chosen)} cases{told}: {len(missing)} are not there, such as {min(missing)}"
    return ""


def given(run: RunLine) -> Mapping[str, Case]:
    """The cases, by id, that the selection of a run gives, in its version of the table. SelectionError, TableError,
    TypeError or ValueError if it gives none."""
    names = {field.name for field in fields(Selection)}
    said = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in (run.get("selection") or {}).items()
        if name in names
    }
    scaled = (run.get("selection") or {}).get("scaling") is True
    return _given(
        run["facts"]["num_devices"], run_line.table_version(run), tuple(sorted(said.items())), scaled
    )


@lru_cache(maxsize=8)
def _given(devices: int, version: int, said: tuple[tuple[str, Any], ...], scaled: bool) -> Mapping[str, Case]:
    table, selection = versions.as_of(version), Selection(**dict(said)).checked(devices)
    if scaled:  # `bench --scaling` has meshes and sizes of its own
        cells = bench.scaled_cells(selection, devices)
        return {case.id: case for cell, modes in cells for case in map(cell.case, modes) if table.has(case)}
    return {case.id: case for case in table.cases(selection, devices)}


def of_timed_choice(lines: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """(line, problem) of timed cases that the selection of their run does not give. Missing cases do not matter here:
    they did not fit into memory, or the check of the file's end reports them."""
    timed: dict[str, dict[str, int]] = {}
    for number, record in lines:
        if record["kind"] == "timing":
            timed.setdefault(record["run"], {}).setdefault(record["case"], number)
    for _, run in lines:
        if run["kind"] != "run" or "environment" in run or run["run"] not in timed:
            continue
        try:
            chosen = given(run)
        except versions.TableError:
            continue  # another rule reports the run line
        except (SelectionError, TypeError, ValueError) as error:
            first = min(timed[run["run"]].values())
            yield first, f"its selection can't be repeated ({str(error)[:80]}): {AS_WRITTEN}"
            continue
        for case, number in timed[run["run"]].items():
            if case not in chosen:
                yield number, f"{case} is not what the selection of its run gives: {AS_WRITTEN}"


def of_capabilities(run: RunLine, passing: set[str]) -> Iterator[str]:
    """Yields where the recorded capabilities of a run contradict its cases. passing: the capabilities of the cases that
    pass."""
    selection = run.get("selection") or {}
    answers = run["facts"].get("capabilities") or {}
    chosen = (*selection.get("present", ()), *selection.get("capabilities", ()))
    for name, answer in answers.items():
        if name not in CAPABILITIES or not answer.startswith(ANSWERS):
            yield f"says {answer[:40]!a} of a capability {name[:40]!a}, which no probe does: {AS_WRITTEN}"
        if answer == "has" and name not in (*chosen, *selection.get("without", ())):
            yield f"has the capability {name}, and judged nothing of it: {AS_WRITTEN}"
        elif answer.startswith("lacks") and name in passing:
            yield f"lacks the capability {name}, and passes cases of it: {AS_WRITTEN}"
