# SPDX-License-Identifier: Apache-2.0
"""Faults of the rules of version 21: functions over Explicit axes, and gradients of NumPy's functions."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType

from tests.studies.faults_of_conditions import changed, form
from tests.studies.planting import fault


def _sharded_by_type(x):
    sharding = getattr(jax.typeof(x), "sharding", None)
    return sharding is not None and any(
        sharding.spec[k] is not None and AxisType.Explicit in sharding.mesh.axis_types
        for k in range(len(sharding.spec))
    )


def _where_sharded(name, wrong):
    """jnp.NAME, which gives `wrong(result)` of an array that its type says is sharded."""

    def call(real, x, *arguments, **options):
        y = real(x, *arguments, **options)
        return wrong(y) if _sharded_by_type(x) else y

    return changed(jnp, name, call)


def _doubled(name):
    """jnp.NAME, whose gradient is twice what it should be."""

    def call(real, *arguments, **options):
        y = real(*arguments, **options)
        return jax.tree.map(lambda leaf: leaf + (leaf - lax.stop_gradient(leaf)), y)

    return changed(jnp, name, call)


@fault(**form("numpy_shapes", "explicit_array"))
def a_reversal_over_explicit_axes_keeps_the_order():
    def call(real, x, axis=None):
        return x if _sharded_by_type(x) else real(x, axis)

    return changed(jnp, "flip", call)


@fault(**form("numpy_statistics", "explicit_array"))
def a_variance_over_explicit_axes_counts_the_devices_of_an_axis():
    return _where_sharded("var", lambda y: y / 8)


@fault(**form("numpy_numbers", "explicit_array"))
def a_right_call_over_explicit_axes_is_refused():
    def refuse(y):
        raise ValueError("hypot of a sharded array is not supported")

    return _where_sharded("hypot", refuse)


@fault(**form("numpy_products", "explicit_array"))
def an_outer_product_over_explicit_axes_has_another_sign():
    return _where_sharded("kron", jnp.negative)


@fault(**form("slopes_shapes", "explicit_array"))
def the_gradient_of_tiles_over_explicit_axes_counts_one():
    def call(real, x, reps):
        y = real(x, reps)
        return lax.stop_gradient(y) if _sharded_by_type(x) else y

    return changed(jnp, "tile", call)


@fault(**form("slopes_shapes", "cut_array"))
def the_gradient_of_a_roll_is_that_of_its_argument():
    def call(real, x, *arguments, **options):
        y = real(x, *arguments, **options)
        return lax.stop_gradient(y) + (x - lax.stop_gradient(x)) if y.shape == x.shape else y

    return changed(jnp, "roll", call)


@fault(**form("slopes_pads", "cut_array"))
def the_gradient_of_a_padded_array_doubles():
    return _doubled("pad")


@fault(**form("slopes_statistics", "cut_array"))
def the_gradient_of_a_mean_without_nan_doubles():
    return _doubled("nanmean")


@fault(**form("slopes_orders", "cut_array"))
def the_gradient_of_an_interpolation_doubles():
    return _doubled("interp")


@fault(**form("slopes_products", "cut_array"))
def the_gradient_of_a_kronecker_product_doubles():
    return _doubled("kron")


@fault(**form("slopes_numbers", "cut_array"))
def the_gradient_of_an_angle_doubles():
    return _doubled("arctan2")
