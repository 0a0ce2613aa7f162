# SPDX-License-Identifier: Apache-2.0
"""Keeps the ranks in step: all work on the same matters in the same order, and agree on the outcome of each.

A matter is a case, or one step of timing it. During a matter, ranks may consult each other. It ends when every rank has
settled it with its findings. A rank that can't continue settles early. The others learn that when they next consult
it, and settle too. If one rank exceeds its deadline, all ranks end.
"""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from meshmark.core.verdicts import Line
from meshmark.levels.counters import format_collectives
from meshmark.operations.cases import Case
from meshmark.ranks.agreement import are_findings, finding_of, line_of, merge_findings
from meshmark.ranks.channel import Channel, Ending
from meshmark.ranks.wire import ChannelError

BACKUP = 15.0
"""Seconds past its deadline after which a rank is ended that can't report it because it holds the GIL."""


class Settled(Exception):
    """Another rank has already settled the matter, so it can't be consulted; the message is one line."""


@dataclass(frozen=True)
class _Absent:
    """The replacement for the answer of a rank that can't be consulted."""

    reason: str


class Consensus:
    """One rank's side of the agreement of all ranks."""

    def __init__(self, channel: Channel, stderr: IO[str] | int) -> None:
        """stderr: the file that gets the stacks of all threads if this rank exceeds its deadline."""
        self.channel, self.stderr = channel, stderr
        self.matter = ""
        self.ending: Ending | None = None
        """The reason why the run ended early; None if it did not."""
        self._ending = threading.Lock()

    @contextmanager
    def on(self, matter: str, seconds: float) -> Iterator[None]:
        """The context of one matter, which may take `seconds` on each rank."""
        self.matter = matter
        faulthandler.dump_traceback_later(seconds + BACKUP, exit=True, file=self.stderr)
        try:
            with self.channel.during(matter, seconds):
                yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    # Consulting ---------------------------------------------------------------------------------------------

    def compare_programs(self, case: Case, collectives: Sequence[Mapping[str, Any]]) -> str:
        """The reason why this program must not be run, because another rank compiled other collectives or could not
        continue; "" if there is none."""
        mine = format_collectives(collectives)
        reasons = []
        for rank, answer in enumerate(self._consult(f"compiled {case.id}", mine)):
            if isinstance(answer, _Absent):
                reasons.append(f"rank {rank} did not come to run it ({answer.reason})")
            elif answer != mine:
                reasons.append(f"rank {rank} compiled other collectives ({answer} instead of {mine})")
        return "not run: " + "; ".join(reasons) if reasons else ""

    def agree(self, question: str, value: Any, rule: Callable[[list[Any]], Any]) -> Any:
        """The result of `rule` for all ranks' values. Rank 0 computes it and every rank gets it. Settled if a rank
        could not continue."""
        values = self._all(question, value)
        decided = rule(values) if self.channel.rank == 0 else None
        return self._all(f"{question}, decided", decided)[0]

    def _all(self, question: str, value: Any) -> list[Any]:
        answers = self._consult(question, value)
        for rank, answer in enumerate(answers):
            if isinstance(answer, _Absent):
                raise Settled(f"rank {rank} could not go on ({answer.reason})")
        return answers

    def _consult(self, question: str, value: Any) -> list[Any]:
        """Each rank's value for this question, in the order of ranks; _Absent for a rank at another question."""
        wanted = f"{self.matter}: {question}"
        whats, values = self.channel.exchange(wanted, value)
        return [
            given if what == wanted else _Absent(_first_bad(given))
            for what, given in zip(whats, values, strict=True)
        ]

    # Settling -----------------------------------------------------------------------------------------------

    def settle(self, lines: Sequence[Line]) -> list[Line]:
        """Settle this matter with these lines, wait until all ranks have settled it, and give the merged lines.

        ChannelError if ranks are at different matters."""
        values = self.gather([finding_of(line) for line in lines])
        for rank, value in enumerate(values):
            if not are_findings(value):
                raise ChannelError(f"rank {rank} gave no findings of {self.matter}")
        return [line_of(finding) for finding in merge_findings(dict(enumerate(values)))]

    def gather(self, found: Any) -> list[Any]:
        """Settle this matter with `found`, wait until all ranks have settled it, and give their values in the order of
        ranks. ChannelError if ranks are at different matters."""
        while True:
            whats, values = self.channel.exchange(self.matter, found)
            if all(what == self.matter for what in whats):
                return values
            # A rank that still consults learns in this exchange that the matter is settled here, and settles it too.
            if not all(what == self.matter or what.startswith(f"{self.matter}: ") for what in whats):
                raise ChannelError(f"the ranks are at different cases: {', '.join(whats)}")

    # Ending -------------------------------------------------------------------------------------------------

    @contextmanager
    def end(self, ending: Ending) -> Iterator[bool]:
        """A context that gives whether this thread is the first to end the run. The first one must record the reason.
        Other threads wait until it has done so."""
        with self._ending:
            first = self.ending is None
            if first:
                self.ending = ending
            yield first


def _first_bad(findings: Any) -> str:
    """The first bad finding with which a rank settled a matter, in one line."""
    lines = [one for one in findings if isinstance(one, dict)] if isinstance(findings, list) else []
    for line in sorted(lines, key=lambda line: line.get("verdict") == "pass"):
        if "verdict" in line:
            return f"{line['verdict']}: {line.get('reason', '')}"
    return "it is elsewhere"
