# SPDX-License-Identifier: Apache-2.0
"""The collectives of jax.lax that gather, scatter or exchange, over choices of mesh axes, and their global programs.

References follow the textbook definition: they take a list of blocks, one per member of the group, and return the list
of the members' results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import auto_axes, reshard

from meshmark.core import values
from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import (
    Argument,
    Cost,
    Plan,
    Request,
    Result,
    Variant,
    nbytes,
)
from meshmark.operations.collective_base import (
    NUMBERS,
    SUMMED,
    CollectiveOperation,
    groups_of,
    interleaved,
    over_groups,
)


class AllGather(CollectiveOperation):
    """Every member gets all blocks, along an existing dimension (tiled) or stacked along a new one."""

    name = "all_gather"
    copied: ClassVar[bool] = False
    """Whether the result has one copy per member, side by side, also where all members have the same."""
    fills: ClassVar[tuple[str, ...]] = ("nan", "extreme")
    everywhere = True
    kind = "all-gather"

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"dim": 0, "tiled": True}
        yield 1, {"dim": 1, "tiled": True}
        for dim in range(4):
            yield (1 if dim < 2 else 2), {"dim": dim, "tiled": False}
        yield 2, {"dim": 0, "tiled": True, "fill": "special"}
        yield from self.with_groups(n, dim=0, tiled=True)
        yield from self.with_groups(n, dim=1, tiled=False)

    def plan(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        axes, rest, dim, tiled = variant["axes"], mesh.rest(variant["axes"]), variant["dim"], variant["tiled"]
        n = mesh.product(axes)
        sharded = dim if tiled else 0
        shape = self.block(request, sharded)
        shape[sharded] *= n
        shape[2] *= mesh.product(rest)
        in_spec: list[Any] = [None, None, rest or None]
        in_spec[sharded] = axes
        out_shape, out_spec = list(shape), [None, None, rest or None]
        if not tiled:
            out_shape[0] //= n
            out_shape.insert(dim, n)
            out_spec.insert(dim, None)
        if variant.get("groups") or self.copied:  # groups gather different blocks; copies are adjacent
            where = 0 if tiled or dim else 1
            members = len(interleaved(n)[0]) if variant.get("groups") else n
            out_shape[sharded if tiled else dim] //= n // members
            out_shape[where] *= n
            out_spec[where] = axes
        options = self.options(request, tuple(in_spec), tuple(out_spec), dim=dim, tiled=tiled)
        fill = values.special if variant.get("fill") else values.distinct
        argument = Argument(tuple(shape), request.dtype, tuple(in_spec), fill)
        result = Result(tuple(out_shape), request.dtype, tuple(out_spec))
        members = len(groups_of(mesh.sizes, axes, options["groups"])[0])
        payload = nbytes(argument, mesh) * members
        return Plan(
            (argument,),
            (result,),
            options,
            judge="bits",
            cost=Cost(0, payload, (members - 1) / members),
            traffic=self.traffic(request, payload, options),
            connect=self.connect(request, options),
        )

    @staticmethod
    def manual(x, *, axes, dim, tiled, groups):
        if groups:
            return lax.all_gather(x, axes[0], axis=dim, tiled=tiled, axis_index_groups=groups)
        return lax.all_gather(x, axes, axis=dim, tiled=tiled, to="invarying")

    @staticmethod
    def auto(x, *, n, dim, tiled):
        if tiled:
            return x
        return jnp.moveaxis(x.reshape(n, x.shape[0] // n, *x.shape[1:]), 0, dim)

    @staticmethod
    def explicit(x, *, n, dim, tiled, out_spec):
        if not tiled:
            x = jnp.moveaxis(x.reshape(n, x.shape[0] // n, *x.shape[1:]), 0, dim)
        return reshard(x, P(*out_spec))

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, groups, dim, tiled):
        def gather(blocks):
            return [(np.concatenate if tiled else np.stack)(blocks, axis=dim)] * len(blocks)

        return over_groups(gather, x, sizes, axes, in_spec, out_spec, groups)


class AllGatherVarying(AllGather):
    """`all_gather` as most programs call it, with the default `to="varying"`: the types don't say that all members have
    the same, so each member's copy is a part of the result."""

    name = "all_gather_varying"
    copied = True
    everywhere = False
    timed: ClassVar[Mapping[str, int]] = {}

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"dim": 0, "tiled": True}
        yield 0, {"dim": 1, "tiled": True}
        yield 0, {"dim": 1, "tiled": False}
        yield 1, {"dim": 0, "tiled": False}
        yield 1, {"dim": 3, "tiled": False}

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode in ("auto", "explicit", "pjit"):
            return "one copy per device has no spelling in a global program"
        return super().absent(mode, variant, mesh)

    @staticmethod
    def manual(x, *, axes, dim, tiled, groups):
        return lax.all_gather(x, axes, axis=dim, tiled=tiled)


