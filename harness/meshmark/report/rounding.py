# SPDX-License-Identifier: Apache-2.0
"""Rounds the figures of a report, so that the same records give the same bytes on every processor.

NumPy and the mathematical library choose their instructions by what the processor has. So a logarithm or an
exponential may differ in its last bit between two processors, and so may each figure that is computed from it. A
figure with all its digits then differs too. A figure with fewer digits differs only if it lies next to a boundary of
rounding. With a relative error of 1e-16 and nine digits the probability of that is at most 1e-7 per figure. With twelve
digits it is up to 1e-4, and a report has tens of thousands of figures.
"""

from __future__ import annotations

import math
from typing import Any

WRITTEN = 9
"""The significant digits of a computed figure in a table. No time is measured to more."""

SHOWN = 5
"""The significant digits of a figure in the page's data."""


def significant(value: float, digits: int = WRITTEN) -> float:
    """A figure with so many significant digits. Whole numbers (counts, bytes), infinities and NaN are unchanged."""
    if not math.isfinite(value) or (value == int(value) and abs(value) < 2**53):
        return value
    return float(f"{value:.{digits}g}")


def rounded(value: Any, digits: int = SHOWN) -> float | int | None:
    """A figure as a JSON number: an integer for a whole number, otherwise with so many significant digits. None if the
    value is not a finite number."""
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value):
        return None
    found = significant(value, digits)
    return int(found) if found == int(found) and abs(found) < 2**53 else found


def round_row(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a table with its figures rounded for writing; other values are unchanged."""
    return {name: significant(v) if isinstance(v, float) else v for name, v in row.items()}
