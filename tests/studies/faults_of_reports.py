# SPDX-License-Identifier: Apache-2.0
"""Faults of the kinds that people reported: functions that are wrong between manual axes or over Explicit ones alone,
keys, constraints, callbacks, exported programs. Each names the form that must show it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any
from unittest.mock import PropertyMock, patch

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives
from jax.scipy import linalg
from jax.sharding import AxisType, PartitionSpec, SingleDeviceSharding

from meshmark.operations.cases import Case
from tests.studies.meeting import meet, sizes
from tests.studies.planting import fault, patched


def types() -> tuple[AxisType, ...]:
    """The types of the axes of the context's mesh."""
    return tuple(jax.sharding.get_abstract_mesh().axis_types)


def manual(*a: Any, **k: Any) -> bool:
    """Whether an axis is manual here."""
    return AxisType.Manual in types()


def explicit(*a: Any, **k: Any) -> bool:
    """Whether an axis is Explicit here."""
    return AxisType.Explicit in types()


def of(operation: str, form: str) -> dict[str, Any]:
    """The cases of one form, for a fault that it must show."""

    def only(case: Case) -> bool:
        return case.cell.request.variant["form"] == form

    return {"operations": (operation,), "only": only}


def is_key(x: Any, *a: Any, **k: Any) -> bool:
    """Whether an operand has keys of random numbers."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def turned(real: Any, found: Any, *a: Any, **k: Any) -> Any:
    """The result in the other order."""
    return found[::-1]


def nothing(real: Any, found: Any, x: Any, *a: Any, **k: Any) -> Any:
    """The operand as it was."""
    return x


# Between manual axes.

meet("an_exponential_of_a_matrix_in_a_block_is_off", linalg, "expm", manual, **of("block_function", "solved"))
meet("an_insertion_in_a_block_is_off", jnp, "insert", manual, **of("block_function", "chosen"))
meet("a_draw_of_gamma_in_a_block_is_off", jax.random, "gamma", manual, **of("block_function", "rejected"))
meet(
    "a_choice_by_chances_in_a_block_is_off",
    jax.random,
    "choice",
    lambda *a, p=None, **k: manual() and p is not None,
    **of("block_function", "choices"),
)
meet(
    "a_jacobian_in_a_block_is_off",
    jax,
    "jacrev",
    manual,
    lambda real, found, *a, **k: lambda *x: jax.tree.map(lambda v: v + 1, found(*x)),
    **of("block_function", "pulled"),
)
meet(
    "a_sum_inside_of_two_shard_maps_doubles",
    lax,
    "psum",
    lambda *a, **k: types().count(AxisType.Manual) > 1,
    lambda real, found, *a, **k: jax.tree.map(lambda v: 2 * v, found),
    **of("reported_form", "nested_squares"),
)
meet(
    "branches_without_operands_are_swapped_in_a_block",
    lax,
    "cond",
    lambda p, yes, no, *operands: manual() and not operands,
    lambda real, found, p, yes, no: real(p, no, yes),
    **of("reported_form", "index_in_a_branch"),
)
meet(
    "two_results_of_a_callback_in_a_block_are_swapped",
    jax,
    "pure_callback",
    manual,
    turned,
    **of("reported_form", "callbacks"),
)
meet("keys_that_are_sent_are_turned", lax, "ppermute", is_key, turned, **of("reported_form", "turned_keys"))
meet(
    "a_slice_beside_an_explicit_axis_is_off",
    primitives,
    "slice_p",
    lambda *a, **k: manual() and explicit(),
    **of("typed_form", "part"),
)

# Over Explicit axes.

meet(
    "a_logarithm_of_a_determinant_over_explicit_axes_is_off",
    jnp.linalg,
    "slogdet",
    explicit,
    **of("typed_form", "matrices"),
)
meet(
    "a_write_of_bytes_over_explicit_axes_is_off",
    primitives,
    "scatter_p",
    lambda x, *a, **k: explicit() and x.dtype.itemsize == 1,
    **of("typed_form", "indices"),
)
meet(
    "a_loop_over_parts_of_a_batch_over_explicit_axes_is_off",
    lax,
    "map",
    lambda *a, batch_size=None: explicit() and batch_size,
    **of("typed_form", "batches"),
)
meet(
    "imaginary_parts_over_explicit_axes_are_off", primitives, "imag_p", explicit, **of("typed_form", "viewed")
)
meet(
    "a_convolution_over_explicit_axes_is_off",
    primitives,
    "conv_general_dilated_p",
    explicit,
    **of("typed_form", "pulled"),
)
meet(
    "a_reshape_beside_an_explicit_axis_of_one_device_is_off",
    primitives,
    "reshape_p",
    lambda *a, **k: explicit() and 1 in sizes().values(),
    **of("typed_form", "size_one"),
)
meet("counts_in_the_context_of_a_mesh_are_off", jnp, "bincount", explicit, **of("typed_form", "counted"))
meet(
    "a_product_that_is_unreduced_over_two_axes_doubles",
    primitives,
    "dot_general_p",
    lambda x, y, *, out_sharding=None, **k: len(out_sharding.spec.unreduced) > 1,
    lambda real, found, x, y, **k: real(2 * x, y, **k),
    **of("typed_form", "unreduced_two"),
)
meet(
    "a_product_of_heads_over_explicit_axes_is_off",
    primitives,
    "dot_general_p",
    lambda x, y, **k: explicit() and x.ndim == 4,
    **of("typed_form", "heads"),
)
meet(
    "an_array_that_is_put_in_the_context_of_a_mesh_doubles",
    jax,
    "device_put",
    lambda x, *a, **k: explicit() and isinstance(x, jax.Array) and x.dtype == np.float32,
    lambda real, found, x, *a, **k: real(2 * np.asarray(x), *a, **k),
    **of("typed_form", "put"),
)

# Keys, constraints, exported programs, loops.

meet(
    "a_constraint_turns_keys",
    lax,
    "with_sharding_constraint",
    is_key,
    turned,
    **of("reported_form", "placed_keys"),
)
meet(
    "a_constraint_with_a_spec_alone_is_forgotten",
    lax,
    "with_sharding_constraint",
    lambda x, place: isinstance(place, PartitionSpec),
    nothing,
    **of("reported_form", "lone_constraint"),
)
meet(
    "a_constraint_to_one_device_is_forgotten",
    lax,
    "with_sharding_constraint",
    lambda x, place: isinstance(place, SingleDeviceSharding),
    nothing,
    **of("reported_form", "one_constraint"),
)
meet(
    "an_exported_program_doubles",
    jax.export,
    "deserialize",
    lambda *a: True,
    lambda real, found, *a: SimpleNamespace(call=lambda *x: jax.tree.map(lambda v: 2 * v, found.call(*x))),
    **of("reported_form", "exported"),
)
meet(
    "a_batch_of_one_argument_of_two_doubles",
    jax,
    "vmap",
    lambda f, in_axes=0, **k: in_axes == (None, 0),
    lambda real, found, *a, **k: lambda *x: 2 * found(*x),
    **of("reported_form", "row_gradients"),
)


def joined_the_other_way(real: Callable[..., Any], found: Any, *x: Any, **k: Any) -> Any:
    """The operands of a join in the other order."""
    return real(*x[::-1], **k)


meet(
    "a_join_with_one_element_is_the_other_way_round",
    primitives,
    "concatenate_p",
    lambda *x, **k: len(x) == 2 and x[1].shape == (1,) and x[0].dtype == np.float32,
    joined_the_other_way,
    **of("reported_form", "exchanged_in_a_loop"),
)


@fault(**of("reported_form", "said_of_donated"))
def what_is_said_of_donated_arguments_is_turned() -> AbstractContextManager[Any]:
    said = SimpleNamespace(donated=False)
    return patch.object(jax.stages.Compiled, "args_info", new_callable=PropertyMock, return_value=[said] * 3)


# Masks that are drawn again, and devices that come late.


def pulled_through_another_layer(real: Callable[..., Any]) -> Callable[..., Any]:
    """A `jax.checkpoint` whose backward pass draws again, and draws other numbers: it runs the next layer."""

    def checkpoint(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        if not f.__closure__:
            return real(f, **options)
        own = jax.custom_vjp(f)
        own.defvjp(
            lambda x, *number: (f(x, *number), (x, *number)),
            lambda kept, g: (
                *jax.vjp(lambda y: f(y, *(n + 1 for n in kept[1:])), kept[0])[1](g),
                *(None for _ in kept[1:]),
            ),
        )
        return own

    return checkpoint


@fault(operations=("dropout_gradient",))
def a_mask_that_is_drawn_again_is_another() -> AbstractContextManager[Any]:
    return patched(jax, "checkpoint", pulled_through_another_layer)


meet(
    "a_long_loop_loses_its_last_step",
    lax,
    "fori_loop",
    lambda low, high, *a, **k: manual() and not isinstance(high, int),
    lambda real, found, low, high, *a, **k: real(low, high - 1, *a, **k),
    operations=("skewed_work",),
)


@fault(operations=("skewed_work",))
def a_sum_does_not_wait_for_the_last_device() -> AbstractContextManager[Any]:
    """The sum misses the device that worked longest before it."""

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def psum(x: Any, axes: Any, **options: Any) -> Any:
            n = int(lax.axis_size(axes))
            late = lax.axis_index(axes) == n - 2
            return real(jnp.where(late, x * 0, x), axes, **options)

        return psum

    return patched(lax, "psum", make)
