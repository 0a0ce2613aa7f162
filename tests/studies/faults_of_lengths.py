# SPDX-License-Identifier: Apache-2.0
"""Faults of a fifteenth list that was written without a look at the table, which no case showed at first: of long and
empty blocks, many dimensions and leaves, threads, programs made ahead of time, and results that are told before."""

from __future__ import annotations

import functools
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.studies.faults_of_answers import rule
from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_ties_and_ends import both
from tests.studies.planting import fault


@fault(**rule("long_blocks"))
def the_end_of_a_long_sum_is_of_one_device():
    def psum(real, x, axis_name, **k):
        def cut(leaf):
            if not hasattr(leaf, "shape") or leaf.size <= 2**18 or k.get("axis_index_groups"):
                return leaf
            inside = jnp.arange(leaf.size).reshape(leaf.shape) < leaf.size // 2**16 * 2**16
            return jnp.where(inside | (lax.axis_index(axis_name) == 0), leaf, jnp.zeros((), leaf.dtype))

        return real(jax.tree.map(cut, x), axis_name, **k)

    return changed(lax, "psum", psum)


@fault(**rule("blocks_of_rank_four"))
def an_exchange_along_a_fourth_dimension_is_reversed():
    def all_to_all(real, x, axis_name, split_axis, concat_axis, **k):
        if k.get("tiled") and split_axis >= 3 and isinstance(axis_name, str):
            size = lax.axis_size(axis_name)
            parts = jnp.split(x, size, split_axis)
            x = jnp.concatenate(parts[::-1], split_axis)
        return real(x, axis_name, split_axis, concat_axis, **k)

    return changed(lax, "all_to_all", all_to_all)


@fault(**rule("empty_blocks"))
def a_gather_of_nothing_is_refused():
    def all_gather(real, x, axis_name, **k):
        if any(0 in getattr(leaf, "shape", ()) for leaf in jax.tree.leaves(x)):
            raise ValueError("no elements to gather")
        return real(x, axis_name, **k)

    return changed(lax, "all_gather", all_gather)


@fault(**rule("groups_of_any_size"))
def a_ring_of_an_odd_number_of_devices_stands_still():
    def ppermute(real, x, axis_name, perm):
        pairs = list(perm)
        n = len(pairs)
        if n >= 5 and n % 2 and all((b - a) % n == 1 for a, b in pairs):
            return x
        return real(x, axis_name, pairs)

    return changed(lax, "ppermute", ppermute)


@fault(**rule("slopes_of_pooling"))
def the_slope_of_a_pooled_maximum_goes_to_the_last_of_equals():
    def reduce_window(real, x, init, op, dims, strides, padding, *a, **k):
        if op is lax.max and padding == "VALID" and tuple(dims) == tuple(strides):
            turned = lax.rev(x, tuple(range(x.ndim)))
            if all(n % d == 0 for n, d in zip(x.shape, dims, strict=True)):
                return lax.rev(real(turned, init, op, dims, strides, padding, *a, **k), tuple(range(x.ndim)))
        return real(x, init, op, dims, strides, padding, *a, **k)

    return changed(lax, "reduce_window", reduce_window)


@fault(**rule("long_dimensions"))
def places_of_uint8_are_signed_in_a_long_dimension():
    def take(real, a, indices, axis=None, **k):
        if getattr(indices, "dtype", None) == np.uint8 and axis is not None and a.shape[axis] > 256:
            indices = lax.bitcast_convert_type(jnp.asarray(indices), jnp.int8)
        return real(a, indices, axis=axis, **k)

    return changed(jnp, "take", take)


@fault(**rule("memories_of_specs"))
def another_memory_keeps_the_first_of_several_axes():
    def with_memory_kind(real, self, kind):
        moved = real(self, kind)
        first = (part[0] if isinstance(part, tuple) and len(part) > 1 else part for part in moved.spec)
        return moved.update(spec=P(*first))

    return changed(NamedSharding, "with_memory_kind", with_memory_kind)


