# SPDX-License-Identifier: Apache-2.0
"""Faults of a further list that was written without a look at the table, which no case showed: of closures, later
outputs, leaves of trees, weights and axes of one size."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_ties_and_ends import both, explicit
from tests.studies.planting import fault


@fault(**rule("slopes_of_closures"))
def a_policy_of_checkpoint_stops_the_slopes_of_closures():
    def checkpoint(real, f, *a, **k):
        if k.get("policy") is None:
            return real(f, *a, **k)

        @functools.wraps(f)
        def call(*args):
            inner, held = jax.closure_convert(f, *args)
            return real(inner, *a, **k)(*args, *map(lax.stop_gradient, held))

        return call

    return both(changed(jax, "checkpoint", checkpoint), changed(jax, "remat", checkpoint))


@fault(**rule("every_output_is_checked"))
def only_the_first_output_of_a_region_is_checked():
    def shard_map(real, f=None, **k):
        specs = k.get("out_specs")
        if not isinstance(specs, tuple) or isinstance(specs, P) or len(specs) < 2 or specs[0] == P():
            return real(f, **k)
        return real(f, **k, check_vma=False)

    return changed(jax, "shard_map", shard_map)


@fault(**rule("trees_of_shardings"))
def shardings_of_results_are_in_the_order_of_a_dictionary():
    def jit(real, *a, **k):
        given = k.get("out_shardings")
        if isinstance(given, dict):
            k["out_shardings"] = dict(zip(sorted(given), given.values(), strict=True))
        return real(*a, **k)

    return changed(jax, "jit", jit)


@fault(**rule("weights_of_exponentials"))
def an_exponential_without_weight_decides_the_largest():
    def logsumexp(real, a, axis=None, b=None, **k):
        if b is None or k:
            return real(a, axis, b=b, **k)
        top = jnp.max(a, axis=axis, keepdims=True)
        total = jnp.sum(b * jnp.exp(a - top), axis=axis)
        return jnp.log(total) + jnp.squeeze(top, axis)

    return both(changed(jax.nn, "logsumexp", logsumexp), changed(jax.scipy.special, "logsumexp", logsumexp))


@fault(**rule("swaps_of_equal_axes"))
def a_swap_of_equal_axes_changes_the_type_alone():
    def swap(real, x, spec, *a, **k):
        mesh = jax.sharding.get_abstract_mesh()
        old = tuple(jax.typeof(x).sharding.spec) if explicit(x) else ()
        names = [part for part in old if isinstance(part, str)]
        if x.ndim != 2 or len(names) != 2 or tuple(spec) != old[::-1]:
            return real(x, spec, *a, **k)
        if mesh.shape[names[0]] != mesh.shape[names[1]]:
            return real(x, spec, *a, **k)
        return jax.shard_map(lambda v: v, in_specs=P(*old), out_specs=P(*spec))(x)

    return changed(jax.sharding, "reshard", swap)


@fault(**rule("choices_of_two_types_refused"))
def a_choice_of_two_types_takes_the_first_one():
    def where(real, condition, x: Any = None, y: Any = None, **k):
        if explicit(x) and explicit(y) and x.shape == y.shape:
            y = reshard(y, jax.typeof(x).sharding.spec)
        return real(condition, x, y, **k)

    return changed(jnp, "where", where)
