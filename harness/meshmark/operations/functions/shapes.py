# SPDX-License-Identifier: Apache-2.0
"""Functions that rearrange an array: pads, flips, rolls, repeats, reshapes and broadcasts, along sharded and unsharded
dimensions. They only move elements, so every result is equal to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.base import Argument, Request, Result
from meshmark.operations.functions.wholes import Form, WholeFunction, resized, with_entry


class Rearranged(WholeFunction):
    """The base: a function from one matrix to one array that moves elements along one dimension."""

    family = "shapes"
    moves = True
    ruled_when_whole: ClassVar[bool] = True
    """Whether explicit mode has a rule along a dimension that is not sharded."""

    def moved_form(self, request: Request, x: Argument, size: int, keywords: Mapping[str, Any]) -> Form:
        """The form of a function that changes the size of the dimension. The dimension stays sharded if the number of
        devices divides the new size."""
        dim = request.variant["dim"]
        divides = size % request.mesh.size == 0
        spec = x.spec if divides else with_entry(x.spec, dim, None)
        return Form(
            (x,),
            (Result(resized(x.shape, dim, size), x.dtype, spec),),
            {"dim": dim, **keywords},
            mixed=((dim,),),
            kept=((dim,) if divides else (),),
            judge="bits",
            ruled=self.ruled_when_whole and x.spec[dim] is None,
            wrt=(0,),
        )


class Pad(Rearranged):
    """`lax.pad` with low, high and interior padding of various signs."""

    name = "pad"

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for config in ((1, 1, 0), (0, 3, 0), (0, 0, 1), (-1, -2, 0)):
            yield 0, {"config": config}
        yield 2, {"config": (-1, 2, 2)}

    def form(self, request: Request, x: Argument) -> Form:
        low, high, interior = request.variant["config"]
        size = x.shape[request.variant["dim"]]
        return self.moved_form(
            request,
            x,
            low + high + size + interior * max(size - 1, 0),
            {"low": low, "high": high, "interior": interior, "value": 3},
        )

    @staticmethod
    def whole(x, *, dim, low, high, interior, value):
        config = [(low, high, interior) if d == dim else (0, 0, 0) for d in range(x.ndim)]
        return lax.pad(x, jnp.array(value, x.dtype), config)

    @staticmethod
    def reference(x, *, dim, low, high, interior, value):
        rows = np.moveaxis(x, dim, 0)
        size = low + high + len(rows) + interior * max(len(rows) - 1, 0)
        result = np.full((size, *rows.shape[1:]), value, x.dtype)
        for i, row in enumerate(rows):
            at = low + i * (interior + 1)
            if 0 <= at < size:
                result[at] = row
        return np.moveaxis(result, 0, dim)


class PadMode(Rearranged):
    """`jnp.pad` with padding from the array: its edge, mirrored or wrapped."""

    name = "pad_mode"
    ruled_when_whole = False

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for mode in ("edge", "reflect", "symmetric", "wrap"):
            yield 0, {"mode": mode}

    def form(self, request: Request, x: Argument) -> Form:
        size = x.shape[request.variant["dim"]]
        return self.moved_form(request, x, size + 3, {"mode": request.variant["mode"]})

    @staticmethod
    def whole(x, *, dim, mode):
        return jnp.pad(x, [(2, 1) if d == dim else (0, 0) for d in range(x.ndim)], mode=mode)

    @staticmethod
    def reference(x, *, dim, mode):
        size = x.shape[dim]
        before, after = {
            "edge": ([0, 0], [size - 1]),
            "reflect": ([2, 1], [size - 2]),
            "symmetric": ([1, 0], [size - 1]),
            "wrap": ([size - 2, size - 1], [0]),
        }[mode]
        return np.take(x, [*before, *range(size), *after], axis=dim)


class Flip(Rearranged):
    """`jnp.flip`."""

    name = "flip"

    def form(self, request: Request, x: Argument) -> Form:
        return self.moved_form(request, x, x.shape[request.variant["dim"]], {})

    @staticmethod
    def whole(x, *, dim):
        return jnp.flip(x, axis=dim)

    @staticmethod
    def reference(x, *, dim):
        return np.take(x, range(x.shape[dim] - 1, -1, -1), axis=dim)


class Roll(Rearranged):
    """`jnp.roll` by one, by minus one, by more than a shard, and by more than the whole."""

    name = "roll"
    ruled_when_whole = False

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for shift in (1, -1, 13, 1000):
            yield 0, {"shift": shift}

    def form(self, request: Request, x: Argument) -> Form:
        size = x.shape[request.variant["dim"]]
        return self.moved_form(request, x, size, {"shift": request.variant["shift"]})

    @staticmethod
    def whole(x, *, dim, shift):
        return jnp.roll(x, shift, axis=dim)

    @staticmethod
    def reference(x, *, dim, shift):
        size = x.shape[dim]
        return np.take(x, [(i - shift) % size for i in range(size)], axis=dim)


class Repeat(Rearranged):
    """`jnp.repeat` by one number, or by one number per row."""

    name = "repeat"
    ruled_when_whole = False

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {}
        yield 0, {"uneven": True}

    def form(self, request: Request, x: Argument) -> Form:
        size = x.shape[request.variant["dim"]]
        times = tuple(i % 3 for i in range(size)) if request.variant.get("uneven") else (2,) * size
        return self.moved_form(request, x, sum(times), {"times": times})

    @staticmethod
    def whole(x, *, dim, times):
        return jnp.repeat(x, np.array(times), axis=dim, total_repeat_length=sum(times))

    @staticmethod
    def reference(x, *, dim, times):
        return np.take(x, [i for i, k in enumerate(times) for _ in range(k)], axis=dim)


class Tile(Rearranged):
    """`jnp.tile` along one dimension."""

    name = "tile"
    ruled_when_whole = False

    def form(self, request: Request, x: Argument) -> Form:
        return self.moved_form(request, x, 2 * x.shape[request.variant["dim"]], {})

    @staticmethod
    def whole(x, *, dim):
        return jnp.tile(x, (2, 1) if dim == 0 else (1, 2))

    @staticmethod
    def reference(x, *, dim):
        size = x.shape[dim]
        return np.take(x, [i % size for i in range(2 * size)], axis=dim)


class Triangle(WholeFunction):
    """`jnp.tril` and `jnp.triu`. The mask depends on the global index, not on the index within a shard."""

    name = "triangle"
    family = "shapes"

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"lower": True, "k": 0}
        yield 0, {"lower": False, "k": -2}

    def dims(self):
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        variant = request.variant
        return Form(
            (x,),
            (Result(x.shape, x.dtype, x.spec),),
            {"lower": variant.get("lower", False), "k": variant["k"]},
            mixed=((0, 1),),
            kept=((0, 1),),
            ruled=True,
            wrt=(0,),
        )

    @staticmethod
    def whole(x, *, lower, k):
        return jnp.tril(x, k) if lower else jnp.triu(x, k)

    @staticmethod
    def reference(x, *, lower, k):
        rows, columns = np.indices(x.shape)
        return np.where(columns - rows <= k if lower else columns - rows >= k, x, 0)

    @staticmethod
    def gradient(x, g, *, lower, k):
        rows, columns = np.indices(x.shape)
        return np.where(columns - rows <= k if lower else columns - rows >= k, g, 0)


class Diagonal(WholeFunction):
    """`jnp.diagonal` of a matrix sharded on one or both dimensions."""

    name = "diagonal"
    family = "shapes"
    moves = True

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"k": 0}
        yield 0, {"k": 3}

    def dims(self):
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        k = request.variant["k"]
        size = len(np.diagonal(np.empty(x.shape, bool), k))
        return Form(
            (x,),
            (Result((size,), x.dtype, (None,)),),
            {"k": k},
            mixed=((0, 1),),
            kept=((),),
            judge="bits",
            wrt=(0,),
        )

    @staticmethod
    def whole(x, *, k):
        return jnp.diagonal(x, k)

    @staticmethod
    def reference(x, *, k):
        return np.array([x[i, i + k] for i in range(min(x.shape[0], x.shape[1] - k))], x.dtype)


class Reshape(WholeFunction):
    """Reshapes that split the sharded dimension into two, or merge both dimensions into one."""

    name = "reshape"
    family = "shapes"
    moves = True

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for way in ("split", "merge", "regroup", "squeeze"):
            yield 0, {"way": way}

    def dims(self):
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        rows, columns = x.shape
        first, last = x.spec
        n = request.mesh.size
        shape, spec = {
            "split": ((n, rows // n, columns), (first, None, last)),
            "merge": ((rows * columns,), (first,)),
            "regroup": ((columns, rows), (None, None)),
            "squeeze": ((rows, 1, columns, 1), (first, None, last, None)),
        }[request.variant["way"]]
        local = request.variant["way"] in ("split", "squeeze")
        mixed = () if request.variant["way"] == "squeeze" else (0, 1)
        kept = {"split": (0, 2), "merge": (0,)}.get(request.variant["way"], ())
        return Form(
            (x,),
            (Result(shape, x.dtype, spec),),
            {"shape": shape if mixed else None},
            mixed=(mixed,),
            kept=(kept,),
            judge="bits",
            ruled=local,
            wrt=(0,),
        )

    @staticmethod
    def whole(x, *, shape):
        return x[:, None, :, None] if shape is None else jnp.reshape(x, shape)

    @staticmethod
    def reference(x, *, shape):
        return np.reshape(x, (x.shape[0], 1, x.shape[1], 1) if shape is None else shape)


class Broadcast(WholeFunction):
    """`jnp.broadcast_to` of a row or a column that is sharded like the result, or not at all."""

    name = "broadcast_to"
    family = "shapes"
    moves = True

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"sharded": True}
        yield 0, {"sharded": False}

    def form(self, request: Request, x: Argument) -> Form:
        dim = request.variant["dim"]
        spec = with_entry(x.spec, dim, None)
        if not request.variant.get("sharded"):
            spec = (None, None)
        row = Argument(resized(x.shape, dim, 1), x.dtype, spec)
        return Form(
            (row,),
            (Result(x.shape, x.dtype, with_entry(x.spec, dim, None) if spec != (None, None) else spec),),
            {"dim": dim, "size": x.shape[dim]},
            mixed=((),),
            kept=((),),
            judge="bits",
            ruled=True,
            wrt=(0,),
            terms=x.shape[dim],
        )

    @staticmethod
    def whole(x, *, dim, size):
        return jnp.broadcast_to(x, tuple(size if d == dim else s for d, s in enumerate(x.shape)))

    @staticmethod
    def reference(x, *, dim, size):
        return np.take(x, [0] * size, axis=dim)


class Stack(WholeFunction):
    """`jnp.stack` of two matrices along a new dimension, before or after the sharded ones, and parts of the stack."""

    name = "stack"
    family = "shapes"
    moves = True

    def dims(self):
        return (0, 1, 2)

    def rotation(self, places, mesh, options):
        found = super().rotation(tuple(p for p in places if p[1] < 2), mesh, options)
        return found | ({(of, 2) for of, _ in list(found)[:1]})

    def form(self, request: Request, x: Argument) -> Form:
        dim = request.variant["dim"]
        shape, spec = list(x.shape), list(x.spec)
        shape.insert(dim, 2)
        spec.insert(dim, None)
        return Form(
            (x, x),
            (Result(tuple(shape), x.dtype, tuple(spec)),),
            {"dim": dim},
            mixed=((), ()),
            kept=((),),
            judge="bits",
            ruled=True,
            wrt=(0, 1),
        )

    @staticmethod
    def whole(x, y, *, dim):
        return jnp.stack([x, y], axis=dim)

    @staticmethod
    def reference(x, y, *, dim):
        result = np.empty([2, *x.shape], np.result_type(x))
        result[0], result[1] = x, y
        return np.moveaxis(result, 0, dim)


class Select(WholeFunction):
    """`jnp.where`, `lax.select_n` and `lax.clamp` of several arrays. The mask has another sharding."""

    name = "select"
    family = "shapes"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int32")

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for way in ("where", "select_n", "clamp"):
            yield 0, {"way": way}

    def dims(self):
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        mask = Argument(x.shape, "bool", x.spec)
        return Form(
            (mask, x, x),
            (Result(x.shape, x.dtype, x.spec),),
            {"way": request.variant["way"]},
            mixed=((), (), ()),
            kept=((),),
            judge="exact",
            ruled=True,
            wrt=(1, 2),
        )

    @staticmethod
    def whole(mask, x, y, *, way):
        if way == "where":
            return jnp.where(mask, x, y)
        if way == "select_n":
            return lax.select_n(mask, y, x)
        return lax.clamp(jnp.minimum(x, y), jnp.where(mask, x, y), x)

    @staticmethod
    def reference(mask, x, y, *, way):
        return np.where(mask, x, np.minimum(x, y) if way == "clamp" else y)

    def differentiable(self, options):
        return options["way"] != "clamp"

    @staticmethod
    def gradient(mask, x, y, g):
        return np.where(mask, g, 0), np.where(mask, 0, g)
