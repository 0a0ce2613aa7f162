# SPDX-License-Identifier: Apache-2.0
"""The interpreter against real executions, and how much of a topology it judges.

    python -m tests.studies.interpreted [--place cpu] [--profile standard] [--stride 1] [--offset 0] [--markdown FILE]

On the devices of this process (`--place cpu`, `--place gpu`) every chosen case is compiled once, run and interpreted,
and the two results are compared: to the bit for the judge "bits", as numbers for "exact", and within twice the bound
for "bound". On a topology (`--place v5e:2x4`) the interpretation is judged by the reference. The table has the number
of interpreted programs, the reasons of the others, the number that agree, and the seconds of compilation and
interpretation.

The exit code is 1 if fewer than 99.5 % of the programs on CPU are interpretable (97 % for a TPU, 90 % for a GPU), or if
one disagrees.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax
import numpy as np

from meshmark.core import layout
from meshmark.core.verdicts import worst
from meshmark.devices import chips, topologies
from meshmark.devices.compat import whole_text
from meshmark.interpreter import reader
from meshmark.interpreter.evaluator import interpret
from meshmark.interpreter.faults import Fault, Refused
from meshmark.judge import interpreted
from meshmark.judge.checks import clear_sometimes, placed_inputs
from meshmark.judge.numbers import find_worst_element
from meshmark.judge.programs import Program
from meshmark.operations import cases
from meshmark.operations.cases import Case
from meshmark.operations.selection import Selection

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


def study(place: str, profile: str, stride: int, offset: int) -> Tally:
    """Compile each case, interpret it, and compare with its execution, or on a topology with the reference."""
    topology = None if place in HERE else topologies.parse_topology(place)
    devices = tuple(jax.devices(place)) if topology is None else topologies.devices(topology)
    chip = chips.chip_of(devices[0].device_kind) if topology is None else chips.CHIPS[topology.chip]
    bits = chips.factor_bits(chip) if chip else {}
    tally = Tally()
    for number, case in enumerate(taken(place, profile, len(devices), stride, offset)):
        clear_sometimes(number + 1)
        program = Program(case, devices)
        start = time.perf_counter()
        try:
            compiled = program.compile()
        except Exception:  # JAX refuses some cases; the conformance run says which
            tally.uncompiled += 1
            continue
        tally.compile_s += time.perf_counter() - start
        tally.programs += 1
        start = time.perf_counter()
        try:
            arguments = interpreted.arguments(program, compiled, 0)
            outputs = interpret(reader.parse_module(whole_text(compiled)), arguments, bits)
        except Refused as refused:
            tally.refused[refused.name] += 1
            tally.examples.setdefault(refused.name, case.id)
            continue
        except Fault as fault:
            tally.wrong.append(f"{case.id}: {fault}")
            continue
        spent = time.perf_counter() - start
        tally.interpret_s += spent
        tally.slowest = max(tally.slowest, (spent, case.id))
        lines = interpreted.compared(program, outputs, bits, 0, compiled)
        verdict = worst(line.verdict for line in lines)
        reason = next((line.reason for line in lines if line.verdict == verdict), "")
        if verdict == "not_run":
            tally.refused[reason] += 1
            tally.examples.setdefault(reason, case.id)
            continue
        tally.interpreted += 1
        said = "" if verdict == "pass" else f"{verdict}: {reason}"
        if topology is None:
            with program.context():
                ran = jax.block_until_ready(jax.tree.leaves(compiled(*placed_inputs(program, 0))))
            said = differing(program, outputs, ran, bits)
        if said:
            tally.wrong.append(f"{case.id}: {said}")
        else:
            tally.agreeing += 1
    return tally


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
    return "\n".join(rows) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--place", default="cpu", help="cpu or gpu, or a topology such as v5e:2x4")
    parser.add_argument("--profile", default="standard")
    parser.add_argument("--stride", type=int, default=1, help="take every STRIDE-th case")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(argv)
    if options.place not in HERE:
        topologies.prepare_environment(options.place)
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
