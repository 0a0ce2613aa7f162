# SPDX-License-Identifier: Apache-2.0
"""Functions of a matrix that is sharded over only some axes of a mesh, and of parts of it whose sizes do not divide.

Partitioners go wrong if a mesh axis is unused, if a dimension does not divide, and if a shard has one row. One program
holds some functions of a group, each with its own argument. There are four turns: the whole matrix, the matrix without
its first row, without its first row and column, and with one row per device. A program has one function in four of a
group; other turns and other meshes have the others. From turn to turn a function takes the next sharding: rows over the
last axis, columns over the first axis, rows over several axes in another order than the mesh's, or both dimensions.
Results are replicated in the first two turns; in the others they are sharded where the axes divide them.

There are four ways to run the functions. They are compiled, or run eagerly, or run as a batch whose matrices are
sharded over the last axis, or run between manual axes: in a shard_map over the last axis, where the other axes shard
the matrix. The matrices of these ways are in random order. Up to version 7 of the table there was one way, and its
matrix went up in equal steps: an index that was off by a few rows could hold a number with the same remainder. The full
profile still has the groups of that way.

The gradients are those of a weighted sum, at numbers between the whole numbers: there, functions that take remainders
have no steps. NumPy computes them from differences, which are exact (`polynomials`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape, preferred
from meshmark.core.values import random_bits
from meshmark.core.values import whole as every
from meshmark.operations.base import PUT_FROM_ONE_PROCESS, Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.functions.catalogue import outputs, spread
from meshmark.operations.functions.partly_sharded_functions import ORDERS, READS, REDUCED, RUNNING, Functions
from meshmark.operations.functions.partly_sharded_writes import LOOPS, PRODUCTS, SHAPES, WRITES
from meshmark.operations.functions.polynomials import pull

GROUPS: Mapping[str, Functions] = {
    "running": RUNNING,
    "orders": ORDERS,
    "reduced": REDUCED,
    "reads": READS,
    "writes": WRITES,
    "shapes": SHAPES,
    "products": PRODUCTS,
    "loops": LOOPS,
}

TURNS = 4


WAYS = ("jit", "eager", "batch", "between")
"""Compiled, each function on its own, a batch over the last axis, and between manual axes."""

STACKED = WAYS[2:]
"""The ways that take a matrix for each device of the last axis."""


def regular(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype) -> np.ndarray:
    """Every whole number below the size of the array once. The numbers go up in equal steps, modulo the size."""
    size = int(np.prod(shape))
    step = next(k for k in range(size * 5 // 8 | 1, 2 * size) if np.gcd(k, size) == 1)
    return (index.astype(np.int64) * step % size).astype(dtype)


@lru_cache(maxsize=64)
def order(number: int, size: int) -> np.ndarray:
    """A random permutation of the whole numbers below `size`. `number` is the seed."""
    return np.argsort(random_bits(number, np.arange(size, dtype=np.uint64)), kind="stable")


def drawn(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype) -> np.ndarray:
    """Every whole number below the size of a matrix once, in random order. Each matrix of a stack has its own order."""
    size = int(np.prod(shape[-2:]))
    which, at = np.divmod(index.astype(np.int64), size)
    orders = np.stack([order(k, size) for k in range(int(np.prod(shape[:-2], dtype=int)))])
    return orders[which, at].astype(dtype)


def halves(fill: Any) -> Any:
    """A fill with the same numbers plus one half."""

    def filled(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype) -> np.ndarray:
        return fill(bits, index, shape, dtype) + dtype.type(0.5)

    return filled


def shardings(names: tuple[str, ...]) -> tuple[Spec, ...]:
    """The specs of a matrix: rows, columns, rows over two axes in another order, both dimensions. One mesh axis has
    only the first two."""
    first, last = names[0], names[-1]
    rows, columns = (last, None), (None, first)
    return (rows, columns) if first == last else (rows, columns, ((last, first), None), (first, last))


def placed(mesh: MeshShape, number: int, turn: int, names: tuple[str, ...]) -> tuple[tuple[int, int], Spec]:
    """Shape and spec of the matrix of a function over these axes. In the last turn each shard has few rows: one row per
    device on six or more devices."""
    m = mesh.size * -(-6 // mesh.size)
    if not names:
        return (2 * m, m), (None, None)
    if turn == TURNS - 1:
        return (m, m), (names[::-1], None)
    specs = shardings(names)
    return (2 * m, m), specs[(number // TURNS + turn + len(mesh.names)) % len(specs)]


def lifted(way: str | None, mesh: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as the way needs it: of one matrix, of a batch, or of a stack of matrices inside shard_map."""
    last = mesh.axis_names[-1]
    if way == "batch":
        return jax.vmap(function, spmd_axis_name=last)
    if way == "between":

        def of_block(block: Any) -> Any:
            return jax.tree.map(lambda a: a[None], function(block[0]))

        return jax.shard_map(of_block, mesh=mesh, in_specs=P(last), out_specs=P(last), axis_names={last})
    return function


