# SPDX-License-Identifier: Apache-2.0
"""The decoder as a pipeline: its blocks in stages over a mesh axis, beside axes for the batch, the sequence and the
model. Micro-batches go through the stages one after the other.

The blocks, the embedding and the cross entropy are those of `meshmark.operations.models.decoder`. Each stage holds an
equal part of the blocks. Every device has the embedding and the head, so only features go from stage to stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import auto_axes, reshard

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Cost, Plan, Request, Result, Traffic, Variant, nbytes
from meshmark.operations.functions.contraction import fitted, outer_inner, summed
from meshmark.operations.models.decoder import (
    LAYERS,
    LOGITS,
    NO_GRADIENT_INSIDE,
    PRODUCTS,
    Decoder,
    array_of,
    auto_losses,
    axes_of_letters,
    blocks,
    dimensions,
    explicit_losses,
    flops_of,
    manual_losses,
    sharding_tokens,
    stepped,
    tokens_of,
    training_step,
    weights_of,
)
from meshmark.operations.models.decoder_reference import Model
from meshmark.operations.models.pipeline import shifted
from meshmark.operations.models.programs import constrained, over

MICRO_BATCHES = 2


# The program ------------------------------------------------------------------------------------------------------


def through_own_stage(x, weights, *, stages, n, **how):
    """The features [micro-batch, batch, sequence, features] after all blocks, in manual mode. `weights` are those of
    the device's own stage of n. In each step a stage works on what the stage before it sent."""
    index = lax.axis_index(stages)
    onward = [(i, i + 1) for i in range(n - 1)]

    def tick(carry, number):
        given, out = carry
        fed = jnp.where(index == 0, x[jnp.minimum(number, len(x) - 1)], given)
        y = blocks(fed, weights, **how)
        done = number - (n - 1)
        out = jnp.where((index == n - 1) & (done >= 0), out.at[jnp.maximum(done, 0)].set(y), out)
        return (lax.ppermute(y, stages, onward), out), None

    start = lax.pcast(jnp.zeros_like(x), stages, to="varying")
    (_, out), _ = lax.scan(tick, (start[0], start), jnp.arange(len(x) + n - 1))
    return lax.psum(out, stages)


def by_stage(weight, n):
    """A weight [layers, ...] as [n stages, layers of a stage, ...]."""
    return weight.reshape(n, -1, *weight.shape[1:])


def through_all_stages(x, own, *, start, n, shift, last, stage_axes=None, **how):
    """The same in a program of whole arrays, of the weights by stage. The state holds one micro-batch per stage along
    its first dimension. `start` is the state before the first step, of zeros: it is placed and not shifted, because a
    compiler would send the zeros. `shift` moves a state by one stage, and `last` takes the micro-batch that leaves the
    last stage."""
    stage = jax.vmap(lambda state, layers: blocks(state, layers, **how), spmd_axis_name=stage_axes)

    def tick(state, number):
        state = stage(shift(x[jnp.minimum(number, len(x) - 1)], state), own)
        return state, last(state)

    _, out = lax.scan(tick, start, jnp.arange(len(x) + n - 1))
    return out[n - 1 :]


def auto_through(letters, stages, n, x, weights, **how):
    """`through_all_stages` in auto mode: a constraint places the state."""
    batch, sequence = (dict(letters).get(letter) for letter in "bt")
    mesh = jax.typeof(weights[0]).sharding.mesh

    def shift(fed, state):
        return constrained(shifted(fed, state), stages, batch, sequence, mesh=mesh)

    def last(state):
        return constrained(state[-1], batch, sequence, mesh=mesh)

    start = constrained(jnp.zeros((n, *x.shape[1:]), x.dtype), stages, batch, sequence, mesh=mesh)
    own = tuple(by_stage(weight, n) for weight in weights)
    return through_all_stages(x, own, start=start, n=n, shift=shift, last=last, **how)


