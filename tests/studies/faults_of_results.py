# SPDX-License-Identifier: Apache-2.0
"""Faults in what a compiled program returns, whatever it computed."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from meshmark.operations.cases import Case
from tests.studies.planting import (
    CATALOGUE,
    Shards,
    each,
    fault,
    last,
    nudged,
    of_dtype,
    on_mesh,
    results,
    through,
)


def of_rank(rank: int) -> Callable[[Case], bool]:
    """Whether the first result of a case has this rank, as a function of cases."""
    return lambda case: len(case.plan.results[0].shape) == rank


def reversed_axes(case: Case) -> bool:
    """Whether a case's collective goes over the axes y and x, in this order."""
    return case.cell.request.variant.get("axes") == ("y", "x")


def of_special_values(case: Case) -> bool:
    """Whether a case's input holds NaN, infinities, zeros of both signs and subnormals."""
    return case.cell.request.variant.get("fill") == "special"


@fault(core=True, operations=("psum",), meshes=("2x4",))
def lost_shard():
    return results(last(np.zeros_like))


@fault(core=True, operations=("psum",), meshes=("2x4",))
def doubled_shard():
    return results(last(lambda s: s + s))


@fault(core=True, operations=("psum",), meshes=("2x4",))
def swapped_shards():
    return results(lambda s: [s[1], s[0], *s[2:]] if len(s) > 1 else s)


@fault(core=True, operations=("psum",), meshes=("2x4",))
def rotated_shards():
    return results(lambda s: [*s[1:], s[0]])


@fault(core=True, operations=("psum",), meshes=("2x4",))
def repeated_shard():
    return results(lambda s: [*s[:-1], s[0]])


@fault(core=True, operations=("psum",), meshes=("2x4",))
def wrong_replica_on_one_device():
    return results(last(nudged), lambda case: any(not any(r.spec) for r in case.plan.results))


@fault(core=True, operations=("psum",), meshes=("2x4",))
def last_bit_of_one_element():
    return results(last(nudged), lambda case: case.plan.judge != "bound")


@fault(operations=("psum",), meshes=("2x4",))
def stale_shard():
    """The last device gives what it gave the call before."""
    before: dict[tuple, np.ndarray] = {}

    def edit(shards: Shards) -> Shards:
        key = (shards[-1].shape, shards[-1].dtype.name)
        stale = before.get(key, shards[-1])
        before[key] = shards[-1]
        return [*shards[:-1], stale]

    return results(edit)


@fault(operations=("psum",), meshes=("2x4",))
def state_carried_from_call_to_call():
    """Every call adds what the call before left behind."""
    left: dict[tuple, np.ndarray] = {}

    def edit(shards: Shards) -> Shards:
        key = (shards[0].shape, shards[0].dtype.name)
        out = [shards[0] + left.get(key, np.zeros_like(shards[0])), *shards[1:]]
        left[key] = shards[0]
        return out

    return results(edit)


@fault(operations=("psum",), meshes=("2x4",))
def wrong_once_in_fifty_calls():
    calls = iter(range(10**9))
    return results(lambda s: last(nudged)(s) if next(calls) % 50 == 49 else s)


@fault(operations=("psum",), meshes=("2x4",))
def first_row_of_the_last_shard():
    def edit(s: np.ndarray) -> np.ndarray:
        out = s.copy()
        if out.ndim and out.size:
            out[0] = 0
        return out

    return results(last(edit))


for _name in ("bfloat16", "float16", "int32", "int8", "uint8", "bool"):

    @fault(operations=("psum", "pmax"), dtypes=(_name,))
    def _wrong(name=_name):
        return results(last(nudged), of_dtype(name))

    CATALOGUE[f"wrong only for {_name}"] = CATALOGUE.pop(" wrong")
    CATALOGUE[f"wrong only for {_name}"].name = f"wrong only for {_name}"

for _name in ("8", "4x2", "2x2x2", "1x8", "3", "6", "2x4-shuffled"):

    @fault(operations=("psum", "pmax"), meshes=(_name,))
    def _wrong(name=_name):
        return results(last(np.zeros_like), on_mesh(name))

    CATALOGUE[f"wrong only on mesh {_name}"] = CATALOGUE.pop(" wrong")
    CATALOGUE[f"wrong only on mesh {_name}"].name = f"wrong only on mesh {_name}"


@fault(operations=("ppermute",), only=of_rank(1))
def wrong_only_for_vectors():
    return results(lambda s: last(np.zeros_like)(s) if s[0].ndim == 1 else s)


@fault(operations=("all_gather",), only=of_rank(4))
def wrong_only_for_rank_four():
    return results(lambda s: last(np.zeros_like)(s) if s[0].ndim == 4 else s)


@fault(operations=("all_gather", "psum_scatter", "psum"), only=reversed_axes)
def wrong_only_for_reversed_axes():
    return results(last(np.zeros_like), reversed_axes)


@fault(sizes=("512KiB",), operations=("psum", "ppermute"))
def wrong_above_64_Ki_elements():
    return results(lambda s: last(nudged)(s) if s[0].size > 65536 else s)


@fault(sizes=("64B",), operations=("psum",))
def wrong_only_for_small_arrays():
    return results(last(nudged), lambda case: case.cell.request.size == "64B")


@fault(core=True, operations=("psum",), meshes=("2x4",))
def negative_numbers_lose_their_sign():
    return results(each(lambda s: np.abs(s) if s.dtype.kind in "fiV" else s))


@fault(operations=("all_gather", "all_to_all", "ppermute"), only=of_special_values)
def NaN_becomes_zero():
    return results(each(lambda s: np.where(np.isnan(s), np.zeros_like(s), s) if s.dtype.kind in "fV" else s))


@fault(operations=("all_gather", "all_to_all", "ppermute"), only=of_special_values)
def minus_zero_becomes_zero():
    return results(each(lambda s: np.where(s == 0, np.zeros_like(s), s) if s.dtype.kind in "fV" else s))


@fault(operations=("all_gather", "all_to_all", "ppermute"), only=of_special_values)
def infinity_becomes_the_largest_number():
    return results(each(lambda s: np.nan_to_num(s, nan=np.nan) if s.dtype == np.float32 else s))


@fault(operations=("all_gather", "all_to_all", "ppermute"), only=of_special_values)
def subnormals_are_flushed():
    tiny = np.finfo(np.float32).tiny
    return results(
        each(lambda s: np.where(np.abs(s) < tiny, np.copysign(0, s), s) if s.dtype == np.float32 else s)
    )


@fault(core=True, operations=("psum",), meshes=("2x4",))
def results_rounded_to_bfloat16():
    return results(each(through(ml_dtypes.bfloat16)))


@fault(core=True, operations=("psum",), meshes=("2x4",))
def results_rounded_to_float16():
    return results(each(through(np.float16)))


@fault(core=True, operations=("psum",), meshes=("2x4",))
def results_rounded_to_TF32():
    def edit(s: np.ndarray) -> np.ndarray:
        return (s.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if s.dtype == np.float32 else s

    return results(each(edit))
