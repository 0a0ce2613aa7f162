# SPDX-License-Identifier: Apache-2.0
"""Faults that whole programs show: each is the mistake of a programmer or compiler in one part of a program."""

import jax
import jax.numpy as jnp
from jax import lax

from meshmark.operations.models import optimizers, pipeline, programs, staged_decoder
from tests.studies.planting import fault, patched


def of(*parts):
    """The cases whose variant has each of these parts."""
    return lambda case: all(part in case.cell.request.variant.label.split(",") for part in parts)


# The decoder.


@fault(operations=("decode_step",), meshes=("2x4",))
def keys_and_values_go_into_the_wrong_axis_of_the_cache():
    def make(real):
        return lambda cache, new, at, axis: real(cache, new, at, 1)

    return patched(lax, "dynamic_update_slice_in_dim", make)


@fault(only=of("at=past"), operations=("decode_step",), meshes=("2x4",))
def a_position_past_the_cache_wraps_around():
    def make(real):
        return lambda cache, new, at, axis: real(cache, new, at % cache.shape[axis], axis)

    return patched(lax, "dynamic_update_slice_in_dim", make)


@fault(only=of("batch=x", "sequence=y"), operations=("decoder",), meshes=("2x4",), modes=("manual",))
def the_causal_mask_is_that_of_the_local_block():
    return patched(lax, "axis_index", lambda real: lambda axes: real(axes) * 0)


@fault(only=of("batch=x", "sequence=y"), operations=("decoder",), meshes=("2x4",), modes=("auto",))
def every_token_sees_those_after_it():
    def make(real):
        return lambda x, axis: real(x * 0, axis=axis) if x.ndim == 5 else real(x, axis=axis)

    return patched(jax.nn, "softmax", make)


@fault(only=of("batch=x", "model=y"), operations=("decoder",), meshes=("2x4",), modes=("manual",))
def every_part_of_the_vocabulary_starts_at_word_zero():
    return patched(lax, "axis_index", lambda real: lambda axes: real(axes) * 0)


@fault(only=of("sequence=x", "model=y"), operations=("decoder",), meshes=("2x4",), modes=("manual",))
def keys_are_gathered_over_the_wrong_axis():
    def make(real):
        return lambda x, axes, **k: real(x, "y", **k)[:, :, : x.shape[2] * lax.axis_size(axes)]

    return patched(lax, "all_gather", make)


@fault(operations=("decoder_training",), meshes=("2x4",), modes=("manual",))
def the_mean_of_data_parallel_gradients_is_not_divided():
    return patched(lax, "pmean", lambda real: lambda x, axes: lax.psum(x, axes))


@fault(operations=("decoder_training",), meshes=("2x4",), modes=("manual",))
def gradients_of_the_replicas_are_not_added():
    def make(real):
        def value_and_grad(function):
            def found(weights):
                loss, pull = jax.vjp(function, lax.pcast(weights, "x", to="varying"))
                (gradients,) = pull(loss * 0 + 1)
                return loss, jax.tree.map(lambda g: lax.pmean(g, "x"), gradients)

            return found

        return value_and_grad

    return patched(jax, "value_and_grad", make)


# Ways of sharding a block, and data-parallel training.


