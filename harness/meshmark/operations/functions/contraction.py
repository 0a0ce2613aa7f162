# SPDX-License-Identifier: Apache-2.0
"""Matmul, batched matmul and einsum. Each dimension is sharded in some variant.

There are two checks. Exact: one factor holds odd integers that use the dtype's whole significand, the other holds -1, 0
and 1. Every partial sum is exact in any order, and any intermediate rounding changes the result. Rounded: random
factors over at most 64 terms are judged with the forward error bound of `meshmark.core.bounds`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import Spec
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
    parse_size,
)
from meshmark.operations.collective_base import groups_of

Fill = Callable[..., np.ndarray]

FLOAT32 = {"u": 2.0**-24, "u_sum": 2.0**-24, "tiny": 2.0**-126}
"""The arithmetic of narrow factors whose products are accumulated and stored in float32."""

TERMS = 64
"""The most terms of a rounded contraction. With more terms the bound is too wide to detect a narrower dtype."""


def odd(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """`values.odd_rows`. A complex dtype has such values in both parts, with equal signs."""
    if dtype.kind != "c":
        return values.odd_rows(bits, index, shape, dtype)
    real = np.dtype(f"f{dtype.itemsize // 2}")
    parts = [values.odd_rows(b, index, shape, real) for b in (bits, values.random_bits(1, bits))]
    return (parts[0] + 1j * parts[1]).astype(dtype)


def coarse(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Complex numbers with parts that bfloat16 holds exactly, so that default precision does not round them."""
    narrow = dtype_of("bfloat16").numpy
    parts = [
        values.odd_rows(b, index, shape, narrow).astype(f"f{dtype.itemsize // 2}")
        for b in (bits, values.random_bits(1, bits))
    ]
    return (parts[0] + 1j * parts[1]).astype(dtype)