@fault(**rule("slopes_with_options_of_checkpoint"))
def a_checkpoint_without_prevent_cse_saves_half_of_the_bits():
    def checkpoint(real, f, **k):
        kept = real(f, **k)
        if k.get("prevent_cse", True):
            return kept

        def rounded(x):
            if getattr(x, "dtype", None) != jnp.float32:
                return x
            return x + lax.stop_gradient(x.astype(jnp.bfloat16).astype(x.dtype) - x)

        @functools.wraps(f)
        def call(*args):
            near, exact = kept(*jax.tree.map(rounded, args)), f(*args)
            return jax.tree.map(lambda a, b: a + lax.stop_gradient(b - a), near, exact)

        return call

    return changed(jax, "checkpoint", checkpoint)


@fault(**rule("batches_over_axes"))
def a_batch_of_another_dimension_loses_its_axis():
    def vmap(real, f, in_axes=0, *a, **k):
        if any(axis not in (0, None) for axis in jax.tree.leaves(in_axes)):
            k.pop("spmd_axis_name", None)
        return real(f, in_axes, *a, **k)

    return changed(jax, "vmap", vmap)


@fault(**rule("told_of_several"))
def several_results_are_told_without_their_places():
    def eval_shape(real, f, *a, **k):
        leaves, tree = jax.tree.flatten(real(f, *a, **k))
        if len(leaves) > 1:
            leaves = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in leaves]
        return jax.tree.unflatten(tree, leaves)

    return changed(jax, "eval_shape", eval_shape)


@fault(**rule("rows_past_the_groups"))
def rows_past_the_last_group_are_of_the_last_group():
    def ragged_dot(real, lhs, rhs, group_sizes, *a, **k):
        sizes = jnp.asarray(group_sizes)
        spare = lhs.shape[0] - sizes.sum()
        return real(lhs, rhs, sizes.at[-1].add(spare.astype(sizes.dtype)), *a, **k)

    return changed(lax, "ragged_dot", ragged_dot)


