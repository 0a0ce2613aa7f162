# SPDX-License-Identifier: Apache-2.0
"""Collectives that depend on positions: permutations, axis index, axis size, broadcast, and exchanges of parts of
different sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import auto_axes, reshard

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import Spec, assemble, split
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import (
    Argument,
    Cost,
    Plan,
    Request,
    Result,
    Traffic,
    Variant,
    nbytes,
)
from meshmark.operations.collective_base import CollectiveOperation, groups_of, over_groups


def permutation(kind: str, n: int) -> tuple[tuple[int, int], ...] | None:
    """(source, destination) pairs of a named permutation of n, or None if n is too small for it."""
    if kind == "ring":
        return tuple((i, (i + 1) % n) for i in range(n)) if n > 1 else None
    if kind == "reverse":
        return tuple((i, n - 1 - i) for i in range(n)) if n > 2 else None
    if kind == "partial":  # the last receives nothing and the first sends nothing
        return tuple((i, i - 1) for i in range(1, n)) if n > 1 else None
    if kind == "cycles":  # a swap and a cycle of the others
        return ((0, 1), (1, 0), *((i, 2 + (i - 1) % (n - 2)) for i in range(2, n))) if n > 3 else None
    return tuple((i, i) for i in range(n))


class Ppermute(CollectiveOperation):
    """Blocks move from member to member along (source, destination) pairs. A member that receives none gets zeros."""

    name = "ppermute"
    fills: ClassVar[tuple[str, ...]] = ("nan", "extreme")
    kind = "collective-permute"

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for weight, kind in ((0, "ring"), (2, "reverse"), (0, "partial"), (0, "cycles"), (2, "identity")):
            if permutation(kind, n) is not None and (n > 1 or kind == "identity"):
                yield (weight if n > 1 else 0), {"perm": kind}
        if n > 1:
            yield 2, {"perm": "ring", "form": "list"}
            yield 2, {"perm": "ring", "form": "iterator"}
            yield 2, {"perm": "ring", "fill": "special"}
            yield 2, {"perm": "ring", "rank": 1}

    def plan(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        axes, rest = variant["axes"], mesh.rest(variant["axes"])
        n = mesh.product(axes)
        local = self.block(request, 0)
        if variant.get("rank") == 1:
            local = [math.prod(local)]
            spec: Spec = ((*rest, *axes),)
            shape: tuple[int, ...] = (local[0] * mesh.size,)
        else:
            spec = (axes, None, rest or None)
            shape = (local[0] * n, local[1], local[2] * mesh.product(rest))
        pairs = permutation(variant["perm"], n) or ()
        form = variant.get("form") or "tuple"
        options = self.options(request, spec, spec, pairs=pairs, form=form)
        fill = values.special if variant.get("fill") else values.distinct
        argument = Argument(shape, request.dtype, spec, fill)
        moved = [(i, j) for i, j in pairs if i != j]
        groups = groups_of(mesh.sizes, axes)
        payload = nbytes(argument, mesh)
        # A compiler may keep or drop a pair of a member with itself, so only pairs that move data are required.
        hops = tuple((group[i], group[j]) for group in groups for i, j in moved)
        return Plan(
            (argument,),
            (Result(shape, request.dtype, spec),),
            options,
            judge="bits",
            cost=Cost(0, payload, 1.0 if moved else 0.0),
            traffic=(Traffic(self.kind, payload, hops),) if hops and payload else (),
            connect=hops if payload else (),
        )

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if variant.get("form") and mode in ("auto", "explicit", "pjit"):
            return "the form of the permutation's list is an argument of the manual spelling alone"
        if variant.get("rank") == 1 and mesh.rest(variant["axes"]) and mode in ("auto", "explicit", "pjit"):
            return "a vector sharded over other axes too has no roll of its blocks"
        return super().absent(mode, variant, mesh)

    @staticmethod
    def manual(x, *, axes, pairs, form):
        if form == "iterator":
            try:
                return lax.ppermute(x, axes, iter(pairs))
            except TypeError:  # JAX is right to refuse an iterator: the first reader consumes it
                pass
        return lax.ppermute(x, axes, list(pairs) if form == "list" else pairs)

    @staticmethod
    def auto(x, *, n, pairs):
        if pairs == tuple((i, (i + 1) % n) for i in range(n)):
            return jnp.roll(x, x.shape[0] // n, axis=0)
        source = np.zeros(n, int)
        received = np.zeros(n, bool)
        for i, j in pairs:
            source[j], received[j] = i, True
        blocks = x.reshape(n, x.shape[0] // n, *x.shape[1:])[source]
        mask = received.reshape(n, *[1] * (blocks.ndim - 1))
        return jnp.where(mask, blocks, jnp.zeros_like(blocks)).reshape(x.shape)

    @staticmethod
    def explicit(x, *, n, pairs, out_spec):
        out = P(*out_spec)
        if pairs == tuple((i, (i + 1) % n) for i in range(n)):
            return auto_axes(lambda y: jnp.roll(y, y.shape[0] // n, axis=0), out_sharding=out)(x)
        source = np.zeros(n, int)
        received = np.zeros(n, bool)
        for i, j in pairs:
            source[j], received[j] = i, True
        split = P(out_spec[0], None, *out_spec[1:])
        blocks = jnp.reshape(x, (n, x.shape[0] // n, *x.shape[1:]), out_sharding=split)
        moved = blocks.at[source].get(out_sharding=split)
        mask = reshard(received.reshape(n, *[1] * (blocks.ndim - 1)), P(out_spec[0]))
        return jnp.reshape(jnp.where(mask, moved, jnp.zeros_like(moved)), x.shape, out_sharding=out)

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, pairs):
        def permute(blocks):
            sent = {destination: blocks[source] for source, destination in pairs}
            return [sent.get(i, np.zeros_like(blocks[i])) for i in range(len(blocks))]

        return over_groups(permute, x, sizes, axes, in_spec, out_spec)


class Pshuffle(Ppermute):
    """Member i receives the block of member perm[i]."""

    name = "pshuffle"
    dtypes = ("float32", "bfloat16", "int32", "complex64", "float64")
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0, "64B": 2}

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for kind in ("cycles", "ring", "reverse"):
            if permutation(kind, n):
                yield (0 if kind == "cycles" else 2), {"perm": kind}

    @staticmethod
    def manual(x, *, axes, pairs):
        perm = [source for source, _ in sorted(pairs, key=lambda pair: pair[1])]
        return lax.pshuffle(x, axes, perm)


class AxisIndex(CollectiveOperation):
    """The position of a member along mesh axes. The last axis varies fastest."""

    name = "axis_index"
    dtypes = ("int32",)
    shaped = False
    sizes: ClassVar[Mapping[str, int]] = {"4B": 0}
    timed: ClassVar[Mapping[str, int]] = {}

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode in ("auto", "explicit", "pjit"):
            return "a global program sees whole arrays and has no position in the mesh"
        if mode == "pmap":
            return "pmap maps over an argument, and this has none"
        return super().absent(mode, variant, mesh)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        spec: Spec = (mesh.names,)
        options = self.options(request, (), spec)
        return Plan((), (Result((mesh.size,), "int32", spec),), options, judge="bits", traffic=())

    @staticmethod
    def manual(*, axes):
        return lax.axis_index(axes)[None]

    @staticmethod
    def reference(*, sizes, axes):
        index = np.zeros(math.prod(sizes.values()), np.int32)
        for group in groups_of(sizes, axes):
            index[list(group)] = np.arange(len(group))
        return index


class AxisSize(AxisIndex):
    """The number of members along mesh axes, a constant of the program."""

    name = "axis_size"

    @staticmethod
    def manual(*, axes):
        return jnp.full((1,), lax.axis_size(axes), jnp.int32)

    @staticmethod
    def reference(*, sizes, axes):
        return np.full(math.prod(sizes.values()), math.prod(sizes[a] for a in axes), np.int32)


class Pbroadcast(CollectiveOperation):
    """Every member gets the block of one member (collective-broadcast in HLO)."""

    name = "pbroadcast"
    fills: ClassVar[tuple[str, ...]] = ("nan", "extreme")
    kind = "collective-broadcast"

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for source in sorted({0, n - 1}):
            yield (0 if source else 1), {"source": source, "capability": "broadcast"}

    def plan(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        axes, rest, source = variant["axes"], mesh.rest(variant["axes"]), variant["source"]
        n = mesh.product(axes)
        local = self.block(request, 0)
        shape = (local[0] * n, local[1], local[2] * mesh.product(rest))
        spec: Spec = (axes, None, rest or None)
        options = self.options(request, spec, spec, source=source)
        argument = Argument(shape, request.dtype, spec)
        payload = nbytes(argument, mesh)
        return Plan(
            (argument,),
            (Result(shape, request.dtype, spec),),
            options,
            judge="bits",
            cost=Cost(0, payload, 1.0),
            traffic=self.traffic(request, payload, options),
            connect=self.connect(request, options),
        )

    @staticmethod
    def manual(x, *, axes, source):
        return lax.pbroadcast(x, axes, source)

    @staticmethod
    def auto(x, *, n, source):
        block = x.reshape(n, x.shape[0] // n, *x.shape[1:])[source]
        return jnp.tile(block, (n, *[1] * (x.ndim - 1)))

    @staticmethod
    def explicit(x, *, n, source, out_spec):
        return auto_axes(lambda y: Pbroadcast.auto(y, n=n, source=source), out_sharding=P(*out_spec))(x)

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, source):
        return over_groups(lambda blocks: [blocks[source]] * len(blocks), x, sizes, axes, in_spec, out_spec)


def ragged_sends(n: int) -> np.ndarray:
    """The numbers of rows of a ragged exchange, [n, n]: member i sends (i + 2j) mod 3 rows to member j."""
    return (np.arange(n)[:, None] + 2 * np.arange(n)) % 3


def ragged_table(
    bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype, *, part: str
) -> np.ndarray:
    """The values of one table [n, n] of a ragged exchange: its sizes or its offsets."""
    send = ragged_sends(shape[1])
    table = {
        "send": send,
        "receive": send.T,
        "from": np.cumsum(send, axis=1) - send,  # where in the sender's operand
        "to": np.cumsum(send, axis=0) - send,  # where in the receiver's output
    }[part]
    return table.ravel()[index.astype(np.int64)].astype(dtype)


class RaggedAllToAll(CollectiveOperation):
    """Each member sends parts of different sizes to given offsets of the receivers' outputs."""

    name = "ragged_all_to_all"
    fills: ClassVar[tuple[str, ...]] = ("nan", "extreme")
    kind = "ragged-all-to-all"
    shaped = False
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0, "64B": 1}

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"capability": "ragged"}

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode in ("auto", "explicit", "pjit"):
            return "parts of different sizes have no sharded array that would describe them"
        return super().absent(mode, variant, mesh)

    def plan(self, request: Request) -> Plan:
        mesh, axes = request.mesh, request.variant["axes"]
        n, width = mesh.product(axes), max(1, request.elements // (2 * mesh.product(axes)))
        spec: Spec = (axes, None)
        rows = 2 * n * n  # no member sends or receives more than two rows per partner
        tables = [
            Argument((n, n), "int32", spec, ragged_table, {"part": part})
            for part in ("from", "send", "to", "receive")
        ]
        send = ragged_sends(n)
        leaving = int((send.sum(axis=1) - send.diagonal()).max())  # rows, of the member that sends the most
        operand = Argument((rows, width), request.dtype, spec)
        output = Argument((rows, width), request.dtype, spec)
        return Plan(
            (operand, output, *tables),
            (Result((rows, width), request.dtype, spec),),
            self.options(request, spec, spec),
            judge="bits",
            cost=Cost(0, leaving * width * dtype_of(request.dtype).itemsize, 1.0),
        )

    @staticmethod
    def manual(operand, output, start, send, to, receive, *, axes):
        return lax.ragged_all_to_all(operand, output, start[0], send[0], to[0], receive[0], axis_name=axes)

    @staticmethod
    def reference(operand, output, start, send, to, receive, *, sizes, axes, in_spec):
        sent, held = split(operand, in_spec, sizes), [b.copy() for b in split(output, in_spec, sizes)]
        for group in groups_of(sizes, axes):
            for i, source in enumerate(group):
                for j, target in enumerate(group):
                    rows = sent[source][start[i, j] : start[i, j] + send[i, j]]
                    held[target][to[i, j] : to[i, j] + send[i, j]] = rows
        return assemble(held, in_spec, sizes)
