# SPDX-License-Identifier: Apache-2.0
"""Checks that need no case of today's table: whether a run, check or timing line is consistent in itself.

A program that later table versions compile in another way is not held to its contract. Its line must still be
consistent, or naming an old version would excuse anything. Every published run follows each of these rules.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from meshmark.core.hlo import Collective, wire_bytes
from meshmark.core.meshes import parse_mesh
from meshmark.publish.review import AS_WRITTEN, Entry
from meshmark.ranks import rank_timing
from meshmark.records import run_line
from meshmark.records.definition import CeilingLine, ConformanceLine, TimingLine
from meshmark.records.run_definition import RunLine, TimingSettings
from meshmark.records.shared import CADENCES, RecordedCollective
from meshmark.timing.ceilings import (
    COPIES,
    COPY_BYTES,
    DTYPES,
    LARGE_COPY_BYTES,
    MANY_COPIES,
    MOST_SAMPLES,
    SAMPLES,
    SAMPLING,
    SIZES,
)
from meshmark.timing.measure import COUNTS, Budget

UNITS = {"copy bandwidth": "B/s", "largest matmul": "FLOP/s"}
"""The unit of each ceiling."""

OF_A_CEILING = {"copy bandwidth": {"nbytes", "copies"}, "largest matmul": {"n", "flops"}}
"""The fields that only the ceiling of this name has."""

COPIED = {
    "cpu": ((COPY_BYTES,), (COPIES,)),
    "other": ((COPY_BYTES, LARGE_COPY_BYTES), (COPIES, MANY_COPIES)),
}
"""The bytes that a device copies, and how often in one call: of CPU devices, and of others in any version."""

OF_COMPARISONS = ("environment", "named", "commit")
"""The fields that only a run of a comparison has."""

OF_TOPOLOGIES = ("topology", "layout", "export")
"""The choices that only a compile-only run makes."""

MACHINES = ("x86_64", "amd64", "aarch64", "arm64", "ppc64le", "riscv64", "s390x", "loongarch64")
"""The architectures that jaxlib was built for, as Python names them in small letters."""

TRANSPORTS = ("gloo", "mpi", "megascale")
"""What can carry collectives between CPU processes."""

COUNTED = ("collectives", "wire_bytes", "flops", "bytes_accessed", "temp_bytes")
"""The fields that the line of a compiled program always has."""

OF_A_PROGRAM = (*COUNTED, "communication", "argument_bytes", "output_bytes", "precision")
"""The fields that are equal in all lines of one timed program and one run: the same compiler gives the same program."""

OF_A_TIMING = (*COUNTED, "communication", "argument_bytes", "output_bytes", "lower_s", "compile_s", "calls")
"""The fields that a passing timing always has."""

OF_COUNTED = ("control_calls", "rounds_s", "control_rounds_s")
"""The fields that only the timings of a run have whose samples' time counts (`timing.counts`)."""

OF_CHECKS = ("theory", "told", "excess_bytes")
"""The fields of a program that a check line has and a timing line has not."""

OF_REPEATS = ("differing_runs", "wrong_runs")
"""The fields that only a program that ran several times has."""

APART = 10.0
"""The largest factor between the medians of a program and of its control; the largest in the published runs is 1.9."""

_SHAPE = re.compile(r"(\d{1,6})x(\d{1,6})|(\d{1,6}) pairs")


