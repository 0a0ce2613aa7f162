# SPDX-License-Identifier: Apache-2.0
"""Reads the collectives that the compiler inserted: how many, over which groups, with how many bytes.

The input is optimized HLO text (`compiled.as_text()`), the only public account of compiled communication, as JAX
0.10 to 0.12 print it for CPU, TPU and GPU. Numbers in groups and pairs (`meshmark.core.groups`) are positions in the
flattened array of the mesh's devices, not device ids.

A `send` between devices counts as the collective-permute from which XLA made it. `recv`, sends to the host and custom
calls that communicate are not read. A branch of a conditional counts as if it ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from meshmark.core import groups
from meshmark.core.groups import Groups, integers
from meshmark.core.hlo_module import Computation, Instruction, Module
from meshmark.core.hlo_reader import read_module
from meshmark.core.hlo_types import AnyShape, Refused, TupleShape, flat


@dataclass(frozen=True)
class Collective:
    """One collective of a compiled program, as one device sees it."""

    kind: str  # HLO opcode, without "-start"
    nbytes: int  # payload S of one device: reduced, gathered (output), scattered (input), exchanged or sent
    dtype: str  # HLO element type of S; the first one if a tuple mixes types
    groups: Groups  # replica groups, in order; () for collective-permute
    pairs: tuple[tuple[int, int], ...]  # source and target, for collective-permute
    trips: int | None = 1  # how often it runs in one execution; None if an enclosing loop's count is unknown
    dimensions: tuple[int, ...] = ()  # as printed: the gathered, scattered or exchanged dimension
    reduction: str = ""  # root opcode of the reducing computation: "add", "maximum", ...
    asynchronous: bool = False  # split into a start and a done
    name: str = field(default="", compare=False)  # of its instruction: the first one, if it is split
    computation: str = field(default="", compare=False)  # where that instruction stands
    inserted: bool = field(default=False, compare=False)  # the text says that the partitioner put it there


def wire_bytes(c: Collective) -> float:
    """Bytes that one device sends: f * S * trips, with f from NVIDIA's nccl-tests, doc/PERFORMANCE.md.

    An unknown trip count is taken as 1. If groups differ in size, the largest counts. ragged-all-to-all
    counts as if it filled its output.
    """
    n = max(map(len, c.groups), default=1)
    if c.kind == "collective-permute":
        factor = float(any(source != target for source, target in c.pairs))
    elif c.kind == "collective-broadcast":
        factor = float(n > 1)
    else:
        factor = (2 if c.kind == "all-reduce" else 1) * (n - 1) / n
    return factor * c.nbytes * (1 if c.trips is None else c.trips)


def collectives(text: str, num_partitions: int | None = None) -> tuple[Collective, ...]:
    """The collectives in HLO text, in the order of the text; each asynchronous one appears once.

    `num_partitions` is what an empty `replica_groups={}` spans; by default the module's header gives it.
    Raises ValueError for an unknown element type, an unknown form of groups, or a collective outside of all
    computations: a wrong count would be worse than none.
    """
    if not any(mark in text for mark in _MARKS):
        return ()
    return collectives_of(read_module(text), num_partitions)


def collectives_of(module: Module, num_partitions: int | None = None) -> tuple[Collective, ...]:
    """The collectives of a module, as `collectives` gives those of a text."""
    if module.twice:
        raise Refused(f"two computations {module.twice[0]}")
    for line in module.strange:
        if (outside := Instruction.of(line)) and outside.opcode in _OPCODES:
            raise Refused(f"the computation of {line.strip()[:80]!r}")
    found: list[Collective] = []
    chains: set[tuple[str, ...]] = set()
    for computation, instruction in _communicating(module):
        opcode, attributes = instruction.opcode, instruction.attributes
        kind, start = opcode.removesuffix("-start"), opcode.endswith("-start")
        chain = _CHAIN.findall(instruction.frontend)
        if chain:
            # A TPU continuation fusion prints its collective in the start, in every step and in the done.
            key = (kind, *chain, attributes.get("channel_id", ""))
            if key in chains:
                continue
            chains.add(key)
        sends = opcode == "send"
        if sends:
            kind = "collective-permute"
        permute = kind == "collective-permute"
        spelled = attributes.get("source_target_pairs" if permute else "replica_groups", "")
        if sends:
            spelled = pairs_of_send(instruction)
        members = () if permute else groups.spelled(spelled, num_partitions or module.num_devices)
        shape = instruction.logical_shape
        if sends:
            shape = _sent(shape)
        elif start:
            shape = _result_of_start(shape, kind)
        dtype, nbytes = payload(shape)
        if kind == "reduce-scatter":
            nbytes *= len(members[0])  # the text gives its output; S is its input
        elif kind == "all-reduce" and computation.name.startswith("all-reduce-scatter"):
            kind = "reduce-scatter"  # a TPU fusion that does this with all-reduce and dynamic-slice
        trips, in_async = module.runs(computation.name)
        applied = module.computations.get(attributes.get("to_apply", "").lstrip("%"))
        found.append(
            Collective(
                kind=kind,
                nbytes=nbytes,
                dtype=dtype,
                groups=members,
                pairs=groups.spelled_pairs(spelled) if permute else (),
                trips=trips,
                dimensions=integers(attributes.get("dimensions", "").strip("{}")),
                reduction=applied.root.opcode if applied and applied.instructions else "",
                asynchronous=start or sends or in_async or bool(chain),
                name=instruction.name,
                computation=computation.name,
                inserted=GENERATED in instruction.frontend
                or (bool(chain or in_async) and _is_generated(module, computation)),
            )
        )
    return tuple(found)


_REDUCING = ("all-reduce", "reduce-scatter")
_MOVING = ("all-gather", "all-to-all", "ragged-all-to-all", "collective-permute", "collective-broadcast")
_OPCODES = frozenset(kind + suffix for kind in _REDUCING + _MOVING for suffix in ("", "-start"))
_PAIRS_OF_SEND = re.compile(r'_xla_send_recv_source_target_pairs="?(\{(?:\{\d+,\d+\},?)*\})"?')
"""The frontend attribute of a send and a recv that XLA made from a collective-permute."""
_MARKS = ("all-", "reduce-scatter", "collective-", "_xla_send_recv_source_target_pairs")
"""Parts of these opcodes. Searching for a plain string is several times faster than reading every line."""

_CHAIN = re.compile(r'chain_id="([^"]*)"')
GENERATED = 'is_spmd_generated="true"'
"""The frontend attribute of what the partitioner put into a program, in texts of JAX since 0.11."""


def _communicating(module: Module) -> Iterator[tuple[Computation, Instruction]]:
    """(its computation, the instruction) of each collective, in the order of the text."""
    for computation in module.computations.values():
        for line in computation.lines:
            maybe = any(mark in line for mark in _MARKS)
            if not maybe or not (found := Instruction.of(line)):
                continue
            if found.opcode in _OPCODES or (found.opcode == "send" and pairs_of_send(found)):
                yield computation, found


def pairs_of_send(instruction: Instruction) -> str:
    """The text of the pairs of a send or a recv between devices; "" if it has none."""
    found = _PAIRS_OF_SEND.search(instruction.frontend)
    return found[1] if found else ""


def _sent(shape: AnyShape) -> AnyShape:
    """The type of what a send sends. Its own type is (data, context, token)."""
    if not isinstance(shape, TupleShape) or not shape.parts:
        raise Refused(f"a send of type {shape}")
    return shape.parts[0]


def _is_generated(module: Module, computation: Computation) -> bool:
    """Whether the partitioner inserted the collective that a computation wraps. An instruction that calls the
    computation, or another computation of the same chain, carries the partitioner's mark."""
    chains = _chains(computation)
    same = {
        c.name for c in module.computations.values() if c is computation or chains.intersection(_chains(c))
    }
    return any(
        GENERATED in line
        and (caller := Instruction.of(line))
        and GENERATED in caller.frontend
        and same.intersection(name for _, name in caller.calls)
        for c in module.computations.values()
        for line in c.lines
    )


def _chains(computation: Computation) -> set[str]:
    return {chain for line in computation.lines for chain in _CHAIN.findall(line)}


def payload(shape: AnyShape) -> tuple[str, int]:
    """First element type and bytes, without padding, of an array or of all arrays of a tuple. Refused for an unknown
    element type."""
    arrays = tuple(flat(shape))
    if not arrays:
        raise Refused(f"the payload of {shape}")
    return arrays[0].dtype, sum(array.nbytes for array in arrays)


def _result_of_start(shape: AnyShape, kind: str) -> AnyShape:
    """The part of an asynchronous start's type that is the collective's result.

    The type is (operands, result, contexts...), except that all-reduce-start may have the type of its result alone.
    Operands are a nested tuple if XLA wraps the collective generically, or if there are several.
    """
    parts = shape.parts if isinstance(shape, TupleShape) else (shape,)
    if kind == "all-reduce" and not isinstance(parts[0], TupleShape):
        return shape
    if len(parts) < 2:
        raise Refused(f"the type {shape} of a start")
    return parts[1]
