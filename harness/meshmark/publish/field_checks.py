# SPDX-License-Identifier: Apache-2.0
"""Checks the fields of each line: fields of another check, and figures that contradict each other or the case.

Each rule holds in every published run.
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
from meshmark.publish import against_contract, against_table, any_version, origin
from meshmark.publish.review import AS_WRITTEN, Entry, Review
from meshmark.records import run_line
from meshmark.records.definition import ConformanceLine, TimingLine
from meshmark.records.fields import entries
from meshmark.records.shared import EveryLine

HEAD = {entry.name for entry in entries(EveryLine)} | {
    *("kind", "case", "operation", "variant", "mode", "mesh", "dtype", "size_bytes", "level", "seed"),
    *("verdict", "reason", "check", "seconds", "fixed", "ranks"),
}
"""The fields that any line of a check may have."""

OF_A_FAILURE = {"was", "link"}
"""The fields that a listed failure has beside those of its check."""

ALWAYS = ("error", "bound", "bits")
"""The fields that wrong numbers have, as right ones."""

OF_AN_END: Mapping[Any, set[str]] = {
    "error": {"stack", "stderr"},
    "crash": {"stacks", "stderr", "signal", "ended_rank"},
    "hang": {"stacks", "stderr", "signal", "ended_rank"},
}
"""The fields that a listed failure of this sort has."""

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
"""Every field that the definition lists; others may stand anywhere."""

LEAST_PREPARED = 1e-3
"""Seconds to compile that are not compared with those of the cell: both are rounded."""

OF_DEVICE_TIMES = ("per_device_s", "launch_skew_s", "wire_s")
"""The fields of cadence `device` alone."""

COUNT_COLLECTIVES = ("cpu", "tpu")
"""The backends whose compilers were seen to count what collectives read and write."""

GATHERS = "gathers all of argument "
"""How the judge begins to tell that a program gathers a whole argument on each device."""

CONTRACTED = "contractions of "
"""How the judge begins to tell of more contractions than the plan has, which it counts from the text."""

POINTER = 8
"""Bytes of a pointer in the table of several results."""

MOST_ASKED = 2**32
"""The most scratch memory of a library that is not held to the plan: what XLA's autotuner lets one have."""

UNKNOWN: Mapping[str, range] = {"gpu": range(-1000, 0)}
"""What XLA gives by backend for operations that it can't count: -1, and on a GPU -1 for each call of a library."""

OF_JUDGING = LISTED - {entry.name for entry in entries(TimingLine)}
"""The fields that a check has, and no timing."""

ENDED = ("stack", "stacks", "stderr", "signal", "ended_rank", "link", "was")
"""The fields of what did not go well; a timing that passes has none."""


def check_case(
    name: str,
    lines: Sequence[Entry],
    case: Case,
    run: Mapping[str, Any],
    issues: Sequence[Issue],
    review: Review,
) -> None:
    """Complain of the lines of one case that passed and say what does not fit them."""
    for number, record in lines:
        if record["verdict"] == "pass":
            for text in of_conformance(record, case, run, issues):
                review.complain(name, f"{case.id}: {text}: {AS_WRITTEN}", number, "fields")


def of_conformance(
    record: Mapping[str, Any], case: Case, run: Mapping[str, Any], issues: Sequence[Issue]
) -> Iterator[str]:
    """What does not fit in a line of a check that passed on devices, each without the mend."""
    check, facts = record["check"], run["facts"]
    if record.get("fixed") and not any(i.covers(case.id) and check in i.checks for i in issues):
        yield "is called fixed, and no known issue lists it"
    if "deviation" in record:
        listed = deviations.find(case, facts["versions"]["jax"], facts["backend"])
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


def strange(record: Mapping[str, Any]) -> str:
    """The first field of a line that passes, or is known, on devices and that only other lines have, or ""."""
    own = HEAD | OF_A_CHECK.get(record["check"], set())
    if record["verdict"] == "known":
        own |= OF_A_FAILURE | OF_AN_END.get(record.get("was"), set())
    return next((name for name in record if name in LISTED and name not in own), "")


def unlike(record: Mapping[str, Any]) -> str:
    """How a line that passes, or is known, on devices is unlike others of its check, or ""."""
    ends = "passes" if record["verdict"] == "pass" else "is known"
    if found := strange(record):
        return f"{ends} with `{found}`, which such a line does not have"
    wrong = record["verdict"] == "known" and record.get("was") == "fail"
    if wrong and record["check"] in ("numbers", "gradient"):
        lacking = [name for name in ALWAYS if name not in record]
        return f"{ends} without `{lacking[0]}`" if lacking else ""
    return ""


def _owed(record: Mapping[str, Any], case: Case, run: Mapping[str, Any]) -> Iterator[str]:
    """The theory of the case, and whether the line compares with what manual mode spells. Older versions gave neither
    for every case."""
    owed, said = theory.by_axes(case), record.get("theory")
    if (said is None and owed is not None and run.get("closes")) or (
        said is not None and (owed is None or not _alike(said, owed))
    ):
        yield f"`theory` is {str(said)[:60]}, and the case's is {str(owed)[:60]}"
    if run.get("closes") and "excess_bytes" not in record and communication.spelled_bytes(case) is not None:
        yield "its communication is not compared with that of manual mode (`excess_bytes`)"


