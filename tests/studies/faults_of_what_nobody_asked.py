# SPDX-License-Identifier: Apache-2.0
"""Faults in calls that no case made before version 37 of the table: settings that are ignored, options of derivatives,
places and draws that are forgotten, and tools around programs that give another answer."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import jax
import jax.export
import jax.flatten_util
import jax.nn.initializers
import jax.numpy as jnp
import jax.scipy.cluster.vq
import jax.scipy.stats
from jax import lax
from jax.experimental import checkify, scheduling_groups, sparse
from jax.sharding import Mesh, NamedSharding

from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_seldom_options import ignored, without
from tests.studies.planting import fault, patched


def given(owner: Any, name: str, option: str, edit: Any) -> Any:
    """A function whose result becomes `edit(result)` where an option is given."""

    def call(real: Any, *a: Any, **k: Any) -> Any:
        found = real(*a, **k)
        return edit(found) if option in k else found

    return changed(owner, name, call)


# Derivatives, batches and arguments.


@fault(**rule("static_arguments_of_two_values"))
def a_static_argument_is_that_of_the_first_call():
    def jit(real: Any, f: Any = None, **k: Any) -> Any:
        if f is None:
            return functools.partial(jit, real, **k)
        run, first = real(f, **k), []

        @functools.wraps(run)
        def called(*a: Any, **kw: Any) -> Any:
            if a and type(a[0]).__name__ == "Factor":
                first.append(a[0])
                a = (first[0], *a[1:])
            return run(*a, **kw)

        return called

    return changed(jax, "jit", jit)


@fault(**rule("partials_as_arguments"))
def a_partial_that_is_an_argument_loses_its_keywords():
    def partial(real: Any, f: Any, *a: Any, **k: Any) -> Any:
        return real(f, *a, **dict.fromkeys(k, 1.0))

    return patched(jax.tree_util, "Partial", lambda real: functools.partial(partial, real))


@fault(**rule("gradients_beside_each_other"))
def gradients_by_two_functions_come_in_the_order_of_the_arguments():
    def both(real: Any, f: Any, argnums: Any, *a: Any, **k: Any) -> Any:
        return real(f, argnums if isinstance(argnums, int) else tuple(sorted(argnums)), *a, **k)

    return changed(jax, "fwd_and_bwd", both)


@fault(**rule("rules_by_names_of_arguments"))
def arguments_that_are_named_reach_a_rule_in_reverse():
    def custom_vjp(real: Any, f: Any, *a: Any, nondiff_argnames: Any = (), **k: Any) -> Any:
        made, count = real(f, *a, nondiff_argnames=nondiff_argnames, **k), len(nondiff_argnames)
        define = made.defvjp
        made.defvjp = lambda forward, backward, **o: define(
            forward, lambda *b: backward(*b[:count][::-1], *b[count:]), **o
        )
        return made

    return patched(jax, "custom_vjp", lambda real: functools.partial(custom_vjp, real))


@fault(**rule("batches_in_turn"))
def a_batch_in_turn_comes_back_in_reverse():
    def sequential(real: Any, f: Any) -> Any:
        made = real(f)
        run = made.vmap_rule

        def turned(size: int, batched: Any, *a: Any) -> Any:
            found, which = run(size, batched, *a)
            return jax.tree.map(lambda v: v[::-1], found), which

        made.def_vmap(turned)
        return made

    return changed(jax.custom_batching, "sequential_vmap", sequential)


@fault(**rule("what_roots_give_beside"))
def what_a_root_gives_beside_it_is_zero():
    def custom_root(real: Any, *a: Any, has_aux: bool = False) -> Any:
        found = real(*a, has_aux=has_aux)
        return (found[0], jax.tree.map(jnp.zeros_like, found[1])) if has_aux else found

    return changed(lax, "custom_root", custom_root)


@fault(**rule("batches_that_are_summed"))
def a_batch_that_is_to_be_summed_is_averaged():
    def vmap(real: Any, f: Any, *a: Any, sum_match: bool = False, **k: Any) -> Any:
        run = real(f, *a, sum_match=sum_match, **k)
        if not sum_match:
            return run
        return lambda *x: jax.tree.map(lambda v: v / len(jax.tree.leaves(x)[0]), run(*x))

    return changed(jax, "vmap", vmap)


@fault(**rule("derivatives_with_options"))
def what_is_beside_a_forward_jacobian_is_the_next_one():
    def jacfwd(real: Any, f: Any, *a: Any, has_aux: bool = False, **k: Any) -> Any:
        run = real(f, *a, has_aux=has_aux, **k)
        if not has_aux:
            return run
        return lambda *x: (lambda found: (found[0], jnp.roll(found[1], 1)))(run(*x))

    return changed(jax, "jacfwd", jacfwd)


# Settings.


@fault(**rule("tracing_that_is_forbidden"))
def a_program_is_traced_where_tracing_is_forbidden():
    return ignored(jax, "no_tracing")


@fault(**rule("casts_that_are_not_automatic"))
def casts_are_automatic_whatever_is_set():
    return ignored(jax, "auto_pcast")


@fault(**rule("keys_used_twice"))
def a_key_that_is_used_twice_is_accepted():
    return ignored(jax, "debug_key_reuse")


@fault(**rule("ranks_that_may_not_differ"))
def ranks_are_promoted_though_that_should_raise():
    return ignored(jax, "numpy_rank_promotion")


@fault(**rule("axes_of_one_device_in_types"))
def types_keep_axes_of_one_device():
    return ignored(jax, "remove_size_one_mesh_axis_from_type")


@fault(**rule("executions_that_are_forbidden"))
def a_program_runs_where_execution_is_forbidden():
    return ignored(jax, "no_execution")


@fault(**rule("guards_of_one_direction"))
def a_put_is_allowed_under_its_guard():
    return ignored(jax, "transfer_guard_host_to_device")


@fault(**rule("collectives_that_are_forbidden"))
def a_region_sends_where_collectives_are_forbidden():
    if not hasattr(jax.sharding, "no_collectives"):  # JAX before 0.12
        return contextlib.nullcontext()
    return ignored(jax.sharding, "no_collectives")


@fault(**rule("contexts_of_users"))
def a_context_of_the_user_is_no_part_of_the_key_of_a_program():
    class Context:
        def __init__(self, value: Any) -> None:
            self.value = value

        @contextlib.contextmanager
        def __call__(self, value: Any) -> Any:
            before, self.value = self.value, value
            try:
                yield
            finally:
                self.value = before

    return changed(jax, "make_user_context", lambda real, default_value=None: Context(default_value))


@fault(**rule("stored_programs_of_one_name"))
def programs_of_one_name_are_one():
    def jit(real: Any, f: Any = None, **k: Any) -> Any:
        if (
            f is None
            or getattr(f, "__name__", "") != "<lambda>"
            or f.__qualname__.split(".")[0] != "_stored_programs_of_one_name"
        ):
            return real(f, **k) if f is not None else real(**k)
        first.setdefault(f.__qualname__, f)
        return real(first[f.__qualname__], **k)

    first: dict[str, Any] = {}
    return changed(jax, "jit", jit)


# Places, draws and trees.


@fault(**rule("places_that_options_name"))
def a_permutation_forgets_its_place():
    return without(jax.random, "permutation", "out_sharding")


@fault(**rule("places_that_options_name"))
def filled_arrays_forget_their_place():
    return without(lax, "full", "sharding")


@fault(**rule("places_of_more_functions"))
def a_percentile_forgets_its_place():
    return without(jnp, "percentile", "out_sharding")


@fault(**rule("draws_at_a_place"))
def a_draw_of_rayleigh_at_a_place_is_another_one():
    return given(jax.random, "rayleigh", "out_sharding", lambda found: found * 1.01)


@fault(**rule("first_weights"))
def first_weights_of_kaiming_have_the_spread_of_lecun():
    return changed(
        jax.nn.initializers, "kaiming_normal", lambda real, *a, **k: jax.nn.initializers.lecun_normal(*a, **k)
    )


@fault(**rule("dtypes_of_draws"))
def a_geometric_draw_forgets_its_dtype():
    return without(jax.random, "geometric", "dtype")


@fault(**rule("segments_with_options"))
def far_segments_are_clipped():
    def segment_max(real: Any, data: Any, ids: Any, count: int, *a: Any, mode: Any = None, **k: Any) -> Any:
        return real(data, ids, count, *a, mode="clip" if mode == "drop" else mode, **k)

    return changed(jax.ops, "segment_max", segment_max)


@fault(**rule("what_arrays_say_of_themselves"))
def live_arrays_leave_out_those_over_several_devices():
    return changed(
        jax, "live_arrays", lambda real, *a: [x for x in real(*a) if len(x.sharding.device_set) == 1]
    )


@fault(**rule("what_arrays_say_of_themselves"))
def joined_axes_are_told_to_be_replicated():
    def replicated(place: Any) -> frozenset[str]:
        return frozenset(place.mesh.axis_names) - {e for e in place.spec if isinstance(e, str)}

    return patched(NamedSharding, "replicated_axes", lambda real: property(replicated))


@fault(**rule("arrays_of_the_host"))
def an_array_of_dlpack_for_a_device_goes_to_the_first():
    return without(jnp, "from_dlpack", "device")


@fault(**rule("trees_with_paths"))
def a_flat_tree_comes_back_in_reverse():
    def ravel(real: Any, tree: Any) -> Any:
        flat, back = real(tree)
        return flat[::-1], back

    return changed(jax.flatten_util, "ravel_pytree", ravel)


# Tools.


@fault(**rule("sparse_matrices"))
def a_sparse_matrix_of_a_dense_one_is_transposed():
    def from_dense(real: Any, m: Any, **k: Any) -> Any:
        return real(m, **k) if k else real(m.T)

    return changed(sparse.BCOO, "fromdense", from_dense)


@fault(**rule("foreign_calls_in_batches"))
def a_foreign_call_that_takes_batches_is_called_in_turn():
    def ffi_call(real: Any, *a: Any, vmap_method: Any = None, **k: Any) -> Any:
        return real(*a, vmap_method="sequential" if vmap_method == "broadcast_all" else vmap_method, **k)

    return changed(jax.ffi, "ffi_call", ffi_call)


@fault(**rule("callbacks_of_parts"))
def a_callback_of_parts_gets_the_whole_array():
    return without(jax.debug, "callback", "partitioned")


@fault(**rule("groups_for_the_scheduler"))
def a_group_for_the_scheduler_is_forgotten():
    return changed(scheduling_groups, "scheduling_group", lambda real, name: lambda f: f)


@fault(**rule("estimates_of_what_is_sent"))
def an_estimate_of_what_is_sent_leaves_out_the_axis():
    try:
        from jax.experimental import roofline
    except ImportError:  # JAX 0.10 needs absl for it
        return contextlib.nullcontext()

    def estimate(real: Any, *a: Any, **k: Any) -> Any:
        run = real(*a, **k)

        def called(*x: Any) -> Any:
            kinds, found = run(*x)
            found.ici_bytes.clear()
            return kinds, found

        return called

    return changed(roofline, "roofline", estimate)


@fault(**rule("meshes_of_one_process"))
def the_mesh_of_one_process_turns_its_devices():
    def local(mesh: Any) -> Any:
        return Mesh(mesh.devices[::-1], mesh.axis_names, axis_types=mesh.axis_types)

    return patched(Mesh, "local_mesh", lambda real: property(local))


@fault(**rule("checks_inside_of_programs"))
def a_check_in_a_program_is_never_told():
    return changed(checkify, "debug_check", lambda real, *a, **k: None)


@fault(**rule("sizes_with_bounds"))
def bounds_of_exported_sizes_are_forgotten():
    def symbolic_shape(real: Any, *a: Any, constraints: Any = (), **k: Any) -> Any:
        return real(*a, **k)

    return changed(jax.export, "symbolic_shape", symbolic_shape)


@fault(**rule("seldom_functions"))
def the_last_of_equal_numbers_counts_as_the_first():
    def top_k(real: Any, x: Any, k: int, **o: Any) -> Any:
        values, places = real(x[..., ::-1], k, **o)
        return values, x.shape[-1] - 1 - places

    return changed(lax, "top_k", top_k)


@fault(operations=("update_below",), modes=("auto",))
def an_update_from_below_is_written_one_row_later():
    def update(real: Any, x: Any, update: Any, start: Any, **k: Any) -> Any:
        return real(x, update, tuple(s + 2 for s in start), **k)

    return changed(lax, "dynamic_update_slice", update)


@fault(operations=("row_convolution",), modes=("auto",))
def a_convolution_of_a_row_takes_the_kernel_as_it_is():
    return changed(jnp, "convolve", lambda real, x, k, *a, **o: real(x, k[::-1], *a, **o))


@fault(**rule("functions_of_trees"))
def a_tree_is_reduced_from_its_end():
    def reduced(real: Any, f: Any, tree: Any, *a: Any, **k: Any) -> Any:
        return real(lambda v, w: f(w, v), tree, *a, **k)

    return changed(jax.tree_util, "tree_reduce", reduced)


@fault(**rule("axes_of_first_weights"))
def first_weights_count_the_axes_of_a_batch():
    return without(jax.nn.initializers, "he_uniform", "batch_axis")


@fault(**rule("options_of_meshes"))
def a_mesh_with_split_axes_has_one_device_twice():
    from jax.experimental import mesh_utils

    def made(real: Any, *a: Any, **k: Any) -> Any:
        found = real(*a, **k)
        if k.get("allow_split_physical_axes"):
            found = found.copy()
            found.flat[0] = found.flat[-1]
        return found

    return changed(mesh_utils, "create_device_mesh", made)


@fault(**rule("options_of_foreign_calls"))
def a_foreign_call_forgets_its_aliases():
    return without(jax.ffi, "ffi_call", "input_output_aliases")


@fault(**rule("printed_parts"))
def a_print_of_parts_prints_the_whole_array():
    return without(jax.debug, "print", "partitioned")


@fault(**rule("exported_platforms"))
def an_exported_program_is_for_this_platform_alone():
    def exported(real: Any, f: Any, *a: Any, platforms: Any = None, **k: Any) -> Any:
        return real(f, *a, **k)

    return changed(jax.export, "export", exported)


@fault(**rule("functions_of_sparse_matrices"))
def a_part_of_a_sparse_matrix_starts_at_its_first_row():
    def part(real: Any, m: Any, *, start_indices: Any, **k: Any) -> Any:
        return real(m, start_indices=(0, *start_indices[1:]), **k)

    return changed(sparse, "bcoo_slice", part)


@fault(**rule("copies_of_aligned_arrays"))
def a_copy_is_one_number_short():
    return changed(jnp, "copy", lambda real, a, *r, **k: real(a, *r, **k).at[-1].set(0))
