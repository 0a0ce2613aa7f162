# SPDX-License-Identifier: Apache-2.0
"""Faults that are visible only over several processes.

tests/operations/test_processes_operations.py activates them in two real processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils

from meshmark.operations.processes import lifecycle
from tests.studies.planting import patched


@dataclass
class ProcessFault:
    """A fault of a function over processes, and the case (operation/variant) that must catch it."""

    name: str
    case: str
    put_in: Callable[[], Any]


OVER_PROCESSES: dict[str, ProcessFault] = {}


def process_fault(case: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a function, which makes a context manager, as a fault over processes."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        name = make.__name__.replace("_", " ")
        OVER_PROCESSES[name] = ProcessFault(name, case, make)
        return make

    return register


def local_rows(edit: Callable[[np.ndarray], np.ndarray]) -> Any:
    """A patch of `make_array_from_process_local_data`: the last process edits its data before the call."""

    def make(real):
        def make_array_from_process_local_data(sharding, data, *shape):
            if jax.process_index() == jax.process_count() - 1:
                data = jax.tree.map(edit, data)
            return real(sharding, data, *shape)

        return make_array_from_process_local_data

    return patched(jax, "make_array_from_process_local_data", make)


def without_last(rows: np.ndarray) -> np.ndarray:
    """A copy of the rows in which the last row that is not zero is set to zero."""
    out = rows.copy()
    filled = np.flatnonzero(out.reshape(len(out), -1).any(axis=1))
    out[filled[-1:]] = 0
    return out


@process_fault("process_identity/plain")
def every_process_thinks_it_is_the_first():
    return patched(jax, "process_index", lambda real: lambda: 0)


@process_fault("addressable_shards/of=x.y")
def a_callback_is_asked_for_another_devices_part():
    def make(real):
        def make_array_from_callback(shape, sharding, callback):
            parts = sharding.addressable_devices_indices_map(shape).values()
            parts = [tuple(s.indices(n)[:2] for s, n in zip(p, shape, strict=True)) for p in parts]

            def asked(index):
                here = parts.index(tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True)))
                return callback(tuple(slice(*s) for s in parts[here - 1]))

            return real(shape, sharding, asked)

        return make_array_from_callback

    return patched(jax, "make_array_from_callback", make)


@process_fault("addressable_shards/of=x.y")
def addressable_data_is_the_next_devices():
    def make(real):
        return lambda array, number: real(array, (number + 1) % jax.local_device_count())

    return patched(type(jax.device_put(0)), "addressable_data", make)


@process_fault("device_put_of_host_array/to=x.y,different")
def device_put_takes_what_each_process_has():
    def make(real):
        def device_put(x, sharding):
            return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

        return device_put

    return patched(jax, "device_put", make)


@process_fault("device_put_of_host_array/to=x.y")
def device_put_of_the_last_process_is_stale():
    def make(real):
        def device_put(x, sharding):
            mine = np.zeros_like(x) if jax.process_index() == jax.process_count() - 1 else x
            return jax.make_array_from_callback(x.shape, sharding, lambda index: mine[index])

        return device_put

    return patched(jax, "device_put", make)


@process_fault("process_batches/split=uneven")
def the_last_row_of_the_last_process_is_lost():
    return local_rows(without_last)


@process_fault("process_batches/split=uneven")
def processes_swap_their_rows():
    return patched(jax, "process_index", lambda real: lambda: jax.process_count() - 1 - real())


@process_fault("process_batches/split=unpadded")
def unpadded_rows_are_cut_to_fit():
    def make(real):
        def make_array_from_process_local_data(sharding, data, *shape):
            try:
                return real(sharding, data, *shape)
            except ValueError:
                return None

        return make_array_from_process_local_data

    return patched(jax, "make_array_from_process_local_data", make)


@process_fault("pmap_of_local_rows/plain")
def the_axis_of_pmap_is_each_processes_own():
    return patched(lax, "axis_index", lambda real: lambda a: real(a) % jax.local_device_count())


@process_fault("process_allgather/of=local,tiled")
def gathered_in_the_order_of_another_process():
    def make(real):
        def process_allgather(x, tiled=False):
            parts = real(x, tiled=False)
            return np.concatenate(parts[::-1]) if tiled else parts

        return process_allgather

    return patched(multihost_utils, "process_allgather", make)


@process_fault("process_allgather/of=local")
def a_process_gathers_its_own_part_only():
    return patched(
        multihost_utils,
        "process_allgather",
        lambda real: lambda x, tiled=False: np.stack([np.asarray(x)] * jax.process_count()),
    )


@process_fault("process_allgather/of=global,tiled")
def the_gather_of_a_global_array_loses_the_last_row():
    return patched(
        multihost_utils,
        "process_allgather",
        lambda real: lambda x, tiled=False: without_last(real(x, tiled=tiled)),
    )


@process_fault("process_allgather/of=global")
def a_stacked_gather_of_a_global_array_is_not_refused():
    return patched(
        multihost_utils, "process_allgather", lambda real: lambda x, tiled=False: real(x, tiled=True)
    )


@process_fault("broadcast_one_to_all/source=default")
def broadcast_from_the_wrong_process():
    def make(real):
        def broadcast_one_to_all(tree, is_source=None):
            return real(tree, is_source=jax.process_index() == 1)

        return broadcast_one_to_all

    return patched(multihost_utils, "broadcast_one_to_all", make)


@process_fault("broadcast_one_to_all/source=last")
def the_source_of_a_broadcast_is_ignored():
    return patched(
        multihost_utils, "broadcast_one_to_all", lambda real: lambda tree, is_source=None: real(tree)
    )


@process_fault("broadcast_one_to_all/source=default")
def a_broadcast_leaves_a_process_with_its_own():
    def make(real):
        def broadcast_one_to_all(tree, is_source=None):
            seen = real(tree, is_source=is_source)
            return tree if jax.process_index() == 1 else seen

        return broadcast_one_to_all

    return patched(multihost_utils, "broadcast_one_to_all", make)


@process_fault("assert_equal/values=unequal")
def unequal_values_are_told_to_one_process_alone():
    def make(real):
        def assert_equal(tree, message=""):
            try:
                real(tree, message)
            except AssertionError:
                if jax.process_index() == 0:
                    raise

        return assert_equal

    return patched(multihost_utils, "assert_equal", make)


@process_fault("assert_equal/values=unequal,tree")
def only_the_first_leaf_of_a_tree_is_compared():
    return patched(
        multihost_utils,
        "assert_equal",
        lambda real: lambda tree, message="": real(jax.tree.leaves(tree)[0], message),
    )


@process_fault("assert_equal/values=equal")
def equal_values_are_called_unequal():
    def make(real):
        def assert_equal(tree, message=""):
            raise AssertionError(message)

        return assert_equal

    return patched(multihost_utils, "assert_equal", make)


@process_fault("sync_global_devices/names=same,late")
def a_barrier_that_waits_for_nobody():
    return patched(multihost_utils, "sync_global_devices", lambda real: lambda name: None)


@process_fault("sync_global_devices/names=different")
def a_barrier_that_ignores_its_name():
    return patched(multihost_utils, "sync_global_devices", lambda real: lambda name: real("any"))


@process_fault("input_pipeline/order=strided")
def the_last_example_is_lost():
    return local_rows(without_last)


@process_fault("input_pipeline/order=strided")
def two_processes_read_the_same_examples():
    return patched(jax, "process_index", lambda real: lambda: 0)


@process_fault("input_pipeline/order=blocked")
def the_tail_is_not_masked():
    return local_rows(lambda rows: np.ones_like(rows) if rows.dtype == bool else rows)


@process_fault("input_pipeline/order=shuffled")
def each_process_shuffles_for_itself():
    def make(real):
        return lambda seed: real(seed + jax.process_index())

    return patched(np.random, "default_rng", make)


@process_fault("process_metrics/by=allgather")
def metrics_of_one_process():
    return patched(
        multihost_utils,
        "process_allgather",
        lambda real: lambda x, tiled=False: jax.tree.map(lambda a: np.asarray(a)[None], x),
    )


@process_fault("process_metrics/by=program")
def padding_counts_in_the_metrics():
    return local_rows(lambda rows: np.ones_like(rows) if rows.dtype == bool else rows)


@process_fault("process_data_parallel/spelled=auto")
def a_row_of_a_batch_is_lost():
    return local_rows(without_last)


@process_fault("process_data_parallel/spelled=manual")
def gradients_are_summed_instead_of_averaged():
    return patched(lax, "pmean", lambda real: lambda x, a: lax.psum(x, a))


@process_fault("process_data_parallel/spelled=manual")
def gradients_are_averaged_within_an_axis_alone():
    """The mean is taken over the last axis only, as by a process that reduces over its own devices."""
    return patched(lax, "pmean", lambda real: lambda x, a: lax.pmax(real(x, a[-1:]), a[:1]))


@process_fault("random_bits/to=x.y,draw=bits")
def a_key_of_its_own_on_each_process():
    return patched(jax.random, "key", lambda real: lambda seed, **k: real(seed + jax.process_index(), **k))


@process_fault("random_bits/draw=folded")
def every_device_folds_the_same_number():
    return patched(jax.random, "fold_in", lambda real: lambda key, number: real(key, number * 0))


@process_fault("large_psum/plain")
def one_element_of_a_large_sum_is_off():
    return patched(lax, "psum", lambda real: lambda x, a: real(x, a).at[-7].add(1))


@process_fault("large_psum_scatter/plain")
def the_tail_of_the_first_members_chunk_is_wrong():
    """Wrong values at the end of rank 0's chunk, as in jax-ml/jax#40830."""

    def make(real):
        def psum_scatter(x, a, **k):
            out = real(x, a, **k)
            tail = jnp.arange(out.size) > out.size // 2
            return jnp.where(tail & (lax.axis_index(a) == 0), x[: out.size], out)

        return psum_scatter

    return patched(lax, "psum_scatter", make)