def signs(bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """`values.plus_minus`. In a complex dtype every other column is multiplied by i."""
    if dtype.kind != "c":
        return values.plus_minus(bits, index, shape, dtype)
    real = values.plus_minus(bits, index, shape, np.dtype(f"f{dtype.itemsize // 2}"))
    return np.where(index % np.uint64(shape[-1]) % np.uint64(2) == 1, 1j * real, real).astype(dtype)


def arranged(
    bits: np.ndarray,
    index: np.ndarray,
    shape: Sequence[int],
    dtype: np.dtype,
    *,
    fill: Fill,
    groups: Sequence[Sequence[int]],
) -> np.ndarray:
    """The values of `fill` for an array in which each group of dimensions, such as (kept, contracted), is merged into
    one dimension."""
    where = np.unravel_index(index.astype(np.int64), shape)
    order = [d for group in groups for d in group]
    flat = np.ravel_multi_index([where[d] for d in order], [shape[d] for d in order])
    merged = [math.prod(shape[d] for d in group) for group in groups]
    return fill(bits, flat.astype(np.uint64), merged, dtype)


def fitted(length: int, parts: int) -> int:
    """The largest multiple of `parts` that is not above `length`; at least `parts`."""
    return max(parts, length // parts * parts)


def summed(mesh: MeshShape, axes: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The device groups over which partial sums along these axes are added. Groups of one device are left out."""
    return tuple(g for g in groups_of(mesh.sizes, axes) if len(g) > 1)


def narrow(dtype: str) -> bool:
    """Whether products of this dtype are accumulated in float32."""
    return dtype_of(dtype).unit_roundoff > dtype_of("float32").unit_roundoff


class Contraction(Operation):
    """The base of the contractions. Each letter of the einsum subscripts is a dimension. A variant's option that is a
    tuple of mesh axes shards its letter over these axes."""

    family = "contraction"
    complete = True
    fills: ClassVar[tuple[str, ...]] = ("nan", "nan-one", "nan-first", "nan-last", "inf-one", "zeros")
    level = "L2"
    dtypes: ClassVar[tuple[str, ...]] = (
        "float32", "bfloat16", "float16", "int8", "int32", "complex64", "float64",
    )  # fmt: skip
    letters: ClassVar[dict[str, str]] = {}
    """Option name -> letter, for the options that are not named after their letter."""
    short: ClassVar[str] = ""
    """Letters of short dimensions (about 4 elements, a multiple of their shards): batch and heads."""
    wide: ClassVar[bool] = True
    """Whether the rounded check returns products of a narrow dtype in float32."""

    def subscripts(self, variant: Variant) -> str:
        """The einsum subscripts of two factors."""
        raise NotImplementedError

    def shardings(self, mesh: MeshShape) -> Iterator[tuple[int, dict[str, Any]]]:
        """(weight, options) pairs. The options state which letters are sharded over which mesh axes."""
        raise NotImplementedError

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for weight, options in self.shardings(mesh):
            yield Variant.of(weight, **options, check="exact")
            yield Variant.of(weight + 2, **options, check="rounded", precision="highest")

    def plan(self, request: Request) -> Plan:
        mesh, variant, n = request.mesh, request.variant, parse_size(request.size)
        subscripts = self.subscripts(variant)
        left, right, out = re.split(",|->", subscripts)
        over = {self.letters.get(k, k): axes for k, axes in variant.options if isinstance(axes, tuple)}
        inner = [letter for letter in left if letter not in out]
        axes = tuple(a for letter in inner for a in over.get(letter, ()))
        scatter = bool(variant.get("scatter"))
        real = (
            dtype_of(request.dtype).kind == "float"
        )  # the rounded check of integers and complex numbers is exact too
        exact = variant["check"] == "exact" or not real
        out_over = over | {out[0]: over.get(out[0], ()) + axes} if scatter else over
        lengths = {}
        for letter in left + right:
            wanted = 4 if letter in self.short else n
            if letter in inner:
                wanted = round((n if exact else min(n, TERMS)) ** (1 / len(inner)))
            lengths[letter] = fitted(wanted, mesh.product(out_over.get(letter, ())))

        def spec(letters: str, over: dict[str, tuple[str, ...]]) -> Spec:
            return tuple(over.get(letter) for letter in letters)

        def dims(letters: str, wanted: Callable[[str], bool]) -> list[int]:
            return [d for d, letter in enumerate(letters) if wanted(letter)]

        fills: list[tuple[Fill, dict[str, Any]]] = [(values.uniform, {})] * 2
        if exact:
            batch = set(left) & set(right) & set(out)
            rows = [dims(left, lambda i: i not in inner), dims(left, lambda i: i in inner)]
            columns = [
                dims(right, lambda i: i in batch),
                [right.index(i) for i in inner],
                dims(right, lambda i: i not in batch and i not in inner),
            ]
            rounded = variant.get("precision") == "default" and dtype_of(request.dtype).kind == "complex"
            fills = [
                (arranged, {"fill": coarse if rounded else odd, "groups": rows}),
                (arranged, {"fill": signs, "groups": columns}),
            ]
        arguments = tuple(
            Argument(tuple(lengths[i] for i in letters), request.dtype, spec(letters, over), *fill)
            for letters, fill in zip((left, right), fills, strict=True)
        )
        dtype = request.dtype
        arithmetic: dict[str, float] = {}
        if dtype == "int8":
            dtype = "int32"
        elif not exact and narrow(dtype):
            if self.wide:
                dtype, arithmetic = "float32", FLOAT32
            else:
                arithmetic = {"u_sum": 2.0**-24, "stores": mesh.product(axes)}
        shape = tuple(lengths[i] for i in out)
        result = Result(shape, dtype, spec(out, out_over))
        partial_sum = Result(shape, dtype, spec(out, over))
        groups = summed(mesh, axes)
        kind = "reduce-scatter" if scatter else "all-reduce"
        return Plan(
            arguments,
            (result,),
            {
                "subscripts": subscripts,
                "inner": axes,
                "scatter": scatter,
                "infer": bool(variant.get("infer")),
                "precision": variant.get("precision", "highest"),
                "accumulate": dtype,
                "out_spec": result.spec,
            },
            judge="exact" if exact else "bound",
            cost=Cost((8 if dtype_of(dtype).kind == "complex" else 2) * math.prod(lengths.values())),
            traffic=(Traffic(kind, nbytes(partial_sum, mesh), groups, dtype_of(dtype).itemsize),)
            if groups
            else (),
            connect=groups,
            arithmetic=arithmetic,
        )

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if variant.get("infer") and mode != "explicit":
            return "only explicit mode infers shardings while tracing"
        return super().absent(mode, variant, mesh)


class Matmul(Contraction):
    """C = A @ B. Rows of A, columns of B and the contracted dimension are sharded over any mesh axes. If the contracted
    dimension is sharded, the partial sums are added by an all-reduce, or with `scatter` by a reduce-scatter."""

    name = "matmul"
    sizes: ClassVar[dict[str, int]] = {"n64": 0, "n256": 2}
    timed: ClassVar[dict[str, int]] = {"n256": 1, "n1024": 1, "n512": 2, "n2048": 3, "n4096": 4}
    letters: ClassVar[dict[str, str]] = {"rows": "i", "inner": "k", "cols": "j"}
    wide = False

    def subscripts(self, variant: Variant) -> str:
        return "ik,kj->ij"

    def shardings(self, mesh: MeshShape) -> Iterator[tuple[int, dict[str, Any]]]:
        names, roles = mesh.names, tuple(self.letters)
        ordinary = {1: ("inner",), 2: ("rows", "inner"), 3: ("rows", "inner", "cols")}[len(names)]
        for choice in itertools.product((*roles, None), repeat=len(names)):
            over = {r: tuple(a for a, c in zip(names, choice, strict=True) if c == r) for r in roles}
            sharded = {r: axes or None for r, axes in over.items()}
            weight = 2 if None in choice or len(names) == 3 else 1
            if choice in (ordinary, ("rows", "cols")):
                weight = 0
            elif sorted(map(str, choice)) == sorted(roles):
                weight = 1
            yield weight, sharded
            if len(names) == 2 and choice[0] == choice[1] and choice[0]:
                yield 2, {**sharded, choice[0]: names[::-1]}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for weight, sharded in self.shardings(mesh):
            split = sharded["rows"] and sharded["inner"]
            yield Variant.of(weight, **sharded, check="exact")
            yield Variant.of(weight + (not split), **sharded, check="rounded", precision="highest")
            yield Variant.of(weight + 2 - bool(split), **sharded, check="rounded", precision="default")
            if sharded["inner"]:
                yield Variant.of(weight + 2 * (not split), **sharded, scatter=True, check="exact")
                yield Variant.of(weight + 2, **sharded, scatter=True, check="rounded", precision="highest")
            elif sharded["rows"] or sharded["cols"]:
                yield Variant.of(weight + 1, **sharded, infer=True, check="exact")

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """The exact variants of weight 0 or 1 without `infer`: with all-reduce and with reduce-scatter.

        The exact check runs the same program as the rounded one.
        """
        for variant in self.variants(mesh):
            if variant["check"] == "exact" and variant.weight <= 1 and not variant.get("infer"):
                yield replace(variant, weight=0)

    @staticmethod
    def manual(a, b, *, inner, scatter, precision, accumulate):
        c = jnp.matmul(a, b, precision=precision, preferred_element_type=accumulate)
        if scatter:
            return lax.psum_scatter(c, inner, scatter_dimension=0, tiled=True)
        return lax.psum(c, inner) if inner else c

    @staticmethod
    def auto(a, b, *, precision, accumulate):
        return jnp.matmul(a, b, precision=precision, preferred_element_type=accumulate)

    @staticmethod
    def explicit(a, b, *, infer, precision, accumulate, out_spec):
        out = None if infer else P(*out_spec)
        return jnp.matmul(a, b, precision=precision, preferred_element_type=accumulate, out_sharding=out)

    @staticmethod
    def reference(a, b):
        return np.matmul(a, b)


def outer_inner(mesh: MeshShape, outer: str, inner: str) -> dict[str, tuple[str, ...]]:
    """The last mesh axis shards the dimension `inner`, the other axes shard `outer`. A single axis shards `inner`."""
    names = mesh.names
    return {outer: names[:-1], inner: names[-1:]} if len(names) > 1 else {inner: names}


class BatchMatmul(Matmul):
    """Products of a batch of matrices. The batch and a dimension of the matrices are sharded."""

    name = "batch_matmul"
    dtypes = ("float32", "bfloat16", "complex64", "float64")
    sizes: ClassVar[dict[str, int]] = {"n64": 0, "n16": 2}
    timed: ClassVar[dict[str, int]] = {"n256": 2}
    letters: ClassVar[dict[str, str]] = {"batch": "b", **Matmul.letters}
    short = "b"
    wide = True
    variants = Contraction.variants

    def subscripts(self, variant: Variant) -> str:
        return "bik,bkj->bij"

    def shardings(self, mesh: MeshShape) -> Iterator[tuple[int, dict[str, Any]]]:
        if len(mesh.names) > 1:
            yield 1, {"batch": mesh.names}
        for weight, other in ((0, "rows"), (0, "inner"), (2, "cols")):
            yield weight, outer_inner(mesh, "batch", other)
        yield 2, outer_inner(mesh, "rows", "batch")
        if len(mesh.names) > 1:  # over one axis this is the sharding of cols above
            yield 2, outer_inner(mesh, "inner", "cols")


class Einsum(Contraction):
    """Contractions with a transposed result, batch dimensions or two contracted dimensions, as in attention."""

    name = "einsum"
    dtypes = ("float32", "bfloat16", "complex64", "float64")
    sizes: ClassVar[dict[str, int]] = {"n64": 0, "n16": 2}
    timed: ClassVar[dict[str, int]] = {"n256": 2}
    short = "bh"
    patterns: ClassVar[dict[str, str]] = {
        "turned": "ij,jk->ki",
        "scores": "bhqd,bhkd->bhqk",
        "heads": "bshd,hdm->bsm",
    }

    def subscripts(self, variant: Variant) -> str:
        return self.patterns[variant["pattern"]]

    def shardings(self, mesh: MeshShape) -> Iterator[tuple[int, dict[str, Any]]]:
        for weight, pattern, outer, inner in (
            (0, "turned", "i", "j"),
            (2, "turned", "i", "k"),
            (0, "scores", "b", "h"),
            (2, "scores", "q", "k"),
            (1, "scores", "h", "d"),
            (1, "heads", "b", "h"),
            (1, "heads", "h", "d"),
            (2, "heads", "s", "m"),
        ):
            yield weight, {"pattern": pattern, **outer_inner(mesh, outer, inner)}

    @staticmethod
    def manual(a, b, *, subscripts, inner, precision, accumulate):
        c = jnp.einsum(subscripts, a, b, precision=precision, preferred_element_type=accumulate)
        return lax.psum(c, inner) if inner else c

    @staticmethod
    def auto(a, b, *, subscripts, precision, accumulate):
        return jnp.einsum(subscripts, a, b, precision=precision, preferred_element_type=accumulate)

    @staticmethod
    def explicit(a, b, *, subscripts, precision, accumulate, out_spec):
        return jnp.einsum(
            subscripts,
            a,
            b,
            precision=precision,
            preferred_element_type=accumulate,
            out_sharding=P(*out_spec),
        )

    @staticmethod
    def reference(a, b, *, subscripts):
        return np.einsum(subscripts, a, b)