class PsumScatter(CollectiveOperation):
    """Sum over mesh axes; each member keeps its part of the sum."""

    name = "psum_scatter"
    fills: ClassVar[tuple[str, ...]] = SUMMED
    kind = "reduce-scatter"
    dtypes = NUMBERS

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"dim": 0, "tiled": True}
        yield 1, {"dim": 1, "tiled": True}
        yield 1, {"dim": 0, "tiled": False}
        yield 1, {"dim": 1, "tiled": False}
        yield from self.with_groups(n, dim=0, tiled=True)

    def plan(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        axes, rest, dim, tiled = variant["axes"], mesh.rest(variant["axes"]), variant["dim"], variant["tiled"]
        n = mesh.product(axes)
        members = len(interleaved(n)[0]) if variant.get("groups") else n
        local = self.block(request, dim, n)
        if not tiled:  # the scattered dimension disappears: its elements move to the other one
            local[1 - dim] *= local[dim] // n
            local[dim] = n
        wide = [*local[:2], local[2] * mesh.product(rest)]
        in_spec: Spec = (axes, None, None, rest or None)
        out_shape, out_spec = list(wide), [None, None, rest or None]
        if tiled:
            out_shape[dim] = wide[dim] * n // members
            out_spec[dim] = axes
        else:
            del out_shape[dim], out_spec[dim]
            out_shape[0] *= n
            out_spec[0] = axes
        options = self.options(request, in_spec, tuple(out_spec), dim=dim, tiled=tiled)
        argument = Argument((n, *wide), request.dtype, in_spec, values.summands, {"terms": members})
        result = Result(tuple(out_shape), request.dtype, tuple(out_spec))
        payload = nbytes(argument, mesh)
        return Plan(
            (argument,),
            (result,),
            options,
            judge="exact",
            cost=Cost(0, payload, (members - 1) / members),
            traffic=self.traffic(request, payload, options),
            connect=self.connect(request, options),
        )

    @staticmethod
    def manual(x, *, axes, dim, tiled, groups):
        return lax.psum_scatter(
            x[0], axes[0] if groups else axes, scatter_dimension=dim, tiled=tiled, axis_index_groups=groups
        )

    @staticmethod
    def auto(x, *, dim, tiled):
        total = jnp.sum(x, axis=0, dtype=x.dtype)
        if tiled:
            return total
        total = jnp.moveaxis(total, dim, 0)
        return total.reshape(total.shape[0] * total.shape[1], total.shape[2])

    @staticmethod
    def explicit(x, *, dim, tiled, out_spec):
        total = jnp.sum(x, axis=0, dtype=x.dtype)
        if not tiled:
            total = jnp.moveaxis(total, dim, 0)
            total = total.reshape(total.shape[0] * total.shape[1], total.shape[2])
        return reshard(total, P(*out_spec))

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, groups, dim, tiled):
        def scatter(blocks):
            parts = np.split(sum(block[0] for block in blocks), len(blocks), axis=dim)
            return parts if tiled else [part.squeeze(dim) for part in parts]

        return over_groups(scatter, x, sizes, axes, in_spec, out_spec, groups)


