# SPDX-License-Identifier: Apache-2.0
"""Unusual shapes: rank 0 to 5, one element per shard, dimensions of size 1, empty arrays, inputs that are sharded over
some axes of the mesh only, and intermediate results that no axis divides.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import auto_axes

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant, nbytes
from meshmark.operations.collective_base import SUMMED, send, send_nothing
from meshmark.operations.placements.moving import state_moves
from meshmark.operations.placements.placement import home, spec_labels, spec_of


class Extent(Operation):
    """The base of the operations with unusual shapes."""

    family = "extents"
    level = "L2"
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "pjit")
    dtypes: ClassVar[tuple[str, ...]] = (
        "float32",
        "bfloat16",
        "float16",
        "int32",
        "int8",
        "int16",
        "uint8",
        "uint32",
    )
    sizes: ClassVar[dict[str, int]] = {"64B": 0}

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: these shapes are for the conformance tests only."""
        yield from ()


class RankReduction(Extent):
    """A sum or a maximum along one dimension of an array of rank 1 to 5. One dimension is sharded over the last mesh
    axis or over all axes. The shards are ordinary, of size 1 along it, empty, or all other dimensions have size 1."""

    name = "rank_reduction"
    fills: ClassVar[tuple[str, ...]] = SUMMED

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for rank in range(1, 6):
            for kind in ("even", "one", "ones", "empty"):
                for over in dict.fromkeys((mesh.names[-1:], mesh.names)):
                    for reduce in ("sum", "max"):
                        if kind == "empty" and reduce == "max":
                            continue
                        weight = 2 * (rank not in (2, 3)) + (kind != "even") + 2 * (over != mesh.names[-1:])
                        place = (rank + len(kind)) % rank
                        for dim in sorted({place, rank - 1}):
                            yield Variant.of(
                                1 + weight, rank=rank, kind=kind, over=over, reduce=reduce, at=place, dim=dim
                            )

    def plan(self, request: Request) -> Plan:
        mesh, v = request.mesh, request.variant
        n, rank, at = mesh.product(v["over"]), v["rank"], v["at"]
        side = {"even": 3, "one": 1, "ones": 1, "empty": 0}[v["kind"]]
        shape = [1 if v["kind"] == "ones" else 2] * rank
        shape[at] = n * side
        if v["kind"] == "empty" and rank > 1:  # the sharded dimension is not the empty one
            shape[at], shape[at - 1] = n, 0
        spec: list[Any] = [None] * rank
        spec[at] = v["over"]
        terms = max(1, shape[v["dim"]])
        few = dtype_of(request.dtype).digits <= terms.bit_length()
        fill: Any = (values.tokens, {"below": 2}) if few else (values.summands, {"terms": terms})
        rest = [d for d in range(rank) if d != v["dim"]]
        result = Result(tuple(shape[d] for d in rest), request.dtype, tuple(spec[d] for d in rest))
        argument = Argument(tuple(shape), request.dtype, tuple(spec), *fill)
        owed = partial(send, "all-reduce", v["over"] if v["dim"] == at else (), nbytes(result, mesh), mesh)
        options = {"reduce": v["reduce"], "dim": v["dim"]}
        return Plan((argument,), (result,), options, judge="exact", owed=owed)

    @staticmethod
    def auto(x, *, reduce, dim):
        return jnp.sum(x, axis=dim, dtype=x.dtype) if reduce == "sum" else jnp.max(x, axis=dim)

    explicit = auto

    @staticmethod
    def reference(x, *, reduce, dim):
        return np.sum(x, axis=dim) if reduce == "sum" else np.max(x, axis=dim)