def explicit_through(letters, stages, n, x, weights, **how):
    """`through_all_stages` in explicit mode: shift and choice along the sharded stages have automatic axes."""
    batch, sequence = (dict(letters).get(letter) for letter in "bt")
    spec = P(stages, batch, sequence, None)
    shift = auto_axes(shifted, out_sharding=spec)
    last = auto_axes(lambda state: state[-1], out_sharding=P(batch, sequence, None))
    # Where there is one stage, the reshape puts the sharding of the layers on the second dimension.
    own = tuple(
        reshard(by_stage(weight, n), P(stages, None, *jax.typeof(weight).sharding.spec[1:]))
        for weight in weights
    )
    start = jnp.zeros((n, *x.shape[1:]), x.dtype, out_sharding=spec)
    return through_all_stages(x, own, start=start, n=n, shift=shift, last=last, stage_axes=stages, **how)


# The operations ---------------------------------------------------------------------------------------------------


def staged_weights(request: Request) -> tuple[Argument, ...]:
    """The weights of the decoder with one stack of blocks per stage: their first dimension is sharded over the
    stages."""
    stages = request.variant["stages"]
    layers = fitted(LAYERS, request.mesh.product(stages))
    found = []
    for weight, letters in zip(weights_of(request), WEIGHTS, strict=True):
        if letters.startswith("l"):
            weight = replace(weight, shape=(layers, *weight.shape[1:]), spec=(stages, *weight.spec[1:]))
        found.append(weight)
    return tuple(found)


WEIGHTS = ("vd", "lcd", "ldgrk", "lcdgk", "lgrkd", "lcdf", "lfd", "d", "dv")
"""The letters of the weights, in their order."""


def micro_batches(argument: Argument) -> Argument:
    """The argument with a first dimension of micro-batches."""
    return replace(argument, shape=(MICRO_BATCHES, *argument.shape), spec=(None, *argument.spec))


