# SPDX-License-Identifier: Apache-2.0
"""Faults that whole programs show: each is the mistake of a programmer or compiler in one part of a program."""

import jax
from jax import lax

from tests.studies.faults import fault, patched


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
