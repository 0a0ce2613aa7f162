# SPDX-License-Identifier: Apache-2.0
"""Makes the values of a program's inputs by the rules in its data: small integers, so that right results are exact."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from meshmark.core.values import random_bits
from meshmark.program_data.program import Input, Program, ProgramError

SPECIAL = (np.nan, np.inf, -np.inf, -0.0)
"""Values that arithmetic and partitioners treat specially."""


def dtype_of(name: str) -> np.dtype:
    """The NumPy dtype with this name; "bfloat16" is the one of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name)) if name == "bfloat16" else np.dtype(name)


def make_inputs(program: Program) -> list[np.ndarray]:
    """The arrays of all inputs."""
    return [make_array(item) for item in program.inputs]


def make_array(item: Input) -> np.ndarray:
    """The array of one input, by its fill; ProgramError for an unknown kind.

    {"kind": "count"}: 1, 2, 3 ... {"kind": "ints", "low", "high", "seed"}: random integers from low to high, both
    included. {"kind": "special", "seed"}: integers from -3 to 3, NaN, infinities and negative zero. {"kind":
    "permutation", "seed"}: permutations of 0 .. n-1 along the last dimension. {"kind": "distinct", "low", "seed"}: the
    integers from low on, each once, in random order. {"kind": "bits", "seed"}: all bits of integers at random. {"kind":
    "data", "data": [...]}: these values. {"kind": "rows", "of": fill}: along the first dimension, row k by that fill
    with its seed + k; without a seed the rows are alike.
    """
    dtype = dtype_of(item.dtype)
    size = math.prod(item.shape)
    fill: dict[str, Any] = item.fill
    kind = fill.get("kind")
    if kind == "rows":
        row = replace(item, shape=item.shape[1:])
        fills = [_shifted(fill["of"], k) for k in range(item.shape[0])]
        return np.stack([make_array(replace(row, fill=own)) for own in fills])
    if kind == "data":
        given: np.ndarray = np.array(fill["data"], dtype=object).reshape(item.shape)
        return given.astype(np.float64).astype(dtype) if dtype.kind in "fV" else given.astype(dtype)
    if kind == "count":
        flat: np.ndarray = np.arange(1, size + 1)
    elif kind == "ints":
        bits = random_bits(fill["seed"], np.arange(size, dtype=np.uint64))
        span = fill["high"] - fill["low"] + 1
        flat = fill["low"] + ((bits >> np.uint64(16)) % np.uint64(span)).astype(np.int64)
    elif kind == "special":
        bits = random_bits(fill["seed"], np.arange(size, dtype=np.uint64))
        at = ((bits >> np.uint64(16)) % np.uint64(len(SPECIAL) + 7)).astype(np.int64)
        numbers = np.array([*SPECIAL, *range(-3, 4)])[at]
        return numbers.astype(dtype).reshape(item.shape)
    elif kind == "distinct":
        order = np.argsort(random_bits(fill["seed"], np.arange(size, dtype=np.uint64)), kind="stable")
        flat = order + fill["low"]
    elif kind == "bits":
        flat = random_bits(fill["seed"], np.arange(size, dtype=np.uint64)).view(np.int64)
    elif kind == "permutation":
        last = item.shape[-1]
        rows = [
            np.argsort(random_bits(fill["seed"] + r, np.arange(last, dtype=np.uint64)), kind="stable")
            for r in range(size // max(last, 1))
        ]
        flat = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    else:
        raise ProgramError(
            f"unknown fill {kind!r}: choose from count, ints, special, permutation, distinct, bits, data, rows"
        )
    if dtype.kind == "b":
        return (flat % 2 == 0).reshape(item.shape)
    if dtype.kind == "c":
        return (flat + 1j * (flat[::-1] % 5 - 2)).astype(dtype).reshape(item.shape)
    return flat.astype(dtype).reshape(item.shape)


def _shifted(fill: dict[str, Any], by: int) -> dict[str, Any]:
    return fill | {"seed": fill["seed"] + by} if "seed" in fill else fill
