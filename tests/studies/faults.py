# SPDX-License-Identifier: Apache-2.0
"""The catalogue of faults that the suite must catch, and the command that runs it.

    python -m tests.studies.faults [--profile standard] [--only NAME,...] [--markdown FILE]

A fault is a small patch to JAX's public functions, or to what a compiled program returns, active while cases
are judged. The command puts in one fault after the other and judges the cases of the profile, those that the
fault is likely to touch first, until one is no longer what it was; the table says which check caught it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import PartitionSpec as P

from meshmark.core.verdicts import BAD, worst
from meshmark.judge import programs
from meshmark.judge.checks import Judge
from meshmark.levels import known_issues
from meshmark.operations import FAMILIES, cases, lifecycle
from meshmark.operations.cases import Case
from meshmark.operations.selection import Selection
from meshmark.operations.weights import PROFILES

Shards = list[np.ndarray]


@dataclass
class Fault:
    """One fault: how it is put in, and the cases that are likely to show it."""

    name: str
    put_in: Callable[[], Any]
    """Makes the context manager that puts it in."""
    likely: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Fields of a Selection that narrow the table to where it can show."""
    core: bool = False
    """Whether the smoke profile must catch it too."""
    only: Callable[[Case], bool] = lambda case: True
    """Which of those cases can show it, where a Selection can't say so."""


CATALOGUE: dict[str, Fault] = {}


def fault(
    core: bool = False, only: Callable[[Case], bool] = lambda case: True, **likely: tuple[str, ...]
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a function that makes a context manager as a fault of its name."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        name = make.__name__.replace("_", " ")
        CATALOGUE[name] = Fault(name, make, likely, core, only)
        return make

    return register


# Faults in what a compiled program returns.


class Mangled:
    """A compiled program whose results pass through `edit` on their way out."""

    def __init__(self, compiled: Any, edit: Callable[[Shards], Shards]) -> None:
        self._compiled, self._edit = compiled, edit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __call__(self, *arguments: Any) -> Any:
        return jax.tree.map(self._mangle, self._compiled(*arguments))

    def _mangle(self, array: jax.Array) -> jax.Array:
        shards = sorted(array.addressable_shards, key=lambda s: s.device.id)
        edited = self._edit([np.array(s.data) for s in shards])
        placed = [jax.device_put(e, s.device) for e, s in zip(edited, shards, strict=True)]
        return jax.make_array_from_single_device_arrays(array.shape, array.sharding, placed)


@contextmanager
def results(
    edit: Callable[[Shards], Shards], where: Callable[[Case], bool] = lambda case: True
) -> Iterator[None]:
    """Every program's results edited, in the cases where it applies."""
    real = programs.Program.compile

    def compile_(program: programs.Program) -> Any:
        compiled = real(program)
        return Mangled(compiled, edit) if where(program.case) else compiled

    with patch.object(programs.Program, "compile", compile_):
        yield


def each(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Shards], Shards]:
    """An edit that changes every shard alike."""
    return lambda shards: [change(s).astype(s.dtype) for s in shards]


def last(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Shards], Shards]:
    """An edit that changes the last device's shard."""
    return lambda shards: [*shards[:-1], change(shards[-1]).astype(shards[-1].dtype)]


def nudged(shard: np.ndarray) -> np.ndarray:
    """The shard with its last element off by the least that its dtype can say."""
    out = shard.copy()
    if out.size:
        bits = out.reshape(-1).view(
            f"u{1 if out.dtype.kind == 'b' else out.dtype.itemsize // (2 if out.dtype.kind == 'c' else 1)}"
        )
        bits[-1] ^= 1
    return out