class StagedDecoder(Decoder):
    """The decoder as a pipeline of stages, each with an equal part of the blocks: the loss of each token of two
    micro-batches, and their mean. Stages are sharded over one mesh axis, beside the model, the batch or the
    sequence."""

    name = "staged_decoder"
    rare = 1
    timed: ClassVar[Mapping[str, int]] = {"n16": 1, "n64": 2, "n128": 4}

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        names = mesh.names
        if len(names) == 3:
            yield Variant.of(0, batch=names[:1], stages=names[1:2], model=names[2:])
            yield Variant.of(2, stages=names[:1], sequence=names[1:2], model=names[2:])
        elif len(names) == 2:
            yield Variant.of(0, **outer_inner(mesh, "stages", "model"))
            yield Variant.of(2, **outer_inner(mesh, "batch", "stages"))

    def forward(self, request: Request) -> Plan:
        mesh, variant, size = request.mesh, request.variant, dimensions(request)
        model, data = variant.get("model") or (), sharding_tokens(variant)
        stages = variant["stages"]
        n, weights = mesh.product(stages), staged_weights(request)
        layers, ticks = weights[1].shape[0], MICRO_BATCHES + n - 1
        tokens = micro_batches(tokens_of(request, "bt"))
        features = nbytes(array_of(request, "btd", 1.0), mesh)
        of_token = features // size["d"]
        keys = nbytes(array_of(request, "cbtgk", 1.0), mesh) * mesh.product(variant.get("sequence") or ())
        runs = ticks * (layers // n)
        hops = tuple((g[i], g[i + 1]) for g in summed(mesh, stages) for i in range(len(g) - 1))
        of_model = features * (MICRO_BATCHES + 2 * runs) + 3 * of_token * MICRO_BATCHES
        permutes = (Traffic("collective-permute", features * ticks, hops),) if hops else ()
        losses = Result(tokens.shape, request.dtype, tokens.spec)
        of_block = flops_of(PRODUCTS.values(), size)
        flops = n * runs * of_block + MICRO_BATCHES * flops_of([LOGITS], size)
        idle = (n * runs - MICRO_BATCHES * layers) * of_block  # a stage computes in every tick
        return Plan(
            (tokens, tokens, *weights),
            (losses, Result((), request.dtype, ())),
            {
                "letters": tuple((c, axes) for c, axes in axes_of_letters(variant).items() if axes),
                "model": model,
                "sequence": variant.get("sequence") or (),
                "data": data,
                "stages": stages,
                "n": n,
                "precision": "highest",
            },
            judge="bound",
            cost=Cost(flops, idle=idle),
            repeats=runs,
            traffic=(
                *permutes,
                *over(
                    mesh,
                    ("all-reduce", stages, features * MICRO_BATCHES),
                    ("all-reduce", model, of_model),
                    ("all-gather", variant.get("sequence"), keys * runs),
                    ("all-reduce", data, dtype_of(request.dtype).itemsize),
                ),
            ),
            connect=(*summed(mesh, model), *summed(mesh, data), *summed(mesh, stages)),
        )

    @staticmethod
    def manual(*arrays, model, sequence, data, stages, n, precision):
        through = partial(through_own_stage, stages=stages, n=n)
        losses = manual_losses(*arrays, model=model, sequence=sequence, precision=precision, through=through)
        loss = jnp.mean(losses)
        return losses, lax.pmean(loss, data) if data else loss

    @staticmethod
    def auto(*arrays, letters, stages, n, precision):
        losses = auto_losses(*arrays, precision=precision, through=partial(auto_through, letters, stages, n))
        return losses, jnp.mean(losses)

    @staticmethod
    def explicit(*arrays, letters, stages, n, precision):
        through = partial(explicit_through, letters, stages, n)
        losses = explicit_losses(*arrays, letters=letters, precision=precision, through=through)
        return losses, jnp.mean(losses)

    @staticmethod
    def reference(tokens, labels, *weights):
        model = whole_model(tokens, labels, *weights)
        return model.losses.reshape(*tokens.shape), model.loss


def whole_model(tokens, labels, *weights):
    """The model in NumPy for all micro-batches as one batch."""
    length = tokens.shape[-1]
    return Model(tokens.reshape(-1, length), labels.reshape(-1, length), *weights)


class StagedDecoderTraining(StagedDecoder):
    """One training step of the decoder as a pipeline: the mean loss, and every weight after a step of gradient descent.
    In manual mode the gradient is taken inside shard_map, back through the stages."""

    name = "staged_decoder_training"
    rare = 2  # because it compiles slowly
    timed: ClassVar[Mapping[str, int]] = {"n16": 1, "n64": 4}

    def mode_weight(self, mode: str, variant: Variant) -> int | None:
        return 0 if mode in ("auto", "manual") else 1

    def forward(self, request: Request) -> Plan:
        return training_step(super().forward(request), staged_weights(request), request.mesh)

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode == "manual-novma":
            return NO_GRADIENT_INSIDE
        return super().absent(mode, variant, mesh)

    @staticmethod
    def manual(tokens, labels, *weights, model, sequence, data, stages, n, precision, rate):
        through = partial(through_own_stage, stages=stages, n=n)

        def losses(*arrays):
            own = manual_losses(*arrays, model=model, sequence=sequence, precision=precision, through=through)
            loss = jnp.mean(own)
            return lax.pmean(loss, data) if data else loss

        return stepped(losses, tokens, labels, weights, rate)

    @staticmethod
    def auto(tokens, labels, *weights, letters, stages, n, precision, rate):
        through = partial(auto_through, letters, stages, n)

        def losses(*arrays):
            return jnp.mean(auto_losses(*arrays, precision=precision, through=through))

        return stepped(losses, tokens, labels, weights, rate)

    @staticmethod
    def explicit(tokens, labels, *weights, letters, stages, n, precision, rate):
        through = partial(explicit_through, letters, stages, n)

        def losses(*arrays):
            return jnp.mean(explicit_losses(*arrays, letters=letters, precision=precision, through=through))

        return stepped(losses, tokens, labels, weights, rate)

    @staticmethod
    def reference(tokens, labels, *weights, rate):
        model = whole_model(tokens, labels, *weights)
        each = np.full(model.losses.shape, 1.0 / model.losses.size)
        return model.loss, *(w - rate * g for w, g in zip(weights, model.gradient(each), strict=True))