def of_file(lines: Sequence[Entry], runs: Mapping[str, RunLine]) -> Iterator[tuple[int, str]]:
    """(line, problem) of one file."""
    programs: dict[tuple[str, str], tuple[int, dict[str, str]]] = {}
    kinds: dict[str, set[str]] = {}
    for _, record in lines:
        kinds.setdefault(record["run"], set()).add(record["kind"])
    compares = any("comparison" in own for own in kinds.values())
    for number, record in lines:
        if "so_far" in record:
            yield number, f"has a seal (`so_far`), which no published line has: {AS_WRITTEN}"
        if record["kind"] == "run":
            yield from ((number, f"{t}: {AS_WRITTEN}") for t in of_run(record, kinds[record["run"]]))
            if "environment" in record and not compares:
                yield number, f"is a side of a comparison, and its file compares nothing: {AS_WRITTEN}"
        elif record["kind"] == "conformance":
            found = (of_check(record), of_workspace(record, runs[record["run"]]))
            yield from ((number, f"{record['case']}: {t}: {AS_WRITTEN}") for t in chain.from_iterable(found))
        elif record["kind"] == "ceiling":
            told = of_ceiling(record, runs[record["run"]])
            yield from ((number, f"{record['name']}: {t}: {AS_WRITTEN}") for t in told)
        elif record["kind"] == "schedule" and kinds[record["run"]] & {"conformance", "timing"}:
            text = "is the schedule of a program, and its run judges or times programs"
            yield number, f"{record['case']}: {text}: {AS_WRITTEN}"
        elif record["kind"] == "timing" and record["verdict"] == "pass":
            run = runs[record["run"]]
            every = (of_timing(record, run), of_device_times(record, run), of_workspace(record, run))
            yield from ((number, f"{record['case']}: {t}: {AS_WRITTEN}") for t in chain.from_iterable(every))
            own = {name: json.dumps(record.get(name), sort_keys=True) for name in OF_A_PROGRAM}
            key = record["run"], record["case"]
            first, before = programs.setdefault(key, (number, own))
            if differing := [name for name in own if own[name] != before[name]]:
                text = f"`{differing[0]}` is not that of the same program in line {first}"
                yield number, f"{record['case']}: {text}: {AS_WRITTEN}"
    yield from _cells(lines, runs)


def of_run(run: RunLine, kinds: set[str]) -> Iterator[str]:
    """Yields contradictions in a run line on devices. kinds: the kinds of the run's lines."""
    facts, selection = run["facts"], run.get("selection") or {}
    if facts.get("topology"):
        return  # another rule reports a compile-only run
    compared, timed = "environment" in run, bool(selection.get("timed"))
    if found := [name for name in OF_COMPARISONS if name in run and not compared]:
        yield f"`{found[0]}` of a run that is not one side of a comparison"
    if "cases" in selection and not compared:
        yield "`selection.cases` of a run that is not one side of a comparison"
    if found := [name for name in OF_TOPOLOGIES if selection.get(name)]:
        yield f"`selection.{found[0]}` of a run on devices, which only a compile-only run has"
    if facts.get("others"):
        yield "`others` of a run on devices, which only a compile-only run has"
    if not compared and "timing" in kinds and not timed:
        yield "times cases, and its selection is not of timed ones (`selection.timed`)"
    if not compared and "conformance" in kinds and timed:
        yield "judges cases, and its selection is of timed ones (`selection.timed`)"
    if not compared and timed is not ("timing" in run):
        yield f"`timing` is {'missing of' if timed else 'that of'} a run that {'times' if timed else 'judges'} cases"
    if "timing" in run and not compared:
        yield from of_settings(run["timing"], bool(run.get("closes")), run_line.processes(facts))
    over = run_line.processes(facts)
    if over > 1 and not compared and run.get("ranks") != over:
        yield f"goes over {over} processes, and does not hold what all of them found (`ranks`)"
    if "group" in run and over == 1:
        yield "`group` of a run of one process"
    if "group" not in run and timed and over > 1 and not compared:
        yield "times over several processes, and does not say which ranks started together (`group`)"
    if over > 1 and not compared and "processes" not in selection:
        yield f"goes over {over} processes, and `selection.processes` does not say so"
    counts = run.get("timing", {}).get("counts")
    if counts and not compared and counts != (COUNTS if over == 1 else rank_timing.COUNTS):
        yield f"`timing.counts` is {counts!r} over {over} processes"
    transport = (facts.get("group") or {}).get("transport")
    if transport is not None and (facts["backend"] != "cpu" or transport not in TRANSPORTS):
        yield f"collectives over {transport[:20]!a} on {facts['backend'][:20]}"
    if over > 1 and facts["backend"] == "cpu" and transport is None:
        yield "CPU devices of several processes, and nothing that carries their collectives (`group.transport`)"
    host = facts.get("host") or {}
    if lacking := [name for name in ("system", "machine", "cores") if name not in host]:
        yield f"`host.{lacking[0]}` is missing, which every run line has"
    machine, system = str(host.get("machine", MACHINES[0])), host.get("system", "Linux")
    if machine.lower() not in MACHINES:
        yield f"a host of architecture {machine[:20]!a}, for which there is no jaxlib"
    if facts["backend"] in ("gpu", "tpu") and system not in ("Linux", "Windows"):
        yield f"backend {facts['backend']} on {str(system)[:20]}"
    if "ml_dtypes" not in facts["versions"]:
        yield "`versions` is without ml_dtypes, which every JAX has"
    answers = facts.get("capabilities") or {}
    if answers and timed:
        yield f"times cases, and has answers of probes ({min(answers)[:40]}), which only judging asks"
    for name in selection.get("present", ()):
        if answers.get(name) != "has":
            yield f"`selection.present` has {name[:40]}, and its capabilities say {str(answers.get(name))[:40]}"
    ids = [device["id"] for device in facts["devices"]]
    if facts["backend"] == "gpu" and over == 1 and ids != list(range(len(ids))):
        yield f"GPUs of one process with the ids {str(ids)[:60]}, which JAX does not give"


