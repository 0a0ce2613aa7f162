# SPDX-License-Identifier: Apache-2.0
"""Combines the samples of several ranks: the slowest rank of each position, and how much the ranks differ.

A position is one aligned call of all ranks. Times are in seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any


def slowest(by_rank: Sequence[Sequence[float]]) -> list[float]:
    """The slowest rank's sample at each position.

    `by_rank` holds one list per rank; ValueError if their lengths differ."""
    return [max(position) for position in zip(*by_rank, strict=True)]


def measure_skew(by_rank: Sequence[Sequence[float]]) -> dict[str, Any]:
    """How much the ranks differ, as the record field `skew`.

    `median_s` is the median over positions of slowest minus fastest rank, in seconds (7 digits). `slowest` counts per
    rank the positions at which it was the slowest; the lowest rank counts in a tie. ValueError for ranks whose samples
    differ in number, or that have none."""
    positions = list(zip(*by_rank, strict=True))
    if not positions:
        raise ValueError("ranks without samples do not differ")
    counts = [0] * len(by_rank)
    for position in positions:
        counts[position.index(max(position))] += 1
    apart = statistics.median(max(position) - min(position) for position in positions)
    return {"median_s": float(f"{apart:.7g}"), "slowest": counts}
