# SPDX-License-Identifier: Apache-2.0
"""Faults of settings around one program, of derivatives that are not the ordinary ones, of unusual shard_maps and of
what jit hands through; and calls that are no longer refused."""

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations.programs import refusals
from tests.studies.faults_of_conditions import changed, form
from tests.studies.faults_of_uses import refused
from tests.studies.planting import fault, patched


def setting(name: str) -> dict[str, Any]:
    """The case of one setting."""
    return form(name, "program_setting")


def derivative(name: str) -> dict[str, Any]:
    """The case of one form of derivatives."""
    return form(name, "derivative_form")


def block(name: str) -> dict[str, Any]:
    """The case of one form of blocks."""
    return form(name, "block_form")


def jitted(edit: Any) -> Any:
    """`jax.jit` whose functions give `edit(run, *arguments)`."""

    def make(real):
        def jit(f=None, **options):
            if f is None:
                return functools.partial(jit, **options)
            run = real(f, **options)

            def call(*given, **named):
                return edit(run, *given, **named)

            call.lower = run.lower
            call.trace = run.trace
            return call

        return jit

    return patched(jax, "jit", make)


# Settings.


@fault(**setting("wide_context"))
def in_a_context_of_64_bits_a_sum_of_whole_numbers_over_devices_has_32():
    def psum(real, x, axes, **k):
        if getattr(x, "dtype", None) == jnp.int64:
            return real(x.astype(jnp.int32), axes, **k).astype(jnp.int64)
        return real(x, axes, **k)

    return changed(lax, "psum", psum)


@fault(**setting("wide_context"))
def a_context_of_64_bits_changes_nothing():
    return patched(jax, "enable_x64", lambda real: lambda on: contextlib.nullcontext())


@fault(**setting("precision_context"))
def a_context_of_precision_stays_after_its_end():
    def make(real):
        def context(name):
            jax.config.update("jax_default_matmul_precision", name)
            return contextlib.nullcontext()

        return context

    @contextlib.contextmanager
    def restored():
        before = jax.config.jax_default_matmul_precision
        try:
            with patched(jax, "default_matmul_precision", make):
                yield
        finally:
            jax.config.update("jax_default_matmul_precision", before)

    return restored()


@fault(**setting("algorithms"))
def a_product_by_a_bfloat16_algorithm_loses_its_last_term():
    def dot_general(real, p, q, dimensions, *, precision=None, **k):
        if precision == lax.DotAlgorithmPreset.BF16_BF16_F32:
            p = p.at[:, -1].set(0)
        return real(p, q, dimensions, precision=precision, **k)

    return changed(lax, "dot_general", dot_general)


@fault(**setting("accumulators"))
def products_of_bytes_are_added_in_bytes():
    def matmul(real, p, q, **k):
        if p.dtype == jnp.int8 and "preferred_element_type" in k:
            return real(p, q, preferred_element_type=jnp.int8).astype(jnp.int32)
        return real(p, q, **k)

    return changed(jnp, "matmul", matmul)


@fault(**setting("accumulators"))
def a_sum_of_halves_is_rounded_before_it_is_widened():
    def einsum(real, *given, preferred_element_type=None, **k):
        found = real(*given, preferred_element_type=preferred_element_type, **k)
        return found.astype(given[1].dtype).astype(found.dtype) if given[1].dtype == jnp.bfloat16 else found

    return changed(jnp, "einsum", einsum)


@fault(**setting("compiler_options"))
def without_optimization_rows_of_the_last_device_are_zero():
    def make(real):
        def jit(f, *, compiler_options=None, **options):
            if (compiler_options or {}).get("xla_backend_optimization_level") == 0:
                return real(lambda y: f(y).at[-1].set(0), compiler_options=compiler_options, **options)
            return real(f, compiler_options=compiler_options, **options)

        return jit

    return patched(jax, "jit", make)


@fault(**setting("compiler_options"))
def an_option_that_no_compiler_has_is_taken():
    def make(real):
        return lambda f, *, compiler_options=None, **options: real(f, **options)

    return patched(jax, "jit", make)


