# SPDX-License-Identifier: Apache-2.0
"""Tests the judge of this process before its first case and after its last: it must find planted wrong answers and
accept right ones.

Code that a process loads beside the suite may change NumPy's comparisons or the processor's rounding: a conftest.py, a
plugin, a library that flushes subnormal numbers, or a case. Such a judge could pass everything.
"""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from meshmark.core.verdicts import VERDICTS, worst
from meshmark.judge.numbers import Difference, find_worst_element

Pair = tuple[str, str, np.ndarray, np.ndarray, np.ndarray | None]
"""(what is wrong, judge, seen, want, bound)."""


def planted() -> Iterator[Pair]:
    """Wrong answers, at least one of each kind that the judge must find."""
    seen: np.ndarray
    for dtype in (np.float32, ml_dtypes.bfloat16, np.int32, np.complex64, np.bool_):
        want = np.array([1, 0, 1, 0, 1, 1]).astype(dtype).reshape(2, 3)
        seen = want.copy()
        seen[1, 1] = 0
        kind = np.dtype(dtype).name
        yield f"a wrong number of {kind}", "exact", seen, want, None
        yield f"a wrong number of {kind}", "bits", seen, want, None
    one = np.ones(4, np.float32)
    for what, other in (
        ("a NaN", np.nan),
        ("an infinity", np.inf),
        ("the next number", np.nextafter(np.float32(1), np.float32(2))),
    ):
        seen = one.copy()
        seen[3] = other
        yield what, "exact", seen, one, None
        yield f"{what} beyond a bound", "bound", seen, one.astype(np.float64), np.full(4, 1e-8)
    zero = np.zeros(4, np.float32)
    yield "a zero of the other sign", "bits", -zero, zero, None
    yield "a subnormal number", "exact", zero + np.float32(1e-45), zero, None
    yield "no NaN", "exact", one, one * np.float32(np.nan), None


def prove() -> None:
    """Raise RuntimeError if the judge of this process passes a planted wrong answer, refuses a right one or takes a
    failure for a pass, or if its sums are not rounded to nearest."""
    for what, judge, seen, want, bound in planted():
        found: Difference | None = find_worst_element(judge, seen, want, bound)
        if found is None or not found[0] > 1:
            raise RuntimeError(f"{_WRONG} {what} (judge {judge}) for right")
    right = np.array([1.5, np.nan, -np.inf], np.float32)
    within = np.full(3, 1e-6)
    if (found := find_worst_element("bound", right, right.astype(np.float64), within)) and found[0] > 1:
        raise RuntimeError(f"{_WRONG} what is right for wrong")
    if any(worst(["pass", verdict, "pass"]) != verdict for verdict in VERDICTS):
        raise RuntimeError(f"{_WRONG} a bad verdict for a pass")
    half = np.finfo(np.float64).eps / 2
    if not np.array_equal(np.array([1, -1, 1]) + half * np.array([1, -1, 3]), [1, -1, 1 + 4 * half]):
        raise RuntimeError(f"{_WRONG} a sum for right that is not rounded to the nearest number")


_WRONG = "the judge of this process is not to be trusted (see conftest.py, plugins and flags): it takes"
