# SPDX-License-Identifier: Apache-2.0
"""Functions of a matrix that is sharded over some axes of a mesh alone, and of parts of it of uneven sizes.

A partitioner goes wrong where a mesh axis is left over, where a dimension does not divide, and where a shard has one
row. One program holds some functions of a group, each of its own argument. There are four turns: the matrix as it is,
without its first row, without its first row and column, and with one row for each device. The functions of a group take
turns on a mesh, and other ones on another mesh. From turn to turn a function takes the next sharding: of rows over the
last axis, of columns over the first one, of rows over several axes in another order than the mesh's, of both. Results
are whole, or sharded where devices divide them.

The gradients are those of a weighted sum, of numbers that lie between the whole ones: there functions that take
remainders have no steps. NumPy takes them from differences, which are exact (`polynomials`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape, preferred
from meshmark.core.values import whole as every
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.catalogue import outputs, spread
from meshmark.operations.partly_sharded_functions import ORDERS, READS, REDUCED, RUNNING, Functions
from meshmark.operations.partly_sharded_writes import LOOPS, PRODUCTS, SHAPES, WRITES
from meshmark.operations.polynomials import pull

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


def shuffled(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype) -> np.ndarray:
    """Every whole number below the size of the array once."""
    size = int(np.prod(shape))
    step = next(k for k in range(size * 5 // 8 | 1, 2 * size) if np.gcd(k, size) == 1)
    return (index.astype(np.int64) * step % size).astype(dtype)


def halves(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype) -> np.ndarray:
    """The same, and a half."""
    return shuffled(bits, index, shape, dtype) + dtype.type(0.5)


def shardings(names: tuple[str, ...]) -> tuple[Spec, ...]:
    """Of rows, of columns, of rows over several axes in another order, of both; of one axis the first two."""
    first, last = names[0], names[-1]
    rows, columns = (last, None), (None, first)
    return (rows, columns) if first == last else (rows, columns, ((last, first), None), (first, last))


def placed(mesh: MeshShape, number: int, turn: int) -> tuple[tuple[int, int], Spec]:
    """Shape and sharding of the argument of a function: one row for each device in the last turn."""
    m = mesh.size * -(-6 // mesh.size)
    if turn == TURNS - 1:
        return (m, m), (mesh.names[::-1], None)
    specs = shardings(mesh.names)
    return (2 * m, m), specs[(number // TURNS + turn + len(mesh.names)) % len(specs)]


def cut(x: Any, turn: int) -> Any:
    """The part of the matrix that a function takes."""
    return x[1:, 1:] if turn == 2 else x[1:] if turn == 1 else x


def weight(shape: tuple[int, ...]) -> np.ndarray:
    """What each element of a result counts in the sum of which there is a gradient: 1 to 5."""
    return np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5 + 1.0


def in_float64(group: str, name: str, x: np.ndarray, turn: int) -> tuple[np.ndarray, ...]:
    """The results of a function in NumPy."""
    found = outputs(GROUPS[group][name][1](np.array(cut(x, turn), np.float64)))
    return tuple(map(np.asarray, found))


@lru_cache(maxsize=4096)
def results_of(group: str, name: str, shape: tuple[int, ...], turn: int) -> tuple[tuple[Any, str], ...]:
    """Shape and dtype of each result."""
    x = Argument(shape, "float32", (), shuffled, {}).block(0, every(shape))
    kinds = {"b": "bool", "i": "int32", "u": "int32"}
    return tuple((a.shape, kinds.get(a.dtype.kind, "float32")) for a in in_float64(group, name, x, turn))


class PartlySharded(Operation):
    """Running functions, orders, reductions, reads, writes, reshapes, products and loops of a matrix that is sharded
    over some axes of a mesh, whole and in parts of uneven sizes."""

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
    fill: ClassVar[Any] = staticmethod(shuffled)
    every: ClassVar[Mapping[tuple[int, ...], int]] = {(2, 2, 2): 2, (2, 4): 2}
    """Of how many cases of a mesh the standard profile has one; of other meshes one in eight."""

    def taken(self, group: str) -> tuple[str, ...]:
        """The functions of a group that the operation has."""
        return tuple(name for name in GROUPS[group] if name not in self.without.get(group, ()))

    def together(self, group: str, turn: int, mesh: MeshShape) -> tuple[str, ...]:
        """The functions of a group that share a program: one in four, others in another turn and on another mesh."""
        apart = self.alone.get(group, ())
        start = turn + 2 * len(mesh.names)
        return tuple(
            name
            for number, name in enumerate(GROUPS[group])
            if (number - start) % TURNS == 0 and name in self.taken(group) and name not in apart
        )

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if 1 in mesh.shape and mesh.size > 1:
            return
        own = 2 if mesh == preferred(mesh.size) else 0 if mesh.order or mesh.shape in ((3,), (6,)) else 1
        for number, group in enumerate(self.groups):
            for turn in range(TURNS):
                often = self.every.get(mesh.shape, 8)
                near = (number + turn + len(mesh.names) + mesh.shape[0]) % often == 0
                if self.together(group, turn, mesh):
                    yield Variant.of(own if near and not mesh.order else 3, group=group, turn=turn)
                for name in self.taken(group):
                    apart = name in self.alone.get(group, ()) and mesh.shape == (2, 2, 2) and turn == 1
                    yield Variant.of(own if apart else 3, group=group, turn=turn, function=name)

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: a group of functions has no speed of interest."""
        yield from ()

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return "the input is put from one process"

    def plan(self, request: Request) -> Plan:
        group, turn, own = (request.variant.get(n) for n in ("group", "turn", "function"))
        mesh = request.mesh
        names = (own,) if own else self.together(group, turn, mesh)
        numbers = {name: number for number, name in enumerate(GROUPS[group])}
        arguments, results = [], []
        for name in names:
            shape, spec = placed(mesh, numbers[name], turn)
            x = Argument(shape, "float32", spec, type(self).fill, {})
            arguments.append(x)
            results += self.results(group, name, x, turn, mesh)
        options = {
            "group": group,
            "names": names,
            "turn": turn,
            "specs": tuple(r.spec for r in results),
            "places": tuple(a.spec for a in arguments),
            "kinds": tuple(r.dtype for r in results),
        }
        return Plan(tuple(arguments), tuple(results), options, judge="exact")

    def results(self, group: str, name: str, x: Argument, turn: int, mesh: MeshShape) -> list[Result]:
        """Whole in the first turns, and sharded as the argument is in the last ones."""
        found = []
        for shape, kind in results_of(group, name, x.shape, turn):
            spec = spread(shape, x, mesh.sizes) if turn > 1 else (None,) * len(shape)
            found.append(Result(shape, kind, spec))
        return found

    @staticmethod
    def host(mesh, *arrays, group, names, turn, specs, places, kinds):
        def all_of_them(*given):
            found = []
            for name, x in zip(names, given, strict=True):
                found += outputs(GROUPS[group][name][0](cut(x, turn)))
            return tuple(a.astype(kind) for a, kind in zip(found, kinds, strict=True))

        there = [NamedSharding(mesh, P(*spec)) for spec in places]
        back = tuple(NamedSharding(mesh, P(*spec)) for spec in specs)
        given = [jax.device_put(x, place) for x, place in zip(arrays, there, strict=True)]
        return jax.jit(all_of_them, out_shardings=back)(*given)

    @staticmethod
    def reference(*arrays, group, names, turn):
        return tuple(
            found for name, x in zip(names, arrays, strict=True) for found in in_float64(group, name, x, turn)
        )