def _worked(record: Mapping[str, Any], case: Case, run: Mapping[str, Any]) -> Iterator[str]:
    """What can't be of the operations and the memory of a program: the judge held the same figures against the same
    plan, so that a line that passes is within it, or tells by how much it is not."""
    flops, held = _figure(record, "flops"), _figure(record, "temp_bytes")
    figures = flops, None if held is None else held - min(held, record.get("workspace_bytes", 0), MOST_ASKED)
    if far := theory.beyond_all(case, *figures):
        yield f"passes, and {far}"
    elif against_table.compiles_as_today(case, run) and (beyond := theory.overcounted(case, *figures)):
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


def _gathered(record: Mapping[str, Any], case: Case) -> Iterator[str]:
    """Whether the line tells which arguments a global program gathers whole, as its collectives show."""
    found = [against_contract.with_members(one) for one in record.get("collectives", ())]
    if case.mode in communication.SPELLED or None in found:
        return
    there = theory.whole_gathers([one for one in found if one is not None], case)
    said = [text for text in record.get("told", ()) if text.startswith(GATHERS)]
    if said != there:
        yield f"tells that it {(said or ['gathers nothing whole'])[0][:60]}, and its collectives show {len(there)}"


def _figure(record: Mapping[str, Any], name: str) -> float | None:
    """A counter, where it is a number."""
    value = record.get(name)
    return value if isinstance(value, (int, float)) else None


def _repeated(record: Mapping[str, Any], case: Case, repeat: int) -> Iterator[str]:
    runs = record.get("runs")
    if repeat == 1 and runs is not None:
        yield f"its program ran {runs} times, and the run repeats none"
    elif repeat > 1 and case.mode != "host" and runs != repeat:
        yield f"its program ran {runs or 1} times, and the run repeats each {repeat} times"


