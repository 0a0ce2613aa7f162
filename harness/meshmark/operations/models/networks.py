# SPDX-License-Identifier: Apache-2.0
"""Parts of networks: variants of attention, ragged products, cross entropy over a sharded vocabulary, rotary embedding.
The ragged product is exact. The others have uniform inputs, and bounds from the references (`meshmark.core.bounds`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.core.layout import axes_of
from meshmark.operations.base import Argument, Request, Result, Variant
from meshmark.operations.functions.wholes import Form, WholeFunction
from meshmark.operations.placements.placement import spec_of

KINDS = ("plain", "causal", "grouped", "masked", "biased")
WAYS = ("heads", "sequence")


class Network(WholeFunction):
    """The base of the functions whose gradients compile slowly."""

    family = "networks"
    one_mode = True
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)


class DotProductAttention(Network):
    """`jax.nn.dot_product_attention`: plain, causal, grouped (fewer heads of keys), with a mask and with a bias. The
    batch is sharded, and also the heads or the sequence of queries and keys."""

    name = "dot_product_attention"

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for kind in KINDS:
            for sharded in WAYS:
                yield 0, {"kind": kind, "sharded": sharded}

    def dims(self) -> tuple[int | None, ...]:
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        variant, n = request.variant, request.mesh.size
        kind, sharded = variant["kind"], variant["sharded"]
        batch, other = spec_of(variant["of"])
        heads = n if sharded == "heads" else 4
        keys = heads if kind != "grouped" else heads // 2 if heads % 2 == 0 else 1
        along = (other, None) if sharded == "sequence" else (None, other)
        if kind == "grouped" and sharded == "heads":
            along = (None, None)
        length, width = max(8, n), 8
        if sharded == "sequence":  # eight positions, or more if the number of parts does not divide them
            parts = request.mesh.product(axes_of(other))
            length = -(-length // parts) * parts
        q = Argument((n, length, heads, width), x.dtype, (batch, *along, None), values.uniform)
        k = Argument((n, length, keys, width), x.dtype, (batch, *along, None), values.uniform)
        arguments = [q, k, k]
        mixed: list[tuple[int, ...]] = [(1,), (1,), (1,)]
        if kind == "masked":
            arguments.append(Argument((1, 1, length, length), "bool", (None,) * 4, no_empty_row))
            mixed.append(())
        if kind == "biased":
            arguments.append(Argument((1, 1, length, length), x.dtype, (None,) * 4, values.uniform))
            mixed.append(())
        return Form(
            tuple(arguments),
            (Result(q.shape, x.dtype, q.spec),),
            {"kind": kind},
            mixed=tuple(mixed),
            kept=((1,),),
            judge="bound",
            ruled=False,
            wrt=(0, 1, 2),
        )

    def rarely(self, options: Mapping[str, Any]) -> bool:
        """Whether the standard profile leaves out the gradient. It takes the gradient of each kind in one sharding."""
        return WAYS[KINDS.index(options["kind"]) % 2] != options["sharded"]

    def turn(self, variant: Variant) -> int:
        return KINDS.index(variant["kind"])

    @staticmethod
    def whole(q, k, v, *more, kind):
        extra = {"masked": "mask", "biased": "bias"}.get(kind)
        given = {extra: more[0]} if extra else {}
        with jax.default_matmul_precision("highest"):
            return jax.nn.dot_product_attention(q, k, v, is_causal=kind == "causal", **given)

    @staticmethod
    def reference(q, k, v, *more, kind):
        times = q.shape[2] // k.shape[2]
        k, v = np.repeat(k, times, axis=2), np.repeat(v, times, axis=2)
        return np.einsum("bhqk,bkhd->bqhd", attended(q, k, *more, kind=kind), v)

    @staticmethod
    def gradient(q, k, v, *more, kind):
        """The gradients, from the derivative of a softmax p: p * (d - the sum of p * d). Heads that share keys add
        up."""
        *more, g = more
        times, scale = q.shape[2] // k.shape[2], 1.0 / math.sqrt(q.shape[3])
        keys, held = np.repeat(k, times, axis=2), np.repeat(v, times, axis=2)
        p = attended(q, keys, *more, kind=kind)
        d = p * np.einsum("bqhd,bkhd->bhqk", g, held)
        d = (d - p * d.sum(axis=3, keepdims=True)) * scale

        def shared(x):
            return x.reshape(*k.shape[:3], times, k.shape[3]).sum(axis=3) if times > 1 else x

        return (
            np.einsum("bhqk,bkhd->bqhd", d, keys),
            shared(np.einsum("bhqk,bqhd->bkhd", d, q)),
            shared(np.einsum("bhqk,bqhd->bkhd", p, g)),
        )


def attended(q, k, *more, kind):
    """The attention weights: [batch, heads, queries, keys]."""
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * (1.0 / math.sqrt(q.shape[3]))
    if kind == "biased":
        scores = scores + more[0]
    length = q.shape[1]
    allowed = np.ones((1, 1, length, length), bool)
    if kind == "causal":
        allowed = np.tril(np.ones((length, length), bool))[None, None]
    if kind == "masked":
        allowed = more[0]
    weights = np.exp(scores - scores.max(axis=3, keepdims=True)) * allowed
    return weights / weights.sum(axis=3, keepdims=True)


def no_empty_row(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype) -> np.ndarray:
    """A random mask that keeps the diagonal."""
    n = np.uint64(shape[-1])
    return ((bits >> np.uint64(30)) % np.uint64(2) == 0) | (index % n == index // n % n)


class RaggedDot(WholeFunction):
    """`lax.ragged_dot`: rows in groups of different sizes, each with its own matrix. Columns or rows are sharded.
    Exact."""

    name = "ragged_dot"
    family = "networks"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"sharded": "rows"}
        yield 0, {"sharded": "columns"}

    def dims(self) -> tuple[int | None, ...]:
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        n, sharded = request.mesh.size, request.variant["sharded"]
        rows, columns = spec_of(request.variant["of"])
        rows, columns = (rows, None) if sharded == "rows" else (None, columns)
        lhs = Argument((2 * n, 6), x.dtype, (rows, None), values.tokens, {"below": 9})
        rhs = Argument((3, 6, 2 * n), x.dtype, (None, None, columns), values.tokens, {"below": 9})
        sizes = Argument((3,), "int32", (None,), groups, {"rows": 2 * n})
        return Form(
            (lhs, rhs, sizes),
            (Result((2 * n, 2 * n), x.dtype, (rows, columns)),),
            {},
            mixed=((0,), (), ()),
            kept=((0,),),
            ruled=False,
            wrt=(0, 1),
            terms=1 << 16,
        )

    @staticmethod
    def whole(lhs, rhs, sizes):
        return lax.ragged_dot(lhs, rhs, sizes, precision=lax.Precision.HIGHEST)

    @staticmethod
    def reference(lhs, rhs, sizes):
        group = np.repeat(np.arange(len(sizes)), sizes)
        return np.einsum("mk,mkn->mn", lhs, rhs[group])

    @staticmethod
    def gradient(lhs, rhs, sizes, g):
        group = np.repeat(np.arange(len(sizes)), sizes)
        total = np.zeros_like(rhs)
        np.add.at(total, group, np.einsum("mk,mn->mkn", lhs, g))
        return np.einsum("mn,mkn->mk", g, rhs[group]), total


def groups(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype, *, rows: int) -> np.ndarray:
    """The sizes of three groups that share `rows` rows: one row, none, and the rest."""
    return np.array([1, 0, rows - 1], dtype)[index.astype(np.int64)]


class CrossEntropy(Network):
    """log-sum-exp of the logits less the logit of the label, per token. The batch and the vocabulary are sharded."""

    name = "cross_entropy"
    share: ClassVar[int] = 3

    def dims(self) -> tuple[int | None, ...]:
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        x = Argument(x.shape, x.dtype, x.spec, values.uniform)
        labels = Argument(x.shape[:1], "int32", x.spec[:1], values.tokens, {"below": x.shape[1]})
        return Form(
            (x, labels),
            (Result(x.shape[:1], x.dtype, x.spec[:1]),),
            {},
            mixed=((1,), ()),
            kept=((),),
            judge="bound",
            ruled=False,
            wrt=(0,),
        )

    @staticmethod
    def whole(x, labels):
        chosen = jnp.take_along_axis(x, labels[:, None], axis=1)[:, 0]
        return jax.nn.logsumexp(x, axis=1) - chosen

    @staticmethod
    def reference(x, labels):
        chosen = (x * (np.arange(x.shape[1]) == labels[:, None])).sum(axis=1)
        largest = x.max(axis=1, keepdims=True)
        return np.log(np.exp(x - largest).sum(axis=1)) + largest[:, 0] - chosen

    @staticmethod
    def gradient(x, labels, g):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        g = g.reshape(-1, 1)
        return e / e.sum(axis=1, keepdims=True) * g - g * (np.arange(x.shape[1]) == labels[:, None])


class Rotary(Network):
    """Rotary embedding: each pair of features is rotated by an angle, given as sine and cosine."""

    name = "rotary"
    share: ClassVar[int] = 3

    def dims(self) -> tuple[int | None, ...]:
        return (None,)

    def form(self, request: Request, x: Argument) -> Form:
        even = (x.shape[0], x.shape[1] * (1 + x.shape[1] % 2))  # one device may have an odd size
        x = Argument(even, x.dtype, x.spec, values.uniform)
        table = Argument((x.shape[0], x.shape[1] // 2), x.dtype, (x.spec[0], None), values.uniform)
        return Form(
            (x, table, table),
            (Result(x.shape, x.dtype, x.spec),),
            {},
            mixed=((1,), (), ()),
            kept=((1,),),
            judge="bound",
            ruled=False,
            wrt=(0, 1, 2),
        )

    @staticmethod
    def whole(x, sine, cosine):
        first, second = jnp.split(x, 2, axis=1)
        return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=1)

    @staticmethod
    def reference(x, sine, cosine):
        half = x.shape[1] // 2
        first, second = x[:, :half], x[:, half:]
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=1)

    @staticmethod
    def gradient(x, sine, cosine, g):
        half = x.shape[1] // 2
        first, second, g1, g2 = x[:, :half], x[:, half:], g[:, :half], g[:, half:]
        back = np.concatenate([g1 * cosine + g2 * sine, g2 * cosine - g1 * sine], axis=1)
        return back, g2 * first - g1 * second, g1 * first + g2 * second
