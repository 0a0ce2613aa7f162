# SPDX-License-Identifier: Apache-2.0
"""Computes the numbers of a record again, from the case and its seed.

If a case must be exact, case and seed determine its digest, and its error and bound are zero. If a case is rounded,
case and seed determine the reference and its bounds. Three checks then need no device. The bound is one of the
reference's. The error is not smaller than that of the nearest values of the result's dtype. The reference plus or minus
the error is a value of that dtype.

This shows that the answers belong to the seed. It does not show that a device computed them: anyone who runs the
reference has the exact answers too. The rounded answers of a reference betray themselves: each is the nearest number,
and a device that adds and multiplies in its own dtype seldom has all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from meshmark.core import digests, hosts, layout
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.judge.checks import has_special_values
from meshmark.judge.numbers import without_subnormals
from meshmark.operations.base import Argument, Result, owners_of
from meshmark.operations.cases import Case, Cell
from meshmark.publish.review import AS_WRITTEN, Review
from meshmark.records import run_line
from meshmark.records.definition import ConformanceLine
from meshmark.records.run_definition import RunFacts

ODD, MOST_ODD = 0.04, 10
"""The share, and the number, of exact cases with zeros whose digests may differ from the reference: a zero may have
either sign. In two published runs, 10 of 1116 (virtual CPU devices) and 4 of 589 (an H100) differ."""

NEAREST, LEAST_ROUNDED, SEVERAL = 0.3, 20, 4
"""The share of rounded cases whose results may all be the numbers nearest to the reference; the fewest cases of which
it is taken; the fewest elements of the results of such a case. In two published runs, 16 of 846 (virtual CPU devices)
and 21 of 480 (an H100) have the digest or the error of the nearest numbers."""

ACCUMULATOR = 2.0**-24
"""The unit roundoff in which dtypes narrower than float32 are added up."""

_BITS = re.compile(r"default \((\d+) bits\)")


@dataclass(frozen=True)
class Answer:
    """What the reference gives for a cell."""

    expected: tuple[np.ndarray, ...]
    bounds: tuple[np.ndarray | None, ...]


@dataclass
class Tally:
    """Counts what is plausible in one case of a product and not in most."""

    zeros: int = 0
    """Exact cases with zeros in their results. Nearly all honest ones have the signs of the reference."""
    odd: list[str] = field(default_factory=list)
    """The ids of such cases with another digest."""
    rounded: int = 0
    """Rounded cases with SEVERAL elements or more."""
    nearest: list[str] = field(default_factory=list)
    """The ids of such cases whose results are all the nearest numbers."""

    def tell(self, review: Review) -> None:
        """Complain if too many digests differ, or too many results are nearest; note fewer digests."""
        if self.rounded >= LEAST_ROUNDED and len(self.nearest) > NEAREST * self.rounded:
            review.complain(
                "",
                f"the results of {len(self.nearest)} of {self.rounded} rounded cases are the numbers nearest to the"
                f" reference, such as {self.nearest[0]}: a device rounds on the way: {AS_WRITTEN}",
            )
        if not self.odd:
            return
        text = f"{len(self.odd)} of {self.zeros} exact cases with zeros have other digests than the reference"
        if len(self.odd) > max(MOST_ODD, ODD * self.zeros):
            told = f"{text}, such as {self.odd[0]}, and honest runs have one in a hundred: {AS_WRITTEN}"
            review.complain("", told)
        else:
            review.notes.append(f"{text}: zeros of another sign, or other answers, such as {self.odd[0]}")


@lru_cache(maxsize=4)
def answer(cell: Cell, seed: int, rounding: float) -> Answer:
    """The reference of a cell. ValueError or another exception if it has none."""
    arguments = cell.arguments(seed)
    expected, bounds = cell.expected(arguments, rounding)
    return Answer(tuple(map(np.asarray, expected)), tuple(bounds))


def digest_results(case: Case, expected: Iterable[np.ndarray], owners: tuple[int, ...] | None = None) -> str:
    """The digest of a case with exactly these results. owners: the process of each mesh position."""
    sizes, arrays, shown = case.mesh.sizes, [], []
    for result, array in zip(case.plan.results, expected, strict=True):
        parts: list[tuple[slice, ...]]
        if case.mode == "pmap":
            array = np.stack(layout.split(array, result.spec, sizes))
            parts = [(slice(i, i + 1),) for i in range(len(array))]
        else:
            parts = layout.indices(result.shape, result.spec, sizes)
        arrays.append(array)
        shown.append(parts)
    if owners is None:
        return digests.of_arrays(arrays)
    ranks = []
    for rank in range(max(owners) + 1):
        own = [np.zeros_like(array) for array in arrays]
        for mine, array, parts in zip(own, arrays, shown, strict=True):
            for owner, index in zip(owners, parts, strict=True):
                if owner == rank:
                    mine[index] = array[index]
        ranks.append(digests.of_arrays(own))
    return digests.of_ranks(ranks)


def owners(case: Case, facts: RunFacts) -> tuple[int, ...] | None:
    """The process of each mesh position in a run; None if there is one process."""
    processes = run_line.processes(facts)
    if processes == 1:
        return None
    own = owners_of(case.mesh, facts["num_devices"], processes)
    return (*own,) if max(own) + 1 == processes else None


def determined(case: Case, expected: Iterable[np.ndarray]) -> bool:
    """Whether correct results have only one bit pattern. In an exact case a float zero may have either sign, and a NaN
    may have any payload (an H100 and NumPy give different ones)."""
    if case.plan.judge == "bits":
        return True
    return case.plan.judge == "exact" and not any(
        a.dtype.kind not in "iub" and ((a == 0) | (a != a)).any() for a in expected
    )


UNCOMPUTED = (ValueError, OverflowError, MemoryError, TypeError, IndexError, KeyError, ArithmeticError)
"""What a reference raises where it can't be computed."""


