# SPDX-License-Identifier: Apache-2.0
"""The decoder of `meshmark.operations.models.decoder` and its gradient in NumPy, for plain and for bounded arrays.

It is written from the formulas, layer by layer, and shares no code with the programs. Letters of the products: b batch,
t and s positions, d features, g groups of heads, r heads of a group, k features of a head, c keys and values or gate
and content, f inner features of the MLP, v vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

product = partial(np.einsum, optimize=True)

EPSILON = 2.0**-10
"""Added to the mean square in the RMS norm."""


def rms(x: Any, scale: Any) -> Any:
    """x divided by its root mean square along the last dimension, times the scale."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * scale


def rms_gradient(x: Any, scale: Any, g: Any) -> tuple[Any, Any]:
    """The gradients of `rms` with respect to x and the scale."""
    root = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON)
    scaled, unit = g * scale, x / root
    dx = (scaled - unit * np.mean(scaled * unit, axis=-1, keepdims=True)) / root
    return dx, (g * unit).sum(axis=1).sum(axis=0)


def masked_softmax(scores: Any, seen: np.ndarray) -> Any:
    """The softmax of each row over the positions where `seen` is true."""
    scores = np.where(seen, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def logistic(z: Any) -> Any:
    """1 / (1 + exp(-z))."""
    return 1.0 / (1.0 + np.exp(-z))


def gated(between: Any) -> Any:
    """silu(gate) times content. `between` holds both along its first dimension."""
    return between[0] * logistic(between[0]) * between[1]


class Block:
    """One block for one input, with the values that its gradient needs. `weights`: norms [2, d], queries [d, g, r, k],
    keys and values [2, d, g, k], output [g, r, k, d], wide [2, d, f], narrow [f, d]."""

    def __init__(self, x: Any, weights: Sequence[Any]) -> None:
        norms, wq, wkv, wo, wide, narrow = self.weights = tuple(weights)
        self.x, length = x, x.shape[1]
        self.first = rms(x, norms[0])
        self.q = product("btd,dgrk->btgrk", self.first, wq)
        self.kv = product("btd,cdgk->cbtgk", self.first, wkv)
        self.scale = self.q.shape[-1] ** -0.5
        scores = product("btgrk,bsgk->bgrts", self.q, self.kv[0]) * self.scale
        self.p = masked_softmax(scores, np.tril(np.ones((length, length), bool)))
        self.mixed = product("bgrts,bsgk->btgrk", self.p, self.kv[1])
        self.y = x + product("btgrk,grkd->btd", self.mixed, wo)
        self.second = rms(self.y, norms[1])
        self.between = product("btd,cdf->cbtf", self.second, wide)
        self.result = self.y + product("btf,fd->btd", gated(self.between), narrow)

    def gradient(self, g: Any) -> tuple[Any, tuple[Any, ...]]:
        """The gradients with respect to the input and to each weight."""
        norms, wq, wkv, wo, wide, narrow = self.weights
        active = product("btd,fd->btf", g, narrow)
        gate, content = self.between[0], self.between[1]
        s = logistic(gate)
        d_gate = active * content * (s * (1.0 + gate * (1.0 - s)))
        d_between = np.stack([d_gate, active * (gate * s)])
        d_second = product("cbtf,cdf->btd", d_between, wide)
        dy, d_norm_1 = rms_gradient(self.y, norms[1], d_second)
        dy = g + dy
        d_mixed = product("btd,grkd->btgrk", dy, wo)
        dp = product("btgrk,bsgk->bgrts", d_mixed, self.kv[1])
        ds = self.p * (dp - (self.p * dp).sum(axis=-1, keepdims=True)) * self.scale
        dq = product("bgrts,bsgk->btgrk", ds, self.kv[0])
        dk = product("bgrts,btgrk->bsgk", ds, self.q)
        dv = product("bgrts,btgrk->bsgk", self.p, d_mixed)
        dkv = np.stack([dk, dv])
        d_first = product("btgrk,dgrk->btd", dq, wq) + product("cbtgk,cdgk->btd", dkv, wkv)
        dx, d_norm_0 = rms_gradient(self.x, norms[0], d_first)
        return dy + dx, (
            np.stack([d_norm_0, d_norm_1]),
            product("btd,btgrk->dgrk", self.first, dq),
            product("btd,cbtgk->cdgk", self.first, dkv),
            product("btgrk,btd->grkd", self.mixed, dy),
            product("btd,cbtf->cdf", self.second, d_between),
            product("btf,btd->fd", gated(self.between), g),
        )


class Model:
    """One pass through the whole model. The weights of the blocks have the layer as their first dimension."""

    def __init__(self, tokens: Any, labels: Any, table: Any, *weights: Any) -> None:
        *stacks, self.norm, self.head = weights
        self.tokens, self.table = tokens, table
        self.blocks: list[Block] = []
        x = table[tokens]
        for layer in zip(*(split(w) for w in stacks), strict=True):
            self.blocks.append(Block(x, layer))
            x = self.blocks[-1].result
        self.x = x
        logits = product("btd,dv->btv", rms(x, self.norm), self.head)
        self.labelled = (np.arange(logits.shape[-1]) == labels[..., None]).astype(np.float64)
        top = logits.max(axis=-1, keepdims=True)
        e = np.exp(logits - top)
        total = e.sum(axis=-1, keepdims=True)
        self.probabilities = e / total
        self.losses = (np.log(total) + top)[..., 0] - (logits * self.labelled).sum(axis=-1)
        self.loss = np.mean(self.losses)

    def gradient(self, d_losses: Any) -> tuple[Any, ...]:
        """The gradients with respect to the table and to each weight, given the cotangents of the losses."""
        d_logits = (self.probabilities - self.labelled) * d_losses[..., None]
        d_head = product("btd,btv->dv", rms(self.x, self.norm), d_logits)
        g, d_norm = rms_gradient(self.x, self.norm, product("btv,dv->btd", d_logits, self.head))
        layers = []
        for block in reversed(self.blocks):
            g, of_weights = block.gradient(g)
            layers.append(of_weights)
        stacks = (np.stack(parts) for parts in zip(*reversed(layers), strict=True))
        d_table = np.zeros_like(self.table)
        np.add.at(d_table, self.tokens, g)
        return d_table, *stacks, d_norm, d_head


def split(stack: Any) -> list[Any]:
    """The weights of each layer."""
    return [stack[i] for i in range(stack.shape[0])]


def decoded(tokens: Any, position: Any, cache: Any, table: Any, *weights: Any) -> tuple[Any, Any]:
    """The logits of one more token per sequence, and the cache [layer, 2, b, t, g, k]. The token's keys and values are
    at `position`, or at the last place if the position is past the end."""
    *stacks, norm, head = weights
    length = cache.shape[3]
    at = min(max(int(position), 0), length - 1)
    here = np.arange(length)[:, None, None] == at
    seen = np.arange(length) <= at
    x, kept = table[tokens], []
    for old, layer in zip(split(cache), zip(*(split(w) for w in stacks), strict=True), strict=True):
        norms, wq, wkv, wo, wide, narrow = layer
        h = rms(x, norms[0])
        q = product("bd,dgrk->bgrk", h, wq)
        kv = np.where(here, product("bd,cdgk->cbgk", h, wkv)[:, :, None], old)
        p = masked_softmax(product("bgrk,btgk->bgrt", q, kv[0]) * q.shape[-1] ** -0.5, seen)
        y = x + product("bgrk,grkd->bd", product("bgrt,btgk->bgrk", p, kv[1]), wo)
        x = y + product("bf,fd->bd", gated(product("bd,cdf->cbf", rms(y, norms[1]), wide)), narrow)
        kept.append(kv)
    return product("bd,dv->bv", rms(x, norm), head), np.stack(kept)
