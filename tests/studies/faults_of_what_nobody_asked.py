# SPDX-License-Identifier: Apache-2.0
"""Faults in calls and options that no case used before version 37 of the table: settings that are ignored, options that
are forgotten, and functions of `jax.scipy` and `jax.lax.linalg` with another answer."""

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
import numpy as np
from jax import lax
from jax.experimental import checkify, jet, ode, scheduling_groups, sparse
from jax.sharding import Mesh, NamedSharding

from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed, form
from tests.studies.planting import fault, patched


def library(name: str) -> dict[str, Any]:
    """The case of one form of library functions."""
    return form(name, "library_form")


def ignored(owner: Any, name: str) -> Any:
    """A setting that changes nothing."""
    return patched(owner, name, lambda real: lambda *a, **k: contextlib.nullcontext())


def without(owner: Any, name: str, *options: str) -> Any:
    """A function that forgets these options."""

    def call(real: Any, *a: Any, **k: Any) -> Any:
        return real(*a, **{key: value for key, value in k.items() if key not in options})

    return changed(owner, name, call)


def given(owner: Any, name: str, option: str, edit: Any) -> Any:
    """A function whose result becomes `edit(result)` where an option is given."""

    def call(real: Any, *a: Any, **k: Any) -> Any:
        found = real(*a, **k)
        return edit(found) if option in k else found

    return changed(owner, name, call)


# Library functions.


@fault(**library("special_of_one"))
def a_normal_quantile_below_the_middle_loses_its_sign():
    return changed(jax.scipy.special, "ndtri", lambda real, p: jnp.where(p < 0.5, abs(real(p)), real(p)))


@fault(**library("special_of_one"))
def an_entropy_is_that_of_the_natural_logarithm_of_twice_the_number():
    return changed(jax.scipy.special, "entr", lambda real, x: real(x) - x * np.float32(np.log(2)))


@fault(**library("special_of_several"))
def a_rising_factorial_is_falling():
    return changed(jax.scipy.special, "poch", lambda real, z, m: real(z - m + 1, m))


@fault(**library("special_of_several"))
def a_box_cox_transform_takes_the_power_of_its_neighbour():
    return changed(jax.scipy.special, "boxcox", lambda real, x, lam: real(x, jnp.roll(lam, 1, -1)))


@fault(**library("made_matrices"))
def a_circulant_matrix_turns_the_other_way():
    return changed(jax.scipy.linalg, "circulant", lambda real, c: real(c).T)


@fault(**library("made_matrices"))
def a_companion_matrix_is_not_divided_by_the_first_coefficient():
    return changed(jax.scipy.linalg, "companion", lambda real, a: real(a.at[0].set(1)))


@fault(**library("decompositions"))
def the_square_root_of_a_matrix_in_a_batch_is_doubled():
    return changed(jax.scipy.linalg, "sqrtm", lambda real, a, *r: 2 * real(a, *r))


@fault(**library("decompositions"))
def a_polar_factor_of_the_left_is_that_of_the_right():
    return changed(jax.scipy.linalg, "polar", lambda real, a, side="right", **k: real(a, "right", **k))


@fault(**library("factors"))
def the_permutation_of_pivots_is_its_inverse():
    return changed(lax.linalg, "lu_pivots_to_permutation", lambda real, p, n: jnp.argsort(real(p, n), -1))


@fault(**library("factors"))
def the_sign_of_a_determinant_by_qr_forgets_reflections():
    def slogdet(real: Any, a: Any, *, method: Any = None) -> Any:
        found = real(a, method=method)
        return type(found)(abs(found[0]), found[1]) if method == "qr" else found

    return changed(jnp.linalg, "slogdet", slogdet)


@fault(**library("factors"))
def a_symmetric_product_forgets_what_is_added():
    return changed(lax.linalg, "symmetric_product", lambda real, a, c, **k: real(a, jnp.zeros_like(c), **k))


@fault(**library("spectra"))
def a_short_time_transform_forgets_its_window():
    return without(jax.scipy.signal, "stft", "window")


@fault(**library("spectra"))
def a_power_spectrum_is_a_density_whatever_is_asked():
    return without(jax.scipy.signal, "welch", "scaling")


@fault(**library("equations"))
def a_differential_equation_ends_early():
    return changed(ode, "odeint", lambda real, f, y, t, *a, **k: real(f, y, t * 0.95, *a, **k))


@fault(**library("equations"))
def the_second_coefficient_of_a_taylor_series_is_halved():
    def series(real: Any, *a: Any, **k: Any) -> Any:
        first, rest = real(*a, **k)
        return first, [rest[0], *(v / 2 for v in rest[1:])]

    return changed(jet, "jet", series)


@fault(**library("loops_in_checked_regions"))
def an_update_of_a_cholesky_factor_in_a_checked_region_is_left_out():
    return changed(lax.linalg, "cholesky_update", lambda real, r, w: r)


# Seldom options.


@fault(**library("options_of_reductions"))
def a_variance_about_a_given_mean_is_about_its_own():
    return without(jnp, "var", "mean")


@fault(**library("options_of_reductions"))
def a_correction_of_a_deviation_is_forgotten():
    return without(jnp, "std", "correction")


