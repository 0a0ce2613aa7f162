# SPDX-License-Identifier: Apache-2.0
"""Found by the hunt: slices, pads, reshapes, scatters, indices and keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Plan, Request, Result, Variant
from meshmark.operations.functions.creation import bits_of
from meshmark.operations.models.programs import constrained
from meshmark.operations.programs.found.base import Found, nonzero, small


class StridedSlice(Found):
    """`lax.slice` with a stride along a sharded dimension: only from the last shard, only the last element, or from the
    second element on."""

    name = "strided_slice"
    kinds = ("last_shard", "last_element", "inner")

    def plan(self, request: Request) -> Plan:
        kind, mesh = request.variant["kind"], request.mesh
        axes = mesh.names[:1] if kind == "last_shard" else mesh.names
        n = mesh.product(axes)
        size, start, stride = {
            "last_shard": (n, n - 1, n + 1),
            "last_element": (2 * n, 2 * n - 1, 3),
            "inner": (2 * n, 1, 2),
        }[kind]
        count = len(range(start, size, stride))
        return Plan(
            (small(request, (size,), (axes,)),),
            (Result((count,), request.dtype, (None,)),),
            {"start": start, "limit": size, "stride": stride},
            judge="bits",
        )

    @staticmethod
    def auto(x, *, start, limit, stride):
        return lax.slice(x, (start,), (limit,), (stride,))

    @staticmethod
    def reference(x, *, start, limit, stride):
        return x[start:limit:stride]


def _larger(bits: np.ndarray, index: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Integers from 16 to 45: no array of `small` has one of them."""
    return nonzero(bits, index, shape, dtype) + dtype.type(15)


class UpdateBelow(Found):
    """`lax.dynamic_update_slice` along a sharded dimension from a start below zero that the program holds. Such a start
    means zero.

    one, several: the update has one row, or as many as a shard. wider: it has one more than a shard."""

    name = "update_below"
    kinds = ("one", "several", "wider")

    def plan(self, request: Request) -> Plan:
        axis = request.mesh.names[-1]
        shard = 4
        rows = shard * request.mesh.sizes[axis]
        width = {"one": 1, "several": shard, "wider": shard + 1}[request.variant["kind"]]
        x = small(request, (rows, 2), (axis,))
        update = replace(small(request, (min(width, rows), 2), ()), fill=_larger)
        return Plan((x, update), (Result((rows, 2), request.dtype, (axis, None)),), {}, judge="bits")

    @staticmethod
    def auto(x, update):
        start = (jnp.int32(-1), jnp.int32(0))
        return lax.dynamic_update_slice(x, update, start, allow_negative_indices=False)

    @staticmethod
    def reference(x, update):
        return np.concatenate([update, x[len(update) :]])


class PadInto(Found):
    """`lax.pad` of a replicated array into a sharded result: a shift that keeps the size, zeros between the elements,
    or zeros after them."""

    name = "pad_into_sharded"
    kinds = ("shift", "interior", "behind")

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        config = {"shift": (-1, 1, 0), "interior": (0, 1, 1), "behind": (0, mesh.size, 0)}[
            request.variant["kind"]
        ]
        size = mesh.size if config[2] == config[0] + config[1] == 0 else 2 * mesh.size
        return Plan(
            (small(request, (mesh.size,), ()),),
            (Result((size,), request.dtype, (mesh.names,)),),
            {"config": config},
            judge="bits",
        )

    @staticmethod
    def auto(x, *, config):
        return lax.pad(x, jnp.zeros((), x.dtype), (config,))

    @staticmethod
    def reference(x, *, config):
        low, high, interior = config
        wide = np.zeros((len(x) - 1) * (interior + 1) + 1, x.dtype)
        wide[:: interior + 1] = x
        return np.pad(wide, (max(low, 0), max(high, 0)))[max(-low, 0) :]


class ReshapePullback(Found):
    """The pullback of a reshape into a sharding over the mesh's axes, in their order or reversed, together with a
    second cotangent."""

    name = "reshape_pullback"
    kinds = ("reversed", "ordered")
    axes = 2
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        last = mesh.names[-1]
        shape = (mesh.size, mesh.sizes[last])
        flat = mesh.size * mesh.sizes[last]
        axes = mesh.names if request.variant["kind"] == "ordered" else mesh.names[::-1]
        x = small(request, shape, ())
        seeds = (small(request, (flat,), ()), small(request, shape, (None, last)))
        forward = (Result((flat,), request.dtype, (axes,)), Result(shape, request.dtype, ()))
        return Plan(
            (x, *seeds),
            (Result(shape, request.dtype, (None, None)),),
            {"axes": axes},
            judge="exact",
            wrt=(0,),
            forward=forward,
        )

    @staticmethod
    def auto(x, *, axes):
        return constrained(jnp.reshape(x, (x.size,)), axes), x

    @staticmethod
    def reference(x):
        return np.reshape(x, (x.size,)), x

    @staticmethod
    def gradient(x, flat, square):
        return flat.reshape(x.shape) + square