class Broadcast(Extent):
    """Two arrays of different rank, combined element by element. Each is sharded over some axes of the mesh only."""

    name = "broadcast_ranks"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for rank in range(5):
            for over in dict.fromkeys((mesh.names[:1], mesh.names[-1:], mesh.names)):
                yield Variant.of(
                    1 + 2 * (rank not in (1, 2)) + (over != mesh.names[:1]), rank=rank, over=over
                )

    def plan(self, request: Request) -> Plan:
        mesh, rank, over = request.mesh, request.variant["rank"], request.variant["over"]
        n = mesh.product(over)
        shape, spec = (2, n, 3, 2 * n, 2), (None, None, None, over, None)
        small = tuple(shape[5 - rank :])
        arguments = (
            Argument(shape, request.dtype, spec, values.tokens, {"below": 10}),
            Argument(small, request.dtype, spec[5 - rank :], values.tokens, {"below": 10}),
        )
        result = Result(shape, request.dtype, spec)
        return Plan(arguments, (result,), {}, judge="exact", owed=send_nothing)

    @staticmethod
    def auto(x, y):
        return x * 2 + y

    explicit = auto

    @staticmethod
    def reference(x, y):
        return x * 2 + y


def uneven(x, chain, dim):
    """Steps with intermediate sizes that no axis divides. The result has the shape of x."""
    size = x.shape[dim]
    rest = lax.slice_in_dim(x, 1, size, axis=dim)
    if chain == "slices":  # the differences of neighbours, and the first element
        return jnp.concatenate(
            [lax.slice_in_dim(x, 0, 1, axis=dim), rest - lax.slice_in_dim(x, 0, size - 1, axis=dim)], dim
        )
    if chain == "pad":
        return jnp.pad(rest, [(0, int(d == dim)) for d in range(x.ndim)], constant_values=7)
    if chain == "strided":  # the even elements, then the odd ones
        return jnp.concatenate([lax.slice_in_dim(x, s, size, 2, axis=dim) for s in (0, 1)], dim)
    if chain == "reversed":
        return jnp.concatenate([jnp.flip(rest, dim), lax.slice_in_dim(x, 0, 1, axis=dim)], dim)
    folded = jnp.concatenate([x, rest], dim)  # a slice of the longer array
    return lax.slice_in_dim(folded, size - 1, 2 * size - 1, axis=dim)


class UnevenChain(Extent):
    """Slices, pads and concatenations whose intermediate results don't divide by the axes."""

    name = "uneven_chain"
    fills: ClassVar[tuple[str, ...]] = ("nan-one", "nan-last")

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for chain in ("slices", "pad", "strided", "reversed", "folded"):
            for label in spec_labels(mesh):
                for dim in (0, 1):
                    weight = 1 if label == home(mesh) and dim == 0 else 3
                    yield Variant.of(weight, chain=chain, of=label, dim=dim)

    def plan(self, request: Request) -> Plan:
        spec = spec_of(request.variant["of"])
        shape = (2 * request.mesh.size, 2 * request.mesh.size)
        argument = Argument(shape, request.dtype, spec, values.tokens, {"below": 60})
        chain, dim = request.variant["chain"], request.variant["dim"]
        options = {"chain": chain, "dim": dim, "out_spec": spec}
        plan = Plan((argument,), (Result(shape, request.dtype, spec),), options, judge="exact")
        return state_moves(plan, partial(self.rows, chain=chain, dim=dim), request.mesh.sizes)

    @classmethod
    def rows(cls, x, *, chain, dim):
        """For each place of the result the other element that it needs, for an array of numbers."""
        if chain == "slices":  # a difference needs the row before
            return np.concatenate([np.take(x, [0], dim), np.take(x, range(x.shape[dim] - 1), dim)], axis=dim)
        found = cls.reference(x, chain=chain, dim=dim)
        if chain == "pad":
            np.moveaxis(found, dim, 0)[-1] = -1
        return found

    @staticmethod
    def auto(x, *, chain, dim):
        return uneven(x, chain, dim)

    @staticmethod
    def explicit(x, *, chain, dim, out_spec):
        return auto_axes(lambda y: uneven(y, chain, dim), out_sharding=P(*out_spec))(x)

    @staticmethod
    def reference(x, *, chain, dim):
        x = np.moveaxis(x, dim, 0)
        if chain == "slices":
            found = np.concatenate([x[:1], np.diff(x, axis=0)])
        elif chain == "pad":
            found = np.concatenate([x[1:], np.full_like(x[:1], 7)])
        elif chain == "strided":
            found = np.concatenate([x[::2], x[1::2]])
        elif chain == "reversed":
            found = np.concatenate([x[:0:-1], x[:1]])
        else:
            found = np.concatenate([x[-1:], x[1:]])
        return np.moveaxis(found, 0, dim)
