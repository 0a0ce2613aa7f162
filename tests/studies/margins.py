# SPDX-License-Identifier: Apache-2.0
"""Counts false alarms and measures margins: every case is compiled once and executed with several seeds.

    python -m tests.studies.margins [--profile standard] [--seeds 10] [--every 1] [--markdown FILE]

On a correct backend no seed may fail, so the number of failures is that of false alarms. The largest error as a share
of its bound, by operation and dtype, shows how tight the bounds are. The catalogue of faults shows that a fault of a
few times the bound is caught.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax

from meshmark.core.verdicts import BAD, Line, worst
from meshmark.judge.checks import outputs_lines, prepare_cell
from meshmark.judge.programs import Program, place_array
from meshmark.levels import known_issues
from meshmark.operations import cases
from meshmark.operations.cases import Case
from meshmark.operations.selection import Selection
from meshmark.operations.weights import PROFILES


def judged(case: Case, seeds: range) -> list[list[Line]]:
    """The lines of each seed's execution of one compiled program."""
    devices = tuple(jax.devices())
    program = Program(case, devices)
    compiled = program.compile()
    places = [devices[i] for i in case.mesh.ordinals.flat]
    found = []
    for seed in seeds:
        arguments, expected, bounds = prepare_cell(case.cell, seed)
        inputs = [
            place_array(program.mesh, seen.spec, program.view(argument, array))
            for argument, seen, array in zip(case.plan.arguments, program.arguments, arguments, strict=True)
        ]
        with program.context():
            outputs = jax.block_until_ready(jax.tree.leaves(compiled(*inputs)))
        wanted = [program.view(r, e) for r, e in zip(case.plan.results, expected, strict=True)]
        limits = [
            None if b is None else program.view(r, b) for r, b in zip(case.plan.results, bounds, strict=True)
        ]
        found.append(outputs_lines(case, places, program.results, outputs, wanted, limits, ()))
    return found


def main() -> int:
    """Run the study; 1 if there is a false alarm."""
    parser = argparse.ArgumentParser(description="False alarms and margins over seeds.")
    parser.add_argument("--profile", default="standard", choices=PROFILES)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--every", type=int, default=1, help="take every so many cases only")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    options = parser.parse_args()
    issues = known_issues.load(jax.__version__, jax.default_backend())
    share: dict[tuple[str, str], float] = defaultdict(float)
    executions = alarms = ran = 0
    chosen = [c for c in cases.cases(Selection(options.profile), 8) if c.mode != "host"]
    for number, case in enumerate(chosen[:: options.every], 1):
        if any(issue.covers(case.id) and set(issue.checks) - {"communication"} for issue in issues):
            continue
        ran += 1
        for seed, lines in enumerate(judged(case, range(1, options.seeds + 1)), 1):
            executions += 1
            if worst(line.verdict for line in lines) in BAD:
                alarms += 1
                print(case.id, f"seed {seed}:", next(line.reason for line in lines if line.verdict in BAD))
            if case.plan.judge == "bound" and lines[0].data["bound"]:
                key = (case.operation.name, case.cell.request.dtype)
                share[key] = max(share[key], lines[0].data["error"] / lines[0].data["bound"])
        if number % 200 == 0:
            jax.clear_caches()
            print(f"{number} cases", flush=True)
    head = (
        f"JAX {jax.__version__}, {options.profile} profile: {ran} cases, {options.seeds} seeds,"
        f" {executions} executions, {alarms} false alarms"
    )
    table = [head, "", "| operation | dtype | largest error / bound |", "|---|---|---|"]
    table += [f"| {name} | {dtype} | {value:.3g} |" for (name, dtype), value in sorted(share.items())]
    print("\n".join(table))
    if options.markdown:
        options.markdown.write_text("\n".join(table) + "\n")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
