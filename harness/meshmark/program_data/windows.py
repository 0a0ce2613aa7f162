# SPDX-License-Identifier: Apache-2.0
"""Definitions in NumPy of reductions with a function, of windows, and of products and convolutions with dimension
numbers. They follow the operations' descriptions in the StableHLO specification.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Pairs = Sequence[Sequence[int]]

FUNCTIONS: dict[str, np.ufunc] = {
    "lax.add": np.add,
    "lax.mul": np.multiply,
    "lax.max": np.maximum,
    "lax.min": np.minimum,
    "lax.bitwise_and": np.bitwise_and,
    "lax.bitwise_or": np.bitwise_or,
    "lax.bitwise_xor": np.bitwise_xor,
    "jnp.add": np.add,
    "jnp.multiply": np.multiply,
    "jnp.maximum": np.maximum,
    "jnp.minimum": np.minimum,
    "jnp.negative": np.negative,
    "jnp.square": np.square,
}
"""The functions that an operation may take as an argument, by name."""


def reduce(x: np.ndarray, init: Any, function: np.ufunc, axes: Sequence[int]) -> np.ndarray:
    """lax.reduce."""
    return np.asarray(function.reduce(x, axis=tuple(axes), dtype=x.dtype, initial=x.dtype.type(init)))


def associative_scan(function: np.ufunc, x: np.ndarray, reverse: bool = False, axis: int = 0) -> np.ndarray:
    """lax.associative_scan of one array."""
    turned = np.flip(x, axis) if reverse else x
    found = function.accumulate(turned, axis=axis, dtype=x.dtype)
    return np.flip(found, axis) if reverse else found


def spread(x: np.ndarray, axis: int, step: int, between: Any) -> np.ndarray:
    """x with step - 1 elements `between` its neighbours along a dimension."""
    n = x.shape[axis]
    shape = [*x.shape]
    shape[axis] = max((n - 1) * step + 1, 0)
    made = np.full(shape, between, x.dtype)
    made[(slice(None),) * axis + (slice(None, None, step),)] = x
    return made


def extended(x: np.ndarray, axis: int, low: int, high: int, value: Any) -> np.ndarray:
    """x with this many elements of a value before and after it along a dimension; negative numbers remove elements."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (max(low, 0), max(high, 0))
    wide = np.pad(x, widths, constant_values=value)
    stop = wide.shape[axis] - max(-high, 0)
    return wide[(slice(None),) * axis + (slice(max(-low, 0), stop),)]


