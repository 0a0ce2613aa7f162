# SPDX-License-Identifier: Apache-2.0
"""The interpreter against real executions, and how much of a topology it judges.

    python -m tests.studies.interpreted [--place cpu] [--profile standard] [--stride 1] [--offset 0] [--markdown FILE]

On the devices of this process (`--place cpu`, `--place gpu`) every chosen case is compiled once, run and interpreted,
and the two results are compared: to the bit for the judge "bits", as numbers for "exact", and within twice the bound
for "bound". On a topology (`--place v5e:2x4`) the interpretation is judged by the reference. The table has the number
of interpreted programs, the reasons of the others, the number that agree, and the seconds of compilation and
interpretation.

The cases run in a child process, one after the other. Some known bugs of compilers end the process: such a case is
named, and a new child goes on behind it.

The exit code is 1 if fewer than 99.5 % of the programs on CPU are interpretable (97 % for a TPU, 90 % for a GPU), or if
one disagrees.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax
import numpy as np

from meshmark.core import layout
from meshmark.core.hlo_types import Refused
from meshmark.core.progress import Steps
from meshmark.core.verdicts import worst
from meshmark.devices import chips, topologies
from meshmark.devices.compat import whole_text
from meshmark.interpreter import reader
from meshmark.interpreter.evaluator import interpret
from meshmark.interpreter.faults import Fault
from meshmark.judge import interpreted
from meshmark.judge.checks import clear_sometimes, placed_inputs
from meshmark.judge.numbers import find_worst_element
from meshmark.judge.programs import Program
from meshmark.operations import cases
from meshmark.operations.cases import Case
from meshmark.operations.selection import Selection

MARK = "studies-interpreted "
"""The start of a child's lines; other lines come from compilers."""

LEAST = {"cpu": 0.995, "gpu": 0.90, "tpu": 0.97, "cuda": 0.90}

HERE = ("cpu", "gpu")
"""Places whose devices this process has."""


@dataclass
class Tally:
    """The counts over the programs of one place."""

    programs: int = 0
    interpreted: int = 0
    agreeing: int = 0
    uncompiled: int = 0
    ended: list[str] = field(default_factory=list)
    """The cases that ended the process."""
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    compile_s: float = 0.0
    interpret_s: float = 0.0
    slowest: tuple[float, str] = (0.0, "")


def taken(place: str, profile: str, number: int, stride: int, offset: int) -> Iterator[Case]:
    """The chosen cases with a program over all devices (on the devices of this process also over some)."""
    selection = Selection(profile).checked(number)
    found = [
        case
        for case in cases.cases(selection, number)
        if case.mode != "host" and (place in HERE or case.mesh.size == number)
    ]
    yield from found[offset::stride]


def differing(
    program: Program, ours: Sequence[np.ndarray], theirs: Sequence[jax.Array], bits: Mapping[str, int]
) -> str:
    """How the interpretation differs from the execution of the same program; "" if it does not. bits: the significand
    bits to which the chip's products round their factors, by precision."""
    case = program.case
    _, bounds = interpreted.wanted(case.cell, 0, interpreted.u_factor(case, bits))
    for number, (result, plan, own, ran, bound) in enumerate(
        zip(program.results, case.plan.results, ours, theirs, bounds, strict=True)
    ):
        limit = None if bound is None else program.view(plan, bound)
        parts = layout.indices(result.shape, result.spec, case.mesh.sizes)
        place = {device: i for i, device in enumerate(program.mesh.devices.flat)}
        for shard in ran.addressable_shards:
            at = place[shard.device]
            # Both may be off by the bound, each to its own side.
            twice = None if limit is None else 2 * limit[parts[at]]
            seen, want = np.asarray(own[at], order="C"), np.asarray(shard.data)
            found = find_worst_element(case.plan.judge, seen, want, twice, case.plan.judge != "bits")
            if found and found[0] > 1:
                return f"result {number} on {shard.device}: {found[4]} elements, error {found[1]:.3g}"
    return ""


def judged(place: str, profile: str, stride: int, offset: int, first: int) -> Iterator[dict[str, Any]]:
    """Compile each case from number `first` on, interpret it, and compare with its execution, or on a topology with the
    reference: first a message with the number of cases, then for each case one with its name and one with what was
    found."""
    topology = None if place in HERE else topologies.parse_topology(place)
    devices = tuple(jax.devices(place)) if topology is None else topologies.devices(topology)
    chip = chips.chip_of(devices[0].device_kind) if topology is None else chips.CHIPS[topology.chip]
    bits = chips.factor_bits(chip) if chip else {}
    every = list(taken(place, profile, len(devices), stride, offset))
    yield {"cases": len(every)}
    for number, case in enumerate(every[first:], first):
        clear_sometimes(number + 1)
        yield {"at": case.id}
        yield _judged(Program(case, devices), bits, run=topology is None)