def through(kind: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Round floats through a narrower type."""

    def rounded(s: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return s.astype(kind).astype(s.dtype) if s.dtype.kind in "fV" and s.dtype.itemsize > 2 else s

    return rounded


def of_dtype(name: str) -> Callable[[Case], bool]:
    """Cases of one dtype."""
    return lambda case: case.cell.request.dtype == name


def on_mesh(label: str) -> Callable[[Case], bool]:
    """Cases on one mesh."""
    return lambda case: case.mesh.label == label


@fault(core=True)
def lost_shard():
    return results(last(np.zeros_like))


@fault(core=True)
def doubled_shard():
    return results(last(lambda s: s + s))


@fault(core=True)
def swapped_shards():
    return results(lambda s: [s[1], s[0], *s[2:]] if len(s) > 1 else s)


@fault(core=True)
def rotated_shards():
    return results(lambda s: [*s[1:], s[0]])


@fault(core=True)
def repeated_shard():
    return results(lambda s: [*s[:-1], s[0]])


@fault(core=True)
def wrong_replica_on_one_device():
    return results(last(nudged), lambda case: any(not any(r.spec) for r in case.plan.results))


@fault(core=True)
def last_bit_of_one_element():
    return results(last(nudged), lambda case: case.plan.judge != "bound")


@fault()
def stale_shard():
    """The last device gives what it gave the call before."""
    before: dict[tuple, np.ndarray] = {}

    def edit(shards: Shards) -> Shards:
        key = (shards[-1].shape, shards[-1].dtype.name)
        stale = before.get(key, shards[-1])
        before[key] = shards[-1]
        return [*shards[:-1], stale]

    return results(edit)


@fault()
def state_carried_from_call_to_call():
    """Every call adds what the call before left behind."""
    left: dict[tuple, np.ndarray] = {}

    def edit(shards: Shards) -> Shards:
        key = (shards[0].shape, shards[0].dtype.name)
        out = [shards[0] + left.get(key, np.zeros_like(shards[0])), *shards[1:]]
        left[key] = shards[0]
        return out

    return results(edit)


@fault()
def wrong_once_in_fifty_calls():
    calls = iter(range(10**9))
    return results(lambda s: last(nudged)(s) if next(calls) % 50 == 49 else s)


@fault()
def first_row_of_the_last_shard():
    def edit(s: np.ndarray) -> np.ndarray:
        out = s.copy()
        if out.ndim and out.size:
            out[0] = 0
        return out

    return results(last(edit))


for _name in ("bfloat16", "float16", "int32", "int8", "uint8", "bool"):

    @fault(dtypes=(_name,))
    def _wrong(name=_name):
        return results(last(nudged), of_dtype(name))

    CATALOGUE[f"wrong only for {_name}"] = CATALOGUE.pop(" wrong")
    CATALOGUE[f"wrong only for {_name}"].name = f"wrong only for {_name}"

for _name in ("8", "4x2", "2x2x2", "1x8", "3", "6", "2x4-shuffled"):

    @fault(meshes=(_name,))
    def _wrong(name=_name):
        return results(last(np.zeros_like), on_mesh(name))

    CATALOGUE[f"wrong only on mesh {_name}"] = CATALOGUE.pop(" wrong")
    CATALOGUE[f"wrong only on mesh {_name}"].name = f"wrong only on mesh {_name}"


@fault(operations=("ppermute",))
def wrong_only_for_vectors():
    return results(lambda s: last(np.zeros_like)(s) if s[0].ndim == 1 else s)


@fault(operations=("all_gather",))
def wrong_only_for_rank_four():
    return results(lambda s: last(np.zeros_like)(s) if s[0].ndim == 4 else s)


@fault(operations=("all_gather", "psum_scatter", "psum"))
def wrong_only_for_reversed_axes():
    return results(last(np.zeros_like), lambda case: "axes=y+x" in case.id)


@fault(sizes=("512KiB",), operations=("psum", "ppermute"))
def wrong_above_64_Ki_elements():
    return results(lambda s: last(nudged)(s) if s[0].size > 65536 else s)


@fault(sizes=("64B",))
def wrong_only_for_small_arrays():
    return results(last(nudged), lambda case: case.cell.request.size == "64B")


@fault(core=True)
def negative_numbers_lose_their_sign():
    return results(each(lambda s: np.abs(s) if s.dtype.kind in "fiV" else s))


@fault(operations=("all_gather", "all_to_all", "ppermute"))
def NaN_becomes_zero():
    return results(each(lambda s: np.where(np.isnan(s), np.zeros_like(s), s) if s.dtype.kind in "fV" else s))


@fault(operations=("all_gather", "all_to_all", "ppermute"))
def minus_zero_becomes_zero():
    return results(each(lambda s: np.where(s == 0, np.zeros_like(s), s) if s.dtype.kind in "fV" else s))


@fault(operations=("all_gather", "all_to_all", "ppermute"))
def infinity_becomes_the_largest_number():
    return results(each(lambda s: np.nan_to_num(s, nan=np.nan) if s.dtype == np.float32 else s))


@fault(operations=("all_gather", "all_to_all", "ppermute"))
def subnormals_are_flushed():
    tiny = np.finfo(np.float32).tiny
    return results(
        each(lambda s: np.where(np.abs(s) < tiny, np.copysign(0, s), s) if s.dtype == np.float32 else s)
    )


@fault(core=True)
def results_rounded_to_bfloat16():
    return results(each(through(ml_dtypes.bfloat16)))


@fault(core=True)
def results_rounded_to_float16():
    return results(each(through(np.float16)))


@fault(core=True)
def results_rounded_to_TF32():
    def edit(s: np.ndarray) -> np.ndarray:
        return (s.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if s.dtype == np.float32 else s

    return results(each(edit))


# Faults in the public functions.


def patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Any:
    """`owner.name` replaced by make(the real one), also where an operations module has imported it by name."""
    real = getattr(owner, name)
    wrong = make(real)
    stack = ExitStack()

    @contextmanager
    def enter() -> Iterator[None]:
        with stack:
            stack.enter_context(patch.object(owner, name, wrong))
            for module in FAMILIES:
                if getattr(module, name, None) is real:
                    stack.enter_context(patch.object(module, name, wrong))
            yield

    return enter()


def _axes(axis_name: Any) -> tuple[str, ...]:
    return (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)


@fault(core=True, operations=("ppermute",))
def permutation_reversed():
    return patched(lax, "ppermute", lambda real: lambda x, a, perm: real(x, a, [(j, i) for i, j in perm]))


@fault(core=True, operations=("ppermute",))
def permutation_truncated():
    return patched(lax, "ppermute", lambda real: lambda x, a, perm: real(x, a, list(perm)[:-1]))


@fault(core=True, operations=("ppermute",))
def permutation_off_by_one():
    def make(real):
        def ppermute(x, a, perm):
            n = lax.axis_size(a)
            return real(x, a, [(i, (j + 1) % n) for i, j in perm])

        return ppermute

    return patched(lax, "ppermute", make)


@fault(core=True, operations=("ppermute",))
def who_receives_nothing_keeps_its_own():
    def make(real):
        def ppermute(x, a, perm):
            perm = list(perm)
            receives = jnp.zeros(lax.axis_size(a), bool).at[jnp.array([j for _, j in perm])].set(True)
            return jnp.where(receives[lax.axis_index(a)], real(x, a, perm), x)

        return ppermute

    return patched(lax, "ppermute", make)


@fault(core=True, operations=("ppermute",))
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


@fault(core=True, operations=("pshuffle",))
def shuffle_inverted():
    return patched(
        lax,
        "pshuffle",
        lambda real: lambda x, a, perm: real(x, a, [list(perm).index(i) for i in range(len(perm))]),
    )


@fault(core=True, operations=("all_to_all",))
def split_and_concat_axes_swapped():
    return patched(lax, "all_to_all", lambda real: lambda x, a, s, c, **k: real(x, a, c, s, **k))


@fault(operations=("all_to_all",))
def all_to_all_keeps_the_order_of_senders_reversed():
    def make(real):
        def all_to_all(x, a, s, c, *, tiled, axis_index_groups=None):
            out = real(x, a, s, c, tiled=tiled, axis_index_groups=axis_index_groups)
            return out if tiled else jnp.flip(out, c)

        return all_to_all

    return patched(lax, "all_to_all", make)


@fault(core=True, operations=("all_gather",))
def gathered_in_the_wrong_order():
    def make(real):
        def all_gather(x, a, *, axis, tiled, **k):
            out = real(x, a, axis=axis, tiled=tiled, **k)
            return jnp.roll(out, x.shape[axis] if tiled else 1, axis)

        return all_gather

    return patched(lax, "all_gather", make)


@fault(operations=("all_gather",))
def gathered_along_the_wrong_dimension():
    def make(real):
        def all_gather(x, a, *, axis, tiled, **k):
            out = real(x, a, axis=0, tiled=tiled, **k)
            return out if tiled else jnp.moveaxis(out, 0, axis).swapaxes(1, 2) if out.ndim > 3 else out

        return all_gather

    return patched(lax, "all_gather", make)


@fault(operations=("all_gather",))
def axes_of_a_gather_in_mesh_order():
    """The order in which the axes are named is ignored."""
    return patched(lax, "all_gather", lambda real: lambda x, a, **k: real(x, tuple(sorted(_axes(a))), **k))


@fault(operations=("psum_scatter",))
def axes_of_a_scatter_in_mesh_order():
    return patched(lax, "psum_scatter", lambda real: lambda x, a, **k: real(x, tuple(sorted(_axes(a))), **k))


@fault(operations=("axis_index",))
def axes_of_an_index_in_mesh_order():
    return patched(lax, "axis_index", lambda real: lambda a: real(tuple(sorted(_axes(a)))))


@fault(core=True, operations=("axis_index",))
def axis_index_from_one():
    return patched(lax, "axis_index", lambda real: lambda a: real(a) + 1)


@fault(operations=("axis_size",))
def axis_size_of_the_whole_mesh():
    return patched(lax, "axis_size", lambda real: lambda a: real(("x", "y")))


@fault(operations=("psum", "pmax", "all_gather", "psum_scatter", "all_to_all"), capabilities=("groups",))
def groups_ignored():
    def make(real):
        def pmax(x, a, *, axis_index_groups=None):
            return real(x, a)

        return pmax

    return patched(lax, "pmax", make)


@fault(core=True, operations=("psum",))
def psum_forgets_the_last_device():
    def make(real):
        def psum(x, a, **k):
            return real(jnp.where(lax.axis_index(a) == lax.axis_size(a) - 1, jnp.zeros_like(x), x), a, **k)

        return psum

    return patched(lax, "psum", make)


@fault(core=True, operations=("psum",))
def psum_counts_one_device_twice():
    def make(real):
        def psum(x, a, **k):
            return real(jnp.where(lax.axis_index(a) == 0, x + x, x), a, **k)

        return psum

    return patched(lax, "psum", make)


@fault(core=True, operations=("psum",))
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


@fault(core=True, operations=("pmean",))
def mean_is_a_sum():
    return patched(lax, "pmean", lambda real: lambda x, a, **k: lax.psum(x, a, **k))


@fault(operations=("pmean",))
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


@fault(core=True, operations=("pmax", "pmin"))
def largest_magnitude_instead_of_maximum():
    return patched(
        lax, "pmax", lambda real: lambda x, a, **k: real(jnp.abs(x) if x.dtype != bool else x, a, **k)
    )


@fault(core=True, operations=("pmin",))
def minimum_sees_zeros():
    return patched(
        lax, "pmin", lambda real: lambda x, a, **k: jnp.minimum(real(x, a, **k), jnp.zeros((), x.dtype))
    )


@fault(core=True, operations=("psum_scatter",))
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


@fault(core=True, operations=("pswapaxes",))
def swapaxes_takes_the_next_dimension():
    def make(real):
        def pswapaxes(x, a, axis, **k):
            return jnp.flip(real(x, a, axis, **k), axis)

        return pswapaxes

    return patched(lax, "pswapaxes", make)


@fault(core=True, operations=("psum", "pmax"))
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


@fault(core=True, operations=("psum_scatter",))
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


@fault(core=True, operations=("all_gather", "ppermute"), modes=("explicit",))
def reshard_does_nothing():
    return patched(jax.sharding, "reshard", lambda real: lambda x, spec: x)


@fault(core=True, operations=("all_gather", "all_to_all", "psum_scatter"), modes=("auto",))
def output_sharding_ignored():
    """jit leaves the result where it is."""

    def make(real):
        def jit(f, *, out_shardings=None, **k):
            return real(f, **k)

        return jit

    return patched(jax, "jit", make)


@fault(core=True, operations=("psum_scatter", "all_to_all"), modes=("auto",))
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


@fault(core=True, operations=("psum",))
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


@fault(core=True, operations=("ppermute", "pbroadcast"), modes=("auto", "explicit"))
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


@fault(core=True, operations=("matmul",))
def factors_rounded_to_bfloat16():
    def make(real):
        return lambda a, b, **k: real(lax.reduce_precision(a, 8, 7) if a.dtype == jnp.float32 else a, b, **k)

    return patched(jnp, "matmul", make)


@fault(core=True, operations=("matmul",))
def the_last_term_of_a_contraction_is_lost():
    def make(real):
        return lambda a, b, **k: real(
            jnp.where(jnp.arange(a.shape[-1]) == a.shape[-1] - 1, 0, a).astype(a.dtype), b, **k
        )

    return patched(jnp, "matmul", make)


@fault(operations=("einsum",))
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


# Faults that show only over several processes: tests/operations/test_processes_operations.py puts them in, over two
# real ones.


@dataclass
class ProcessFault:
    """A fault of one spelling over processes, and the case (operation/variant) that must notice it."""

    name: str
    case: str
    put_in: Callable[[], Any]


OVER_PROCESSES: dict[str, ProcessFault] = {}


def process_fault(case: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a function that makes a context manager as a fault over processes."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        name = make.__name__.replace("_", " ")
        OVER_PROCESSES[name] = ProcessFault(name, case, make)
        return make

    return register


def local_rows(edit: Callable[[np.ndarray], np.ndarray]) -> Any:
    """`make_array_from_process_local_data` of what the last process edits in its data."""

    def make(real):
        def make_array_from_process_local_data(sharding, data, *shape):
            if jax.process_index() == jax.process_count() - 1:
                data = jax.tree.map(edit, data)
            return real(sharding, data, *shape)

        return make_array_from_process_local_data

    return patched(jax, "make_array_from_process_local_data", make)


def without_last(rows: np.ndarray) -> np.ndarray:
    """The rows with the last that is not zero put to zero."""
    out = rows.copy()
    filled = np.flatnonzero(out.reshape(len(out), -1).any(axis=1))
    out[filled[-1:]] = 0
    return out


@process_fault("process_identity/plain")
def every_process_thinks_it_is_the_first():
    return patched(jax, "process_index", lambda real: lambda: 0)


@process_fault("addressable_shards/of=x.y")
def a_callback_is_asked_for_another_devices_part():
    def make(real):
        def make_array_from_callback(shape, sharding, callback):
            parts = sharding.addressable_devices_indices_map(shape).values()
            parts = [tuple(s.indices(n)[:2] for s, n in zip(p, shape, strict=True)) for p in parts]

            def asked(index):
                here = parts.index(tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True)))
                return callback(tuple(slice(*s) for s in parts[here - 1]))

            return real(shape, sharding, asked)

        return make_array_from_callback

    return patched(jax, "make_array_from_callback", make)


@process_fault("addressable_shards/of=x.y")
def addressable_data_is_the_next_devices():
    def make(real):
        return lambda array, number: real(array, (number + 1) % jax.local_device_count())

    return patched(type(jax.device_put(0)), "addressable_data", make)


@process_fault("device_put_of_host_array/to=x.y,different")
def device_put_takes_what_each_process_has():
    def make(real):
        def device_put(x, sharding):
            return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

        return device_put

    return patched(jax, "device_put", make)


@process_fault("device_put_of_host_array/to=x.y")
def device_put_of_the_last_process_is_stale():
    def make(real):
        def device_put(x, sharding):
            mine = np.zeros_like(x) if jax.process_index() == jax.process_count() - 1 else x
            return jax.make_array_from_callback(x.shape, sharding, lambda index: mine[index])

        return device_put

    return patched(jax, "device_put", make)


@process_fault("process_batches/split=uneven")
def the_last_row_of_the_last_process_is_lost():
    return local_rows(without_last)


@process_fault("process_batches/split=uneven")
def processes_swap_their_rows():
    return patched(jax, "process_index", lambda real: lambda: jax.process_count() - 1 - real())


@process_fault("process_batches/split=unpadded")
def unpadded_rows_are_cut_to_fit():
    def make(real):
        def make_array_from_process_local_data(sharding, data, *shape):
            try:
                return real(sharding, data, *shape)
            except ValueError:
                return None

        return make_array_from_process_local_data

    return patched(jax, "make_array_from_process_local_data", make)


@process_fault("pmap_of_local_rows/plain")
def the_axis_of_pmap_is_each_processes_own():
    return patched(lax, "axis_index", lambda real: lambda a: real(a) % jax.local_device_count())


@process_fault("process_allgather/of=local,tiled")
def gathered_in_the_order_of_another_process():
    def make(real):
        def process_allgather(x, tiled=False):
            parts = real(x, tiled=False)
            return np.concatenate(parts[::-1]) if tiled else parts

        return process_allgather

    return patched(multihost_utils, "process_allgather", make)


@process_fault("process_allgather/of=local")
def a_process_gathers_its_own_part_only():
    return patched(
        multihost_utils,
        "process_allgather",
        lambda real: lambda x, tiled=False: np.stack([np.asarray(x)] * jax.process_count()),
    )


@process_fault("process_allgather/of=global,tiled")
def the_gather_of_a_global_array_loses_the_last_row():
    return patched(
        multihost_utils,
        "process_allgather",
        lambda real: lambda x, tiled=False: without_last(real(x, tiled=tiled)),
    )


@process_fault("process_allgather/of=global")
def a_stacked_gather_of_a_global_array_is_not_refused():
    return patched(
        multihost_utils, "process_allgather", lambda real: lambda x, tiled=False: real(x, tiled=True)
    )


@process_fault("broadcast_one_to_all/source=default")
def broadcast_from_the_wrong_process():
    def make(real):
        def broadcast_one_to_all(tree, is_source=None):
            return real(tree, is_source=jax.process_index() == 1)

        return broadcast_one_to_all

    return patched(multihost_utils, "broadcast_one_to_all", make)


@process_fault("broadcast_one_to_all/source=last")
def the_source_of_a_broadcast_is_ignored():
    return patched(
        multihost_utils, "broadcast_one_to_all", lambda real: lambda tree, is_source=None: real(tree)
    )


@process_fault("broadcast_one_to_all/source=default")
def a_broadcast_leaves_a_process_with_its_own():
    def make(real):
        def broadcast_one_to_all(tree, is_source=None):
            seen = real(tree, is_source=is_source)
            return tree if jax.process_index() == 1 else seen

        return broadcast_one_to_all

    return patched(multihost_utils, "broadcast_one_to_all", make)


@process_fault("assert_equal/values=unequal")
def unequal_values_are_told_to_one_process_alone():
    def make(real):
        def assert_equal(tree, message=""):
            try:
                real(tree, message)
            except AssertionError:
                if jax.process_index() == 0:
                    raise

        return assert_equal

    return patched(multihost_utils, "assert_equal", make)


@process_fault("assert_equal/values=unequal,tree")
def only_the_first_leaf_of_a_tree_is_compared():
    return patched(
        multihost_utils,
        "assert_equal",
        lambda real: lambda tree, message="": real(jax.tree.leaves(tree)[0], message),
    )


@process_fault("assert_equal/values=equal")
def equal_values_are_called_unequal():
    def make(real):
        def assert_equal(tree, message=""):
            raise AssertionError(message)

        return assert_equal

    return patched(multihost_utils, "assert_equal", make)


@process_fault("sync_global_devices/names=same,late")
def a_barrier_that_waits_for_nobody():
    return patched(multihost_utils, "sync_global_devices", lambda real: lambda name: None)


@process_fault("sync_global_devices/names=different")
def a_barrier_that_ignores_its_name():
    return patched(multihost_utils, "sync_global_devices", lambda real: lambda name: real("any"))


@process_fault("input_pipeline/order=strided")
def the_last_example_is_lost():
    return local_rows(without_last)


@process_fault("input_pipeline/order=strided")
def two_processes_read_the_same_examples():
    return patched(jax, "process_index", lambda real: lambda: 0)


@process_fault("input_pipeline/order=blocked")
def the_tail_is_not_masked():
    return local_rows(lambda rows: np.ones_like(rows) if rows.dtype == bool else rows)


@process_fault("input_pipeline/order=shuffled")
def each_process_shuffles_for_itself():
    def make(real):
        return lambda seed: real(seed + jax.process_index())

    return patched(np.random, "default_rng", make)


@process_fault("process_metrics/by=allgather")
def metrics_of_one_process():
    return patched(
        multihost_utils,
        "process_allgather",
        lambda real: lambda x, tiled=False: jax.tree.map(lambda a: np.asarray(a)[None], x),
    )


@process_fault("process_metrics/by=program")
def padding_counts_in_the_metrics():
    return local_rows(lambda rows: np.ones_like(rows) if rows.dtype == bool else rows)


@process_fault("process_data_parallel/spelled=auto")
def a_row_of_a_batch_is_lost():
    return local_rows(without_last)


@process_fault("process_data_parallel/spelled=manual")
def gradients_are_summed_instead_of_averaged():
    return patched(lax, "pmean", lambda real: lambda x, a: lax.psum(x, a))


@process_fault("process_data_parallel/spelled=manual")
def gradients_are_averaged_within_an_axis_alone():
    """What a process does that reduces over its own devices."""
    return patched(lax, "pmean", lambda real: lambda x, a: lax.pmax(real(x, a[-1:]), a[:1]))


@process_fault("random_bits/to=x.y,draw=bits")
def a_key_of_its_own_on_each_process():
    return patched(jax.random, "key", lambda real: lambda seed, **k: real(seed + jax.process_index(), **k))


@process_fault("random_bits/draw=folded")
def every_device_folds_the_same_number():
    return patched(jax.random, "fold_in", lambda real: lambda key, number: real(key, number * 0))


@process_fault("large_psum/plain")
def one_element_of_a_large_sum_is_off():
    return patched(lax, "psum", lambda real: lambda x, a: real(x, a).at[-7].add(1))


@process_fault("large_psum_scatter/plain")
def the_tail_of_the_first_members_chunk_is_wrong():
    """As jax-ml/jax#40830: wrong values at the end of rank 0's chunk."""

    def make(real):
        def psum_scatter(x, a, **k):
            out = real(x, a, **k)
            tail = jnp.arange(out.size) > out.size // 2
            return jnp.where(tail & (lax.axis_index(a) == 0), x[: out.size], out)

        return psum_scatter

    return patched(lax, "psum_scatter", make)


@process_fault("large_all_gather/plain")
def a_large_gather_in_the_wrong_order():
    return patched(lax, "all_gather", lambda real: lambda x, a, **k: jnp.roll(real(x, a, **k), x.size))


@process_fault("large_all_to_all/plain")
def a_large_all_to_all_that_stays_at_home():
    return patched(lax, "all_to_all", lambda real: lambda x, a, *r, **k: x)


@process_fault("large_ppermute/plain")
def a_large_ppermute_moves_by_one_element_too_many():
    return patched(lax, "ppermute", lambda real: lambda x, a, perm: jnp.roll(real(x, a, perm), 1))


@process_fault("orbax_checkpoint/saved=group,restored=group,to=y.x")
def a_restored_shard_is_zero():
    import orbax.checkpoint as ocp

    def make(real):
        def restore(checkpointer, place, wanted):
            x = real(checkpointer, place, wanted)["x"]
            parts = [s.data if s.index[0].start else s.data * 0 for s in x.addressable_shards]
            return {"x": jax.make_array_from_single_device_arrays(x.shape, x.sharding, parts)}

        return restore

    return patched(ocp.StandardCheckpointer, "restore", make)


@process_fault("distributed_initialize/again=up")
def starting_twice_is_not_refused():
    return patched(jax.distributed, "initialize", lambda real: lambda *a, **k: None)


@process_fault("distributed_initialize/wrong=process_id")
def a_wrong_process_id_is_taken():
    return patched(lifecycle, "children", lambda real: lambda programs: [(0, "seen 2", "")])


@process_fault("distributed_initialize/wrong=nobody_listens")
def a_start_that_never_ends():
    return patched(lifecycle, "children", lambda real: lambda programs: [(None, "", "")])


# Running them.


def load_families() -> None:
    """Import the modules that add faults to the catalogue."""
    names = ("calls", "communication", "programs", "transforms", "values", "breadth", "features")
    names += ("options", "conditions", "settings", "corners")
    for name in names:
        importlib.import_module(f"tests.studies.faults_of_{name}")


@dataclass
class Outcome:
    """What became of one fault."""

    fault: Fault
    case: str = ""
    checks: tuple[str, ...] = ()
    judged: int = 0
    seconds: float = 0.0

    @property
    def caught(self) -> bool:
        """Whether some case was no longer a pass."""
        return bool(self.checks)


def hunt(what: Fault, chosen: Iterable[Case], issues: Sequence[known_issues.Issue] = ()) -> Outcome:
    """Judge cases under a fault until one is caught that is not a known issue."""
    judge, outcome, start = Judge(tuple(jax.devices())), Outcome(what), time.perf_counter()
    with what.put_in():
        for case in chosen:
            outcome.judged += 1
            lines = judge.run(case)
            known_issues.apply(issues, case.id, lines)
            if worst(line.verdict for line in lines) in BAD:
                outcome.case = case.id
                outcome.checks = tuple(line.check for line in lines if line.verdict in BAD)
                break
    outcome.seconds = time.perf_counter() - start
    return outcome


def likely_cases(what: Fault, profile: str) -> Iterator[Case]:
    """The cases of a profile that the fault is likely to touch."""
    chosen = cases.cases(Selection(profile, **what.likely), jax.device_count())  # type: ignore[arg-type]
    return filter(what.only, chosen)


def in_order(what: Fault, profile: str) -> Iterator[Case]:
    """All cases of a profile (with the capabilities that the fault needs), the likely ones first."""
    seen = set()
    for case in likely_cases(what, profile):
        seen.add(case.id)
        yield case
    selection = Selection(profile, capabilities=what.likely.get("capabilities", ()))
    yield from (case for case in cases.cases(selection, jax.device_count()) if case.id not in seen)


def main() -> int:
    """The command; exit code 1 when a fault is missed."""
    parser = argparse.ArgumentParser(description="Run the catalogue of faults against the suite.")
    parser.add_argument("--profile", default="standard", choices=PROFILES)
    parser.add_argument("--only", default="", help="names of faults, by commas")
    parser.add_argument("--markdown", default="", help="write the table to this file")
    options = parser.parse_args()
    load_families()
    issues = known_issues.load(jax.__version__, jax.default_backend())
    names = [n for n in CATALOGUE if not options.only or n in options.only.split(",")]
    if options.profile == "smoke":
        names = [n for n in names if CATALOGUE[n].core]
    rows, missed = [], 0
    for number, name in enumerate(names, 1):
        outcome = hunt(CATALOGUE[name], in_order(CATALOGUE[name], options.profile), issues)
        missed += not outcome.caught
        checks = ", ".join(outcome.checks) or "MISSED"
        rows.append(f"| {name} | {checks} | {outcome.judged} | {outcome.seconds:.1f} s | {outcome.case} |")
        print(f"[{number}/{len(names)}] {rows[-1]}", flush=True)
    caught = f"{len(names) - missed} of {len(names)} faults caught"
    head = f"{caught} by the {options.profile} profile, JAX {jax.__version__}"
    table = [
        head,
        "",
        "| fault | caught by | cases judged | time | first case |",
        "|---|---|---|---|---|",
        *rows,
    ]
    print(head)
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write("\n".join(table) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    # The catalogue is that of the module, which the other modules import by its name.
    sys.exit(importlib.import_module("tests.studies.faults").main())