class PartlyShardedGradient(PartlySharded):
    """The gradients of functions of a matrix that is sharded over some axes of a mesh, whole and in parts of uneven
    sizes."""

    name = "partly_sharded_gradient"
    level = "L3"
    groups: ClassVar[tuple[str, ...]] = ("running", "orders", "reads", "writes", "shapes", "products")
    alone: ClassVar[Mapping[str, tuple[str, ...]]] = {"writes": ("min",)}
    without: ClassVar[Mapping[str, tuple[str, ...]]] = {
        # whole numbers, steps alone, or no difference of degree two
        "running": ("cumprod_back", "halved_sums"),
        "orders": (
            *("two_keys", "argsort_downward", "argmax", "argmin", "argmax_of_all", "lexsort", "searchsorted"),
            *("digitize", "unique"),
            # the gradient of a sort of uneven shards ends the process: `sorted_rows`
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
    fill: ClassVar[Any] = staticmethod(halves)

    def results(self, group: str, name: str, x: Argument, turn: int, mesh: MeshShape) -> list[Result]:
        """As its argument, or whole."""
        return [Result(x.shape, x.dtype, x.spec if turn % 2 else (None, None))]

    @staticmethod
    def host(mesh, *arrays, group, names, turn, specs, places, kinds):
        def total(name, x):
            found = outputs(GROUPS[group][name][0](cut(x, turn)))
            return sum((a * weight(a.shape).astype(a.dtype)).sum() for a in found if a.dtype.kind == "f")

        def all_of_them(*given):
            return tuple(
                jax.grad(lambda y, name=name: total(name, y))(x) for name, x in zip(names, given, strict=True)
            )

        there = [NamedSharding(mesh, P(*spec)) for spec in places]
        back = tuple(NamedSharding(mesh, P(*spec)) for spec in specs)
        given = [jax.device_put(x, place) for x, place in zip(arrays, there, strict=True)]
        return jax.jit(all_of_them, out_shardings=back)(*given)

    @staticmethod
    def reference(*arrays, group, names, turn):
        return tuple(pulled(group, name, x, turn) for name, x in zip(names, arrays, strict=True))


def pulled(group: str, name: str, x: np.ndarray, turn: int) -> np.ndarray:
    """The gradient of the weighted sum of a function's results."""

    def total(y: np.ndarray) -> np.ndarray:
        found = in_float64(group, name, y, turn)
        return np.sum([np.sum(a * weight(a.shape)) for a in found if a.dtype.kind == "f"])

    return pull(total, x.astype(np.float64), np.ones(()))
