# SPDX-License-Identifier: Apache-2.0
"""Sorts of several operands, searches, distinct values and histograms, along sharded dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import auto_axes

from meshmark.core import values
from meshmark.operations.base import Argument, Request, Result
from meshmark.operations.collective_base import SUMMED
from meshmark.operations.functions.arrays import ArrayOperation
from meshmark.operations.functions.wholes import Form, WholeFunction


class Sort(ArrayOperation):
    """Sort along the dimension."""

    name = "sort"
    whole_of: ClassVar[tuple[int, ...]] = (0,)
    fills: ClassVar[tuple[str, ...]] = (*SUMMED, "ties")
    distance = 1

    @staticmethod
    def auto(x, *, dim):
        return jnp.sort(x, axis=dim)

    @staticmethod
    def explicit(x, *, dim, axes, out_spec):
        if not axes:
            return jnp.sort(x, axis=dim)
        return auto_axes(lambda y: jnp.sort(y, axis=dim), out_sharding=P(*out_spec))(x)

    @staticmethod
    def reference(x, *, dim):
        return np.sort(x, axis=dim)


class Argsort(ArrayOperation):
    """The indices that sort along the dimension. The sort is stable: equal elements keep their order."""

    name = "argsort"
    whole_of: ClassVar[tuple[int, ...]] = (0,)
    fills: ClassVar[tuple[str, ...]] = (*SUMMED, "ties")
    distance = 1

    def results(self, request: Request, y: Result) -> tuple[Result, ...]:
        return (Result(y.shape, "int32", y.spec),)

    @staticmethod
    def auto(x, *, dim):
        return jnp.argsort(x, axis=dim).astype(jnp.int32)

    @staticmethod
    def explicit(x, *, dim, axes, out_spec):
        if not axes:
            return jnp.argsort(x, axis=dim).astype(jnp.int32)
        return auto_axes(lambda y: jnp.argsort(y, axis=dim).astype(jnp.int32), out_sharding=P(*out_spec))(x)

    @staticmethod
    def reference(x, *, dim):
        return np.argsort(x, axis=dim, kind="stable")


def largest(x, dim, k):
    """lax.top_k along a dimension."""
    found, index = lax.top_k(jnp.moveaxis(x, dim, -1), k)
    return jnp.moveaxis(found, -1, dim), jnp.moveaxis(index, -1, dim)


class TopK(ArrayOperation):
    """`lax.top_k`: values and indices, of equal elements the first (it was once wrong when sharded, jax#19271)."""

    name = "top_k"
    whole_of: ClassVar[tuple[int, ...]] = (0,)
    fills: ClassVar[tuple[str, ...]] = (*SUMMED, "ties")
    distance = 1

    def options(self, request: Request, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"k": request.mesh.size}

    def results(self, request: Request, y: Result) -> tuple[Result, ...]:
        n, dim = request.mesh.size, request.variant["dim"]
        shape = tuple(n if d == dim else s for d, s in enumerate(y.shape))
        return Result(shape, y.dtype, y.spec), Result(shape, "int32", y.spec)

    @staticmethod
    def auto(x, *, dim, k):
        return largest(x, dim, k)

    @staticmethod
    def explicit(x, *, dim, k, out_spec):
        out = P(*out_spec)
        return auto_axes(lambda y: largest(y, dim, k), out_sharding=(out, out))(x)

    @staticmethod
    def reference(x, *, dim, k):
        missing = np.isnan(x)  # NaN is the largest, as in numpy.sort
        order = np.lexsort((np.where(missing, 0, -x), ~missing), axis=dim)
        index = np.take(order, range(k), axis=dim)
        return np.take_along_axis(x, index, axis=dim), index


class SortSeveral(WholeFunction):
    """`lax.sort` of two keys with many equal elements, and of a third operand that follows them. It is stable."""

    name = "sort_several"
    family = "ordering"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int32")

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"keys": 1}
        yield 0, {"keys": 2}

    def form(self, request: Request, x: Argument) -> Form:
        dim = request.variant["dim"]
        first = Argument(x.shape, "int32", x.spec, values.tokens, {"below": 5})
        second = Argument(x.shape, "int32", x.spec, values.tokens, {"below": 3})
        third = Argument(x.shape, x.dtype, x.spec)
        arguments = (first, second, third)
        return Form(
            arguments,
            tuple(Result(a.shape, a.dtype, a.spec) for a in arguments),
            {"dim": dim, "keys": request.variant["keys"]},
            mixed=((dim,),) * 3,
            kept=((dim,),) * 3,
            judge="bits",
        )

    @staticmethod
    def whole(x, y, z, *, dim, keys):
        return tuple(lax.sort((x, y, z), dimension=dim, num_keys=keys))

    @staticmethod
    def reference(x, y, z, *, dim, keys):
        lines = np.lexsort((y, x) if keys == 2 else (x,), axis=dim)
        return tuple(np.take_along_axis(a, lines, axis=dim) for a in (x, y, z))