def of_settings(timing: TimingSettings, closes: bool, processes: int) -> Iterator[str]:
    """Yields what is wrong with the sampling settings of a timing run of this number of processes. closes: whether its
    version closes its files."""
    if lacking := [name for name in ("cadences", "seconds", "least", "most") if name not in timing]:
        yield f"times cases, and `timing.{lacking[0]}` is missing"
        return
    cadences = timing["cadences"]
    if not cadences or len(set(cadences)) < len(cadences) or not set(cadences) <= set(CADENCES):
        yield f"`timing.cadences` is {str(cadences)[:60]}: each is one of {', '.join(CADENCES)}, and there once"
    if "pairs" in timing:
        yield "`timing.pairs` of a run that is not one side of a comparison"
    if "precision" in timing and closes:
        yield "`timing.precision` of a run that does not stop by it"
    if not timing["seconds"]:
        yield f"times cases for {timing['seconds']} s"
    if not 1 <= timing["least"] <= timing["most"]:
        yield f"takes {timing['least']} samples at least, and {timing['most']} at most"
    least, most = Budget.least, Budget.most if processes == 1 else rank_timing.most_samples(processes)
    if "counts" in timing and (timing["least"], timing["most"]) != (least, most):
        yield f"takes {timing['least']} to {timing['most']} samples, and its version {least} to {most}"


def of_workspace(record: ConformanceLine | TimingLine, run: RunLine) -> Iterator[str]:
    """Yields what is impossible in the scratch memory of a GPU library (`workspace_bytes`)."""
    if "workspace_bytes" not in record:
        return
    asked, backend, held = record["workspace_bytes"], run["facts"]["backend"], record.get("temp_bytes")
    if backend != "gpu" or asked is None or not 0 < asked <= (held or 0):
        yield f"`workspace_bytes` is {asked}, of {held} B on {backend[:20]}"


