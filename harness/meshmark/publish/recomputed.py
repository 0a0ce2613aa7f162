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

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from meshmark.core import digests, layout
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.judge.checks import has_special_values
from meshmark.operations.base import Argument, Result, nbytes, owners_of
from meshmark.operations.cases import Case, Cell
from meshmark.publish.review import AS_WRITTEN, Review
from meshmark.records import run_line

MOST_WORK = 1 << 30
"""Bytes of arguments and results to compute again for one product. The standard profile on eight devices needs about a
fifth of it. Cases beyond it are left out, and a note says how many."""

ODD, MOST_ODD = 0.04, 10
"""The share, and the number, of exact cases with zeros whose digests may differ from the reference: a zero may have
either sign. In two published runs, 6 of 784 and 4 of 589 differ."""

NEAREST, LEAST_ROUNDED, SEVERAL = 0.3, 20, 4
"""The share of rounded cases whose results may all be the numbers nearest to the reference; the fewest cases of which
it is taken; the fewest elements of the results of such a case. Of 400 cases each of two published runs, 5 (virtual CPU
devices) and 16 (an H100) have the digest or the error of the nearest numbers."""

CLOSE = 1e-9
"""The relative difference allowed between the float64 references of two machines, which add in different orders."""

_BITS = re.compile(r"default \((\d+) bits\)")


@dataclass(frozen=True)
class Answer:
    """What the reference gives for a cell."""

    expected: tuple[np.ndarray, ...]
    bounds: tuple[np.ndarray | None, ...]


@dataclass
class Work:
    """Counts what is computed again for one product, up to a limit."""

    left: int = MOST_WORK
    done: int = 0
    left_out: int = 0
    zeros: int = 0
    """Exact cases with zeros in their results. Nearly all honest ones have the signs of the reference."""
    odd: list[str] = field(default_factory=list)
    """The ids of such cases with another digest."""
    rounded: int = 0
    """Rounded cases with SEVERAL elements or more."""
    nearest: list[str] = field(default_factory=list)
    """The ids of such cases whose results are all the nearest numbers."""
    _seen: set[tuple[str, int, float]] = field(default_factory=set)

    def allows(self, case: Case, seed: int, rounding: float) -> bool:
        """Whether this case's cell may be computed. The modes of a cell count once against the limit."""
        key = (case.cell.id, seed, rounding)
        if key not in self._seen:
            parts: list[Argument | Result] = [*case.plan.arguments, *case.plan.results]
            cost = sum(nbytes(part, case.mesh) for part in parts) * case.mesh.size
            if cost > self.left:
                self.left_out += 1
                return False
            self.left -= cost
            self._seen.add(key)
        self.done += 1
        return True

    def tell(self, name: str, review: Review) -> None:
        """Note how much of a file was computed again, and complain if too many digests differ."""
        if self.left_out:
            review.notes.append(
                f"{self.done} of {self.done + self.left_out} passing cases were computed again from their seed: the"
                " rest is beyond the limit"
            )
        if self.rounded >= LEAST_ROUNDED and len(self.nearest) > NEAREST * self.rounded:
            review.complain(
                name,
                f"the results of {len(self.nearest)} of {self.rounded} rounded cases are the numbers nearest to the"
                f" reference, such as {self.nearest[0]}: a device rounds on the way: {AS_WRITTEN}",
            )
        if not self.odd:
            return
        text = f"{len(self.odd)} of {self.zeros} exact cases with zeros have other digests than the reference"
        if len(self.odd) > max(MOST_ODD, ODD * self.zeros):
            told = f"{text}, such as {self.odd[0]}, and honest runs have one in a hundred: {AS_WRITTEN}"
            review.complain(name, told)
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


def owners(case: Case, facts: Mapping[str, Any]) -> tuple[int, ...] | None:
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


def find_impossible_numbers(
    case: Case, record: Mapping[str, Any], facts: Mapping[str, Any], work: Work
) -> Iterator[str]:
    """Yields what is impossible in a passing line of numbers or gradient."""
    error, bound = record["error"], record["bound"]
    if case.plan.judge != "bound" and (error or bound):
        yield f"error {error} and bound {bound} of an exact case, which are 0"
        return
    rounding, problem = _rounding(case, record, facts)
    if problem:
        yield problem
        return
    if has_special_values(case.cell) and case.plan.judge != "bits":
        yield from _special(case, record, bound, rounding)  # a device may treat subnormals in its own way
        return
    seed = record["seed"]
    if not work.allows(case, seed, rounding):
        return
    processes = run_line.processes(facts)
    try:
        found = answer(case.cell, seed, rounding)
        if case.plan.judge == "bound":
            yield from _rounded(case, error, bound, found, alone=processes == 1)
            if sum(want.size for want in found.expected) >= SEVERAL:
                work.rounded += 1
                work.nearest += [case.id] * is_nearest(case, record, found, facts)
            return
        who = owners(case, facts)
        if processes > 1 and who is None:
            return
        want = digest_results(case, found.expected, who)
        if not determined(case, found.expected):
            if not any(a.dtype.kind not in "iub" and (a != a).any() for a in found.expected):
                work.zeros += 1
                work.odd += [case.id] * (record.get("bits") != want)
            return
    except (ValueError, OverflowError, MemoryError, TypeError, IndexError, KeyError, ArithmeticError):
        return  # there is no reference on these devices
    if record.get("bits") != want:
        yield f"bits {record.get('bits')} are not those of seed {seed}, {want}"


