# SPDX-License-Identifier: Apache-2.0
"""Finds samples that are those of another program in any order, times a factor, plus a constant, or mirrored.

Such a change keeps how the sorted samples lie between their quartiles (their *shape*). Two programs that were measured
never have one shape: in the published products no two lines have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

Label = TypeVar("Label")

FEWEST = 12
"""With at least this many different samples, equal shapes are not chance."""

EQUAL = 5e-5
"""The difference of two equal shapes, as a share of the distance between the quartiles: samples have seven digits."""

PLACES = 1e3
"""The number of places for shapes in one such distance: only shapes at neighbouring places are compared."""

MOST_COMPARED = 100
"""The most shapes of one place that are compared. Only a file that was made to be slow to check has more."""


MIRRORED = "mirrored, the slowest ones as the fastest"

NEAR = 0.02
"""If all sorted samples of two lines differ by at most this share of the interquartile range, one is a copy. The least
in the published products is 0.09 for two modes of a cell, 0.07 for two ranks, 0.2 for two products, and 0.3 for a
program and its control."""


def are_near(ordered: Sequence[float], other: Sequence[float]) -> bool:
    """Whether sorted samples are those of another line with a little noise. The sorted samples of two honest lines are
    never this close: their slowest samples alone differ by more."""
    if len(ordered) != len(other) or len(set(ordered)) < FEWEST:
        return False
    room = NEAR * (ordered[-len(ordered) // 4] - ordered[len(ordered) // 4])
    return room > 0 and all(abs(s - o) <= room for s, o in zip(ordered, other, strict=True))


@dataclass
class Shapes(Generic[Label]):
    """The shapes of the samples that were seen so far, by label."""

    _seen: dict[tuple[int, int], list[tuple[Label, np.ndarray, np.ndarray]]] = field(default_factory=dict)

    def find(self, samples: Sequence[float]) -> tuple[Label, str] | None:
        """(the label of samples with the same shape, how these differ from them); None if there are none."""
        if (made := _shape(samples)) is None:
            return None
        ordered, own, middle = made
        for shape, at, factor in ((own, middle, 1), (1 - own[::-1], 1 - middle, -1)):
            place = round(at * PLACES)
            for near in (place - 1, place, place + 1):
                for label, other, values in self._seen.get((len(own), near), ())[-MOST_COMPARED:]:
                    if np.all(np.abs(shape - other) <= EQUAL * (1 + np.abs(other))):
                        return label, _spell(ordered, values, factor)
        return None

    def add(self, label: Label, samples: Sequence[float]) -> None:
        """Keep the shape of these samples."""
        if (made := _shape(samples)) is not None:
            ordered, own, middle = made
            self._seen.setdefault((len(own), round(middle * PLACES)), []).append((label, own, ordered))


def _shape(samples: Sequence[float]) -> tuple[np.ndarray, np.ndarray, float] | None:
    """(the sorted samples, their shape, its middle); None if they have none."""
    if len(set(samples)) < FEWEST:
        return None
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    if not high > low:
        return None
    own = (ordered - low) / (high - low)
    return ordered, own, float(own[len(own) // 2] + own[-1 - len(own) // 2]) / 2


def _spell(ordered: np.ndarray, other: np.ndarray, sign: int) -> str:
    """How samples follow from others with the same shape."""
    quarter = len(ordered) // 4
    factor = (ordered[-1 - quarter] - ordered[quarter]) / (other[-1 - quarter] - other[quarter])
    if sign < 0:
        return MIRRORED
    constant = ordered[quarter] - factor * other[quarter]
    if abs(constant) <= 1e-4 * ordered[quarter]:
        return "in another order" if abs(factor - 1) <= 1e-6 else f"times {factor:.4g}"
    return f"times {factor:.4g} and with a constant of {constant:.3g} s"
