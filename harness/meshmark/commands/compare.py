"""`meshmark compare`: slower, faster, no change or inconclusive, for each case of two environments or two files."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from meshmark.commands.arguments import names, path, positive, seconds
from meshmark.commands.options import add_selection, add_timing, check_cadences, named
from meshmark.core import interrupts
from meshmark.core.privacy import redact
from meshmark.core.statistics import ORDER, Outcome
from meshmark.core.text import printable, text_table
from meshmark.devices.environment import cpu_devices
from meshmark.devices.facts import Facts
from meshmark.operations import cases
from meshmark.operations.selection import Selection, SelectionError
from meshmark.records import reading, writing
from meshmark.records.definition import TimingLine
from meshmark.records.writing import Writer
from meshmark.timing import bench, compare, environments, recorded
from meshmark.timing.children import Children
from meshmark.timing.compare import SIDES, CompareError, Comparison, Difference
from meshmark.timing.environments import Environment
from meshmark.timing.progress import note
from meshmark.timing.timer import Job

FAIL_ON = ("slower", "faster", "counters", "inconclusive", "failed")
"""What `--fail-on` may name."""

BUDGET = 900.0
SECONDS = 0.1

VERDICTS = ("slower", "faster", "inconclusive", "no change")
"""The order of the table."""

MOST_PROCESSES = 100_000
"""The largest process number of a file that is gone on with."""

MOST_DIFFERENCES = 40
"""Lines of counters that the terminal shows."""


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    for side, what in zip(SIDES, ("before", "after"), strict=True):
        add.add_argument(side, metavar=side, help=f"{what}: {environments.FORMS}")
    add_selection(add)
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
        help="numbers of pairs at which it may stop, settled before the first sample (default 20,40, or more where"
        " the cases are many)",
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
        help="rank what is not comparable too: other devices, virtual against real",
    )
    add.add_argument(
        "--record", type=path, metavar="FILE", help="write samples and verdicts to this new file"
    )
    add.add_argument(
        "--resume",
        type=path,
        metavar="FILE",
        help="go on with the interrupted comparison that wrote this file",
    )
    add.add_argument("--json", action="store_true", help="what was found as JSON")


def case_ids(text: str) -> tuple[str, ...]:
    """Case ids of a list: an id has five slashes, and its variant may hold commas of its own."""
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
        raise argparse.ArgumentTypeError(f"{text!r} are no growing numbers of pairs, such as 20,40")
    return found


def budget(text: str) -> float:
    """Seconds; 0 judges what is there."""
    return 0.0 if text == "0" else seconds(text)


def fail_on(text: str) -> tuple[str, ...]:
    """Some of FAIL_ON."""
    found = names(text)
    if unknown := [name for name in found if name not in FAIL_ON]:
        raise argparse.ArgumentTypeError(f"unknown {unknown[0]!r}: choose from {', '.join(FAIL_ON)}")
    return found


def run(arguments: argparse.Namespace) -> int:
    """Compare two environments, or two files."""
    files = [text.endswith(".jsonl") for text in (arguments.A, arguments.B)]
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
    variables = cpu_devices(arguments.num_devices)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="meshmark-compare-")))
        python = str(arguments.python or sys.executable)
        sides = {
            side: environments.resolve(getattr(arguments, side), python, directory, note) for side in SIDES
        }
        facts = {side: environments.facts(made, variables) for side, made in sides.items()}
        refuse(compare.incomparable(facts["A"], facts["B"]), arguments.anyway)
        number = min(f["num_devices"] for f in facts.values())
        cells, left_out = chosen(arguments, Facts.from_json({**facts["A"], "num_devices": number}))
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
        kept = Kept(arguments, facts, sides)
        heading = [line for side in SIDES for line in described(side, sides[side].shown, facts[side])]
        if not arguments.json:
            show([*heading, *(f"left out: {why}" for why in left_out)])
        for line in bench.load():
            note(f"{line}; processes will differ more, and less will be found")
        try:
            code = timed(comparison, kept, arguments)
        finally:
            kept.close([raw for each in children.values() for raw in each.raw])
        if code is not None:
            return code
        found = Found.of(comparison, facts, sides, kept.differences)
        found.show(arguments.json)
        return found.code(arguments.fail_on)


def chosen(arguments: argparse.Namespace, facts: Facts) -> tuple[list[list[str]], list[str]]:
    """(case ids, a list a cell; why others are left out)."""
    options = named(arguments)
    if not arguments.cases:
        selection = Selection(profile=arguments.profile, timed=True, **options).checked(facts.num_devices)
        todo, left_out = bench.select_cells(selection, facts)
        return [[cell.case(mode).id for mode in modes] for cell, modes in todo], left_out
    if given := [name for name, value in options.items() if value]:
        raise SelectionError(
            f"--cases names the cases, and --{given[0]} chooses from the table: use one of them"
        )
    cells: dict[str, list[str]] = {}
    for case_id in arguments.cases:
        case = cases.find(case_id, facts.num_devices)
        cells.setdefault(case.cell.id, []).append(case.id)
    return list(cells.values()), []


def refuse(why: Sequence[str], anyway: bool) -> None:
    """CompareError where a comparison would rank unlike things, unless it is asked for."""
    if why and not anyway:
        raise CompareError(f"not comparable: {'; '.join(why)}; add --anyway to compare nevertheless")
    for line in why:
        note(f"not comparable, and compared because of --anyway: {line}")


def described(side: str, name: str, facts: Mapping[str, Any]) -> list[str]:
    """What a side is, in one line."""
    versions = compare.dict_of(facts.get("versions"))
    virtual = ", virtual" if facts.get("virtual") else ""
    commit = str(compare.dict_of(facts.get("suite")).get("commit") or "")[:12] or "unknown"
    return [
        f"{side}: {name}: jax {versions.get('jax')}, jaxlib {versions.get('jaxlib')}, python {versions.get('python')},"
        f" {facts.get('num_devices')} {facts.get('device_kind')} devices ({facts.get('backend')}{virtual}),"
        f" harness {commit}"
    ]


class Kept:
    """The record file of a comparison, if there is one, and what is told before it ends."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        facts: Mapping[str, dict[str, Any]],
        sides: Mapping[str, Environment],
    ) -> None:
        self.path: Path | None = arguments.record or arguments.resume
        self.differences: list[Difference] = []
        self.before: dict[int, tuple[str, list[TimingLine]]] = {}
        self.writers: dict[str, Writer] = {}
        runs = {
            side: {
                "facts": facts[side],
                "environment": side,
                "named": redact(sides[side].shown),
                "commit": sides[side].commit,
                "selection": {name: list(chosen) for name, chosen in named(arguments).items()}
                | {"profile": arguments.profile, "cases": list(arguments.cases)},
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
        if arguments.record:
            self.writers["A"] = Writer.create(arguments.record, runs["A"])
        elif arguments.resume:
            self._resumed(arguments.resume, runs)
        if self.path:
            self.writers["B"] = self.writers["A"].beside(runs["B"])

    def _resumed(self, file: Path, runs: Mapping[str, dict[str, Any]]) -> None:
        before = reading.read(file)
        was = {r.get("environment"): r for r in before.runs}
        if set(was) != set(SIDES):
            raise reading.RecordError(
                f"can't resume {file}: it holds no comparison; name what --record wrote"
            )
        for side in SIDES:
            for name in ("named", "commit", "versions", "backend", "device_kind", "num_devices"):
                old, new = (r.get(name, r["facts"].get(name)) for r in (was[side], runs[side]))
                if old != new:
                    raise reading.RecordError(
                        f"can't resume {file}: {name} of {side}: {str(old)[:200]!a} there, {str(new)[:200]!a} here"
                    )
        ended = {c["process"]: c["environment"] for c in before.comparisons if c["what"] == "process"}
        if wrong := [i for i, side in ended.items() if not 0 <= i < MOST_PROCESSES or ORDER[i % 4] != side]:
            raise reading.RecordError(f"can't resume {file}: process {wrong[0]} was not of {ended[wrong[0]]}")
        if any(line["what"] == "verdict" for line in before.comparisons):
            note(f"{file} has its verdicts already; what is added now is a look that was not planned")
        self.writers["A"], kept = Writer.going_on(file, runs["A"])
        for process, side in ended.items():
            self.before[process] = (side, [line for line in kept.timings if line["process"] == process])

    def write(self, lines: list[dict[str, Any]]) -> None:
        """Append lines of one side, or verdicts."""
        if self.writers:
            self.writers[str(lines[-1].get("environment", "B"))].write(lines)

    def close(self, raw: Sequence[str]) -> None:
        """Close the file; the raw standard error of children that died goes beside it."""
        if self.writers:
            self.writers["A"].close()
        if raw and self.path:
            with (
                suppress(OSError),
                open(f"{self.path}.stderr", "a", encoding="utf-8", errors="replace") as file,
            ):
                file.write("\n".join(raw) + "\n")


def timed(comparison: Comparison, kept: Kept, arguments: argparse.Namespace) -> int | None:
    """Run a comparison to its end; gives an exit code where it was cut short."""
    interrupts.warn()
    comparison.write = kept.write
    try:
        with shown(comparison, note) as say:
            comparison.say = say
            kept.differences = comparison.prepare()
            for process, (side, lines) in sorted(kept.before.items()):
                comparison.take(side, process, lines)
                comparison.complete.add(process)
            for line in announced(comparison, kept.differences):
                say(line)
            comparison.proceed()
        kept.write(compare.verdict_lines(comparison.outcomes, comparison.left_out))
    except KeyboardInterrupt as error:
        note(cut_short("interrupted", comparison, kept, arguments))
        return interrupts.code(error)
    except OSError as error:
        note(cut_short(f"can't go on: {error.strerror or error}", comparison, kept, arguments))
        return 2
    return None


def cut_short(why: str, comparison: Comparison, kept: Kept, arguments: argparse.Namespace) -> str:
    """What is left of a comparison that did not come to its end."""
    pairs = f"{comparison.pairs} pair{'s' * (comparison.pairs != 1)}"
    done = f"{why} after {pairs}: no verdict, since none was planned there"
    if not kept.path:
        return f"{done}; with --record FILE it could go on"
    return (
        f"{done}; what was timed is in {kept.path}: go on with --resume {shlex.quote(str(kept.path))}"
        " (and --budget 0 for what these pairs say)"
    )


def announced(comparison: Comparison, found: Sequence[Difference]) -> Iterator[str]:
    """What is known before the timing: counters, what is left out, and how far the budget will go."""
    counted = sum(bool(comparison.sides["B"].counters.get(case)) for case in comparison.sides["A"].counters)
    yield from counter_lines(found, counted)
    for key, why in comparison.left_out.items():
        yield f"left out: {key}: {why}"
    rule = comparison.rule
    if rule is None:
        return
    pair = 2 * comparison.a_process
    reach = comparison.pairs + int(comparison.remaining / pair)
    if not comparison.budget:
        yield f"judging the {comparison.pairs} pairs that are there"
        return
    text = (
        f"{len(comparison.keys)} to compare, at {_or(rule.looks)} pairs; a pair takes about {pair:.0f} s, so that"
        f" {comparison.remaining:.0f} s are enough for about {reach}"
    )
    if reach < rule.looks[0]:
        enough = math.ceil((rule.looks[0] - comparison.pairs) * pair * 1.15 / 60)
        text += f": few or no changes can be found; take --budget {60 * enough} or fewer cases"
    yield text


def _or(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))


@contextmanager
def shown(comparison: Comparison, plain: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Shows progress on stderr: a line that changes where rich is installed and a person looks, else one now and
    then. Gives what tells a line at once."""
    try:
        from rich.console import Console
        from rich.status import Status
    except ImportError:
        Console = None  # type: ignore[assignment, misc]
    if Console is None or not sys.stderr.isatty():
        last = [time.monotonic()]

        def tell(_: Comparison) -> None:
            if time.monotonic() - last[0] > 10:
                last[0] = time.monotonic()
                plain(state(comparison))

        comparison.tell = tell
        yield plain
        return
    console = Console(stderr=True, highlight=False, markup=False)
    with Status("compiling, verifying and counting on both sides", console=console) as status:
        comparison.tell = lambda _: status.update(state(comparison))
        yield lambda text: console.print(f"meshmark: {printable(text)}")


def state(comparison: Comparison) -> str:
    """The progress in one line. It shows no ratio: whoever looks before a planned look would stop there."""
    if comparison.rule is None:
        return f"compiling, verifying and counting: {comparison.remaining:.0f} s of the budget left"
    looks, pairs = comparison.rule.looks, comparison.pairs
    ahead = next((n for n in looks if n > pairs), looks[-1])
    until = max(0, ahead - pairs) * 2 * comparison.a_process
    end = f"the next look at {ahead} in about {until:.0f} s"
    if until > comparison.remaining:
        end = f"the budget ends before the next look at {ahead}"
    found = f"; so far {comparison.tally()}" if comparison.outcomes else ""
    out = f", {len(comparison.left_out)} left out" if comparison.left_out and not found else ""
    return (
        f"{pairs} pair{'s' * (pairs != 1)} done, {end}; {comparison.remaining:.0f} s of the budget left;"
        f" {len(comparison.keys)} compared{out}{found}"
    )


# Files ------------------------------------------------------------------------------------------------------


def compare_files(arguments: argparse.Namespace) -> int:
    """Compare what two runs of `meshmark bench` recorded."""
    for name in ("record", "resume"):
        if getattr(arguments, name):
            raise CompareError(f"--{name} is for environments that are timed, and these are record files")
    sides = {}
    for side in SIDES:
        read = reading.read(Path(getattr(arguments, side)))
        for problem in read.problems:
            note(problem)
        sides[side] = recorded.taken(read, getattr(arguments, side))
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
    found = Found(
        outcomes=recorded.compare(shared, arguments.least / 100),
        left_out={k: f"{s}: {w}" for s in SIDES for k, w in sides[s].failed.items()},
        differences=compare.differences(a.counters, b.counters),
        counted=sum(bool(b.counters.get(case)) for case in a.counters),
        heading=[line for s in SIDES for line in described(s, getattr(arguments, s), sides[s].facts)],
        what="processes",
        notes=file_notes(fewest, len(shared)),
        facts={side: sides[side].facts for side in SIDES},
    )
    for side, other in (("A", b), ("B", a)):
        if only := [k for k in sides[side].medians if k not in other.medians and k not in found.left_out]:
            found.notes.append(f"{len(only)} are in {side} only, such as {only[0]}")
    if not arguments.json:
        show(found.heading)
    found.show(arguments.json)
    return found.code(arguments.fail_on)


def file_notes(fewest: int, number: int) -> list[str]:
    """What must be known of a comparison of files."""
    notes = []
    least = recorded.needed(number)
    if fewest == 1:
        notes.append(
            "one process a side cannot tell machine noise from change: record with `meshmark bench --processes N`,"
            f" N at least {least}"
        )
    elif fewest < least:
        notes.append(
            f"{fewest} processes a side can find nothing among {number}: record with --processes {least} or more"
        )
    notes.append(
        "the two files are of two times: what the machine did in between counts as a change of B; `meshmark compare`"
        " on the environments themselves runs A B B A and has a stated error rate"
    )
    return notes


# What was found ---------------------------------------------------------------------------------------------


class Found:
    """What a comparison found, and how it is told."""

    def __init__(
        self,
        outcomes: Mapping[str, Outcome],
        left_out: Mapping[str, str],
        differences: Sequence[Difference],
        counted: int,
        heading: Sequence[str],
        what: str,
        notes: Iterable[str],
        facts: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.outcomes, self.left_out, self.differences = outcomes, left_out, differences
        self.counted, self.heading, self.what, self.notes, self.facts = (
            counted,
            heading,
            what,
            list(notes),
            facts,
        )

    @classmethod
    def of(
        cls,
        comparison: Comparison,
        facts: Mapping[str, Mapping[str, Any]],
        sides: Mapping[str, Environment],
        differences: Sequence[Difference],
    ) -> Found:
        """What a comparison of environments found."""
        notes = [f"it ended since {comparison.ended}", *comparison.sporadic()]
        noisy = [s for s in comparison.noise if s > bench.NOISY_SPREAD]
        if noisy:
            notes.append(
                f"a noisy machine: in {len(noisy)} of {len(comparison.noise)} processes a fixed piece of work varied by"
                f" more than {100 * bench.NOISY_SPREAD:.0f} % (90th percentile over the fastest; up to"
                f" {100 * max(noisy):.0f} %)"
            )
        if comparison.rule and comparison.pairs < (
            least := comparison.rule.needed(len(comparison.keys) or 1)
        ):
            notes.append(
                f"{comparison.pairs} pairs can find nothing or little: {least} are needed; raise --budget"
            )
        counted = sum(bool(comparison.sides["B"].counters.get(c)) for c in comparison.sides["A"].counters)
        heading = [line for side in SIDES for line in described(side, sides[side].shown, facts[side])]
        return cls(
            comparison.outcomes, comparison.left_out, differences, counted, heading, "pairs", notes, facts
        )

    def code(self, asked: Sequence[str]) -> int:
        """The exit code: 1 where something happened that was asked for."""
        happened = {o.verdict for o in self.outcomes.values()}
        return int(
            bool(set(asked) & happened)
            or ("counters" in asked and bool(self.differences))
            or ("failed" in asked and bool(self.left_out))
        )

    def show(self, as_json: bool) -> None:
        """Print the table, or JSON."""
        if as_json:
            print(json.dumps(json.loads(writing.dumps(self.to_json())), indent=2))
            return
        rows = sorted(
            self.outcomes.items(),
            key=lambda kv: (VERDICTS.index(kv[1].verdict), -abs(math.log(kv[1].change.value or 1))),
        )
        show(["", *counter_lines(self.differences, self.counted), ""])
        if rows:
            header = ["case", "B / A", "interval", "p adjusted", "detectable", self.what, "verdict"]
            show(text_table(header, (row(key, o) for key, o in rows)))
        for key, why in self.left_out.items():
            show([f"left out: {key}: {why}"])
        show(self.closing())
        for line in self.notes:
            note(line)

    def closing(self) -> list[str]:
        """The lines below the table."""
        if not self.outcomes:
            return ["nothing was compared"]
        verdicts: list[str] = [o.verdict for o in self.outcomes.values()]
        counts = ", ".join(f"{n} {v}" for v in VERDICTS if (n := verdicts.count(v)))
        told = [f"{len(verdicts)} compared: {counts}; {len(self.differences)} compiled counters differ"]
        shares = [o.false_alarms for o in self.outcomes.values() if not math.isnan(o.false_alarms)]
        if shares:
            told.append(
                f"false alarms: of 1000 A/A comparisons drawn from this one's own noise its rule flags"
                f" {100 * sum(shares) / len(shares):.2g} % a case on average, and at most {100 * max(shares):.2g} %"
            )
        else:
            told.append(f"false alarms: not known, since too few {self.what} were timed")
        told.append(
            "detectable: the smallest slowdown that this comparison would have found with probability 0.95"
        )
        return told

    def to_json(self) -> dict[str, Any]:
        """Everything in JSON types."""
        return {
            "facts": self.facts,
            "counters": [asdict(d) for d in self.differences],
            "counters_compared": self.counted,
            "outcomes": {k: asdict(o) for k, o in self.outcomes.items()},
            "left_out": dict(self.left_out),
            "notes": self.notes,
        }


def row(key: str, o: Outcome) -> list[str]:
    """The cells of one case."""
    low, high = o.change.low, o.change.high
    interval = f"{low:.3f} to {high:.3f}" if low > 0 and high < math.inf else "unknown"
    detectable = "unknown" if math.isnan(o.detectable) else f"+{100 * o.detectable:.1f} %"
    if math.isinf(o.detectable):
        detectable = "none"
    value = f"{o.change.value:.3f}" if math.isfinite(o.change.value) else "-"
    return [key, value, interval, f"{o.adjusted:.2g}", detectable, str(o.pairs), o.verdict]


def counter_lines(found: Sequence[Difference], counted: int) -> Iterator[str]:
    """The compiled counters, which need no statistics."""
    if not found:
        yield f"compiled counters: the same in all {counted} programs that both sides have"
        return
    changed = len({d.case for d in found})
    yield f"compiled counters: {len(found)} differ, in {changed} of {counted} programs"
    for d in found[:MOST_DIFFERENCES]:
        yield f"  {d.case}: {d.counter}: {_counter(d.a)} -> {_counter(d.b)}"
    if len(found) > MOST_DIFFERENCES:
        yield f"  and {len(found) - MOST_DIFFERENCES} more: see --json"


def _counter(value: str | float | None) -> str:
    return "not given" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def show(lines: Iterable[str]) -> None:
    """Print lines that a terminal can be given."""
    for line in lines:
        print(printable(line))
