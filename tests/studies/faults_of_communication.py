# SPDX-License-Identifier: Apache-2.0
"""Faults with the right numbers: too many bytes, over the wrong axes, too much work, too much memory."""

from unittest.mock import patch

import jax.numpy as jnp
from jax import lax

from meshmark.operations.models.layers import Mlp
from tests.studies.planting import fault, patched


def repeated_sum(times):
    """lax.psum sends its operand so many times; the numbers are right."""

    def make(real):
        def psum(x, axes, **options):
            if options.get("axis_index_groups"):
                return real(x, axes, **options)
            every = lax.optimization_barrier(jnp.stack([x] * times))
            return lax.optimization_barrier(real(every, axes))[0]

        return psum

    return patched(lax, "psum", make)


@fault(core=True, operations=("psum",), modes=("manual",), dtypes=("float32", "int32"))
def a_sum_of_32_bits_sends_twice_the_bytes():
    """The growth of a narrow type that is added in a wider one, for a type that no backend widens."""
    return repeated_sum(2)


@fault(operations=("matmul", "batch_matmul"), modes=("auto",), meshes=("2x4",))
def a_product_gathers_over_an_axis_that_it_does_not_need():
    """The rows of the left factor go to other devices and back."""

    def make(real):
        def matmul(a, b, **options):
            there = lax.optimization_barrier(jnp.flip(a, axis=-2))
            return real(jnp.flip(there, axis=-2), b, **options)

        return matmul

    return patched(jnp, "matmul", make)


@fault(operations=("transform", "named_axis", "scalar_result"), modes=("manual",), meshes=("2x4",))
def a_transformed_sum_sends_eight_times_the_bytes():
    """The sum inside a transformation, over a named axis, or of a scalar."""
    return repeated_sum(8)


@fault(operations=("all_gather_gradient", "slice_gradient", "take_along_axis_gradient"), modes=("manual",))
def a_gather_in_a_gradient_sends_eight_times_the_bytes():
    """The gather of a function whose gradient scatters again."""

    def make(real):
        def all_gather(x, axes, **options):
            options["axis"] = options.get("axis", 0) + 1
            every = lax.optimization_barrier(jnp.stack([x] * 8))
            return lax.optimization_barrier(real(every, axes, **options))[0]

        return all_gather

    return patched(lax, "all_gather", make)


@fault(operations=("mlp_gradient",), modes=("manual",))
def a_gradient_sends_many_times_what_it_owes():
    """The layer adds zero times a sum of many copies of a factor: the gradient is right, and sends them too."""
    real = Mlp.manual

    def manual(x, w1, w2, *, model, precision, accumulate):
        if model:
            x = x + 0.0 * jnp.sum(lax.psum(lax.optimization_barrier(jnp.stack([w1] * 64)), model))
        return real(x, w1, w2, model=model, precision=precision, accumulate=accumulate)

    return patch.object(Mlp, "manual", staticmethod(manual))


@fault(operations=("matmul",), modes=("auto",), dtypes=("float32",))
def a_product_is_computed_a_thousand_times():
    def make(real):
        def matmul(a, b, **options):
            out = real(a, b, **options)

            def again(_, total):
                return real(a + 0 * total[:1, :1], b, **options)

            return lax.fori_loop(0, 999, again, out)

        return matmul

    return patched(jnp, "matmul", make)


@fault(operations=("ppermute",), modes=("manual",), sizes=("4KiB",))
def a_permutation_holds_a_thousand_copies():
    """The numbers are right, and each device keeps a thousand copies of its block on the way."""

    def make(real):
        def ppermute(x, axes, perm):
            copies = lax.sort(jnp.broadcast_to(x, (1000, *x.shape)), dimension=0)
            return real(copies[0], axes, perm)

        return ppermute

    return patched(lax, "ppermute", make)