def of_device_times(record: TimingLine, run: RunLine) -> Iterator[str]:
    """Yields what is impossible in the times of devices. Each call is traced once, on every device."""
    if record["cadence"] != "device":
        return
    samples, each, asked = record["samples_s"], record.get("per_device_s") or {}, run.get("timing") or {}
    if len(each) != record["devices"]:
        yield f"`per_device_s` has {len(each)} devices of {record['devices']}"
    elif any(s <= 0 for s in each.values()):
        yield "`per_device_s` has a device that was not busy"
    elif len(each) == 1 and samples:
        own, middle = next(iter(each.values())), sorted(samples)[len(samples) // 2]
        if not math.isclose(own, middle, rel_tol=1e-6):
            yield f"its only device was busy for {own:.6g} s, and the middle one of its samples is {middle:.6g} s"
    if "environment" not in run and len(samples) != asked.get("least", len(samples)):
        yield f"{len(samples)} calls were traced, and the run traces {asked['least']}"
    if record.get("calls", 1) != 1:
        yield f"{record['calls']} calls per sample of device times, which is 1"
    for name, calls in (("launch_skew_s", record.get("launch_skew_s")), ("wire_s", record.get("wire_s"))):
        if calls is not None and len(calls) != len(samples):
            yield f"`{name}` has {len(calls)} calls of {len(samples)}"
        if calls is None and record["devices"] > 1:
            yield f"is on {record['devices']} devices, and has no `{name}`"
    if record["devices"] == 1 and any(record.get("launch_skew_s", ())):
        yield "one device starts alone, and its `launch_skew_s` is not 0"


def of_check(record: ConformanceLine) -> Iterator[str]:
    """Yields contradictions within the line of a check."""
    if record["verdict"] == "not_run" and "@" not in record["case"]:
        yield "was not run, and the run is on devices"
    if found := [name for name in OF_REPEATS if name in record and "runs" not in record]:
        yield f"has `{found[0]}`, and its program ran once"
    if record["verdict"] != "pass" or record["check"] != "communication":
        return
    if lacking := [name for name in COUNTED if name not in record]:
        yield f"passes its communication check without `{lacking[0]}`"
        return
    try:
        devices = parse_mesh(record["mesh"]).size
    except ValueError as error:
        yield str(error)
        return
    yield from of_collectives(record["collectives"], record["wire_bytes"], devices)
    excess, sent = record.get("excess_bytes"), record["wire_bytes"]
    if isinstance(excess, (int, float)) and isinstance(sent, (int, float)) and excess > sent:
        yield f"sends {sent:g} B, and {excess:g} B more than it must"


def of_collectives(found: Sequence[RecordedCollective], sent: Any, devices: int) -> Iterator[str]:
    """Yields what is impossible in the collectives of a program on this many devices, or in its wire bytes."""
    low = high = 0.0
    for one in found:
        match = _SHAPE.fullmatch(one["groups"])
        pairs = bool(match and match[3])
        if not match or pairs is not (one["kind"] == "collective-permute") or one["kind"] not in KINDS:
            yield f"has a {one['kind'][:40]!a} over {one['groups'][:40]!a}"
            return
        number, size = (int(match[3]), 1) if pairs else (int(match[1]), int(match[2]))
        if number * size > devices:
            yield f"has a {one['kind']} over {one['groups']} of {devices} devices"
            return
        if one["trips"] is not None and one["trips"] < 1:
            yield f"has a {one['kind']} that runs {one['trips']} times"
        for step in (0, 1) if pairs else (1,):
            groups = ((0,) * size,) * number if not pairs else ()
            moved = tuple((i, i + step) for i in range(number)) if pairs else ()
            own = wire_bytes(Collective(one["kind"], one["bytes"], "", groups, moved, one["trips"]))
            low += own if not pairs or not step else 0.0
            high += own if not pairs or step else 0.0
    if not isinstance(sent, (int, float)) or not low - 0.5 <= sent <= high + 0.5:
        yield f"wire_bytes {str(sent)[:20]} are not those of its collectives, {high:g}"


KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute",
         "collective-broadcast")  # fmt: skip
"""The collectives of HLO that move data."""


def of_ceiling(record: CeilingLine, run: RunLine) -> Iterator[str]:
    """Yields contradictions within the line of a ceiling. Shares of all programs are of its rate, so its work must be
    that of the suite: every version that closes its files copies the same bytes."""
    name, samples, facts = record["name"], record["samples_s"], run["facts"]
    if record["devices"] != facts["num_devices"]:
        yield f"is of {record['devices']} devices, and the run has {facts['num_devices']}"
    sizes, times = COPIED["cpu" if facts["backend"] == "cpu" else "other"]
    nbytes, copies = record.get("nbytes"), record.get("copies")
    if name == "copy bandwidth" and run.get("closes") and not (nbytes in sizes and copies in times):
        yield f"copies {nbytes} B {copies} times, which no version does on {facts['backend'][:20]}"
    if name == "largest matmul" and run.get("closes"):
        if record.get("n") not in SIZES:
            yield f"is of n = {record.get('n')}, and the products are of n = {', '.join(map(str, SIZES))}"
        if record.get("dtype") not in DTYPES:
            yield f"is of {str(record.get('dtype'))[:20]}, and the products are of {' and '.join(DTYPES)}"
    if record["unit"] != UNITS.get(name):
        yield f"is in {record['unit']}"
    wanted = OF_A_CEILING.get(name, set())
    other = set().union(*OF_A_CEILING.values()) - wanted
    if strange := sorted(other & set(record)):
        yield f"has `{strange[0]}`, which is of another ceiling"
    if lacking := sorted(({"dtype"} | wanted) - set(record)):
        yield f"is without `{lacking[0]}`"
    if name == "copy bandwidth" and record.get("dtype", "float32") != "float32":
        yield f"is of {record['dtype'][:20]}, and float32 is copied"
    number = len(samples)
    stopped = number >= MOST_SAMPLES or (number >= SAMPLES and sum(samples) >= SAMPLING)
    on = number <= SAMPLES or (number <= MOST_SAMPLES and sum(samples[:-1]) < SAMPLING)
    if number and not (stopped and on):
        yield (
            f"{number} samples of {sum(samples):.3g} s: sampling stops at {SAMPLES} samples and {SAMPLING:g} s, or at"
            f" {MOST_SAMPLES}"
        )


