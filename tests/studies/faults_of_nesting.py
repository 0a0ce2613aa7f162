# SPDX-License-Identifier: Apache-2.0
"""Faults that a transformation of a transformation shows, and those of a second use of a function.

`within` plants a collective that is wrong only while the named functions trace: a permutation in a loop that is
differentiated, a gather in a batch of tangents.
"""

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.studies.faults_of_conditions import changed, form
from tests.studies.faults_of_transforms import of
from tests.studies.faults_of_uses import use
from tests.studies.planting import fault, patched

ENTRIES = {
    "vmap": jax, "grad": jax, "vjp": jax, "jvp": jax, "linearize": jax, "checkpoint": jax, "shard_map": jax,
    "custom_vjp": jax, "custom_jvp": jax, "scan": lax, "while_loop": lax, "fori_loop": lax, "cond": lax, "switch": lax,
    "map": lax,
}  # fmt: skip
"""Functions that trace others, and their modules."""


@contextmanager
def noted(stack: list[str]) -> Iterator[None]:
    """The functions above, which note their names while they trace."""

    def wrap(name: str, f: Any) -> Any:
        if not callable(f):
            return f

        @functools.wraps(f, updated=())
        def traced(*a: Any, **k: Any) -> Any:
            stack.append(name)
            try:
                return f(*a, **k)
            finally:
                stack.pop()

        return traced

    def make(name: str) -> Callable[[Any], Any]:
        def made(real: Any) -> Any:
            def entry(*a: Any, **k: Any) -> Any:
                if name == "switch":
                    return real(a[0], [wrap(name, f) for f in a[1]], *a[2:], **k)
                if name == "cond":
                    return real(a[0], *(wrap(name, f) for f in a[1:3]), *a[3:], **k)
                if name == "fori_loop":
                    return real(*a[:2], wrap(name, a[2]), *a[3:], **k)
                if name == "while_loop":
                    return real(a[0], wrap(name, a[1]), *a[2:], **k)
                return real(wrap(name, a[0]), *a[1:], **k) if a else real(**k)

            return entry

        return made

    with ExitStack() as entered:
        for name, owner in ENTRIES.items():
            if name.startswith("custom"):
                continue
            entered.enter_context(patched(owner, name, make(name)))
        yield


def within(collective: str, *names: str) -> Any:
    """A collective that doubles while these functions trace, the outer ones first."""

    @contextmanager
    def planted() -> Iterator[None]:
        stack: list[str] = []

        def call(real, x, *a, **k):
            found = real(x, *a, **k)
            left = iter(stack)
            return jax.tree.map(lambda y: y + y, found) if all(n in left for n in names) else found

        with noted(stack), changed(lax, collective, call):
            yield

    return planted()


def plant(title: str, form: str, collective: str, *names: str) -> None:
    """Register such a fault, and the form that shows it."""

    def make() -> Any:
        return within(collective, *names)

    make.__name__ = title
    fault(operations=("nested_transform",), only=of(f"form={form}"))(make)


plant("in_a_batch_of_gradients_a_permutation_doubles", "plain", "ppermute", "vmap", "grad", "shard_map")
plant("in_a_batch_of_tangents_a_gather_doubles", "stacked_scan", "all_gather", "vmap", "jvp", "shard_map")
plant("in_a_loop_that_is_differentiated_a_sum_doubles", "scan", "psum", "grad", "shard_map", "scan")
plant(
    "in_a_loop_whose_tangent_is_taken_an_exchange_doubles",
    "remat_in_scan",
    "all_to_all",
    "jvp",
    "shard_map",
    "scan",
)
plant(
    "in_a_rematerialized_step_of_a_loop_a_collective_doubles",
    "remat_in_scan",
    "ppermute",
    "shard_map",
    "scan",
    "checkpoint",
)
plant(
    "in_a_branch_of_a_batch_of_gradients_a_sum_doubles",
    "cond",
    "psum_scatter",
    "vmap",
    "grad",
    "shard_map",
    "cond",
)
plant("in_the_tangent_of_a_gradient_a_sum_doubles", "plain", "psum", "jvp", "grad", "shard_map")
plant("in_a_batch_of_a_loop_without_an_end_a_sum_doubles", "while", "psum", "vmap", "shard_map", "while_loop")
plant(
    "in_a_map_that_is_differentiated_a_scattered_sum_doubles",
    "map",
    "psum_scatter",
    "grad",
    "shard_map",
    "map",
)
plant("in_a_differentiated_switch_an_exchange_doubles", "switch", "all_to_all", "grad", "shard_map", "switch")
plant("in_a_linearized_loop_a_gather_doubles", "stacked_scan", "all_gather", "linearize", "shard_map")
plant(
    "in_a_rematerialized_shard_map_an_exchange_doubles",
    "remat_in_scan",
    "all_to_all",
    "checkpoint",
    "shard_map",
)


