# SPDX-License-Identifier: Apache-2.0
"""Faults that need a condition: one dtype on one mesh, one device, one length, one order of groups, one argument of a
derivative, one branch."""

import contextlib
import functools
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.studies.planting import fault, patched


def grid(operation: str, kinds: str, mesh: str) -> dict[str, Any]:
    """The program of a grid on one mesh."""
    return {
        "operations": (operation,),
        "meshes": (mesh,),
        "only": lambda case: case.cell.request.variant.label == f"kinds={kinds}",
    }


def form(name: str, operation: str = "program_condition") -> dict[str, Any]:
    """The case of one form."""
    return {
        "operations": (operation,),
        "only": lambda case: case.cell.request.variant.get("form") == name,
    }


def changed(owner: Any, name: str, call: Any) -> Any:
    """A function replaced by `call(real, *arguments)`."""
    return patched(owner, name, lambda real: functools.wraps(real)(lambda *a, **k: call(real, *a, **k)))


# One dtype on one mesh.


@fault(**grid("collective_grid", "rare", "8"))
def a_sum_of_16_bits_without_a_sign_over_eight_devices_stays_at_its_largest():
    def psum(real, x, axes, **k):
        if getattr(x, "dtype", None) != jnp.uint16 or lax.axis_size(axes) != 8:
            return real(x, axes, **k)
        return jnp.minimum(real(x.astype(jnp.uint32), axes, **k), 65535).astype(jnp.uint16)

    return changed(lax, "psum", psum)


@fault(**grid("collective_grid", "usual", "2x2x2"))
def bytes_gathered_over_three_axes_along_the_second_dimension_come_in_another_order():
    def all_gather(real, x, axes, *, axis=0, **k):
        found = real(x, axes, axis=axis, **k)
        if getattr(x, "dtype", None) == jnp.int8 and len(axes) == 3 and axis == 1:
            return jnp.roll(found, x.shape[1], 1)
        return found

    return changed(lax, "all_gather", all_gather)


@fault(**grid("collective_grid", "usual", "6"))
def in_half_precision_six_devices_that_nobody_sends_to_keep_their_own():
    def ppermute(real, x, axes, perm):
        found = real(x, axes, perm)
        if getattr(x, "dtype", None) != jnp.float16 or lax.axis_size(axes) != 6:
            return found
        reached = jnp.isin(lax.axis_index(axes), np.array([target for _, target in perm]))
        return jnp.where(reached, found, x)

    return changed(lax, "ppermute", ppermute)


@fault(**grid("collective_grid", "usual", "2x4"))
def columns_of_a_bfloat16_sum_over_two_of_eight_devices_change_places():
    def psum_scatter(real, x, axes, *, scatter_dimension=0, **k):
        found = real(x, axes, scatter_dimension=scatter_dimension, **k)
        if x.dtype == jnp.bfloat16 and scatter_dimension == 1 and tuple(axes) == ("x",):
            return lax.ppermute(found, axes, [(0, 1), (1, 0)])
        return found

    return changed(lax, "psum_scatter", psum_scatter)


@fault(**grid("collective_grid", "usual", "3"))
def booleans_exchanged_by_three_devices_are_joined_backward():
    def all_to_all(real, x, axes, split, concat, **k):
        found = real(x, axes, split, concat, **k)
        if x.dtype == bool and lax.axis_size(axes) == 3:
            return jnp.concatenate(jnp.split(found, 3, axis=concat)[::-1], axis=concat)
        return found

    return changed(lax, "all_to_all", all_to_all)


@fault(**grid("collective_gradient_grid", "floats", "2x4"))
def the_gradient_of_a_bfloat16_gather_over_two_of_eight_devices_is_one_device_s_own():
    def all_gather(real, x, axes, **k):
        found = real(x, axes, **k)
        if x.dtype != jnp.bfloat16 or tuple(axes) != ("x",) or not k.get("tiled"):
            return found
        back = real(lax.stop_gradient(x), axes, **k)
        wide = jnp.concatenate([x] * 2, axis=k.get("axis", 0))
        return back + (wide - lax.stop_gradient(wide))

    return changed(lax, "all_gather", all_gather)


@fault(**grid("function_grid", "usual", "6"))
def rows_in_half_precision_on_six_devices_are_sorted_within_blocks():
    def sort(real, x, axis=-1):
        if x.dtype != jnp.float16 or x.shape[0] != 24 or axis:
            return real(x, axis=axis)
        return real(x.reshape(6, 4, -1), axis=1).reshape(x.shape)

    return changed(jnp, "sort", sort)


@fault(**grid("function_grid", "usual", "2x2x2"))
def bytes_on_three_axes_are_rolled_within_blocks():
    def roll(real, x, shift, axis=None):
        if x.dtype != jnp.uint8 or x.shape != (32, 24):
            return real(x, shift, axis)
        return real(x.reshape(2, 16, -1), shift, 1).reshape(x.shape)

    return changed(jnp, "roll", roll)