def of_timing(record: TimingLine, run: RunLine) -> Iterator[str]:
    """Yields contradictions within the line of a passing timing."""
    if record["reason"]:
        yield f"passes, and gives a reason, {record['reason'][:60]!a}"
    if record.get("check", "execute") != "execute":
        yield f"passes by its check {record['check']}, and execute is the last one"
    if "environment" in record and "environment" not in run:
        yield "is one side of a comparison, and its run is not"
    if "environment" not in run and run.get("timing", {}).get("counts") != COUNTS:
        yield from (
            f"has `{name}`, and the time of samples does not count in its run"
            for name in OF_COUNTED
            if name in record
        )
    if "control_calls" in record and (record["cadence"] != "stream" or not record.get("control_s")):
        yield f"has `control_calls` in cadence {record['cadence']}, and only the control of a stream has calls"
    if "control_rounds_s" in record and (record["cadence"] != "plain" or not record.get("control_s")):
        yield f"has `control_rounds_s` in cadence {record['cadence']}, and only a control of plain calls has its own"
    if "rounds_s" in record and record["cadence"] == "device":
        yield "has `rounds_s`, and device times have no rounds"
    if found := [name for name in OF_CHECKS if name in record]:
        yield f"passes with `{found[0]}`, which a timing does not have"
    if record["mode"] == "host":
        return
    if lacking := [name for name in OF_A_TIMING if name not in record]:
        yield f"passes without `{lacking[0]}`"
        return
    yield from of_collectives(record["communication"], record["wire_bytes"], record["devices"])
    control, samples = record.get("control_s") or (), record["samples_s"]
    if control and samples:
        ratio = statistics.median(control) / statistics.median(samples)
        if not 1 / APART <= ratio <= APART:
            yield f"its control, the same program, takes {ratio:.3g} times as long"


def _cells(lines: Sequence[Entry], runs: Mapping[str, RunLine]) -> Iterator[tuple[int, str]]:
    """Checks that the work of a timed cell took no longer than its last line says."""
    cell: tuple[str, ...] = ()
    took, last, open_at = 0.0, 0, 0
    for number, record in lines:
        if record["kind"] != "timing" or "environment" in runs[record["run"]]:
            continue
        operation, variant, _, *rest = record["case"].split("/")
        own = (record["run"], str(record["process"]), operation, variant, *rest)
        if own != cell:
            if open_at:
                yield last, f"the cell of {cell[2]} is not closed by a line with `seconds`: {AS_WRITTEN}"
            cell, took = own, 0.0
        elif not open_at:
            yield number, f"{record['case']}: a line behind the `seconds` of its cell: {AS_WRITTEN}"
        taken = (*record["samples_s"], *record.get("control_s", ()))
        took += math.fsum(taken) * record.get("calls", 1) * (record["cadence"] != "device")
        last, open_at = number, 0 if "seconds" in record else number
        if "seconds" in record and took > record["seconds"] * 1.01:
            text = f"its cell took {record['seconds']:.4g} s, and its samples {took:.4g} s"
            yield number, f"{record['case']}: {text}: {AS_WRITTEN}"
    if open_at:
        yield last, f"the cell of {cell[2]} is not closed by a line with `seconds`: {AS_WRITTEN}"
