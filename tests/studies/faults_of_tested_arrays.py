# SPDX-License-Identifier: Apache-2.0
"""Faults of arrays, programs, layouts and memories in conditions that JAX's own tests name: one for each rule of them
that JAX itself does not break. Most change one function where its options or arguments are those of the condition."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.layout import Format, Layout
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.small_rules import tested_layouts, tested_memories, tested_programs
from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed
from tests.studies.planting import fault


def jitted(find: Any) -> Any:
    """jit whose function becomes `find(run, options)`, of the real one and of its options."""

    def jit(real: Any, *a: Any, **k: Any) -> Any:
        run = real(*a, **k)
        return find(run, k) if a else run

    return changed(jax, "jit", jit)


def in_usual_order(v: Any) -> bool:
    """Whether an array lies as NumPy has it."""
    order = tuple(v.format.layout.major_to_minor)
    return order == tuple(sorted(order))


# Arrays and jit.


@fault(**rule("constraints_over_abstract_meshes"))
def a_constraint_over_an_abstract_mesh_with_one_axis_is_forgotten():
    def constrained(real, v, place, *a, **k):
        if isinstance(place, NamedSharding) and isinstance(place.mesh, AbstractMesh) and place.spec == P("y"):
            return v
        return real(v, place, *a, **k)

    return changed(lax, "with_sharding_constraint", constrained)


@fault(**rule("constants_over_devices"))
def a_program_ahead_of_its_call_gives_a_constant_with_the_other_sign():
    def find(run: Any, options: Any) -> Any:
        return Ahead(run) if run.__name__ == "several" else run

    class Ahead:
        def __init__(self, run: Any) -> None:
            self.run = run

        def __call__(self, *given: Any) -> Any:
            return self.run(*given)

        def lower(self, *given: Any) -> Any:
            return Ahead(self.run.lower(*given))

        def compile(self) -> Any:
            compiled = self.run.compile()

            def call(*given: Any) -> Any:
                *others, const, last = compiled(*given)
                return *others, -const, last

            return call

    return jitted(find)


@fault(**rule("devices_in_turn"))
def a_program_that_was_lowered_before_runs_on_the_devices_of_its_first_call():
    def first(run: Any, options: Any) -> Any:
        before: list[Any] = []

        def call(*given: Any, **k: Any) -> Any:
            if len(given) != 1 or not isinstance(given[0], jax.Array) or k:
                return run(*given, **k)
            places = [p for p in before if len(p.device_set) == len(given[0].sharding.device_set)]
            if places and isinstance(given[0].sharding, NamedSharding):
                return run(jax.device_put(given[0], NamedSharding(places[0].mesh, given[0].sharding.spec)))
            if isinstance(given[0].sharding, NamedSharding):
                before.append(given[0].sharding)
            return run(*given)

        call.lower = run.lower
        return call

    return jitted(first)


@fault(**rule("shardings_for_some"))
def a_sharding_beside_one_that_is_left_out_is_left_out_too():
    def jit(real, *a, **k):
        out = k.get("out_shardings")
        if isinstance(out, tuple) and out and out[0] is None:
            k["out_shardings"] = None
        return real(*a, **k)

    return changed(jax, "jit", jit)


@fault(**rule("batches_of_jitted"))
def a_named_batch_along_the_second_dimension_is_turned():
    def vmap(real, f, in_axes=0, out_axes=0, **k):
        run = real(f, in_axes, out_axes, **k)
        if in_axes == 1 and "spmd_axis_name" in k:
            return lambda v: jnp.flip(run(v), out_axes)
        return run

    return changed(jax, "vmap", vmap)


@fault(**rule("moves_with_a_source"))
def the_slope_of_a_move_with_a_source_is_doubled_and_stays_where_it_ended():
    def put(real, v, place=None, *a, src=None, **k):
        if src is None:
            return real(v, place, *a, **k)
        moved = jax.custom_vjp(lambda w: real(w, place, *a, **k))
        moved.defvjp(lambda w: (moved(w), None), lambda kept, ct: (ct * 2,))
        return moved(v)

    return changed(jax, "device_put", put)


@fault(**rule("joined_uneven_parts"))
def the_first_of_three_parts_that_are_joined_is_turned_by_a_row():
    def joined(real, parts, *a, **k):
        if len(parts) == 3 and parts[0].ndim == 2:
            parts = [jnp.roll(parts[0], 1, 0), *parts[1:]]
        return real(parts, *a, **k)

    return changed(jnp, "concatenate", joined)


# Programs.


@fault(**rule("exported_for_other_devices"))
def the_second_result_of_an_exported_program_is_turned_by_a_row():
    from jax import export

    def exported(real, fun, *a, **k):
        make = real(fun, *a, **k)
        return lambda *given: make(*given) if len(given) != 3 else Turned(make(*given))

    class Turned:
        def __init__(self, made: Any) -> None:
            self.made = made

        def __getattr__(self, name: str) -> Any:
            return getattr(self.made, name)

        def call(self, *given: Any) -> Any:
            first, second = self.made.call(*given)
            return first, jnp.roll(second, 1, 0)

    return changed(export, "export", exported)


@fault(**rule("exported_unreduced"))
def what_an_exported_program_leaves_unreduced_is_summed():
    from jax import export

    def exported(real, fun, *a, **k):
        def summed(*given: Any) -> Any:
            found = fun(*given)
            unreduced = getattr(jax.typeof(found).sharding.spec, "unreduced", None)
            return jax.sharding.reshard(found, P()) if unreduced else found

        return real(jax.jit(summed), *a, **k)

    return changed(export, "export", exported)


@fault(**rule("programs_over_two_meshes"))
def the_result_over_the_second_mesh_lies_over_the_first():
    def constrained(real, v, place, *a, **k):
        if isinstance(place, NamedSharding) and place.spec == P(None, "d"):
            place = NamedSharding(place.mesh, P("d"))
        return real(v, place, *a, **k)

    return changed(lax, "with_sharding_constraint", constrained)


@fault(**rule("structs_by_spec"))
def zeros_like_a_described_array_are_whole():
    def zeros(real, v, *a, **k):
        found = real(v, *a, **k)
        return jax.device_put(found, P()) if isinstance(v, jax.ShapeDtypeStruct) else found

    return changed(jnp, "zeros_like", zeros)


@fault(**rule("callbacks_of_no_result"))
def an_ordered_callback_of_no_result_is_called_by_one_device():
    def callback(real, call, kind, *given, ordered=False, **k):
        if not ordered or kind is not None:
            return real(call, kind, *given, ordered=ordered, **k)
        seen: list[Any] = []

        def once(*values: Any) -> None:
            if not seen:
                call(*values)
            seen.append(values)

        return real(once, kind, *given, ordered=ordered, **k)

    return changed(tested_programs, "io_callback", callback)


@fault(**rule("keys_cut_in_programs"))
def keys_that_are_constrained_change_places():
    def constrained(real, v, place, *a, **k):
        if hasattr(v, "dtype") and jnp.issubdtype(v.dtype, jax.dtypes.prng_key):
            v = v[::-1]
        return real(v, place, *a, **k)

    return changed(lax, "with_sharding_constraint", constrained)


@fault(**rule("results_of_pmap_in_programs"))
def a_pmap_of_donated_rows_gets_them_in_another_order():
    def pmap(real, f, *a, **k):
        run = real(f, *a, **k)
        return (lambda v: run(jnp.roll(v, 1, 0))) if "donate_argnums" in k else run

    return changed(jax, "pmap", pmap)


@fault(**rule("thousands_of_arguments"))
def arguments_past_the_two_thousandth_come_in_another_order():
    def find(run: Any, options: Any) -> Any:
        def call(many: Any) -> Any:
            return run([*many[:2000], *many[2000:][::-1]])

        return call if options.get("keep_unused") else run

    return jitted(find)


# Layouts.


@fault(**rule("layouts_of_arguments"))
def an_argument_in_another_order_than_asked_is_taken():
    def find(run: Any, options: Any) -> Any:
        asked = options.get("in_shardings")
        if not (isinstance(asked, tuple) and asked and isinstance(asked[0], Format)):
            return run
        return lambda v, *more: run(jax.device_put(v, asked[0]), *more)

    return jitted(find)


@fault(**rule("layouts_that_are_chosen"))
def the_second_result_of_a_program_of_chosen_layouts_is_upside_down():
    def find(run: Any, options: Any) -> Any:
        out = options.get("out_shardings")
        if not (isinstance(out, Format) and out.layout is Layout.AUTO):
            return run
        return Chosen(run)

    class Chosen:
        def __init__(self, run: Any) -> None:
            self.run = run

        def __getattr__(self, name: str) -> Any:
            return getattr(self.run, name)

        def lower(self, *given: Any) -> Any:
            return Chosen(self.run.lower(*given))

        def compile(self) -> Any:
            return Chosen(self.run.compile())

        def __call__(self, *given: Any) -> Any:
            first, second = self.run(*given)
            return first, jax.device_put(second[::-1], second.format)

    return jitted(find)


@fault(**rule("reads_of_other_layouts"))
def parts_in_another_order_of_dimensions_are_joined_with_the_other_sign():
    def made(real, shape, place, parts, **k):
        if not in_usual_order(parts[0]):
            parts = [-p for p in parts]
        return real(shape, place, parts, **k)

    return changed(jax, "make_array_from_single_device_arrays", made)


@fault(**rule("layouts_in_transforms"))
def an_argument_whose_first_dimension_is_the_innermost_is_turned():
    def find(run: Any, options: Any) -> Any:
        def call(*given: Any, **k: Any) -> Any:
            v = given[0] if len(given) == 1 else None
            cube = isinstance(v, jax.Array) and not isinstance(v, jax.core.Tracer) and v.ndim == 3
            if cube and tuple(v.format.layout.major_to_minor) == (1, 2, 0):
                return run(v[:, ::-1], **k)
            return run(*given, **k)

        call.lower = run.lower
        return call

    return jitted(find)


@fault(**rule("layouts_asked_in_programs"))
def a_constraint_to_columns_turns_what_it_holds():
    def held(real, v, layout):
        turned = v.ndim == 2 and tuple(layout.major_to_minor) == (1, 0)
        return real(v[::-1] if turned else v, layout)

    return changed(tested_layouts, "with_layout_constraint", held)


@fault(**rule("layouts_asked_at_the_end"))
def a_constraint_forgets_the_layout_that_it_asks_for():
    def constrained(real, v, place, *a, **k):
        return real(v, place.sharding if isinstance(place, Format) else place, *a, **k)

    return changed(lax, "with_sharding_constraint", constrained)


@fault(**rule("layouts_that_are_told"))
def an_array_of_a_callback_lies_in_rows():
    def made(real, shape, place, *a, **k):
        if isinstance(place, Format) and place.layout is not Layout.AUTO:
            place = place.sharding
        return real(shape, place, *a, **k)

    return changed(jax, "make_array_from_callback", made)


@fault(**rule("layouts_of_donated"))
def an_array_whose_order_is_asked_for_is_not_donated():
    def jit(real, *a, **k):
        asked = k.get("in_shardings")
        if isinstance(asked, tuple) and isinstance(asked[0], Format) and isinstance(asked[1], NamedSharding):
            k.pop("donate_argnums", None)
        return real(*a, **k)

    return changed(jax, "jit", jit)


# Memories.


@fault(**rule("rows_streamed_in_loops"))
def a_backward_loop_over_rows_of_the_host_takes_them_from_the_front():
    def scan(real, f, start, rows, *a, reverse=False, **k):
        space = getattr(jax.typeof(rows), "memory_space", None) if hasattr(rows, "dtype") else None
        far = "host" in str(space).lower()
        return real(f, start, rows, *a, reverse=reverse and not far, **k)

    return changed(lax, "scan", scan)


@fault(**rule("programs_over_two_memories"))
def a_number_that_goes_to_the_host_stays():
    def put(real, v, place=None, *a, **k):
        if (
            isinstance(v, jax.core.Tracer)
            and v.ndim == 0
            and getattr(place, "memory_kind", None) == "pinned_host"
        ):
            return v
        return real(v, place, *a, **k)

    return changed(jax, "device_put", put)


@fault(**rule("donated_across_memories"))
def a_donated_array_is_gone_whatever_memory_its_result_is_in():
    def find(run: Any, options: Any) -> Any:
        def call(v: Any) -> Any:
            found = jax.block_until_ready(run(v))
            v.delete()
            return found

        place = options.get("out_shardings")
        return call if "donate_argnums" in options and isinstance(place, NamedSharding) else run

    return jitted(find)


@fault(**rule("host_parts_in_regions"))
def a_part_on_the_host_of_rows_is_one_more():
    def on_host(real, f):
        part = real(f)
        return lambda v: part(v) + np.float32(v.ndim == 2)

    return changed(tested_memories, "on_host", on_host)
