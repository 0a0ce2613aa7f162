# SPDX-License-Identifier: Apache-2.0
"""Special values among ordinary ones: NaN, infinities, zeros, subnormal numbers, the largest, and ties.

A kind names the special values and their places. With each kind, a result that is exact in any order of computation
stays exact. So a kind whose sum could overflow in one order and not in another has values of one sign only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.values import kind_of, random_bits

ONE = ("nan-one", "nan-first", "nan-last", "inf-one")
"""The kinds that put one special value among the ordinary ones: somewhere, at the beginning, or at the end."""

MANY = ("nan", "inf", "zeros", "subnormal", "extreme", "ties")
"""The kinds that mix special values in everywhere."""


def has(dtype: str, kind: str) -> bool:
    """Whether a dtype has the values of a kind, and exact results stay exact with them."""
    what = dtype_of(dtype)
    if kind == "ties":
        return True
    if what.kind in ("int", "uint"):
        return kind == "extreme"
    if what.kind not in ("float", "complex"):
        return False
    if what.itemsize == 1:  # of floats of eight bits some have neither NaN nor infinities
        return kind.startswith("nan") and bool(np.isnan(np.array(np.nan).astype(what.numpy)))
    if kind == "extreme":  # a sum of ordinary numbers must not reach half a unit of the largest
        return what.largest > 1e30
    return True


def allows(kind: str | None, fills: Sequence[str], dtype: str) -> bool:
    """Whether a dtype has the values of a variant's kind. True for kinds that are not in `fills`, the operation's
    special kinds."""
    return kind is None or kind not in fills or has(dtype, kind)


def replaced(
    bits: np.ndarray,
    index: np.ndarray,
    shape: Sequence[int],
    dtype: np.dtype,
    *,
    kind: str,
    base: Callable[..., np.ndarray],
    **options: Any,
) -> np.ndarray:
    """The values of `base`, with special ones of a kind among them. In complex numbers only the real part is
    special."""
    ordinary = base(bits, index, shape, dtype, **options)
    if dtype.kind == "c":
        real = np.dtype(f"f{dtype.itemsize // 2}")
        parts = ordinary.view(real).reshape(*ordinary.shape, 2).copy()
        parts[..., 0] = mixed(bits, index, shape, parts[..., 0], kind)
        return parts.view(dtype).reshape(ordinary.shape)
    return mixed(bits, index, shape, ordinary, kind)


def mixed(
    bits: np.ndarray, index: np.ndarray, shape: Sequence[int], ordinary: np.ndarray, kind: str
) -> np.ndarray:
    """The ordinary values of a real dtype with special ones among them."""
    dtype, draw = ordinary.dtype, random_bits(29, bits)
    size = int(np.prod(shape))
    if kind in ONE:
        somewhere = int(random_bits(31, np.array([size], np.uint64))[0] % np.uint64(max(size, 1)))
        place = {"nan-first": 0, "nan-last": size - 1}.get(kind, somewhere)
        value = np.inf if kind == "inf-one" else np.nan
        return np.where(index == place, np.array(value).astype(dtype), ordinary)
    if kind == "ties":
        few = draw % np.uint64(2 if kind_of(dtype) == "b" else 3)
        return few.astype(dtype)
    chosen = special_values(dtype, kind)
    often = 8 if kind in ("nan", "inf", "extreme") else 2
    pick = (draw % np.uint64(often * len(chosen))).astype(np.int64)
    return np.where(pick < len(chosen), chosen[pick % len(chosen)], ordinary)


def special_values(dtype: np.dtype, kind: str) -> np.ndarray:
    """The values of a kind in a real dtype."""
    if kind_of(dtype) in "iu":
        limits = ml_dtypes.iinfo(dtype)
        widest = (
            np.uint64 if kind_of(dtype) == "u" else np.int64
        )  # NumPy makes doubles of 0 and the largest uint64
        return np.array([limits.min, limits.max], widest).astype(dtype)
    info = ml_dtypes.finfo(dtype)
    tiny = float(info.tiny)
    return {
        "nan": np.array([np.nan], dtype),
        "inf": np.array([np.inf, -np.inf], dtype),
        "zeros": np.array([0.0, -0.0], dtype),
        "subnormal": np.array([info.smallest_subnormal, tiny / 2, -tiny / 4], dtype),
        "extreme": np.array([info.max, info.tiny], dtype),
    }[kind]
