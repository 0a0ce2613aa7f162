# SPDX-License-Identifier: Apache-2.0
"""The communication, work and memory that a computation needs, and what a compiled program uses beyond that.

The theory of an operation is its plan, by mesh axes: the collectives of manual mode (`traffic`), or what must be sent
whichever collectives a program has (`owed`). Bytes are those that one device sends in one execution, with the
factors of nccl-tests (core.hlo.wire_bytes). An excess beyond a stated factor is a fault, or is named in the record
(`told`).
"""

from __future__ import annotations

import functools
import math
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from meshmark.core import contractions
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.hlo import Collective, wire_bytes
from meshmark.core.layout import local_shape
from meshmark.core.meshes import MeshShape
from meshmark.core.workspaces import workspace_bytes
from meshmark.operations.base import Argument, Plan, Result, Traffic, nbytes
from meshmark.operations.cases import Case

MOST_SENT = 2.0
"""The most bytes that a transformation in manual mode may send, as a multiple of the owed bytes. An all-reduce may
replace a reduce-scatter or an all-gather, and it sends twice their bytes."""

MOST_COMPUTED = 2.0
"""The most contractions that a device may compute in manual mode, as a multiple of its share of the model's
contractions. In the other modes each device may compute all of them."""

MOST_OPERATIONS_PER_ELEMENT = 64
"""The most operations of one device for each element of all arguments and results, without the contractions. XLA's
CPU backend scans quadratically. The most seen was 35, for a cumulative sum (3,000 programs on three releases, 352 for
topologies)."""

MOST_MEMORY = 4
"""The most bytes of temporaries of one device, as a multiple of the bytes of all arguments and results. The most seen
was 1.6."""

PADDING = 1 << 20
"""The bytes of temporaries that are allowed in addition. A TPU pads each small block to whole tiles."""

TILE = (8, 128)
"""The rows and columns of a tile in which a TPU keeps and sends arrays of 32 bits."""

NARROW = 4
"""A backend may widen elements of fewer bytes than this."""


@functools.lru_cache(maxsize=1024)
def axes_between(positions: tuple[int, ...], mesh: MeshShape) -> frozenset[str]:
    """The mesh axes along which these flat positions differ."""
    places = np.array(np.unravel_index(sorted(set(positions)), mesh.shape))
    return frozenset(
        name for name, places_ in zip(mesh.names, places, strict=True) if len(set(places_.tolist())) > 1
    )


def needed_axes(case: Case) -> frozenset[str]:
    """The mesh axes over which the computation needs to exchange data: those of its theory and those that the variant
    names (a permutation over two axes may move data along one). Without a theory, the axes that shard an argument or a
    result are added."""
    stated = owed_traffic(case)
    groups = [*case.plan.connected, *(group for traffic in stated or () for group in traffic.groups)]
    named = frozenset(case.cell.request.variant.get("axes") or ())
    found = named.union(*(axes_between(group, case.mesh) for group in groups))
    return found if stated is not None else found | sharding_axes(case)


def sharding_axes(case: Case) -> frozenset[str]:
    """The mesh axes that shard an argument or a result."""
    every: list[Argument | Result] = [*case.plan.arguments, *case.plan.results]
    entries = [entry for one in every for entry in one.spec if entry]
    return frozenset(name for entry in entries for name in ((entry,) if isinstance(entry, str) else entry))


def find_exchanging_members(collective: Collective) -> tuple[tuple[int, ...], ...]:
    """The groups, or for collective-permute the pairs, that exchange data."""
    found = collective.pairs if collective.kind == "collective-permute" else collective.groups
    return tuple(group for group in found if len(set(group)) > 1)


def as_collective(traffic: Traffic) -> Collective:
    """The collective that a contract states."""
    permute = traffic.kind == "collective-permute"
    pairs = tuple((a, b) for a, b in traffic.groups) if permute else ()
    return Collective(traffic.kind, traffic.nbytes, "", () if permute else traffic.groups, pairs)


def owed_traffic(case: Case) -> tuple[Traffic, ...] | None:
    """The collectives of the theory; None where the operation states none."""
    return owed_traffic_of(case.plan)


def owed_traffic_of(plan: Plan) -> tuple[Traffic, ...] | None:
    """Like `owed_traffic`, of a plan."""
    return plan.traffic if plan.traffic is not None else plan.owed_traffic


