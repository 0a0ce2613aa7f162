# SPDX-License-Identifier: Apache-2.0
"""Whether the lines of a run fit together: what one line says of a case, another line of the run may show to be untrue.

Each rule holds in every published run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshmark.publish.review import AS_WRITTEN
from meshmark.records import run_line

Line = tuple[int, Mapping[str, Any]]
"""A record with its line number."""

LEAST_PROGRAM = 5e-4
"""Seconds of the shortest case that compiles a program; 3 ms is the least of the published runs."""

FEW_SAMPLES = 12
"""With so many samples, equal ones are not chance."""


def of_cases(lines: Sequence[Line]) -> Iterator[tuple[int, str]]:
    """(line, what can't be) of the conformance lines of one file."""
    compiled = {(r["run"], r["case"]) for _, r in lines if r["check"] == "communication"}
    answers: dict[tuple[str, ...], tuple[int, tuple[Any, Any]]] = {}
    for number, record in lines:
        own = record["case"]
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


def of_timings(lines: Sequence[Line], runs: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """(line, what can't be) of the timing lines of one file."""
    seen: dict[frozenset[float], int] = {}
    for number, record in lines:
        run = runs[record["run"]]
        taken = (run.get("timing") or {}).get("cadences")
        if taken and record["cadence"] not in taken:
            yield (
                number,
                f"{record['case']}: cadence {record['cadence']}, and the run took {', '.join(taken)}",
            )
        if "environment" not in run and record["process"] >= run.get("repeat", 1):
            text = f"process {record['process']}, and the run had {run.get('repeat', 1)}"
            yield number, f"{record['case']}: {text}: {AS_WRITTEN}"
        by_rank = [tuple(own) for own in record.get("samples_by_rank", ())]
        if record["samples_s"] and len(set(by_rank)) < len(by_rank) and len(by_rank[0]) >= FEW_SAMPLES:
            yield number, f"{record['case']}: two ranks have the same samples: {AS_WRITTEN}"
        values = frozenset(record["samples_s"])
        if len(values) < FEW_SAMPLES:
            continue
        if values in seen:
            text = f"its samples are those of line {seen[values]} in another order"
            yield number, f"{record['case']}: {text}: {AS_WRITTEN}"
        seen.setdefault(values, number)


def of_comparison(record: Mapping[str, Any]) -> Iterator[str]:
    """What the figures of a comparison say of each other that can't be."""
    p, adjusted = record.get("p"), record.get("adjusted")
    for what, value in (("p", p), ("adjusted", adjusted)):
        if isinstance(value, (int, float)) and not 0 <= value <= 1:
            yield f"{what} = {value} is no probability: compare again"
    if isinstance(p, (int, float)) and isinstance(adjusted, (int, float)) and adjusted < p:
        yield f"adjusted p {adjusted} is below p {p}: compare again"
    ends = [record.get(what) for what in ("low", "ratio", "high")]
    numbers = [v for v in ends if isinstance(v, (int, float))]
    if numbers != sorted(numbers):
        yield f"ratio {record.get('ratio')} is outside of its interval: compare again"


def of_log(said: Mapping[str, int], files: Sequence[Mapping[str, int]]) -> str:
    """Why a log is of another run, or "". said: the verdicts that the log counts at its end, and `cases`; files: the
    same of each record file."""
    if not said or any(all(own.get(k, 0) == n for k, n in said.items()) for own in files):
        return ""
    told = ", ".join(f"{number} {name}" for name, number in said.items())
    return f"the log counts {told}, and no record file does: attach what these runs printed"


def answers(run: Mapping[str, Any], challenge: Mapping[str, Any]) -> str:
    """Why a run is not on the devices that a challenge names, or ""."""
    facts = run["facts"]
    for name, seen in (("devices", facts["num_devices"]), ("processes", run_line.processes(facts))):
        if challenge.get(name, seen) != seen:
            return f"run {run['run']} is on {seen} {name}, and the challenge for {challenge[name]}"
    return ""