class SortDown(WholeFunction):
    """`jnp.sort` in descending order."""

    name = "sort_down"
    family = "ordering"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def form(self, request: Request, x: Argument) -> Form:
        dim = request.variant["dim"]
        return Form(
            (x,),
            (Result(x.shape, x.dtype, x.spec),),
            {"dim": dim},
            mixed=((dim,),),
            kept=((dim,),),
            judge="bits",
            ruled=False,
            wrt=(0,),
        )

    @staticmethod
    def whole(x, *, dim):
        return jnp.sort(x, axis=dim, descending=True)

    @staticmethod
    def reference(x, *, dim):
        return np.flip(np.sort(x, axis=dim), dim)

    @staticmethod
    def gradient(x, g, *, dim):
        order = np.flip(np.argsort(x, axis=dim), dim)
        result = np.zeros_like(g)
        np.put_along_axis(result, order, g, axis=dim)
        return result


class Search(WholeFunction):
    """`jnp.searchsorted` of sharded queries in a sharded table, on both sides, and `jnp.digitize`."""

    name = "searchsorted"
    family = "ordering"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int32")

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for side in ("left", "right"):
            yield 0, {"side": side}

    def dims(self) -> tuple[int | None, ...]:
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        n = request.mesh.size
        table = Argument((8 * n,), x.dtype, x.spec[:1], rising)
        queries = Argument(x.shape, x.dtype, x.spec, values.tokens, {"below": 5 * n})
        return Form(
            (table, queries),
            (Result(x.shape, "int32", x.spec),),
            {"side": request.variant["side"]},
            mixed=((0,), ()),
            kept=((),),
        )

    @staticmethod
    def whole(table, queries, *, side):
        return jnp.searchsorted(table, queries, side=side).astype(jnp.int32)

    @staticmethod
    def reference(table, queries, *, side):
        below = table[:, None, None] < queries if side == "left" else table[:, None, None] <= queries
        return below.sum(axis=0)


def rising(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype) -> np.ndarray:
    """0, 0, 1, 1, 2, 2 ...: sorted, with equal neighbours."""
    return (index // np.uint64(2)).astype(dtype)


class Count(WholeFunction):
    """`jnp.unique` with a size, `jnp.bincount`, `jnp.histogram` and `jnp.nonzero` with a size, of a whole array."""

    name = "count"
    family = "ordering"
    dtypes: ClassVar[tuple[str, ...]] = ("int32",)

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for function in ("unique", "bincount", "histogram", "nonzero"):
            yield 0, {"function": function}

    def dims(self) -> tuple[int | None, ...]:
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        function = request.variant["function"]
        size = 12
        x = Argument(x.shape, x.dtype, x.spec, values.tokens, {"below": 10})
        results = (Result((size,), "int32", (None,)),) * (2 if function in ("unique", "nonzero") else 1)
        return Form(
            (x,),
            results,
            {"function": function, "size": size},
            mixed=((0, 1),),
            kept=((),) * len(results),
        )

    @staticmethod
    def whole(x, *, function, size):
        if function == "unique":
            found = jnp.unique(x, size=size, fill_value=-1, return_counts=True)
        elif function == "nonzero":
            found = jnp.nonzero(x > 8, size=size, fill_value=-1)
        elif function == "bincount":
            return jnp.bincount(x.reshape(-1), length=size).astype(jnp.int32)
        else:
            return jnp.histogram(x, bins=jnp.arange(size + 1))[0].astype(jnp.int32)
        return tuple(a.astype(jnp.int32) for a in found)

    @staticmethod
    def reference(x, *, function, size):
        if function in ("bincount", "histogram"):
            counts = np.array([(x == i).sum() for i in range(size + 1)])
            return counts[:size]
        if function == "unique":
            kinds = sorted(set(x.ravel().tolist()))
            counts = [(x == k).sum() for k in kinds]
            fill = [-1] * (size - len(kinds))
            return np.array(kinds + fill), np.array([*counts, *([0] * len(fill))])
        rows, columns = np.indices(x.shape)
        found = [a[x > 8][:size] for a in (rows, columns)]
        return tuple(np.concatenate([a, np.full(size - len(a), -1)]) for a in found)


class Quantile(WholeFunction):
    """`jnp.quantile` along a dimension, with the method that takes the lower of two neighbours."""

    name = "quantile"
    family = "ordering"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"at": 0.25}
        yield 0, {"at": 0.5}

    def form(self, request: Request, x: Argument) -> Form:
        dim = request.variant["dim"]
        return Form(
            (x,),
            (Result((x.shape[1 - dim],), x.dtype, (x.spec[1 - dim],)),),
            {"dim": dim, "at": request.variant["at"]},
            mixed=((dim,),),
            kept=((),),
        )

    @staticmethod
    def whole(x, *, dim, at):
        return jnp.quantile(x, at, axis=dim, method="lower")

    @staticmethod
    def reference(x, *, dim, at):
        lines = np.sort(x, axis=dim)
        return np.take(lines, int(np.floor(at * (x.shape[dim] - 1))), axis=dim)