def _repeated(real, key, shape=(), *a, **k):
    out = real(key, shape, *a, **k)
    if out.size <= 2**16 or out.size % 2:
        return out
    half = out.reshape(-1)[: out.size // 2]
    return jnp.concatenate([half, half]).reshape(out.shape)


@fault(**rule("long_draws"))
def a_long_draw_is_drawn_by_halves():
    return both(changed(jax.random, "bits", _repeated), changed(jax.random, "uniform", _repeated))


@fault(**rule("odd_shards"))
def the_last_of_an_odd_number_of_half_bytes_is_lost():
    def put(real, x, device=None, **k):
        if isinstance(device, NamedSharding) and getattr(x, "dtype", None) in (jnp.int4, jnp.uint4):
            count = int(np.prod(device.shard_shape(x.shape)))
            if count % 2 and x.ndim == 1 and isinstance(x, np.ndarray):
                x = x.copy()
                x[count - 1 :: count] = 0
        return real(x, device, **k)

    return changed(jax, "device_put", put)


@fault(**rule("in_threads"))
def what_another_thread_puts_is_on_every_device():
    def put(real, x, device=None, **k):
        if isinstance(device, NamedSharding) and threading.current_thread() is not threading.main_thread():
            device = NamedSharding(device.mesh, P())
        return real(x, device, **k)

    return changed(jax, "device_put", put)


def _wrapped(before):
    """jax.jit whose functions see their arguments through `before(state, args, kwargs)`."""

    def jit(real, f=None, **k):
        if f is None:
            return lambda g: jit(real, g, **k)
        inner, state = real(f, **k), {}
        if k.keys() - {"out_shardings"}:
            return inner

        class Call:
            def __call__(self, *args, **named):
                return inner(*before(state, args), **named)

            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

        return functools.update_wrapper(Call(), f)

    return jit


@fault(**rule("after_other_types"))
def a_number_makes_later_numbers_weak():
    def before(seen, args):
        found = []
        for k, one in enumerate(args):
            if type(one) is float:
                seen[k] = True
            elif seen.get(k) and getattr(one, "dtype", None) == np.float32 and np.ndim(one) == 0:
                one = float(one) if not isinstance(one, jax.core.Tracer) else one
            found.append(one)
        return found

    return changed(jax, "jit", _wrapped(before))


@fault(**rule("specs_by_name"))
def specs_of_arguments_are_in_the_order_of_a_dictionary():
    def shard_map(real, f=None, **k):
        def fix(given):
            if isinstance(given, dict):
                return {name: fix(v) for name, v in zip(sorted(given), given.values(), strict=True)}
            return tuple(map(fix, given)) if type(given) is tuple else given

        return real(f, **{**k, "in_specs": fix(k["in_specs"])}) if "in_specs" in k else real(f, **k)

    return changed(jax, "shard_map", shard_map)


@fault(**rule("many_leaves"))
def the_last_two_of_many_arguments_are_exchanged():
    def before(_, args):
        leaves, tree = jax.tree.flatten(args)
        if len(leaves) > 100 and np.shape(leaves[-1]) == np.shape(leaves[-2]):
            leaves[-2:] = leaves[:-3:-1]
        return jax.tree.unflatten(tree, leaves)

    return changed(jax, "jit", _wrapped(before))


@fault(**rule("bounds_of_exported_sizes"))
def the_bounds_of_free_sizes_are_dropped():
    def symbolic_shape(real, spec, *, constraints=(), **k):
        return real(spec, constraints=[one for one in constraints if not set(one) & set("<>")], **k)

    return changed(export, "symbolic_shape", symbolic_shape)


@fault(**rule("eager_regions_of_some_axes"))
def a_region_of_some_axes_that_runs_eagerly_has_one_index():
    def axis_index(real, name):
        found = real(name)
        manual = getattr(jax.sharding.get_abstract_mesh(), "manual_axes", ())
        eager = not isinstance(found, jax.core.Tracer) or "DynamicJaxprTracer" not in type(found).__name__
        return found * 0 if eager and len(manual) == 1 else found

    return changed(lax, "axis_index", axis_index)


@fault(**rule("symbolic_zeros_in_regions"))
def the_slope_of_a_custom_tangent_in_a_region_is_doubled():
    def grad(real, f, argnums=0, **k):
        made = real(f, argnums, **k)
        if argnums != 0:
            return made

        def call(*args):
            text = str(jax.make_jaxpr(f)(*args))
            found = made(*args)
            return found * 2 if "custom_jvp_call" in text and "shard_map" in text else found

        return call

    return changed(jax, "grad", grad)


@fault(**rule("typed_references"))
def a_reference_over_explicit_axes_is_read_unsharded():
    def typeof(real, x):
        found = real(x)
        sharding = getattr(found, "sharding", None)
        if isinstance(x, jax.core.Tracer) and sharding is not None and "get" in str(getattr(x, "parent", "")):
            return jax.core.ShapedArray(found.shape, found.dtype)
        return found

    return changed(jax, "typeof", typeof)


@fault(**rule("keys_called_back"))
def a_callback_gets_the_first_key_alone():
    def callback(real, f, *args, **k):
        def zero(one):
            keys = isinstance(one, jax.Array) and jnp.issubdtype(one.dtype, jax.dtypes.prng_key)
            return jax.tree.map(lambda _: jax.random.split(jax.random.key(5), 1), one) if keys else one

        return real(f, *map(zero, args), **k)

    return changed(jax.debug, "callback", callback)


@fault(**rule("sums_of_numbers"))
def a_sum_of_a_numpy_number_is_wide():
    def psum(real, x, axis_name, **k):
        if isinstance(x, np.generic) and jax.config.jax_enable_x64:
            x = x.item()
        return real(x, axis_name, **k)

    return changed(lax, "psum", psum)
