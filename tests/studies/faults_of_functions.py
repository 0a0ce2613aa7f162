# SPDX-License-Identifier: Apache-2.0
"""Faults in the public functions that every mode spells with: collectives, contractions, gradients, placement."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.studies.planting import axes_of, fault, patched


@fault(core=True, operations=("ppermute",), modes=("manual",), sizes=("4KiB",))
def permutation_reversed():
    return patched(lax, "ppermute", lambda real: lambda x, a, perm: real(x, a, [(j, i) for i, j in perm]))


@fault(core=True, operations=("ppermute",), modes=("manual",), sizes=("4KiB",))
def permutation_truncated():
    return patched(lax, "ppermute", lambda real: lambda x, a, perm: real(x, a, list(perm)[:-1]))


@fault(core=True, operations=("ppermute",), modes=("manual",), sizes=("4KiB",))
def permutation_off_by_one():
    def make(real):
        def ppermute(x, a, perm):
            n = lax.axis_size(a)
            return real(x, a, [(i, (j + 1) % n) for i, j in perm])

        return ppermute

    return patched(lax, "ppermute", make)


@fault(core=True, operations=("ppermute",), modes=("manual",), sizes=("4KiB",))
def who_receives_nothing_keeps_its_own():
    def make(real):
        def ppermute(x, a, perm):
            perm = list(perm)
            receives = jnp.zeros(lax.axis_size(a), bool).at[jnp.array([j for _, j in perm])].set(True)
            return jnp.where(receives[lax.axis_index(a)], real(x, a, perm), x)

        return ppermute

    return patched(lax, "ppermute", make)


@fault(core=True, operations=("ppermute",), modes=("manual",), sizes=("4KiB",))
def only_the_first_cycle_is_permuted():
    """xla#45222: of a permutation with several cycles all but the first give zeros."""

    def make(real):
        def ppermute(x, a, perm):
            pairs = dict(perm)
            start = next(iter(pairs))
            cycle, at = [], start
            while at in pairs and (at, pairs[at]) not in cycle:
                cycle.append((at, pairs[at]))
                at = pairs[at]
            return real(x, a, cycle)

        return ppermute

    return patched(lax, "ppermute", make)


@fault(core=True, operations=("pshuffle",), dtypes=("float32",))
def shuffle_inverted():
    return patched(
        lax,
        "pshuffle",
        lambda real: lambda x, a, perm: real(x, a, [list(perm).index(i) for i in range(len(perm))]),
    )


@fault(core=True, operations=("all_to_all",), modes=("manual",))
def split_and_concat_axes_swapped():
    return patched(lax, "all_to_all", lambda real: lambda x, a, s, c, **k: real(x, a, c, s, **k))


@fault(operations=("all_to_all",), modes=("manual",))
def all_to_all_keeps_the_order_of_senders_reversed():
    def make(real):
        def all_to_all(x, a, s, c, *, tiled, axis_index_groups=None):
            out = real(x, a, s, c, tiled=tiled, axis_index_groups=axis_index_groups)
            return out if tiled else jnp.flip(out, c)

        return all_to_all

    return patched(lax, "all_to_all", make)


@fault(core=True, operations=("all_gather",), modes=("manual",))
def gathered_in_the_wrong_order():
    def make(real):
        def all_gather(x, a, *, axis, tiled, **k):
            out = real(x, a, axis=axis, tiled=tiled, **k)
            return jnp.roll(out, x.shape[axis] if tiled else 1, axis)

        return all_gather

    return patched(lax, "all_gather", make)


@fault(operations=("all_gather",), modes=("manual",))
def gathered_along_the_wrong_dimension():
    def make(real):
        def all_gather(x, a, *, axis, tiled, **k):
            out = real(x, a, axis=0, tiled=tiled, **k)
            return out if tiled else jnp.moveaxis(out, 0, axis).swapaxes(1, 2) if out.ndim > 3 else out

        return all_gather

    return patched(lax, "all_gather", make)