# One device, one length, one order.


@fault(**form("one_to_one"))
def what_the_last_device_alone_sends_to_the_first_is_lost():
    def ppermute(real, x, axes, perm):
        if len(perm) == 1 and tuple(perm[0]) == (lax.axis_size(axes) - 1, 0):
            return 0 * real(x, axes, perm)
        return real(x, axes, perm)

    return changed(lax, "ppermute", ppermute)


@fault(**form("branches"))
def all_devices_take_the_branch_of_one():
    def cond(real, truth, *a, **k):
        with contextlib.suppress(NameError):  # outside of shard_map there is no axis
            truth = lax.pmax(truth.astype(jnp.int32), "y") > 0
        return real(truth, *a, **k)

    return changed(lax, "cond", cond)


@fault(**form("branches"))
def all_devices_take_as_many_turns_as_one():
    def fori_loop(real, low, high, *a, **k):
        with contextlib.suppress(NameError):
            high = lax.pmax(high, "y")
        return real(low, high, *a, **k)

    return changed(lax, "fori_loop", fori_loop)


@fault(**form("orders_of_groups"))
def members_of_a_group_are_gathered_in_their_own_order():
    def all_gather(real, x, axes, *, axis_index_groups=None, **k):
        groups = axis_index_groups and [sorted(group) for group in axis_index_groups]
        return real(x, axes, axis_index_groups=groups, **k)

    return changed(lax, "all_gather", all_gather)


@fault(**form("orders_of_groups"))
def parts_of_a_sum_go_to_the_members_of_a_group_in_their_own_order():
    def psum_scatter(real, x, axes, *, axis_index_groups=None, **k):
        groups = axis_index_groups and [sorted(group) for group in axis_index_groups]
        return real(x, axes, axis_index_groups=groups, **k)

    return changed(lax, "psum_scatter", psum_scatter)


@fault(**form("lengths"))
def the_last_of_an_odd_number_above_a_hundred_is_not_added_up():
    def psum(real, x, axes, **k):
        found = real(x, axes, **k)
        odd = getattr(x, "ndim", 0) == 2 and x.shape[0] == 1 and x.size > 100 and x.size % 2
        return found.at[0, -1].set(0) if odd else found

    return changed(lax, "psum", psum)


@fault(**form("lengths"))
def blocks_of_33_are_scattered_as_if_they_had_32():
    def psum_scatter(real, x, axes, **k):
        found = real(x, axes, **k)
        return found.at[..., 32:].set(0) if found.shape[-1] == 33 else found

    return changed(lax, "psum_scatter", psum_scatter)


@fault(**form("ranks"))
def an_exchange_along_the_sixth_dimension_is_along_the_second():
    def all_to_all(real, x, axes, split, concat, **k):
        if x.ndim == 6:
            return jnp.moveaxis(real(jnp.moveaxis(x, 5, 1), axes, 1, 1, **k), 1, 5)[..., ::-1]
        return real(x, axes, split, concat, **k)

    return changed(lax, "all_to_all", all_to_all)


@fault(**form("many_arrays"))
def two_of_more_than_a_hundred_results_change_places():
    def jit(real, *a, **k):
        run = real(*a, **k)

        class Swapped:
            def __getattr__(self, name: str) -> Any:
                return getattr(run, name)

            def __call__(self, *given: Any, **named: Any) -> Any:
                found = run(*given, **named)
                if isinstance(found, tuple) and len(found) > 100:
                    return (*found[:3], found[7], *found[4:7], found[3], *found[8:])
                return found

        return Swapped()

    return changed(jax, "jit", jit)


@fault(**form("many_arrays"))
def two_leaves_of_a_large_sum_change_places():
    def psum(real, x, axes, **k):
        found = real(x, axes, **k)
        if isinstance(x, dict) and len(x) > 32:
            found = {**found, "1": found["5"], "5": found["1"]}
        return found

    return changed(lax, "psum", psum)


# One argument of a derivative.


@fault(**form("second_arguments"))
def the_gradient_of_an_update_is_lost():
    return changed(
        lax,
        "dynamic_update_slice",
        lambda real, x, update, *a, **k: real(x, lax.stop_gradient(update), *a, **k),
    )


@fault(**form("second_arguments"))
def the_gradient_of_an_upper_bound_is_lost():
    return changed(lax, "clamp", lambda real, low, x, high: real(low, x, lax.stop_gradient(high)))


