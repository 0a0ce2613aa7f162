# SPDX-License-Identifier: Apache-2.0
"""Every collective, its gradient, and every function that moves or orders data, of every dtype on every mesh.

A fault may need three coordinates together: one collective, one dtype and one mesh. The covering arrays cover pairs
(`meshmark.operations.pairs`). Here one program per mesh and group of dtypes holds everything, so that each such triple
is judged.

A block is [m, 3m] on m devices. Integers use all their bits and wrap; floats are small whole numbers, so that sums are
exact. The results of collectives are one array per dtype, with one row per device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.layout import split
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import PUT_FROM_ONE_PROCESS, Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.collective_base import groups_of
from meshmark.operations.functions.catalogue import spread

KINDS = {
    "usual": ("float32", "bfloat16", "float16", "int32", "int8", "uint8", "bool"),
    "rare": ("int16", "uint16", "uint32"),
}
"""The dtypes of a variant."""

TURNS = {kind: number for number, kind in enumerate((*KINDS["usual"], *KINDS["rare"]))}
"""The turn of each dtype."""


def ring(n):
    """(source, target) pairs: every device sends to the next one."""
    return [(i, (i + 1) % n) for i in range(n)]


def some(n):
    """(source, target) pairs: the first device sends to the last, and the last to the second. A device that receives
    nothing gets zeros."""
    return [(0, n - 1), (n - 1, 1)][: n - 1]


CALLS: dict[str, Callable[..., Any]] = {
    "psum": lambda b, a, n: lax.psum(b, a),
    "pmax": lambda b, a, n: lax.pmax(b, a),
    "pmin": lambda b, a, n: lax.pmin(b, a),
    "gather_rows": lambda b, a, n: lax.all_gather(b, a, tiled=True),
    "gather_columns": lambda b, a, n: lax.all_gather(b, a, axis=1, tiled=True),
    "gather_between": lambda b, a, n: lax.all_gather(b, a, axis=1),
    "scatter_rows": lambda b, a, n: lax.psum_scatter(b, a, tiled=True),
    "scatter_columns": lambda b, a, n: lax.psum_scatter(b, a, scatter_dimension=1, tiled=True),
    "columns_to_rows": lambda b, a, n: lax.all_to_all(b, a, 1, 0, tiled=True),
    "rows_to_columns": lambda b, a, n: lax.all_to_all(b, a, 0, 1, tiled=True),
    "ring": lambda b, a, n: lax.ppermute(b, a, ring(n)),
    "some": lambda b, a, n: lax.ppermute(b, a, some(n)),
}
"""Name -> the collective of a block over n devices of an axis."""

SUMS = ("psum", "scatter_rows", "scatter_columns")


def added(blocks):
    """The sum, in the dtype of the blocks."""
    total = blocks[0]
    for block in blocks[1:]:
        total = total + block
    return total


def sent(blocks, pairs):
    """The block of each member after a permutation."""
    sources = {target: source for source, target in pairs}
    return [blocks[sources[i]] if i in sources else np.zeros_like(b) for i, b in enumerate(blocks)]


def exchanged(blocks, dim, other):
    """All-to-all in NumPy: blocks are split along `dim`, and each member joins its parts along `other`."""
    parts = [np.split(b, len(blocks), axis=dim) for b in blocks]
    return [np.concatenate([p[i] for p in parts], axis=other) for i in range(len(blocks))]


def defined(call, blocks):
    """The result of each member of a group, in NumPy."""
    n = len(blocks)
    if call == "psum":
        return [added(blocks)] * n
    if call in ("pmax", "pmin"):
        return [(np.max if call == "pmax" else np.min)(np.stack(blocks), axis=0)] * n
    if call == "gather_between":
        return [np.stack(blocks, axis=1)] * n
    if call.startswith("gather"):
        return [np.concatenate(blocks, axis=int(call == "gather_columns"))] * n
    if call.startswith("scatter"):
        return np.split(added(blocks), n, axis=int(call == "scatter_columns"))
    if call == "columns_to_rows":
        return exchanged(blocks, 1, 0)
    if call == "rows_to_columns":
        return exchanged(blocks, 0, 1)
    return sent(blocks, ring(n) if call == "ring" else some(n))


BACK = {
    "psum": "psum",
    "gather_rows": "scatter_rows",
    "gather_columns": "scatter_columns",
    "scatter_rows": "gather_rows",
    "scatter_columns": "gather_columns",
    "columns_to_rows": "rows_to_columns",
    "rows_to_columns": "columns_to_rows",
}
"""The collective that carries the gradient of another."""


def pulled(call, blocks):
    """The gradient of a collective: the cotangents of the members' blocks, given those of their results."""
    if call in BACK:
        return defined(BACK[call], blocks)
    if call == "gather_between":
        total = added(blocks)
        return [total[:, i] for i in range(len(blocks))]
    pairs = ring(len(blocks)) if call == "ring" else some(len(blocks))
    return sent(blocks, [(target, source) for source, target in pairs])


