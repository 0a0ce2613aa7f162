# SPDX-License-Identifier: Apache-2.0
"""Options and edge cases of functions of whole arrays: narrow integers and their accumulators, indices outside an
array, orders of equal dimensions, masks, sums of nothing, row exchanges of linear systems, odd lengths of transforms,
lengths and windows of attention. One program computes a group (`catalogue`).

Arguments are whole numbers from 0 to 8. Results are exact: they are whole numbers, or quotients by powers of two. If a
function rounds on the way, as a linear system does, the program rounds its result to the nearest whole number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.operations.functions.algebra_options import ATTENTION, FOURIER, FOURIER_ROWS, LINEAR, RAGGED
from meshmark.operations.functions.catalogue import Catalogue, Groups, Member, both, in_jax, in_numpy

FAR = 99999
"""An index outside of every array."""


# Narrow integers.


def signed(m: Any, x: Any) -> Any:
    """int8 numbers from -124 to 124."""
    return (x * 31 - 124).astype(m.int8)


def unsigned(m: Any, x: Any) -> Any:
    """uint8 numbers from 0 to 248. Four of the nine values are above the largest int8."""
    return (x * 31).astype(m.uint8)


def contracted(x: Any, y: Any, kind: Any) -> Any:
    """The products of the rows of two int8 or uint8 arrays, accumulated in the dtype `kind`."""
    return lax.dot_general(x, y, (((1,), (1,)), ((), ())), preferred_element_type=kind)


def combined(kind: str) -> Member:
    """A scatter of two uint8 rows by `min` or `max`."""
    ufunc = {"min": np.minimum, "max": np.maximum}[kind]

    def in_numpy(x: Any, y: Any) -> Any:
        found = unsigned(np, x)
        found[[2, 0]] = ufunc(found[[2, 0]], unsigned(np, y)[:2])
        return found

    def in_jax(x: Any, y: Any) -> Any:
        rows = unsigned(jnp, x).at[jnp.array([2, 0])]
        return getattr(rows, kind)(unsigned(jnp, y)[:2])

    return in_jax, in_numpy


NARROW: dict[str, Member] = {
    "sort_int8": both(lambda m, x, y: m.sort(signed(m, x), axis=1)),
    "sort_uint8": both(lambda m, x, y: m.sort(unsigned(m, x), axis=0)),
    "argmax_uint8": both(lambda m, x, y: m.argmax(unsigned(m, x), axis=0)),
    "argmin_int8": both(lambda m, x, y: m.argmin(signed(m, x), axis=1)),
    "max_uint16": both(lambda m, x, y: m.max((x * 8191).astype(m.uint16), axis=0)),
    "top_k_uint8": (
        lambda x, y: lax.top_k(unsigned(jnp, x), 3)[0],
        lambda x, y: -np.sort(-x * 31, axis=1)[:, :3].astype(np.int64),
    ),
    "scatter_min": combined("min"),
    "scatter_max": combined("max"),
    "dot_int8": (
        lambda x, y: contracted(signed(jnp, x), signed(jnp, y), jnp.int32),
        lambda x, y: ((x * 31 - 124) @ (y * 31 - 124).T).astype(np.int64),
    ),
    "dot_uint8": (
        lambda x, y: contracted(unsigned(jnp, x), unsigned(jnp, y), jnp.int32),
        lambda x, y: ((x * 31) @ (y * 31).T).astype(np.int64),
    ),
    "sum_int8": both(lambda m, x, y: m.sum(signed(m, x), axis=1)),
    "sum_bool": both(lambda m, x, y: m.sum(x > 3, axis=0)),
    "mean_int8": both(lambda m, x, y: m.mean(signed(m, m.resize(x, (8, 8))), axis=0)),
    "cumsum_int8": both(lambda m, x, y: m.cumsum(signed(m, x), axis=1, dtype=m.int8)),
    "divide_int8": both(lambda m, x, y: (signed(m, x) // m.int8(7), signed(m, x) % m.int8(7))),
    "mean_float16": both(lambda m, x, y: m.mean((m.resize(x, (8, 8)) * 2048).astype(m.float16), axis=0)),
    "sum_bfloat16": (
        lambda x, y: jnp.sum(jnp.resize(0 * x + 1, (512,)).astype(jnp.bfloat16)),
        lambda x, y: np.array(512.0),
    ),
}


# Indices outside of an array.


def set_or_dropped(x: Any, y: Any) -> Any:
    """x with a new last row. Updates outside of the array are dropped."""
    x = x.copy()
    x[-1] = y[0]
    return x


def clipped_rows(x: Any, y: Any) -> Any:
    """The rows at -3, 1 and far past the end, by a gather that clips: a negative start gives the first row."""
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    starts = jnp.array([[-3], [1], [FAR]])
    return lax.gather(x, starts, numbers, (1, x.shape[1]), mode="clip")


def in_segments(reduce: Callable[..., Any], start: float) -> Callable[..., Any]:
    """A reduction of the rows of each of four segments, in NumPy. The last segment is empty, and rows of other segments
    are dropped."""

    def defined(x: Any, y: Any) -> Any:
        ids = places(np, x)
        return np.stack([reduce(x[ids == k], axis=0, initial=start) for k in range(4)])

    return defined


def places(m: Any, x: Any) -> Any:
    """The segment of each row: -1, 0, 1, 2 and 9 in turns."""
    return m.array([-1, 0, 1, 2, 9])[m.arange(len(x)) % 5]


TAKEN: dict[str, Member] = {
    "clip": both(lambda m, x, y: m.take(x, m.array([-3, 1, FAR]), axis=0, mode="clip")),
    "wrap": both(lambda m, x, y: m.take(x, m.array([-3, 1, FAR]), axis=1, mode="wrap")),
    "fill": (
        lambda x, y: jnp.take(x, jnp.array([-1, 1, FAR, -FAR]), axis=1, mode="fill", fill_value=7),
        lambda x, y: np.stack([x[:, -1], x[:, 1], 0 * x[:, 0] + 7, 0 * x[:, 0] + 7], 1),
    ),
    "lax.gather": (clipped_rows, lambda x, y: np.stack([x[0], x[1], x[-1]])),
    "get": (
        lambda x, y: x.at[jnp.array([-3, 1, FAR])].get(mode="clip"),
        lambda x, y: np.stack([x[-3], x[1], x[-1]]),
    ),
    "drop": (lambda x, y: x.at[jnp.array([-1, FAR, -FAR])].set(y[:3], mode="drop"), set_or_dropped),
    "one_hot": (
        lambda x, y: jax.nn.one_hot(x[0].astype(jnp.int32) - 2, 5),
        lambda x, y: (x[0][:, None] - 2 == np.arange(5)).astype(float),
    ),
    "dynamic_slice": (
        lambda x, y: lax.dynamic_slice(x, (np.int32(FAR), np.int32(-2)), (2, 2)),
        lambda x, y: x[-2:, -2:],
    ),
    "segment_sum": (
        lambda x, y: jax.ops.segment_sum(x, places(jnp, x), 4),
        in_segments(np.sum, 0),
    ),
    "segment_max": (
        lambda x, y: jax.ops.segment_max(x, places(jnp, x), 4),
        in_segments(np.max, -np.inf),
    ),
    "searchsorted": both(
        lambda m, x, y: m.searchsorted(m.array([1.0, 3.0, 3.0, 7.0]), x[0], side="right").astype(m.int32)
    ),
    "lax.select_n": (
        lambda x, y: lax.select_n(x.astype(jnp.int32) % 3, x, y, x + y),
        lambda x, y: np.choose(x.astype(np.int64) % 3, (x, y, x + y)),
    ),
    "lax.clamp": (
        lambda x, y: lax.clamp(jnp.float32(2), x, y),
        lambda x, y: np.minimum(np.maximum(x, 2), y),
    ),
    "unique": (
        lambda x, y: jnp.unique(x + 1, size=12),
        lambda x, y: np.pad(np.unique(x + 1), (0, 12 - np.unique(x).size), constant_values=x.min() + 1),
    ),
}


# Orders of dimensions; splits, pads and products.


def xor(x: Any) -> Any:
    """The bitwise exclusive or of the rows."""
    return lax.reduce(x.astype(jnp.int32), np.int32(0), lax.bitwise_xor, (0,))


def padded(x: Any) -> Any:
    """`lax.pad` in NumPy. The first row is cut off, and two rows of zeros follow the last. Columns of zeros lie before
    and between the columns, and the last two columns are cut off."""
    found = np.zeros((x.shape[0] + 1, 2 * x.shape[1] - 2))
    found[:-2, 1::2] = x[1:, :-1]
    return found


SHAPED: dict[str, Member] = {
    "cycle": both(lambda m, x, y: m.transpose(m.resize(x, (4, 4, 4)), (1, 2, 0))),
    "cycle_back": both(lambda m, x, y: m.transpose(m.resize(x, (4, 4, 4)), (2, 0, 1))),
    "cycle_of_rows": both(lambda m, x, y: m.transpose(m.stack((x, y), 2), (1, 2, 0))),
    "moveaxis": both(lambda m, x, y: m.moveaxis(m.resize(y, (3, 3, 3, 3)), (0, 1), (2, 0))),
    "sum_apart": both(lambda m, x, y: m.resize(x, (3, 4, 5, 2)).sum((0, 2))),
    "max_apart": both(lambda m, x, y: m.resize(y, (3, 4, 5, 2)).max((1, 3))),
    "stack_apart": both(lambda m, x, y: m.stack((x, y), 1).sum((0, 2))),
    "all_apart": both(lambda m, x, y: (m.resize(x, (2, 3, 2)) > 0).all((0, 2))),
    "einsum_three": both(
        lambda m, x, y: m.einsum(
            "ij,jk,kl->il", m.resize(x, (3, 4)), m.resize(y, (4, 5)), m.resize(x, (5, 2))
        )
    ),
    "einsum_diagonal": both(lambda m, x, y: m.einsum("iji->ji", m.resize(x, (3, 4, 3)))),
    "dot_general": (
        lambda x, y: lax.dot_general(
            jnp.resize(x, (2, 3, 4, 5)), jnp.resize(y, (3, 2, 5, 4)), (((3, 2), (2, 3)), ((1, 0), (0, 1)))
        ),
        lambda x, y: np.einsum("abij,baji->ba", np.resize(x, (2, 3, 4, 5)), np.resize(y, (3, 2, 5, 4))),
    ),
    "lax.reduce": (lambda x, y: xor(x), lambda x, y: np.bitwise_xor.reduce(x.astype(np.int64), axis=0)),
    "lax.pad": (
        lambda x, y: lax.pad(x, jnp.float32(0), ((-1, 2, 0), (1, -2, 1))),
        lambda x, y: padded(x),
    ),
    "split": both(lambda m, x, y: m.split(x, [1, 3, 4], axis=1)),
    "roll_far": both(lambda m, x, y: m.roll(x, -FAR, 0)),
    "columns_first": both(lambda m, x, y: m.reshape(x, (x.shape[1], x.shape[0]), order="F")),
}


def ordered(x: Any, y: Any) -> Any:
    """x and y with each row sorted by ascending x, then by descending y."""
    order = np.lexsort((-y, x), axis=1)
    return tuple(np.take_along_axis(a, order, axis=1) for a in (x, y))


def sorted_pairs(x: Any, y: Any) -> Any:
    """`ordered` in JAX."""
    first, second = lax.sort((x, -y), dimension=1, num_keys=2)
    return first, -second


def backward(name: str, ufunc: Any) -> Member:
    """A member from a cumulative reduction from the last row to the first."""
    return (
        lambda x, y: getattr(lax, name)(x % 3, axis=0, reverse=True),
        lambda x, y: ufunc.accumulate((x % 3)[::-1], axis=0)[::-1],
    )


def convolved(x: Any, y: Any) -> Any:
    """`in_lax` in NumPy: the first row of x with zeros between its elements, convolved with three elements of y, two
    apart."""
    spaced = np.zeros(2 * x.shape[1] - 1)
    spaced[::2] = x[0]
    kernel = np.zeros(5)
    kernel[::2] = y[0, :3]
    return np.correlate(np.pad(spaced, (1, 2)), kernel, "valid")[None, None]


def in_lax(x: Any, y: Any) -> Any:
    """A convolution with dilated input and dilated kernel."""
    return lax.conv_general_dilated(x[:1][None], y[:1, :3][None], (1,), [(1, 2)], (2,), (2,))


def windowed(x: Any, y: Any) -> Any:
    """The maxima of windows of two rows with one row between them."""
    return np.maximum(x[:-2], x[2:])


ORDERED: dict[str, Member] = {
    "lax.sort": (
        sorted_pairs,
        ordered,
    ),
    "lax.cumsum": backward("cumsum", np.add),
    "lax.cummax": backward("cummax", np.maximum),
    "lax.cummin": backward("cummin", np.minimum),
    "lax.reduce_window": (
        lambda x, y: lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (1, 1), "VALID", window_dilation=(2, 1)),
        windowed,
    ),
    "lax.conv_general_dilated": (in_lax, convolved),
    "concatenate": both(lambda m, x, y: m.concatenate([x[:1], y, x[1:], y[:2]], axis=0)),
    "tile": both(lambda m, x, y: m.tile(x[:2], (2, 1))),
    "squeeze": both(lambda m, x, y: m.squeeze(x[:, :1], -1)),
    "interp": both(
        lambda m, x, y: m.interp(x[0], m.array([2.0, 4, 6]), m.array([8.0, 0, 2]), left=-5, right=-7)
    ),
    "gelu": (
        lambda x, y: jnp.rint(10000 * jax.nn.gelu(x[0] % 3, approximate=False)),
        lambda x, y: np.array([0.0, 8413, 19545])[x[0].astype(np.int64) % 3],
    ),
}


# Masks, and sums of nothing.


def first(m: Any, x: Any, count: int) -> Any:
    """A mask of the shape of x: true in the first `count` columns."""
    return m.broadcast_to(m.arange(x.shape[1]) < count, x.shape)


def only(m: Any, x: Any, column: int) -> Any:
    """x in one column, and minus infinity in the others."""
    return m.where(m.arange(x.shape[1]) == column, x, -m.inf)


MASKED: dict[str, Member] = {
    "var": both(lambda m, x, y: m.var(x, axis=1, where=first(m, x, 4))),
    "mean": both(lambda m, x, y: m.mean(y, axis=1, where=first(m, y, 2))),
    "sum": both(lambda m, x, y: m.sum(x, axis=1, where=y > 4, initial=3)),
    "max": both(lambda m, x, y: m.max(x, axis=0, where=x < 7, initial=-1)),
    "min": both(lambda m, x, y: m.min(x, axis=0, where=x > 1, initial=99)),
    "any": both(lambda m, x, y: m.any(x > 7, axis=1, where=first(m, x, 3))),
    "nanvar": both(lambda m, x, y: m.nanvar(m.where(first(m, x, 4), x, m.nan), axis=1)),
    "nanmean": both(lambda m, x, y: m.nanmean(m.where(first(m, y, 2), y, m.nan), axis=1)),
    "average": both(lambda m, x, y: m.average(x, axis=1, weights=first(m, x, 4) * 1.0)),
    "logsumexp_of_nothing": (
        lambda x, y: jax.nn.logsumexp(only(jnp, x, -1), axis=1),
        lambda x, y: x[:, 0] * 0 - np.inf,
    ),
    "logsumexp_of_one": (
        lambda x, y: jax.nn.logsumexp(only(jnp, x, 1), axis=1),
        lambda x, y: x[:, 1],
    ),
    "logsumexp_of_infinity": (
        lambda x, y: jax.nn.logsumexp(-only(jnp, x, 1), axis=1),
        lambda x, y: x[:, 0] * 0 + np.inf,
    ),
    "logsumexp_weighted": (
        lambda x, y: jax.nn.logsumexp(x, axis=1, b=-1.0 * first(jnp, x, 1), return_sign=True),
        lambda x, y: (x[:, 0], x[:, 0] * 0 - 1),
    ),
    "logaddexp": (
        lambda x, y: jnp.logaddexp(only(jnp, x, 1), only(jnp, y, 2)),
        lambda x, y: np.maximum(only(np, x, 1), only(np, y, 2)),
    ),
    "lax.cumlogsumexp": (
        lambda x, y: lax.cumlogsumexp(only(jnp, x, 2), axis=1),
        lambda x, y: np.maximum.accumulate(only(np, x, 2), axis=1),
    ),
    "lax.cumlogsumexp_back": (
        lambda x, y: lax.cumlogsumexp(only(jnp, x, 2), axis=1, reverse=True),
        lambda x, y: np.maximum.accumulate(only(np, x, 2)[:, ::-1], axis=1)[:, ::-1],
    ),
    "softmax": (
        lambda x, y: jax.nn.softmax(0 * x, axis=1, where=first(jnp, x, 4)),
        lambda x, y: first(np, x, 4) / 4,
    ),
    "log_softmax": (
        lambda x, y: jax.nn.log_softmax(only(jnp, x, 1), axis=1),
        lambda x, y: np.where(np.arange(x.shape[1]) == 1, 0 * x, -np.inf),
    ),
    "max_of_nothing": both(lambda m, x, y: m.max(only(m, x, -1), axis=0)),
    "min_of_nothing": both(lambda m, x, y: m.min(-only(m, x, -1), axis=1)),
    "argmax_of_nothing": both(lambda m, x, y: m.argmax(only(m, x, -1), axis=1)),
}


FUNCTION_OPTIONS: Groups = {
    "narrow": NARROW,
    "taken": TAKEN,
    "shaped": SHAPED,
    "ordered": ORDERED,
    "masked": MASKED,
    "linear": LINEAR,
    "attention": ATTENTION,
    "ragged": RAGGED,
    "fourier": FOURIER,
    "fourier_rows": FOURIER_ROWS,
}


class FunctionOptions(Catalogue):
    """Options and edge cases of functions of whole arrays: narrow integers, indices outside of an array, masks, sums of
    nothing, row exchanges, odd lengths."""

    name = "function_options"
    family = "elementwise"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    groups = FUNCTION_OPTIONS
    fill: ClassVar[Any] = (values.tokens, {"below": 9})

    def needs(self, options: Any) -> str | None:
        return "complex" if options["group"].startswith("fourier") else None

    @staticmethod
    def whole(x, y, *, group, names, kinds):
        return in_jax(FUNCTION_OPTIONS[group], x, y, names, kinds)

    @staticmethod
    def reference(x, y, *, group, names):
        return in_numpy(FUNCTION_OPTIONS[group], x, y, names)