class NoReference(Exception):
    """A case has no reference on these devices; the message says why."""


def find_impossible_numbers(
    case: Case, record: ConformanceLine, facts: RunFacts, tally: Tally
) -> Iterator[str]:
    """Yields what is impossible in a passing line of numbers or gradient. NoReference if its answer can't be computed
    here."""
    if problem := find_contradiction(case, record, facts):
        yield problem
    else:
        yield from find_wrong_answers(case, record, facts, tally)


def find_contradiction(case: Case, record: ConformanceLine, facts: RunFacts) -> str:
    """What is impossible in a passing line of numbers or gradient, without any computation; "" if nothing is."""
    error, bound = record["error"], record["bound"]
    if case.plan.judge != "bound" and (error or bound):
        return f"error {error} and bound {bound} of an exact case, which are 0"
    said, asked = str(record.get("precision", "")), case.plan.precision
    if asked != "default":
        return "" if said == asked else f"precision {said[:40]!a} of a case at {asked or 'none'!a}"
    if dtype_of(case.cell.request.dtype).kind != "float":  # no device rounds such factors
        return "" if said == asked else f"precision {said[:40]!a} of whole or complex numbers"
    digits, bits = dtype_of(case.cell.request.dtype).digits, _bits(record)
    if not 7 <= bits <= max(digits, 7) or (facts.get("backend") == "cpu" and bits != digits):
        return f"precision {said[:40]!a}, which no arithmetic of this backend has"
    return ""


def _quantities(record: ConformanceLine) -> tuple[float, float]:
    """The error and the bound of a passing line. Both are numbers: another rule refuses texts."""
    return float(record["error"]), float(record["bound"])


def _bits(record: ConformanceLine) -> int:
    """The bits of the default precision that a record names; 0 if it names none."""
    match = _BITS.fullmatch(str(record.get("precision", "")))
    return int(match[1]) if match and len(match[1]) < 4 else 0


def factor_roundoff(case: Case, record: ConformanceLine) -> float:
    """The unit roundoff to which the device rounds the factors of a contraction, as the record's precision names it; 0
    if it does not round them."""
    bits = _bits(record) if case.plan.precision == "default" and case.plan.judge == "bound" else 0
    return 2.0**-bits if 0 < bits < dtype_of(case.cell.request.dtype).digits else 0.0


def find_wrong_answers(case: Case, record: ConformanceLine, facts: RunFacts, tally: Tally) -> Iterator[str]:
    """Yields where a passing line of numbers or gradient, without a contradiction, does not have the answer of the
    reference. NoReference if the answer can't be computed here."""
    who, special = owners(case, facts), has_special_values(case.cell) and case.plan.judge != "bits"
    if who is None and run_line.processes(facts) > 1:
        raise NoReference("the mesh has no devices of some processes")
    try:
        found = answer(case.cell, record["seed"], factor_roundoff(case, record))
        if special:
            yield from _special(case, record, found, who)
        elif case.plan.judge == "bound":
            yield from _rounded(case, *_quantities(record), found, who is None)
            if sum(want.size for want in found.expected) >= SEVERAL:
                tally.rounded += 1
                tally.nearest += [case.id] * is_nearest(case, record, found, who)
        else:
            want = digest_results(case, found.expected, who)
            if determined(case, found.expected):
                if record.get("bits") != want:
                    yield f"bits {record.get('bits')} are not those of seed {record['seed']}, {want}"
            elif not any(a.dtype.kind not in "iub" and (a != a).any() for a in found.expected):
                tally.zeros += 1
                tally.odd += [case.id] * (record.get("bits") != want)
    except UNCOMPUTED as error:
        raise NoReference(f"{type(error).__name__}: {error}") from error


def is_nearest(
    case: Case, record: ConformanceLine, found: Answer, who: tuple[int, ...] | None = None
) -> bool:
    """Whether the digest of a rounded case, or its error, is that of the numbers nearest to the reference. who: the
    process of each mesh position; None if there is one process."""
    results = list(zip(case.plan.results, found.expected, found.bounds, strict=True))
    error, bound = _quantities(record)
    if who is None and bound:
        share = error / bound
        least = [_least(case, r, want, b)[1] for r, want, b in results if b is not None and want.size]
        if 0 < share <= max(least, default=0.0):
            return True
    with np.errstate(all="ignore"):
        nearest = [want.astype(dtype_of(result.dtype).numpy) for result, want, _ in results]
    return bool(record.get("bits") == digest_results(case, nearest, who))