# A second use of one function.

SECOND = {"operations": ("second_use",)}


def remembered(owner: Any, name: str, option: str) -> Any:
    """A transformation that keeps an option of its first use for each function."""

    def make(real):
        first: dict[Any, Any] = {}

        def transform(f, *a, **k):
            if option in k:
                with suppress(TypeError):
                    k[option] = first.setdefault(f, k[option])
            return real(f, *a, **k)

        return transform

    return patched(owner, name, make)


@fault(**SECOND)
def a_function_is_differentiated_by_the_argument_of_its_first_use():
    return remembered(jax, "grad", "argnums")


@fault(**SECOND)
def a_batch_has_the_axes_of_the_function_s_first_use():
    return remembered(jax, "vmap", "in_axes")


@fault(**SECOND)
def a_batch_comes_out_where_the_function_s_first_one_did():
    return remembered(jax, "vmap", "out_axes")


@fault(**SECOND)
def a_shard_map_has_the_blocks_of_the_function_s_first_use():
    return remembered(jax, "shard_map", "in_specs")


@fault(**SECOND)
def a_shard_map_has_the_mesh_of_the_function_s_first_use():
    return remembered(jax, "shard_map", "mesh")


@fault(**SECOND)
def a_loop_has_the_length_of_the_step_s_first_use():
    return remembered(lax, "scan", "length")


@fault(**SECOND)
def a_loop_runs_as_the_step_s_first_use_did():
    return remembered(lax, "scan", "reverse")


def called(edit: Any) -> Any:
    """`jax.jit` whose functions give `edit(run, state, *arguments)`; the state is a dict for each function."""

    def make(real):
        def jit(f=None, **options):
            if f is None:
                return functools.partial(jit, **options)
            run, state = real(f, **options), {"options": options}

            def call(*a, **k):
                return edit(run, state, *a, **k)

            functools.update_wrapper(call, f, updated=())
            for name in ("lower", "trace", "eval_shape", "clear_cache"):
                setattr(call, name, getattr(run, name))
            return call

        return jit

    return patched(jax, "jit", make)


def zeroed(found: Any) -> Any:
    """Zeros in the place of results."""
    return jax.tree.map(lambda y: y * 0 if isinstance(y, jax.Array) and y.dtype != bool else y, found)


@fault(**SECOND)
def a_call_after_one_that_raised_gives_zeros():
    def edit(run, state, *a, **k):
        try:
            found = run(*a, **k)
        except Exception:
            state["raised"] = True
            raise
        return zeroed(found) if state.pop("raised", False) else found

    return called(edit)


@fault(**SECOND)
def named_arguments_are_taken_in_the_order_of_the_call():
    def edit(run, state, *a, **k):
        if len(k) > 1 and sorted(k) != [*k] and len({jnp.shape(v) for v in k.values()}) == 1:
            k = dict(zip(sorted(k), k.values(), strict=True))
        return run(*a, **k)

    return called(edit)


@fault(**SECOND)
def an_uncommitted_array_after_a_committed_one_gets_its_result():
    def edit(run, state, *a, **k):
        one = len(a) == 1 and isinstance(a[0], jax.Array) and not isinstance(a[0], jax.core.Tracer) and not k
        if one and not a[0].committed and state.get("shape") == (a[0].shape, a[0].dtype):
            return state["found"]
        found = run(*a, **k)
        if one and a[0].committed:
            state.update(shape=(a[0].shape, a[0].dtype), found=found)
        return found

    return called(edit)


@fault(**SECOND)
def what_is_donated_a_second_time_is_kept():
    def edit(run, state, *a, **k):
        given = state["options"].get("donate_argnums")
        if given is None:
            return run(*a, **k)
        state["calls"] = state.get("calls", 0) + 1
        return run(*(jnp.copy(v) if state["calls"] > 1 and isinstance(v, jax.Array) else v for v in a), **k)

    return called(edit)


@fault(**SECOND)
def zeros_of_both_widths_share_a_program():
    def edit(run, state, *a, **k):
        kinds = tuple(str(getattr(v, "dtype", type(v))) for v in jax.tree.leaves((a, k)))
        widths = tuple(s.replace("uint", "int") for s in kinds)
        if state.setdefault(widths, kinds) != kinds and any("int" in s for s in kinds):
            return zeroed(run(*a, **k))
        return run(*a, **k)

    return called(edit)


@fault(**use("contexts"))
def a_function_loses_its_last_result_after_its_cache_was_cleared():
    def make(real):
        return lambda: (real(), CLEARED.append(1))[0]

    def edit(run, state, *a, **k):
        before = state.setdefault("cleared", len(CLEARED))
        return zeroed(run(*a, **k)) if len(CLEARED) > before else run(*a, **k)

    @contextmanager
    def both():
        with patched(jax, "clear_caches", make), called(edit):
            yield

    return both()


