# SPDX-License-Identifier: Apache-2.0
"""One step of decoding: one token per sequence. Its keys and values go into a cache at a position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Cost, Plan, Request, Result, Variant, nbytes
from meshmark.operations.functions.contraction import outer_inner, summed
from meshmark.operations.functions.wholes import constant
from meshmark.operations.models.decoder import (
    LAYERS,
    array_of,
    axes_of_letters,
    dimensions,
    flops_of,
    normalized,
    placed,
    tokens_of,
    weights_of,
)
from meshmark.operations.models.decoder_reference import decoded
from meshmark.operations.models.programs import WholeProgram, over

PRODUCTS = {
    "queries": "bd,dgrk->bgrk",
    "keys and values": "bd,cdgk->cbgk",
    "scores": "bgrk,btgk->bgrt",
    "mixed": "bgrt,btgk->bgrk",
    "attended": "bgrk,grkd->bd",
    "widened": "bd,cdf->cbf",
    "narrowed": "bf,fd->bd",
}
"""The products of a block for one position, with the letters of `meshmark.operations.models.decoder_reference`."""

LOGITS = "bd,dv->bv"


def step(x, position, cache, stacks, *, product, total):
    """The features of one more token per sequence after all blocks, and the cache [l, c, b, t, g, k]."""

    def block(x, layer):
        old, norms, wq, wkv, wo, wide, narrow = layer
        h = normalized(x, norms[0])
        q = product(PRODUCTS["queries"], h, wq)
        new = product(PRODUCTS["keys and values"], h, wkv)[:, :, None]
        kv = lax.dynamic_update_slice_in_dim(old, new, position, 2)
        scores = product(PRODUCTS["scores"], q, kv[0]) * q.shape[-1] ** -0.5
        seen = lax.broadcasted_iota(jnp.int32, scores.shape[-1:], 0) <= position
        mixed = product(PRODUCTS["mixed"], jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1), kv[1])
        x = x + total(product(PRODUCTS["attended"], mixed, wo))
        gate, content = product(PRODUCTS["widened"], normalized(x, norms[1]), wide)
        return x + total(product(PRODUCTS["narrowed"], jax.nn.silu(gate) * content, narrow)), kv

    return lax.scan(block, x, (cache, *stacks))


class DecodeStep(WholeProgram):
    """One decoding step with a cache of keys and values: the logits of the next token, and the cache with new entries
    at a position that is an input. A position past the end means the last one."""

    name = "decode_step"
    timed: ClassVar[Mapping[str, int]] = {"n16": 1, "n64": 1, "n128": 4}

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        names = mesh.names
        ordinary = outer_inner(mesh, "batch", "model")
        yield Variant.of(0, **ordinary, at="middle")
        yield Variant.of(2, **ordinary, at="past")
        yield Variant.of(3, **ordinary, at="first")
        yield Variant.of(3, **ordinary, at="last")
        if len(names) > 1:
            yield Variant.of(2, **outer_inner(mesh, "model", "batch"), at="last")
            yield Variant.of(3, batch=names, at="last")
            yield Variant.of(3, model=names, at="last")

    def forward(self, request: Request) -> Plan:
        mesh, variant, size = request.mesh, request.variant, dimensions(request)
        model, length = variant.get("model") or (), size["t"]
        at = {"first": 0, "middle": length // 2, "last": length - 1, "past": length + 3}[variant["at"]]
        position = Argument((), "int32", (), constant, {"value": at})
        cache = array_of(request, "lcbtgk", 1.0)
        tokens, logits = tokens_of(request, "b"), array_of(request, "bv", 1.0)
        rows = nbytes(array_of(request, "bd", 1.0), mesh)
        flops = LAYERS * flops_of(PRODUCTS.values(), size) + flops_of([LOGITS], size)
        return Plan(
            (tokens, position, cache, *weights_of(request)),
            tuple(Result(a.shape, a.dtype, a.spec) for a in (logits, cache)),
            {
                "letters": tuple((c, axes) for c, axes in axes_of_letters(variant).items() if axes),
                "model": model,
                "precision": "highest",
            },
            judge="bound",
            cost=Cost(flops),
            repeats=LAYERS,
            traffic=over(mesh, ("all-reduce", model, rows * (1 + 2 * LAYERS))),
            connect=summed(mesh, model),
        )

    @staticmethod
    def manual(tokens, position, cache, table, *weights, model, precision):
        *stacks, norm, head = weights

        def product(subscripts, a, b):
            return jnp.einsum(subscripts, a, b, precision=precision)

        def total(x):
            return lax.psum(x, model) if model else x

        here = tokens - (lax.axis_index(model) * table.shape[0] if model else 0)
        mine = (here >= 0) & (here < table.shape[0])
        x = total(jnp.where(mine[:, None], jnp.take(table, jnp.where(mine, here, 0), axis=0), 0))
        x, cache = step(x, position, cache, stacks, product=product, total=total)
        return product(LOGITS, normalized(x, norm), head), cache

    @staticmethod
    def auto(tokens, position, cache, table, *weights, precision):
        *stacks, norm, head = weights

        def product(subscripts, a, b):
            return jnp.einsum(subscripts, a, b, precision=precision)

        x = jnp.take(table, tokens, axis=0)
        x, cache = step(x, position, cache, stacks, product=product, total=lambda y: y)
        return product(LOGITS, normalized(x, norm), head), cache

    @staticmethod
    def explicit(tokens, position, cache, table, *weights, letters, precision):
        *stacks, norm, head = weights

        def product(subscripts, a, b):
            out = placed(letters, subscripts.partition("->")[2])
            return jnp.einsum(subscripts, a, b, precision=precision, out_sharding=out)

        x = table.at[tokens].get(out_sharding=placed(letters, "bd"))
        x, cache = step(x, position, cache, stacks, product=product, total=lambda y: y)
        return product(LOGITS, normalized(x, norm), head), cache

    @staticmethod
    def reference(*arrays):
        return decoded(*arrays)
