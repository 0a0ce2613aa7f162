# SPDX-License-Identifier: Apache-2.0
"""The catalogue of faults that the suite must catch, and the command that runs it.

    python -m tests.studies.faults [--profile standard] [--only NAME,...] [--part 1/2] [--markdown FILE]

A fault is a small patch to JAX's public functions, or to the results of a compiled program. It is active while cases
are judged. The command activates one fault after the other and judges the cases of the profile until one fails. Cases
that the fault is likely to affect come first. The table names the check that caught the fault.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax

from meshmark.core.verdicts import BAD, worst
from meshmark.judge.checks import Judge
from meshmark.levels import known_issues
from meshmark.operations import cases
from meshmark.operations.cases import Case
from meshmark.operations.selection import Selection
from meshmark.operations.weights import PROFILES
from tests.studies.planting import CATALOGUE, Fault


def load_families() -> None:
    """Import the modules that add faults to the catalogue."""
    names = ("results", "functions", "calls", "communication", "programs", "transforms", "values", "breadth")
    names += ("features", "options", "conditions", "uses", "settings", "corners", "combinations", "nesting")
    names += (
        "meetings",
        "partitions",
        "rarities",
        "rare_options",
        "bit_patterns",
        "reports",
        "libraries",
        "edges",
        "every_transform",
        "cut_arrays",
        "small_rules",
        "more_rules",
        "numpy_calls",
        "explicit_arrays",
        "unreduced_values",
        "varying_results",
        "batches",
        "words",
        "answers",
        "ties_and_ends",
        "drawn_programs",
        "several_leaves",
        "lengths",
        "given_options",
        "kept_things",
        "seldom_rules",
        "reported_rules",
        "tested_regions",
        "tested_types",
        "tested_arrays",
        "seldom_options",
        "what_nobody_asked",
        "unnoticed_changes",
    )
    for name in names:
        importlib.import_module(f"tests.studies.faults_of_{name}")


@dataclass
class Outcome:
    """The outcome of one fault."""

    fault: Fault
    case: str = ""
    checks: tuple[str, ...] = ()
    judged: int = 0
    seconds: float = 0.0

    @property
    def caught(self) -> bool:
        """Whether some case failed."""
        return bool(self.checks)


def hunt(what: Fault, chosen: Iterable[Case], issues: Sequence[known_issues.Issue] = ()) -> Outcome:
    """Judge cases under a fault until one fails that is not a known issue."""
    judge, outcome, start = Judge(tuple(jax.devices())), Outcome(what), time.perf_counter()
    with what.put_in():
        for case in chosen:
            outcome.judged += 1
            lines = judge.run(case)
            known_issues.apply(issues, case.id, lines)
            if worst(line.verdict for line in lines) in BAD:
                outcome.case = case.id
                outcome.checks = tuple(line.check for line in lines if line.verdict in BAD)
                break
    outcome.seconds = time.perf_counter() - start
    return outcome


def likely_cases(what: Fault, profile: str) -> Iterator[Case]:
    """The cases of a profile that the fault is likely to affect."""
    chosen = cases.cases(Selection(profile, **what.likely), jax.device_count())  # type: ignore[arg-type]
    return filter(what.only, chosen)


def in_order(what: Fault, profile: str) -> Iterator[Case]:
    """All cases of a profile (with the capabilities that the fault needs), the likely ones first."""
    seen = set()
    for case in likely_cases(what, profile):
        seen.add(case.id)
        yield case
    selection = Selection(profile, capabilities=what.likely.get("capabilities", ()))
    yield from (case for case in cases.cases(selection, jax.device_count()) if case.id not in seen)


def part_of(text: str) -> tuple[int, int]:
    """(1, 2) from 1/2; argparse.ArgumentTypeError for any other text."""
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not found or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!a} is not a part: write 1/2 for the first of two")
    return int(found[1]), int(found[2])


def main() -> int:
    """Run the catalogue; 1 if a fault is missed."""
    parser = argparse.ArgumentParser(description="Run the catalogue of faults against the suite.")
    parser.add_argument("--profile", default="standard", choices=PROFILES)
    parser.add_argument("--only", default="", help="names of faults, by commas")
    parser.add_argument(
        "--part",
        type=part_of,
        default=(1, 1),
        metavar="I/N",
        help="1/2: every second fault from the first on, so that processes share the work",
    )
    parser.add_argument("--markdown", default="", help="write the table to this file")
    options = parser.parse_args()
    load_families()
    issues = known_issues.load(jax.__version__, jax.default_backend())
    names = [n for n in CATALOGUE if not options.only or n in options.only.split(",")]
    part, parts = options.part
    names = names[part - 1 :: parts]
    if options.profile == "smoke":
        names = [n for n in names if CATALOGUE[n].core]
    rows, missed = [], 0
    for number, name in enumerate(names, 1):
        outcome = hunt(CATALOGUE[name], in_order(CATALOGUE[name], options.profile), issues)
        missed += not outcome.caught
        checks = ", ".join(outcome.checks) or "MISSED"
        rows.append(f"| {name} | {checks} | {outcome.judged} | {outcome.seconds:.1f} s | {outcome.case} |")
        print(f"[{number}/{len(names)}] {rows[-1]}", flush=True)
    caught = f"{len(names) - missed} of {len(names)} faults caught"
    head = f"{caught} by the {options.profile} profile, JAX {jax.__version__}"
    table = [
        head,
        "",
        "| fault | caught by | cases judged | time | first case |",
        "|---|---|---|---|---|",
        *rows,
    ]
    print(head)
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write("\n".join(table) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
