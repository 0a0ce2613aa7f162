# SPDX-License-Identifier: Apache-2.0
"""Faults of batches and derivatives that few programs need, of moves between memories, and of slopes far from zero: one
for each rule that was written from the lines of JAX that no case executed, and that JAX itself does not break."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from meshmark.operations.programs.small_rules import seldom
from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_ties_and_ends import both
from tests.studies.planting import fault


def in_batches(owner: Any, name: str, call: Any) -> Any:
    """A function replaced by `call(real, *arguments)` inside of vmap, and by itself elsewhere."""
    deep: list[int] = []

    def vmap(real, fun, *a, **k):
        def inside(*given):
            deep.append(1)
            try:
                return fun(*given)
            finally:
                deep.pop()

        return real(inside, *a, **k)

    def within(real, *a, **k):
        return call(real, *a, **k) if deep else real(*a, **k)

    return both(changed(jax, "vmap", vmap), changed(owner, name, within))


def doubled_slope(real: Any, *a: Any, **k: Any) -> Any:
    """The value of a function, with twice its slope."""
    found = real(*a, **k)
    return 2 * found - lax.stop_gradient(found)


@fault(**rule("references_in_batches"))
def a_reference_in_a_batch_starts_with_one_more():
    return in_batches(jax, "new_ref", lambda real, v, *a, **k: real(v + 1, *a, **k))


@fault(**rule("choices_in_batches"))
def a_choice_in_a_batch_takes_the_other_case():
    return in_batches(lax, "select_n", lambda real, which, *cases: real(which, *cases[::-1]))


@fault(**rule("convolutions_in_batches"))
def groups_of_features_in_a_batch_of_convolutions_are_turned():
    def convolution(real, a, kernel, *rest, feature_group_count=1, **k):
        turned = kernel if feature_group_count == 1 else jnp.roll(kernel, 1, 0)
        return real(a, turned, *rest, feature_group_count=feature_group_count, **k)

    return changed(lax, "conv_general_dilated", convolution)


@fault(**rule("windows_in_batches"))
def the_slope_of_a_pooled_maximum_is_doubled():
    return changed(lax, "reduce_window", doubled_slope)


@fault(**rule("ragged_products_in_batches"))
def the_groups_of_the_first_member_are_those_of_all():
    def ragged(real, fun, *a, **k):
        if getattr(fun, "__name__", "") != "ragged_dot":
            return real(fun, *a, **k)
        run = real(fun, *a, **k)
        return lambda x, y, sizes: run(x, y, jnp.broadcast_to(sizes[:1], sizes.shape))

    return changed(jax, "vmap", ragged)


@fault(**rule("slopes_of_multiplied_parts"))
def the_slope_by_a_transposed_product_of_parts_is_doubled():
    def linear_transpose(real, fun, *likes, **k):
        run = real(fun, *likes, **k)
        return lambda *ct: jax.tree.map(lambda v: 2 * v, run(*ct))

    return changed(jax, "linear_transpose", linear_transpose)


@fault(**rule("linear_calls"))
def a_linear_call_is_differentiated_by_itself():
    def linear_call(real, forward, backward, kept, v):
        return forward(kept, v)

    return changed(seldom, "linear_call", linear_call)


@fault(**rule("rules_with_optimized_remat"))
def a_rule_inside_of_a_checkpoint_has_twice_its_slope():
    def checkpoint(real, fun, *a, **k):
        return real(lambda *given: doubled_slope(fun, *given), *a, **k)

    return changed(jax, "checkpoint", checkpoint)


@fault(**rule("loops_in_checkpoints"))
def the_tangent_of_a_counted_loop_lacks_its_last_step():
    def fori_loop(real, low, high, body, start, **k):
        found = real(low, high, body, start, **k)
        before = real(low, high - 1, body, start, **k) if isinstance(high, int) else found
        return lax.stop_gradient(found) + before - lax.stop_gradient(before)

    return changed(lax, "fori_loop", fori_loop)


@fault(**rule("complex_slopes"))
def the_slope_of_a_complex_arctangent_is_its_conjugate():
    def arctan(real, x):
        found = real(x)
        if not jnp.iscomplexobj(x):
            return found
        return lax.stop_gradient(found) + (found - lax.stop_gradient(found)) * 1j

    return changed(jnp, "arctan", arctan)


@fault(**rule("complex_slopes_to_the_left"))
def the_slope_of_a_complex_logarithm_turns_in_the_left_half():
    def log1p(real, x):
        found = real(x)
        if not jnp.iscomplexobj(x):
            return found
        sign = jnp.where(x.real < 0, -1, 1).astype(found.dtype)
        return lax.stop_gradient(found) + sign * (found - lax.stop_gradient(found))

    return changed(jnp, "log1p", log1p)


@fault(**rule("moved_slopes"))
def the_slope_of_a_moved_array_stays_where_the_array_went():
    def vjp(real, fun, *given, **k):
        found, back = real(fun, *given, **k)

        def stays(ct):
            return jax.tree.map(lambda v: jax.device_put(v, ct.sharding), back(ct))

        return found, stays

    return changed(jax, "vjp", vjp)


@fault(**rule("moves_between_memories"))
def an_array_stays_in_its_memory():
    def device_put(real, x, place=None, *a, **k):
        if isinstance(x, jax.Array) and getattr(place, "memory_kind", None) == "pinned_host":
            place = place.with_memory_kind("device")
        return real(x, place, *a, **k)

    return changed(jax, "device_put", device_put)


@fault(**rule("slopes_of_far_numbers"))
def the_slope_of_a_root_of_a_large_number_is_zero():
    def sqrt(real, x):
        found = real(x)
        return jnp.where(x > 1e18, lax.stop_gradient(found), found)

    return changed(jnp, "sqrt", sqrt)