def over_axes(function, blocks, sizes, axes):
    """The results of a function of a group's blocks, applied to every group of the axes: one flat array per device."""
    found: list[Any] = [None] * len(blocks)
    for group in groups_of(sizes, axes):
        for position, block in zip(group, function([blocks[p] for p in group]), strict=True):
            found[position] = block.reshape(-1)
    return found


def choices(mesh: MeshShape) -> tuple[tuple[str, ...], ...]:
    """The choices of axes. The preferred mesh has each axis alone, all axes, and all axes in reverse order. Other
    meshes have the last axis alone and all axes."""
    names = mesh.names
    if len(names) == 1:
        return (names,)
    if mesh != preferred(mesh.size):
        return (names[-1:], names)
    return (*((a,) for a in names), names, names[::-1])


class Grid(Operation):
    """The base of the grids: one program per mesh and group of dtypes."""

    family = "forms"
    level = "L1"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    sizes: ClassVar[dict[str, int]] = {"64B": 0}
    kinds: ClassVar[tuple[str, ...]] = ("usual", "rare")
    calls: ClassVar[tuple[str, ...]] = tuple(CALLS)

    def usual(self, mesh: MeshShape, kinds: str) -> bool:
        """Whether the standard profile has these dtypes on a mesh. It has them on every mesh without an axis of size
        1."""
        return 1 not in mesh.shape

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        first, odd = mesh == preferred(mesh.size), mesh in (MeshShape((3,)), MeshShape((6,)))
        own = 0 if odd or mesh.order else 2 if first else 1  # 2 together with the mesh's own weight
        for kinds in self.kinds:
            yield Variant.of(own if self.usual(mesh, kinds) else 3, kinds=kinds)
            for call in self.calls:
                yield Variant.of(3, kinds=kinds, call=call)

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the benchmarks time collectives and functions one by one."""
        yield from ()

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS


def given(request: Request) -> tuple[Argument, ...]:
    """One argument per dtype, [m * m, 3m]: a block of m rows per device."""
    mesh, m = request.mesh, request.mesh.size
    arguments = []
    for kind in KINDS[request.variant["kinds"]]:
        whole = kind == "bool" or "int" in kind
        fill: Any = (values.distinct, {}) if whole else (values.summands, {"terms": m + 1})
        arguments.append(Argument((m * m, 3 * m), kind, (mesh.names, None), *fill))
    return tuple(arguments)


def makes(call: str, kind: str) -> bool:
    """Whether a collective takes a dtype. Booleans have no sums."""
    return kind != "bool" or call not in SUMS


def pairs_of(calls, axes, kind):
    """The (collective, axes) pairs of a dtype. If there are two choices of axes, collectives and dtypes take them in
    turns. JAX refuses a permutation over axes in another order than the mesh's."""
    return [
        (call, a)
        for call in calls
        for number, a in enumerate(axes)
        if makes(call, kind)
        and (call not in ("ring", "some") or list(a) == sorted(a))
        and (len(axes) != 2 or ([*CALLS].index(call) + TURNS[kind] + number) % 2)
    ]


def size_of(call: str, n: int, block: int) -> int:
    """The elements per device after a collective of blocks of `block` elements over n devices."""
    return block * n if call.startswith("gather") else block // n if call.startswith("scatter") else block


class CollectiveGrid(Grid):
    """Every collective of every dtype over every axis of a mesh, in one program."""

    name = "collective_grid"

    def plan(self, request: Request) -> Plan:
        mesh, own = request.mesh, request.variant.get("call")
        calls = (own,) if own else self.calls
        arguments = tuple(a for a in given(request) if any(makes(call, a.dtype) for call in calls))
        results = tuple(
            Result((mesh.size, self.length(calls, a.dtype, mesh)), a.dtype, (mesh.names, None))
            for a in arguments
        )
        options = {"calls": calls, "axes": choices(mesh), "sizes": dict(mesh.sizes)}
        return Plan(arguments, results, options, judge="bits")

    def length(self, calls: tuple[str, ...], kind: str, mesh: MeshShape) -> int:
        """The elements per device of all results of a dtype."""
        pairs = pairs_of(calls, choices(mesh), kind)
        return sum(size_of(call, mesh.product(a), 3 * mesh.size**2) for call, a in pairs)

    @staticmethod
    def host(mesh, *arrays, calls, axes):
        def local(*blocks):
            done = []
            for b in blocks:
                parts = [
                    CALLS[call](b, a, math.prod(mesh.shape[name] for name in a)).reshape(-1)
                    for call, a in pairs_of(calls, axes, str(b.dtype))
                ]
                done.append(jnp.concatenate(parts)[None])
            return tuple(done)

        rows = P(mesh.axis_names, None)
        mapped = jax.shard_map(local, mesh=mesh, in_specs=rows, out_specs=rows)
        return jax.jit(mapped)(*(jax.device_put(x, NamedSharding(mesh, rows)) for x in arrays))

    @staticmethod
    def reference(*arrays, calls, axes, sizes):
        return in_blocks(defined, arrays, calls, axes, sizes)


