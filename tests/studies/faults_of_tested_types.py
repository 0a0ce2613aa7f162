# SPDX-License-Identifier: Apache-2.0
"""Faults of typed arrays under conditions that JAX's own tests name: one for each rule of them that JAX itself does not
break."""

from __future__ import annotations

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.small_rules import tested_parts, tested_types
from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_reported_rules import doubled
from tests.studies.planting import fault


@fault(**rule("types_of_axes_changed_inside"))
def an_array_that_comes_back_from_auto_axes_is_negative():
    def reshard(real, v, place):
        kinds = jax.typeof(v).sharding.mesh.axis_types
        found = real(v, place)
        return -found if AxisType.Auto in kinds and place == P("x", None) else found

    return changed(tested_types, "reshard", reshard)


@fault(**rule("names_of_axes_changed_inside"))
def a_place_by_new_names_takes_them_in_the_order_of_the_mesh():
    def reshard(real, v, place):
        return real(v, P("a", "b") if place == P("b", "a") else place)

    return changed(tested_types, "reshard", reshard)


@fault(**rule("no_mesh_inside_of_a_context"))
def a_context_without_a_mesh_keeps_the_one_around_it():
    return changed(jax, "set_mesh", lambda real, mesh: nullcontext() if mesh is None else real(mesh))


@fault(**rule("axes_typed_by_a_call"))
def a_place_at_the_call_is_whole():
    def auto_axes(real, f, **k):
        run = real(f, **k)
        if k:
            return run
        return lambda *a, out_sharding: run(
            *a, out_sharding=P() if out_sharding == P("y", "x") else out_sharding
        )

    return changed(tested_types, "auto_axes", auto_axes)


@fault(**rule("splits_of_dimensions_over_several_axes"))
def a_dimension_over_three_axes_is_split_in_another_order():
    def reshape(real, v, shape, **k):
        found = real(v, shape, **k)
        return (
            found[:, :, :, ::-1]
            if len(shape) == 4 and "c" in jax.typeof(v).sharding.mesh.axis_names
            else found
        )

    return changed(jnp, "reshape", reshape)


@fault(**rule("meshes_of_mixed_axes"))
def a_constraint_over_an_auto_axis_is_forgotten():
    def constrained(real, v, place):
        return v if len(set(jax.typeof(v).sharding.mesh.axis_types)) == 2 else real(v, place)

    return changed(lax, "with_sharding_constraint", constrained)


@fault(**rule("arrays_of_no_mesh_beside_cut_ones"))
def a_product_with_a_numpy_array_is_negative():
    def dot(real, a, b, **k):
        return -real(a, b, **k) if isinstance(b, np.ndarray) else real(a, b, **k)

    return changed(jnp, "dot", dot)


@fault(**rule("batches_with_places"))
def a_batch_of_rolls_takes_the_gaps_with_the_other_sign():
    def roll(real, v, shift, axis=None):
        return real(v, shift if isinstance(shift, int) else -shift, axis)

    return changed(jnp, "roll", roll)


@fault(**rule("batches_with_places_of_one_name"))
def a_batch_may_have_the_name_of_another_axis():
    def vmap(real, f, *a, spmd_axis_name=None, **k):
        return real(f, *a, **k)

    return changed(jax, "vmap", vmap)


@fault(**rule("updates_with_places"))
def rows_are_written_a_row_too_early():
    def written(real, v, update, start):
        return real(v, update, (start[0] - 1, *start[1:]))

    return changed(lax, "dynamic_update_slice", written)


@fault(**rule("windows_across_cut_dimensions"))
def a_pool_across_cut_dimensions_leaves_out_the_next_device():
    def pooled(real, v, start, call, size, strides, padding):
        if size != (1, 3, 1):
            return real(v, start, call, size, strides, padding)
        inner = jax.shard_map(
            lambda b: real(b, start, call, size, strides, padding), out_specs=P("x", "y"), check_vma=False
        )
        return inner(v)

    return changed(lax, "reduce_window", pooled)


@fault(**rule("jacobians_with_places"))
def a_jacobian_by_rows_is_that_by_columns():
    return changed(jax, "jacrev", lambda real, f, *a, **k: jax.jacfwd(f, *a, **k))


@fault(**rule("regions_over_one_explicit_axis"))
def bits_for_a_place_in_a_region_come_from_the_next_key():
    def bits(real, key, *a, out_sharding=None, **k):
        if out_sharding is None:
            return real(key, *a, **k)
        return real(jax.random.fold_in(key, 1), *a, out_sharding=out_sharding, **k)

    return changed(jax.random, "bits", bits)


@fault(**rule("columns_written_in_a_region"))
def columns_in_a_region_are_written_at_the_next_place():
    def shard_map(real, f, **k):
        return real(lambda x, i: f(x, (i + 1) % x.shape[1]), **k)

    return changed(jax, "shard_map", shard_map)


@fault(**rule("ways_to_unreduced"))
def a_part_that_is_cut_before_it_is_unreduced_is_counted_on_each_device():
    def reshard(real, v, place):
        found = real(v, place)
        spec = jax.typeof(v).sharding.spec
        twice = place.unreduced and not spec.unreduced and spec == P("y", None)
        return found + found if twice else found

    return changed(tested_parts, "reshard", reshard)


@fault(**rule("counts_left_unreduced"))
def the_first_device_has_all_the_counts():
    def counted(real, x, *, length, out_sharding):
        if not out_sharding.unreduced:
            return real(x, length=length, out_sharding=out_sharding)
        return jax.sharding.reshard(real(x, length=length, out_sharding=P()), out_sharding)

    return changed(jnp, "bincount", counted)


@fault(**rule("extremes_left_unreduced"))
def the_least_that_is_put_together_in_a_region_is_one_more():
    return changed(lax, "pmin", lambda real, v, axes: real(v, axes) + 1)


@fault(**rule("quotients_and_choices_of_reduced"))
def a_choice_of_unreduced_arrays_takes_the_other_one():
    def select(real, mask, a, b):
        return real(mask, b, a) if jax.typeof(a).sharding.spec.unreduced else real(mask, a, b)

    return changed(lax, "select", select)


@fault(**rule("reads_and_writes_of_reduced"))
def the_pullback_of_rows_of_a_reduced_array_is_doubled():
    def vjp(real, f, *given, **k):
        found, pull = real(f, *given, **k)
        return found, lambda ct: jax.tree.map(lambda v: v + v, pull(ct))

    return changed(jax, "vjp", vjp)


@fault(**rule("reduced_carries"))
def a_gradient_by_a_carry_is_doubled():
    return doubled(jax, "grad")


@fault(**rule("sums_of_unreduced"))
def a_sum_of_what_is_unreduced_is_doubled():
    def reduce_sum(real, v, *, axes, **k):
        found = real(v, axes=axes, **k)
        return found + found if jax.typeof(v).sharding.spec.unreduced and len(axes) == 2 else found

    return changed(lax, "reduce_sum", reduce_sum)


@fault(**rule("types_of_parts_refused"))
def an_unreduced_array_may_lose_its_type_in_a_reshape():
    def reshape(real, v, shape, **k):
        return real(jax.sharding.reshard(v, P()), shape)

    return changed(jnp, "reshape", reshape)
