# SPDX-License-Identifier: Apache-2.0
"""The communication check: compares the compiled collectives with the contract of the mode.

Manual modes must have the collectives of the program, with their groups and bytes, or a listed equivalent. If a
transformation makes the collectives, they must have the kinds that the plan names, and their bytes must not exceed the
theory by more than a factor. Global modes (auto, explicit, pjit) must connect the devices that the operation connects.
They must not send more than gathering every argument and reducing every result on all devices would. `excess_bytes`
records what they send beyond manual mode. `told` names what is slow but not wrong.

In every mode mesh axes, operations and memory are compared with the plan (meshmark.judge.theory). An excess is a fault
if the operation declares its plan complete; otherwise `told` names it. It is a fault if a program waits for the host
and its operation does not call the host. None of this needs committed counters. Counters of this release are compared
exactly; without them, those of an older release limit the bytes sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.hlo import Collective, collectives, wire_bytes
from meshmark.core.hlo_types import bits
from meshmark.core.verdicts import Line
from meshmark.core.workspaces import workspace_bytes
from meshmark.judge import theory
from meshmark.levels import counters
from meshmark.operations.base import Traffic, nbytes
from meshmark.operations.cases import Case

SPELLED = ("manual", "manual-novma", "pmap")

EQUIVALENTS = {"reduce-scatter": ("all-reduce",)}
"""The kinds of collectives that may replace a kind. An example is all-reduce (and dynamic-slice) for psum_scatter."""

EQUIVALENTS_BY_PLATFORM = {"tpu": {"all-gather": ("all-reduce",)}}
"""The kinds that may replace a kind on one platform. libtpu's compiler gathers small blocks with an all-reduce: each
device writes its block into its place among zeros (512 B over eight v5e chips: dynamic-update-slice and all-reduce).
The payload is the gathered array, so a sum of the blocks themselves, 1/n of it, does not match."""

WIDENED = (2, 4)
"""The factors by which the payload may grow. XLA may reduce a type of less than 32 bits in a wider one (its
AllReducePromotion pass)."""

_TIMES = {2: "twice", 4: "four times"}

Key = tuple[str, frozenset[tuple[int, ...]]]


def communication(
    case: Case,
    compiled: Any,
    committed: str | None = None,
    earlier: tuple[str, str] | None = None,
    words: str = "",
) -> Line:
    """The communication line of a compiled program.

    committed: the case's committed counters of this release, if any. earlier: an older release and its committed
    counters, where this one has none. words: what the compiler wrote on standard error.
    """
    text = compiled.as_text()
    found = collectives(text, case.mesh.size)
    cost = compiled.cost_analysis() or {}
    memory = compiled.memory_analysis()
    sent = sum(map(wire_bytes, found))
    data: dict[str, Any] = {
        "collectives": [
            {"kind": c.kind, "bytes": c.nbytes, "groups": _shape(c), "trips": c.trips} for c in found
        ],
        "wire_bytes": sent,
        "flops": cost.get("flops"),
        "bytes_accessed": cost.get("bytes accessed"),
        "temp_bytes": getattr(memory, "temp_size_in_bytes", None),
    }
    if asked := workspace_bytes(text):
        data["workspace_bytes"] = asked
    spelled = spelled_bytes(case)
    if spelled is not None:
        data["excess_bytes"] = sent - spelled
    owed = theory.by_axes(case)
    if owed is not None:
        data["theory"] = owed
    manual = case.mode in SPELLED
    told = [] if manual else theory.slow_but_right(found, case, words)
    beyond = theory.stray(found, case) if not manual or case.plan.traffic is None else ""
    beyond = beyond or theory.overwork(case, text, data["flops"], data["temp_bytes"], manual)
    reason = broken(case, compiled, found, sent) or theory.asks_host(case, text)
    if beyond and case.operation.complete:
        reason = reason or beyond
    elif beyond:
        told.append(beyond)
    if told:
        data["told"] = told
    now = counters.format_collectives(data["collectives"])
    if not reason and committed not in (None, now):
        reason = f"compiled to {now}, and the committed counters are {committed}"
    if not reason and committed is None and earlier is not None:
        release, before = earlier
        reason = theory.grown(sent, counters.sent_bytes(before), release)
    return Line("communication", "fail" if reason else "pass", reason, data)


def broken(case: Case, compiled: Any, found: Sequence[Collective], sent: float) -> str:
    """How the collectives break the contract of the case's mode; "" if they do not."""
    plan = case.plan
    if case.mode not in SPELLED:
        return missing_connection(found, sent, plan.connected, case.mesh.size, limit_traffic(case))
    if plan.traffic is None:
        return theory.overrun(sent, case, platform(compiled)) or missing_kind(found, plan.kinds)
    equivalents = EQUIVALENTS | EQUIVALENTS_BY_PLATFORM.get(platform(compiled), {})
    return traffic_difference(found, plan.traffic, equivalents, itemsize_of(case))


def missing_kind(found: Sequence[Collective], kinds: Sequence[str]) -> str:
    """A sentence with the first kind of collective that a program lacks, of those that it must have; "" if it has
    all."""
    missing = next((kind for kind in kinds if all(c.kind != kind for c in found)), "")
    return missing and f"has no {missing}, which manual mode spells; found {_describe(found)}"


def itemsize_of(case: Case) -> int:
    """The bytes of an element of the case's dtype."""
    return dtype_of(case.cell.request.dtype).itemsize


