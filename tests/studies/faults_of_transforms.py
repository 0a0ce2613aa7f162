# SPDX-License-Identifier: Apache-2.0
"""Faults that only a transformation shows: a function gives the right values, and a transformation of it wrong ones."""

import jax
import jax.numpy as jnp
from jax import lax

from tests.studies.faults import fault, patched


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
            def own(v):
                return real(v, kernel, strides, padding, precision=precision)

            def back(_, g):
                wide = x.shape[-1] - g.shape[-1] + 2
                return (real(g, kernel, strides, [(wide // 2, wide // 2)], precision=precision),)

            own.defvjp(lambda v: (own(v), None), back)
            return own(x)

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
