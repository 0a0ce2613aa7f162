# SPDX-License-Identifier: Apache-2.0
"""The public collectives of jax.lax over every choice of mesh axes, and what a global program would write.

References follow the textbook definition: they take a list of blocks, one per member of the group, and give the list
of what each member holds afterwards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import auto_axes, reshard

from meshmark.core import special_values, values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import Spec, assemble, split
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import (
    Argument,
    Cost,
    Operation,
    Plan,
    Request,
    Result,
    Traffic,
    Variant,
    nbytes,
)
from meshmark.operations.weights import TIMED_PROFILES

INTEGERS = ("int16", "uint16", "uint32", "int64", "uint64")
NARROW = (
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e3m4", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    *("float8_e4m3b11fnuz", "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4"),
)
"""Dtypes of data that moves alone. int2 and uint2 are not among them: XLA's CPU backend writes past the end of their
buffers, and the process dies at some later time (see docs/findings.md)."""

NUMBERS = (
    *("float32", "bfloat16", "float16", "int32", "int8", "uint8", "complex64", "float64", "complex128"),
    *INTEGERS,
)
ORDERED = ("float32", "bfloat16", "float16", "int32", "int8", "uint8", "bool", "float64", *INTEGERS)
ANY = (*NUMBERS, "bool", *NARROW)

SUMMED = ("nan", *special_values.ONE, "inf", "zeros", "subnormal", "extreme")
"""The special values of which a sum is exact."""

Blocks = list[np.ndarray]


def groups_of(
    sizes: Mapping[str, int], axes: Sequence[str], groups: Sequence[Sequence[int]] | None = None
) -> list[tuple[int, ...]]:
    """Flat mesh positions of each group that a collective over `axes` forms, the last of `axes` fastest;
    `groups` (axis_index_groups) splits each further."""
    names = list(sizes)
    positions = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
    order = [i for i, name in enumerate(names) if name not in axes] + [names.index(a) for a in axes]
    rows = positions.transpose(order).reshape(-1, math.prod(sizes[a] for a in axes)).tolist()
    return [tuple(row[i] for i in group) for row in rows for group in (groups or [range(len(row))])]


def over_groups(
    define: Callable[[Blocks], Blocks],
    x: np.ndarray,
    sizes: Mapping[str, int],
    axes: Sequence[str],
    in_spec: Spec,
    out_spec: Spec,
    groups: Sequence[Sequence[int]] | None = None,
) -> np.ndarray:
    """The global result of a collective that is defined on the blocks of one group."""
    blocks = split(x, in_spec, sizes)
    results: Blocks = [x] * len(blocks)
    for group in groups_of(sizes, axes, groups):
        for position, block in zip(group, define([blocks[p] for p in group]), strict=True):
            results[position] = block
    return assemble(results, out_spec, sizes)


def axis_choices(mesh: MeshShape) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(weight, axes): every single axis, every ordered pair, all axes forward and backward."""
    names = mesh.names
    yield 0, names
    for name in reversed(names):
        if len(names) > 1:
            yield 1, (name,)
    for pair in itertools.permutations(names, 2):
        if pair != names:
            yield (1 if len(names) == 2 else 2), pair
    if len(names) == 3:
        yield 1, names[::-1]


ROWS, LANES = 8, 128
"""The tile of the accelerators' vector memory: the second-last and the last dimension of an array in whole tiles."""


