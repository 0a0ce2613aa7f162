# SPDX-License-Identifier: Apache-2.0
"""Checks the collectives of a passing record against the contract of its case, as far as the record shows them.

A record gives the kind, payload bytes, trip count and group shape of each collective, but not the group members. The
judge checked the members (judge.communication). This module recomputes what the shapes show. The wire bytes must follow
from the collectives. A manual-mode program must have the collectives that its source spells, and no others. A program
whose devices must exchange data must have a collective.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypedDict

from meshmark.core.hlo import Collective, wire_bytes
from meshmark.judge import communication
from meshmark.operations.cases import Case
from meshmark.records.run_definition import RunFacts
from meshmark.records.shared import Number, RecordedCollective

_GROUPS, _PAIRS = re.compile(r"(\d{1,7})x(\d{1,7})"), re.compile(r"(\d{1,7}) pairs")

PROMOTED = (1, 2, 4)
"""The factors by which a payload may exceed the spelled one: a compiler may reduce a narrow dtype in a wider one."""

SHARE = 0.25
"""A global program must send at least this share of the wire bytes of the spelled collectives."""

MOST_MEMBERS = 1 << 20


class RecordedTraffic(TypedDict, total=False):
    """What a line says of the collectives of a program."""

    collectives: list[RecordedCollective]
    wire_bytes: Number
    excess_bytes: Number


def find_impossible_traffic(case: Case, record: RecordedTraffic, facts: RunFacts) -> Iterator[str]:
    """Yields what is impossible in the line of a passing communication check."""
    if "collectives" not in record or "wire_bytes" not in record:
        yield "passes its communication check without `collectives` and `wire_bytes`"
        return
    stays = case.mesh.size == 1 or (case.mode in communication.SPELLED and _stays(case))
    step = 0 if stays else 1
    found = [_collective(one, step) for one in record["collectives"]]
    if None in found or any(one and _members(one) > MOST_MEMBERS for one in found):
        yield "has collectives whose `groups` are neither 2x4 nor 8 pairs"
        return
    known = [one for one in found if one is not None]
    sizes = {_size_of_group(one) for one in known}
    if too_large := [size for size in sizes if size > case.mesh.size]:
        yield f"has a collective over {max(too_large)} devices on a mesh of {case.mesh.size}"
        return
    wire = sum(map(wire_bytes, known))
    if not _is_near(record["wire_bytes"], wire):
        yield f"wire_bytes {record['wire_bytes']} are not those of its collectives, {wire:g}"
    excess, own = record.get("excess_bytes"), communication.spelled_bytes(case)
    beyond = wire - (own or 0.0)
    if own is not None and excess is not None and not _is_near(excess, beyond):
        yield f"excess_bytes {excess} are not those of its collectives, {beyond:g}"
    if case.mode in communication.SPELLED:
        if case.plan.traffic is not None:
            yield from _spelled(case, known, str(facts.get("backend")))
    elif wire > (limit := communication.limit_traffic(case)):
        yield f"sends {wire:g} B, over the ceiling of {limit:g} B"
    elif not any(_size_of_group(one) > 1 for one in known) and any(
        len(set(group)) > 1 for group in case.plan.connected
    ):
        yield "has no collective, and its devices must exchange data"
    elif case.operation.family == "collectives" and wire < (least := _least(case)):
        yield f"sends {wire:g} B, and the collective that it computes takes {least:g} B at least"


def _least(case: Case) -> float:
    """The fewest bytes on the wire of a global program that computes a collective: SHARE of the spelled bytes.

    The input values are random, so no compiler can leave out much. Every published program sends at least this much.
    """
    spelled = case.plan.traffic or ()
    moves = ("collective-permute", "all-to-all", "all-gather", "all-reduce", "reduce-scatter")
    return SHARE * sum(
        wire_bytes(
            Collective(t.kind, t.nbytes, "", *(((), t.groups) if t.kind == moves[0] else (t.groups, ())))
        )
        for t in spelled
        if t.kind in moves
    )


def _stays(case: Case) -> bool:
    """Whether no permutation that manual mode spells moves data. Any compiled permutation is then the identity."""
    permuted = [t for t in case.plan.traffic or () if t.kind == "collective-permute"]
    return case.plan.traffic is not None and not any(a != b for t in permuted for a, b in t.groups)


def _collective(record: RecordedCollective, step: int) -> Collective | None:
    """A collective with groups of the recorded shape; each pair goes from i to i + step. None if the text is not a
    shape."""
    kind, shape, trips = record["kind"], record["groups"], record["trips"]
    if match := _PAIRS.fullmatch(shape):
        pairs = tuple((i, i + step) for i in range(min(int(match[1]), MOST_MEMBERS + 1)))
        return (
            Collective(kind, record["bytes"], "", (), pairs, trips) if kind == "collective-permute" else None
        )
    match = _GROUPS.fullmatch(shape)
    if not match or kind == "collective-permute":
        return None
    number, size = int(match[1]), int(match[2])
    if number * size > MOST_MEMBERS:
        return None
    return Collective(kind, record["bytes"], "", ((0,) * size,) * number, (), trips)


def with_members(record: RecordedCollective) -> Collective | None:
    """A collective whose groups have as many members as the record says; None if the text is not a shape."""
    found = _collective(record, 1)
    if found is None or _members(found) > MOST_MEMBERS:
        return None
    return replace(found, groups=tuple(tuple(range(len(group))) for group in found.groups))


def _size_of_group(one: Collective) -> int:
    if one.kind == "collective-permute":
        return 2 if any(a != b for a, b in one.pairs) else 0
    return max(map(len, one.groups), default=0)


def _members(one: Collective) -> int:
    return len(one.pairs) + sum(map(len, one.groups))


def _spelled(case: Case, found: Sequence[Collective], backend: str) -> Iterator[str]:
    """Yields spelled collectives that are missing, or compiled ones that are not spelled, by kind and group size."""
    equivalents = communication.EQUIVALENTS | communication.EQUIVALENTS_BY_PLATFORM.get(backend, {})
    want: Counter[tuple[str, int]] = Counter()
    for traffic in case.plan.traffic or ():
        groups = [g for g in traffic.groups if len(set(g)) > 1]
        if groups:
            want[traffic.kind, max(map(len, groups))] += traffic.nbytes
    have: Counter[tuple[str, int]] = Counter()
    for one in found:
        if _size_of_group(one) > 1:
            have[one.kind, _size_of_group(one)] += one.nbytes * (one.trips or 1)
    for (kind, size), payload in want.items():
        for stand_in in (kind, *equivalents.get(kind, ())):
            if have.get((stand_in, size)) in [payload * k for k in PROMOTED]:
                del have[stand_in, size]
                break
        else:
            told = (
                ", ".join(f"{k} of {b} B over {n}" for (k, n), b in sorted(have.items())) or "no collective"
            )
            yield f"must have {kind} of {payload} B over groups of {size}, and has {told}"
            return
    if have:
        (kind, size), payload = next(iter(have.items()))
        yield f"has {kind} of {payload} B over groups of {size}, which is not in its contract"


def _is_near(said: object, counted: float) -> bool:
    """Whether a recorded number is the counted one. The texts `inf` and `nan` are no such number."""
    return isinstance(said, (int, float)) and math.isclose(said, counted, rel_tol=1e-9, abs_tol=1e-9)