class AllToAll(CollectiveOperation):
    """Each member sends its i-th part to member i."""

    name = "all_to_all"
    fills: ClassVar[tuple[str, ...]] = ("nan", "extreme")
    kind = "all-to-all"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int8", "bool", "complex64", "float64")

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"split": 1, "concat": 0, "tiled": True}
        yield 1, {"split": 0, "concat": 1, "tiled": True}
        yield 1, {"split": 0, "concat": 0, "tiled": True}
        yield 2, {"split": 1, "concat": 1, "tiled": True}
        for split_axis, concat in ((0, 0), (0, 1), (1, 0), (1, 1)):
            yield 2, {"split": split_axis, "concat": concat, "tiled": False}
        yield 2, {"split": 1, "concat": 0, "tiled": True, "fill": "special"}
        yield from self.with_groups(n, split=0, concat=0, tiled=True)

    def plan(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        axes, rest = variant["axes"], mesh.rest(variant["axes"])
        cut, concat, tiled = variant["split"], variant["concat"], variant["tiled"]
        n = mesh.product(axes)
        local = self.block(request, cut, n)
        if not tiled:  # the split dimension has one element per member
            local[1 - cut] *= local[cut] // n
            local[cut] = n
        source = concat if tiled else 0
        shape = list(local)
        shape[source] *= n
        shape[2] *= mesh.product(rest)
        in_spec: list[Any] = [None, None, rest or None]
        in_spec[source] = axes
        if tiled:
            out_shape, out_spec = list(shape), [None, None, rest or None]
            out_spec[cut] = axes
        else:
            out_local = list(local)
            del out_local[cut]
            out_local.insert(concat, n)
            out_shape = [out_local[0] * n, out_local[1], out_local[2] * mesh.product(rest)]
            out_spec = [axes, None, rest or None]
        options = self.options(
            request, tuple(in_spec), tuple(out_spec), split_axis=cut, concat_axis=concat, tiled=tiled
        )
        fill = values.special if variant.get("fill") else values.distinct
        argument = Argument(tuple(shape), request.dtype, tuple(in_spec), fill)
        members = len(groups_of(mesh.sizes, axes, options["groups"])[0])
        payload = nbytes(argument, mesh)
        return Plan(
            (argument,),
            (Result(tuple(out_shape), request.dtype, tuple(out_spec)),),
            options,
            judge="bits",
            cost=Cost(0, payload, (members - 1) / members),
            traffic=self.traffic(request, payload, options),
            connect=self.connect(request, options),
        )

    @staticmethod
    def manual(x, *, axes, split_axis, concat_axis, tiled, groups):
        return lax.all_to_all(
            x, axes[0] if groups else axes, split_axis, concat_axis, tiled=tiled, axis_index_groups=groups
        )

    @staticmethod
    def auto(x, *, n, split_axis, concat_axis, tiled):
        if tiled and split_axis != concat_axis:
            return x  # only the sharding moves
        if tiled:  # [..., from * to * part, ...]: swap sender and receiver
            part = x.shape[split_axis] // n // n
            head, tail = x.shape[:split_axis], x.shape[split_axis + 1 :]
            x = jnp.swapaxes(x.reshape(*head, n, n, part, *tail), split_axis, split_axis + 1)
            return x.reshape(*head, n * n * part, *tail)
        # [from * part, ..., to, ...] -> [to, ..., from at concat_axis, ...]
        x = x.reshape(n, x.shape[0] // n, *x.shape[1:])
        x = jnp.moveaxis(jnp.moveaxis(x, 1 + split_axis, 0), 1, 1 + concat_axis)
        return x.reshape(n * x.shape[1], *x.shape[2:])

    @staticmethod
    def explicit(x, *, n, split_axis, concat_axis, tiled, out_spec):
        out = P(*out_spec)
        if tiled and split_axis != concat_axis:
            return reshard(x, out)

        def exchange(y):
            return AllToAll.auto(y, n=n, split_axis=split_axis, concat_axis=concat_axis, tiled=tiled)

        return auto_axes(exchange, out_sharding=out)(x)

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, groups, split_axis, concat_axis, tiled):
        def exchange(blocks):
            parts = [np.split(block, len(blocks), axis=split_axis) for block in blocks]
            if not tiled:
                parts = [[p.squeeze(split_axis) for p in row] for row in parts]
            join = np.concatenate if tiled else np.stack
            return [join([row[i] for row in parts], axis=concat_axis) for i in range(len(blocks))]

        return over_groups(exchange, x, sizes, axes, in_spec, out_spec, groups)


class Pswapaxes(AllToAll):
    """An array dimension changes places with mesh axes of the same size."""

    name = "pswapaxes"
    dtypes = ("float32", "bfloat16", "int32", "complex64", "float64")
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0}

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"split": 0, "concat": 0, "tiled": False}
        yield 2, {"split": 1, "concat": 1, "tiled": False}
        yield from self.with_groups(n, split=0, concat=0, tiled=False)

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if variant.get("groups"):
            return "pswapaxes wants a dimension of the whole axis size, which groups do not have"
        return super().absent(mode, variant, mesh)

    @staticmethod
    def manual(x, *, axes, split_axis):
        return lax.pswapaxes(x, axes, split_axis)


REASONS: dict[str, str] = {
    "pcast": "changes only the type of a value under check_vma; it moves no data (all_gather covers to=)",
    "psend": "one half of a point-to-point transfer, experimental; ppermute is the public whole",
    "precv": "the other half of psend",
    "psum_scatter_start": "the asynchronous first half of psum_scatter, experimental in 0.12",
}
"""Public collectives of jax.lax that have no operation, each with the reason."""


def public_collectives() -> list[str]:
    """The public names of jax.lax that take `axis_name`, or that start with the name of one that does, without
    the primitives (names in _p)."""
    import inspect

    def takes_axis_name(name: str) -> bool:
        try:
            return "axis_name" in inspect.signature(getattr(lax, name)).parameters
        except (TypeError, ValueError):
            return False

    public = [
        n for n in dir(lax) if not n.startswith("_") and not n.endswith("_p") and callable(getattr(lax, n))
    ]
    direct = [n for n in public if takes_axis_name(n)]
    return sorted({n for n in public if any(n == d or n.startswith(d) for d in direct)})
