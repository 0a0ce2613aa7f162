# SPDX-License-Identifier: Apache-2.0
"""Faults of what the table judged in one way alone: gradients of functions whose values are right, random numbers that
are the same everywhere and wrong, options that are not the ordinary ones."""

from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.studies.faults_of_calls import seen_as
from tests.studies.faults_of_values import Jitted
from tests.studies.planting import fault, patched

SMOOTH = {"operations": ("smooth_functions_gradient",)}


def group(name: str) -> Any:
    """The cases of one group of functions."""
    return lambda case: case.cell.request.variant.get("group") == name


def drawn(name: str) -> Any:
    """The cases of one draw or creation function."""
    return lambda case: case.cell.request.variant.get("function") == name


def with_tangent(wrong: Any) -> Any:
    """A replacement of a function of one array: its values, and another tangent, `wrong(x, t, real, *options)`."""

    def make(real):
        def function(x, *more, **options):
            own = jax.custom_jvp(lambda v: real(v, *more, **options))

            def rule(primals, tangents):
                given = lambda v: real(v, *more, **options)  # noqa: E731
                return own(*primals), wrong(primals[0], tangents[0], given)

            own.defjvp(rule)
            return own(x)

        return function

    return make


def right(x: Any, t: Any, real: Any) -> Any:
    """The tangent as it should be."""
    return jax.jvp(real, (x,), (t,))[1]


@fault(only=group("zeros"), **SMOOTH)
def the_gradient_of_a_running_product_divides_by_its_elements():
    return patched(jnp, "cumprod", with_tangent(lambda x, t, real: real(x) * jnp.cumsum(t / x, axis=1)))


@fault(only=group("orders"), **SMOOTH)
def the_gradient_of_a_sort_of_several_mixes_their_rows():
    def make(real):
        def sort(operands, *, dimension, num_keys):
            if not isinstance(operands, tuple):
                return real(operands, dimension=dimension, num_keys=num_keys)
            own = jax.custom_jvp(lambda *v: tuple(real(v, dimension=dimension, num_keys=num_keys)))
            own.defjvp(lambda primals, tangents: (own(*primals), tuple(tangents)))
            return own(*operands)

        return sort

    return patched(lax, "sort", make)


@fault(only=group("orders"), **SMOOTH)
def the_gradient_of_a_quantile_goes_to_the_lower_neighbour_alone():
    return patched(
        jnp,
        "quantile",
        lambda real: (
            lambda x, at, axis: (
                real(x, at, axis=axis)
                + (lambda v: v - lax.stop_gradient(v))(
                    real(x, at, axis=axis, method="lower") - real(x, at, axis=axis)
                )
            )
        ),
    )


@fault(only=group("places"), **SMOOTH)
def the_gradient_of_an_update_keeps_what_was_overwritten():
    def make(real):
        def update(x, y, start, axis):
            return real(x, y, start, axis) + (x - lax.stop_gradient(x))

        return update

    return patched(lax, "dynamic_update_slice_in_dim", make)


@fault(only=group("second"), **SMOOTH)
def a_second_derivative_is_zero():
    return patched(jnp, "sin", with_tangent(lambda x, t, real: t * lax.stop_gradient(jnp.cos(x))))


@fault(only=group("special"), **SMOOTH)
def the_gradient_of_an_arctangent_forgets_the_quadrant():
    def make(real):
        def arctan2(a, b):
            return real(lax.stop_gradient(a), lax.stop_gradient(b)) + (lambda v: v - lax.stop_gradient(v))(
                jnp.arctan(a / jnp.abs(b))
            )

        return arctan2

    return patched(jnp, "arctan2", make)


@fault(only=group("algebra"), **SMOOTH)
def the_gradient_of_a_Cholesky_factor_is_doubled():
    return patched(jnp.linalg, "cholesky", with_tangent(lambda x, t, real: 2 * right(x, t, real)))