def find_paddings(
    padding: Any, sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """The padding of each dimension: as it is given, or by name. "SAME" gives ceil(size / stride) windows, and puts the
    odd element behind. sizes and windows: with their dilations."""
    if padding == "VALID":
        return [(0, 0)] * len(sizes)
    if padding != "SAME":
        return [(int(low), int(high)) for low, high in padding]
    found = []
    for n, window, stride in zip(sizes, windows, strides, strict=True):
        more = max((math.ceil(n / stride) - 1) * stride + window - n, 0)
        found.append((more // 2, more - more // 2))
    return found


def cut_windows(
    x: np.ndarray,
    windows: Sequence[int],
    strides: Sequence[int],
    padding: Any,
    base: Sequence[int],
    dilation: Sequence[int],
    value: Any,
) -> np.ndarray:
    """The windows of x, as [*positions, *windows].

    Each argument has one entry for each dimension. value: what stands between the elements, and around them."""
    for axis, step in enumerate(base):
        x = spread(x, axis, step, value)
    reaches = [(w - 1) * d + 1 for w, d in zip(windows, dilation, strict=True)]
    for axis, (low, high) in enumerate(find_paddings(padding, x.shape, reaches, strides)):
        x = extended(x, axis, low, high, value)
    counts = [
        max((n - reach) // stride + 1, 0) if n >= reach else 0
        for n, reach, stride in zip(x.shape, reaches, strides, strict=True)
    ]
    for axis, (count, window, stride, step) in enumerate(
        zip(counts, windows, strides, dilation, strict=True)
    ):
        at = np.arange(count)[:, None] * stride + np.arange(window) * step
        x = np.moveaxis(np.take(x, at, axis), axis + 1, -1)  # the positions stay, and the window goes behind
    return x


def reduce_window(
    x: np.ndarray,
    init: Any,
    function: np.ufunc,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> np.ndarray:
    """lax.reduce_window."""
    ones = [1] * x.ndim
    start = x.dtype.type(init)
    cut = cut_windows(
        x, window_dimensions, window_strides, padding, base_dilation or ones, window_dilation or ones, start
    )
    axes = tuple(range(x.ndim, 2 * x.ndim))
    return np.asarray(function.reduce(cut, axis=axes, dtype=x.dtype, initial=start))


# Products -------------------------------------------------------------------------------------------------------


def widen(x: np.ndarray) -> np.ndarray:
    """Whole numbers as int64, whose sums and products wrap as those of every narrower type do."""
    return x.astype(np.int64) if x.dtype.kind in "iu" and x.dtype.itemsize < 8 else x


def dot_general(a: np.ndarray, b: np.ndarray, numbers: Any, preferred_element_type: Any = None) -> np.ndarray:
    """lax.dot_general. The result has the batch dimensions first, then those of a, then those of b."""
    (summed_a, summed_b), (batch_a, batch_b) = numbers
    letters = iter(string.ascii_letters)
    names_a = [next(letters) for _ in a.shape]
    names_b = [next(letters) for _ in b.shape]
    for i, j in (*zip(summed_a, summed_b, strict=True), *zip(batch_a, batch_b, strict=True)):
        names_b[j] = names_a[i]
    left_a = [c for k, c in enumerate(names_a) if k not in (*summed_a, *batch_a)]
    left_b = [c for k, c in enumerate(names_b) if k not in (*summed_b, *batch_b)]
    result = "".join([*(names_a[k] for k in batch_a), *left_a, *left_b])
    if a.dtype == bool:
        return (
            np.einsum(f"{''.join(names_a)},{''.join(names_b)}->{result}", a.astype(int), b.astype(int)) != 0
        )
    wide_a, wide_b = widen(a), widen(b)
    return np.asarray(np.einsum(f"{''.join(names_a)},{''.join(names_b)}->{result}", wide_a, wide_b))


def ragged_dot(a: np.ndarray, b: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """lax.ragged_dot: each group of rows of a times the matrix of its group. Rows of no group are zeros."""
    made = np.zeros((len(a), b.shape[2]), np.result_type(a, b))
    ends = np.cumsum(counts)
    for k, end in enumerate(ends):
        rows = slice(end - counts[k], end)
        made[rows] = a[rows] @ b[k]
    return made


# Convolutions ---------------------------------------------------------------------------------------------------


def conv_general_dilated(
    x: np.ndarray,
    kernel: np.ndarray,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Sequence[str] | None = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
) -> np.ndarray:
    """lax.conv_general_dilated."""
    spatial = "DHW"[-(x.ndim - 2) :] if x.ndim > 2 else ""
    given, own, result = dimension_numbers or (f"NC{spatial}", f"OI{spatial}", f"NC{spatial}")
    letters = [
        c for c in own if c not in "OI"
    ]  # strides, paddings and dilations are in the order of the kernel
    image = x.transpose([given.index(c) for c in ("N", "C", *letters)])
    taps = kernel.transpose([own.index(c) for c in ("O", "I", *letters)])
    ones = [1] * len(letters)
    cut = cut_windows(
        image,
        [1, 1, *taps.shape[2:]],
        [1, 1, *window_strides],
        padding if isinstance(padding, str) else [(0, 0), (0, 0), *padding],
        [1, 1, *(lhs_dilation or ones)],
        [1, 1, *(rhs_dilation or ones)],
        0,
    )
    # [N, C, *positions, 1, 1, *window] -> [N, C, *positions, window]
    positions = cut.shape[2 : 2 + len(letters)]
    flat = widen(cut).reshape(*cut.shape[:2], *positions, -1)
    weights = widen(taps).reshape(*taps.shape[:2], -1)
    groups = feature_group_count * batch_group_count
    outs = np.split(weights, groups, axis=0)
    if batch_group_count > 1:
        ins = np.split(flat, batch_group_count, axis=0)
    else:
        ins = np.split(flat, feature_group_count, axis=1)
    parts = [np.einsum("nc...w,ocw->no...", i, o) for i, o in zip(ins, outs, strict=True)]
    found = np.concatenate(parts, axis=1)
    order = ("N", "C", *letters)
    return found.transpose([order.index(c) for c in result])


def conv(x: np.ndarray, kernel: np.ndarray, strides: Sequence[int], padding: str) -> np.ndarray:
    """lax.conv."""
    return conv_general_dilated(x, kernel, strides, padding)


def conv_with_general_padding(
    x: np.ndarray,
    kernel: np.ndarray,
    strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
) -> np.ndarray:
    """lax.conv_with_general_padding."""
    return conv_general_dilated(x, kernel, strides, padding, lhs_dilation, rhs_dilation)


def conv_general_dilated_local(
    x: np.ndarray, kernel: np.ndarray, strides: Sequence[int], padding: str, filter_shape: Sequence[int]
) -> np.ndarray:
    """lax.conv_general_dilated_local: each position has a kernel of its own, [out, in * window, *positions]."""
    features = conv_general_dilated_patches(x, filter_shape, strides, padding)
    return np.asarray(np.einsum("nf...,of...->no...", features, kernel))


def conv_general_dilated_patches(
    x: np.ndarray, filter_shape: Sequence[int], strides: Sequence[int], padding: Any
) -> np.ndarray:
    """lax.conv_general_dilated_patches: the windows as features, the channel slowest."""
    spatial = x.ndim - 2
    ones = [1] * x.ndim
    cut = cut_windows(
        x,
        [1, 1, *filter_shape],
        [1, 1, *strides],
        padding if isinstance(padding, str) else [(0, 0), (0, 0), *padding],
        ones,
        ones,
        0,
    )
    # [N, C, *positions, 1, 1, *window] -> [N, C * window, *positions]
    positions = cut.shape[2 : 2 + spatial]
    behind = cut.reshape(*cut.shape[:2], *positions, -1)
    return np.moveaxis(behind, -1, 2).reshape(x.shape[0], -1, *positions)


def conv_transpose(
    x: np.ndarray,
    kernel: np.ndarray,
    strides: Sequence[int],
    padding: str,
    dimension_numbers: Sequence[str],
) -> np.ndarray:
    """lax.conv_transpose, by its documented paddings: "SAME" gives size * stride elements, and "VALID" what every
    window of the kernel reaches."""
    letters = [c for c in dimension_numbers[1] if c not in "IO"]
    pads = []
    for c, stride in zip(letters, strides, strict=True):
        k = kernel.shape[dimension_numbers[1].index(c)]
        if padding == "SAME":
            more = k + stride - 2
            low = k - 1 if stride > k - 1 else math.ceil(more / 2)
        else:
            more = k + stride - 2 + max(k - stride, 0)
            low = k - 1
        pads.append((low, more - low))
    ones = [1] * len(letters)
    return conv_general_dilated(x, kernel, ones, pads, strides, ones, dimension_numbers)


WINDOWS: dict[str, Callable[..., Any]] = {
    "lax.reduce": reduce,
    "lax.associative_scan": associative_scan,
    "lax.reduce_window": reduce_window,
    "lax.dot_general": dot_general,
    "lax.ragged_dot": ragged_dot,
    "lax.conv_general_dilated": conv_general_dilated,
    "lax.conv": conv,
    "lax.conv_with_general_padding": conv_with_general_padding,
    "lax.conv_general_dilated_local": conv_general_dilated_local,
    "lax.conv_general_dilated_patches": conv_general_dilated_patches,
    "lax.conv_transpose": conv_transpose,
}
"""The definitions, by the operation's name in a program."""
