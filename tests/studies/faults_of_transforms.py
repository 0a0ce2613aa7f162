# SPDX-License-Identifier: Apache-2.0
"""Faults that only transformations, gradients and debugging views show: values alone are right."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.studies.planting import fault, patched


def of(*parts, leave=()):
    """The cases whose variant has each of these parts, and none of the others."""

    def chosen(case):
        words = case.cell.request.variant.label.split(",")
        return all(part in words for part in parts) and not any(part in words for part in leave)

    return chosen


GRID = {"operations": ("transformed", "transformed_shard_map")}


def with_pull(back):
    """A replacement of a function of one array: its values, and `back` in the place of its gradient."""

    def make(real):
        def function(x, *more, **options):
            @jax.custom_vjp
            def own(v):
                return real(v, *more, **options)

            own.defvjp(lambda v: (own(v), None), lambda _, g: (back(g, *more, **options),))
            return own(x)

        return function

    return make


@fault(only=of("group=elements"), **GRID)
def the_gradient_of_a_cumulative_sum_runs_forward():
    return patched(jnp, "cumsum", with_pull(lambda g, axis: lax.cumsum(g, axis)))


@fault(only=of("transform=vjp", "group=products"), **GRID)
def the_gradient_of_a_convolution_takes_the_kernel_as_it_is():
    """It should take the kernel flipped."""

    def make(real):
        def conv_general_dilated(x, kernel, strides, padding, precision):
            @jax.custom_vjp
            def own(v, k):
                return real(v, k, strides, padding, precision=precision)

            def back(k, g):
                wide = x.shape[-1] - g.shape[-1] + 2
                pulled = real(g, k, strides, [(wide // 2, wide // 2)], precision=precision)
                return pulled, jnp.zeros_like(k)

            own.defvjp(lambda v, k: (own(v, k), k), back)
            return own(x, kernel)

        return conv_general_dilated

    return patched(lax, "conv_general_dilated", make)


@fault(only=of("group=elements"), **GRID)
def the_tangents_of_a_sort_stay_where_they_were():
    def make(real):
        def sort(x, axis):
            own = jax.custom_jvp(lambda v: real(v, axis=axis))
            own.defjvp(lambda primals, tangents: (own(*primals), tangents[0]))
            return own(x)

        return sort

    return patched(jnp, "sort", make)


@fault(only=of("group=collectives"), **GRID)
def the_gradient_of_an_exchange_keeps_its_blocks():
    return patched(lax, "all_to_all", with_pull(lambda g, *a, **k: g))


@fault(only=of("transform=vjp", "group=products"), **GRID)
def the_gradient_of_a_mean_over_devices_is_not_divided():
    return patched(lax, "pmean", with_pull(lambda g, axes: lax.psum(g, axes)))


@fault(only=of("transform=cond", leave=("group=collectives",)), **GRID)
def a_branch_whose_truth_the_program_finds_is_the_other():
    def make(real):
        return lambda truth, a, b, x: real(jnp.logical_not(truth), a, b, x)

    return patched(lax, "cond", make)


@fault(only=of("transform=stacked"), **GRID)
def a_loop_stacks_what_it_carries_on_and_not_what_it_carried():
    def make(real):
        def scan(step, init, xs, length=None):
            def late(c, a):
                c, seen = step(c, a)
                return c, seen if xs is None else c

            return real(late, init, xs, length=length)

        return scan

    return patched(lax, "scan", make)


@fault(only=of("transform=vmap_spmd"), **GRID)
def a_batch_over_a_mesh_axis_is_rolled_by_one():
    def make(real):
        def vmap(f, *more, spmd_axis_name=None, **options):
            found = real(f, *more, spmd_axis_name=spmd_axis_name, **options)
            return (lambda x: jnp.roll(found(x), 1, 1)) if spmd_axis_name else found

        return vmap

    return patched(jax, "vmap", make)


@fault(only=of("group=products"), **GRID)
def a_recomputed_function_has_the_derivative_of_another_place():
    """What jax.checkpoint computes again, it computes of twice the argument."""

    def make(real):
        def checkpoint(f):
            own = jax.custom_vjp(lambda v: f(v))
            own.defvjp(lambda v: (f(v), v), lambda v, g: jax.vjp(f, v + v)[1](g))
            return own

        return checkpoint

    return patched(jax, "checkpoint", make)


# Gradients of parts of networks.


@fault(operations=("dot_product_attention_gradient",), meshes=("2x4",))
def keys_of_attention_have_no_gradient():
    def make(real):
        return lambda q, k, v, **options: real(q, lax.stop_gradient(k), v, **options)

    return patched(jax.nn, "dot_product_attention", make)


@fault(operations=("cross_entropy_gradient",))
def a_loss_pulls_at_its_label_alone():
    return patched(jax.nn, "logsumexp", lambda real: lambda x, axis: real(lax.stop_gradient(x), axis=axis))


@fault(operations=("rotary_gradient",))
def the_second_half_of_a_split_has_no_gradient():
    def make(real):
        def split(x, parts, axis):
            first, second = real(x, parts, axis=axis)
            return first, lax.stop_gradient(second)

        return split

    return patched(jnp, "split", make)


@fault(operations=("normalise_gradient",))
def a_softmax_forgets_that_its_sum_is_one():
    def make(real):
        def softmax(x, axis):
            own = jax.custom_vjp(lambda v: real(v, axis=axis))
            own.defvjp(lambda v: (own(v), own(v)), lambda p, g: (p * g,))
            return own(x)

        return softmax

    return patched(jax.nn, "softmax", make)


# Debugging views.


@fault(operations=("debugging_view",))
def a_callback_runs_for_the_first_block_alone():
    def make(real):
        return lambda function, i, s: real(lambda i, s: function(i, s) if i == 0 else None, i, s)

    return patched(jax.debug, "callback", make)


@fault(operations=("debugging_view",))
def every_device_prints_what_the_first_has():
    def make(real):
        return lambda text, **values: real(text, **{name: value * 0 for name, value in values.items()})

    return patched(jax.debug, "print", make)


@fault(operations=("debugging_view",))
def a_constraint_looks_as_if_it_were_not_there():
    def make(real):
        def inspect_array_sharding(x, *, callback):
            real(x, callback=lambda s: callback(jax.sharding.NamedSharding(s.mesh, P())))

        return inspect_array_sharding

    return patched(jax.debug, "inspect_array_sharding", make)


@fault(operations=("partly_manual",))
def a_partly_manual_function_gives_the_blocks_in_another_order():
    def make(real):
        def shard_map(f, *, axis_names=frozenset(), **options):
            mapped = real(f, axis_names=axis_names, **options)
            return (lambda x: jnp.roll(mapped(x), 8)) if axis_names else mapped

        return shard_map

    return patched(jax, "shard_map", make)


@fault(operations=("stencil",), only=of("kind=transposed", "each=four"))
def a_linear_transpose_is_the_function_itself():
    return patched(jax, "linear_transpose", lambda real: lambda f, *primals: lambda seed: (f(seed),))


@fault(operations=("stencil",), modes=("manual",), only=of("kind=gradient", "each=four"))
def the_pullback_of_a_permutation_goes_the_same_way():
    def make(real):
        def ppermute(x, axis_name, perm):
            @jax.custom_vjp
            def own(v):
                return real(v, axis_name, perm)

            own.defvjp(lambda v: (own(v), None), lambda _, g: (real(g, axis_name, perm),))
            return own(x)

        return ppermute

    return patched(lax, "ppermute", make)
