# SPDX-License-Identifier: Apache-2.0
"""A decoder with its training step, as one program: embedding, blocks of grouped causal attention and a gated MLP with
RMS norm, cross entropy over a sharded vocabulary.

All modes share the blocks. A mode defines how a product is placed (`product`), how partial sums are added (`total`),
how the keys and values of the whole sequence are gathered (`whole`), and the position of its first token (`first`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import local_shape
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
    parse_size,
)
from meshmark.operations.functions.contraction import fitted, outer_inner, summed
from meshmark.operations.models.decoder_reference import EPSILON, Model
from meshmark.operations.models.programs import WholeProgram, added_gradients, over

LAYERS = 2

PRODUCTS = {
    "queries": "btd,dgrk->btgrk",
    "keys and values": "btd,cdgk->cbtgk",
    "scores": "btgrk,bsgk->bgrts",
    "mixed": "bgrts,bsgk->btgrk",
    "attended": "btgrk,grkd->btd",
    "widened": "btd,cdf->cbtf",
    "narrowed": "btf,fd->btd",
}
"""The products of a block, with the letters of `meshmark.operations.models.decoder_reference`."""

LOGITS = "btd,dv->btv"


def with_micro_batches(subscripts, rank):
    """The product of features of this rank, [batch, sequence, features]: those of rank 4 have micro-batches first."""
    if rank == 3:
        return subscripts
    factors, result = subscripts.split("->")
    return f"m{factors}->m{result}"


# The program ------------------------------------------------------------------------------------------------------


def normalized(x, scale):
    """RMS norm."""
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + EPSILON) * scale


def attention(h, wq, wkv, wo, *, product, total, whole, first):
    """Grouped causal attention: a token sees itself and all earlier tokens of the whole sequence."""
    q = product(PRODUCTS["queries"], h, wq)
    k, v = whole(product(PRODUCTS["keys and values"], h, wkv))
    scores = product(PRODUCTS["scores"], q, k) * q.shape[-1] ** -0.5
    here = first + lax.broadcasted_iota(jnp.int32, scores.shape[-2:], 0)
    seen = here >= lax.broadcasted_iota(jnp.int32, scores.shape[-2:], 1)
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return total(product(PRODUCTS["attended"], product(PRODUCTS["mixed"], weights, v), wo))


def gated(h, wide, narrow, *, product, total):
    """The gated MLP: silu of the gate times the content, then the product with `narrow`."""
    gate, content = product(PRODUCTS["widened"], h, wide)
    return total(product(PRODUCTS["narrowed"], jax.nn.silu(gate) * content, narrow))


def blocks(x, weights, *, product, total, whole, first):
    """The stack of blocks, as a scan over their weights: [batch, sequence, features] in and out."""

    def block(x, layer):
        norms, wq, wkv, wo, wide, narrow = layer
        h = normalized(x, norms[0])
        x = x + attention(h, wq, wkv, wo, product=product, total=total, whole=whole, first=first)
        return x + gated(normalized(x, norms[1]), wide, narrow, product=product, total=total), None

    return lax.scan(block, x, weights)[0]


def global_losses(tokens, labels, table, *weights, rows, product, whole, through=blocks):
    """The loss of each token [batch, sequence] in a program of whole arrays. `rows` looks up tokens in the table.
    `through` takes the features through all blocks; a pipeline takes micro-batches [micro-batch, batch, sequence]."""
    *stacks, norm, head = weights
    x = through(rows(table, tokens), tuple(stacks), product=product, total=lambda y: y, whole=whole, first=0)
    logits = product(with_micro_batches(LOGITS, x.ndim), normalized(x, norm), head)
    words = lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    chosen = jnp.sum(jnp.where(words == labels[..., None], logits, 0), axis=-1)
    return jax.nn.logsumexp(logits, axis=-1) - chosen


def placed(letters, subscripts):
    """The spec of an array whose dimensions are these subscripts. `letters` holds (letter, mesh axes) pairs."""
    return P(*(dict(letters).get(letter) for letter in subscripts))


def auto_losses(*arrays, precision, through=blocks):
    """The losses in auto mode."""

    def product(subscripts, a, b):
        return jnp.einsum(subscripts, a, b, precision=precision)

    def rows(table, tokens):
        return jnp.take(table, tokens, axis=0)

    return global_losses(*arrays, rows=rows, product=product, whole=lambda kv: kv, through=through)


def explicit_losses(*arrays, letters, precision, through=blocks):
    """The losses in explicit mode: each product states the sharding of its result."""

    def product(subscripts, a, b):
        out = placed(letters, subscripts.partition("->")[2])
        return jnp.einsum(subscripts, a, b, precision=precision, out_sharding=out)

    def rows(table, tokens):
        return table.at[tokens].get(out_sharding=placed(letters, "mbtd"[-1 - tokens.ndim :]))

    def whole(kv):
        return reshard(kv, placed(letters, "cbsgk"))

    return global_losses(*arrays, rows=rows, product=product, whole=whole, through=through)


def manual_losses(tokens, labels, table, *weights, model, sequence, precision, through=blocks):
    """The losses of a device's own tokens in manual mode."""
    *stacks, norm, head = weights

    def product(subscripts, a, b):
        return jnp.einsum(subscripts, a, b, precision=precision)

    def total(x):
        return lax.psum(x, model) if model else x

    def whole(kv):
        return lax.all_gather(kv, sequence, axis=2, tiled=True) if sequence else kv

    first = lax.axis_index(sequence) * tokens.shape[-1] if sequence else 0
    before = lax.axis_index(model) * table.shape[0] if model else 0
    here = tokens - before
    mine = (here >= 0) & (here < table.shape[0])
    x = total(jnp.where(mine[..., None], jnp.take(table, jnp.where(mine, here, 0), axis=0), 0))
    x = through(x, tuple(stacks), product=product, total=total, whole=whole, first=first)
    logits = product(with_micro_batches(LOGITS, x.ndim), normalized(x, norm), head)
    largest = lax.stop_gradient(logits).max(axis=-1)
    largest = lax.pmax(largest, model) if model else largest
    sums = total(jnp.sum(jnp.exp(logits - largest[..., None]), axis=-1))
    words = before + lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    chosen = total(jnp.sum(jnp.where(words == labels[..., None], logits, 0), axis=-1))
    return jnp.log(sums) + largest - chosen


