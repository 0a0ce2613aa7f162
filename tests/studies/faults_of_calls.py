# SPDX-License-Identifier: Apache-2.0
"""Faults that more than one call shows, and faults in what a result says of itself."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core.layout import normal
from meshmark.judge import programs
from tests.studies.planting import fault, patched


class Called:
    """A compiled program whose call goes through `call(compiled, arguments)`."""

    def __init__(self, compiled: Any, call: Callable[..., Any]) -> None:
        self._compiled, self._call = compiled, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __call__(self, *arguments: Any) -> Any:
        return self._call(self._compiled, arguments)


@contextmanager
def calls(make: Callable[[], Callable[..., Any]]) -> Iterator[None]:
    """Every call of every program goes through what `make` gives for that program."""
    real = programs.Program.compile
    with patch.object(programs.Program, "compile", lambda program: Called(real(program), make())):
        yield


def outputs(change: Callable[[jax.Array], jax.Array]) -> Any:
    """Every result of every program changed."""
    return calls(lambda: lambda compiled, arguments: jax.tree.map(change, compiled(*arguments)))


def overwrite(array: jax.Array) -> None:
    """Write zeros over the first bytes of an array's last shard, behind JAX's back."""
    data = jax.block_until_ready(array).addressable_shards[-1].data
    ctypes.memset(data.unsafe_buffer_pointer(), 0x55, min(4, data.nbytes))


@fault(operations=("psum",), meshes=("2x4",))
def every_call_gives_the_results_of_the_first():
    def make():
        first = []

        def call(compiled, arguments):
            first.append(compiled(*arguments))
            return first[0]

        return call

    return calls(make)


@fault(operations=("matmul", "psum"), meshes=("2x4",), modes=("auto",))
def every_call_reads_the_inputs_of_the_first():
    def make():
        first = []

        def call(compiled, arguments):
            first.append(arguments)
            return compiled(*first[0])

        return call

    return calls(make)


@fault(operations=("psum",), meshes=("2x4",))
def a_call_overwrites_the_results_of_the_call_before():
    def make():
        before = []

        def call(compiled, arguments):
            found = compiled(*arguments)
            for array in jax.tree.leaves(before[-1:]):
                overwrite(array)
            before.append(found)
            return found

        return call

    return calls(make)


@fault(operations=("ppermute", "psum"), meshes=("2x4",), modes=("auto",))
def a_call_changes_its_argument():
    def make():
        def call(compiled, arguments):
            found = jax.block_until_ready(compiled(*arguments))
            overwrite(arguments[0])
            return found

        return call

    return calls(make)


@fault(operations=("ppermute", "psum"), meshes=("2x4",), modes=("auto",))
def a_call_deletes_its_argument():
    def make():
        def call(compiled, arguments):
            found = jax.block_until_ready(compiled(*arguments))
            arguments[0].delete()
            return found

        return call

    return calls(make)


@fault(operations=("psum", "sort"), modes=("manual-novma", "pjit"))
def calls_after_the_first_are_doubled_in_a_lesser_mode():
    def make():
        number = iter(range(10**9))

        def call(compiled, arguments):
            found = compiled(*arguments)
            return found if next(number) == 0 else jax.tree.map(lambda x: x + x, found)

        return call

    return calls(make)


def parts(array: jax.Array) -> list[Any]:
    return [shard.data for shard in array.addressable_shards]


def dressed(array: jax.Array, sharding: NamedSharding) -> jax.Array:
    """The same shards under another sharding."""
    return jax.make_array_from_single_device_arrays(array.shape, sharding, parts(array))


@fault(operations=("psum",), meshes=("2x4",))
def the_axes_of_the_mesh_are_renamed():
    def change(array):
        mesh = array.sharding.mesh
        other = Mesh(mesh.devices, tuple(f"{name}0" for name in mesh.axis_names))
        renamed = (
            tuple(f"{a}0" for a in entry) if isinstance(entry, tuple) else entry and f"{entry}0"
            for entry in array.sharding.spec
        )
        return dressed(array, NamedSharding(other, P(*renamed)))

    return outputs(change)


@fault(operations=("all_gather", "reshard"), meshes=("1x8", "8x1"), modes=("auto", "explicit"))
def axes_of_size_one_are_dropped_from_a_spec():
    def change(array):
        mesh = array.sharding.mesh
        spec = normal(tuple(array.sharding.spec), dict(mesh.shape), array.ndim)
        return dressed(array, NamedSharding(mesh, P(*spec)))

    return outputs(change)


@fault(operations=("psum",), meshes=("2x4",))
def replicas_are_numbered_backwards():
    def change(array):
        mesh, spec = array.sharding.mesh, array.sharding.spec
        if any(spec):
            return array
        return dressed(array, NamedSharding(Mesh(mesh.devices[::-1], mesh.axis_names), P()))

    return outputs(change)


@fault(operations=("psum",), meshes=("2x4",))
def results_lie_in_the_memory_of_the_host():
    return outputs(lambda array: jax.device_put(array, array.sharding.with_memory_kind("pinned_host")))


def seen_as(name: str, value: Any) -> Any:
    """Every array says so of itself."""
    return patch.object(type(jax.numpy.zeros(1)), name, property(lambda array: value))


@fault(operations=("psum",), meshes=("2x4",))
def results_are_of_weak_type():
    return seen_as("weak_type", True)


@fault(operations=("psum",), meshes=("2x4",))
def results_are_not_committed():
    return seen_as("committed", False)


@fault(operations=("device_put", "put_get"), meshes=("2x4",), sizes=("4KiB",))
def a_host_call_changes_the_host_array():
    def make(real):
        def device_put(x, *arguments, **options):
            found = jax.block_until_ready(
                real(np.array(x) if isinstance(x, np.ndarray) else x, *arguments, **options)
            )
            if isinstance(x, np.ndarray) and x.size:
                x.flat[0] = 0
            return found

        return device_put

    return patched(jax, "device_put", make)