@fault(**library("options_of_reductions"))
def a_mean_of_exponentials_of_some_divides_by_all():
    def logmeanexp(real: Any, x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
        found = real(x, axis=axis, where=where, keepdims=keepdims)
        if where is None:
            return found
        count = jnp.broadcast_to(where, x.shape).sum(axis, keepdims=keepdims)
        return found + jnp.log(count * found.size / x.size)

    return changed(jax.nn, "logmeanexp", logmeanexp)


@fault(**library("options_of_reductions"))
def a_cumulative_product_forgets_its_first_one():
    def cumulative(real: Any, x: Any, *, include_initial: bool = False, **k: Any) -> Any:
        found = real(x, include_initial=include_initial, **k)
        return jnp.roll(found, -1, k.get("axis", 0)) if include_initial else found

    return changed(jnp, "cumulative_prod", cumulative)


@fault(**library("options_of_searches"))
def a_density_of_two_dimensions_is_a_count():
    return without(jnp, "histogram2d", "density")


@fault(**library("options_of_searches"))
def bins_that_are_found_by_sorting_close_on_the_other_side():
    def digitize(real: Any, x: Any, bins: Any, right: bool = False, *, method: Any = None) -> Any:
        return real(jnp.nextafter(x, x + 1) + 0.3 if method == "sort" else x, bins, right, method=method)

    return changed(jnp, "digitize", digitize)


@fault(**library("options_of_makers"))
def powers_of_an_asked_base_are_powers_of_ten():
    return without(jnp, "logspace", "base")


@fault(**library("options_of_makers"))
def an_end_that_is_left_out_is_there():
    return without(jnp, "geomspace", "endpoint")


@fault(**library("options_of_products"))
def a_product_along_a_dimension_forgets_the_wider_dtype():
    def vecdot(real: Any, a: Any, b: Any, /, *, preferred_element_type: Any = None, **k: Any) -> Any:
        found = real(a, b, **k)
        return found if preferred_element_type is None else found.astype(preferred_element_type)

    return changed(jnp, "vecdot", vecdot)


@fault(**library("options_of_products"))
def a_fit_forgets_its_weights():
    def polyfit(real: Any, x: Any, y: Any, deg: int, *a: Any, w: Any = None, **k: Any) -> Any:
        found = real(x, y, deg, *a, w=w, **k)
        return found if w is None else jax.tree.map(lambda v: v * w.mean(), found)

    return changed(jnp, "polyfit", polyfit)


@fault(**library("options_of_products"))
def small_values_count_in_a_pseudoinverse():
    return without(jnp.linalg, "pinv", "rtol")


@fault(**library("options_of_slices"))
def a_start_that_is_not_to_wrap_wraps():
    return without(lax, "dynamic_slice_in_dim", "allow_negative_indices")


@fault(**library("options_of_slices"))
def a_difference_at_places_that_are_promised_is_a_sum():
    def scatter(
        real: Any, x: Any, places: Any, updates: Any, numbers: Any, *, unique_indices: bool = False, **k: Any
    ) -> Any:
        return real(
            x, places, -updates if unique_indices else updates, numbers, unique_indices=unique_indices, **k
        )

    return changed(lax, "scatter_sub", scatter)


@fault(**library("options_of_slices"))
def a_gather_fills_with_nan_whatever_is_asked():
    return without(lax, "gather", "fill_value")


@fault(**library("options_of_values"))
def a_product_of_elements_in_a_wider_dtype_wraps_first():
    def mul(real: Any, x: Any, y: Any, *, out_dtype: Any = None, **k: Any) -> Any:
        found = real(x, y, **k)
        return found if out_dtype is None else found.astype(out_dtype)

    return changed(lax, "mul", mul)


@fault(**library("options_of_values"))
def the_largest_by_approximation_are_along_the_last_dimension():
    def approx(real: Any, x: Any, k: int, reduction_dimension: int = -1, **options: Any) -> Any:
        if reduction_dimension in (-1, x.ndim - 1):
            return real(x, k, reduction_dimension, **options)
        return real(x[:k], k, reduction_dimension, **options)

    return changed(lax, "approx_max_k", approx)


@fault(**library("options_of_images"))
def attention_forgets_the_lengths_of_queries():
    return without(jax.nn, "dot_product_attention", "query_seq_lengths")


@fault(**library("options_of_images"))
def patches_forget_their_holes():
    def patches(real: Any, x: Any, shape: Any, *a: Any, rhs_dilation: Any = None, **k: Any) -> Any:
        found = real(x, shape, *a, rhs_dilation=rhs_dilation, **k)
        return found if rhs_dilation is None else jnp.roll(found, 1, 2)

    return changed(lax, "conv_general_dilated_patches", patches)


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


# Options from the list of what is spelled.


@fault(**library("options_of_spectra"))
def a_spectrum_by_medians_is_one_by_means():
    return without(jax.scipy.signal, "welch", "average")


@fault(**library("options_of_spectra"))
def a_transform_of_a_size_is_that_of_the_whole_row():
    return without(jnp.fft, "rfft", "n")


@fault(**library("options_of_matrices"))
def eigenvalues_by_number_are_all_of_them():
    return without(jax.scipy.linalg, "eigh_tridiagonal", "select", "select_range")


@fault(**library("options_of_matrices"))
def a_derivative_of_an_exponential_is_that_in_the_transposed_direction():
    return changed(jax.scipy.linalg, "expm_frechet", lambda real, a, e, **k: real(a, e.T if k else e, **k))


@fault(**library("options_of_solvers"))
def a_solver_returns_its_start():
    return changed(jax.scipy.sparse.linalg, "bicgstab", lambda real, a, b, x0=None, **k: (x0, None))


@fault(**library("options_of_special"))
def combinations_forget_repetition():
    return without(jax.scipy.special, "comb", "repetition")


@fault(**library("more_options_of_values"))
def a_moved_image_forgets_its_last_move():
    def moved(real: Any, image: Any, shape: Any, dims: Any, scale: Any, shift: Any, *a: Any, **k: Any) -> Any:
        return real(image, shape, dims, scale, shift.at[-1].set(0), *a, **k)

    return changed(jax.image, "scale_and_translate", moved)


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