def called(way: str | None, function: Callable[..., Any], back: Any, given: Any) -> Any:
    """The results of a function in the shardings `back`, compiled or eager."""
    if way == "eager":
        return jax.device_put(function(*given), back)
    return jax.jit(function, out_shardings=back)(*given)


def cut(x: Any, turn: int) -> Any:
    """The part of the matrix that a function takes in this turn."""
    return x[1:, 1:] if turn == 2 else x[1:] if turn == 1 else x


def weight(shape: tuple[int, ...]) -> np.ndarray:
    """The weight of each element of a result in the sum that is differentiated: 1 to 5 in turns."""
    return np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5 + 1.0


def in_float64(group: str, name: str, x: np.ndarray, turn: int) -> tuple[np.ndarray, ...]:
    """The results of a function in NumPy, computed in float64."""
    found = outputs(GROUPS[group][name][1](np.array(cut(x, turn), np.float64)))
    return tuple(map(np.asarray, found))


@lru_cache(maxsize=4096)
def results_of(group: str, name: str, shape: tuple[int, ...], turn: int) -> tuple[tuple[Any, str], ...]:
    """(shape, dtype) of each result."""
    x = Argument(shape, "float32", (), regular, {}).block(0, every(shape))
    kinds = {"b": "bool", "i": "int32", "u": "int32"}
    return tuple((a.shape, kinds.get(a.dtype.kind, "float32")) for a in in_float64(group, name, x, turn))