def by_axes(case: Case, plan: Plan | None = None) -> dict[str, float] | None:
    """Bytes that a device must send, by the axes over which it sends them: {"x+y": 7168.0}; None without a theory.

    plan: the case's plan in another version of the table."""
    stated = owed_traffic_of(plan or case.plan)
    if stated is None:
        return None
    found: dict[str, float] = defaultdict(float)
    for traffic in stated:
        axes = frozenset[str]().union(*(axes_between(group, case.mesh) for group in traffic.groups))
        if axes:
            label = "+".join(name for name in case.mesh.names if name in axes)
            found[label] += wire_bytes(as_collective(traffic))
    return dict(found)


def stray(found: Sequence[Collective], case: Case) -> str:
    """The first collective over an axis along which the computation needs none; "" if there is none."""
    needed = needed_axes(case)
    for collective in found:
        axes = frozenset[str]().union(
            *(axes_between(group, case.mesh) for group in find_exchanging_members(collective))
        )
        if axes - needed:
            wanted = f"over {'+'.join(sorted(needed))} alone" if needed else "over no axis"
            return f"{collective.kind} over {'+'.join(sorted(axes))}, and the computation exchanges data {wanted}"
    return ""


def limit(case: Case, platform: str = "") -> float | None:
    """The most bytes that a device may send in manual mode where a transformation makes the collectives; None if the
    program spells them, or if there is no theory."""
    theory = by_axes(case)
    if case.plan.traffic is not None or theory is None:
        return None
    return _factor(case, platform) * sum(theory.values())


def _factor(case: Case, platform: str) -> float:
    """How many times its theory a manual program may send on a platform."""
    return MOST_SENT * _widened(case) * (_tiled(case) if platform == "tpu" else 1.0)


def _tiled(case: Case) -> float:
    """How many times as large the blocks of all arguments together become in whole tiles."""
    blocks = [local_shape(one.shape, one.spec, case.mesh.sizes) for one in case.plan.arguments]
    elements = sum(map(math.prod, blocks))
    return sum(math.prod(_in_tiles(block)) for block in blocks) / elements if elements else 1.0