CLEARED: list[int] = []


# What an array, a type or a program says of itself.

SAID = {"operations": ("second_use",)}


@fault(**SAID)
def a_loop_makes_weak_numbers_strong():
    def scan(real, f, init, *a, **k):
        return real(f, jax.tree.map(lambda y: lax.convert_element_type(y, jnp.result_type(y)), init), *a, **k)

    return changed(lax, "scan", scan)


@fault(**SAID)
def a_shard_of_a_sharding_has_the_size_of_the_whole():
    return changed(jax.sharding.NamedSharding, "shard_shape", lambda real, self, shape: tuple(shape))


@fault(**SAID)
def two_places_of_one_mesh_are_always_equivalent():
    return changed(jax.sharding.NamedSharding, "is_equivalent_to", lambda real, self, other, ndim: True)


@fault(**SAID)
def an_array_is_never_the_same_on_every_device():
    array = type(jnp.zeros(1))
    return patched(array, "is_fully_replicated", lambda real: property(lambda self: False))


@fault(**form("specs_of_trees", "function_form"))
def the_type_of_a_sum_over_devices_still_varies():
    def psum(real, x, axes, **k):
        found = real(x, axes, **k)
        names = axes if isinstance(axes, tuple) else (axes,)
        try:
            return jax.tree.map(lambda y: lax.pcast(y, names, to="varying"), found)
        except Exception:
            return found

    return changed(lax, "psum", psum)


@fault(**SAID)
def bytes_of_an_array_are_those_of_one_shard():
    array = type(jnp.zeros(1))

    def make(real):
        return property(
            lambda self: sum(s.data.size for s in self.addressable_shards[:1]) * self.dtype.itemsize
        )

    return patched(array, "nbytes", make)


@fault(**SAID)
def a_compiled_program_says_that_its_arguments_are_whole():
    def make(real):
        def shardings(self):
            found = real.fget(self) if isinstance(real, property) else real
            return jax.tree.map(
                lambda s: jax.sharding.NamedSharding(s.mesh, jax.sharding.PartitionSpec()), found
            )

        return property(shardings)

    return patched(jax.stages.Compiled, "input_shardings", make)


# Callbacks.

CALLED = {"operations": ("second_use",)}


@fault(**CALLED)
def an_exception_of_a_callback_is_lost():
    def callback(real, f, like, *a, **k):
        def quiet(*given):
            try:
                return f(*given)
            except Exception:
                return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), like)

        return real(quiet, like, *a, **k)

    return changed(jax, "pure_callback", callback)


@fault(**CALLED)
def a_batch_of_callbacks_one_by_one_goes_from_the_last():
    def callback(real, f, like, *a, vmap_method=None, **k):
        if vmap_method != "sequential":
            return real(f, like, *a, vmap_method=vmap_method, **k)
        turned = [lax.rev(y, (0,)) if y.ndim else y for y in a]
        return real(f, like, *turned, vmap_method=vmap_method, **k)

    return changed(jax, "pure_callback", callback)


@fault(**CALLED)
def a_batch_that_a_callback_takes_whole_has_its_first_row_everywhere():
    def callback(real, f, like, *a, vmap_method=None, **k):
        if vmap_method not in ("expand_dims", "broadcast_all"):
            return real(f, like, *a, vmap_method=vmap_method, **k)

        def first(*given):
            found = f(*given)
            return (
                found if found.ndim == jnp.ndim(like) or not found.ndim else found[:1].repeat(len(found), 0)
            )

        return real(first, like, *a, vmap_method=vmap_method, **k)

    return changed(jax, "pure_callback", callback)


@fault(**CALLED)
def a_callback_in_a_loop_runs_once():
    def callback(real, f, *a, **k):
        ran: list[int] = []

        def once(*given, **named):
            if not ran:
                ran.append(1)
                f(*given, **named)

        return real(once, *a, **k)

    return changed(jax.debug, "callback", callback)


@fault(**CALLED)
def numbers_are_printed_without_their_format():
    def printed(real, text, *a, **k):
        return real(re.sub(r":[^}]*}", "}", text), *a, **k)

    return changed(jax.debug, "print", printed)


# Communication.


@fault(operations=("concatenate",), meshes=("2x4",))
def a_concatenation_goes_through_the_host():
    def concatenate(real, arrays, axis=0, **k):
        found = real(arrays, axis=axis, **k)
        return jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct(found.shape, found.dtype), found)

    return changed(jnp, "concatenate", concatenate)


@fault(operations=("psum",), meshes=("2x4",))
def a_sum_over_devices_goes_through_the_host():
    def psum(real, x, axes, **k):
        found = real(x, axes, **k)
        jax.debug.callback(lambda y: None, found)
        return found

    return changed(lax, "psum", psum)