def tiled_block(elements: int, dim: int, parts: int) -> list[int]:
    """A block [A, B, C] of about so many elements that divides into `parts` along dimension 0 or 1. Each part is
    contiguous, and whole tiles [*, 8, 128] where it has so many elements, else one row of up to 128 and as many rows
    as there are."""
    part = max(1, elements // parts)
    lanes = min(LANES, part)
    rows = min(ROWS, part // lanes)
    tiles = parts * max(bool(elements), round(elements / (parts * rows * lanes)))
    return [tiles, rows, lanes] if dim == 0 else [1, tiles * rows, lanes]


def interleaved(n: int) -> tuple[tuple[int, ...], ...]:
    """The two groups of every other member: ((0, 2, ...), (1, 3, ...))."""
    return tuple(range(0, n, 2)), tuple(range(1, n, 2))


class CollectiveOperation(Operation):
    """The base of the collectives: blocks of rank three (or one), axes, groups and the cost model.

    The payload of the ordinary options, which are timed, is whole tiles: compilers for accelerators make other
    collectives, or copies, of other shapes. All other options, and `shape=odd`, have blocks of [*, 4, 4].
    """

    family = "collectives"
    complete = True
    level = "L1"
    dtypes: ClassVar[tuple[str, ...]] = ANY
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0, "64B": 2, "512KiB": 2, "0B": 2}
    timed: ClassVar[Mapping[str, int]] = {
        "4KiB": 0, "64KiB": 0, "1MiB": 0, "1KiB": 1, "16KiB": 1, "256KiB": 1, "4MiB": 2, "16MiB": 4, "64MiB": 4,
    }  # fmt: skip
    kind: ClassVar[str]
    """The HLO collective of manual mode."""
    shaped: ClassVar[bool] = True
    """Whether its payload is a block, so that there is a variant of the ordinary options with an odd one."""

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for weight, axes in axis_choices(mesh):
            for more, options in self.choices(mesh.product(axes)):
                capability = options.pop("capability", None)
                yield Variant.of(weight + more, capability, axes=axes, **options)
                if self.shaped and not more:
                    yield Variant.of(weight + 1, capability, axes=axes, **options, shape="odd")

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """The ordinary options over all axes, and over each axis alone, because the links of axes may differ; with odd
        blocks in the full profile alone."""
        every = list(self.variants(mesh))
        ordinary = [v.options[1:] for v in every if not v.weight]  # the axes come first
        for variant in every:
            odd = variant.get("shape") == "odd"
            options = tuple(option for option in variant.options[1:] if option[0] != "shape")
            weight = variant.weight - odd
            if options in ordinary and (not weight or len(variant["axes"]) == 1):
                yield replace(variant, weight=weight + TIMED_PROFILES["full"] * odd)

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """(weight, options) beside the axes, for a group of n."""
        yield 0, {}

    def with_groups(self, n: int, **options: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        """The same options with axis_index_groups, if the group can be split."""
        if n >= 4 and n % 2 == 0:
            yield 1, {**options, "groups": "interleaved", "capability": "groups"}

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if variant.get("groups"):
            if mode in ("auto", "explicit", "pjit"):
                return "axis_index_groups have no spelling in a global program"
            if len(variant["axes"]) > 1:
                return "axis_index_groups take one axis"
        return super().absent(mode, variant, mesh)

    def lane_tiled(self, variant: Variant, mesh: MeshShape) -> bool:
        """Whether the payload of a variant is whole tiles: its options are ordinary ones."""
        ordinary = [options for weight, options in self.choices(mesh.product(variant["axes"])) if not weight]
        named = variant.options[1:]  # the axes come first
        chosen = {k: v for k, v in named if k != "fill" or v not in self.fills}
        return self.shaped and chosen in [{k: o[k] for k in o if k != "capability"} for o in ordinary]

    def block(self, request: Request, dim: int, parts: int = 1) -> list[int]:
        """Local shape [A, B, C] of about the requested size. Dimension `dim` is a multiple of `parts`, and of n where
        the payload is not of whole tiles."""
        n = request.mesh.product(request.variant["axes"])
        elements = request.elements
        if self.lane_tiled(request.variant, request.mesh):
            return tiled_block(elements, dim, parts)
        side = 4 if elements >= 16 * n else 1
        shape = [side, side, side]
        shape[dim] = n * max(bool(elements), round(elements / (n * side * side)))
        return shape

    def options(self, request: Request, in_spec: Spec, out_spec: Spec, **more: Any) -> dict[str, Any]:
        """The options that the function of any mode may name."""
        variant, mesh = request.variant, request.mesh
        axes = variant["axes"]
        n = mesh.product(axes)
        return {
            "axes": axes,
            "n": n,
            "groups": interleaved(n) if variant.get("groups") else None,
            "sizes": dict(mesh.sizes),
            "in_spec": in_spec,
            "out_spec": out_spec,
            **more,
        }

    def traffic(self, request: Request, payload: int, options: Mapping[str, Any]) -> tuple[Traffic, ...]:
        """One collective of this kind over the groups; none if there is nothing to exchange."""
        groups = groups_of(request.mesh.sizes, options["axes"], options["groups"])
        if len(groups[0]) == 1 or not payload:
            return ()
        return (Traffic(self.kind, payload, tuple(groups)),)

    def connect(self, request: Request, options: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
        """The same groups: every mode must connect them."""
        if not request.elements:
            return ()
        return tuple(
            g for g in groups_of(request.mesh.sizes, options["axes"], options["groups"]) if len(g) > 1
        )


class Reduction(CollectiveOperation):
    """Reductions: from a stack [n, A, B, C], one block per member, to the reduced block in every member."""

    kind = "all-reduce"
    fills: ClassVar[tuple[str, ...]] = (*SUMMED, "ties")
    divided: ClassVar[bool] = False

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {}
        yield 2, {"rank": 1}
        yield from self.with_groups(n)

    def plan(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        axes, rest = variant["axes"], mesh.rest(variant["axes"])
        n = mesh.product(axes)
        local = self.block(request, 0)
        if variant.get("rank") == 1:
            local, inner = [math.prod(local)], [rest or None]
        else:
            inner = [None, None, rest or None]
        wide = [*local[:-1], local[-1] * mesh.product(rest)]
        in_spec: Spec = (axes, *inner)
        out_spec: Spec = (axes if variant.get("groups") else None, *inner)
        options = self.options(request, in_spec, out_spec)
        members = len(groups_of(mesh.sizes, axes, options["groups"])[0])
        argument = Argument((n, *wide), request.dtype, in_spec, *self.fill(members))
        result = Result((n if variant.get("groups") else 1, *wide), request.dtype, out_spec)
        payload = nbytes(argument, mesh)
        return Plan(
            (argument,),
            (result,),
            options,
            judge="bound" if self.divided and members & (members - 1) else "exact",
            cost=Cost(0, payload, 2 * (members - 1) / members),
            traffic=self.traffic(request, payload, options),
            connect=self.connect(request, options),
        )

    def fill(self, members: int) -> tuple[Callable[..., np.ndarray], dict[str, Any]]:
        """Values whose reduction is exact in any order."""
        return values.distinct, {}


class Psum(Reduction):
    """Sum over mesh axes; in a global program, a sum over the sharded dimension."""

    name = "psum"
    fills: ClassVar[tuple[str, ...]] = SUMMED
    common_fills: ClassVar[tuple[str, ...]] = ("nan-one", "inf")
    everywhere = True
    dtypes: ClassVar[tuple[str, ...]] = NUMBERS

    def fill(self, members: int) -> tuple[Callable[..., np.ndarray], dict[str, Any]]:
        return values.summands, {"terms": members}

    @staticmethod
    def manual(x, *, axes, groups):
        return lax.psum(x, axes[0] if groups else axes, axis_index_groups=groups)

    @staticmethod
    def auto(x):
        return jnp.sum(x, axis=0, keepdims=True, dtype=x.dtype)

    explicit = auto

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, groups):
        return over_groups(
            lambda blocks: [sum(blocks)] * len(blocks), x, sizes, axes, in_spec, out_spec, groups
        )


class Pmean(Psum):
    """Mean over mesh axes; exact where the group is a power of two, else within 2u (XLA multiplies by 1/n)."""

    name = "pmean"
    common_fills: ClassVar[tuple[str, ...]] = ()
    fills: ClassVar[tuple[str, ...]] = tuple(
        kind for kind in SUMMED if kind != "extreme"
    )  # the sum overflows, and the mean does not
    everywhere = False
    dtypes = ("float32", "bfloat16", "float16", "complex64", "float64", "complex128")
    divided = True

    @staticmethod
    def manual(x, *, axes, groups):
        return lax.pmean(x, axes[0] if groups else axes, axis_index_groups=groups)

    @staticmethod
    def auto(x):
        return jnp.mean(x, axis=0, keepdims=True, dtype=x.dtype)

    explicit = auto

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, groups):
        def mean(blocks):
            return [sum(blocks) / len(blocks)] * len(blocks)

        return over_groups(mean, x, sizes, axes, in_spec, out_spec, groups)

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        # The sum is exact; 1/n is rounded once and the product once, which may be flushed to zero.
        kind = dtype_of(plan.results[0].dtype)
        return [
            2 * kind.unit_roundoff * np.abs(e) + kind.tiny * (np.abs(e) < 2 * kind.tiny) for e in expected
        ]


class Pmax(Reduction):
    """Maximum over mesh axes."""

    name = "pmax"
    dtypes = ORDERED

    @staticmethod
    def manual(x, *, axes, groups):
        return lax.pmax(x, axes[0] if groups else axes, axis_index_groups=groups)

    @staticmethod
    def auto(x):
        return jnp.max(x, axis=0, keepdims=True)

    explicit = auto

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, groups):
        def largest(blocks):
            return [np.max(blocks, axis=0)] * len(blocks)

        return over_groups(largest, x, sizes, axes, in_spec, out_spec, groups)


class Pmin(Reduction):
    """Minimum over mesh axes."""

    name = "pmin"
    dtypes = ORDERED

    @staticmethod
    def manual(x, *, axes, groups):
        return lax.pmin(x, axes[0] if groups else axes, axis_index_groups=groups)

    @staticmethod
    def auto(x):
        return jnp.min(x, axis=0, keepdims=True)

    explicit = auto

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, groups):
        def smallest(blocks):
            return [np.min(blocks, axis=0)] * len(blocks)

        return over_groups(smallest, x, sizes, axes, in_spec, out_spec, groups)