def in_blocks(function, arrays, calls, axes, sizes):
    """One array per dtype with one row per device: the results of `function(call, blocks)` for all pairs, joined."""
    done = []
    for x in arrays:
        blocks = split(x, (tuple(sizes), None), sizes)
        parts = [
            over_axes(functools.partial(function, call), blocks, sizes, a)
            for call, a in pairs_of(calls, axes, str(x.dtype))
        ]
        done.append(np.stack([np.concatenate(of_device) for of_device in zip(*parts, strict=True)]))
    return tuple(done)


class CollectiveGradientGrid(Grid):
    """The gradient of every collective but pmax and pmin over every axis of a mesh, in float32 and bfloat16, in one
    program. check_vma is on and off in turns; on a multiple of three devices it is on."""

    name = "collective_gradient_grid"
    level = "L3"
    kinds: ClassVar[tuple[str, ...]] = ("floats",)
    calls: ClassVar[tuple[str, ...]] = tuple(call for call in CALLS if call not in ("pmax", "pmin"))

    def plan(self, request: Request) -> Plan:
        mesh, own = request.mesh, request.variant.get("call")
        calls, m = (own,) if own else self.calls, mesh.size
        arguments = tuple(
            Argument((m * m, 3 * m), kind, (mesh.names, None), values.summands, {"terms": m + 1})
            for kind in ("float32", "bfloat16")
        )
        results = tuple(
            Result((m, 3 * m**2 * len(pairs_of(calls, choices(mesh), a.dtype))), a.dtype, (mesh.names, None))
            for a in arguments
        )
        options = {"calls": calls, "axes": choices(mesh), "sizes": dict(mesh.sizes)}
        return Plan(arguments, results, options, judge="bits")

    @staticmethod
    def host(mesh, *arrays, calls, axes):
        rows = P(mesh.axis_names, None)

        def weighted(x, y, call, a, checked):
            n = math.prod(mesh.shape[name] for name in a)

            def local(b, c):
                found = CALLS[call](b, a, n)
                return found * jnp.resize(c, found.shape)

            out = P(mesh.axis_names, *(None,) * (1 + (call == "gather_between")))
            f = jax.shard_map(local, mesh=mesh, in_specs=(rows, rows), out_specs=out, check_vma=checked)
            return f(x, y).sum()

        def gradients(*given):
            done = []
            for x in given:
                parts = []
                for number, (call, a) in enumerate(pairs_of(calls, axes, str(x.dtype))):
                    checked = mesh.size % 3 == 0 or number % 2 == 0
                    found = jax.grad(weighted)(0 * x, x, call, a, checked)
                    parts.append(found.reshape(mesh.size, -1))
                done.append(jnp.concatenate(parts, axis=1))
            return tuple(done)

        place = NamedSharding(mesh, rows)
        return jax.jit(gradients, out_shardings=place)(*(jax.device_put(x, place) for x in arrays))

    @staticmethod
    def reference(*arrays, calls, axes, sizes):
        return in_blocks(of_weights, arrays, calls, axes, sizes)


def of_weights(call, blocks):
    """The gradient of a weighted sum of the results of a collective. The weights are the blocks, resized."""
    shapes = [found.shape for found in defined(call, blocks)]
    return pulled(call, [np.resize(b, shape) for b, shape in zip(blocks, shapes, strict=True)])


# Functions of whole arrays.


def in_order(m, x):
    """Row indices in steps of five, modulo the number of rows."""
    return m.arange(len(x)) * 5 % len(x)


def both(function):
    """(JAX function, NumPy function) from one function whose first argument is the module."""
    return lambda x: function(jnp, x), lambda x: function(np, x)


def written(x):
    """The first two rows, written over the second and the last row."""
    x = x.copy()
    x[[1, -1]] = x[:2]
    return x


def updated(x):
    """The first three rows and columns, written over another block."""
    x = x.copy()
    x[2:5, 1:4] = x[:3, :3]
    return x