class PartlySharded(Operation):
    """Cumulative functions, orders, reductions, reads, writes, reshapes, products and loops of a matrix that is sharded
    over some axes of a mesh, and of parts of it whose sizes do not divide."""

    name = "partly_sharded"
    family = "forms"
    level = "L2"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    sizes: ClassVar[dict[str, int]] = {"64B": 0}
    groups: ClassVar[tuple[str, ...]] = tuple(GROUPS)
    turns: ClassVar[tuple[int, ...]] = tuple(range(TURNS))
    alone: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "writes": ("mul", "min", "segment_prod", "segment_max", "segment_min", "bincount"),
    }
    """Functions that go wrong somewhere: they are not in their group, and have cases of their own."""
    without: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Functions that the operation does not have."""
    without_drawn: ClassVar[tuple[str, ...]] = ()
    """Those that it does not have of a matrix that is drawn."""
    halved: ClassVar[bool] = False
    """Whether the numbers lie between the whole ones."""
    apart_in: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "batch": ("hfft", "ihfft", "irfftn"),
        "between": ("histogram",),
    }
    """By way the functions that go wrong there: they have cases of their own."""
    not_in: ClassVar[Mapping[str, tuple[str, ...]]] = {
        # Devices take different branches, and on CPU a permutation waits for all of them; one carries a plain number.
        "between": ("until_large", "switch", "cond", "scanned_rows"),
    }
    """By way the functions that can't be in it."""
    every: ClassVar[Mapping[tuple[int, ...], int]] = {(2, 2, 2): 2, (2, 4): 2}
    """Of how many cases of a mesh the standard profile has one; of other meshes one in eight."""

    def taken(self, group: str, way: str | None = None) -> tuple[str, ...]:
        """The functions of a group that the operation has in this way."""
        without = (
            *self.without.get(group, ()),
            *(self.without_drawn if way else ()),
            *self.not_in.get(way or "", ()),
        )
        return tuple(name for name in GROUPS[group] if name not in without)

    def together(self, group: str, turn: int, mesh: MeshShape, way: str | None = None) -> tuple[str, ...]:
        """The functions of a group that share a program: one in four. Other turns and meshes have the others."""
        apart = (*self.alone.get(group, ()), *self.apart_in.get(way or "", ()))
        start = turn + 2 * len(mesh.names)
        return tuple(
            name
            for number, name in enumerate(GROUPS[group])
            if (number - start) % TURNS == 0 and name in self.taken(group, way) and name not in apart
        )

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        return self.light_variants(mesh, math.inf)

    def light_variants(self, mesh: MeshShape, most: float) -> Iterator[Variant]:
        if 1 in mesh.shape and mesh.size > 1:
            return
        own = 2 if mesh == preferred(mesh.size) else 0 if mesh.order or mesh.shape in ((3,), (6,)) else 1
        for number, group in enumerate(self.groups):
            for turn in range(TURNS):
                often = self.every.get(mesh.shape, 8)
                near = (number + turn + len(mesh.names) + mesh.shape[0]) % often == 0
                for way in (None, *WAYS):
                    usual = near and not mesh.order and way == "jit"
                    other = mesh == preferred(mesh.size) and self.turn_of(way, number) == turn
                    options: dict[str, Any] = {"group": group, "turn": turn} | ({"way": way} if way else {})
                    weight = own if usual else 2 if other else 3
                    if weight <= most and self.together(group, turn, mesh, way):
                        yield Variant.of(weight, **options)
                    for name in self.taken(group, way):
                        apart = name in self.alone.get(group, ()) and mesh.shape == (2, 2, 2) and turn == 1
                        known = other and name in self.apart_in.get(way or "", ())
                        # On other meshes and in other ways the groups are enough, also for the profile `full`.
                        full = 3 if way == "jit" and mesh == preferred(mesh.size) else 5
                        weight = own if apart and way == "jit" else 2 if known else full
                        if weight <= most:
                            yield Variant.of(weight, **options, function=name)

    @staticmethod
    def turn_of(way: str | None, number: int) -> int:
        """The turn in which the standard profile has a group in one of the other ways, -1 for none. Eager programs are
        slow, so only every second group has one."""
        if way == "eager":
            return 1 if number % 2 else -1
        return (number + WAYS.index(way)) % TURNS if way in STACKED else -1

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the time of a group of functions says nothing about one function."""
        yield from ()

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    def plan(self, request: Request) -> Plan:
        group, turn, way, own = (request.variant.get(n) for n in ("group", "turn", "way", "function"))
        mesh = request.mesh
        names = (own,) if own else self.together(group, turn, mesh, way)
        numbers = {name: number for number, name in enumerate(GROUPS[group])}
        stacked, fill = way in STACKED, drawn if way else regular
        arguments, results = [], []
        for name in names:
            shape, spec = placed(mesh, numbers[name], turn, mesh.names[:-1] if stacked else mesh.names)
            x = Argument(shape, "float32", spec, halves(fill) if self.halved else fill, {})
            found = self.results(group, name, x, turn, mesh)
            if stacked:
                n, last = mesh.shape[-1], mesh.names[-1]
                x = replace(x, shape=(n, *shape), spec=(last, *spec))
                found = [replace(r, shape=(n, *r.shape), spec=(last, *r.spec)) for r in found]
            arguments.append(x)
            results += found
        options = {
            "group": group,
            "names": names,
            "turn": turn,
            "way": way,
            "specs": tuple(r.spec for r in results),
            "places": tuple(a.spec for a in arguments),
            "kinds": tuple(r.dtype for r in results),
        }
        return Plan(tuple(arguments), tuple(results), options, judge="exact")

    def results(self, group: str, name: str, x: Argument, turn: int, mesh: MeshShape) -> list[Result]:
        """The results of a function: replicated in the first two turns, sharded like the argument in the last two."""
        found = []
        for shape, kind in results_of(group, name, x.shape, turn):
            spec = spread(shape, x, mesh.sizes) if turn > 1 else (None,) * len(shape)
            found.append(Result(shape, kind, spec))
        return found

    @staticmethod
    def host(mesh, *arrays, group, names, turn, way, specs, places, kinds):
        def all_of_them(*given):
            found = []
            for name, x in zip(names, given, strict=True):
                made = lifted(way, mesh, lambda y, name=name: outputs(GROUPS[group][name][0](cut(y, turn))))
                found += made(x)
            return tuple(a.astype(kind) for a, kind in zip(found, kinds, strict=True))

        there = [NamedSharding(mesh, P(*spec)) for spec in places]
        back = tuple(NamedSharding(mesh, P(*spec)) for spec in specs)
        given = [jax.device_put(x, place) for x, place in zip(arrays, there, strict=True)]
        return called(way, all_of_them, back, given)

    @staticmethod
    def reference(*arrays, group, names, turn, way):
        found = []
        for name, x in zip(names, arrays, strict=True):
            found += each(way, partial(in_float64, group, name, turn=turn), x)
        return tuple(found)


def each(way: str | None, function: Callable[..., Any], x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The results of a function of one matrix or, if the way has a stack, of each matrix of the stack."""
    if way not in STACKED:
        return function(x)
    return tuple(np.stack(parts) for parts in zip(*map(function, x), strict=True))