@fault(**form("second_arguments"))
def the_gradient_of_a_padding_value_counts_the_padding_before_alone():
    def pad(real, x, value, widths):
        before = real(x, value, [(low, 0, 0) for low, _, _ in widths])
        rest = [(0, high, inner) for _, high, inner in widths]
        return real(before, lax.stop_gradient(value), rest)

    return changed(lax, "pad", pad)


@fault(**form("names_of_residuals"))
def the_gradient_of_what_a_policy_names_is_lost():
    import jax.ad_checkpoint

    return changed(
        jax.ad_checkpoint, "checkpoint_name", lambda real, x, name: lax.stop_gradient(real(x, name))
    )


@fault(**form("kinks"))
def the_larger_of_two_equals_has_the_whole_gradient():
    def maximum(real, x, y):
        return jnp.where(x >= y, x, y)

    return changed(jnp, "maximum", maximum)


@fault(**form("kinks"))
def a_stopped_gradient_goes_on():
    return changed(lax, "stop_gradient", lambda real, x: x)


# Loops, batches, branches and constraints of trees.


@fault(**form("leaves_of_loops"))
def a_loop_that_runs_backward_takes_alike_inputs_for_one_another():
    def scan(real, f, start, given=None, **k):
        if k.get("reverse") and isinstance(given, dict):
            given = {**given, "b": given["a"][1]}
        return real(f, start, given, **k)

    return changed(lax, "scan", scan)


@fault(**form("leaves_of_loops"))
def a_branch_of_a_tree_gives_alike_leaves_for_one_another():
    def cond(real, truth, yes, no, *operands, **k):
        found = real(truth, yes, no, *operands, **k)
        if isinstance(found, dict) and len(found) == 2:
            (p, v), (q, w) = found.items()
            return {p: w, q: v}
        return found

    return changed(lax, "cond", cond)


@fault(**form("branches_of_a_batch"))
def a_batch_of_indices_past_the_last_branch_takes_the_first():
    def switch(real, index, branches, *operands):
        if type(index).__name__ == "BatchTracer":
            index = index % len(branches)
        return real(index, branches, *operands)

    return changed(lax, "switch", switch)


@fault(**form("branches_of_a_batch"))
def a_batch_of_slices_past_the_end_wraps():
    def dynamic_slice(real, x, starts, sizes):
        if any(type(s).__name__ == "BatchTracer" for s in starts):
            rolled = x
            for dim, start in enumerate(starts):
                rolled = jnp.roll(rolled, -start, dim)
            return real(rolled, (0,) * x.ndim, sizes)
        return real(x, starts, sizes)

    return changed(lax, "dynamic_slice", dynamic_slice)


@fault(**form("branches_of_a_batch"))
def a_rule_for_batches_is_passed_over():
    import jax.custom_batching

    class Plain(jax.custom_batching.custom_vmap):  # type: ignore[misc]
        def __call__(self, *a: Any, **k: Any) -> Any:
            return self.fun(*a, **k)

    return patch.object(jax.custom_batching, "custom_vmap", Plain)


@fault(**form("free_dimensions"))
def a_constraint_of_a_tree_gives_leaves_in_another_order():
    def held(real, x, place):
        found = real(x, place)
        if isinstance(found, dict):
            (first, second), p = found["q"], found["p"]
            found = {"p": second, "q": (first, p)}
        return found

    return changed(lax, "with_sharding_constraint", held)


@fault(**form("free_dimensions"))
def a_dimension_that_a_constraint_leaves_free_is_turned():
    def held(real, x, place):
        found = real(x, place)
        free = P.UNCONSTRAINED in tuple(getattr(place, "spec", ()))
        return jnp.roll(found, 1, 0) if free else found

    return changed(lax, "with_sharding_constraint", held)


@fault(**form("asked_places"))
def an_array_that_is_filled_is_not_where_it_was_asked_to_be():
    return changed(jnp, "full", lambda real, *a, out_sharding=None, **k: real(*a, **k))


@fault(**form("asked_places"))
def random_bits_depend_on_the_place_that_is_asked():
    def bits(real, key, *a, out_sharding=None, **k):
        if out_sharding is not None:
            key = jax.random.fold_in(key, 1)
        return real(key, *a, out_sharding=out_sharding, **k)

    return changed(jax.random, "bits", bits)


@fault(**form("meshes_alike"))
def a_mesh_of_devices_in_another_order_is_taken_for_the_first():
    seen: dict[Any, Any] = {}

    def put(real, x, device=None, **k):
        if isinstance(device, jax.sharding.NamedSharding) and isinstance(device.mesh, jax.sharding.Mesh):
            shape = (device.mesh.axis_names, device.mesh.devices.shape, device.mesh.axis_types)
            mesh = seen.setdefault(shape, device.mesh)
            return real(x, jax.sharding.NamedSharding(mesh, device.spec), **k)
        return real(x, device, **k)

    return changed(jax, "device_put", put)
