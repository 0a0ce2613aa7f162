# SPDX-License-Identifier: Apache-2.0
"""`meshmark compare`: slower, faster, no change or inconclusive, for each case of two environments or two files."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from meshmark.commands.arguments import path, positive, seconds
from meshmark.commands.options import add_timing, check_cadences
from meshmark.core import interrupts, terminal
from meshmark.core.errors import unknown
from meshmark.core.privacy import redact
from meshmark.core.terminal import note, remark, show
from meshmark.core.text import names
from meshmark.devices.environment import cpu_devices
from meshmark.devices.facts import Facts
from meshmark.operations import cases
from meshmark.operations.choosing import MANY, add_options, named, selected
from meshmark.operations.selection import Selection, SelectionError
from meshmark.publish import consistent
from meshmark.records import reading, writing
from meshmark.timing import bench, compare, environments, file_comparison
from meshmark.timing.children import Children
from meshmark.timing.compare import SIDES, CompareError, Comparison, Difference
from meshmark.timing.comparison_file import ComparisonFile
from meshmark.timing.comparison_progress import announced, cut_short, shown
from meshmark.timing.comparison_report import Findings, described, notes_on_files
from meshmark.timing.environments import Environment
from meshmark.timing.timer import Job

FAIL_ON = ("slower", "faster", "counters", "inconclusive", "failed")
"""What `--fail-on` may name."""

BUDGET = 900.0
SECONDS = 0.1


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    for side, what in zip(SIDES, ("before", "after"), strict=True):
        add.add_argument(side, metavar=side, help=f"{what}: {environments.FORMS}")
    add_options(add.add_argument, timed=True, without=("with",))
    add.add_argument(
        "--cases",
        type=case_ids,
        default=(),
        metavar="ID,...",
        help="these cases instead, as `meshmark list --cases` prints them",
    )
    add_timing(add, ("isolated",))
    add.add_argument(
        "--budget",
        type=budget,
        default=BUDGET,
        metavar="S",
        help=f"seconds until the last pair must have ended (default {BUDGET:.0f})",
    )
    add.add_argument(
        "--pairs",
        type=looks,
        default=(),
        metavar="N,...",
        help="numbers of pairs at which it may stop, set before the first sample (default 20,40, or more where"
        " there are many cases)",
    )
    add.add_argument(
        "--least",
        type=seconds,
        default=3.0,
        metavar="PERCENT",
        help="the smallest change that is reported (default 3)",
    )
    add.add_argument(
        "--seconds",
        type=seconds,
        default=SECONDS,
        metavar="S",
        help=f"sampling time of each program in each process (default {SECONDS})",
    )
    add.add_argument(
        "--python",
        type=path,
        metavar="PYTHON",
        help="the interpreter for JAX releases and commits (default this one)",
    )
    add.add_argument(
        "--fail-on",
        type=fail_on,
        default=(),
        metavar="WHAT,...",
        help=f"exit with 1 where one of these was found: {', '.join(FAIL_ON)}",
    )
    add.add_argument(
        "--anyway",
        action="store_true",
        help="also compare what is not comparable: other devices, virtual against real",
    )
    add.add_argument(
        "--record", type=path, metavar="FILE", help="write samples and verdicts to this new file"
    )
    add.add_argument(
        "--resume",
        type=path,
        metavar="FILE",
        help="continue the interrupted comparison that wrote this file",
    )
    add.add_argument("--json", action="store_true", help="what was found as JSON")


def case_ids(text: str) -> tuple[str, ...]:
    """The case ids of a list. An id has five slashes, and its variant may contain commas."""
    found: list[str] = []
    parts: list[str] = []
    for part in text.split(","):
        parts.append(part.strip())
        if (whole := ",".join(parts)).count("/") >= 5:
            found.append(whole)
            parts = []
    rest = ",".join(parts)
    return tuple(dict.fromkeys([*found, rest] if rest else found))


def looks(text: str) -> tuple[int, ...]:
    """Growing numbers of pairs."""
    found = tuple(positive(name) for name in names(text))
    if not found or any(b <= a for a, b in pairwise(found)):
        raise argparse.ArgumentTypeError(f"{text!r} must be growing numbers of pairs, such as 20,40")
    return found


def budget(text: str) -> float:
    """Seconds; 0 judges only what is already recorded."""
    return 0.0 if text == "0" else seconds(text)


def fail_on(text: str) -> tuple[str, ...]:
    """Some of FAIL_ON."""
    found = names(text)
    for name in found:
        if name not in FAIL_ON:
            raise argparse.ArgumentTypeError(unknown("outcome", name, FAIL_ON))
    return found


def run(arguments: argparse.Namespace) -> int:
    """Compare two environments, or two files."""
    files = [text.endswith((".jsonl", ".jsonl.gz")) for text in (arguments.A, arguments.B)]
    if all(files):
        return compare_files(arguments)
    if any(files):
        raise CompareError(f"one of {arguments.A} and {arguments.B} is a record file: name two, or none")
    return compare_environments(arguments)


# Environments -----------------------------------------------------------------------------------------------


def compare_environments(arguments: argparse.Namespace) -> int:
    """Time A and B in turns."""
    check_cadences(arguments.cadence)
    if arguments.record and arguments.resume:
        raise reading.RecordError(
            "--record and --resume name one file each: --resume appends to the file that it names"
        )
    check_names(arguments)
    variables = cpu_devices(arguments.num_devices)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="meshmark-compare-")))
        python = str(arguments.python or sys.executable)
        sides = {
            side: environments.resolve(
                getattr(arguments, side), python, directory, note, environments.OLDEST_JAX
            )
            for side in SIDES
        }
        facts = {side: environments.read_facts(made, variables) for side, made in sides.items()}
        refuse(compare.incomparable(facts["A"], facts["B"]), arguments.anyway)
        number = min(f["num_devices"] for f in facts.values())
        cells, left_out = wanted(arguments, Facts.from_json({**facts["A"], "num_devices": number}))
        missing = {
            case: f"{side}: its table has no such case"
            for side, made in sides.items()
            for case in environments.missing(made, [i for ids in cells for i in ids], number)
        }
        children = {
            side: stack.enter_context(
                Children(python=made.python, path=made.path, module=made.layout.timer, environment=variables)
            )
            for side, made in sides.items()
        }
        comparison = Comparison(
            run=lambda side, job: children[side].run(job),
            ahead=lambda processes: started(children, processes),
            cells=cells,
            job=Job(
                cells=[],
                num_devices=number,
                seed=arguments.seed,
                cadences=list(arguments.cadence),
                seconds=arguments.seconds,
                deadline=arguments.deadline,
            ),
            budget=arguments.budget,
            looks=arguments.pairs,
            least=arguments.least / 100,
            missing=missing,
        )
        file = ComparisonFile(arguments.record, arguments.resume, run_lines(arguments, facts, sides))
        comparison.earlier = file.earlier
        heading = [described(side, sides[side].shown, facts[side]) for side in SIDES]
        if not arguments.json:
            show(heading, (f"left out: {why}" for why in left_out))
        for line in bench.load():
            remark(f"{line}; processes will differ more, and less will be found")
        try:
            differences = timed(comparison, file)
        except KeyboardInterrupt as error:
            remark(cut_short("interrupted", comparison, file.path))
            return interrupts.code(error)
        except OSError as error:
            remark(cut_short(f"can't go on: {error.strerror or error}", comparison, file.path))
            return 2
        finally:
            file.close([raw for each in children.values() for raw in each.raw])
        return print_findings(Findings.of(comparison, facts, heading, differences), arguments)


def started(children: Mapping[str, Children], processes: Mapping[str, int]) -> None:
    """Start the processes of a pair together, up to the point where they wait for jobs; skipped if a process can't
    signal that point."""
    if all(each.announces for each in children.values()):
        for side, process in processes.items():
            children[side].begin(process)
        for side in processes:
            children[side].ready()


def run_lines(
    arguments: argparse.Namespace, facts: Mapping[str, dict[str, Any]], sides: Mapping[str, Environment]
) -> dict[str, dict[str, Any]]:
    """The run line of each side."""
    options = {field: list(names_) for field, names_ in named(vars(arguments)).items()}
    return {
        side: {
            "facts": facts[side],
            "environment": side,
            "named": redact(sides[side].shown),
            "commit": sides[side].commit,
            "selection": options | {"profile": arguments.profile, "cases": list(arguments.cases)},
            "seed": arguments.seed,
            "repeat": 1,
            "table": environments.table_version(sides[side]),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "timing": {
                "cadences": list(arguments.cadence),
                "seconds": arguments.seconds,
                "pairs": list(arguments.pairs),
                "least": arguments.least,
            },
        }
        for side in SIDES
    }


def print_findings(found: Findings, arguments: argparse.Namespace) -> int:
    """Print the findings; returns the exit code."""
    if arguments.json:
        print(json.dumps(json.loads(writing.dumps(found.to_json())), indent=2))
        return found.code(arguments.fail_on)
    show(found.lines(terminal.width()), verdicts=True)
    for line in found.notes:
        remark(line)
    return found.code(arguments.fail_on)


def check_names(arguments: argparse.Namespace) -> None:
    """SelectionError for an unknown name, before minutes go into environments. Meshes need the number of devices, so
    `wanted` checks them."""
    chosen = {field: value for field, value in named(vars(arguments)).items() if field != "meshes"}
    Selection(profile=arguments.profile, timed=True, **chosen).checked(1)


def wanted(arguments: argparse.Namespace, facts: Facts) -> tuple[list[list[str]], list[str]]:
    """(case ids, one list per cell; why others are left out)."""
    if not arguments.cases:
        selection = selected(vars(arguments), facts.num_devices, timed=True)
        todo, left_out = bench.select_cells(selection, facts)
        return [[cell.case(mode).id for mode in modes] for cell, modes in todo], left_out
    if given := [name for name, field in MANY.items() if named(vars(arguments)).get(field)]:
        raise SelectionError(
            f"--cases names the cases, and --{given[0]} chooses from the table: use one of them"
        )
    cells: dict[str, list[str]] = {}
    for case_id in arguments.cases:
        case = cases.find(case_id, facts.num_devices)
        cells.setdefault(case.cell.id, []).append(case.id)
    return list(cells.values()), []


def refuse(why: Sequence[str], anyway: bool) -> None:
    """CompareError if the comparison would rank different kinds of things, unless the user allows it."""
    if why and not anyway:
        raise CompareError(f"not comparable: {'; '.join(why)}; add --anyway to compare nevertheless")
    for line in why:
        remark(f"not comparable, and compared because of --anyway: {line}")


def timed(comparison: Comparison, file: ComparisonFile) -> list[Difference]:
    """Run a comparison to its end; returns the compiled counters that differ."""
    interrupts.warn()
    comparison.write = file.write
    with shown(comparison, note) as say:
        comparison.say = say
        differences = comparison.prepare()
        for process, (side, lines) in sorted(file.before.items()):
            comparison.take(side, process, lines)
            comparison.complete.add(process)
        for line in announced(comparison, differences):
            say(line)
        comparison.proceed()
    file.write(compare.verdict_lines(comparison.outcomes, comparison.left_out, comparison.earlier))
    return differences


# Files ------------------------------------------------------------------------------------------------------


OF_FILES = (*SIDES, "least", "fail_on", "anyway", "json")
"""The arguments that a comparison of record files takes."""


def compare_files(arguments: argparse.Namespace) -> int:
    """Compare what two runs of `meshmark bench` recorded."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for name, default in vars(parser.parse_args([arguments.A, arguments.B])).items():
        if name not in OF_FILES and getattr(arguments, name) != default:
            option = name.replace("_", "-")
            raise CompareError(f"--{option} is for environments that are timed, and these are record files")
    sides, lost = {}, 0
    for side in SIDES:
        read = reading.read_records(Path(getattr(arguments, side)))
        for problem in read.problems:
            note(problem)
            lost = 2
        sides[side] = file_comparison.taken(read, getattr(arguments, side))
        for _, copied in consistent.of_samples(list(enumerate(read.timings))):
            raise CompareError(f"{getattr(arguments, side)}: {copied}: each process must be measured")
    a, b = (sides[side] for side in SIDES)
    refuse(compare.incomparable(a.facts, b.facts), arguments.anyway)
    shared = {
        k: (a.medians[k], b.medians[k])
        for k in a.medians
        if k in b.medians and k not in (a.failed | b.failed)
    }
    if not shared:
        raise CompareError(f"{arguments.A} and {arguments.B} have no case in common that passed in both")
    fewest = min(len(x) for both in shared.values() for x in both)
    outcomes = file_comparison.compare_times(shared, arguments.least / 100)
    found = Findings(
        outcomes=outcomes,
        left_out={k: f"{s}: {w}" for s in SIDES for k, w in sides[s].failed.items()},
        differences=compare.find_counter_differences(a.counters, b.counters),
        counted=sum(bool(b.counters.get(case)) for case in a.counters),
        heading=[described(s, getattr(arguments, s), sides[s].facts) for s in SIDES],
        what="processes",
        notes=notes_on_files(fewest, outcomes),
        facts={side: sides[side].facts for side in SIDES},
    )
    for side, other in (("A", b), ("B", a)):
        if only := [k for k in sides[side].medians if k not in other.medians and k not in found.left_out]:
            found.notes.append(f"{len(only)} are in {side} only, such as {only[0]}")
    if not arguments.json:
        show(found.heading)
    return print_findings(found, arguments) or lost