class AllGather(CollectiveOperation):
    """Every member gets all blocks, along an existing dimension (tiled) or stacked along a new one."""

    name = "all_gather"
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
        if variant.get("groups"):  # each group gathers different blocks: the copies are adjacent
            where = 0 if tiled or dim else 1
            members = len(interleaved(n)[0])
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


class PsumScatter(CollectiveOperation):
    """Sum over mesh axes of which each member keeps its part."""

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
        if not tiled:  # the scattered dimension is used up: move its elements next to it
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
    """An array dimension of the size of the mesh axes changes places with them."""

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
    """Blocks move from member to member along (source, destination) pairs; who gets none holds zeros."""

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
        # A pair of a member with itself may be kept in the list or not: only what moves is contracted.
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
            except TypeError:  # refused, and rightly: an iterator is consumed by whoever reads it first
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
    """The position of a member along mesh axes, the last one fastest."""

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
    """The rows of a ragged exchange, [n, n]: member i sends (i + 2j) mod 3 of them to member j."""
    return (np.arange(n)[:, None] + 2 * np.arange(n)) % 3


def ragged_table(
    bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype, *, part: str
) -> np.ndarray:
    """Sizes and offsets of a ragged exchange, [n, n] each."""
    send = ragged_sends(shape[1])
    table = {
        "send": send,
        "receive": send.T,
        "from": np.cumsum(send, axis=1) - send,  # where in the sender's operand
        "to": np.cumsum(send, axis=0) - send,  # where in the receiver's output
    }[part]
    return table.ravel()[index.astype(np.int64)].astype(dtype)


class RaggedAllToAll(CollectiveOperation):
    """Each member sends parts of different sizes, which land at given offsets of the receivers' outputs."""

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