def _judged(program: Program, bits: Mapping[str, int], run: bool) -> dict[str, Any]:
    """What is found for one case: `uncompiled`, `refused` (the reason) or `wrong` ("" if it agrees), and seconds."""
    start = time.perf_counter()
    try:
        compiled = program.compile()
    except Exception:  # JAX refuses some cases; the conformance run says which
        return {"uncompiled": True}
    compile_s = time.perf_counter() - start
    start = time.perf_counter()
    try:
        arguments = interpreted.arguments(program, compiled, 0)
        outputs = interpret(reader.parse_module(whole_text(compiled)), arguments, bits)
    except Refused as refused:
        return {"compile_s": compile_s, "refused": refused.name}
    except Fault as fault:
        return {"compile_s": compile_s, "wrong": str(fault), "fault": True}
    found = {"compile_s": compile_s, "interpret_s": time.perf_counter() - start}
    lines = interpreted.compared(program, outputs, bits, 0, compiled)
    verdict = worst(line.verdict for line in lines)
    reason = next((line.reason for line in lines if line.verdict == verdict), "")
    if verdict == "not_run":
        return found | {"refused": reason}
    if not run:
        return found | {"wrong": "" if verdict == "pass" else f"{verdict}: {reason}"}
    with program.context():
        ran = jax.block_until_ready(jax.tree.leaves(compiled(*placed_inputs(program, 0))))
    return found | {"wrong": differing(program, outputs, ran, bits)}


def study(place: str, profile: str, stride: int, offset: int) -> Tally:
    """Let children judge the cases, and count what they find."""
    tally, first, steps = Tally(), 0, None
    while True:
        at = ""
        for message in _child(place, profile, stride, offset, first):
            if "cases" in message:
                steps = steps or Steps(place, message["cases"])
            elif "at" in message:
                at = message["at"]
                first += 1
            else:
                _count(tally, at, message)
                if steps:
                    steps.step(at)
                at = ""
        if not at:
            return tally
        tally.ended.append(at)


def _child(place: str, profile: str, stride: int, offset: int, first: int) -> Iterator[dict[str, Any]]:
    """The messages of a child; RuntimeError if it dies outside of a case."""
    words = [sys.executable, "-m", "tests.studies.interpreted", "--place", place, "--profile", profile]
    words += ["--stride", str(stride), "--offset", str(offset), "--first", str(first)]
    inside = False
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout
        try:
            for text in child.stdout:
                if text.startswith(MARK):
                    message = json.loads(text.removeprefix(MARK))
                    inside = "at" in message
                    yield message
        finally:
            child.kill()
    if child.returncode and not inside:
        raise RuntimeError(f"the child died with exit code {child.returncode}: {' '.join(words)}")


def _count(tally: Tally, case: str, found: Mapping[str, Any]) -> None:
    if "uncompiled" in found:
        tally.uncompiled += 1
        return
    tally.programs += 1
    tally.compile_s += found["compile_s"]
    spent = found.get("interpret_s", 0.0)
    tally.interpret_s += spent
    tally.slowest = max(tally.slowest, (spent, case))
    if "refused" in found:
        tally.refused[found["refused"]] += 1
        tally.examples.setdefault(found["refused"], case)
        return
    tally.interpreted += "fault" not in found
    if found["wrong"]:
        tally.wrong.append(f"{case}: {found['wrong']}")
    else:
        tally.agreeing += 1


def table(place: str, tally: Tally, profile: str, stride: int) -> str:
    """The findings as Markdown."""
    share = tally.interpreted / max(1, tally.programs)
    with_what = "their execution" if place in HERE else "the reference"
    rows = [
        f"{place}, profile {profile}, every {stride}. case, JAX {jax.__version__}:"
        if stride > 1
        else f"{place}, profile {profile}, JAX {jax.__version__}:",
        "",
        "| what | number |",
        "|---|---|",
        f"| programs that compile | {tally.programs} |",
        f"| cases that do not compile | {tally.uncompiled} |",
        f"| cases that end the process | {len(tally.ended)} |",
        f"| interpreted | {tally.interpreted} ({100 * share:.2f} %) |",
        f"| of these, agreeing with {with_what} | {tally.agreeing} |",
        f"| seconds to compile, together | {tally.compile_s:.1f} |",
        f"| seconds to interpret, together | {tally.interpret_s:.1f} |",
        f"| slowest interpretation | {tally.slowest[0]:.2f} s, `{tally.slowest[1]}` |",
        "",
    ]
    rows += [
        f"- not interpreted: {n}: {name} (`{tally.examples[name]}`)"
        for name, n in tally.refused.most_common()
    ]
    rows += [f"- {line}" for line in tally.wrong]
    rows += [f"- ended the process: `{case}`" for case in tally.ended]
    return "\n".join(rows) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--place", default="cpu", help="cpu or gpu, or a topology such as v5e:2x4")
    parser.add_argument("--profile", default="standard")
    parser.add_argument("--stride", type=int, default=1, help="take every STRIDE-th case")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.place not in HERE:
        topologies.prepare_environment(options.place)
    if options.first is not None:
        for message in judged(options.place, options.profile, options.stride, options.offset, options.first):
            print(MARK + json.dumps(message), flush=True)
        return 0
    tally = study(options.place, options.profile, options.stride, options.offset)
    text = table(options.place, tally, options.profile, options.stride)
    print(text)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    platform = options.place if options.place in HERE else topologies.parse_topology(options.place).platform
    enough = tally.interpreted >= LEAST[platform] * tally.programs
    return 0 if enough and not tally.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
