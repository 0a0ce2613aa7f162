# SPDX-License-Identifier: Apache-2.0
"""More programs that the hunt found: uneven shards, Fourier transforms, an axis of one device, narrow sums.

A slice of a sharded array leaves uneven shards, which the compiler pads. The padding must not reach a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import PUT_FROM_ONE_PROCESS, Argument, Plan, Request, Result, Variant
from meshmark.operations.models.programs import constrained
from meshmark.operations.programs.found.base import Found, small

BELOW = 16
"""All indices are below this number."""


class UnevenScatter(Found):
    """Counts of indices by adding ones, as in the gradient of an embedding. The indices are sharded over one of several
    mesh axes, or over all axes, and lack their first element."""

    name = "uneven_scatter"
    kinds = ("beside", "over_all")
    axes = 2

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if min(mesh.shape) > 1:
            yield from super().variants(mesh)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        over = mesh.names[:1] if request.variant["kind"] == "beside" else mesh.names
        indices = Argument((2 * mesh.size,), "int32", (over,), values.tokens, {"below": BELOW})
        result = Result((BELOW,), request.dtype, (None,))
        return Plan((indices,), (result,), {"dtype": request.dtype}, judge="exact")

    @staticmethod
    def auto(indices, *, dtype):
        return jnp.zeros(BELOW, dtype).at[indices[1:]].add(1)

    @staticmethod
    def reference(indices, *, dtype):
        return np.bincount(indices[1:], minlength=BELOW).astype(dtype)


class SortedRows(Found):
    """The gradient of sorted columns of a sharded array, with or without its first row. Without it the process ends, so
    only the full profile runs that kind."""

    name = "sorted_rows"
    kinds = ("even", "uneven")
    rare = ("uneven",)
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        shape, first = (2 * mesh.size, 2), int(request.variant["kind"] == "uneven")
        left = (shape[0] - first, 2)
        x, seed = small(request, shape, (mesh.names,)), small(request, left, ())
        return Plan(
            (x, seed),
            (Result(shape, request.dtype, (None, None)),),
            {"first": first},
            judge="exact",
            wrt=(0,),
            forward=(Result(left, request.dtype, (None, None)),),
        )

    @staticmethod
    def auto(x, *, first):
        return lax.sort(x[first:], dimension=0)

    @staticmethod
    def reference(x, *, first):
        return np.sort(x[first:], axis=0)

    @staticmethod
    def gradient(x, seed, *, first):
        made = np.zeros_like(x)
        np.put_along_axis(made[first:], np.argsort(x[first:], axis=0, kind="stable"), seed, axis=0)
        return made


class PaddedWindows(Found):
    """Sums over adjacent windows after one padded element, of a replicated or a sharded array. The sums are sharded."""

    name = "padded_windows"
    kinds = ("whole", "sharded")

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        place: Spec = () if request.variant["kind"] == "whole" else (mesh.names,)
        x = small(request, (3 * mesh.size,), place)
        return Plan((x,), (Result((mesh.size,), request.dtype, (mesh.names,)),), {}, judge="exact")

    @staticmethod
    def auto(x):
        return lax.reduce_window(x, np.zeros((), x.dtype)[()], lax.add, (3,), (3,), ((1, 0),))

    @staticmethod
    def reference(x):
        return np.pad(x, (1, 0))[: len(x)].reshape(-1, 3).sum(1).astype(x.dtype)


class FourierOnward(Found):
    """The real part of a Fourier transform along the first of three dimensions; the second is sharded. The transform is
    then constrained to be sharded along the first dimension, or keeps its sharding."""

    name = "fourier_onward"
    kinds = ("moved", "kept")
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        n, over = request.mesh.size, request.mesh.names
        there: Spec = (over, None, None) if request.variant["kind"] == "moved" else (None, over, None)
        result = Result((n, n, 2), request.dtype, there)
        x = small(request, (n, n, 2), (None, over))
        return Plan((x,), (result,), {"there": there}, judge="bound")

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        """As for `fft`: 2 log2(n) + 2 steps, each with 8 units of roundoff of the largest result. n is the input's
        element count."""
        steps = 2 * np.log2(arguments[0].size) + 2
        return [np.full(e.shape, 8 * 2.0**-24 * steps * np.abs(e).max()) for e in expected]

    @staticmethod
    def auto(x, *, there):
        return constrained(jnp.fft.fft(x, axis=0), *there).real

    @staticmethod
    def reference(x):
        return np.fft.fft(x, axis=0).real


class JoinedPads(Found):
    """Two rotations of an array with one element per device: by one and back, or both by one. Each joins two parts of
    the array that negative padding cuts out."""

    name = "joined_pads"
    kinds = ("there_and_back", "there_twice")

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if mesh.size > 1:
            yield from super().variants(mesh)

    def plan(self, request: Request) -> Plan:
        n, over = request.mesh.size, request.mesh.names
        back = n - 1 if request.variant["kind"] == "there_and_back" else 1
        result = Result((n,), request.dtype, (None,))
        x = small(request, (n,), (over,))
        return Plan((x,), (result, result), {"steps": (1, back)}, judge="exact")

    @staticmethod
    def auto(x, *, steps):
        zero = jnp.zeros((), x.dtype)

        def turned(by):
            ends = [lax.pad(x, zero, [(by - len(x), 0, 0)]), lax.pad(x, zero, [(0, -by, 0)])]
            return lax.concatenate(ends, 0)

        first, second = map(turned, steps)
        return first + second, first - second

    @staticmethod
    def reference(x, *, steps):
        first, second = (np.roll(x, by) for by in steps)
        return first + second, first - second


class SumOverOne(Found):
    """`psum` in a shard_map that is manual over an axis of one device. All devices are on another axis, which is
    automatic or manual too."""

    name = "sum_over_one"
    kinds = ("automatic", "manual")
    modes: ClassVar[tuple[str, ...]] = ("host",)
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        x = small(request, (2 * mesh.size,), ())
        names = {"automatic": ("one",), "manual": ("one", "all")}[request.variant["kind"]]
        result = Result(x.shape, request.dtype, (None,))
        return Plan((x,), (result,), {"names": names}, judge="exact")

    @staticmethod
    def host(mesh, x, *, names):
        flat = Mesh(mesh.devices.reshape(1, -1), ("one", "all"))
        summed = jax.shard_map(
            lambda block: lax.psum(block, "one"),
            mesh=flat,
            in_specs=P(names),
            out_specs=P(names[1:]) if names[1:] else P(),
            axis_names=set(names),
        )
        there = jax.device_put(np.asarray(x), NamedSharding(flat, P("all")))
        return jax.device_put(np.asarray(jax.jit(summed)(there)), NamedSharding(mesh, P()))

    @staticmethod
    def reference(x):
        return x


class SortedPart(Found):
    """The first elements of rows that are sorted along a sharded dimension, then replicated: half of them, or all but
    one. In the latter case the shards are as large as those of all elements."""

    name = "sorted_part"
    kinds = ("even", "uneven")
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        number = mesh.size if request.variant["kind"] == "even" else 2 * mesh.size - 1
        x = small(request, (3, 2 * mesh.size), (None, mesh.names))
        return Plan(
            (x,), (Result((3, number), request.dtype, (None, None)),), {"number": number}, judge="exact"
        )

    @staticmethod
    def auto(x, *, number):
        return constrained(jnp.sort(x)[:, :number])

    @staticmethod
    def reference(x, *, number):
        return np.sort(x)[:, :number]


class SumBeside(Found):
    """`psum` and `psum_scatter` in a shard_map that is manual over the first of several mesh axes."""

    name = "sum_beside"
    kinds = ("psum", "psum_scatter")
    modes: ClassVar[tuple[str, ...]] = ("host",)
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16")
    axes = 2

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    def plan(self, request: Request) -> Plan:
        mesh, a = request.mesh, request.mesh.names[0]
        n, kind = mesh.sizes[a], request.variant["kind"]
        x = small(request, (n * n,), (a,))
        whole = kind == "psum"
        result = Result((n,), request.dtype, (None,) if whole else (a,))
        return Plan((x,), (result,), {"axis": a, "whole": whole, "blocks": n}, judge="exact")

    @staticmethod
    def host(mesh, x, *, axis, whole):
        def summed(block):
            return lax.psum(block, axis) if whole else lax.psum_scatter(block, axis, tiled=True)

        out = P() if whole else P(axis)
        mapped = jax.shard_map(summed, mesh=mesh, in_specs=P(axis), out_specs=out, axis_names={axis})
        placed = jax.device_put(np.asarray(x), NamedSharding(mesh, P(axis)))
        return jax.jit(mapped, out_shardings=NamedSharding(mesh, out))(placed)

    @staticmethod
    def reference(x, *, blocks):
        return x.reshape(blocks, -1).astype(np.float32).sum(0).astype(x.dtype)


class GatheredPart(Found):
    """Two rows gathered under Explicit axes, with sharded columns: all columns, or a part."""

    name = "gathered_part"
    kinds = ("whole", "part")
    modes: ClassVar[tuple[str, ...]] = ("host",)
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    def plan(self, request: Request) -> Plan:
        n = request.mesh.size
        size = 2 * n if request.variant["kind"] == "whole" else n
        x = small(request, (4, 2 * n), ())
        return Plan((x,), (Result((2, 1, size), request.dtype, ()),), {"size": size}, judge="exact")

    @staticmethod
    def host(mesh, x, *, size):
        flat = Mesh(mesh.devices.reshape(-1), ("all",), axis_types=(AxisType.Explicit,))
        numbers = lax.GatherDimensionNumbers((1, 2), (), (0,))
        with jax.set_mesh(flat):
            there = jax.device_put(np.asarray(x), NamedSharding(flat, P(None, "all")))
            rows = jax.device_put(np.array([[1], [3]], np.int32), NamedSharding(flat, P()))
            found = np.asarray(jax.jit(lambda a, i: lax.gather(a, i, numbers, (1, size)))(there, rows))
        return jax.device_put(found, NamedSharding(mesh, P()))

    @staticmethod
    def reference(x, *, size):
        return x[[1, 3], None, :size]
