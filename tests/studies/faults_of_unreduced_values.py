# SPDX-License-Identifier: Apache-2.0
"""Faults of unreduced and reduced arrays, and of programs and callables over two meshes.

Each replaces public functions, so that each release can have it. Forms whose program a release gets wrong by itself
have no fault here: their known issue says so."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import serialize_executable
from jax.sharding import PartitionSpec as P

from tests.studies.faults_of_conditions import changed, form
from tests.studies.planting import fault


def value(name: str) -> dict[str, Any]:
    """The case of one form of unreduced values."""
    return form(name, "unreduced_value")


def meshes(name: str) -> dict[str, Any]:
    """The case of one form of second meshes."""
    return form(name, "second_mesh")


def own_axes(x: Any) -> frozenset[str]:
    """The axes over which each device has its own part of an array."""
    found = getattr(getattr(jax.typeof(x), "sharding", None), "spec", None)
    return frozenset(getattr(found, "unreduced", None) or ())


def on_each_device(function: Any, x: Any, reduced: bool = False) -> Any:
    """A function of the parts of an unreduced array: the parts of the result, or the first device's for the whole."""
    there = jax.typeof(x).sharding.spec
    return jax.shard_map(function, in_specs=there, out_specs=P() if reduced else there, check_vma=False)(x)


# Values.


@fault(**value("not_linear"))
def the_absolute_of_an_unreduced_array_is_that_of_its_parts():
    def call(real, x):
        return on_each_device(real, x) if own_axes(x) else real(x)

    return changed(jnp, "abs", call)


@fault(**value("not_linear"))
def the_larger_of_two_unreduced_arrays_is_that_of_their_parts():
    def call(real, x, y):
        if not own_axes(x) or not own_axes(y):
            return real(x, y)
        there = jax.typeof(x).sharding.spec
        return jax.shard_map(real, in_specs=(there, there), out_specs=there, check_vma=False)(x, y)

    return changed(jnp, "minimum", call)


@fault(**value("joins"))
def a_join_of_unreduced_arrays_is_of_the_first_device():
    def call(real, arrays, *args, **options):
        found = real(arrays, *args, **options)
        return on_each_device(lambda v: v, found, reduced=True) if own_axes(found) else found

    return changed(jnp, "concatenate", call)


@fault(**value("pads"))
def a_pad_of_an_unreduced_array_is_counted_by_each_device():
    def call(real, x, value, config):
        found = real(x, value, config)
        return found + found if own_axes(x) and min(config)[0] < 0 else found

    return changed(lax, "pad", call)


@fault(**value("around"))
def a_loop_adds_an_unreduced_carry_once_more():
    def call(real, lower, upper, body, start, **options):
        found = real(lower, upper, body, start, **options)
        own = not isinstance(start, tuple | list) and own_axes(start)
        return found + start if own else found

    return changed(lax, "fori_loop", call)


@fault(**value("region"))
def a_sum_over_devices_of_an_unreduced_array_counts_it_twice():
    def call(real, x, axis_name, **options):
        found = real(x, axis_name, **options)
        return found + found if jnp.shape(x) == (4, 6) else found  # its type inside of a region tells nothing

    return changed(lax, "psum", call)


# Gradients.


@fault(**value("slope_products"))
def the_gradient_of_a_reduced_argument_is_that_of_the_first_device():
    def call(real, f, *args, **options):
        def gradient(*operands):
            found = real(f, *args, **options)(*operands)
            return on_each_device(lambda v: v, found, reduced=True) if own_axes(found) else found

        return gradient

    return changed(jax, "grad", call)


@fault(**value("slope_batches"))
def the_gradient_of_a_reduced_argument_is_summed_too_early():
    def call(real, f, *args, **options):
        def gradient(*operands):
            found = real(f, *args, **options)(*operands)
            return jax.sharding.reshard(found, P()) if own_axes(found) else found

        return gradient

    return changed(jax, "grad", call)


# Two meshes.


@fault(**meshes("made_anew"))
def a_region_keeps_the_mesh_of_the_first():
    seen: dict[str, Any] = {}

    def call(real, f, *, mesh=None, **options):
        if mesh is None:
            mesh = seen.setdefault("mesh", jax.sharding.get_abstract_mesh())
        return real(f, mesh=mesh, **options)

    return changed(jax, "shard_map", call)


@fault(**meshes("other_names"))
def a_constraint_to_a_second_mesh_is_dropped():
    def call(real, x, shardings):
        names = getattr(getattr(shardings, "mesh", None), "axis_names", ())
        return x if "u" in names else real(x, shardings)

    return changed(lax, "with_sharding_constraint", call)


@fault(**meshes("named_results"))
def the_devices_of_a_second_mesh_are_numbered_from_its_end():
    def call(real, axis_name):
        found = real(axis_name)
        return lax.axis_size(axis_name) - 1 - found if axis_name == "u" else found

    return changed(lax, "axis_index", call)


@fault(**meshes("eager_meshes"))
def an_array_stays_on_the_mesh_where_it_is():
    def call(real, x, device=None, **options):
        names = getattr(getattr(device, "mesh", None), "axis_names", ())
        return x if isinstance(x, jax.Array) and "u" in names else real(x, device, **options)

    return changed(jax, "device_put", call)


@fault(**meshes("own_mesh"))
def a_jitted_function_keeps_the_mesh_of_its_first_call():
    def call(real, f=None, **options):
        run = real(f, **options)
        if options.get("static_argnums") != 1:
            return run
        seen: list[Any] = []

        def first(x, mesh):
            seen.append(mesh)
            return run(x, seen[0])

        return first

    return changed(jax, "jit", call)


@fault(**meshes("stored_with_devices"))
def a_loaded_program_counts_the_devices_of_another_order_as_in_order():
    def call(real, *args, execution_devices=None, **options):
        run = real(*args, execution_devices=execution_devices, **options)

        def again(x):
            found = run(x)
            ids = [d.id for d in execution_devices or ()]
            if ids == sorted(ids):
                return found
            parts = [s.data for s in found.addressable_shards][::-1]
            moved = [
                jax.device_put(p, s.device) for p, s in zip(parts, found.addressable_shards, strict=True)
            ]
            return jax.make_array_from_single_device_arrays(found.shape, found.sharding, moved)

        return again

    return changed(serialize_executable, "deserialize_and_load", call)


@fault(**meshes("host_array"))
def an_array_in_host_memory_loses_its_last_row_on_its_way():
    def call(real, x, device=None, **options):
        kind = getattr(getattr(x, "sharding", None), "memory_kind", None)
        found = real(x, device, **options)
        return found.at[-1].set(0) if kind == "pinned_host" and isinstance(x, jax.Array) else found

    return changed(jax, "device_put", call)


@fault(**meshes("fed_back"))
def a_jitted_function_forgets_its_program_after_each_call():
    class Forgetful:
        """A jitted function that is compiled for each call."""

        def __init__(self, run: Any) -> None:
            self._run = run

        def __getattr__(self, name: str) -> Any:
            return getattr(self._run, name)

        def __call__(self, *args: Any, **options: Any) -> Any:
            self._run.clear_cache()
            return self._run(*args, **options)

    return changed(jax, "jit", lambda real, *a, **k: Forgetful(real(*a, **k)))
