# SPDX-License-Identifier: Apache-2.0
"""Reads the schedule of a compiled program: where asynchronous operations start and end, and the work in between.

TPU, GPU and CPU modules state `is_scheduled=true`: the instructions of a computation are in the order in which they
run. So the work between a start and its done is exactly that of the instructions between them. A pair without work in
between is synchronous, whatever its name.

Starts and dones have three forms: opcodes that end in -start and -done (collectives, copies, and `async-start` around
any computation), send and recv with their dones, and TPU fusions around the custom calls AsyncCollectiveStart and
AsyncCollectiveDone, which have the same `chain_id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from meshmark.core.hlo import Collective, collectives_of, pairs_of_send
from meshmark.core.hlo_module import Computation, Instruction, Module
from meshmark.interpreter import reader
from meshmark.interpreter.meanings import called
from meshmark.interpreter.work import Account, Work

_CHAIN = re.compile(r'chain_id="([^"]*)"')
_RING = "windowed_dot_general"
"""A part of the name of a loop that the partitioner made from a product and a collective: a ring of permutes."""
_AGAIN = re.compile(r"\.remat\d*(?:$|\.)")
"""A part of the name of an instruction that XLA recomputes to save memory."""


@dataclass(frozen=True)
class Pair:
    """An asynchronous operation: a start, and the done that waits for it."""

    kind: str
    """The opcode of the operation, such as all-gather, copy or send."""
    start: str
    done: str
    """The name of the done; "" if it is not in the same computation, for example in the next turn of a loop."""
    computation: str
    trips: int | None
    """The number of runs in one execution; None if the trip count of an enclosing loop is unknown."""
    collective: Collective | None
    """The collective that is started; None for copies, sends and others."""
    between: Work | None
    """The work of one device between start and done, in one run; None if there is no done."""
    stated: bool = False
    """Whether the text marks it as synchronous (GPU: is_sync)."""

    @property
    def synchronous(self) -> bool:
        """Whether there is no work between start and done, or the text marks it as synchronous."""
        return self.stated or (self.between is not None and not self.between)


@dataclass(frozen=True)
class Schedule:
    """The schedule in the text of one compiled program."""

    module: Module
    collectives: tuple[Collective, ...]

    @property
    def scheduled(self) -> bool:
        """Whether the text states that its instructions are in the order in which they run."""
        return self.module.attributes.get("is_scheduled") == "true"

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """All asynchronous operations, in the order of the text; () for a text that is not scheduled."""
        if not self.scheduled:
            return ()
        found: list[Pair] = []
        for computation in self.module.computations.values():
            found.extend(self._pairs(computation))
        return tuple(found)

    @property
    def loops(self) -> tuple[int | None, ...]:
        """The trip count of each loop in one run of its computation; None if unknown."""
        return tuple(
            self.module.turns(computation, instruction)
            for computation, instruction in self.module.instructions()
            if instruction.opcode == "while"
        )

    @property
    def inserted(self) -> int:
        """The number of collectives that the text marks as inserted by the partitioner, as JAX does since 0.11."""
        return sum(c.inserted for c in self.collectives)

    @property
    def decomposed(self) -> int:
        """The number of decomposed operations: sends that were a collective-permute, and the collective-permutes of
        rings into which the partitioner splits a product and its collective."""
        sends = {i.name for _, i in self.module.instructions() if i.opcode == "send" and pairs_of_send(i)}
        permutes = (c for c in self.collectives if c.kind == "collective-permute")
        return sum(c.name in sends or _RING in c.computation for c in permutes)

    @property
    def rematerialized(self) -> int:
        """The number of instructions that XLA recomputes to save memory, also inside fusions."""
        return sum(
            bool(_AGAIN.search(i.name))
            for _, i in self.module.instructions()
            if i.opcode not in ("parameter", "get-tuple-element")
        )

    def _pairs(self, computation: Computation) -> Iterator[Pair]:
        account = Account(self.module)
        places = {i.name: place for place, i in enumerate(computation.instructions)}
        dones = dict(self._dones(computation))
        for place, instruction in enumerate(computation.instructions):
            kind = self._kind(instruction)
            if not kind:
                continue
            done = dones.get(instruction.name, "")
            between = None
            if done:
                between = account.total(computation.instructions[place + 1 : places[done]], computation)
            yield Pair(
                kind,
                instruction.name,
                done,
                computation.name,
                self.module.runs(computation.name)[0],
                self._collective(instruction, computation),
                between,
                '"is_sync":true' in instruction.backend_config,
            )

    def _kind(self, instruction: Instruction) -> str:
        """The opcode that an instruction starts; "" if it starts nothing."""
        opcode = instruction.opcode
        if opcode == "async-start":
            return self.module.computations[called(instruction, "calls")].root.opcode
        if opcode.endswith("-start") or opcode in ("send", "recv"):
            return opcode.removesuffix("-start")
        if chain := self._chain(instruction, "AsyncCollectiveStart"):
            return chain[0]
        return ""

    def _dones(self, computation: Computation) -> Iterator[tuple[str, str]]:
        """(name of the start, name of the done) of each pair of a computation."""
        chains = {
            self._chain(i, "AsyncCollectiveStart"): i.name
            for i in computation.instructions
            if i.opcode == "fusion"
        }
        for instruction in computation.instructions:
            if instruction.opcode.endswith("-done"):
                source = instruction
                while source.opcode.endswith(("-done", "-update")):
                    source = computation.by_name[source.operands[0]]
                yield source.name, instruction.name
            elif (chain := self._chain(instruction, "AsyncCollectiveDone")) and chain in chains:
                yield chains[chain], instruction.name

    def _chain(self, instruction: Instruction, target: str) -> tuple[str, ...]:
        """(opcode, chain, channel) of a fusion with the custom call `target`, which starts or ends a collective; else
        ()."""
        if instruction.opcode != "fusion":
            return ()
        inner = self.module.computations[called(instruction, "calls")].instructions
        if any(i.target == target for i in inner):
            for i in inner:
                if chain := _CHAIN.search(i.frontend):
                    return i.opcode, chain[1], i.attributes.get("channel_id", "")
        return ()

    def _collective(self, instruction: Instruction, computation: Computation) -> Collective | None:
        """The collective that an instruction starts; None if it starts none."""
        own = (computation.name, instruction.name)
        inner = instruction.attributes.get("calls", "").lstrip("%")
        for collective in self.collectives:
            if (collective.computation, collective.name) == own or collective.computation == inner != "":
                return collective
        return None


def parse_schedule(text: str, num_partitions: int | None = None) -> Schedule:
    """The schedule of a module's text; NotHlo or Refused as `meshmark.interpreter.reader.parse_module`, ValueError as
    `meshmark.core.hlo.collectives`."""
    module = reader.parse_module(text)
    return Schedule(module, collectives_of(module, num_partitions))