def counted(x):
    """Every row, added to one of the first three rows."""
    found = x.copy()
    for i, row in enumerate(x):
        found[i % 3] += row
    return found


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "rolled": both(lambda m, x: m.roll(x, 3, 0)),
    "reversed": both(lambda m, x: x[::-1, ::-2]),
    "shifted": both(lambda m, x: m.concatenate([x[1:], x[:1]])),
    "turned": both(lambda m, x: x.T),
    "sorted": both(lambda m, x: m.sort(x, axis=0)),
    "ordered": (
        lambda x: jnp.argsort(x, axis=0, stable=True),
        lambda x: np.argsort(x, axis=0, kind="stable").astype(np.int32),
    ),
    "running": both(lambda m, x: m.cumsum(x, axis=0, dtype=x.dtype)),
    "summed": both(lambda m, x: m.sum(x, axis=0, dtype=x.dtype)),
    "largest": both(lambda m, x: m.max(x, axis=0)),
    "least": both(lambda m, x: m.min(x, axis=1)),
    "first": both(lambda m, x: m.argmax(x, axis=0).astype(m.int32)),
    "taken": both(lambda m, x: m.take(x, in_order(m, x), axis=0)),
    "written": (lambda x: x.at[jnp.array([1, -1])].set(x[:2]), written),
    "counted": (lambda x: x.at[jnp.arange(len(x)) % 3].add(x), counted),
    "cut": (lambda x: lax.dynamic_slice(x, (3, jnp.int32(1)), (5, 3)), lambda x: x[3:8, 1:4]),
    "updated": (lambda x: lax.dynamic_update_slice(x, x[:3, :3], (2, jnp.int32(1))), updated),
    "repeated": both(lambda m, x: m.repeat(x, 2, axis=0)),
    "folded": both(lambda m, x: m.reshape(x, (len(x) // 2, -1))),
    "chosen": both(lambda m, x: m.where(x > x[::-1], x, x[::-1])),
    "padded": both(lambda m, x: m.pad(x, ((1, 2), (0, 1)))),
}
"""Name -> (the function of an array in JAX, its definition in NumPy)."""

ADDITIVE = ("running", "summed", "counted")
"""Those that add up; booleans have none."""


class FunctionGrid(Grid):
    """Every function that moves, orders or counts, of every dtype on a mesh, in one program. The rows are sharded over
    the last axis."""

    name = "function_grid"
    level = "L2"
    calls: ClassVar[tuple[str, ...]] = tuple(FUNCTIONS)

    def usual(self, mesh: MeshShape, kinds: str) -> bool:
        """Whether the standard profile has these dtypes: the usual ones on the preferred mesh, on meshes of three axes
        and on six devices, the rare ones on the other meshes."""
        often = mesh == preferred(mesh.size) or len(mesh.shape) == 3 or mesh.size == 6
        return super().usual(mesh, kinds) and often == (kinds == "usual")

    def plan(self, request: Request) -> Plan:
        mesh, own = request.mesh, request.variant.get("call")
        names = (own,) if own else self.calls
        m = max(mesh.size, 2)  # the functions need eight rows of six
        rows = 4 * m
        arguments, results = [], []
        for a in given(request):
            fill = a.options and {"terms": rows + 1}
            x = Argument((rows, 3 * m), a.dtype, (mesh.names[-1], None), a.fill, fill)
            arguments.append(x)
            sample = x.block(0, values.whole(x.shape))
            for name in names:
                if a.dtype != "bool" or name not in ADDITIVE:
                    found = FUNCTIONS[name][1](sample)
                    kind = a.dtype if found.dtype == sample.dtype else "int32"
                    results.append(Result(found.shape, kind, spread(found.shape, x, mesh.sizes)))
        options = {"names": names, "specs": tuple(r.spec for r in results)}
        return Plan(tuple(arguments), tuple(results), options, judge="bits")

    @staticmethod
    def host(mesh, *arrays, names, specs):
        def all_of_them(*given):
            return tuple(
                FUNCTIONS[name][0](x)
                for x in given
                for name in names
                if x.dtype != bool or name not in ADDITIVE
            )

        places = tuple(NamedSharding(mesh, P(*spec)) for spec in specs)
        row = NamedSharding(mesh, P(mesh.axis_names[-1]))
        return jax.jit(all_of_them, out_shardings=places)(*(jax.device_put(x, row) for x in arrays))

    @staticmethod
    def reference(*arrays, names):
        return tuple(
            FUNCTIONS[name][1](x) for x in arrays for name in names if x.dtype != bool or name not in ADDITIVE
        )
