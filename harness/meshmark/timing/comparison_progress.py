# SPDX-License-Identifier: Apache-2.0
"""Messages of a running comparison, and of an interrupted one."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from meshmark.core.pairs import Rule, detectable_before
from meshmark.core.text import counted, printable
from meshmark.timing.compare import Comparison, Difference
from meshmark.timing.comparison_report import counter_lines


def cut_short(why: str, comparison: Comparison, file: Path | None) -> str:
    """The message of a comparison that was interrupted; `file` holds its records."""
    pairs = f"{counted(comparison.pairs, 'pair')}"
    done = f"{why} after {pairs}: no verdict, since none was planned there"
    if file is None:
        return f"{done}; with --record FILE it could go on"
    return (
        f"{done}; what was timed is in {file}: go on with --resume {shlex.quote(str(file))}"
        " (and --budget 0 for what these pairs say)"
    )


def announced(comparison: Comparison, found: Sequence[Difference]) -> Iterator[str]:
    """The message before the timing: counters, omitted cases, and how far the budget will reach."""
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
    yield detectable(rule, min(reach, rule.looks[-1]), len(comparison.keys))


SPREADS = (0.01, 0.03, 0.1, 0.3)
"""Standard deviations of identical processes. For each of them, the report says what can be detected."""


def detectable(rule: Rule, pairs: int, cases: int) -> str:
    """A line about the changes that this many pairs can find, for several spreads of processes: before the first pair
    the spread of this machine is not known."""
    if pairs < rule.needed(cases):
        return (
            f"{pairs} pairs of {cases} cases find no change, however large: {rule.needed(cases)} are needed"
        )
    found = ", ".join(
        f"+{100 * detectable_before(spread, pairs, rule, cases):.2g} % where they differ by {100 * spread:.0f} %"
        for spread in SPREADS
    )
    return (
        f"{pairs} pairs find with probability 0.95, by the standard deviation of identical processes: {found}"
    )


def _or(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))


@contextmanager
def shown(comparison: Comparison, plain: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Show progress on stderr: a changing line on a terminal if rich is installed, otherwise a line from time to time.
    Gives the function that prints a line at once."""
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
    """The progress in one line. It shows no ratio, so that nobody stops before a planned look because of one."""
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
        f"{counted(pairs, 'pair')} done, {end}; {comparison.remaining:.0f} s of the budget left;"
        f" {len(comparison.keys)} compared{out}{found}"
    )
