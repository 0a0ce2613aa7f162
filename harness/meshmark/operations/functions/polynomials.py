# SPDX-License-Identifier: Apache-2.0
"""Exact derivatives in NumPy, from values alone: differences of functions that are polynomials of degree 2 in pieces.

A central difference of such a function is its derivative, without an error of truncation, as long as the step stays
within a piece. The step is a power of two and coefficients and arguments are small whole numbers, so that float64
makes no error of rounding either.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]

STEP = 2.0**-10


def push(f: Function, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The derivative of f at x along t, for `t` and keys of which a step changes no order."""
    size = max(1.0, 2.0 ** np.ceil(np.log2(max(np.abs(t).max(), 1.0))))
    h = STEP / size
    return (f(x + h * t) - f(x - h * t)) / (2 * h)


def pull(f: Function, x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The gradient of the sum of g * f at x: one element after the other."""
    found = np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        moved = np.zeros(x.shape)
        moved[place] = STEP
        found[place] = (g * (f(x + moved) - f(x - moved))).sum() / (2 * STEP)
    return found
