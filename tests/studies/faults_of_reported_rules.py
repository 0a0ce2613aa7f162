# SPDX-License-Identifier: Apache-2.0
"""Faults of unreduced arrays and of arrays over Explicit axes, as reports of JAX have them: one for each rule of them
that JAX itself does not break."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from meshmark.operations.programs.small_rules import typed
from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed
from tests.studies.planting import fault


def doubled(owner: Any, name: str, *places: int) -> Any:
    """A transformation whose results at the places are doubled, or all of them."""

    def transformed(real: Any, fun: Any, *a: Any, **k: Any) -> Any:
        run = real(fun, *a, **k)

        def twice(*given: Any) -> Any:
            found = run(*given)
            if not places:
                return jax.tree.map(lambda v: v + v, found)
            return type(found)(
                jax.tree.map(lambda v: v + v, f) if n in places else f for n, f in enumerate(found)
            )

        return twice

    return changed(owner, name, transformed)


@fault(**rule("micro_batches_of_unreduced_gradients"))
def gradients_of_small_batches_are_counted_twice():
    return doubled(jax, "value_and_grad", 1)


@fault(**rule("reshape_of_reduced"))
def an_array_is_flattened_along_its_columns():
    return changed(jnp, "ravel", lambda real, v: real(v.T))


@fault(**rule("product_of_unreduced_in_region"))
def the_gradient_by_a_reduced_factor_is_doubled():
    return doubled(jax, "grad", 1)


@fault(**rule("broadcast_of_reduced"))
def an_array_is_repeated_with_the_other_sign():
    return changed(jnp, "broadcast_to", lambda real, v, *a, **k: real(-v, *a, **k))


@fault(**rule("zeros_of_unused_reduced"))
def the_zeros_of_an_unused_argument_are_not_unreduced():
    def vjp(real, fun, *given, **k):
        found, back = real(fun, *given, **k)
        return found, lambda ct: tuple(jax.sharding.reshard(slope, jax.P()) for slope in back(ct))

    return changed(jax, "vjp", vjp)


@fault(**rule("sums_unreduced"))
def a_sum_over_two_dimensions_is_doubled():
    def reduce_sum(real, v, *, axes, **k):
        return real(v + v if len(axes) == 2 else v, axes=axes, **k)

    return changed(lax, "reduce_sum", reduce_sum)


@fault(**rule("gradients_at_one_device_axes"))
def a_gradient_over_an_axis_of_one_device_is_doubled():
    return doubled(jax, "grad")


@fault(**rule("batched_gradient_through_cast"))
def the_second_gradient_of_a_batch_is_doubled():
    return doubled(jax, "grad", 1)


@fault(**rule("switches_by_cut_indices"))
def a_switch_takes_the_next_branch():
    return changed(lax, "switch", lambda real, index, *a, **k: real(index + 1, *a, **k))


@fault(**rule("batches_cut_in_two_ways"))
def a_batch_is_cut_as_its_first_argument():
    def vmap(real, fun, *a, **k):
        run = real(fun, *a, **k)

        def alike(x, y):
            return run(x, y if a or k else jax.sharding.reshard(y, jax.typeof(x).sharding.spec))

        return alike

    return changed(jax, "vmap", vmap)


@fault(**rule("gradients_of_loops_of_determinants"))
def the_gradient_of_a_loop_of_determinants_is_doubled():
    return doubled(jax, "grad")


@fault(**rule("gradient_through_argsort"))
def an_order_is_turned():
    return changed(jnp, "argsort", lambda real, v, **k: jnp.flip(real(v, **k), k["axis"]))


@fault(**rule("eager_indices_of_some_axes"))
def the_index_of_a_device_is_one_more():
    return changed(lax, "axis_index", lambda real, axis: real(axis) + 1)


@fault(**rule("reshapes_in_fortran_order"))
def a_reshape_forgets_its_order():
    return changed(jnp, "reshape", lambda real, v, shape, order="C", **k: real(v, shape, **k))


@fault(**rule("reshard_of_closed_keys"))
def keys_are_put_in_another_order():
    return changed(typed, "reshard", lambda real, v, place: real(jnp.roll(v, 1), place))


@fault(**rule("repeat_in_named_batches"))
def elements_are_repeated_with_the_other_sign():
    return changed(jnp, "repeat", lambda real, v, *a, **k: -real(v, *a, **k))
