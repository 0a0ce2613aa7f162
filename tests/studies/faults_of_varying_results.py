# SPDX-License-Identifier: Apache-2.0
"""Faults of varying results: a function forgets that its result depends on what varies. One for each form that a
release can pass; the other forms are bugs of each release (`docs/findings.md`).

`forgotten` drops the mark with a released bug: the result of a callback has a plain type. A JAX that has mended this
can't plant these faults, and they need another way then."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs.varying.judging import varying_axes
from tests.studies.faults_of_conditions import changed, form
from tests.studies.planting import fault


def result(name: str) -> dict[str, Any]:
    """The case of one form of varying results."""
    return form(name, "varying_result")


def forgotten(value: Any) -> Any:
    """The same value, typed as if it did not vary. It has no derivative."""
    if not isinstance(value, jax.core.Tracer) or not varying_axes(value):
        return value
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(
            forgotten(jax.random.key_data(value)), impl=jax.random.key_impl(value)
        )
    kind = jax.ShapeDtypeStruct(value.shape, value.dtype)
    return jax.pure_callback(np.asarray, kind, value, vmap_method="sequential")


def marked(value: Any, like: Any) -> Any:
    """The value, typed as if it varied over the axes of another."""
    axes = varying_axes(like) if isinstance(like, jax.core.Tracer) else set()
    return lax.pcast(value, tuple(sorted(axes)), to="varying") if axes else value


@fault(**result("elementwise"))
def a_power_forgets_that_its_exponent_varies():
    return changed(jnp, "power", lambda real, x, y: real(x, forgotten(y)))


@fault(**result("choices"))
def a_choice_forgets_that_its_predicate_varies():
    return changed(jnp, "where", lambda real, c, *ab, **o: real(forgotten(c), *ab, **o))


@fault(**result("choices"))
def a_clamp_forgets_that_its_bounds_vary():
    return changed(lax, "clamp", lambda real, low, x, high: real(forgotten(low), x, forgotten(high)))


@fault(**result("slices"))
def a_dynamic_slice_forgets_that_its_start_varies():
    def call(real, x, starts, sizes):
        return real(x, tuple(map(forgotten, starts)), sizes)

    return changed(lax, "dynamic_slice", call)


@fault(**result("slices"))
def a_roll_by_what_varies_has_the_right_type_and_the_gradient_of_one_device():
    def call(real, x, shift, **options):
        return marked(real(x, forgotten(shift), **options), shift)

    return changed(jnp, "roll", call)


@fault(**result("gathers"))
def elements_taken_at_indices_that_vary_do_not():
    return changed(jnp, "take", lambda real, x, indices, **o: real(x, forgotten(indices), **o))


@fault(**result("scatters"))
def a_sum_over_segments_forgets_that_they_vary():
    return changed(jax.ops, "segment_sum", lambda real, x, ids, *n: real(x, forgotten(ids), *n))


@fault(**result("orders"))
def the_indices_of_the_largest_do_not_vary():
    def call(real, x, k):
        values, indices = real(x, k)
        return values, forgotten(indices)

    return changed(lax, "top_k", call)


@fault(**result("reductions"))
def a_count_does_not_vary():
    return changed(jnp, "count_nonzero", lambda real, x: forgotten(real(x)))


@fault(**result("products"))
def a_convolution_forgets_that_its_kernel_varies():
    return changed(jnp, "convolve", lambda real, x, kernel: real(x, forgotten(kernel)))


@fault(**result("linear_algebra"))
def a_solution_forgets_that_its_matrix_varies():
    return changed(jnp.linalg, "solve", lambda real, a, b: real(forgotten(a), b))


@fault(**result("loops"))
def a_scan_forgets_that_its_first_carry_varies():
    def call(real, f, start, *rest, **options):
        floats = isinstance(start, jax.Array) and start.dtype == jnp.float32
        return real(f, forgotten(start) if floats else start, *rest, **options)

    return changed(lax, "scan", call)


@fault(**result("calls"))
def a_jitted_function_forgets_that_a_number_varies():
    def call(real, f, **options):
        inner = real(f, **options)

        def called(*arguments):
            whole = [getattr(a, "dtype", None) == jnp.int32 for a in arguments]
            return inner(*(forgotten(a) if w else a for a, w in zip(arguments, whole, strict=True)))

        return called

    return changed(jax, "jit", call)


@fault(**result("calls"))
def a_custom_derivative_gives_a_result_that_does_not_vary():
    def call(real, f, **options):
        ruled = real(f, **options)

        class Called:
            defvjp = ruled.defvjp

            def __call__(self, x):
                return forgotten(ruled(x))

        return Called()

    return changed(jax, "custom_vjp", call)


@fault(**result("random"))
def random_numbers_forget_that_their_key_varies():
    return changed(jax.random, "uniform", lambda real, key, *shape, **o: real(forgotten(key), *shape, **o))


@fault(**result("mutable"))
def a_frozen_array_does_not_vary():
    return changed(jax, "freeze", lambda real, ref: forgotten(real(ref)))
