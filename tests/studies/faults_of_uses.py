# SPDX-License-Identifier: Apache-2.0
"""Faults of what is done with arrays besides calls, and of calls that must be refused."""

import contextlib
import pickle
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.studies.faults_of_conditions import changed, form
from tests.studies.planting import fault

ARRAY = type(jnp.zeros(1))


def use(name: str) -> dict[str, Any]:
    """The case of one use of arrays."""
    return form(name, "array_use")


def refused(name: str) -> dict[str, Any]:
    """The case of one refusal."""
    return {
        "operations": ("refusal",),
        "only": lambda case: case.cell.request.variant.get("kind") == name,
    }


def method(name: str, call: Any) -> Any:
    """A method of arrays replaced by `call(real, array, *arguments)`."""
    real = getattr(ARRAY, name)
    return patch.object(ARRAY, name, lambda self, *a, **k: call(real, self, *a, **k))


def spread(x: Any) -> bool:
    """Whether an array lies in blocks on several devices."""
    return len(x.sharding.device_set) > 1 and not x.is_fully_replicated


def _rebuilt(data: bytes) -> Any:
    return jnp.asarray(pickle.loads(data))


@fault(**use("copies"))
def a_pickled_array_loses_its_last_row():
    def reduce(real, x):
        found = np.array(x)
        if found.ndim > 1:
            found[-1] = 0
        return _rebuilt, (pickle.dumps(found),)

    return method("__reduce__", reduce)


@fault(**use("copies"))
def a_copy_is_the_array_itself():
    return method("copy", lambda real, x: x)


@fault(**use("elements"))
def a_row_counted_from_the_end_of_a_sharded_array_is_the_one_before():
    def taken(real, x, index):
        if isinstance(index, int) and index < -1 and spread(x):
            index -= 1
        return real(x, index)

    return method("__getitem__", taken)


@fault(**use("elements"))
def a_loop_over_a_sharded_array_goes_from_the_last_row():
    def rows(real, x):
        return iter([*real(x)][::-1] if x.ndim > 1 and spread(x) else real(x))

    return method("__iter__", rows)


@fault(**use("puts"))
def a_tree_of_places_is_taken_in_another_order():
    def put(real, x, device=None, **k):
        if isinstance(device, dict):
            device = {**device, "q": device["q"][::-1]}
        return real(x, device, **k)

    return changed(jax, "device_put", put)


@fault(**use("puts"))
def a_donated_source_is_put_with_another_s_rows():
    def put(real, x, device=None, *, donate=False, **k):
        return real(jnp.roll(x, 1, 0) if donate else x, device, **k)

    return changed(jax, "device_put", put)


@fault(**use("puts"))
def an_array_that_goes_to_fewer_devices_loses_its_last_row():
    def put(real, x, device=None, **k):
        places = getattr(device, "device_set", ())
        if isinstance(x, jax.Array) and 1 < len(places) < len(x.sharding.device_set):
            x = x.at[-1].set(0)
        return real(x, device, **k)

    return changed(jax, "device_put", put)


@fault(**use("mixed"))
def a_host_array_before_a_sharded_one_is_turned():
    def product(real, x, other):
        return real(x, other[::-1] if isinstance(other, np.ndarray) and other.ndim and spread(x) else other)

    return method("__rmul__", product)


@fault(**use("ahead"))
def a_compiled_program_gives_its_first_result_again():
    from jax import stages

    real = stages.Compiled.__call__
    first: dict[int, Any] = {}

    def call(self, *a, **k):
        return first.setdefault(id(self), real(self, *a, **k))

    return patch.object(stages.Compiled, "__call__", call)


@fault(**use("exported_whole"))
def an_exported_program_gives_two_alike_results_for_one_another():
    from jax import export

    real = export.Exported.call

    def call(self, *a, **k):
        found = real(self, *a, **k)
        return {"p": found["q"].T, "q": found["p"].T} if isinstance(found, dict) else found

    return patch.object(export.Exported, "call", call)


