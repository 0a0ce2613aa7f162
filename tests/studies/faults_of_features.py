# SPDX-License-Identifier: Apache-2.0
"""Faults of features around one program: types, mutable arrays, layouts, checks, kernels, closures."""

from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, reshard
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms import features
from tests.studies.planting import fault, patched


def form(*names: str) -> dict[str, Any]:
    """The cases of some forms."""
    return {
        "operations": ("program_feature",),
        "only": lambda case: case.cell.request.variant.get("form") in names,
    }


def of_unreduced(wrong: Any) -> Any:
    """`reshard` that gives `wrong(result)` for an array of unreduced type."""

    def make(real):
        def reshard(x, spec):
            own = getattr(jax.typeof(x).sharding.spec, "unreduced", ())
            return wrong(real(x, spec)) if own else real(x, spec)

        return reshard

    return patched(features, "reshard", make)


@fault(**form("unreduced", "unreduced_added"))
def an_unreduced_sum_is_averaged():
    return of_unreduced(lambda y: y / 4)


@fault(**form("unreduced_scattered"))
def an_unreduced_sum_is_scattered_one_device_further():
    return of_unreduced(lambda y: reshard(jnp.roll(reshard(y, P()), 2, axis=0), P("y")))


@fault(**form("unreduced_mixed"))
def a_sum_over_one_axis_is_lost_where_another_shards_the_array():
    return of_unreduced(lambda y: y * 0)


@fault(**form("reduced"))
def the_gradient_of_a_reduced_argument_is_added_up_already():
    def make(real):
        return lambda f: lambda w: jnp.ones_like(w)

    return patched(jax, "grad", make)


class Forgetful:
    """A mutable array that loses what is written to some of its rows."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def __getitem__(self, at: Any) -> Any:
        return self.kept[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        if not (isinstance(at, slice) and at.start == 3):
            self.kept[at] = value


@fault(**form("mutable"))
def a_write_to_the_last_rows_of_a_mutable_array_is_lost():
    return patched(features, "mutable", lambda real: lambda x: Forgetful(real(x)))


@fault(**form("mutable_argument"))
def a_program_changes_a_copy_of_a_mutable_argument():
    return patched(jax, "jit", lambda real: lambda f, **options: lambda *given: None)


@fault(**form("mutable_block"))
def a_mutable_block_starts_as_zeros():
    return patched(features, "mutable", lambda real: lambda x: real(x * 0))


@fault(**form("layout"))
def a_put_with_a_layout_relabels_the_memory():
    def make(real):
        def device_put(x, place):
            if hasattr(place, "layout") and place.layout.major_to_minor == (1, 0):
                x = np.asarray(x).ravel().reshape(x.shape, order="F")
            return real(x, place)

        return device_put

    return patched(jax, "device_put", make)


@fault(**form("check_fails"))
def a_check_that_fails_says_nothing():
    from jax.experimental import checkify

    return patched(checkify, "check", lambda real: lambda truth, *text, **values: None)


@fault(**form("without_jit"))
def a_sum_without_jit_is_that_of_one_device():
    def make(real):
        return lambda x, axis, **options: x if jax.config.jax_disable_jit else real(x, axis, **options)

    return patched(lax, "psum", make)


@fault(**form("debug_nans"))
def debug_nans_does_nothing():
    return patched(jax, "debug_nans", lambda real: lambda on: nullcontext())


@fault(**form("abstract_mesh"))
def a_mesh_without_devices_takes_them_in_reverse():
    def make(real):
        def shard_map(f, *, mesh, **specs):
            if not isinstance(mesh, AbstractMesh):
                return real(f, mesh=mesh, **specs)
            size = mesh.shape["y"]
            order = [(i, size - 1 - i) for i in range(size)]
            return real(lambda block: f(lax.ppermute(block, "y", order)), mesh=mesh, **specs)

        return shard_map

    return patched(jax, "shard_map", make)


@fault(**form("kernel"))
def a_kernel_loses_its_last_row():
    from jax.experimental import pallas

    def make(real):
        def pallas_call(*given, **options):
            return lambda x: real(*given, **options)(x).at[-1].set(0)

        return pallas_call

    return patched(pallas, "pallas_call", make)


@fault(**form("vmap_closed"))
def what_a_shard_map_closes_over_is_that_of_the_first_of_the_batch():
    def make(real):
        def vmap(f, **options):
            return lambda x: jnp.broadcast_to(real(f, **options)(x)[:, :1], x.shape)

        return vmap

    return patched(jax, "vmap", make)


@fault(**form("scanned_auto_axes"))
def the_gradient_of_a_loop_misses_its_last_turn():
    def make(real):
        return lambda f, first, length: real(f, first, length=length - 1)

    return patched(lax, "scan", make)
