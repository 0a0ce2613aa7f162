"""How the samples of several ranks become one figure: the slowest rank of each position, and by how much they differ.

Plain arithmetic. A position is one aligned call of all ranks; times are in seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any


def slowest(by_rank: Sequence[Sequence[float]]) -> list[float]:
    """The slowest rank's sample at each position; `by_rank` holds one list a rank, all of one length (else
    ValueError)."""
    return [max(position) for position in zip(*by_rank, strict=True)]


def differing(by_rank: Sequence[Sequence[float]]) -> dict[str, Any]:
    """How much the ranks differ: `median_s`, the median over positions of slowest less fastest rank in seconds (7
    digits), and `slowest`, at how many positions each rank was the slowest (the lowest of those that are equal).
    ValueError for ranks whose samples differ in number, or that have none."""
    positions = list(zip(*by_rank, strict=True))
    if not positions:
        raise ValueError("ranks without samples do not differ")
    counts = [0] * len(by_rank)
    for position in positions:
        counts[position.index(max(position))] += 1
    apart = statistics.median(max(position) - min(position) for position in positions)
    return {"median_s": float(f"{apart:.7g}"), "slowest": counts}
