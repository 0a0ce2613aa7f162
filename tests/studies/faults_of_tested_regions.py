# SPDX-License-Identifier: Apache-2.0
"""Faults of regions, references, pullbacks and partitions under conditions that JAX's own tests name: one for each rule
of them that JAX itself does not break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning

from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_reported_rules import doubled
from tests.studies.planting import fault


def regions(when: Callable[[dict[str, Any]], bool], make: Callable[[Any, dict[str, Any]], Any]) -> Any:
    """shard_map of another function, where its options are so."""

    def shard_map(real: Any, fun: Any, **k: Any) -> Any:
        return real(make(fun, k) if when(k) else fun, **k)

    return changed(jax, "shard_map", shard_map)


def twice(fun: Any, *_: Any) -> Any:
    return lambda *a: jax.tree.map(lambda v: v + v, fun(*a))


def pullbacks(make: Callable[[Any, tuple[Any, ...]], Any]) -> Any:
    """vjp whose pullback with references is another one: make(pullback, references)."""

    class Pullback:
        def __init__(self, real: Any) -> None:
            self.real = real

        def __call__(self, *a: Any) -> Any:
            return self.real(*a)

        def with_refs(self, *refs: Any) -> Any:
            return make(self.real, refs)

    def vjp(real: Any, fun: Any, *a: Any, **k: Any) -> Any:
        found, back, *more = real(fun, *a, **k)
        return found, Pullback(back), *more

    return changed(jax, "vjp", vjp)


def partitions(when: Callable[[dict[str, Any]], bool], make: Callable[[Any], Any]) -> Any:
    """def_partition with another function of blocks, where its options are so."""

    def def_partition(real: Any, self: Any, partition: Any, **k: Any) -> Any:
        def other(*a: Any) -> Any:
            mesh, call, result, arguments = partition(*a)
            return mesh, make(call) if when(k) else call, result, arguments

        return real(self, other, **k)

    return changed(custom_partitioning, "def_partition", def_partition)


@fault(**rule("gathered_as_reduced"))
def what_is_gathered_as_reduced_is_doubled():
    def all_gather(real, v, *a, **k):
        return real(v + v if k.get("to") == "reduced" else v, *a, **k)

    return changed(lax, "all_gather", all_gather)


@fault(**rule("products_marked_unreduced"))
def what_is_marked_as_unreduced_is_doubled():
    return changed(
        lax, "pcast", lambda real, v, *a, **k: real(v + v if k["to"] == "unreduced" else v, *a, **k)
    )


@fault(**rule("unchecked_regions_of_unreduced"))
def an_unchecked_region_doubles_unreduced_values():
    return regions(lambda k: k.get("check_vma") is False and bool(k["out_specs"].unreduced), twice)


@fault(**rule("reduced_meets_varying_in_regions"))
def what_is_marked_as_reduced_has_the_other_sign():
    return changed(lax, "pcast", lambda real, v, *a, **k: real(-v if k["to"] == "reduced" else v, *a, **k))


@fault(**rule("cotangents_that_are_none"))
def a_gradient_of_zeros_is_of_ones():
    def grad(real, fun, *a, **k):
        run = real(fun, *a, **k)
        return lambda *given: jax.tree.map(lambda v: v + (v == 0).all().astype(v.dtype), run(*given))

    return changed(jax, "grad", grad)


@fault(**rule("cotangents_of_integers_through_regions"))
def a_gradient_beside_integers_is_doubled():
    return doubled(jax, "grad", 0)


@fault(**rule("forwarded_residuals"))
def gradients_by_the_first_and_the_third_argument_are_exchanged():
    def grad(real, fun, *a, **k):
        run = real(fun, *a, **k)

        def exchanged(*given):
            found = run(*given)
            return found[::-1] if isinstance(found, tuple) and len(found) == 3 else found

        return exchanged

    return changed(jax, "grad", grad)


@fault(**rule("computed_again_around_regions"))
def what_a_policy_saves_is_doubled():
    def checkpoint(real, fun, **k):
        return real(twice(fun) if k.get("policy") else fun, **k)

    return changed(jax, "checkpoint", checkpoint)


@fault(**rule("linear_maps_in_regions"))
def the_transpose_of_a_linear_map_is_doubled():
    return doubled(jax, "linear_transpose")


@fault(**rule("smaps_in_smaps"))
def an_inner_smap_is_doubled():
    def smap(real, fun, **k):
        return real(twice(fun) if k["axis_name"] == "y" else fun, **k)

    return changed(jax, "smap", smap)


@fault(**rule("arguments_without_specs"))
def a_region_forgets_an_argument_without_a_spec():
    def without(fun, k):
        specs = k["in_specs"]
        return lambda *a: fun(*(None if s is None else v for v, s in zip(a, specs, strict=True)))

    return regions(lambda k: isinstance(k.get("in_specs"), tuple), without)


@fault(**rule("choices_of_python_in_eager_regions"))
def a_sum_that_chooses_has_the_other_sign():
    return changed(lax, "psum", lambda real, v, *a, **k: real(v if v.ndim else -v, *a, **k))


@fault(**rule("shapes_in_regions"))
def the_counts_of_bins_are_turned():
    def histogram(real, *a, **k):
        counts, edges = real(*a, **k)
        return counts[::-1], edges

    return changed(jnp, "histogram", histogram)


@fault(**rule("references_given_to_regions"))
def a_region_without_results_runs_twice():
    def again(fun, _):
        def both(*a):
            fun(*a)
            return fun(*a)

        return both

    return regions(lambda k: k["out_specs"] is None, again)


@fault(**rule("references_through_programs"))
def a_scan_takes_the_rows_of_a_reference_from_the_end():
    def scan(real, f, init, xs=None, **k):
        turned = any(isinstance(v, jax.Ref) for v in jax.tree.leaves(xs))
        return real(f, init, xs, **({"reverse": True} if turned else k))

    return changed(lax, "scan", scan)


@fault(**rule("references_past_a_barrier"))
def a_barrier_doubles_what_is_beside_a_reference():
    def barrier(real, given):
        return tuple(v if isinstance(v, jax.Ref) else v + v for v in real(given))

    return changed(lax, "optimization_barrier", barrier)


@fault(**rule("statistics_in_references"))
def a_rule_that_keeps_a_reference_runs_twice():
    def defvjp(real, self, fwd, bwd, **k):
        def both(kept, ct):
            if isinstance(kept, jax.Ref):
                bwd(kept, ct)
            return bwd(kept, ct)

        return real(self, fwd, both, **k)

    return changed(jax.custom_vjp, "defvjp", defvjp)


@fault(**rule("references_under_checkpoints"))
def a_reference_that_derivatives_pass_over_starts_one_higher():
    return changed(jax, "new_ref", lambda real, v, **k: real(v + 1 if k.get("kind") else v, **k))


@fault(**rule("references_without_values"))
def a_reference_is_never_freed():
    return changed(jax, "free_ref", lambda real, ref: None)


@fault(**rule("references_given_twice"))
def a_reference_that_is_given_twice_is_copied():
    def jit(real, fun, *a, **k):
        run = real(fun, *a, **k)

        def call(*given):
            same = len(given) == 2 and given[0] is given[1] and isinstance(given[0], jax.Ref)
            return run(given[0], jax.new_ref(given[0][...])) if same else run(*given)

        return call

    return changed(jax, "jit", jit)


@fault(**rule("parts_of_references"))
def what_is_added_to_a_part_of_a_reference_is_taken_away():
    return changed(jax.ref, "addupdate", lambda real, ref, where, v: real(ref, where, -v))


@fault(**rule("pullbacks_into_parts"))
def a_pullback_adds_twice_to_a_reference():
    return pullbacks(lambda real, refs: lambda ct: real.with_refs(*refs)(ct + ct))


@fault(**rule("pullbacks_into_rows"))
def a_pullback_takes_from_a_reference():
    return pullbacks(lambda real, refs: lambda ct: real.with_refs(*refs)(-ct))


@fault(**rule("kinds_of_gradients_of_scans"))
def gradients_beside_references_are_doubled():
    def make(real, refs):
        kept = [isinstance(r, jax.ad.GradValue) for r in refs]

        def back(ct):
            found = real.with_refs(*refs)(ct)
            return tuple(v + v if k else v for v, k in zip(found, kept, strict=True))

        return back

    return pullbacks(make)


@fault(**rule("factors_that_are_joined"))
def blocks_of_joined_factors_are_doubled():
    return partitions(lambda k: bool(k.get("need_replication_factors")), twice)


@fault(**rule("partitioned_otherwise"))
def blocks_in_other_places_are_doubled():
    return partitions(lambda k: bool(k.get("propagate_user_sharding")), twice)


@fault(**rule("partitions_refused"))
def a_rule_that_is_not_right_is_passed_over():
    def def_partition(real, self, partition, **k):
        try:
            return real(self, partition, **k)
        except ValueError:
            return real(self, partition, sharding_rule="i j -> i j")

    return changed(custom_partitioning, "def_partition", def_partition)