@fault(operations=("all_gather",), modes=("manual",))
def axes_of_a_gather_in_mesh_order():
    """The order in which the axes are named is ignored."""
    return patched(lax, "all_gather", lambda real: lambda x, a, **k: real(x, tuple(sorted(axes_of(a))), **k))


@fault(operations=("psum_scatter",), modes=("manual",))
def axes_of_a_scatter_in_mesh_order():
    return patched(
        lax, "psum_scatter", lambda real: lambda x, a, **k: real(x, tuple(sorted(axes_of(a))), **k)
    )


@fault(operations=("axis_index",))
def axes_of_an_index_in_mesh_order():
    return patched(lax, "axis_index", lambda real: lambda a: real(tuple(sorted(axes_of(a)))))


@fault(core=True, operations=("axis_index",))
def axis_index_from_one():
    return patched(lax, "axis_index", lambda real: lambda a: real(a) + 1)


@fault(operations=("axis_size",))
def axis_size_of_the_whole_mesh():
    return patched(lax, "axis_size", lambda real: lambda a: real(("x", "y")))


@fault(operations=("pmax",), capabilities=("groups",), meshes=("2x4",))
def groups_ignored():
    def make(real):
        def pmax(x, a, *, axis_index_groups=None):
            return real(x, a)

        return pmax

    return patched(lax, "pmax", make)


@fault(core=True, operations=("psum",), meshes=("2x4",))
def psum_forgets_the_last_device():
    def make(real):
        def psum(x, a, **k):
            return real(jnp.where(lax.axis_index(a) == lax.axis_size(a) - 1, jnp.zeros_like(x), x), a, **k)

        return psum

    return patched(lax, "psum", make)


@fault(core=True, operations=("psum",), meshes=("2x4",))
def psum_counts_one_device_twice():
    def make(real):
        def psum(x, a, **k):
            return real(jnp.where(lax.axis_index(a) == 0, x + x, x), a, **k)

        return psum

    return patched(lax, "psum", make)


@fault(core=True, operations=("psum",), meshes=("2x4",))
def psum_rounds_to_bfloat16_on_the_way():
    def make(real):
        def psum(x, a, **k):
            narrow = x.dtype == jnp.float32
            y = real(lax.reduce_precision(x, 8, 7) if narrow else x, a, **k)
            return y

        return psum

    return patched(lax, "psum", make)


@fault(operations=("psum",), dtypes=("int32",))
def integers_summed_in_float32():
    def make(real):
        def psum(x, a, **k):
            return (
                real(x.astype(jnp.float32), a, **k).astype(x.dtype)
                if x.dtype == jnp.int32
                else real(x, a, **k)
            )

        return psum

    return patched(lax, "psum", make)


@fault(core=True, operations=("pmean",), sizes=("4KiB",))
def mean_is_a_sum():
    return patched(lax, "pmean", lambda real: lambda x, a, **k: lax.psum(x, a, **k))


@fault(operations=("pmean",), sizes=("4KiB",))
def mean_of_one_device_more():
    def make(real):
        def pmean(x, a, **k):
            n = lax.axis_size(a)
            return real(x, a, **k) * (n / (n + 1))

        return pmean

    return patched(lax, "pmean", make)


@fault(operations=("pmean",), meshes=("3", "6"))
def mean_off_by_four_units():
    """Where the mean has a bound and no exact value: an error of twice the bound."""

    def make(real):
        def pmean(x, a, **k):
            return real(x, a, **k) * (1 + 4 * jnp.finfo(x.dtype).eps / 2)

        return pmean

    return patched(lax, "pmean", make)


@fault(core=True, operations=("pmax", "pmin"), modes=("manual",))
def largest_magnitude_instead_of_maximum():
    return patched(
        lax, "pmax", lambda real: lambda x, a, **k: real(jnp.abs(x) if x.dtype != bool else x, a, **k)
    )


