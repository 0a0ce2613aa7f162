# SPDX-License-Identifier: Apache-2.0
"""Faults that the drawn programs show: of operations that they have with many arguments, and of derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.studies.faults_of_conditions import changed
from tests.studies.planting import fault


def batch(name: str, operation: str = "drawn_operations") -> dict[str, Any]:
    """One case of drawn programs, which has a program that shows the fault."""
    return {"operations": (operation,), "only": lambda case: case.cell.request.variant["form"] == name}


@fault(**batch("batch_40"))
def a_shuffle_goes_to_where_it_should_come_from():
    def pshuffle(real, x, axes, perm):
        back = [0] * len(perm)
        for to, source in enumerate(perm):
            back[source] = to
        return real(x, axes, back)

    return changed(lax, "pshuffle", pshuffle)


@fault(**batch("batch_41"))
def a_window_forgets_the_holes_of_its_array():
    def reduce_window(real, x, *given, **options):
        options.pop("base_dilation", None)
        return real(x, *given, **options)

    return changed(lax, "reduce_window", reduce_window)


@fault(**batch("batch_41"))
def a_product_at_places_is_of_numbers_up_to_two():
    def scatter_mul(real, x, indices, updates, numbers, **options):
        first = jnp.sign(updates) * jnp.minimum(jnp.abs(updates), 2)
        return real(x, indices, first.astype(updates.dtype), numbers, **options)

    return changed(lax, "scatter_mul", scatter_mul)


@fault(**batch("batch_10"))
def a_dimension_moves_from_where_it_should_go_to():
    def moveaxis(real, x, source, destination):
        return real(x, destination, source)

    return changed(jnp, "moveaxis", moveaxis)


@fault(**batch("batch_20", "drawn_programs"))
def a_tangent_is_of_the_first_argument_alone():
    def jvp(real, function, primals, tangents, **options):
        rest = [jax.tree.map(jnp.zeros_like, t) for t in tangents[1:]]
        return real(function, primals, (tangents[0], *rest), **options)

    return changed(jax, "jvp", jvp)