LOOSE = 4.0
"""The factor by which the bound of special values may exceed the largest of the reference: a device may flush subnormal
numbers, which the reference does not model."""


def _special(
    case: Case, record: ConformanceLine, found: Answer, who: tuple[int, ...] | None
) -> Iterator[str]:
    """Yields a bound of a case with special values that is larger than the reference allows, or a digest that is
    neither that of a device that keeps subnormal numbers nor that of one that flushes them."""
    if case.plan.judge == "bound":
        limits = [one[np.isfinite(one)] for one in found.bounds if one is not None]
        largest = max((float(one.max()) for one in limits if one.size), default=0.0)
        _, bound = _quantities(record)
        if bound > LOOSE * max(largest, float(np.finfo(np.float32).tiny)):
            yield f"bound {bound:.6g}, and the largest of the reference is {largest:.6g}"
        return
    flushing, _ = case.cell.expected(
        [without_subnormals(a) for a in case.cell.arguments(record["seed"])], 0.0
    )
    either = [found.expected, tuple(map(np.asarray, flushing))]
    if all(determined(case, expected) for expected in either):
        wanted = [digest_results(case, expected, who) for expected in either]
        if record.get("bits") not in wanted:
            yield f"bits {record.get('bits')} are not those of seed {record['seed']}, {wanted[0]}"


def _rounded(case: Case, error: float, bound: float, found: Answer, alone: bool) -> Iterator[str]:
    """Yields what is impossible in the error and bound of a rounded case. alone: whether one process gave them. With
    several ranks the record has the largest error, which may not be the largest relative to its bound."""
    lowest, near, exact = 0.0, False, False
    for result, want, limits in zip(case.plan.results, found.expected, found.bounds, strict=True):
        if limits is None or not want.size:
            continue
        lowest = max(lowest, _least(case, result, want, limits)[0])
        if bound:
            with np.errstate(all="ignore"):
                at = np.abs(limits - bound) <= hosts.host_share(_finest(result)) * limits
            near = near or bool(at.any())
            exact = exact or _representable(case, result, want[at], limits[at], error)
    if not bound:
        if error or lowest > 0:
            yield f"error {error} and bound {bound} of a rounded case: its error is at least {lowest:.3g} of its bound"
        return
    if not near:
        yield f"bound {bound:.6g} is not one of the reference's"
    elif alone and error / bound < lowest:
        yield f"error {error:.6g} is {error / bound:.3g} of its bound, and the nearest numbers are {lowest:.3g} of it"
    elif not exact:
        yield f"error {error:.6g} is not that of a number that {case.plan.results[0].dtype} has"


def _finest(result: Argument | Result) -> float:
    """The unit roundoff of the sums of which a result consists."""
    return min(dtype_of(result.dtype).unit_roundoff or ACCUMULATOR, ACCUMULATOR)


def _apart(case: Case, result: Argument | Result) -> float:
    """How far the references of two hosts may be apart, as a share of the bound."""
    return hosts.host_error(_finest(result)) * (case.operation.magnified if case.plan.wrt else 1.0)


def _least(
    case: Case, result: Argument | Result, want: np.ndarray, limits: np.ndarray
) -> tuple[float, float]:
    """The largest error, as a multiple of its bound, if every element is the value of the dtype nearest to the
    reference: the least and the most that it may be on another host."""
    if want.dtype.kind in "iub":  # such a result is exact beside rounded ones
        return 0.0, 0.0
    kind = dtype_of(result.dtype).numpy
    with np.errstate(all="ignore"):
        away = np.abs(want.astype(kind).astype(want.dtype) - want)
        ratio = np.where(away == 0, 0.0, away / limits)
    ratio = ratio[np.isfinite(ratio)]
    largest = float(ratio.max()) if ratio.size else 0.0
    if not largest:
        return 0.0, 0.0
    apart, share = _apart(case, result), hosts.host_share(_finest(result))
    return max(0.0, largest - apart) / (1 + share), (largest + apart) / (1 - share)


def _representable(
    case: Case, result: Argument | Result, want: np.ndarray, limits: np.ndarray, error: float
) -> bool:
    """Whether one of these references, plus or minus the error, is a value of the result's dtype."""
    kind = dtype_of(result.dtype).numpy
    if kind.kind == "c" or kind.itemsize == 8:
        return want.size > 0
    with np.errstate(all="ignore"):
        # The error was rounded to float64, and so are this sum and this difference.
        room = _apart(case, result) * limits + 2.0**-51 * (np.abs(want) + error)
        for sign in (1, -1):
            reached = want + sign * error
            if (np.abs(reached.astype(kind).astype(np.float64) - reached) <= room).any():
                return True
    return False
