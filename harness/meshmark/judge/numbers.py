# SPDX-License-Identifier: Apache-2.0
"""Compares the numbers of a result with the reference, shard by shard, and its replicas with each other.

Values that are not finite are compared first, under every judge: where the reference has a NaN, the result must have
a NaN; where it has an infinity, an infinity of the same sign; nowhere else may either be. Both parts of a complex
number are compared in this way. The sign of a zero is free unless the judge is "bits"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from meshmark.core import layout
from meshmark.core.dtypes import as_bits
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.operations.base import Argument, Result
from meshmark.operations.cases import Case


@dataclass
class Numbers:
    """The comparison of one result.

    `badness` is the largest error as a multiple of its bound; it is inf if the bound is zero and the numbers differ.
    """

    badness: float = 0.0
    error: float = 0.0
    bound: float = 0.0
    reason: str = ""
    replica: str = ""
    assembled: np.ndarray = field(default_factory=lambda: np.zeros(0))


Difference = tuple[float, float, float, tuple[int, ...], int]
"""The worst element: (badness, error, bound, index, number of wrong elements)."""

ROUNDING = "no element is off by more than 4 units in the last place of the largest"
"""The text that the reason adds if an exact result was only rounded."""


def compare_numbers(
    case: Case,
    places: Sequence[Any],
    result: Argument | Result,
    output: jax.Array,
    want: np.ndarray,
    bound: np.ndarray | None,
    flushed: float = 0.0,
) -> Numbers:
    """Compare every device's shard with its part of the reference, and replicas with each other to the bit.

    A device's part follows from the mesh and the expected spec, by this project's own arithmetic. JAX must give the
    same index for the shard. `flushed`: how many times the smallest normal number counts as zero (see
    `without_subnormals`).
    """
    if output.shape != result.shape or output.dtype.name != result.dtype:
        return Numbers(
            np.inf,
            reason=f"result is {output.dtype}{list(output.shape)} instead of {result.dtype}{list(result.shape)}",
        )
    if absent := hidden(places, output):
        return Numbers(np.inf, reason=absent)
    shards = [
        Shard(
            shard.device,
            np.asarray(shard.data),
            tuple(slice(*i.indices(n)[:2]) for i, n in zip(shard.index, result.shape, strict=True)),
        )
        for shard in output.addressable_shards
    ]
    return compare_shards(case, places, result, shards, want, bound, flushed)


@dataclass(frozen=True)
class Shard:
    """What one device holds of a result, and which part of it this is by the array's own sharding."""

    device: Any
    data: np.ndarray
    index: tuple[slice, ...]


def compare_shards(
    case: Case,
    places: Sequence[Any],
    result: Argument | Result,
    shards: Sequence[Shard],
    want: np.ndarray,
    bound: np.ndarray | None,
    flushed: float = 0.0,
) -> Numbers:
    """Compare shards whose dtype, shape and devices were checked before; arguments as in `compare_numbers`."""
    verdict, largest = Numbers(), 0.0
    parts = dict(zip(places, layout.indices(result.shape, result.spec, case.mesh.sizes), strict=True))
    first: dict[tuple, tuple[Any, np.ndarray]] = {}
    assembled = np.zeros(result.shape, dtype_of(result.dtype).numpy)
    for shard in shards:
        index, seen = parts.get(shard.device), shard.data
        if index is None or seen.shape != want[index].shape:
            # The placement check reports the wrong sharding; here the existing data are compared.
            index = shard.index
        if seen.shape != want[index].shape:
            return Numbers(
                np.inf,
                reason=f"{shard.device} holds {list(seen.shape)} where its sharding says {show(index)}",
            )
        key = tuple((i.start, i.stop) for i in index)
        if key in first:
            other, block = first[key]
            if not verdict.replica and not np.array_equal(as_bits(block), as_bits(seen)):
                verdict.replica = (
                    f"devices {other} and {shard.device} hold different replicas of {show(index)}"
                )
        else:
            first[key] = (shard.device, seen)
            assembled[index] = seen
        limit = None if bound is None else bound[index]
        found = find_worst_element(case.plan.judge, seen, want[index], limit, flushed)
        largest = max(largest, found[1]) if found is not None else largest
        if found is not None and found[0] > verdict.badness:
            verdict.badness, verdict.error, verdict.bound, where, count = found
            if verdict.badness > 1:
                place_ = tuple(int(w) + i.start for w, i in zip(where, index, strict=True))
                verdict.reason = (
                    f"{count} of {seen.size} elements differ on {shard.device} (shard {show(index)}): at"
                    f" {list(place_)} expected {want[index][where]}, seen {seen[where]}"
                )
    if verdict.reason and case.plan.judge == "exact" and within_rounding(largest, want, result.dtype):
        verdict.reason += f"; {ROUNDING}"
    verdict.assembled = assembled
    return verdict


def within_rounding(error: float, want: np.ndarray, dtype: str) -> bool:
    """Whether an error is at most 4 units in the last place of the largest finite element of the reference."""
    kind = dtype_of(dtype)
    if kind.kind not in ("float", "complex"):
        return False
    sizes = np.abs(_wide(want))
    return bool(error <= 8 * kind.unit_roundoff * sizes.max(initial=0.0, where=np.isfinite(sizes)))