# The operations ---------------------------------------------------------------------------------------------------


def dimensions(request: Request) -> dict[str, int]:
    """The size of each letter of the products."""
    mesh, variant = request.mesh, request.variant
    batch, sequence, model = (
        mesh.product(variant.get(name) or ()) for name in ("batch", "sequence", "model")
    )
    d = parse_size(request.size)
    return {
        **{"l": LAYERS, "c": 2, "d": d, "r": 2, "k": max(4, d // 8)},
        **{"b": fitted(4, batch), "t": fitted(d, sequence)},
        **{"g": fitted(2, model), "f": fitted(2 * d, model), "v": fitted(4 * d, model)},
    }


def axes_of_letters(variant: Variant) -> dict[str, tuple[str, ...] | None]:
    """The mesh axes that shard each letter of the products."""
    model = variant.get("model")
    return {"b": variant.get("batch"), "t": variant.get("sequence"), "g": model, "f": model, "v": model}


def array_of(request: Request, letters: str, scale: float) -> Argument:
    """An argument with these letters as its dimensions. Its values are uniform with the given scale."""
    size, axes = dimensions(request), axes_of_letters(request.variant)
    return Argument(
        tuple(size[c] for c in letters),
        request.dtype,
        tuple(axes.get(c) for c in letters),
        values.uniform,
        {"scale": scale},
    )


def weights_of(request: Request) -> tuple[Argument, ...]:
    """The embedding, the weights of the blocks, the scale of the last norm, and the head. With these scales the bounds
    do not grow with the size."""
    size = dimensions(request)
    inner, heads = 2.0 / size["d"], 2.0 / (size["g"] * size["r"] * size["k"])
    scales = {
        **{"vd": 2.0, "lcd": 1.0, "ldgrk": inner, "lcdgk": inner, "lgrkd": heads},
        **{"lcdf": inner, "lfd": 2.0 / size["f"], "d": 1.0, "dv": inner},
    }
    return tuple(array_of(request, letters, scale) for letters, scale in scales.items())


def tokens_of(request: Request, letters: str) -> Argument:
    """Random int32 tokens of the vocabulary."""
    like = array_of(request, letters, 1.0)
    below = dimensions(request)["v"]
    return Argument(like.shape, "int32", like.spec, values.tokens, {"below": below})


class Decoder(WholeProgram):
    """The loss of each token and their mean: embedding, two blocks of grouped causal attention and a gated MLP with RMS
    norm, cross entropy. The vocabulary, the heads and the MLP's inner features are sharded over the same axes, beside
    the batch or the sequence."""

    name = "decoder"
    timed: ClassVar[Mapping[str, int]] = {"n16": 1, "n64": 2, "n128": 4}

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        names = mesh.names
        if len(names) == 3:
            yield Variant.of(0, batch=names[:1], sequence=names[1:2], model=names[2:])
        yield Variant.of(int(len(names) == 3), **outer_inner(mesh, "batch", "model"))
        yield Variant.of(1, **outer_inner(mesh, "batch", "sequence"))
        if len(names) > 1:
            yield Variant.of(2, **outer_inner(mesh, "sequence", "model"))
            yield Variant.of(3, batch=names[:1])
            yield Variant.of(3, model=names)
        yield Variant.of(3, batch=names)

    def forward(self, request: Request) -> Plan:
        mesh, variant, size = request.mesh, request.variant, dimensions(request)
        model, data = variant.get("model") or (), sharding_tokens(variant)
        tokens = tokens_of(request, "bt")
        losses = Result(tokens.shape, request.dtype, tokens.spec)
        return Plan(
            (tokens, tokens, *weights_of(request)),
            (losses, Result((), request.dtype, ())),
            {
                "letters": tuple((c, axes) for c, axes in axes_of_letters(variant).items() if axes),
                "model": model,
                "sequence": variant.get("sequence") or (),
                "data": data,
                "precision": "highest",
            },
            judge="bound",
            cost=Cost(LAYERS * flops_of(PRODUCTS.values(), size) + flops_of([LOGITS], size)),
            repeats=LAYERS,
            traffic=traffic_of(request),
            connect=(*summed(mesh, model), *summed(mesh, data)),
        )

    @staticmethod
    def manual(*arrays, model, sequence, data, precision):
        losses = manual_losses(*arrays, model=model, sequence=sequence, precision=precision)
        loss = jnp.mean(losses)
        return losses, lax.pmean(loss, data) if data else loss

    @staticmethod
    def auto(*arrays, precision):
        losses = auto_losses(*arrays, precision=precision)
        return losses, jnp.mean(losses)

    @staticmethod
    def explicit(*arrays, letters, precision):
        losses = explicit_losses(*arrays, letters=letters, precision=precision)
        return losses, jnp.mean(losses)

    @staticmethod
    def reference(*arrays):
        model = Model(*arrays)
        return model.losses, model.loss


def sharding_tokens(variant: Variant) -> tuple[str, ...]:
    """The mesh axes over which tokens are sharded."""
    return (*(variant.get("batch") or ()), *(variant.get("sequence") or ()))


def flops_of(products: Iterable[str], size: Mapping[str, int]) -> int:
    """The flops of products on all devices together: two per combination of the letters of a product."""
    size = {**size, "s": size["t"]}
    return sum(
        2 * math.prod(size[letter] for letter in set(subscripts) - set(",->")) for subscripts in products
    )


def traffic_of(request: Request) -> tuple[Traffic, ...]:
    """The collectives of the forward pass in manual mode. Over `model` it sends the rows of the embedding, two sums per
    block, and three numbers per token for the cross entropy. Over `sequence` it sends keys and values, and over the
    axes of the tokens the loss."""
    mesh, variant = request.mesh, request.variant
    itemsize = dtype_of(request.dtype).itemsize
    tokens = tokens_of(request, "bt")
    of_token = math.prod(local_shape(tokens.shape, tokens.spec, mesh.sizes)) * itemsize
    keys = array_of(request, "cbtgk", 1.0)
    whole = nbytes(keys, mesh) * mesh.product(variant.get("sequence") or ())
    return over(
        mesh,
        ("all-reduce", variant.get("model"), of_token * (dimensions(request)["d"] * (1 + 2 * LAYERS) + 3)),
        ("all-gather", variant.get("sequence"), whole * LAYERS),
        ("all-reduce", sharding_tokens(variant), itemsize),
    )


class DecoderGradient(Decoder):
    """The gradients of the losses with respect to the embedding and every weight."""

    name = "decoder_gradient"
    rare = 2  # because it compiles slowly
    timed: ClassVar[Mapping[str, int]] = {}
    wrt = tuple(range(2, 11))

    def mode_weight(self, mode: str, variant: Variant) -> int | None:
        return 0 if mode in ("explicit", "manual-novma") else 1

    @staticmethod
    def gradient(*arrays):
        *arguments, d_losses, d_loss = arrays
        model = Model(*arguments)
        return model.gradient(d_losses + d_loss / model.losses.size)


def stepped(losses, tokens, labels, weights, rate):
    """The loss, and the weights after one step of gradient descent. `losses` is the function that gives the loss."""
    loss, gradients = jax.value_and_grad(lambda w: losses(tokens, labels, *w))(weights)
    return loss, *(w - rate * g for w, g in zip(weights, gradients, strict=True))


NO_GRADIENT_INSIDE = (
    "with check_vma=False a gradient taken inside shard_map is that of one device's part alone"
)
"""Why a training step has no mode manual-novma."""


def training_step(forward: Plan, weights: Sequence[Argument], mesh: MeshShape) -> Plan:
    """The plan of a training step from that of the forward pass. It costs three forward passes, and gives the mean loss
    and the new weights."""
    sent = forward.traffic or ()
    return replace(
        forward,
        results=(forward.results[1], *(Result(w.shape, w.dtype, w.spec) for w in weights)),
        options={**forward.options, "rate": 0.5},
        cost=Cost(3 * forward.cost.flops, idle=3 * forward.cost.idle),
        traffic=None,
        owed=(*sent, *sent, *added_gradients(mesh, weights)),
    )


class DecoderTraining(Decoder):
    """One training step of the decoder: the mean loss, and every weight after a step of gradient descent. In manual
    mode the gradient is taken inside shard_map."""

    name = "decoder_training"
    rare = 2
    timed: ClassVar[Mapping[str, int]] = {"n16": 1, "n64": 4}

    def mode_weight(self, mode: str, variant: Variant) -> int | None:
        return 0 if mode in ("auto", "manual") else 1

    def forward(self, request: Request) -> Plan:
        return training_step(super().forward(request), weights_of(request), request.mesh)

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode == "manual-novma":
            return NO_GRADIENT_INSIDE
        return super().absent(mode, variant, mesh)

    @staticmethod
    def manual(tokens, labels, *weights, model, sequence, data, precision, rate):
        def losses(*arrays):
            loss = jnp.mean(manual_losses(*arrays, model=model, sequence=sequence, precision=precision))
            return lax.pmean(loss, data) if data else loss

        return stepped(losses, tokens, labels, weights, rate)

    @staticmethod
    def auto(tokens, labels, *weights, precision, rate):
        def losses(*arrays):
            return jnp.mean(auto_losses(*arrays, precision=precision))

        return stepped(losses, tokens, labels, weights, rate)

    @staticmethod
    def explicit(tokens, labels, *weights, letters, precision, rate):
        def losses(*arrays):
            return jnp.mean(explicit_losses(*arrays, letters=letters, precision=precision))

        return stepped(losses, tokens, labels, weights, rate)

    @staticmethod
    def reference(tokens, labels, *weights, rate):
        model = Model(tokens, labels, *weights)
        each = np.full(model.losses.shape, 1.0 / model.losses.size)
        gradients = model.gradient(each)
        return model.loss, *(w - rate * g for w, g in zip(weights, gradients, strict=True))