def platform(compiled: Any) -> str:
    """The platform that a program is compiled for: cpu, gpu, tpu; "" if it has no output that shows it."""
    shardings = jax.tree.leaves(compiled.output_shardings)
    return next((device.platform for s in shardings for device in s.device_set), "")


def traffic_difference(
    found: Sequence[Collective],
    traffic: Sequence[Traffic],
    equivalents: Mapping[str, tuple[str, ...]],
    itemsize: int,
) -> str:
    """The difference from the collectives that manual mode specifies; "" if there is none. itemsize: the bytes of an
    element of traffic that does not state them."""
    want: dict[Key, int] = defaultdict(int)
    itemsizes: dict[Key, int] = defaultdict(int)
    for t in traffic:
        key = (t.kind, _unordered(t.kind, t.groups))
        want[key] += t.nbytes
        itemsizes[key] = max(itemsizes[key], t.itemsize)
    have: dict[Key, int] = defaultdict(int)
    widths: dict[Key, int] = defaultdict(int)
    for c in found:
        members = c.pairs if c.kind == "collective-permute" else c.groups
        key = (c.kind, _unordered(c.kind, members))
        if key[1]:
            have[key] += c.nbytes * (c.trips or 1)
            widths[key] = max(widths[key], bits(c.dtype))
    wider = ""
    for (kind, groups), payload in want.items():
        for stand_in in (kind, *equivalents.get(kind, ())):
            key = (stand_in, groups)
            own = itemsizes[kind, groups] or itemsize
            if key in have and (
                have[key] == payload or _widened(kind, have[key], payload, widths[key], 8 * own)
            ):
                del have[key]
                break
        else:
            differs = f"expected {kind} of {payload} B over {_few(groups)}, found {_describe(found)}"
            if (kind, groups) not in have:
                return differs
            width, moved = widths[kind, groups], have.pop((kind, groups))
            differs = f"{differs}: moved in {width} bits"
            growth = width // (8 * own)
            if not (8 * own < width <= 32 and growth in WIDENED and moved == growth * payload):
                return differs
            wider = wider or f"{differs}, {_TIMES[growth]} the bytes, and nothing else differs"
    if have:
        kind, groups = next(iter(have))
        return f"{kind} over {_few(groups)} is not in the contract; found {_describe(found)}"
    return wider


def _widened(kind: str, seen: int, payload: int, width: int, own: int) -> bool:
    """Whether the payload of a reduction of `own`-bit elements is that of the same reduction in a type of `width`
    bits."""
    growth = width // own
    return (
        kind in ("all-reduce", "reduce-scatter")
        and width <= 32
        and growth in WIDENED
        and seen == payload * growth
    )


def missing_connection(
    found: Sequence[Collective], sent: float, connect: Sequence[Sequence[int]], size: int, limit: float
) -> str:
    """Why a global program over `size` devices communicates too little or too much; "" if it does neither.

    Too little: members of a group in `connect` (mesh positions that must exchange data) are not connected. Too much:
    it sends more bytes per device (`sent`) than `limit`.
    """
    parent = list(range(size))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for c in found:
        for group in c.pairs if c.kind == "collective-permute" else c.groups:
            for member in group[1:]:
                parent[root(member)] = root(group[0])
    for wanted in connect:
        if len({root(member) for member in wanted}) > 1:
            return f"devices {list(wanted)} are not connected by {_describe(found)}"
    if sent > limit:
        return f"sends {sent:.0f} B per device, over the ceiling of {limit:.0f} B: {_describe(found)}"
    return ""


def limit_traffic(case: Case) -> float:
    """Bytes per device of gathering every argument and reducing every result on all devices.

    No sensible partitioning costs more.
    """
    n = case.mesh.size
    arguments = sum(nbytes(a, case.mesh) * n for a in case.plan.arguments)
    results = sum(nbytes(r, case.mesh) * n for r in case.plan.results)
    return ((n - 1) / n * arguments + 2 * (n - 1) / n * results) * case.plan.repeats


def spelled_bytes(case: Case) -> float | None:
    """The bytes that one device sends in manual mode, by the plan; None if the plan states no collectives."""
    if case.plan.traffic is None:
        return None
    total = 0.0
    for t in case.plan.traffic:
        pairs = t.groups if t.kind == "collective-permute" else ()
        groups = () if pairs else t.groups
        total += wire_bytes(Collective(t.kind, t.nbytes, "", groups, pairs))  # type: ignore[arg-type]
    return total


def _unordered(kind: str, groups: Iterable[Sequence[int]]) -> frozenset[tuple[int, ...]]:
    """Groups as sets (pairs keep their direction), without groups that exchange nothing."""
    if kind == "collective-permute":
        return frozenset((a, b) for a, b in groups if a != b)
    return frozenset(tuple(sorted(g)) for g in groups if len(g) > 1)


def _shape(c: Collective) -> str:
    return (
        f"{len(c.pairs)} pairs"
        if c.kind == "collective-permute"
        else f"{len(c.groups)}x{len(c.groups[0]) if c.groups else 0}"
    )


def _few(groups: Iterable[Sequence[int]]) -> str:
    shown = sorted(map(list, groups))
    return f"{shown[:4]}{' ...' if len(shown) > 4 else ''}"


def _describe(found: Sequence[Collective]) -> str:
    return ", ".join(f"{c.kind} of {c.nbytes} B over {_shape(c)}" for c in found) or "no collective"