@fault(**use("exported_whole"))
def an_exported_program_of_free_sizes_keeps_the_rows_of_its_first_call():
    from jax import export

    real = export.Exported.call
    rows: dict[int, int] = {}

    def call(self, *a, **k):
        if len(a) == 1 and getattr(a[0], "shape", (0, 0))[1:] == (3,):
            kept = rows.setdefault(id(self), len(a[0]))
            return real(self, np.asarray(a[0])[:kept], **k)
        return real(self, *a, **k)

    return patch.object(export.Exported, "call", call)


@fault(**use("contexts"))
def a_strict_context_uses_what_another_compiled():
    return changed(jax, "numpy_dtype_promotion", lambda real, kind: contextlib.nullcontext())


@fault(**use("contexts"))
def the_default_device_of_a_context_is_forgotten():
    return changed(jax, "default_device", lambda real, device: contextlib.nullcontext())


@fault(**use("pictures"))
def a_sparse_product_leaves_its_last_element_out():
    from jax.experimental import sparse

    def product(real, matrix, other, **k):
        return real(
            sparse.BCOO((matrix.data.at[-1].set(0).at[0].set(0), matrix.indices), shape=matrix.shape),
            other,
            **k,
        )

    return changed(sparse, "bcoo_dot_general", product)


@fault(**use("pictures"))
def an_enlarged_picture_is_half_a_row_off():
    return changed(jax.image, "resize", lambda real, x, *a, **k: jnp.roll(real(x, *a, **k), 1, 0))


@fault(**refused("swap_size"))
def a_swap_of_an_axis_of_another_size_takes_what_there_is():
    def swap(real, x, axes, axis, **k):
        n = lax.axis_size(axes)
        return (
            real(lax.slice_in_dim(x, 0, n, axis=axis), axes, axis, **k)
            if x.shape[axis] != n
            else real(x, axes, axis, **k)
        )

    return changed(lax, "pswapaxes", swap)


@fault(**refused("scatter_size"))
def a_scattered_sum_of_another_size_takes_what_there_is():
    def psum_scatter(real, x, axes, *, scatter_dimension=0, tiled=False, **k):
        n = lax.axis_size(axes)
        if not tiled and x.shape[scatter_dimension] != n:
            x = lax.slice_in_dim(x, 0, n, axis=scatter_dimension)
        return real(x, axes, scatter_dimension=scatter_dimension, tiled=tiled, **k)

    return changed(lax, "psum_scatter", psum_scatter)


@fault(**refused("gather_dimension"))
def a_dimension_that_is_not_there_is_the_last():
    def all_gather(real, x, axes, *, axis=0, **k):
        return real(x, axes, axis=min(axis, x.ndim), **k)

    return changed(lax, "all_gather", all_gather)


@fault(**refused("shared_groups"))
def a_device_of_two_groups_stays_in_the_first():
    def psum(real, x, axes, *, axis_index_groups=None, **k):
        if axis_index_groups:
            seen: set[int] = set()
            groups = []
            for group in axis_index_groups:
                groups.append([i for i in group if i not in seen])
                seen |= {*group}
            axis_index_groups = groups
        return real(x, axes, axis_index_groups=axis_index_groups, **k)

    return changed(lax, "psum", psum)


@fault(
    operations=("transformed",),
    modes=("manual", "manual-novma"),
    only=lambda case: case.cell.request.variant.get("group") == "collectives",
)
def an_exchange_inside_a_transformation_is_made_of_gathers():
    def all_to_all(real, x, axes, split, concat, *, tiled=False, **k):
        if not tiled:
            return real(x, axes, split, concat, **k)
        n, i = lax.axis_size(axes), lax.axis_index(axes)
        every = lax.all_gather(x, axes, axis=0)
        part = x.shape[split] // n
        own = lax.dynamic_slice_in_dim(every, i * part, part, axis=split + 1)
        return jnp.concatenate([own[k] for k in range(n)], axis=concat)

    return changed(lax, "all_to_all", all_to_all)
