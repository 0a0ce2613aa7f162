# SPDX-License-Identifier: Apache-2.0
"""Collectives over every choice of mesh axes, in both orders, of every dtype. Some add or remove a dimension. Others
are sums of single numbers, swaps, shuffles, and permutations that reach few devices.

A fault may need one collective, one dtype and one choice of axes together: the middle axis of three, the first and the
last, or two in another order. `grids` has the plain collectives over fewer choices of axes. One program here has all
collectives of one, two or five dtypes on one mesh. Values are those of `grids`: integers wrap, and sums of floats are
exact.
"""

from __future__ import annotations

import functools
import itertools
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
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import split
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import PUT_FROM_ONE_PROCESS, Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.collectives.grids import added, exchanged, over_axes, ring, sent

KINDS = ("float32", "int8", "float16", "int32", "bfloat16", "uint8", "bool", "uint32", "int16", "uint16")
"""The dtypes, in the order in which two share a program."""


def few(n):
    """(source, target) pairs: the first device sends to itself, the second to the last. The others get zeros."""
    return [(0, 0), (1, n - 1)][: 1 + (n > 2)]


def swap(n):
    """(source, target) pairs: the first and the last device exchange their blocks."""
    return [(0, n - 1), (n - 1, 0)]


def steps(n):
    """The sources of a shuffle: every device takes the block of the next one."""
    return [(i + 1) % n for i in range(n)]


def small(b):
    """Floats clipped to [-4, 4], so that a rounded mean still determines their sum. Integers are unchanged."""
    if "float" not in str(b.dtype):
        return b
    m = np if isinstance(b, np.ndarray) else jnp
    return m.clip(b.astype(np.float32), -4, 4).astype(b.dtype)


def whole_again(mean, n):
    """The sum as int32: a mean times the number of devices, rounded."""
    return jnp.round(mean.astype(jnp.float32) * n).astype(jnp.int32)


CALLS: dict[str, Callable[..., Any]] = {
    "sum": lambda b, a, n: lax.psum(b, a),
    "sum_number": lambda b, a, n: lax.psum(b[0, 0], a),
    "mean": lambda b, a, n: lax.pmean(small(b), a),
    "most": lambda b, a, n: lax.pmax(b, a),
    "least": lambda b, a, n: lax.pmin(b, a),
    "gather_new": lambda b, a, n: lax.all_gather(b, a),
    "gather_rows": lambda b, a, n: lax.all_gather(b, a, tiled=True),
    "scatter_rows": lambda b, a, n: lax.psum_scatter(b, a, tiled=True),
    "scatter_row": lambda b, a, n: lax.psum_scatter(b[:n], a),
    "scatter_column": lambda b, a, n: lax.psum_scatter(b[:, :n], a, scatter_dimension=1),
    "exchange_new": lambda b, a, n: lax.all_to_all(b[:n], a, 0, 1),
    "exchange_columns": lambda b, a, n: lax.all_to_all(b, a, 1, 0, tiled=True),
    "swap_rows": lambda b, a, n: lax.pswapaxes(b[:n], a, 0),
    "swap_columns": lambda b, a, n: lax.pswapaxes(b[:, :n], a, 1),
    "ring": lambda b, a, n: lax.ppermute(b, a, ring(n)),
    "few": lambda b, a, n: lax.ppermute(b, a, few(n)),
    "two": lambda b, a, n: lax.ppermute(b, a, swap(n)),
    "ring_number": lambda b, a, n: lax.ppermute(b[0, 0], a, ring(n)),
    "shuffle": lambda b, a, n: lax.pshuffle(b, a, steps(n)),
    "place": lambda b, a, n: b[0] * 0 + lax.axis_index(a).astype(b.dtype),
}
"""Name -> the collective of a block over n devices of some axes."""

SUMS = ("sum", "sum_number", "mean", "scatter_rows", "scatter_row", "scatter_column", "place")
"""Those that booleans lack."""

PLAIN = ("sum", "most", "least", "gather_rows", "scatter_rows", "exchange_columns", "ring")
"""Those that `grids` has, over every choice of axes on a mesh of one axis and on the preferred one."""

WIDE = ("int32", "uint32")
"""Those whose means float32 cannot tell apart."""

PAIRS = ("ring", "few", "two", "ring_number", "shuffle")
"""JAX refuses these over axes in another order than the mesh's."""


def defined(call, blocks):
    """The result of each member of a group, in NumPy."""
    n = len(blocks)
    rows, columns = [b[:n] for b in blocks], [b[:, :n] for b in blocks]
    alike: dict[str, Callable[[], Any]] = {
        "sum": lambda: added(blocks),
        "sum_number": lambda: added(blocks)[0, 0],
        "mean": lambda: added([small(b) for b in blocks]),
        "most": lambda: np.max(np.stack(blocks), axis=0),
        "least": lambda: np.min(np.stack(blocks), axis=0),
        "gather_new": lambda: np.stack(blocks),
        "gather_rows": lambda: np.concatenate(blocks),
    }
    if call in alike:
        return [np.asarray(alike[call]())] * n
    own: dict[str, Callable[[], Any]] = {
        "scatter_rows": lambda: np.split(added(blocks), n),
        "scatter_row": lambda: [*added(rows)],
        "scatter_column": lambda: [*added(columns).T],
        "exchange_new": lambda: [np.stack([r[i] for r in rows], axis=1) for i in range(n)],
        "exchange_columns": lambda: exchanged(blocks, 1, 0),
        "swap_rows": lambda: [np.stack([r[i] for r in rows]) for i in range(n)],
        "swap_columns": lambda: [np.stack([c[:, i] for c in columns], axis=1) for i in range(n)],
        "ring": lambda: sent(blocks, ring(n)),
        "few": lambda: sent(blocks, few(n)),
        "two": lambda: sent(blocks, swap(n)),
        "ring_number": lambda: sent([b[:1, 0] for b in blocks], ring(n)),
        "shuffle": lambda: [blocks[i] for i in steps(n)],
        "place": lambda: [np.full_like(b[0], i) for i, b in enumerate(blocks)],
    }
    return own[call]()


