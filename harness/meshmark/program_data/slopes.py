# SPDX-License-Identifier: Apache-2.0
"""Definitions in NumPy of the derivatives of a program, from values of its function alone.

Five values on one side of a point give the slope of every polynomial of a degree of at most four (Abramowitz and
Stegun, 25.3.6 and the table 25.2). A function whose slopes on both sides agree has, there, the slope that JAX promises.
Where they disagree the function has a corner, or is no such polynomial, and nothing is defined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshmark.program_data.definitions import compute_function
from meshmark.program_data.program import Program
from meshmark.program_data.references import Undefined
from meshmark.program_data.values import make_inputs

STEP = 2.0**-6
"""The step. Whole numbers plus a few of them, and products of such numbers, are exact in float64."""

WEIGHTS = (-25 / 12, 4.0, -3.0, 4 / 3, -1 / 4)
"""The weights of the five values, for a step of 1."""

SHARE = 1e-10
"""The largest difference of the slopes on the two sides, as a share of the largest value."""

MOST = 48
"""The most elements of an input by which a cotangent is defined: each takes nine values of the function."""

NARROW = ("bfloat16", "float16")


def widen(dtypes: Any) -> Any:
    """The same dtypes, with float64 for float32. Undefined for narrower floats."""
    if isinstance(dtypes, (list, tuple)):
        return [widen(kind) for kind in dtypes]
    if dtypes in NARROW:
        raise Undefined(f"a derivative of {dtypes}")
    return "float64" if dtypes == "float32" else dtypes


def find_slopes(function: Callable[[float], Sequence[np.ndarray]]) -> list[np.ndarray]:
    """The derivative of each result at 0. Undefined at a corner, and for what is no polynomial of degree four."""
    middle = function(0.0)

    def one_side(step: float) -> list[np.ndarray]:
        found = [function(k * step) for k in range(1, 5)]
        return [
            np.asarray(sum(w * v for w, v in zip(WEIGHTS, values, strict=True)) / step)
            for values in zip(middle, *found, strict=True)
        ]

    # The other side has another step, or the two would agree for every odd function.
    after, before = one_side(STEP), one_side(-STEP / 2)
    for a, b, value in zip(after, before, middle, strict=True):
        size = max(float(np.abs(value).max(initial=1.0)), float(np.abs(a).max(initial=0.0)))
        if not np.all(np.abs(a - b) <= SHARE * size):
            raise Undefined("a derivative at a corner, or of no polynomial of the fourth degree")
    return after


def compute_derivatives(program: Program, dtypes: Sequence[Any]) -> list[np.ndarray]:
    """The results of a program with a transform, in float64: results and tangents for "jvp", cotangents for "vjp".

    dtypes: as for `definitions.compute_results`. Undefined where no derivative is defined, and for inputs with more
    than MOST elements by which a cotangent is wanted."""
    kind, wrt, count = program.transform.kind, program.transform.wrt, program.given
    if "stop_gradient" in str(program.nodes):
        raise Undefined("a derivative of something else than the function")
    wide = widen(dtypes)
    widen([i.dtype for i in program.inputs])
    arrays = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in make_inputs(program)]
    given, extra = arrays[:count], arrays[count:]

    def along(directions: dict[int, np.ndarray]) -> Callable[[float], list[np.ndarray]]:
        def function(t: float) -> list[np.ndarray]:
            moved = [x + t * directions[i] if i in directions else x for i, x in enumerate(given)]
            return [np.asarray(r, np.float64) for r in compute_function(program, moved, wide)]

        return function

    if kind == "jvp":
        function = along(dict(zip(wrt, extra, strict=True)))
        return [*function(0.0), *find_slopes(function)]
    found = []
    for i in wrt:
        if given[i].size > MOST:
            raise Undefined(f"a cotangent of {given[i].size} elements")
        slopes = np.zeros(given[i].shape)
        for place in np.ndindex(given[i].shape):
            unit = np.zeros(given[i].shape)
            unit[place] = 1.0
            parts = find_slopes(along({i: unit}))
            slopes[place] = sum(float((p * c).sum()) for p, c in zip(parts, extra, strict=True))
        found.append(slopes)
    return found
