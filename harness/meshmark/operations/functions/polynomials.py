# SPDX-License-Identifier: Apache-2.0
"""Exact derivatives in NumPy by central differences, for piecewise polynomials of degree 2 or less.

The central difference of such a function equals its derivative while the step stays within a piece: there is no
truncation error. The step is a power of two, and coefficients and arguments are small integers, so float64 makes no
rounding error either.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]

STEP = 2.0**-10


def push(f: Function, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The directional derivative of f at x along t.

    The step must not leave a piece: if f sorts by keys, the step must not change their order.
    """
    size = max(1.0, 2.0 ** np.ceil(np.log2(max(np.abs(t).max(), 1.0))))
    h = STEP / size
    return (f(x + h * t) - f(x - h * t)) / (2 * h)


def pull(f: Function, x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The gradient of sum(g * f(x)) at x, one element at a time."""
    found = np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        moved = np.zeros(x.shape)
        moved[place] = STEP
        found[place] = (g * (f(x + moved) - f(x - moved))).sum() / (2 * STEP)
    return found
