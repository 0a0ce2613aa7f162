# SPDX-License-Identifier: Apache-2.0
"""Reads and writes of parts of an array: slices, gathers and scatters, in range, at the edge and past it.

Starts and indices are arguments of the program, so the compiler does not know them. The mode decides whether an index
past the end is clamped, dropped or filled (see the documentation of `jax.numpy.ndarray.at` and of
`jax.lax.dynamic_slice`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.operations.base import Argument, Request, Result
from meshmark.operations.functions.wholes import Form, WholeFunction, constant, resized, with_entry


class Slice(WholeFunction):
    """Slices with a start, a stop and a step, forward and reversed."""

    name = "slice"
    family = "indexing"
    moves = True

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for cut in ("half", "inner", "strided", "reversed", "back"):
            yield 0, {"cut": cut}

    def form(self, request: Request, x: Argument) -> Form:
        dim, cut = request.variant["dim"], request.variant["cut"]
        size = x.shape[dim]
        start, stop, step = {
            "half": (0, size // 2, 1),
            "inner": (1, size - 1, 1),
            "strided": (1, size, 2),
            "reversed": (size - 1, None, -1),
            "back": (size - 2, None, -3),
        }[cut]
        count = len(range(*slice(start, stop, step).indices(size)))
        divides = count % request.mesh.size == 0
        spec = x.spec if divides else with_entry(x.spec, dim, None)
        result = Result(resized(x.shape, dim, count), x.dtype, spec)
        whole = (dim,) if x.spec[dim] is None or divides else ()
        return Form(
            (x,),
            (result,),
            {"dim": dim, "start": start, "stop": stop, "step": step},
            mixed=((dim,),),
            kept=(whole,),
            judge="bits",
            ruled=x.spec[dim] is None,
            wrt=(0,),
        )

    @staticmethod
    def whole(x, *, dim, start, stop, step):
        cut = slice(start, stop, step)
        return x[cut] if dim == 0 else x[:, cut]

    @staticmethod
    def reference(x, *, dim, start, stop, step):
        return np.take(x, range(*slice(start, stop, step).indices(x.shape[dim])), axis=dim)


STARTS = ("first", "inner", "edge", "past", "negative")


def start_of(where: str, size: int, length: int) -> int:
    """The start of a piece of this length in a dimension of this size. `where` is one of STARTS."""
    return {
        "first": 0,
        "inner": size // 4 + 1,
        "edge": size - length,
        "past": size - length + 3,
        "negative": -length - 1,
    }[where]


class DynamicSlice(WholeFunction):
    """`lax.dynamic_slice_in_dim` with a traced start: in range, at the edge, and past it, where it is clamped (a
    sharded slice was once wrong, openxla/xla#49122)."""

    name = "dynamic_slice"
    family = "indexing"
    moves = True

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for start in STARTS:
            yield 0, {"start": start, "length": "half"}
            yield 0 if start == "past" else 2, {"start": start, "length": "one"}

    def form(self, request: Request, x: Argument) -> Form:
        dim, variant = request.variant["dim"], request.variant
        size = x.shape[dim]
        length = size // 2 if variant["length"] == "half" else 1
        divides = length % request.mesh.size == 0
        start = start_of(variant["start"], size, length)
        spec = x.spec if divides else with_entry(x.spec, dim, None)
        return Form(
            (x, Argument((), "int32", (), constant, {"value": start})),
            (Result(resized(x.shape, dim, length), x.dtype, spec),),
            {"dim": dim, "length": length},
            mixed=((dim,), ()),
            kept=((dim,) if divides else (),),
            judge="bits",
            ruled=x.spec[dim] is None,
            wrt=(0,),
        )

    @staticmethod
    def whole(x, start, *, dim, length):
        return lax.dynamic_slice_in_dim(x, start, length, dim)

    @staticmethod
    def reference(x, start, *, dim, length):
        size, first = x.shape[dim], int(start)
        first = min(max(first + size if first < 0 else first, 0), size - length)
        return np.take(x, range(first, first + length), axis=dim)


class DynamicUpdateSlice(WholeFunction):
    """`lax.dynamic_update_slice_in_dim` with a traced start. The update is half of the dimension or one element wide
    (an update with a clamped start was once dropped, openxla/xla#49118)."""

    name = "dynamic_update_slice"
    family = "indexing"
    moves = True

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for start in STARTS:
            yield 0, {"start": start, "length": "one"}
            yield 0 if start in ("inner", "past") else 2, {"start": start, "length": "half"}

    def form(self, request: Request, x: Argument) -> Form:
        dim, variant = request.variant["dim"], request.variant
        size = x.shape[dim]
        length = size // 2 if variant["length"] == "half" else 1
        start = start_of(variant["start"], size, length)
        spec = with_entry(x.spec, dim, None)
        piece = Argument(resized(x.shape, dim, length), x.dtype, spec)
        return Form(
            (x, piece, Argument((), "int32", (), constant, {"value": start})),
            (Result(x.shape, x.dtype, x.spec),),
            {"dim": dim},
            mixed=((dim,), (dim,), ()),
            kept=((dim,),),
            judge="bits",
            ruled=x.spec[dim] is None,
            wrt=(0, 1),
        )

    @staticmethod
    def whole(x, y, start, *, dim):
        return lax.dynamic_update_slice_in_dim(x, y, start, dim)

    @staticmethod
    def reference(x, y, start, *, dim):
        size, length, first = x.shape[dim], y.shape[dim], int(start)
        first = min(max(first + size if first < 0 else first, 0), size - length)
        result = x.copy()
        np.moveaxis(result, dim, 0)[first : first + length] = np.moveaxis(y, dim, 0)
        return result


def spread(
    bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype, *, low: int, high: int
) -> np.ndarray:
    """Random integers from low to high - 1: indices in range, below zero and past the end."""
    return ((bits >> np.uint64(16)) % np.uint64(high - low)).astype(np.int64).astype(dtype) + np.array(
        low, dtype
    )


class Take(WholeFunction):
    """`jnp.take` of random indices, some out of range: clipped, wrapped, or filled with NaN."""

    name = "take"
    family = "indexing"
    moves = True
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16")

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for mode in ("clip", "wrap", "fill"):
            yield 0, {"mode": mode}
            yield 0 if mode == "fill" else 2, {"mode": mode, "spread": True}

    def form(self, request: Request, x: Argument) -> Form:
        dim, variant, n = request.variant["dim"], request.variant, request.mesh.size
        size, count, mode = x.shape[dim], 2 * n, variant["mode"]
        low, high = (-size if mode == "wrap" else 0, 2 * size) if mode != "fill" else (0, size + 3)
        entry = x.spec[dim] if variant.get("spread") else None
        at = Argument((count,), "int32", (entry,), spread, {"low": low, "high": high})
        return Form(
            (x, at),
            (Result(resized(x.shape, dim, count), x.dtype, with_entry(x.spec, dim, entry)),),
            {"dim": dim, "mode": mode, "value": 7},
            mixed=((dim,), ()),
            kept=((),),
            judge="bits",
            ruled=False,
            wrt=(0,),
            terms=64,
        )

    @staticmethod
    def whole(x, at, *, dim, mode, value):
        return jnp.take(x, at, axis=dim, mode=mode, fill_value=value if mode == "fill" else None)

    @staticmethod
    def reference(x, at, *, dim, mode, value):
        size = x.shape[dim]
        if mode == "wrap":
            return np.take(x, at % size, axis=dim)
        found = np.take(x, np.clip(at, 0, size - 1), axis=dim)
        if mode == "fill":
            np.moveaxis(found, dim, 0)[at >= size] = value
        return found


class TakeAlongAxis(WholeFunction):
    """`jnp.take_along_axis` with an index per element. The indices are sharded like the array."""

    name = "take_along_axis"
    family = "indexing"
    moves = True
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int32")

    def form(self, request: Request, x: Argument) -> Form:
        dim = request.variant["dim"]
        at = Argument(x.shape, "int32", x.spec, values.tokens, {"below": x.shape[dim]})
        return Form(
            (x, at),
            (Result(x.shape, x.dtype, x.spec),),
            {"dim": dim},
            mixed=((dim,), (dim,)),
            kept=((dim,),),
            judge="bits",
            wrt=(0,),
            terms=64,
        )

    @staticmethod
    def whole(x, at, *, dim):
        return jnp.take_along_axis(x, at, axis=dim)

    @staticmethod
    def reference(x, at, *, dim):
        return np.take_along_axis(x, at, axis=dim)


def written(x, at, y, dim, method, mode):
    """`x.at[at].method(y)` along a dimension."""
    place = x.at[at] if dim == 0 else x.at[:, at]
    return getattr(place, method)(y, mode=mode)


class AtUpdate(WholeFunction):
    """`x.at[index].set / add / mul / min / max (y)`. Indices past the end are dropped or clipped. `set` writes distinct
    rows; `add` and the others write some rows twice."""

    name = "at_update"
    family = "indexing"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int32")

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for method in ("set", "add", "multiply", "min", "max"):
            yield 0, {"method": method, "mode": "drop"}
            if method in ("add", "max"):
                yield 0, {"method": method, "mode": "clip"}

    def differentiable(self, options):
        return options["method"] in ("set", "add")

    def form(self, request: Request, x: Argument) -> Form:
        dim, variant = request.variant["dim"], request.variant
        size, method = x.shape[dim], variant["method"]
        small = {"below": 4} if method == "multiply" else {"terms": 64}
        fill = values.tokens if method == "multiply" else values.summands
        x = Argument(x.shape, x.dtype, x.spec, fill, small)
        count = size // 2
        if method == "set":
            at = Argument((count,), "int32", (None,), shuffled, {"size": size + 3})
        else:
            at = Argument((count,), "int32", (None,), spread, {"low": 0, "high": size + 3})
        piece = Argument(resized(x.shape, dim, count), x.dtype, with_entry(x.spec, dim, None), fill, small)
        return Form(
            (x, at, piece),
            (Result(x.shape, x.dtype, x.spec),),
            {"dim": dim, "method": method, "mode": variant["mode"]},
            mixed=((dim,), (), (dim,)),
            kept=((dim,),),
            wrt=(0, 2),
        )

    @staticmethod
    def whole(x, at, y, *, dim, method, mode):
        return written(x, at, y, dim, method, mode)

    @staticmethod
    def reference(x, at, y, *, dim, method, mode):
        result = np.moveaxis(x.copy(), dim, 0)
        for target, row in zip(at, np.moveaxis(y, dim, 0), strict=True):
            target = min(int(target), len(result) - 1) if mode == "clip" else int(target)
            if target < len(result):
                old = result[target]
                result[target] = {
                    "set": row,
                    "add": old + row,
                    "multiply": old * row,
                    "min": np.minimum(old, row),
                    "max": np.maximum(old, row),
                }[method]
        return np.moveaxis(result, 0, dim)

    @staticmethod
    def gradient(x, at, y, g, *, dim, method, mode):
        size = x.shape[dim]
        given = np.moveaxis(g, dim, 0)
        at = np.minimum(at, size - 1) if mode == "clip" else at
        rows = np.zeros(np.moveaxis(y, dim, 0).shape, np.float64)
        rows[at < size] = given[at[at < size]]
        left = given.copy()
        if method == "set":
            left[at[at < size]] = 0
        return np.moveaxis(left, 0, dim), np.moveaxis(rows, 0, dim)


def shuffled(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype, *, size: int) -> np.ndarray:
    """Distinct indices from 0 to size - 1, spread over the whole range."""
    step = next(k for k in range(size // 3 + 1, size + 2) if np.gcd(k, size) == 1)
    return ((index * np.uint64(step) + np.uint64(size - 1)) % np.uint64(size)).astype(dtype)


class SegmentSum(WholeFunction):
    """`jax.ops.segment_sum` over sharded rows. Every segment gets rows of every device."""

    name = "segment_sum"
    family = "indexing"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int32")

    def dims(self):
        return (0,)

    def form(self, request: Request, x: Argument) -> Form:
        segments = 2 * request.mesh.size
        x = Argument(x.shape, x.dtype, x.spec, values.summands, {"terms": x.shape[0]})
        at = Argument(x.shape[:1], "int32", x.spec[:1], values.tokens, {"below": segments})
        return Form(
            (x, at),
            (Result((segments, x.shape[1]), x.dtype, x.spec),),
            {"segments": segments},
            mixed=((0,), (0,)),
            kept=((0,),),
            wrt=(0,),
            terms=1,
        )

    @staticmethod
    def whole(x, at, *, segments):
        return jax.ops.segment_sum(x, at, num_segments=segments)

    @staticmethod
    def reference(x, at, *, segments):
        result = np.zeros((segments, x.shape[1]), x.dtype)
        np.add.at(result, at, x)
        return result

    @staticmethod
    def gradient(x, at, g):
        return g[at]


class OneHot(WholeFunction):
    """`jax.nn.one_hot` of sharded indices. An index past the classes gives a row of zeros."""

    name = "one_hot"
    family = "indexing"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int32")

    def dims(self):
        return (0,)

    def form(self, request: Request, x: Argument) -> Form:
        classes = 2 * request.mesh.size
        at = Argument(x.shape, "int32", x.spec, values.tokens, {"below": classes + 2})
        return Form(
            (at,),
            (Result((*x.shape, classes), request.dtype, (*x.spec, None)),),
            {"classes": classes, "dtype": request.dtype},
            mixed=((),),
            kept=((),),
            ruled=True,
        )

    @staticmethod
    def whole(at, *, classes, dtype):
        return jax.nn.one_hot(at, classes, dtype=dtype)

    @staticmethod
    def reference(at, *, classes, dtype):
        return (at[..., None] == np.arange(classes)).astype(np.float64)


class CacheUpdates(WholeFunction):
    """A key-value cache: a loop writes one column per step at a traced position, up to the edge and past it."""

    name = "cache_updates"
    family = "indexing"

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"first": "inner"}
        yield 0, {"first": "edge"}

    def form(self, request: Request, x: Argument) -> Form:
        dim = request.variant["dim"]
        size, steps = x.shape[dim], 4
        first = size // 2 - 2 if request.variant["first"] == "inner" else size - 2
        columns = Argument(
            (steps, *resized(x.shape, dim, 1)), x.dtype, (None, *with_entry(x.spec, dim, None))
        )
        return Form(
            (x, columns, Argument((), "int32", (), constant, {"value": first})),
            (Result(x.shape, x.dtype, x.spec),),
            {"dim": dim},
            mixed=((dim,), (), ()),
            kept=((dim,),),
            judge="bits",
            ruled=x.spec[dim] is None,
            wrt=(0, 1),
        )

    @staticmethod
    def whole(x, columns, first, *, dim):
        def step(i, cache):
            return lax.dynamic_update_slice_in_dim(cache, columns[i], first + i, dim)

        return lax.fori_loop(0, columns.shape[0], step, x)

    @staticmethod
    def reference(x, columns, first, *, dim):
        result = x.copy()
        for i, column in enumerate(columns):
            at = min(int(first) + i, x.shape[dim] - 1)
            np.moveaxis(result, dim, 0)[at] = np.moveaxis(column, dim, 0)[0]
        return result