@fault(only=of("how=fsdp"), operations=("parallel_block",), meshes=("2x4",), modes=("manual",))
def the_first_shard_of_a_weight_is_gathered_again_and_again():
    def make(real):
        def all_gather(x, axes, **k):
            found = real(x, axes, **k)
            return jnp.concatenate([found[: len(x)]] * (len(found) // len(x)))

        return all_gather

    return patched(lax, "all_gather", make)


@fault(only=of("how=sequence"), operations=("parallel_block",), meshes=("2x4",), modes=("manual",))
def every_part_of_the_sequence_gets_the_next_ones_sum():
    def make(real):
        def psum_scatter(x, axes, *, scatter_dimension, tiled):
            size = x.shape[scatter_dimension] // lax.axis_size(axes)
            x = jnp.roll(x, -size, scatter_dimension)
            return real(x, axes, scatter_dimension=scatter_dimension, tiled=tiled)

        return psum_scatter

    return patched(lax, "psum_scatter", make)


@fault(only=of("how=fsdp"), operations=("parallel_block_gradient",), meshes=("2x4",), modes=("manual",))
def a_gathered_weight_takes_only_its_own_devices_gradient():
    """The transpose of the gather keeps the device's own rows and forgets the sum."""

    def make(real):
        def all_gather(x, axes, *, axis, tiled):
            @jax.custom_vjp
            def gathered(v):
                return real(v, axes, axis=axis, tiled=tiled)

            def back(_, g):
                return (lax.dynamic_slice_in_dim(g, lax.axis_index(axes) * len(x), len(x), axis),)

            gathered.defvjp(lambda v: (gathered(v), None), back)
            return gathered(x)

        return all_gather

    return patched(lax, "all_gather", make)


@fault(operations=("tutorial_training",), meshes=("2x4",), modes=("manual",))
def data_parallel_gradients_are_added_and_not_averaged():
    return patched(lax, "pmean", lambda real: lambda x, axes: lax.psum(x, axes))


@fault(operations=("tutorial_training",), meshes=("2x4",), modes=("manual",))
def biases_are_not_averaged_over_devices():
    def make(real):
        return lambda x, axes: real(x, axes) if x.ndim > 1 else real(jnp.where(first(axes), x, 0), axes)

    def first(axes):
        return lax.axis_index(axes) == 0

    return patched(lax, "pmean", make)


@fault(operations=("cast_product",), meshes=("2x4",), modes=("auto",))
def sums_of_bfloat16_factors_are_in_bfloat16():
    def make(real):
        def matmul(a, b, *, preferred_element_type=None, **k):
            return real(a, b, **k).astype(preferred_element_type or a.dtype)

        return matmul

    return patched(jnp, "matmul", make)


# The pipeline.


@fault(operations=("pipeline",), meshes=("2x4",), modes=("manual",))
def the_last_micro_batch_is_lost():
    return patched(jnp, "arange", lambda real: lambda n: real(n - 1))


@fault(operations=("pipeline",), meshes=("2x4",), modes=("manual",))
def stages_pass_their_results_backward():
    def make(real):
        return lambda x, axes, pairs: real(x, axes, [(b, a) for a, b in pairs])

    return patched(lax, "ppermute", make)


@fault(operations=("pipeline",), meshes=("2x4",), modes=("auto",))
def the_first_stage_takes_what_the_last_one_gave():
    def make(real):
        return lambda fed, state: jnp.roll(state, 1, axis=0).at[0].add(fed)

    return patched(pipeline, "shifted", make)


@fault(operations=("staged_decoder",), meshes=("2x4",), modes=("auto",))
def a_micro_batch_skips_the_last_stage():
    def make(real):
        def auto_through(letters, stages, n, x, weights, **how):
            return real(letters, stages, n, x, tuple(w.at[-1].set(0) for w in weights), **how)

        return auto_through

    return patched(staged_decoder, "auto_through", make)


@fault(operations=("staged_decoder",), meshes=("2x4",), modes=("manual",))
def stages_of_the_decoder_pass_their_features_backward():
    def make(real):
        return lambda x, axes, pairs: real(x, axes, [(b, a) for a, b in pairs])

    return patched(lax, "ppermute", make)


# The mixture of experts.


@fault(operations=("mixture_of_experts",), meshes=("2x4",), modes=("auto",))
def an_expert_drops_its_first_tokens_and_keeps_the_last():
    def make(real):
        return lambda x, axis: jnp.flip(real(jnp.flip(x, axis), axis=axis), axis)

    return patched(jnp, "cumsum", make)


@fault(operations=("mixture_of_experts",), meshes=("2x4",), modes=("manual",))
def results_come_home_from_the_next_expert():
    def make(real):
        def all_to_all(x, axes, cut, join, *, tiled):
            found = real(x, axes, cut, join, tiled=tiled)
            return jnp.roll(found, 1, join) if cut == 0 else found

        return all_to_all

    return patched(lax, "all_to_all", make)


@fault(operations=("mixture_of_experts",), meshes=("2x4",), modes=("explicit",))
def a_dropped_token_takes_the_place_of_another():
    """Where there is no room the token overwrites the last place."""

    def make(real):
        return lambda x, axis: jnp.minimum(real(x, axis=axis), 1)

    return patched(jnp, "cumsum", make)


# Optimizers. The optimizer's state is made with zeros_like.


@fault(operations=("optimizer",), meshes=("2x4",), modes=("auto",))
def the_state_of_an_optimizer_is_whole_on_every_device():
    def make(real):
        def adam(parameters, gradients):
            found = real(parameters, gradients)
            mesh = jax.typeof(parameters[0]).sharding.mesh
            return *found[:2], *(programs.constrained(x, mesh=mesh) for x in found[2:])

        return adam

    return patched(optimizers, "adam", make)


@fault(operations=("optimizer",), meshes=("2x4",), modes=("manual",))
def the_mean_square_is_averaged_over_devices():
    return patched(jnp, "sqrt", lambda real: lambda x: real(lax.pmean(x, "y")))


@fault(only=of("rule=momentum"), operations=("optimizer",), meshes=("2x4",), modes=("explicit",))
def momentum_starts_from_the_parameters():
    return patched(jnp, "zeros_like", lambda real: lambda x: x + 0)


@fault(only=of("rule=adam"), operations=("optimizer",), meshes=("2x4",), modes=("explicit",))
def small_gradients_are_lost():
    def make(real):
        return lambda parameters, gradients: real(
            parameters, tuple(jnp.where(jnp.abs(g) < 0.5, 0, g) for g in gradients)
        )

    return patched(optimizers, "adam", make)