@fault(**setting("names"))
def a_barrier_gives_its_first_value_twice():
    def barrier(real, value):
        found = real(value)
        return (found[0], found[0]) if isinstance(found, tuple) else found

    return changed(lax, "optimization_barrier", barrier)


@fault(**setting("names"))
def the_derivative_of_a_named_function_is_that_of_its_value():
    return changed(
        jax, "named_call", lambda real, f, **k: lambda b: lax.stop_gradient(real(f, **k)(b)) + b * 1
    )


@fault(**setting("offloaded"))
def the_gradient_of_what_is_offloaded_is_half():
    def checkpoint(real, f, *, policy=None, **k):
        def halved(*given):
            return jax.tree.map(lambda v: (v + lax.stop_gradient(v)) / 2, f(*given))

        return real(halved if policy else f, policy=policy, **k)

    return changed(jax, "checkpoint", checkpoint)


@fault(**setting("memory_inside"))
def a_result_asked_for_in_the_host_s_memory_stays_on_the_devices():
    def make(real):
        def jit(f, *, out_shardings=None, **k):
            if getattr(out_shardings, "memory_kind", None) == "pinned_host":
                out_shardings = out_shardings.with_memory_kind("device")
            return real(f, out_shardings=out_shardings, **k)

        return jit

    return patched(jax, "jit", make)


@fault(**setting("ordered"))
def callbacks_in_order_come_in_any():
    from jax import experimental

    held: list[Any] = []

    def io_callback(real, call, kind, *given, ordered=False, **k):
        def late(*values):
            held.append(values)
            if len(held) % 2 == 0:
                for kept in (held.pop(), held.pop()):
                    call(*kept)
            return np.asarray(values[0], np.float32)

        return real(late, kind, *given, ordered=ordered, **k)

    return changed(experimental, "io_callback", io_callback)


@fault(**setting("printed_in_order"))
def the_first_line_is_printed_last():
    held: list[Any] = []

    def debug_print(real, text, *given, k, **more):
        held.append(k)
        return real(text, *given, k=(k + 1) % 3, **more)

    return changed(jax.debug, "print", debug_print)


@fault(**setting("host_arrays"))
def a_put_takes_strides_for_those_of_elements_without_gaps():
    def device_put(real, x, *place, **k):
        if isinstance(x, np.ndarray) and x.dtype == np.float32 and x.strides[-1] == 5:
            x = np.roll(x, 1, axis=1)
        return real(x, *place, **k)

    return changed(jax, "device_put", device_put)


@fault(**setting("host_arrays"))
def an_array_that_cannot_be_written_is_transposed():
    def array(real, x, *given, **k):
        found = real(x, *given, **k)
        return found[::-1] if isinstance(x, np.ndarray) and not x.flags.writeable else found

    return changed(jnp, "array", array)


@fault(**setting("byte_orders"))
def bytes_in_the_other_order_are_taken_as_they_are():
    def device_put(real, x, *place, **k):
        if isinstance(x, np.ndarray) and not x.dtype.isnative:
            x = x.view(x.dtype.newbyteorder())
        return real(x, *place, **k)

    return changed(jax, "device_put", device_put)


# Derivatives.


@fault(**derivative("holomorphic"))
def a_holomorphic_derivative_is_conjugate():
    def grad(real, f, *given, holomorphic=False, **k):
        slope = real(f, *given, holomorphic=holomorphic, **k)
        return (lambda v: jnp.conj(slope(v))) if holomorphic else slope

    return changed(jax, "grad", grad)


@fault(**derivative("holomorphic"))
def a_complex_cotangent_of_a_permutation_loses_its_imaginary_part():
    @jax.custom_jvp
    def real_part(v):
        return v

    real_part.defjvp(lambda primals, tangents: (primals[0], tangents[0].real + 0j))

    def ppermute(real, x, axes, perm):
        return real_part(real(x, axes, perm)) if jnp.iscomplexobj(x) else real(x, axes, perm)

    return changed(lax, "ppermute", ppermute)


@fault(**derivative("complex_cotangents"))
def a_pullback_conjugates_complex_cotangents():
    def vjp(real, f, *given, **k):
        value, pull = real(f, *given, **k)
        return value, lambda g: pull(jnp.conj(g) if jnp.iscomplexobj(g) and jnp.iscomplexobj(given[0]) else g)

    return changed(jax, "vjp", vjp)