def _in_tiles(block: tuple[int, ...]) -> tuple[int, ...]:
    """A block whose last two dimensions are whole tiles. A vector lies along the lanes of one."""
    *outer, rows, columns = (1, 1, *block)
    return *outer, -(-rows // TILE[0]) * TILE[0], -(-columns // TILE[1]) * TILE[1]


def _widened(case: Case) -> float:
    """How many times the bytes of a case's dtype a backend sends that widens it."""
    size = dtype_of(case.cell.request.dtype).itemsize
    return NARROW / size if size < NARROW else 1.0


def overrun(sent: float, case: Case, platform: str = "") -> str:
    """Why a program in manual mode whose collectives a transformation makes sends too much; "" if it does not.

    platform: that of the compiled program, such as "tpu", which sends whole tiles."""
    most = limit(case, platform)
    if most is None or sent < most + 1:  # both are sums of fractions
        return ""
    factor = _factor(case, platform)
    return f"sends {sent:.0f} B per device, and the theory with a factor of {factor:g} is {most:.0f} B"


def whole_gathers(found: Sequence[Collective], case: Case) -> list[str]:
    """A sentence per sharded argument that the program gathers whole, where the theory gathers nothing as large."""
    stated = owed_traffic(case)
    planned = max((t.nbytes for t in stated or () if t.kind == "all-gather"), default=0)
    if case.plan.traffic is None:  # a result may be whole on each device
        planned = max([planned, *(nbytes(r, case.mesh) for r in case.plan.results)])
    gathered = {
        c.nbytes
        for c in found
        if c.kind == "all-gather" and c.nbytes > planned and find_exchanging_members(c)
    }
    told = []
    for number, argument in enumerate(case.plan.arguments):
        whole = math.prod(argument.shape) * dtype_of(argument.dtype).itemsize
        if whole in gathered and whole > nbytes(argument, case.mesh):
            told.append(
                f"gathers all of argument {number} ({whole} B) on each device, and the theory needs none"
            )
    return told


def overwork(case: Case, text: str, flops: float | None, temp_bytes: float | None, manual: bool) -> str:
    """Why the program computes or holds too much for its plan; "" if it does not, or if the backend does not say.

    flops and temp_bytes: of one device, by the compiler's analysis. The analysis counts a loop once, so the
    contractions are also counted from the text. The scratch memory of libraries, which the analysis includes, is
    subtracted.
    """
    plan = case.plan
    if temp_bytes is not None:
        temp_bytes -= min(temp_bytes, workspace_bytes(text))
    products = contractions.flops(text) if plan.cost.flops else None
    if products is not None:
        share = plan.cost.flops * (MOST_COMPUTED * copies(case) / case.mesh.size if manual else 1.0)
        if products > share:
            return f"contractions of {products} operations on a device, and the plan allows {share:.0f}"
    return find_overcount(case, flops, temp_bytes)


def find_overcount(case: Case, flops: float | None, temp_bytes: float | None) -> str:
    """Like `overwork`, but from the counters of a record alone."""
    operations, held = most_operations(case), most_temporaries(case)
    if flops is not None and flops > operations:
        return f"computes {flops:.0f} operations on a device, and the plan allows {operations}"
    if temp_bytes is not None and temp_bytes > held:
        return f"needs {temp_bytes:.0f} B for temporaries on a device, and the plan allows {held}"
    return ""


def most_operations(case: Case) -> int:
    """The most operations that the plan allows one device."""
    every: list[Argument | Result] = [*case.plan.arguments, *case.plan.results]
    # A program of empty arrays still works on a scalar or two, such as the index of its device.
    elements = max(1, sum(math.prod(a.shape) for a in every))
    return case.plan.cost.flops + MOST_OPERATIONS_PER_ELEMENT * elements


def most_temporaries(case: Case) -> int:
    """The most bytes of temporaries that the plan allows one device."""
    every: list[Argument | Result] = [*case.plan.arguments, *case.plan.results]
    return MOST_MEMORY * sum(nbytes(a, case.mesh) for a in every) * case.mesh.size + PADDING


def beyond_all(case: Case, flops: float | None, temp_bytes: float | None) -> str:
    """Why even a badly compiled program of this case can't compute or hold so much; "" if it can.

    The limit is a scan in which each element meets every other one. Half of that was the most seen, for `nonzero` on
    XLA's CPU backend."""
    plan = case.plan
    every: list[Argument | Result] = [*plan.arguments, *plan.results]
    elements = max(MOST_OPERATIONS_PER_ELEMENT, sum(math.prod(a.shape) for a in every))
    pairs = elements * elements
    if flops is not None and flops > plan.cost.flops + pairs:
        return f"computes {flops:.4g} operations on a device, and each element with every other one takes {pairs}"
    held = PADDING + pairs * max(dtype_of(a.dtype).itemsize for a in every)
    if temp_bytes is not None and temp_bytes > held:
        return f"needs {temp_bytes:.4g} B for temporaries on a device, and all pairs of elements have {held}"
    return ""


def copies(case: Case) -> int:
    """The number of devices that compute the same: those along the axes that shard no argument and no result."""
    return case.mesh.product(case.mesh.rest(tuple(sharding_axes(case))))


REMATERIALIZED = "Involuntary full rematerialization"
"""The warning of XLA's partitioner when it gathers a whole array because it knows no better way between two
shardings."""


def slow_but_right(found: Sequence[Collective], case: Case, words: str) -> list[str]:
    """Sentences about what is slow but not wrong in a program; `words` is what the compiler wrote on standard error."""
    lines = whole_gathers(found, case)
    if times := words.count(REMATERIALIZED):
        lines.append(f"the compiler says: {REMATERIALIZED} ({times} times)")
    return lines


def grown(sent: float, before: float, release: str) -> str:
    """A sentence if a program sends more bytes than it did with an older release of JAX; "" if it does not."""
    if sent <= before:
        return ""
    return f"sends {sent:.0f} B per device, and with JAX {release} it sent {before:.0f} B (its committed counters)"


HOST = re.compile(
    r'custom_call_target="([^"]*callback[^"]*)"|= [^=]*\b(infeed|outfeed)\(|(is_host_transfer=true)'
)
"""A pattern of the instructions by which a compiled program waits for the host: a callback, an infeed or outfeed, or
a transfer."""


def asks_host(case: Case, text: str) -> str:
    """How a program waits for the host although its operation does not call it; "" if it does not wait."""
    found = None if case.operation.calls_host(case.cell.request.variant) else HOST.search(text)
    return (
        f"asks the host ({next(filter(None, found.groups()))}), and the operation does not" if found else ""
    )
