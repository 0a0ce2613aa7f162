# SPDX-License-Identifier: Apache-2.0
"""Functions that move, cut, write, order or add up an array, whose results then get another sharding.

A partitioner may choose the shardings inside a program from the result backwards. So a function can be right in the
sharding of its argument and wrong where its result is constrained to another one. One program here has all functions
of a group, for one sharding of the argument and another of the results.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant

SIDE = 16
"""The length of each dimension of a matrix. Arrays of three and four dimensions have 8."""


def both(function: Callable[[Any, Any], Any]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """(JAX function, NumPy function) from one function whose first argument is the module."""
    return lambda x: function(jnp, x), lambda x: function(np, x)


def written(change: Callable[[Any, np.ndarray], None]) -> Callable[[np.ndarray], np.ndarray]:
    """A NumPy function that changes a copy of its argument. `change` gets the copy and the argument."""

    def run(x: np.ndarray) -> np.ndarray:
        made = x.copy()
        change(made, x)
        return made

    return run


def indices(x: Any) -> np.ndarray:
    """Indices of the last dimension in steps of five."""
    return np.arange(x.shape[-1]) * 5 % x.shape[-1]


def _shift_last(made: np.ndarray, x: np.ndarray) -> None:
    made[..., 1:] = x[..., :-1]


def _shift_first(made: np.ndarray, x: np.ndarray) -> None:
    made[:-2] = x[2:]


def _add_last(made: np.ndarray, x: np.ndarray) -> None:
    made[..., :-1] += x[..., 1:]


def _add_negative(made: np.ndarray, x: np.ndarray) -> None:
    made[1:] -= x[:-1]


def _write_block(made: np.ndarray, x: np.ndarray) -> None:
    made[2:5, ..., 1:4] = x[:3, ..., :3]


def _write_places(made: np.ndarray, x: np.ndarray) -> None:
    made[..., indices(x)] = x


def _add_places(made: np.ndarray, x: np.ndarray) -> None:
    np.add.at(made, (np.arange(len(x)) % 3,), x)


def _write_most(made: np.ndarray, x: np.ndarray) -> None:
    made[1:-1] = np.maximum(x[:-2], x[2:])


def _block_update(x: Any) -> Any:
    starts: list[Any] = [2, *[0] * (x.ndim - 2), jnp.int32(1)]
    return lax.dynamic_update_slice(x, x[:3, ..., :3], starts)


def _block_cut(x: Any) -> Any:
    return lax.dynamic_slice(x, (3, *[0] * (x.ndim - 2), jnp.int32(4)), (4, *x.shape[1:-1], 4))


UPDATES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "last rows shifted": (lambda x: x.at[..., 1:].set(x[..., :-1]), written(_shift_last)),
    "first rows shifted": (lambda x: x.at[:-2].set(x[2:]), written(_shift_first)),
    "neighbours added": (lambda x: x.at[..., :-1].add(x[..., 1:]), written(_add_last)),
    "neighbours subtracted": (lambda x: x.at[1:].add(-x[:-1]), written(_add_negative)),
    "block written": (_block_update, written(_write_block)),
    "places written": (lambda x: x.at[..., indices(x)].set(x), written(_write_places)),
    "places added": (lambda x: x.at[jnp.arange(len(x)) % 3].add(x), written(_add_places)),
    "inner rows written": (lambda x: x.at[1:-1].set(jnp.maximum(x[:-2], x[2:])), written(_write_most)),
}
"""Functions that write into an array what they read from it."""

MOVES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "rolled": both(lambda m, x: m.roll(x, 3, -1)),
    "rolled back": both(lambda m, x: m.roll(x, -1, 0)),
    "reversed": both(lambda m, x: x[::-1, ..., ::-1]),
    "joined": both(lambda m, x: m.concatenate([x[..., 1:], x[..., :1]], axis=-1)),
    "padded": both(lambda m, x: m.pad(x[..., 1:], [(0, 0)] * (x.ndim - 1) + [(0, 1)])),
    "cut": (_block_cut, lambda x: x[3:7, ..., 4:8]),
    "every second": both(lambda m, x: m.concatenate([x[..., ::2], x[..., 1::2]], axis=-1)),
    "taken": both(lambda m, x: m.take(x, indices(x), axis=-1)),
    "swapped": both(lambda m, x: m.swapaxes(x, 0, -1)),
    "stacked": both(lambda m, x: m.stack([x, -x], axis=1).reshape(2 * len(x), *x.shape[1:])),
    "halved": both(lambda m, x: x.reshape(len(x) // 2, 2, *x.shape[1:]).sum(axis=1, dtype=x.dtype)),
    "repeated": both(lambda m, x: m.repeat(x[: len(x) // 2], 2, axis=0)),
    "tiled": both(lambda m, x: m.concatenate([x[..., :4]] * (x.shape[-1] // 4), axis=-1)),
}
"""Functions that move the elements of an array, or some of them."""

ORDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sorted": both(lambda m, x: m.sort(x, axis=0)),
    "ordered": (
        lambda x: jnp.argsort(x, axis=-1, stable=True).astype(x.dtype),
        lambda x: np.argsort(x, axis=-1, kind="stable").astype(x.dtype),
    ),
    "running": both(lambda m, x: m.cumsum(x, axis=-1, dtype=x.dtype)),
    "largest so far": (
        lambda x: lax.cummax(x, axis=0, reverse=True),
        lambda x: np.maximum.accumulate(x[::-1], axis=0)[::-1],
    ),
    "differences": both(lambda m, x: m.diff(x, axis=-1, append=x[..., :1])),
    "chosen": both(lambda m, x: m.where(x > x[::-1], x, x[::-1])),
    "less the largest": both(lambda m, x: x - x.max(axis=-1, keepdims=True)),
    "outer": both(lambda m, x: x[:1] + x[..., :1]),
    "triangle": both(lambda m, x: m.tril(x, 1)),
    "counted": both(lambda m, x: x + (x[:1] == x).sum(axis=0, keepdims=True, dtype=x.dtype)),
}
"""Functions whose results need several rows."""

GROUPS = {"updates": UPDATES, "moves": MOVES, "orders": ORDERS}


def specs_of(mesh: MeshShape) -> tuple[Spec, ...]:
    """The shardings of an array over all axes of a mesh of two or three axes. Two axes shard a matrix. Three axes shard
    an array of three dimensions, or four of which one is whole."""
    if len(mesh.names) == 2:
        x, y = mesh.names
        return ((x, y), (y, x), ((x, y), None), (None, (x, y)), ((y, x), None), (None, (y, x)))
    x, y, z = mesh.names
    return (
        (x, None, y, z),
        (z, y, None, x),
        ((x, y), None, None, z),
        (None, z, (y, x), None),
        ((x, y, z), None, None, None),
        (None, None, x, (z, y)),
        (y, (x, z), None, None),
    )


def label_of(spec: Spec) -> str:
    """A spec as a label: x+y.0 for (("x", "y"), None)."""
    return ".".join("+".join((e,) if isinstance(e, str) else e) if e else "0" for e in spec)


class Resharded(Operation):
    """Functions of an array in one sharding, whose results get another sharding."""

    name = "resharded"
    family = "arrays"
    level = "L2"
    modes: ClassVar[tuple[str, ...]] = ("auto",)
    dtypes: ClassVar[tuple[str, ...]] = ("int32",)
    sizes: ClassVar[dict[str, int]] = {"n16": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """Every two different shardings over all axes. The standard profile has each of them in one group, in turns,
        and the updates in all."""
        if len(mesh.names) < 2 or 1 in mesh.shape or SIDE // 2 % mesh.size:
            return
        matrix = len(mesh.names) == 2
        for number, (here, there) in enumerate(itertools.permutations(specs_of(mesh), 2)):
            for turn, group in enumerate(GROUPS):
                often = turn == number % 3 or (group == "updates" and matrix)
                weight = 3
                if matrix and mesh == preferred(mesh.size):
                    weight = 2 if often else 3
                elif mesh.shape == (2, 2, 2):
                    weight = 1 if often and number % 4 == 0 else 3
                yield Variant.of(weight, group=group, here=label_of(here), there=label_of(there))

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the benchmarks time functions one by one."""
        yield from ()

    def plan(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        by_label = {label_of(spec): spec for spec in specs_of(mesh)}
        here, there = by_label[variant["here"]], by_label[variant["there"]]
        shape = (SIDE,) * 2 if len(here) == 2 else (8,) * len(here)
        x = Argument(shape, request.dtype, here, values.summands, {"terms": 64})
        functions = GROUPS[variant["group"]]
        sample = np.zeros(shape, np.int32)
        results = []
        for _, defined in functions.values():
            found = defined(sample).shape
            results.append(Result(found, request.dtype, fitting(there, found, mesh)))
        options = {"group": variant["group"], "specs": tuple(r.spec for r in results)}
        return Plan((x,), tuple(results), options, judge="exact", placed=False)

    @staticmethod
    def auto(x, *, group, specs):
        mesh = jax.typeof(x).sharding.mesh
        found = [function(x) for function, _ in GROUPS[group].values()]
        return tuple(
            lax.with_sharding_constraint(y, NamedSharding(mesh, P(*spec)))
            for y, spec in zip(found, specs, strict=True)
        )

    @staticmethod
    def reference(x, *, group):
        return tuple(defined(x) for _, defined in GROUPS[group].values())


def fitting(spec: Spec, shape: tuple[int, ...], mesh: MeshShape) -> Spec:
    """The spec without the entries of dimensions that their axes do not divide."""
    return tuple(
        entry if entry and n % mesh.product((entry,) if isinstance(entry, str) else entry) == 0 else None
        for entry, n in zip(spec, shape, strict=True)
    )