def hidden(places: Sequence[Any], output: jax.Array) -> str:
    """Why the output does not have exactly one shard on each device of the mesh that this process owns, or "".

    The comparison loops over the shards that JAX lists, so a shard that JAX does not list would pass unseen.
    """
    here = jax.process_index()
    own = {device for device in places if device.process_index == here}
    shown = Counter(shard.device for shard in output.addressable_shards)
    if missing := sorted(own - shown.keys(), key=str):
        return f"{len(missing)} of {len(own)} devices of this process show no shard, such as {missing[0]}"
    if foreign := sorted(shown.keys() - own, key=str):
        return f"{foreign[0]} shows a shard and is not a device of the mesh and this process"
    twice = next((device for device, number in shown.items() if number > 1), None)
    return "" if twice is None else f"{twice} shows {shown[twice]} shards instead of one"


def find_worst_element(
    judge: str, seen: np.ndarray, want: np.ndarray, bound: np.ndarray | None, flushed: float = 0.0
) -> Difference | None:
    """The worst element of a block against its reference; None for an empty block, or without a bound if no element
    differs.

    ValueError if a finite element of the reference has no finite bound: no result could fail there.
    """
    if not seen.size or (bound is None and np.array_equal(as_bits(seen), as_bits(want))):
        return None
    if bound is None and judge == "bits":
        wrong = (as_bits(seen) != as_bits(want)).reshape(*seen.shape, -1).any(axis=-1)
        return _worst(wrong, seen, want)
    if bound is None and not _inexact(seen):
        wrong = seen != want
        return _worst(wrong, seen, want) if wrong.any() else None
    if bound is None and flushed:
        seen, want = without_subnormals(seen, flushed), without_subnormals(want, flushed)
    strange = unlike(seen, want)
    if strange.any():
        return _worst(strange, seen, want)
    if bound is None:
        s, w = _parts(seen), _parts(want)
        wrong = (np.isfinite(w) & (s != w)).any(axis=-1)
        return _worst(wrong, seen, want) if wrong.any() else None
    finite = np.isfinite(_wide(want))
    with np.errstate(all="ignore"):
        error = np.where(finite, np.abs(_wide(seen) - _wide(want)), 0.0)
    if not np.isfinite(bound[finite]).all():
        raise ValueError("the reference has no finite bound for this case, so no result could fail")
    with np.errstate(all="ignore"):
        ratio = np.where(error == 0, 0.0, error / bound)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    where = tuple(int(i) for i in np.unravel_index(np.argmax(ratio), ratio.shape))
    limit = float(bound[where]) if finite[where] else 0.0
    return float(ratio[where]), float(error[where]), limit, where, int((ratio > 1).sum())


def unlike(seen: np.ndarray, want: np.ndarray) -> np.ndarray:
    """A bool array: where one of two float or complex arrays of one shape is not finite, and the other differs."""
    s, w = _parts(seen), _parts(want)
    same = np.isfinite(s) & np.isfinite(w) | (s == w) | np.isnan(s) & np.isnan(w)
    return ~same.all(axis=-1)


MOST_LOST = 0.5
"""The smallest magnitude of a number that can't count as zero. Sums of subnormal numbers below it may count as zero.
Ordinary numbers are whole."""


def without_subnormals(array: np.ndarray, times: float = 1.0) -> np.ndarray:
    """The array with zeros for all numbers smaller in magnitude than `times` the smallest normal number, or than 0.5 if
    that is less.

    An array that holds neither floats nor complex numbers is returned unchanged.
    """
    if not _inexact(array):
        return array
    smallest = dtype_of(array.dtype.name).tiny
    tiny = max(smallest, min(times * smallest, MOST_LOST))
    parts = _parts(array)
    small = np.abs(parts) < tiny
    kept = np.where(small, 0.0, parts)
    return (kept[..., 0] if array.dtype.kind != "c" else kept[..., 0] + 1j * kept[..., 1]).astype(array.dtype)


def same_bits(some: Sequence[jax.Array], others: Sequence[jax.Array]) -> bool:
    """Whether two executions have the same bits on every device."""
    return all(
        np.array_equal(as_bits(np.asarray(a.data)), as_bits(np.asarray(b.data)))
        for one, other in zip(some, others, strict=True)
        for a, b in zip(one.addressable_shards, other.addressable_shards, strict=True)
    )


def show(index: Sequence[slice] | None) -> str:
    """The slices of a shard as text: [0:1, 0:64]."""
    return "nothing" if index is None else "[" + ", ".join(f"{i.start}:{i.stop}" for i in index) + "]"


def _worst(wrong: np.ndarray, seen: np.ndarray, want: np.ndarray) -> Difference:
    """The first of the wrong elements, and the largest error among them."""
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    with np.errstate(all="ignore"):
        error = np.abs(_wide(seen) - _wide(want))[wrong]
    return np.inf, float(np.where(np.isnan(error), np.inf, error).max()), 0.0, where, int(wrong.sum())


def _inexact(array: np.ndarray) -> bool:
    return dtype_of(array.dtype.name).kind in ("float", "complex")


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _parts(array: np.ndarray) -> np.ndarray:
    """float64 of shape [..., 1], or [..., 2] for the parts of complex numbers."""
    wide = np.ascontiguousarray(_wide(array))
    return wide.view(np.float64).reshape(*array.shape, 1 + (array.dtype.kind == "c"))