@process_fault("large_all_gather/plain")
def a_large_gather_in_the_wrong_order():
    return patched(lax, "all_gather", lambda real: lambda x, a, **k: jnp.roll(real(x, a, **k), x.size))


@process_fault("large_all_to_all/plain")
def a_large_all_to_all_that_stays_at_home():
    return patched(lax, "all_to_all", lambda real: lambda x, a, *r, **k: x)


@process_fault("large_ppermute/plain")
def a_large_ppermute_moves_by_one_element_too_many():
    return patched(lax, "ppermute", lambda real: lambda x, a, perm: jnp.roll(real(x, a, perm), 1))


@process_fault("eager_slices/of=x.y")
def a_part_of_a_global_array_is_read_backward():
    def make(real):
        def getitem(array, part):
            found = real(array, part)
            return (
                found if array.is_fully_addressable or not found.ndim else real(found, slice(None, None, -1))
            )

        return getitem

    return patched(type(jax.device_put(0)), "__getitem__", make)


@process_fault("orbax_checkpoint/saved=group,restored=group,to=y.x")
def a_restored_shard_is_zero():
    import orbax.checkpoint as ocp

    def make(real):
        def restore(checkpointer, place, wanted):
            x = real(checkpointer, place, wanted)["x"]
            parts = [s.data if s.index[0].start else s.data * 0 for s in x.addressable_shards]
            return {"x": jax.make_array_from_single_device_arrays(x.shape, x.sharding, parts)}

        return restore

    return patched(ocp.StandardCheckpointer, "restore", make)


@process_fault("distributed_initialize/again=up")
def starting_twice_is_not_refused():
    return patched(jax.distributed, "initialize", lambda real: lambda *a, **k: None)


@process_fault("distributed_initialize/wrong=process_id")
def a_wrong_process_id_is_taken():
    return patched(lifecycle, "children", lambda real: lambda programs: [(0, "seen 2", "")])


@process_fault("distributed_initialize/wrong=nobody_listens")
def a_start_that_never_ends():
    return patched(lifecycle, "children", lambda real: lambda programs: [(None, "", "")])