def _counted(record: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[str]:
    """Counters that no program has."""
    for name in (
        "wire_bytes",
        "flops",
        "bytes_accessed",
        "temp_bytes",
        "workspace_bytes",
        "argument_bytes",
        "output_bytes",
    ):
        value = record.get(name)
        if (
            not isinstance(value, str)
            and value is not None
            and value in UNKNOWN.get(facts["backend"], range(-1, 0))
        ):
            continue
        if isinstance(value, str) or (value is not None and not 0 <= value < math.inf):
            yield f"`{name}` is {value}"


def _alike(one: Mapping[str, Any], other: Mapping[str, float]) -> bool:
    return set(one) == set(other) and all(
        isinstance(one[name], (int, float)) and math.isclose(one[name], other[name], rel_tol=1e-9)
        for name in other
    )


def of_timing(record: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[str]:
    """What a timing line says that does not fit it."""
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
    collectives, number = record.get("communication"), record.get("collectives")
    if collectives is not None and all(one["trips"] is not None for one in collectives):
        there = sum(one["trips"] for one in collectives)
        if number != there:
            yield f"has {there} collectives, and counts {number}: {AS_WRITTEN}"
    if (whole := record.get("seconds")) is not None and (
        prepared := record.get("lower_s", 0.0) + record.get("compile_s", 0.0)
    ) > max(whole, LEAST_PREPARED):
        yield f"took {prepared:.4g} s to compile, and {whole:.4g} s in all: {AS_WRITTEN}"
    began, took = origin.begin(run.get("started")), record.get("lower_s", 0.0) + record.get("compile_s", 0.0)
    if began is not None and took > max(0.0, time.time() + origin.SLACK - began):
        yield f"took {took:.4g} s to compile, and its run began later: {AS_WRITTEN}"
    control = record.get("control_s")
    if control is not None and record["cadence"] != "plain" and len(control) != len(record["samples_s"]):
        yield f"has {len(control)} samples of its control, and {len(record['samples_s'])} of its own: {AS_WRITTEN}"


def of_timed_program(record: Mapping[str, Any], case: Case, run: Mapping[str, Any]) -> Iterator[str]:
    """What the collectives of a timed program say that can't be, by the contract of its case."""
    if record["verdict"] != "pass":
        return
    if against_table.compiles_as_today(case, run) and record.get("precision") != case.plan.precision:
        text = (
            f"precision {str(record.get('precision'))[:40]!a} of a case at {case.plan.precision or 'none'!a}"
        )
        yield f"{text}: {AS_WRITTEN}"
    yield from (f"{text}: {AS_WRITTEN}" for text in _held(record, case, run["facts"]["backend"]))
    if "communication" not in record:
        return
    if against_table.compiles_as_today(case, run):
        said = {"collectives": record["communication"], "wire_bytes": record.get("wire_bytes")}
        yield from (f"{text}: {AS_WRITTEN}" for text in against_contract.problems(case, said, run["facts"]))


def _held(record: Mapping[str, Any], case: Case, backend: str) -> Iterator[str]:
    """What the memory of a timed program's arguments and results can't be: it is that of the plan, and on a TPU whole
    tiles of it. Several results come as a tuple, which takes a pointer each."""
    plan, pointers = case.plan, POINTER * len(case.plan.results)
    for name, parts, more in (
        ("argument_bytes", plan.arguments, 0),
        ("output_bytes", plan.results, pointers),
    ):
        least, said = sum(nbytes(part, case.mesh) for part in parts), record.get(name)
        if said is None or backend not in ("cpu", "gpu", "tpu"):
            continue
        if said < least or (backend != "tpu" and said not in (least, least + more)):
            yield f"`{name}` is {said}, and the plan has {least}"


def of_others(lines: Sequence[Entry], runs: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """(line, what can't be) of the lines of a file by themselves, its ceilings and its schedules."""
    yield from any_version.of_file(lines, runs)
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


def of_comparison(record: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[str]:
    """Whether a comparison is of a case that there is; only a run of today's table can be asked."""
    if run_line.table_version(run) != TABLE_VERSION or record["what"] != "verdict":
        return
    own = str(record.get("case")).partition(" ")[0]
    try:
        cases.find(own, run["facts"]["num_devices"])
    except (BadInput, ValueError) as error:
        yield f"there is no such case ({str(error)[:80]}): {AS_WRITTEN}"


def _sampled(record: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[str]:
    samples, asked = len(record["samples_s"]), run.get("timing", {})
    if samples and samples < asked.get("least", 1):
        yield f"{samples} samples, and the run takes {asked['least']} at least: give the samples as they were taken"
    if samples > asked.get("most", samples):
        yield f"{samples} samples, and the run takes {asked['most']} at most: give the samples as they were taken"


def with_controls(lines: Sequence[Entry]) -> list[Entry]:
    """The timing lines, and the controls as lines of their own: what is asked of samples is asked of them too."""
    found = list(lines)
    for number, record in lines:
        if len(record.get("control_s", ())) and record["mode"] != "host":
            named = {"case": f"{record['case']} (control)", "samples_s": record["control_s"]}
            found.append((number, {k: v for k, v in record.items() if k != "seconds"} | named))
    return found


def of_ceilings(lines: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """(line, what can't be) of the ceilings of a file: each is measured once in a run."""
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


def differing(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """In which version, compiler flag or setting the runs of one product differ, or runs of one commit in the version
    of the case table; "" for none."""
    every = [
        {
            **{f"versions.{name}": value for name, value in run["facts"]["versions"].items()},
            "departures": run_line.departures(run["facts"]),
        }
        for run in runs.values()
    ]
    if found := next(filter(None, (run_line.difference(every[0], other) for other in every[1:])), ""):
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
    """(line, what can't be) of the runs of a file: what they chose, and the capabilities of their devices. judged: the
    cases of the file; passing: by run, the capabilities of the cases that pass."""
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
"""How the answers of probes begin."""


def of_choice(run: Mapping[str, Any], judged: Collection[str], deselected: int) -> str:
    """Why a run did not judge what its selection gives, or "". A run that closes its file says how many cases options
    or plugins of pytest took away. Of an earlier version of the table, cases that were chosen and are not today are not
    known."""
    version = run_line.table_version(run)
    if (run.get("selection") or {}).get("timed"):
        return ""
    try:
        chosen = given(run)
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


def given(run: Mapping[str, Any]) -> frozenset[str]:
    """The cases that the selection of a run gives, as of its version of the table; SelectionError and the like where
    it gives none."""
    names = {field.name for field in fields(Selection)}
    said = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in (run.get("selection") or {}).items()
        if name in names
    }
    return _given(run["facts"]["num_devices"], run_line.table_version(run), tuple(sorted(said.items())))


@lru_cache(maxsize=8)
def _given(devices: int, version: int, said: tuple[tuple[str, Any], ...]) -> frozenset[str]:
    table = versions.as_of(version)
    return frozenset(case.id for case in table.cases(Selection(**dict(said)).checked(devices), devices))


def of_timed_choice(lines: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """(line, what can't be) of the timed cases of a run that its selection does not give. What it gives and nobody
    timed did not fit into the memory, or is told of the file's end."""
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
            continue  # told of the run line
        except (SelectionError, TypeError, ValueError) as error:
            first = min(timed[run["run"]].values())
            yield first, f"its selection can't be repeated ({str(error)[:80]}): {AS_WRITTEN}"
            continue
        for case, number in timed[run["run"]].items():
            if case not in chosen:
                yield number, f"{case} is not what the selection of its run gives: {AS_WRITTEN}"


def of_capabilities(run: Mapping[str, Any], passing: set[str]) -> Iterator[str]:
    """What a run says of the optional capabilities that its cases contradict. passing: the capabilities of the cases
    that pass."""
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