class MovedRows(Found):
    """Each element is set to the previous one, after a reshape: an update of an array by its own rows. It can be wrong
    on a single device."""

    name = "moved_rows"
    kinds = ("whole", "sharded")

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        shape = (2 * mesh.size, 1)
        place: Spec = () if request.variant["kind"] == "whole" else (mesh.names,)
        result = Result(shape[:1], request.dtype, (None,))
        return Plan((small(request, shape, place),), (result,), {}, judge="bits")

    @staticmethod
    def auto(x):
        rows = jnp.reshape(x, (x.size,))
        return rows.at[1:].set(rows[:-1])

    @staticmethod
    def reference(x):
        rows = x.ravel()
        return np.concatenate([rows[:1], rows[:-1]])


class ScatterTwice(Found):
    """Two windows are added one after the other. The first is sharded over both mesh axes along one dimension, in their
    order or reversed."""

    name = "scatter_twice"
    kinds = ("reversed", "ordered")
    axes = 2
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        first, second = mesh.names[:2]
        n, m = mesh.sizes[first] * mesh.sizes[second], mesh.sizes[second]
        over = (first, second) if request.variant["kind"] == "ordered" else (second, first)
        at = Argument((1, 1), "int32", (), values.tokens, {"below": 1})
        arguments = (
            *(small(request, (n, m), ()), at, small(request, (1, n, 1), (None, over))),
            *(at, small(request, (1, 1, 1), ())),
        )
        return Plan(arguments, (Result((n, m), request.dtype, (first, second)),), {}, judge="exact")

    @staticmethod
    def auto(x, first, column, second, element):
        numbers = lax.ScatterDimensionNumbers((1, 2), (), (0,))
        return lax.scatter_add(lax.scatter_add(x, first, column, numbers), second, element, numbers)

    @staticmethod
    def reference(x, first, column, second, element):
        made = x.copy()
        made[:, :1] += column[0]
        made[:1, :1] += element[0]
        return made


class IndexVectors(Found):
    """`lax.gather` and `lax.scatter_add` of single elements, with two coordinates per index. The coordinate dimension
    is sharded over an axis of two devices (or replicated), and the rows of the operand over another axis."""

    name = "index_vectors"
    kinds = ("gather", "scatter", "gather_whole")
    axes = 2
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if 2 in mesh.shape:
            yield from super().variants(mesh)

    def plan(self, request: Request) -> Plan:
        kind, mesh = request.variant["kind"], request.mesh
        pair = next(name for name in mesh.names if mesh.sizes[name] == 2)
        other = next(name for name in mesh.names if name != pair)
        rows = 2 * mesh.sizes[other]
        table = small(request, (rows, 4), (other,))
        over: Spec = () if kind == "gather_whole" else (None, pair)
        places = Argument((6, 2), "int32", over, values.tokens, {"below": min(4, rows)})
        if kind == "scatter":
            given: tuple[Argument, ...] = (table, places, small(request, (6, 1, 1), ()))
            result = Result((rows, 4), request.dtype, (None, None))
        else:
            given, result = (table, places), Result((6, 1, 1), request.dtype, (None, None, None))
        return Plan(given, (result,), {}, judge="exact")

    @staticmethod
    def auto(table, places, *updates):
        if updates:
            numbers = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
            return lax.scatter_add(table, places, updates[0], numbers)
        offsets = lax.GatherDimensionNumbers(
            offset_dims=(1, 2), collapsed_slice_dims=(), start_index_map=(0, 1)
        )
        return lax.gather(table, places, offsets, (1, 1))

    @staticmethod
    def reference(table, places, *updates):
        rows, columns = places.astype(int).T
        if not updates:
            return table[rows, columns].reshape(-1, 1, 1)
        found = table.copy()
        np.add.at(found, (rows, columns), updates[0].ravel())
        return found


class ShardedKey(Found):
    """`jax.random.bits` of a raw key whose two words are sharded over an axis of two devices, or replicated."""

    name = "sharded_key"
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit")
    kinds = ("words", "whole")
    dtypes: ClassVar[tuple[str, ...]] = ("int32",)

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if 2 in mesh.shape:
            yield from super().variants(mesh)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        pair = next(name for name in mesh.names if mesh.sizes[name] == 2)
        over: Spec = (pair,) if request.variant["kind"] == "words" else ()
        key = Argument((2,), "uint32", over, values.tokens, {"below": 2**31})
        return Plan(
            (key,), (Result((4 * mesh.size,), "int32", (None,)),), {"count": 4 * mesh.size}, judge="bits"
        )

    @staticmethod
    def auto(key, *, count):
        return lax.bitcast_convert_type(jax.random.bits(key, (count,)), jnp.int32)

    explicit = auto

    @staticmethod
    def reference(key, *, count):
        return bits_of((int(key[0]), int(key[1])), (count,)).view(np.int32)