@fault(only=group("products"), **SMOOTH)
def the_gradient_of_a_grouped_kernel_is_that_of_the_other_group():
    def make(real):
        def conv_general_dilated(x, kernel, *more, feature_group_count=1, **options):
            def convolved(k):
                return real(x, k, *more, feature_group_count=feature_group_count, **options)

            if feature_group_count == 1:
                return convolved(kernel)
            other = jnp.roll(kernel, kernel.shape[0] // 2, 0)
            return lax.stop_gradient(convolved(kernel)) + (lambda v: v - lax.stop_gradient(v))(
                convolved(other)
            )

        return conv_general_dilated

    return patched(lax, "conv_general_dilated", make)


@fault(only=group("fourier"), capabilities=("complex",), **SMOOTH)
def the_gradient_of_an_inverse_real_transform_counts_its_bins_twice():
    def make(real):
        def irfft(x, **options):
            def found(v):
                return real(v, **options)

            return lax.stop_gradient(found(x)) + (lambda v: v - lax.stop_gradient(v))(2 * found(x))

        return irfft

    return patched(jnp.fft, "irfft", make)


# Numbers that are the same on every mesh, and wrong on each.


@fault(only=drawn("permutation"), operations=("random_anywhere",))
def a_random_permutation_has_a_row_twice():
    return patched(
        jax.random,
        "permutation",
        lambda real: lambda key, x, **k: (lambda y: y.at[-1].set(y[0]))(real(key, x, **k)),
    )


@fault(only=drawn("randint"), operations=("random_anywhere",))
def random_integers_reach_the_upper_end():
    return patched(
        jax.random, "randint", lambda real: lambda key, shape, low, high: real(key, shape, low, high + 1)
    )


@fault(only=drawn("normal"), operations=("random_anywhere",))
def random_numbers_repeat_after_half():
    def make(real):
        def normal(key, shape):
            half = real(key, (shape[0] // 2, *shape[1:]))
            return jnp.concatenate([half, half])

        return normal

    return patched(jax.random, "normal", make)


@fault(only=drawn("bits8"), operations=("random_numbers",))
def random_bytes_are_the_upper_ones():
    return patched(
        jax.random,
        "bits",
        lambda real: (
            lambda key, shape, dtype=jnp.uint32: (
                (real(key, shape) >> 24).astype(dtype) if dtype == "uint8" else real(key, shape, dtype)
            )
        ),
    )


@fault(only=drawn("folded"), operations=("random_numbers",))
def a_folded_number_loses_its_upper_half():
    return patched(jax.random, "fold_in", lambda real: lambda key, number: real(key, number & 0xFFFF))


@fault(only=drawn("split"), operations=("random_numbers",))
def keys_of_a_split_are_in_the_order_of_columns():
    return patched(jax.random, "split", lambda real: lambda key, shape: real(key, shape[::-1]).T)


# Options of creation functions.


@fault(only=drawn("linspace_open"), operations=("creation",))
def a_range_without_its_end_point_has_it():
    return patched(jnp, "linspace", lambda real: lambda *a, endpoint=True: real(*a))


@fault(only=drawn("eye_below"), operations=("creation",))
def a_diagonal_below_is_above():
    return patched(jnp, "eye", lambda real: lambda n, m, k, dtype: real(n, m, k=abs(k), dtype=dtype))


# Values at the ends of a domain, and widths.

FAR = {"operations": ("far_functions",)}
ENDS = {"operations": ("special_functions",)}
WIDTHS = {"operations": ("integer_widths",)}


@fault(only=group("compared"), **ENDS)
def the_larger_of_a_number_and_NaN_is_the_number():
    return patched(jnp, "maximum", lambda real: lambda x, y: jnp.where(jnp.isnan(y), x, real(x, y)))


@fault(only=group("casts"), **ENDS)
def halves_are_rounded_away_from_zero():
    return patched(lax, "round", lambda real: lambda x, method: real(x))


@fault(only=group("bfloat16_extremes"), **ENDS)
def a_running_maximum_of_bfloat16_forgets_NaN():
    def make(real):
        def cummax(x, **options):
            narrow = x.dtype == jnp.bfloat16
            return real(jnp.where(jnp.isnan(x), -jnp.inf, x).astype(x.dtype) if narrow else x, **options)

        return cummax

    return patched(lax, "cummax", make)


@fault(only=group("far"), **FAR)
def expm1_is_an_exponential_less_one():
    return patched(jnp, "expm1", lambda real: lambda x: jnp.exp(x) - 1)


@fault(only=group("far"), **FAR)
def large_angles_are_not_reduced():
    return patched(
        jnp, "sin", lambda real: lambda x: jnp.where(jnp.abs(x) > 1000, jnp.zeros_like(x), real(x))
    )


@fault(only=group("gamma"), **FAR)
def lgamma_of_a_negative_number_is_that_of_its_magnitude():
    return patched(lax, "lgamma", lambda real: lambda x: real(jnp.abs(x)))


@fault(only=group("uint8"), **WIDTHS)
def leading_zeros_of_bytes_are_counted_in_32_bits():
    return patched(
        lax, "clz", lambda real: lambda x: real(x) + jnp.array(24 * (x.dtype.itemsize == 1), x.dtype)
    )


@fault(only=group("int16"), **WIDTHS)
def shifts_to_the_right_of_narrow_integers_fill_with_zeros():
    return patched(
        jnp,
        "right_shift",
        lambda real: (
            lambda x, y: lax.shift_right_logical(x, y) if x.dtype in (jnp.int8, jnp.int16) else real(x, y)
        ),
    )


@fault(only=group("int8"), **WIDTHS)
def the_magnitude_of_the_least_integer_saturates():
    return patched(
        jnp,
        "abs",
        lambda real: lambda x: jnp.where(x == jnp.iinfo(x.dtype).min, jnp.iinfo(x.dtype).max, real(x)),
    )


@fault(only=group("uint32"), **WIDTHS)
def unsigned_integers_of_32_bits_are_ordered_as_signed():
    def make(real):
        def largest(x, axis):
            if x.dtype != jnp.uint32:
                return real(x, axis=axis)
            return real(x.astype(jnp.int32), axis=axis).astype(jnp.uint32)

        return largest

    return patched(jnp, "max", make)


# Options of jit, loops, batches and callbacks.


def form(name: str) -> dict[str, Any]:
    """The cases of one option."""
    return {
        "operations": ("program_option",),
        "only": lambda case: case.cell.request.variant.get("form") == name,
    }


def jitted(call: Any, when: Any = lambda options: True) -> Any:
    """jax.jit whose calls go through `call(function, memory, arguments, keywords)`."""

    def make(real):
        def jit(function, **options):
            found, memory = real(function, **options), {}
            if not when(options):
                return found
            return Jitted(found, lambda f, arguments: call(f, memory, arguments))

        return jit

    return patched(jax, "jit", make)


@fault(**form("static_arguments"))
def a_static_argument_has_the_program_of_its_first_value():
    return jitted(
        lambda f, memory, given: f(given[0], memory.setdefault("k", given[1])),
        lambda o: "static_argnums" in o,
    )


@fault(**form("dtypes_in_turn"))
def jit_gives_every_call_the_dtype_of_the_first():
    def call(f, memory, given):
        found = f(*given)
        return found.astype(memory.setdefault("dtype", found.dtype))

    return jitted(call)


@fault(**form("donated_pair"))
def donated_arrays_of_one_shape_change_places():
    def call(f, memory, given):
        found = f(*given)
        return found[::-1] if isinstance(found, tuple) else found

    return jitted(call, lambda o: "donate_argnums" in o)


@fault(**form("many_calls"))
def the_fourth_call_is_doubled():
    def call(f, memory, given):
        memory["number"] = memory.get("number", 0) + 1
        return f(*given) * (1 + (memory["number"] == 4))

    return jitted(call)


@fault(**form("attributes"))
def every_array_says_that_it_is_replicated():
    return seen_as("is_fully_replicated", True)


@fault(**form("typed"))
def types_forget_how_the_last_dimension_is_sharded():
    real = jax.typeof

    def typeof(x):
        found = real(x)
        place = found.sharding
        return found.update(sharding=place.update(spec=P(*tuple(place.spec)[:-1], None)))

    return patch.object(jax, "typeof", typeof)


@fault(**form("pmap_axes"))
def pmap_stacks_its_results_first():
    return patched(jax, "pmap", lambda real: lambda f, *, out_axes=0, **o: real(f, **o))


@fault(**form("scan_backward"))
def a_loop_backward_runs_forward():
    return patched(
        lax, "scan", lambda real: lambda f, init, xs, *, reverse=False, **o: real(f, init, xs, **o)
    )


@fault(**form("switch_clamped"))
def an_index_past_the_last_branch_takes_the_first():
    def make(real):
        return lambda index, branches, x: real(jnp.where(index >= len(branches), 0, index), branches, x)

    return patched(lax, "switch", make)


@fault(**form("lanes"))
def lanes_that_have_ended_go_on():
    """Every lane runs as long as the last of its batch."""

    def make(real):
        def while_loop(cond, body, init):
            return real(lambda s: s[0] < 3, body, init)

        return while_loop

    return patched(lax, "while_loop", make)


@fault(**form("mapped"))
def the_rest_of_a_map_in_batches_is_zero():
    def make(real):
        def mapped(f, xs, *, batch_size):
            whole = len(xs) // batch_size * batch_size
            return real(f, xs, batch_size=batch_size).at[whole:].set(0)

        return mapped

    return patched(lax, "map", make)


@fault(**form("linearized_twice"))
def a_linear_function_gives_its_first_result_again():
    def make(real):
        def linearize(f, x):
            value, push = real(f, x)
            first = []

            def pushed(t):
                first.append(push(t))
                return first[0]

            return value, pushed

        return linearize

    return patched(jax, "linearize", make)


@fault(**form("ties"))
def the_gradient_of_a_maximum_goes_to_the_first_of_equal_elements():
    def make(real):
        def largest(x, axis):
            own = jax.custom_vjp(lambda v: real(v, axis=axis))
            own.defvjp(
                lambda v: (real(v, axis=axis), v),
                lambda v, g: (jax.nn.one_hot(jnp.argmax(v, axis=axis), len(v), axis=axis) * g,),
            )
            return own(x)

        return largest

    return patched(jnp, "max", make)


@fault(**form("callback_of_a_batch"))
def a_callback_of_a_batch_gives_its_rows_in_reverse():
    def make(real):
        def pure_callback(f, kind, *arguments, vmap_method):
            back = lambda *a: np.ascontiguousarray(f(*a)[::-1]) if np.ndim(a[0]) else f(*a)  # noqa: E731
            return real(back, kind, *arguments, vmap_method=vmap_method)

        return pure_callback

    return patched(jax, "pure_callback", make)


@fault(**form("filled_with_nan"))
def an_index_past_the_end_takes_the_last_row():
    return patched(jnp, "take", lambda real: lambda x, at, axis: real(x, at, axis=axis, mode="clip"))


@fault(**form("rolled_twice"))
def the_second_of_two_shifts_is_forgotten():
    def make(real):
        def roll(x, shift, axis):
            return real(x, shift[0], axis[0]) if isinstance(shift, tuple) else real(x, shift, axis)

        return roll

    return patched(jnp, "roll", make)


@fault(**form("order_downward"))
def an_order_downward_is_upward():
    return patched(jnp, "argsort", lambda real: lambda x, *, descending=False, **o: real(x, **o))


@fault(**form("repeated"))
def every_row_is_repeated_as_often_as_the_first():
    def make(real):
        return lambda x, times, **o: real(x, np.full_like(times, times[0]), **o)

    return patched(jnp, "repeat", make)


@fault(**form("two_dimensions_reversed"))
def only_the_first_of_two_dimensions_is_reversed():
    return patched(lax, "rev", lambda real: lambda x, dims: real(x, dims[:1]))


@fault(
    operations=("refusal",), only=lambda case: case.cell.request.variant.get("kind") == "compiled_sharding"
)
def a_compiled_program_takes_arrays_of_another_sharding():
    real = jax.stages.Compiled.__call__

    def call(compiled, *arguments):
        places = jax.tree.leaves(compiled.input_shardings[0])
        return real(compiled, *(jax.device_put(x, p) for x, p in zip(arguments, places, strict=True)))

    return patch.object(jax.stages.Compiled, "__call__", call)
