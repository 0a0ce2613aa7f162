# SPDX-License-Identifier: Apache-2.0
"""Chooses which passing cases of a product are computed again, and computes them.

All of them are, up to a limit of work. The standard profile on 8 or 16 devices, and the whole table on 8, are below the
limit. Above it the cases of the claimed levels come first, and a random draw of each review decides among cases of the
same rank. So a submitter can't know which digests nobody would compute. A claim whose cases are left out is refused.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from meshmark.operations.base import Argument, Result
from meshmark.operations.cases import Case
from meshmark.publish import recomputed
from meshmark.publish.recomputed import NoReference, Tally
from meshmark.publish.review import AS_WRITTEN, Review
from meshmark.records.definition import ConformanceLine
from meshmark.records.run_definition import RunFacts

MOST_WORK = 32 << 30
"""Bytes of arguments and results to compute again for one product, 8 bytes for each element. The standard profile on 8
devices has 6.2 GiB, that on 16 devices 12.9, and the profile `full` on 8 devices 17."""

PART = 16
"""A cell may have this part of the limit. One cell is computed at a time, so the part limits the memory."""

ELEMENT = 8
"""Bytes of an element: the reference computes in 64 bits."""


@dataclass(frozen=True)
class Answered:
    """A passing line of numbers or gradient, whose answer can be computed again."""

    name: str
    """The file."""
    number: int
    case: Case
    record: ConformanceLine
    facts: RunFacts

    @property
    def cell(self) -> tuple[str, int, float]:
        """A key for lines whose answers are one computation: the modes of a cell."""
        rounding = recomputed.factor_roundoff(self.case, self.record)
        return self.case.cell.id, self.record["seed"], rounding

    @property
    def cost(self) -> int:
        """Bytes of the arguments and results of its cell."""
        parts: list[Argument | Result] = [*self.case.plan.arguments, *self.case.plan.results]
        return ELEMENT * sum(math.prod(part.shape) for part in parts)


@dataclass
class Workload:
    """The passing lines of one product whose answers can be computed again."""

    claimed: str = ""
    """The claimed level; "" if none is."""
    demanded: Collection[str] = ()
    """The cases of a challenge."""
    most: int = MOST_WORK
    draw: random.Random = field(default_factory=random.SystemRandom)
    tally: Tally = field(default_factory=Tally)
    left_out: list[tuple[Answered, str]] = field(default_factory=list)
    """The lines that were not computed again, each with the reason."""
    _lines: list[Answered] = field(default_factory=list)

    def add(self, line: Answered) -> None:
        """Take a passing line of numbers or gradient."""
        self._lines.append(line)

    def compute(self, review: Review) -> None:
        """Complain about every wrong line, about too many odd ones, and about a claim whose cases were left out."""
        for line in self._lines:
            if problem := recomputed.find_contradiction(line.case, line.record, line.facts):
                _complain(line, problem, review)
        for line in itertools.chain.from_iterable(self._chosen()):
            try:
                for text in recomputed.find_wrong_answers(line.case, line.record, line.facts, self.tally):
                    _complain(line, text, review)
            except NoReference as error:
                self.left_out.append((line, f"there is no reference here: {error}"[:200]))
        self.tally.tell(review)
        self._tell(review)

    def _chosen(self) -> Iterator[Sequence[Answered]]:
        """Yields the lines of each cell that is computed again."""
        cells: dict[tuple[str, int, float], list[Answered]] = {}
        for line in self._lines:
            cells.setdefault(line.cell, []).append(line)
        ordered = list(cells.values())
        if sum(cell[0].cost for cell in ordered) > self.most:
            self.draw.shuffle(ordered)
            ordered.sort(key=lambda cell: not any(map(self._is_claimed, cell)))
        left, why = self.most, f"beyond {self.most >> 30} GiB (--recompute)"
        for cell in ordered:
            if cell[0].cost > min(left, self.most // PART):
                self.left_out += ((line, why) for line in cell)
            else:
                left -= cell[0].cost
                yield cell

    def _is_claimed(self, line: Answered) -> bool:
        """Whether the claim or the challenge needs this line."""
        return line.case.level <= self.claimed or line.case.id in self.demanded

    def _tell(self, review: Review) -> None:
        """Complain about a claim whose cases were left out; note other cases that were."""
        if not self.left_out:
            return
        review.left_out += len(self.left_out)
        text = f"{len(self.left_out)} of {len(self._lines)} passing cases were not computed again"
        needed = [(line.case.id, why) for line, why in self.left_out if self._is_claimed(line)]
        if needed:
            case, why = min(needed)
            wants = f"claim {self.claimed}" if self.claimed else "challenge"
            review.complain("", f"{text}, and the {wants} needs {len(needed)} of them, such as {case}: {why}")
        else:
            case, why = min((line.case.id, why) for line, why in self.left_out)
            review.notes.append(f"{text}, such as {case}: {why}")


def _complain(line: Answered, text: str, review: Review) -> None:
    kind = f"recomputed {line.record['check']}"
    review.complain(line.name, f"{line.case.id}: {text}: {AS_WRITTEN}", line.number, kind)
