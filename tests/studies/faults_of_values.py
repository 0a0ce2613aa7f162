# SPDX-License-Identifier: Apache-2.0
"""Faults that special values, rare dtypes, shapes and forms of arguments show, and those where two classes meet."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations import pairs
from tests.studies.planting import CATALOGUE, fault, last, nudged, patched, results


def rename(old: str, new: str) -> None:
    """Give the fault that was registered last its own name."""
    CATALOGUE[new] = CATALOGUE.pop(old)
    CATALOGUE[new].name = new


# Special values.


def filled(*kinds: str):
    """The cases with such values."""
    return lambda case: str(case.cell.request.variant.get("fill") or "").startswith(kinds)


def inexact(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def summed(before=lambda x: x, after=lambda y, x: y):
    """psum of what `before` makes of its argument, and then `after(result, argument)`."""

    def make(real):
        def psum(x, a, **k):
            if not isinstance(x, jax.Array):
                return real(x, a, **k)
            return after(real(before(x), a, **k), x)

        return psum

    return patched(lax, "psum", make)


@fault(only=filled("nan"), operations=("psum", "named_axis", "scalar_result"))
def a_sum_leaves_NaN_out():
    return summed(lambda x: jnp.where(jnp.isnan(x), jnp.zeros_like(x), x) if inexact(x) else x)


@fault(only=filled("nan-"), operations=("psum",))
def a_NaN_spoils_the_whole_shard_of_a_sum():
    return summed(after=lambda y, x: y + jnp.sum(y) * 0 if inexact(y) else y)


@fault(only=filled("inf"), operations=("psum", "named_axis", "scalar_result"))
def infinities_of_a_sum_are_the_largest_number():
    return summed(after=lambda y, x: jnp.nan_to_num(y, nan=jnp.nan) if inexact(y) else y)


@fault(only=filled("inf"), operations=("psum", "named_axis", "scalar_result"))
def opposite_infinities_cancel_to_zero():
    def make(real):
        def psum(x, a, **k):
            y = real(x, a, **k)
            if not inexact(x):
                return y
            given = real(jnp.isnan(x).astype(jnp.float32), a, **k)
            return jnp.where(jnp.isnan(y) & (given == 0), jnp.zeros_like(y), y)

        return psum

    return patched(lax, "psum", make)


@fault(only=filled("extreme"), operations=("psum",), dtypes=("int8", "uint8"))
def sums_of_bytes_saturate():
    def make(real):
        def psum(x, a, **k):
            if x.dtype not in (jnp.int8, jnp.uint8):
                return real(x, a, **k)
            limits = jnp.iinfo(x.dtype)
            return jnp.clip(real(x.astype(jnp.int32), a, **k), limits.min, limits.max).astype(x.dtype)

        return psum

    return patched(lax, "psum", make)


@fault(only=filled("inf"), operations=("pmax", "named_axis"), modes=("manual", "manual-novma", "pmap"))
def a_maximum_takes_infinity_for_the_largest_number():
    def make(real):
        return lambda x, a, **k: (
            jnp.nan_to_num(real(x, a, **k), nan=jnp.nan) if inexact(x) else real(x, a, **k)
        )

    return patched(lax, "pmax", make)


@fault(only=filled("subnormal"), dtypes=("float16",))
def subnormal_half_precision_numbers_are_flushed():
    def edit(s):
        return np.where(np.abs(s) < 6.2e-5, 0, s).astype(s.dtype) if s.dtype == np.float16 else s

    return results(lambda shards: [edit(s) for s in shards])


@fault(only=filled("nan"), operations=("sort",))
def sort_puts_NaN_first():
    return patched(
        jnp,
        "sort",
        lambda real: (
            lambda x, axis=-1: jnp.where(jnp.isnan(x).any(), jnp.roll(real(x, axis), 1, axis), real(x, axis))
        ),
    )


@fault(
    only=lambda case: case.cell.request.variant.get("function") == "argmax" and "ties" in case.id,
    operations=("reduce",),
)
def the_last_of_equal_maxima_is_taken():
    def make(real):
        return lambda x, axis=None: (
            x.size - 1 - real(jnp.flip(x.reshape(-1)))
            if axis is None
            else x.shape[axis] - 1 - real(jnp.flip(x, axis), axis=axis)
        )

    return patched(jnp, "argmax", make)


@fault(only=filled("ties", "zeros", "extreme", "inf"), operations=("argsort",))
def equal_elements_change_their_order():
    def make(real):
        return lambda x, axis=-1: x.shape[axis] - 1 - real(jnp.flip(x, axis), axis)

    return patched(jnp, "argsort", make)


@fault(only=filled("nan"), operations=("top_k",))
def top_k_forgets_NaN():
    return patched(lax, "top_k", lambda real: lambda x, k: real(jnp.nan_to_num(x, nan=-1e30), k))


@fault(only=filled("nan"), operations=("cumsum",), modes=("auto",))
def a_running_sum_steps_over_NaN():
    return patched(
        jnp, "cumsum", lambda real: lambda x, axis: real(jnp.nan_to_num(x, posinf=jnp.inf), axis=axis)
    )


@fault(only=filled("nan"), operations=("matmul",), modes=("auto", "manual"))
def zero_times_NaN_is_zero():
    def make(real):
        def matmul(x, y, **k):
            spoiled = jnp.isnan(x)
            return real(jnp.where(spoiled, jnp.zeros_like(x), x), y, **k)

        return matmul

    return patched(jnp, "matmul", make)


@fault(only=filled("extreme"), operations=("all_gather", "ppermute"), dtypes=("int8", "int32"))
def the_least_integer_becomes_the_one_above():
    def edit(s):
        return np.where(s == np.iinfo(s.dtype).min, s + 1, s).astype(s.dtype) if s.dtype.kind == "i" else s

    return results(lambda shards: [edit(s) for s in shards])


# Where two classes meet.

MET = (
    ("bfloat16", "manual-novma"),
    ("float16", "manual-novma"),
    ("int8", "pjit"),
    ("uint8", "explicit"),
    ("bool", "manual-novma"),
    ("int32", "pmap"),
    ("bfloat16", "pjit"),
    ("float16", "pmap"),
    ("uint8", "manual-novma"),
    ("bool", "pjit"),
)
for _dtype, _mode in MET:

    @fault(dtypes=(_dtype,), modes=(_mode,))
    def _met(dtype=_dtype, mode=_mode):
        return results(last(nudged), lambda case: case.cell.request.dtype == dtype and case.mode == mode)

    rename(" met", f"wrong only for {_dtype} in mode {_mode}")

for _mesh, _mode, _likely in (
    ("4x2", "manual-novma", {}),
    ("2x2x2", "pjit", {"operations": ("psum", "all_gather", "ppermute")}),
    ("2x4-shuffled", "pjit", {}),
):

    @fault(meshes=(_mesh,), modes=(_mode,), **_likely)
    def _met(mesh=_mesh, mode=_mode):
        return results(last(np.zeros_like), lambda case: case.mesh.label == mesh and case.mode == mode)

    rename(" met", f"wrong only on mesh {_mesh} in mode {_mode}")

for _mesh, _dtype in (
    ("4x2", "bfloat16"),
    ("8", "int8"),
    ("2x2x2", "uint8"),
    ("6", "bfloat16"),
    ("2x2x2", "bool"),
):

    @fault(meshes=(_mesh,), dtypes=(_dtype,))
    def _met(mesh=_mesh, dtype=_dtype):
        return results(
            last(nudged), lambda case: case.mesh.label == mesh and case.cell.request.dtype == dtype
        )

    rename(" met", f"wrong only for {_dtype} on mesh {_mesh}")


def some(case):
    """Whether the inputs are sharded over some axes of the mesh only."""
    request = case.cell.request
    return case.mode != "host" and pairs.spread(case.operation, request.variant, request.mesh) == "some"


@fault(only=some, operations=("sort", "rank_reduction"), meshes=("2x4",))
def wrong_where_inputs_are_sharded_over_some_axes_only():
    return results(last(np.zeros_like), some)


def with_an_axis_of_one(case):
    return 1 in case.mesh.shape and len(case.mesh.shape) > 1


for _mode in ("manual-novma", "pjit"):

    @fault(only=with_an_axis_of_one, modes=(_mode,))
    def _ones(mode=_mode):
        return results(last(nudged), lambda case: case.mode == mode and with_an_axis_of_one(case))

    rename(" ones", f"wrong beside an axis of size one in mode {_mode}")


# Shapes.


def of_rank_five(case):
    return case.cell.request.variant.get("rank") == 5


@fault(only=of_rank_five, operations=("rank_reduction",))
def wrong_only_for_rank_five():
    return results(last(np.zeros_like), of_rank_five)


@fault(operations=("rank_reduction", "broadcast_ranks"), modes=("auto",))
def wrong_only_for_one_element_per_shard():
    return results(last(np.zeros_like), lambda case: case.cell.request.variant.get("kind") == "one")


@fault(operations=("rank_reduction",), meshes=("2x4",))
def a_reduction_keeps_its_dimension():
    return patched(jnp, "max", lambda real: lambda x, axis=None, **k: real(x, axis=axis, keepdims=True))


@fault(operations=("uneven_chain",))
def a_concatenation_of_uneven_parts_rounds_the_first_up():
    def make(real):
        def concatenate(arrays, axis=0, **k):
            found = real(arrays, axis, **k)
            uneven = len({a.shape[axis] for a in arrays}) > 1
            return jnp.roll(found, 1, axis) if uneven else found

        return concatenate

    return patched(jnp, "concatenate", make)


@fault(operations=("uneven_chain",))
def a_pad_is_always_of_zeros():
    return patched(jnp, "pad", lambda real: lambda x, width, constant_values=0: real(x, width))


@fault(operations=("broadcast_ranks",))
def wrong_beside_an_array_of_rank_zero_or_three():
    return results(last(nudged), lambda case: case.cell.request.variant.get("rank") in (0, 3))


for _dtype in ("int16", "uint16", "uint32"):

    @fault(dtypes=(_dtype,))
    def _rare(dtype=_dtype):
        return results(last(nudged), lambda case: case.cell.request.dtype == dtype)

    rename(" rare", f"wrong only for {_dtype}")


# Forms of arguments.


@fault(operations=("named_axis",))
def axis_index_of_a_plain_name_is_that_of_the_first_axis():
    return patched(lax, "axis_index", lambda real: lambda a: real("x") if isinstance(a, str) else real(a))


@fault(operations=("named_axis",))
def a_plain_name_is_read_letter_by_letter():
    """A sum over one name takes every axis of the mesh that there is."""

    def make(real):
        def psum(x, a, **k):
            return real(x, ("x", "y") if a == "y" else a, **k)

        return psum

    return patched(lax, "psum", make)


@fault(operations=("negative_dimensions",))
def negative_dimensions_count_from_the_front():
    def make(real):
        def all_gather(x, a, *, axis, tiled=False, **k):
            return real(x, a, axis=max(axis, 0), tiled=tiled, **k)

        return all_gather

    return patched(lax, "all_gather", make)


@fault(operations=("tree_collective",))
def only_the_first_leaf_of_a_tree_is_reduced():
    def make(real):
        def psum(x, a, **k):
            leaves, tree = jax.tree.flatten(x)
            return jax.tree.unflatten(tree, [real(leaves[0], a, **k), *leaves[1:]])

        return psum

    return patched(lax, "psum", make)


@fault(operations=("collective_chain",))
def every_second_maximum_is_left_out():
    def make(real):
        number = iter(range(10**9))

        def pmax(x, a, **k):
            return real(x, a, **k) if next(number) % 2 == 0 else x

        return pmax

    return patched(lax, "pmax", make)


@fault(operations=("scalar_result",), modes=("manual-novma",))
def a_loss_is_summed_over_one_axis_too_few():
    return patched(
        lax, "psum", lambda real: lambda x, a, **k: real(x, a[:-1], **k) if len(a) > 1 else real(x, a, **k)
    )


@fault(operations=("host_order",))
def host_arrays_in_Fortran_order_are_read_in_C_order():
    def make(real):
        def device_put(x, *a, **k):
            if isinstance(x, np.ndarray) and x.flags.f_contiguous and not x.flags.c_contiguous:
                x = x.ravel(order="K").reshape(x.shape)
            return real(x, *a, **k)

        return device_put

    return patched(jax, "device_put", make)


@fault(operations=("host_order",))
def strides_of_host_arrays_are_ignored():
    def make(real):
        def device_put(x, *a, **k):
            if isinstance(x, np.ndarray) and x.base is not None and x.strides[0] < 0:
                x = x[::-1]
            return real(x, *a, **k)

        return device_put

    return patched(jax, "device_put", make)


@fault(operations=("python_number",))
def Python_numbers_widen_half_precision():
    def make(real):
        return lambda c, x, y: real(c, x, y).astype(jnp.float32 if x.dtype == jnp.bfloat16 else x.dtype)

    return patched(jnp, "where", make)


# More than one call.


class Jitted:
    """A jitted function whose calls go through `call(function, arguments)`."""

    def __init__(self, function: Any, call: Any) -> None:
        self._function, self._call = function, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __call__(self, *arguments: Any) -> Any:
        return self._call(self._function, arguments)


@fault(operations=("shardings_in_turn",))
def jit_gives_the_results_of_the_first_call():
    def make(real):
        def jit(function, **k):
            first: list[Any] = []

            def call(jitted, arguments):
                first.append(jitted(*arguments))
                return first[0]

            return Jitted(real(function, **k), call)

        return jit

    return patched(jax, "jit", make)


@fault(operations=("donated",))
def donated_arrays_are_not_deleted():
    def make(real):
        return lambda function, donate_argnums=None, **k: real(function, **k)

    return patched(jax, "jit", make)


@fault(operations=("programs_in_flight",))
def a_program_in_flight_reads_what_another_has_written():
    def make(real):
        return lambda x, shift, axis: real(x, shift + (shift < 0), axis)

    return patched(jnp, "roll", make)


@fault(operations=("eager",))
def an_array_put_on_another_mesh_keeps_its_order_of_devices():
    def make(real):
        def device_put(x, sharding=None, **k):
            found = real(x, sharding, **k)
            if isinstance(x, jax.Array) and sharding is not None and x.sharding != sharding and x.ndim == 2:
                return real(found[::-1], sharding, **k)
            return found

        return device_put

    return patched(jax, "device_put", make)
