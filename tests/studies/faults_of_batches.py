# SPDX-License-Identifier: Apache-2.0
"""Faults of the small rules of batches and results: dimensions of vmap, cotangents, kept names, commitment, weak types,
places of results, padding, orders and signs."""

from contextlib import ExitStack, contextmanager

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_small_rules import rule
from tests.studies.planting import fault

# Batches.


@fault(**rule("dims_of_vmap"))
def a_batch_that_goes_to_the_end_is_last_but_one():
    def call(real, f, in_axes=0, out_axes=0, **options):
        def moved(x):
            return jnp.swapaxes(x, -1, -2) if x.ndim > 1 else x

        mapped = real(f, in_axes, out_axes, **options)
        last = out_axes[0] if isinstance(out_axes, tuple) else out_axes
        return mapped if last != -1 else lambda *a: jax.tree.map(moved, mapped(*a))

    return changed(jax, "vmap", call)


@fault(**rule("constraints_in_batches"))
def a_constraint_of_a_row_gathers_it():
    def call(real, x, place):
        return real(x, NamedSharding(place.mesh, PartitionSpec()) if x.ndim == 1 else place)

    return changed(lax, "with_sharding_constraint", call)


@fault(**rule("cotangents_of_constraints"))
def the_cotangent_of_a_constraint_lies_anywhere():
    def call(real, x, place):
        @jax.custom_vjp
        def constrained(v):
            return real(v, place)

        constrained.defvjp(lambda v: (real(v, place), None), lambda _, g: (g,))
        return constrained(x)

    return changed(lax, "with_sharding_constraint", call)


@fault(**rule("carries_of_lanes"))
def lanes_that_ended_count_on_in_half_precision():
    def call(real, cond, body, init):
        def late(x):
            return x + jnp.ones((), x.dtype) if x.dtype == jnp.float16 else x

        return jax.tree.map(late, real(cond, body, init))

    return changed(lax, "while_loop", call)


@fault(**rule("regions_of_some_axes"))
def the_place_on_some_axes_counts_from_the_end():
    def call(real, axis_name):
        mesh = jax.sharding.get_abstract_mesh()
        partly = mesh.manual_axes and set(mesh.manual_axes) != set(mesh.axis_names)
        return lax.axis_size(axis_name) - 1 - real(axis_name) if partly else real(axis_name)

    return changed(lax, "axis_index", call)


@fault(**rule("subnormals_of_two_bytes"))
def a_sum_of_halves_flushes_small_numbers():
    def call(real, x, axes, **options):
        if hasattr(x, "dtype") and x.dtype == jnp.float16:
            x = jnp.where(abs(x) < jnp.float16(6.1e-5), jnp.zeros_like(x), x)
        return real(x, axes, **options)

    return changed(lax, "psum", call)


@fault(**rule("kept_names"))
def a_policy_of_two_names_keeps_the_first():
    def call(real, *names):
        return real(*names[:1])

    return changed(jax.checkpoint_policies, "save_only_these_names", call)


# Results.


@fault(**rule("results_given_twice"))
def a_tree_of_results_lies_as_its_first_part():
    def call(real, f, **options):
        there = options.get("out_shardings")
        if isinstance(there, tuple) and len(there) == 2 and isinstance(there[1], dict) and there[0]:
            options["out_shardings"] = (there[0], {name: there[0] for name in there[1]})
        return real(f, **options)

    return changed(jax, "jit", call)


@fault(**rule("specs_before_a_run"))
def shapes_forget_where_they_lie():
    def call(real, f, *arguments):
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype), real(f, *arguments))

    return changed(jax, "eval_shape", call)


@fault(**rule("filled_with_arrays"))
def what_is_filled_with_an_array_lies_on_one_device():
    def call(real, shape, fill, dtype=None, *, device=None, **options):
        return real(shape, fill, dtype, device=None if np.ndim(fill) else device, **options)

    return changed(jnp, "full", call)


@fault(**rule("shapes_of_gathers"))
def a_gathered_number_has_no_dimension():
    def call(real, value, tiled=False):
        found = real(value, tiled=tiled)
        return found[0] if np.ndim(value) == 0 else found

    return changed(multihost_utils, "process_allgather", call)


@fault(**rule("keywords_of_pmap"))
def pmap_cuts_keywords_as_its_arguments():
    def call(real, f, in_axes=0, **options):
        run = real(f, in_axes=in_axes, **options)
        turned = in_axes if isinstance(in_axes, int) else 0
        return lambda *a, **k: run(*a, **{n: jnp.moveaxis(v, turned, 0) for n, v in k.items()})

    return changed(jax, "pmap", call)


@fault(**rule("padding_words"))
def the_odd_row_of_padding_comes_first():
    def call(real, x, kernel, window_strides, padding, **options):
        word = "SAME_LOWER" if padding == "SAME" else padding
        return real(x, kernel, window_strides, word, **options)

    return changed(lax, "conv_general_dilated", call)


@fault(**rule("orders_with_ties"))
def ties_in_descending_order_are_turned():
    def call(real, x, axis=-1, *, descending=False, **options):
        y = real(x, axis, **options)
        return jnp.flip(y, axis) if descending else y

    return changed(jnp, "argsort", call)


@fault(**rule("turned_dimensions"))
def arrays_of_rank_five_flip_their_first_dimension_alone():
    def call(real, x, axis=None):
        several = isinstance(axis, tuple) and x.ndim == 5
        return real(x, axis[0] if several else axis)

    return changed(jnp, "flip", call)


@fault(**rule("edges_of_functions"))
def a_clamp_of_nan_is_the_lower_limit():
    def call(real, low, x, high):
        return real(low, jnp.where(jnp.isnan(x), low, x), high)

    return changed(lax, "clamp", call)


@contextmanager
def _replaced(cls, **properties):
    with ExitStack() as stack:
        for name, make in properties.items():
            real = getattr(cls, name)
            setattr(cls, name, make(real))
            stack.callback(setattr, cls, name, real)
        yield


@fault(**rule("shardings_of_size_one"))
def a_sharding_over_an_axis_of_one_is_not_whole():
    def make(real):
        def whole(self):
            named = any(part is not None for part in self.spec)
            return not named if self.mesh.size > 1 else real.__get__(self)

        return property(whole)

    return _replaced(NamedSharding, is_fully_replicated=make)
