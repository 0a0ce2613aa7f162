# SPDX-License-Identifier: Apache-2.0
"""Faults of small rules: one for each form that every release can pass."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec, reshard

from tests.studies.faults_of_conditions import changed, form
from tests.studies.planting import fault


def rule(name: str) -> dict[str, Any]:
    """The case of one form of small rules."""
    return form(name, "small_rule")


# Refusals.


@fault(**rule("collectives_refused"))
def a_sum_leaves_out_names_of_axes_that_are_unknown():
    def call(real, x, axis_name, **options):
        known = axis_name
        if isinstance(axis_name, tuple):
            known = tuple(a for a in axis_name if a in jax.sharding.get_abstract_mesh().axis_names)
        return real(x, known, **options)

    return changed(lax, "psum", call)


@fault(**rule("specs_refused"))
def what_varies_over_an_axis_is_never_checked():
    def call(real, f, **options):
        return real(f, **options | {"check_vma": False})

    return changed(jax, "shard_map", call)


@fault(**rule("placements_refused"))
def an_array_that_does_not_divide_is_put_whole_on_each_device():
    def call(real, x, device=None, **options):
        try:
            return real(x, device, **options)
        except ValueError:
            return real(x, NamedSharding(device.mesh, PartitionSpec()), **options)

    return changed(jax, "device_put", call)


@fault(**rule("types_refused"))
def the_larger_of_two_arrays_with_other_axes_takes_those_of_the_first():
    def call(real, x, y):
        try:
            return real(x, y)
        except Exception:
            return real(x, reshard(y, jax.typeof(x).sharding))

    return changed(jnp, "maximum", call)


# Types.


@fault(**rule("sharding_objects"))
def a_mesh_of_fewer_devices_takes_the_last():
    def call(real, shape, names, *, devices=None, **options):
        return real(shape, names, devices=devices or jax.devices()[::-1][: int(np.prod(shape))], **options)

    return changed(jax, "make_mesh", call)


@fault(**rule("result_types"))
def a_number_on_a_device_is_not_committed():
    def call(real, x, device=None, **options):
        return jnp.asarray(x) if isinstance(x, float | int) else real(x, device, **options)

    return changed(jax, "device_put", call)


@fault(**rule("wire"))
def bytes_are_exchanged_as_four():
    def call(real, x, *args, **options):
        if x.dtype.itemsize > 1:
            return real(x, *args, **options)
        return real(x.astype(jnp.int32), *args, **options).astype(x.dtype)

    return changed(lax, "all_to_all", call)


# Calls.


@fault(**rule("second_calls"))
def a_buffer_that_is_put_again_is_the_one_of_before():
    seen = {}

    def call(real, x, device=None, **options):
        if not isinstance(x, np.ndarray):
            return real(x, device, **options)
        return seen.setdefault((id(x), device), (x, real(x.copy(), device, **options)))[1]

    return changed(jax, "device_put", call)


@fault(**rule("arguments"))
def the_size_of_several_axes_is_that_of_the_last():
    def call(real, axis_name):
        return real(axis_name[-1] if isinstance(axis_name, tuple) else axis_name)

    return changed(lax, "axis_size", call)


@fault(**rule("contexts"))
def a_permutation_of_nothing_changes_nothing():
    def call(real, x, axis_name, perm):
        return real(x, axis_name, perm) if perm else x

    return changed(lax, "ppermute", call)


@fault(**rule("training"))
def a_token_of_no_class_is_one_of_the_last():
    def call(real, x, num_classes, **options):
        return real(jnp.where(x < 0, num_classes - 1, x), num_classes, **options)

    return changed(jax.nn, "one_hot", call)


# Values.


@fault(**rule("every_bit"))
def a_permutation_sends_zero_for_subnormal_numbers():
    def call(real, x, axis_name, perm):
        if x.dtype != jnp.float32:
            return real(x, axis_name, perm)
        bits = lax.bitcast_convert_type(x, jnp.uint32)
        return real(jnp.where(bits & 0x7F800000 == 0, jnp.zeros_like(x), x), axis_name, perm)

    return changed(lax, "ppermute", call)


@fault(**rule("overflow"))
def a_sum_of_int8_ends_at_the_largest():
    def call(real, x, axis_name, **options):
        if getattr(x, "dtype", None) != jnp.int8:
            return real(x, axis_name, **options)
        return jnp.clip(real(x.astype(jnp.int32), axis_name, **options), -128, 127).astype(jnp.int8)

    return changed(lax, "psum", call)


@fault(**rule("orders"))
def a_descending_order_turns_equal_elements():
    def call(real, x, axis=-1, *, descending=False, **options):
        found = real(x, axis=axis, **options)
        return jnp.flip(found, axis) if descending else found

    return changed(jnp, "argsort", call)


@fault(**rule("narrow_dtypes"))
def an_array_of_keys_is_never_flipped():
    def call(real, m, axis=None):
        return m if jnp.issubdtype(m.dtype, jax.dtypes.prng_key) else real(m, axis)

    return changed(jnp, "flip", call)


@fault(**rule("random"))
def random_bytes_have_seven_bits():
    def call(real, key, shape=(), dtype=None, **options):
        found = real(key, shape, dtype, **options)
        return found >> 1 if found.dtype == jnp.uint8 else found

    return changed(jax.random, "bits", call)