class PartlyShardedGradient(PartlySharded):
    """The gradients of functions of a matrix that is sharded over some axes of a mesh, and of parts of it whose sizes
    do not divide."""

    name = "partly_sharded_gradient"
    level = "L3"
    groups: ClassVar[tuple[str, ...]] = ("running", "orders", "reads", "writes", "shapes", "products")
    alone: ClassVar[Mapping[str, tuple[str, ...]]] = {"writes": ("min",)}
    without: ClassVar[Mapping[str, tuple[str, ...]]] = {
        # results are integers or step functions, or not of degree two
        "running": ("cumprod_back", "halved_sums"),
        "orders": (
            *("two_keys", "argsort_downward", "argmax", "argmin", "argmax_of_all", "lexsort", "searchsorted"),
            *("digitize", "unique"),
            # the gradient of a sort of uneven shards ends the process: see `sorted_rows`
            *("sort", "sort_downward", "median", "percentile", "quantile_of_all", "partition"),
        ),
        "reads": ("extract", "nonzero"),
        "writes": (
            *("apply", "segment_prod", "segment_max", "segment_min", "bincount", "histogram"),
            *("mul", "power"),
        ),
        "products": (
            *("of_bytes", "of_halves", "three", "repeated", "vander", "matrix_power"),
            *("inverse", "solve", "determinant", "cholesky"),
        ),
    }
    halved: ClassVar[bool] = True
    without_drawn: ClassVar[tuple[str, ...]] = ("cummax_back",)  # equal remainders share a derivative

    def results(self, group: str, name: str, x: Argument, turn: int, mesh: MeshShape) -> list[Result]:
        """The gradient: sharded like its argument in odd turns, replicated in even ones."""
        return [Result(x.shape, x.dtype, x.spec if turn % 2 else (None, None))]

    @staticmethod
    def host(mesh, *arrays, group, names, turn, way, specs, places, kinds):
        def total(name, x):
            found = outputs(GROUPS[group][name][0](cut(x, turn)))
            return sum((a * weight(a.shape).astype(a.dtype)).sum() for a in found if a.dtype.kind == "f")

        def all_of_them(*given):
            found = []
            for name, x in zip(names, given, strict=True):
                made = lifted(way, mesh, lambda y, name=name: total(name, y))
                found.append(jax.grad(lambda y, f=made: f(y).sum())(x))
            return tuple(found)

        there = [NamedSharding(mesh, P(*spec)) for spec in places]
        back = tuple(NamedSharding(mesh, P(*spec)) for spec in specs)
        given = [jax.device_put(x, place) for x, place in zip(arrays, there, strict=True)]
        return called(way, all_of_them, back, given)

    @staticmethod
    def reference(*arrays, group, names, turn, way):
        found = []
        for name, x in zip(names, arrays, strict=True):
            found += each(way, lambda m, name=name: (pulled(group, name, m, turn),), x)
        return tuple(found)


def pulled(group: str, name: str, x: np.ndarray, turn: int) -> np.ndarray:
    """The gradient of the weighted sum of a function's results, in NumPy."""

    def total(y: np.ndarray) -> np.ndarray:
        found = in_float64(group, name, y, turn)
        return np.sum([np.sum(a * weight(a.shape)) for a in found if a.dtype.kind == "f"])

    return pull(total, x.astype(np.float64), np.ones(()))