@fault(**derivative("told_what_varies"))
def a_rule_is_told_that_all_arguments_vary():
    from jax import custom_derivatives

    def make(real):
        class Told(real):
            def defvjp(self, forward, backward, symbolic_zeros=False):
                def called(*given):
                    return forward(
                        *(type("Varies", (), {"value": g.value, "perturbed": True}) for g in given)
                    )

                super().defvjp(called if symbolic_zeros else forward, backward, symbolic_zeros=symbolic_zeros)

        return Told

    assert custom_derivatives.custom_vjp is jax.custom_vjp
    return patched(jax, "custom_vjp", make)


@fault(**derivative("other_rules"))
def rules_by_argument_change_places():
    return changed(jax.custom_jvp, "defjvps", lambda real, self, *rules: real(self, *reversed(rules)))


@fault(**derivative("solutions"))
def the_derivative_of_a_solution_takes_the_system_itself_for_its_transposed_one():
    def solve(real, f, b, *, solve, transpose_solve, **k):
        return real(f, b, solve=solve, transpose_solve=solve, **k)

    return changed(lax, "custom_linear_solve", solve)


class Places:
    """An `at` whose reads or writes pass through `edit(name, mode, call, *arguments)`."""

    def __init__(self, real: Any, edit: Any) -> None:
        self.real, self.edit = real, edit

    def __getitem__(self, index: Any) -> Any:
        return Places(self.real[index], self.edit)

    def __getattr__(self, name: str) -> Any:
        return lambda *a, **k: self.edit(name, k.get("mode"), getattr(self.real, name), *a, **k)


def at_places(edit: Any) -> Any:
    """Arrays, traced ones too, whose `at` is edited."""
    stack = contextlib.ExitStack()
    for kind in (type(jnp.zeros(1)), jax.core.Tracer):
        real = kind.at
        get = real.fget if isinstance(real, property) else functools.partial(_bound, real)
        stack.enter_context(
            patched(kind, "at", lambda _, get=get: property(lambda self: Places(get(self), edit)))
        )
    return stack


def _bound(descriptor: Any, array: Any) -> Any:
    return descriptor.__get__(array, type(array))


@fault(**derivative("reads"))
def the_gradient_of_a_clipped_read_drops_what_lies_outside():
    def edit(name, mode, call, /, *given, **k):
        found = call(*given, **k)
        if name != "get" or mode != "clip":
            return found
        inside = call(*given, **{**k, "mode": "fill", "fill_value": 0})
        return inside + lax.stop_gradient(found - inside)

    return at_places(edit)


@fault(**derivative("writes"))
def the_gradient_of_a_replaced_row_is_that_of_an_added_one():
    def edit(name, mode, call, /, *given, **k):
        found = call(*given, **k)
        if name != "set" or mode != "drop":
            return found
        return found + (given[0].sum() - lax.stop_gradient(given[0].sum()))

    return at_places(edit)


@fault(**derivative("derived_inside"))
def a_second_derivative_inside_of_shard_map_is_half():
    return changed(jax, "hessian", lambda real, f, **k: lambda v: real(f, **k)(v) / 2)


# Blocks.


@fault(**block("over_some_axes"))
def over_some_axes_an_exchange_keeps_the_order_of_senders_reversed():
    def all_to_all(real, x, axes, split, concat, **k):
        found = real(x, axes, split, concat, **k)
        free = jax.typeof(x).sharding.mesh.auto_axes if hasattr(jax.typeof(x), "sharding") else ()
        if not free:
            return found
        return found.reshape(lax.axis_size(axes), -1, *found.shape[1:])[::-1].reshape(found.shape)

    return changed(lax, "all_to_all", all_to_all)


@fault(**block("one_inside_another"))
def inside_of_two_shard_maps_a_sum_over_both_axes_is_that_of_one():
    def psum(real, x, axes, **k):
        both = isinstance(axes, tuple) and len(axes) == 2
        return real(real(x, axes[1], **k), axes[0], **k) / 2 if both else real(x, axes, **k)

    return changed(lax, "psum", psum)