def choices(mesh: MeshShape) -> tuple[tuple[str, ...], ...]:
    """Every choice of axes in the order of the mesh. Choices of several axes are also reversed."""
    names = mesh.names
    found: list[tuple[str, ...]] = []
    for count in range(1, len(names) + 1):
        for some in itertools.combinations(names, count):
            found += [some, some[::-1]] if count > 1 else [some]
    return tuple(found)


def pairs_of(kind, axes, plain):
    """The (collective, axes) pairs of a dtype. If there are several reversed choices of axes, collectives and dtypes
    take them in turns. `plain`: with the collectives that `grids` has."""
    turn, several = KINDS.index(kind), sum(len(a) > 1 and list(a) != sorted(a) for a in axes) > 1
    return [
        (call, a)
        for order, call in enumerate(CALLS)
        for number, a in enumerate(axes)
        if (kind != "bool" or call not in SUMS)
        and (kind not in WIDE or call != "mean")
        and (plain or call not in PLAIN)
        and (
            list(a) == sorted(a) or (call not in PAIRS and (not several or (order + turn + number // 2) % 2))
        )
    ]


def size_of(call: str, n: int, m: int) -> int:
    """The elements per device after a collective of blocks [m, 3m] over n devices."""
    block, row = 3 * m * m, 3 * m
    if call in ("sum_number", "ring_number"):
        return 1
    return {
        "gather_new": n * block,
        "gather_rows": n * block,
        "scatter_rows": block // n,
        "scatter_row": row,
        "scatter_column": m,
        "exchange_new": n * row,
        "swap_rows": n * row,
        "swap_columns": n * m,
        "place": row,
    }.get(call, block)


class AxisGrid(Operation):
    """Every collective over every choice of axes, of one, two or five dtypes, in one program."""

    name = "axis_grid"
    family = "forms"
    level = "L1"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    sizes: ClassVar[dict[str, int]] = {"64B": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """One program holds one dtype on a mesh of three axes, two dtypes on two axes, and five on one axis."""
        if (1 in mesh.shape and mesh.size > 1) or mesh.size > 8:
            return
        usual = not mesh.order and mesh.size > 2
        weight = 0 if mesh.shape in ((3,), (6,)) else 1
        width = 1 if len(mesh.shape) > 2 else 2 if len(mesh.shape) > 1 else 5
        for start in range(0, len(KINDS), width):
            yield Variant.of(weight if usual else 3, kinds=KINDS[start : start + width])

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the benchmarks time the collectives one by one."""
        yield from ()

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    def plan(self, request: Request) -> Plan:
        mesh, m = request.mesh, request.mesh.size
        axes, arguments, results = choices(mesh), [], []
        plain = len(mesh.shape) > 1 and mesh != preferred(m)
        for kind in request.variant["kinds"]:
            whole = dtype_of(kind).kind in ("bool", "int", "uint")
            fill: Any = (values.distinct, {}) if whole else (values.summands, {"terms": m + 1})
            arguments.append(Argument((m * m, 3 * m), kind, (mesh.names, None), *fill))
            pairs = pairs_of(kind, axes, plain)
            for own, mean in ((kind, False), ("int32", True)):
                length = sum(size_of(c, mesh.product(a), m) for c, a in pairs if (c == "mean") == mean)
                if length:
                    results.append(Result((m, length), own, (mesh.names, None)))
        options = {"axes": axes, "plain": plain, "sizes": dict(mesh.sizes)}
        return Plan(tuple(arguments), tuple(results), options, judge="bits")

    @staticmethod
    def host(mesh, *arrays, axes, plain, sizes):
        def local(*blocks):
            done = []
            for b in blocks:
                parts: dict[bool, list[Any]] = {False: [], True: []}
                for call, a in pairs_of(str(b.dtype), axes, plain):
                    n = math.prod(sizes[name] for name in a)
                    found = CALLS[call](b, a, n)
                    mean = call == "mean"
                    parts[mean].append((whole_again(found, n) if mean else found).reshape(-1))
                done += [jnp.concatenate(p)[None] for p in parts.values() if p]
            return tuple(done)

        rows = P(mesh.axis_names, None)
        mapped = jax.shard_map(local, mesh=mesh, in_specs=rows, out_specs=rows)
        return jax.jit(mapped)(*(jax.device_put(x, NamedSharding(mesh, rows)) for x in arrays))

    @staticmethod
    def reference(*arrays, axes, plain, sizes):
        done = []
        for x in arrays:
            blocks = split(x, (tuple(sizes), None), sizes)
            parts: dict[bool, list[Any]] = {False: [], True: []}
            for call, a in pairs_of(str(x.dtype), axes, plain):
                of_devices = over_axes(functools.partial(defined, call), blocks, sizes, a)
                parts[call == "mean"].append(of_devices)
            for mean, found in parts.items():
                if found:
                    rows = np.stack([np.concatenate(of) for of in zip(*found, strict=True)])
                    done.append(rows.astype(np.int32) if mean else rows)
        return tuple(done)
