# SPDX-License-Identifier: Apache-2.0
"""The rule by which several ranks stop sampling: they take blocks of rounds, and agree after each block.

The rule needs the samples alone, so a reader of the records can compute where sampling had to stop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

Series = tuple[Sequence[float], int]
"""The samples of one program, in seconds per call, and the calls of each sample."""


def spent(series: Iterable[Series], rounds: int) -> float:
    """The seconds that the first rounds of these programs took on one rank."""
    return math.fsum(math.fsum(samples[:rounds]) * calls for samples, calls in series)


def next_block(taken: float, done: int, budget: float, most: int) -> int:
    """The number of rounds of the next block; 0 ends sampling.

    A block at most doubles the rounds so far, and is as long as the rest of the budget allows at the average so far.
    taken: the seconds of the `done` rounds so far, on the slowest rank. budget: the seconds that there are. most: the
    most rounds.
    """
    left = (budget - taken) * done / taken
    return int(max(0, min(done, most - done, left)))
