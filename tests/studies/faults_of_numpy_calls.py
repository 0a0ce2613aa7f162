# SPDX-License-Identifier: Apache-2.0
"""Faults of the rules of version 20: calls of NumPy's functions, uses of arrays, precision and places."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec, reshard

from tests.studies.faults_of_conditions import changed, form
from tests.studies.faults_of_small_rules import rule
from tests.studies.planting import fault

# Calls of NumPy's functions.


@fault(**form("numpy_shapes", "cut_array"))
def a_roll_along_several_axes_is_forward():
    def call(real, x, shift, axis=None):
        return real(x, tuple(map(abs, shift)) if isinstance(shift, tuple) else shift, axis)

    return changed(jnp, "roll", call)


@fault(**form("numpy_pads", "cut_array"))
def bits_are_packed_from_the_largest():
    return changed(jnp, "packbits", lambda real, x, axis=None, bitorder="big": real(x, axis, "big"))


@fault(**form("numpy_statistics", "cut_array"))
def a_variance_of_some_counts_all():
    def call(real, x, axis=None, where=None, ddof=0, **options):
        y = real(x, axis=axis, where=where, ddof=ddof, **options)
        return y if where is None else y * 0.9

    return changed(jnp, "var", call)


@fault(**form("numpy_orders", "cut_array"))
def an_interpolation_has_no_period():
    def call(real, x, xp, fp, left=None, right=None, period=None):
        return real(x, xp, fp, left, right)

    return changed(jnp, "interp", call)


@fault(**form("numpy_products", "cut_array"))
def an_einsum_without_a_result_has_it_in_order_of_appearance():
    def call(real, text, *arrays, **options):
        if isinstance(text, str) and "->" not in text and "." not in text:
            names = text.replace(",", "")
            text += "->" + "".join(n for n in dict.fromkeys(names) if names.count(n) == 1)
        return real(text, *arrays, **options)

    return changed(jnp, "einsum", call)


@fault(**form("numpy_numbers", "cut_array"))
def a_remainder_of_a_negative_number_is_that_of_c():
    return changed(jnp, "mod", lambda real, x, y: jnp.fmod(x, y))


@fault(**form("numpy_fourier", "cut_array"))
def a_transform_back_over_three_axes_is_too_large():
    def call(real, x, s=None, axes=None, norm=None):
        y = real(x, s, axes, norm)
        return y * y.shape[-1] if y.ndim == 3 and norm is None else y

    return changed(jnp.fft, "irfftn", call)


# Uses of arrays.


@fault(**rule("multihost_types"))
def what_one_host_sends_of_truths_is_numbers():
    def call(real, tree, **options):
        return jax.tree.map(lambda x: np.asarray(x) * 1, real(tree, **options))

    return changed(multihost_utils, "broadcast_one_to_all", call)


@fault(**rule("context_specs"))
def a_mesh_of_some_devices_has_the_first():
    def call(real, shape, names, **options):
        devices = jax.devices()[: int(np.prod(shape))]
        return real(shape, names, **options | {"devices": devices})

    return changed(jax, "make_mesh", call)


@fault(**rule("manual_names"))
def a_mesh_hides_what_is_manual():
    def call(real):
        mesh = real()
        auto = {name: jax.sharding.AxisType.Auto for name in mesh.axis_names}
        return mesh.update(axis_types=tuple(auto.values())) if mesh.axis_names else mesh

    return changed(jax.sharding, "get_abstract_mesh", call)


@fault(**rule("donated_results"))
def the_results_of_three_donated_arguments_change_places():
    def call(real, f, donate_argnums=(), **options):
        run = real(f, donate_argnums=donate_argnums, **options)

        def turned(*arguments):
            found = run(*arguments)
            return (found[1], found[0], *found[2:]) if donate_argnums == (0, 1, 2) else found

        return turned

    return changed(jax, "jit", call)


@fault(**rule("free_constraints"))
def a_dimension_that_is_left_open_is_gathered():
    def call(real, x, place):
        spec = [None if part is PartitionSpec.UNCONSTRAINED else part for part in place.spec]
        return real(x, NamedSharding(place.mesh, PartitionSpec(*spec)))

    return changed(lax, "with_sharding_constraint", call)


@fault(**rule("callback_axes"))
def a_callback_maps_the_first_dimension_alone():
    def call(real, f, in_axes=0, out_axes=0, **options):
        return real(f, in_axes=0 if in_axes == 1 else in_axes, out_axes=out_axes, **options)

    return changed(jax, "vmap", call)


@fault(**rule("region_arguments"))
def a_region_takes_its_second_argument_for_the_first():
    def call(real, f, **options):
        specs = options.get("in_specs")
        if not isinstance(specs, tuple) or len(specs) != 2 or specs[0] != specs[1]:
            return real(f, **options)
        return real(lambda u, v: f(v, u), **options)

    return changed(jax, "shard_map", call)


@fault(**rule("typed_results"))
def zeros_of_another_dtype_are_whole():
    def call(real, x, dtype=None, **options):
        y = real(x, dtype=dtype, **options)
        return y if dtype is None else reshard(y, PartitionSpec())

    return changed(jnp, "zeros_like", call)


@fault(**rule("unreduced_scalars"))
def a_scalar_that_is_left_open_counts_twice():
    def call(real, text, *arrays, out_sharding=None, **options):
        y = real(text, *arrays, out_sharding=out_sharding, **options)
        return y + y if text.endswith("->") else y

    return changed(jnp, "einsum", call)


# Precision and places.


@fault(**rule("fine_products"))
def what_a_policy_saves_is_rounded_to_half_precision():
    def call(real, f, *, policy=None, **options):
        def rounded(x, w):
            return f(lax.reduce_precision(x, 8, 7), w)

        return real(rounded if policy is not None else f, policy=policy, **options)

    return changed(jax, "checkpoint", call)


@fault(**rule("narrow_indices"))
def a_place_of_16_bits_is_at_most_255():
    def call(real, x, places, *arguments, **options):
        return real(x, places & 255 if places.dtype == jnp.uint16 else places, *arguments, **options)

    return changed(jnp, "take", call)


@fault(**rule("shorter_places"))
def a_place_along_an_axis_wraps_in_eight_bits():
    def call(real, x, places, axis=-1, **options):
        if places.dtype == jnp.int8:
            places = jnp.where(places < 0, places + x.shape[axis] % 128, places)
        return real(x, places, axis, **options)

    return changed(jnp, "take_along_axis", call)


@fault(**rule("wide_creation"))
def a_range_with_a_device_begins_anew_in_each_shard():
    def call(real, *arguments, device=None, **options):
        y = real(*arguments, device=device, **options)
        if not isinstance(device, NamedSharding):
            return y
        part = device.shard_shape(y.shape)[0]
        return jax.device_put(jnp.tile(y[:part], y.shape[0] // part), device)

    return changed(jnp, "arange", call)


@fault(**rule("signs_of_zeros"))
def the_sign_of_a_zero_is_a_zero_without_a_sign():
    return changed(jnp, "sign", lambda real, x: jnp.where(x == 0, jnp.zeros_like(x), real(x)))


@fault(**rule("keys_apart"))
def many_keys_of_one_kind_repeat():
    def call(real, key, num=2):
        keys = real(key, num)
        if not isinstance(num, int) or num < 3 or "rbg" not in str(jax.random.key_impl(key)):
            return keys
        return keys[jnp.arange(num) % 2]

    return changed(jax.random, "split", call)


@fault(**rule("draws_placed"))
def a_placed_draw_is_that_of_the_next_key():
    def call(real, key, shape=(), dtype=None, *, out_sharding=None, **options):
        key = key if out_sharding is None else jax.random.fold_in(key, 1)
        return real(key, shape, out_sharding=out_sharding, **options)

    return changed(jax.random, "uniform", call)


@fault(**rule("untiled_slopes"))
def the_gradient_of_an_untiled_gather_is_that_of_one_device():
    def call(real, x, axis_name, *, axis=0, tiled=False, **options):
        y = real(x, axis_name, axis=axis, tiled=tiled, **options)
        return y if tiled else lax.stop_gradient(y) + jnp.expand_dims(x - lax.stop_gradient(x), axis)

    return changed(lax, "all_gather", call)


@fault(**rule("slopes_of_examples"))
def a_gradient_by_the_first_of_two_arguments_counts_twice():
    def call(real, f, *arguments, **options):
        slope = real(f, *arguments, **options)
        return lambda *given: (
            jax.tree.map(lambda y: y + y, slope(*given)) if len(given) == 2 else slope(*given)
        )

    return changed(jax, "grad", call)


@fault(**rule("stored_shardings"))
def the_results_of_a_stored_program_lie_in_reverse_order():
    from jax import export

    return changed(export.Exported, "out_shardings_jax", lambda real, self, mesh: real(self, mesh)[::-1])


@fault(**rule("reading_rows"))
def rows_in_turn_repeat_after_a_hundred():
    def call(real, x):
        rows = list(real(x))
        return iter(list(itertools.chain(rows[:100], rows[: len(rows) - 100])))

    return changed(type(jnp.zeros(1)), "__iter__", call)