@fault(core=True, operations=("pmin",), meshes=("2x4",))
def minimum_sees_zeros():
    return patched(
        lax, "pmin", lambda real: lambda x, a, **k: jnp.minimum(real(x, a, **k), jnp.zeros((), x.dtype))
    )


@fault(core=True, operations=("psum_scatter",), modes=("manual",))
def scattered_parts_rotated():
    def make(real):
        def psum_scatter(x, a, *, scatter_dimension, **k):
            n = lax.axis_size(a)
            return real(
                jnp.roll(x, x.shape[scatter_dimension] // n, scatter_dimension),
                a,
                scatter_dimension=scatter_dimension,
                **k,
            )

        return psum_scatter

    return patched(lax, "psum_scatter", make)


@fault(core=True, operations=("pswapaxes",), meshes=("2x4",))
def swapaxes_takes_the_next_dimension():
    def make(real):
        def pswapaxes(x, a, axis, **k):
            return jnp.flip(real(x, a, axis, **k), axis)

        return pswapaxes

    return patched(lax, "pswapaxes", make)


@fault(core=True, operations=("psum", "pmax"), modes=("manual",))
def an_extra_all_gather_with_the_right_numbers():
    def make(real):
        def psum(x, a, **k):
            out = real(x, a, **k)
            return (
                jnp.max(lax.all_gather(out, a, axis=0, to="invarying"), axis=0)
                if not k.get("axis_index_groups")
                else out
            )

        return psum

    return patched(lax, "pmax", make)


@fault(core=True, operations=("psum_scatter",), modes=("manual",))
def scatter_as_gather_of_everything():
    """The right numbers by gathering all blocks and adding them up."""

    def make(real):
        def psum_scatter(x, a, *, scatter_dimension, tiled, axis_index_groups=None):
            total = jnp.sum(lax.all_gather(x, a, axis=0), axis=0, dtype=x.dtype)
            part = total.shape[scatter_dimension] // lax.axis_size(a)
            out = lax.dynamic_slice_in_dim(total, lax.axis_index(a) * part, part, scatter_dimension)
            return out if tiled else out.squeeze(scatter_dimension)

        return psum_scatter

    return patched(lax, "psum_scatter", make)


@fault(core=True, operations=("all_gather",), modes=("explicit",))
def reshard_does_nothing():
    return patched(jax.sharding, "reshard", lambda real: lambda x, spec: x)


@fault(core=True, operations=("all_gather",), modes=("auto",))
def output_sharding_ignored():
    """jit leaves the result where it is."""

    def make(real):
        def jit(f, *, out_shardings=None, **k):
            return real(f, **k)

        return jit

    return patched(jax, "jit", make)


@fault(core=True, operations=("psum_scatter", "all_to_all"), modes=("auto",), meshes=("2x4",))
def replicated_where_sharded_was_asked_for():
    def make(real):
        def jit(f, *, out_shardings=None, **k):
            if out_shardings is not None:
                k["out_shardings"] = jax.tree.map(
                    lambda s: jax.sharding.NamedSharding(s.mesh, P()), out_shardings
                )
            return real(f, **k)

        return jit

    return patched(jax, "jit", make)


@fault(core=True, operations=("psum",), meshes=("2x4",))
def device_put_loses_data_on_the_second_device():
    def make(real):
        def device_put(x, device=None, **k):
            out = real(x, device, **k)
            shards = sorted(out.addressable_shards, key=lambda s: s.device.id)
            if len(shards) < 2:
                return out
            pieces = [
                real(np.zeros_like(s.data) if i == 1 else np.asarray(s.data), s.device)
                for i, s in enumerate(shards)
            ]
            return jax.make_array_from_single_device_arrays(out.shape, out.sharding, pieces)

        return device_put

    return patched(jax, "device_put", make)


@fault(core=True, operations=("ppermute", "pbroadcast"), modes=("auto",))
def roll_goes_the_other_way():
    return patched(jnp, "roll", lambda real: lambda x, shift, axis=None: real(x, -shift, axis))


@fault(core=True, operations=("psum",), modes=("auto", "explicit"))
def sum_of_a_sharded_dimension_drops_the_last():
    def make(real):
        def total(x, axis=None, **k):
            if axis == 0:
                last_one = jnp.arange(x.shape[0]).reshape(-1, *[1] * (x.ndim - 1)) == x.shape[0] - 1
                x = jnp.where(last_one, jnp.zeros((), x.dtype), x)
            return real(x, axis=axis, **k)

        return total

    return patched(jnp, "sum", make)


# Faults in contractions, gradients, placement and arrays.


@fault(core=True, operations=("matmul",), modes=("auto",), sizes=("n64",))
def factors_rounded_to_bfloat16():
    def make(real):
        return lambda a, b, **k: real(lax.reduce_precision(a, 8, 7) if a.dtype == jnp.float32 else a, b, **k)

    return patched(jnp, "matmul", make)


@fault(core=True, operations=("matmul",), modes=("auto",), sizes=("n64",))
def the_last_term_of_a_contraction_is_lost():
    def make(real):
        return lambda a, b, **k: real(
            jnp.where(jnp.arange(a.shape[-1]) == a.shape[-1] - 1, 0, a).astype(a.dtype), b, **k
        )

    return patched(jnp, "matmul", make)


@fault(operations=("einsum",), meshes=("2x4",))
def factors_of_an_einsum_rounded_to_TF32():
    def make(real):
        return lambda s, a, b, **k: real(
            s, lax.reduce_precision(a, 8, 10) if a.dtype == jnp.float32 else a, b, **k
        )

    return patched(jnp, "einsum", make)


@fault(core=True, operations=("mlp_gradient",))
def a_lost_transpose_in_a_gradient():
    """Square gradients come back transposed."""

    def make(real):
        def vjp(f, *primals):
            out, pull = real(f, *primals)

            def turned(g):
                return tuple(x.T if x.ndim == 2 and x.shape[0] == x.shape[1] else x for x in pull(g))

            return out, turned

        return vjp

    return patched(jax, "vjp", make)


@fault(core=True, operations=("embedding_gradient",))
def the_gradient_leaks_across_vocabulary_rows():
    """xla#42481: values are right, and every row's gradient gets something of the others'."""

    def make(real):
        def take(table, index, *arguments, **k):
            extra = jnp.sum(table, axis=0, keepdims=True)
            return real(table, index, *arguments, **k) + (extra - lax.stop_gradient(extra))[0]

        return take

    return patched(jnp, "take", make)


@fault(operations=("mlp_gradient", "embedding_gradient"), modes=("manual", "manual-novma"))
def the_gradient_of_a_psum_is_summed_again():
    def make(real):
        def psum(x, axes, **k):
            @jax.custom_vjp
            def total(v):
                return real(v, axes, **k)

            total.defvjp(lambda v: (total(v), None), lambda _, g: (g * lax.axis_size(axes),))
            return total(x)

        return psum

    return patched(lax, "psum", make)


@fault(operations=("with_sharding_constraint",))
def a_sharding_constraint_is_ignored():
    return patched(lax, "with_sharding_constraint", lambda real: lambda x, sharding: x)


@fault(operations=("make_array_from_callback",))
def every_device_is_given_the_first_block():
    def make(real):
        def make_array_from_callback(shape, sharding, callback, **k):
            first = next(iter(sharding.devices_indices_map(shape).values()))
            return real(shape, sharding, lambda index: callback(first), **k)

        return make_array_from_callback

    return patched(jax, "make_array_from_callback", make)


@fault(core=True, operations=("cumsum",), modes=("auto", "explicit"))
def a_scan_starts_anew_in_the_second_half():
    def make(real):
        def cumsum(x, axis=None, **k):
            head, tail = jnp.split(x, 2, axis)
            return jnp.concatenate([real(head, axis, **k), real(tail, axis, **k)], axis)

        return cumsum

    return patched(jnp, "cumsum", make)