@fault(**block("step_by_step"))
def without_jit_a_maximum_over_devices_is_the_device_s_own():
    def pmax(real, x, axes, **k):
        return x if jax.config.jax_disable_jit else real(x, axes, **k)

    return changed(lax, "pmax", pmax)


@fault(**block("each_line"))
def devices_of_the_second_line_take_the_branch_of_the_first():
    return changed(lax, "switch", lambda real, i, branches, *a: real(jnp.minimum(i, 0), branches, *a))


@fault(**block("pmap_trees"))
def pmap_gives_the_leaves_of_a_tuple_in_another_order():
    def make(real):
        def pmap(f, **options):
            run = real(f, **options)
            if "out_axes" not in options:
                return run

            def call(*given):
                found, total = run(*given)
                return {**found, "q": (found["f"], found["q"][1])}, total

            return call

        return pmap

    return patched(jax, "pmap", make)


@fault(**block("handed_through"))
def an_argument_that_is_a_result_twice_is_its_neighbour_the_second_time():
    def edit(run, *given, **named):
        found = run(*given, **named)
        if isinstance(found, tuple) and len(found) == 6:
            return (*found[:2], found[1], *found[3:])
        return found

    return jitted(edit)


@fault(**block("trees_in_turn"))
def names_in_another_order_are_taken_for_those_of_the_first_call():
    seen: dict[Any, Any] = {}

    def edit(run, *given, **named):
        found = run(*given, **named)
        if isinstance(given[0], tuple) and hasattr(given[0], "_fields"):
            return seen.setdefault(id(run), found)
        return found

    return jitted(edit)


@fault(**block("alike_but_not_equal"))
def a_call_with_true_gets_the_program_of_one():
    def edit(run, *given, **named):
        return run(*(1 if g is True else g for g in given), **named)

    return jitted(edit)


@fault(**block("alike_but_not_equal"))
def minus_zero_is_taken_for_zero_in_a_call():
    def edit(run, *given, **named):
        return run(*(0.0 if isinstance(g, float) and g == 0 else g for g in given), **named)

    return jitted(edit)


@fault(**block("named_places"))
def one_place_for_all_is_that_of_the_first_leaf_alone():
    def make(real):
        def jit(f, *, out_shardings=None, in_shardings=None, **k):
            if isinstance(in_shardings, tuple):
                return real(f, in_shardings=in_shardings, **k)
            options = {} if out_shardings is None else {"out_shardings": out_shardings}
            return real(f, **options, **k)

        return jit

    return patched(jax, "jit", make)


# Calls that are no longer refused.


@fault(**refused("gradient_of_an_array"))
def the_gradient_of_an_array_is_that_of_its_sum():
    return changed(jax, "grad", lambda real, f, **k: real(lambda y: f(y).sum(), **k))


@fault(**refused("lowered_permutation"))
def a_permutation_over_one_axis_named_twice_is_one_over_the_axis():
    return changed(lax, "ppermute", lambda real, x, axes, perm: real(x, tuple(dict.fromkeys(axes)), perm))


@fault(**refused("manual_constraint"))
def a_constraint_over_an_axis_that_is_manual_is_ignored():
    return changed(lax, "with_sharding_constraint", lambda real, x, place: x)


@fault(**refused("wrong_cotangent"))
def a_cotangent_of_another_shape_is_broadcast():
    def vjp(real, f, *given, **k):
        value, pull = real(f, *given, **k)
        return value, lambda g: pull(jnp.broadcast_to(g, value.shape))

    return changed(jax, "vjp", vjp)


@fault(**refused("scan_lengths"))
def a_loop_stops_where_the_shorter_input_ends():
    def scan(real, f, first, inputs=None, **k):
        length = min(len(leaf) for leaf in jax.tree.leaves(inputs))
        return real(f, first, jax.tree.map(lambda leaf: leaf[:length], inputs), **k)

    return changed(lax, "scan", scan)


@fault(**refused("unknown_memory"))
def an_unknown_memory_is_that_of_the_device():
    def make(real):
        return lambda mesh, spec, *, memory_kind=None: real(mesh, spec)

    return patched(refusals, "NamedSharding", make)
