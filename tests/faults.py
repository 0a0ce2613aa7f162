"""The catalogue of faults that the suite must catch, and the command that runs it.

    python -m tests.faults [--profile standard] [--only NAME,...] [--markdown FILE]

A fault is a small patch to JAX's public functions, or to what a compiled program returns, active while cases
are judged. The command puts in one fault after the other and judges the cases of the profile, those that the
fault is likely to touch first, until one is no longer what it was; the table says which check caught it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
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
from jax.sharding import PartitionSpec as P

from harness import cases, known, programs
from harness.cases import Case, Selection
from harness.checks import Judge
from harness.operations import FAMILIES
from harness.verdicts import BAD, worst

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


CATALOGUE: dict[str, Fault] = {}


def fault(core: bool = False, **likely: tuple[str, ...]) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a function that makes a context manager as a fault of its name."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        name = make.__name__.replace("_", " ")
        CATALOGUE[name] = Fault(name, make, likely, core)
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


# Running them.


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


def hunt(what: Fault, chosen: Sequence[Case], issues: Sequence[known.Issue] = ()) -> Outcome:
    """Judge cases under a fault until one is caught that is not a known issue."""
    judge, outcome, start = Judge(tuple(jax.devices())), Outcome(what), time.perf_counter()
    with what.put_in():
        for case in chosen:
            outcome.judged += 1
            lines = judge.run(case)
            known.apply(issues, case.id, lines)
            if worst(line.verdict for line in lines) in BAD:
                outcome.case = case.id
                outcome.checks = tuple(line.check for line in lines if line.verdict in BAD)
                break
    outcome.seconds = time.perf_counter() - start
    return outcome


def likely_cases(what: Fault, profile: str) -> list[Case]:
    """The cases of a profile that the fault is likely to touch."""
    return list(cases.cases(Selection(profile, **what.likely), jax.device_count()))  # type: ignore[arg-type]


def in_order(what: Fault, profile: str) -> list[Case]:
    """All cases of a profile (with the capabilities that the fault needs), the likely ones first."""
    first = likely_cases(what, profile)
    seen = {case.id for case in first}
    every = cases.cases(
        Selection(profile, capabilities=what.likely.get("capabilities", ())), jax.device_count()
    )
    return first + [case for case in every if case.id not in seen]


def main() -> int:
    """The command; exit code 1 when a fault is missed."""
    parser = argparse.ArgumentParser(description="Run the catalogue of faults against the suite.")
    parser.add_argument("--profile", default="standard", choices=cases.PROFILES)
    parser.add_argument("--only", default="", help="names of faults, by commas")
    parser.add_argument("--markdown", default="", help="write the table to this file")
    options = parser.parse_args()
    issues = known.load(jax.__version__, jax.default_backend())
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
    sys.exit(main())
