# SPDX-License-Identifier: Apache-2.0
"""Compares a program's derivative, without sharding, with float64 and with differences of the function itself.

All other ways to run a program share JAX's rules of differentiation. Differences of a function need none of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from meshmark.core.values import random_bits
from meshmark.program_data.building import Builder
from meshmark.program_data.program import Program, Transform, from_json, to_json
from meshmark.program_data.values import make_inputs

STEPS = (1e-4, 1e-5)
"""The steps of the differences."""

SHARE = 1e-5
"""The largest relative difference that passes, beside the error of the differences themselves."""

CURVED = 0.05
"""The largest relative error with which differences say something."""

EPSILON = float(np.finfo(np.float64).eps)


def widen(program: Program) -> Program:
    """The program with float64 in place of all narrower floats. ProgramError if that is no program."""
    text = re.sub(r'"b?float(?:16|32)"', '"float64"', json.dumps(to_json(program)))
    return replace(from_json(json.loads(text)), x64=True)


def shift(arrays: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """The arrays with every float moved by 0.05 to 0.45, so that no two are equal and none is an integer: at such a
    place few functions have a corner or a jump."""
    return [
        x + 0.05 + 0.4 * _uniform(x.shape, seed + k) if x.dtype.kind == "f" else x
        for k, x in enumerate(arrays)
    ]


def _uniform(shape: tuple[int, ...], seed: int) -> np.ndarray:
    bits = random_bits(seed, np.arange(int(np.prod(shape)), dtype=np.uint64))
    return ((bits >> np.uint64(11)).astype(np.float64) / 2.0**53).reshape(shape)


@dataclass(frozen=True)
class Slope:
    """A derivative by differences."""

    value: float
    error: float
    """By how much two steps and two orders disagree."""
    rounding: float
    """A bound on what the rounding of the function's values adds to the error."""

    @property
    def says_something(self) -> bool:
        """Whether the error is small. It is large at a corner and a jump, and where the function oscillates within one
        step."""
        return bool(np.isfinite(self.value)) and self.error <= CURVED * abs(self.value) + self.rounding


def differentiate(function: Callable[[float], float]) -> Slope:
    """The derivative of a function at 0 by differences of fourth order."""
    found, largest = [], 0.0
    for step in STEPS:
        near, far = ([function(s * n * step) for s in (1, -1)] for n in (1, 2))
        second = (near[0] - near[1]) / (2 * step)
        found += [(8 * (near[0] - near[1]) - (far[0] - far[1])) / (12 * step), second]
        largest = max(largest, *map(abs, (*near, *far)))
    return Slope(found[0], max(found) - min(found), 100 * EPSILON * largest / min(STEPS))


def find_wrong_slope(program: Program) -> str:
    """A description of a derivative in float64 that differs from differences of its function; "" if none does.

    Both are taken along one random direction of the inputs, and for the sum of all results with random weights (for a
    pull-back its cotangents). Returns "" too where the differences say nothing. Raises JAX's own errors."""
    wide = widen(program)
    kind, wrt, given = wide.transform.kind, wide.transform.wrt, wide.given
    derivative = jax.jit(Builder(wide, "plain", None).function())
    alone = replace(wide, transform=Transform(), inputs=wide.inputs[:given])
    function = jax.jit(Builder(alone, "plain", None).function())
    with jax.enable_x64(True), np.errstate(all="ignore"):
        arrays = shift(make_inputs(wide), 7)
        own, extra = arrays[:given], arrays[given:]
        found = [np.asarray(r, np.float64) for r in derivative(*arrays)]
        if kind == "vjp":
            along = [_uniform(own[i].shape, 90 + i) - 0.5 for i in wrt]
            weights = extra
            parts = [a * b for a, b in zip(found, along, strict=True)]
        else:
            along = extra
            tangents = found[len(found) // 2 :]
            weights = [_uniform(r.shape, 90 + i) - 0.5 for i, r in enumerate(tangents)]
            parts = [a * b for a, b in zip(tangents, weights, strict=True)]

        def moved(t: float) -> float:
            at = [*own]
            for i, v in zip(wrt, along, strict=True):
                at[i] = own[i] + t * v
            return float(
                sum(
                    np.sum(w * np.asarray(r, np.float64)) for w, r in zip(weights, function(*at), strict=True)
                )
            )

        slope = float(sum(np.sum(p) for p in parts))
        size = float(sum(np.sum(np.abs(p)) for p in parts))
        seen = differentiate(moved)
    if not np.isfinite(slope) or not seen.says_something:
        return ""
    if abs(slope - seen.value) <= SHARE * (abs(slope) + size) + 10 * (seen.error + seen.rounding):
        return ""
    return f"the slope along one direction is {slope:.9g} by the derivative, {seen.value:.9g} by differences"


def compute_wide(program: Program) -> list[np.ndarray]:
    """The results of the program on one device in float64, its derivative among them. Raises JAX's own errors."""
    wide = widen(program)
    with jax.enable_x64(True):
        results: list[Any] = jax.jit(Builder(wide, "plain", None).function())(*make_inputs(wide))
    return [np.asarray(r) for r in results]