def is_nearest(case: Case, record: Mapping[str, Any], found: Answer, facts: Mapping[str, Any]) -> bool:
    """Whether the digest of a rounded case, or its error, is that of the numbers nearest to the reference."""
    results = list(zip(case.plan.results, found.expected, found.bounds, strict=True))
    if run_line.processes(facts) == 1:
        rounded = [(r, want, limits) for r, want, limits in results if limits is not None and want.size]
        least = max((_least(*one) for one in rounded), default=0.0)
        if least and record["error"] <= least * record["bound"] * (1 + 1e-6):
            return True
    who = owners(case, facts)
    if who is None and run_line.processes(facts) > 1:
        return False
    with np.errstate(all="ignore"):
        nearest = [want.astype(dtype_of(result.dtype).numpy) for result, want, _ in results]
    return bool(record.get("bits") == digest_results(case, nearest, who))


LOOSE = 4.0
"""The factor by which the bound of special values may exceed the largest of the reference: a device may flush subnormal
numbers, which the reference does not model."""


def _special(case: Case, record: Mapping[str, Any], bound: float, rounding: float) -> Iterator[str]:
    """Yields a bound of a case with special values that is larger than the reference allows."""
    if not bound:
        return
    try:
        found = answer(case.cell, record["seed"], rounding)
    except (ValueError, OverflowError, MemoryError, TypeError, IndexError, KeyError, ArithmeticError):
        return
    limits = [one[np.isfinite(one)] for one in found.bounds if one is not None]
    largest = max((float(one.max()) for one in limits if one.size), default=0.0)
    if bound > LOOSE * max(largest, float(np.finfo(np.float32).tiny)):
        yield f"bound {bound:.6g}, and the largest of the reference is {largest:.6g}"


def _rounding(case: Case, record: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[float, str]:
    """The unit roundoff of a contraction's factors, as the record's precision names it, and why it is impossible ("" if
    it is not)."""
    said, asked = str(record.get("precision", "")), case.plan.precision
    if asked != "default":
        return 0.0, "" if said == asked else f"precision {said[:40]!a} of a case at {asked or 'none'!a}"
    if dtype_of(case.cell.request.dtype).kind != "float":  # no device rounds such factors
        return 0.0, "" if said == asked else f"precision {said[:40]!a} of whole or complex numbers"
    match = _BITS.fullmatch(said)
    digits = dtype_of(case.cell.request.dtype).digits
    bits = int(match[1]) if match and len(match[1]) < 4 else 0
    if not 7 <= bits <= max(digits, 7) or (facts.get("backend") == "cpu" and bits != digits):
        return 0.0, f"precision {said[:40]!a}, which no arithmetic of this backend has"
    rounds = bits < digits and case.plan.judge == "bound"
    return (2.0**-bits if rounds else 0.0), ""


def _rounded(case: Case, error: float, bound: float, found: Answer, alone: bool) -> Iterator[str]:
    """Yields what is impossible in the error and bound of a rounded case. alone: whether one process gave them. With
    several ranks the record has the largest error, which may not be the largest relative to its bound."""
    lowest, near, exact = 0.0, False, False
    for result, want, limits in zip(case.plan.results, found.expected, found.bounds, strict=True):
        if limits is None or not want.size:
            continue
        lowest = max(lowest, _least(result, want, limits))
        if bound:
            at = np.isclose(limits, bound, rtol=1e-6, atol=0)
            near = near or bool(at.any())
            exact = exact or _representable(result, want[at], limits[at], error)
    if not bound:
        if error or lowest > 0:
            yield f"error {error} and bound {bound} of a rounded case: its error is at least {lowest:.3g} of its bound"
        return
    if not near:
        yield f"bound {bound:.6g} is not one of the reference's"
    elif alone and error / bound < lowest * (1 - 1e-6):
        yield f"error {error:.6g} is {error / bound:.3g} of its bound, and the nearest numbers are {lowest:.3g} of it"
    elif not exact:
        yield f"error {error:.6g} is not that of a number that {case.plan.results[0].dtype} has"


def _least(result: Argument | Result, want: np.ndarray, limits: np.ndarray) -> float:
    """The largest error, as a multiple of its bound, if every element is the value of the dtype nearest to the
    reference."""
    kind = dtype_of(result.dtype).numpy
    with np.errstate(all="ignore"):
        away = np.abs(want.astype(kind).astype(want.dtype) - want)
        ratio = np.where(away == 0, 0.0, away / limits)
    ratio = ratio[np.isfinite(ratio)]
    return float(ratio.max()) if ratio.size else 0.0


def _representable(result: Argument | Result, want: np.ndarray, limits: np.ndarray, error: float) -> bool:
    """Whether one of these references, plus or minus the error, is a value of the result's dtype."""
    kind = dtype_of(result.dtype).numpy
    if kind.kind == "c" or kind.itemsize == 8:
        return want.size > 0
    with np.errstate(all="ignore"):
        for sign in (1, -1):
            reached = want + sign * error
            away = np.abs(reached.astype(kind).astype(np.float64) - reached)
            room = CLOSE * np.abs(want) + 1e-6 * limits + math.ulp(0.0)
            if (away <= room).any():
                return True
    return False
