# SPDX-License-Identifier: Apache-2.0
"""Faults of what a change in JAX's code showed to be judged by nobody: one for each rule of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed
from tests.studies.planting import fault, patched


@fault(**rule("factors_of_lopsided_matrices"))
def the_factor_of_a_lopsided_matrix_is_that_of_its_lower_triangle():
    return changed(
        jnp.linalg,
        "cholesky",
        lambda real, a, *, symmetrize_input=True, **k: real(a, symmetrize_input=False, **k),
    )


@fault(**rule("thin_singular_vectors"))
def the_last_thin_right_vector_has_the_other_sign():
    def svd(real, a, *, full_matrices=True, **k):
        found = real(a, full_matrices=full_matrices, **k)
        if full_matrices or a.shape[-1] == a.shape[-2] or not isinstance(found, tuple):
            return found
        return found[0], found[1], found[2].at[..., -1, :].multiply(-1)

    return changed(jnp.linalg, "svd", svd)


@fault(**rule("draws_of_an_asked_dtype"))
def a_pareto_draw_of_an_asked_dtype_has_the_usual_one():
    return changed(jax.random, "pareto", lambda real, key, b, shape=None, dtype=None: real(key, b, shape))


@fault(**rule("windows_of_what_is_in_a_batch"))
def a_window_over_two_arrays_takes_the_second_for_the_first():
    def reduce_window(real, operand, *a, **k):
        if isinstance(operand, tuple) and len(operand) == 2:
            operand = operand[1], operand[1]
        return real(operand, *a, **k)

    return changed(lax, "reduce_window", reduce_window)


@fault(**rule("sizes_of_keys"))
def the_bytes_of_keys_are_those_of_one_key():
    def nbytes(real):
        return property(lambda keys: keys.itemsize)

    return patched(type(jax.random.key(np.uint32(0))), "nbytes", nbytes)
