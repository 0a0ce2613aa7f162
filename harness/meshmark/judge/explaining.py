# SPDX-License-Identifier: Apache-2.0
"""Explains a compiled program step by step: what each collective moves, what a few devices hold before and after it,
and which other work the schedule puts between the start and the done of an asynchronous collective.

    python -m meshmark.judge.explaining CASE [--topology v5e:2x4] [--devices 0,5] [--seed 0] [--text FILE]

The program is interpreted (`meshmark.interpreter`) and not run. Without a topology it is compiled for the devices of
this machine.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from meshmark.core import files, layout, saying
from meshmark.core.errors import BadInput
from meshmark.core.hlo import pairs_of_send
from meshmark.core.hlo_module import Instruction, Module
from meshmark.core.hlo_types import Refused
from meshmark.core.meshes import MeshShape
from meshmark.core.terminal import note
from meshmark.core.text import counted
from meshmark.interpreter import reader, schedule
from meshmark.interpreter.agreement import to_host
from meshmark.interpreter.collectives import COLLECTIVES, groups_of, pairs_of
from meshmark.interpreter.evaluator import Evaluator, interpret
from meshmark.interpreter.faults import Fault
from meshmark.interpreter.sources import path, source
from meshmark.interpreter.values import AnyValue, Pending, Value, full
from meshmark.judge.lowered import Lowered, lowered, same

PLAIN = frozenset(
    (
        *(
            "parameter",
            "constant",
            "tuple",
            "get-tuple-element",
            "bitcast",
            "copy-start",
            "iota",
            "partition-id",
        ),
    )
)
"""The instructions of the entry that do not count as steps."""

MOVES = frozenset(("copy", "copy-start", "copy-done", "bitcast", "get-tuple-element"))
"""The instructions of the entry that pass a value on unchanged."""

SHOWN_TURNS = 2
"""The number of turns of a loop for which a collective is shown."""

WRONG_TEXT_ERRORS = (
    Fault,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)
"""The errors that a text raises if it is the text of another program, or not the text of a program."""

SHOWN_ELEMENTS = 4
"""The number of elements of a device's block that are shown."""


@dataclass(frozen=True)
class Compared:
    """The comparison of one step with the value that the lowered program gives for its operation."""

    name: str
    line: int
    """The index of its line in the explanation."""
    words: str
    wrong: list[int]
    """The devices that hold another value."""


@dataclass
class Explanation:
    """Collects the lines of one program's explanation, step by step, while it is interpreted."""

    module: Module
    mesh: MeshShape
    devices: Sequence[int]
    parts: Sequence[np.ndarray]
    """The part of each result that each device should hold, [devices, *local shape]."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """The sentence of the schedule about each asynchronous collective. The key is the name of its start."""
    program: Lowered = field(default_factory=Lowered)
    """The value of each operation in the program that the compiler was given."""
    lines: list[str] = field(default_factory=list)
    steps: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    last: dict[str, Compared] = field(default_factory=dict)
    """The last step of each operation. An earlier step may compute only a part of the operation, such as the sum on
    one device."""
    words: dict[str, str] = field(default_factory=dict)
    """The text of each step. The key is the name of its instruction."""

    def step(
        self,
        evaluator: Evaluator,
        instruction: Instruction,
        operands: Sequence[AnyValue],
        result: AnyValue,
        ids: np.ndarray,
    ) -> None:
        """Add the lines of one instruction, which the devices `ids` have just computed."""
        own = self.module.entry.by_name.get(instruction.name) is instruction
        kind = instruction.opcode
        sends = kind == "send" and bool(pairs_of_send(instruction))
        between = sends or (kind in COLLECTIVES and not kind.endswith("-done"))
        received = kind == "recv-done" and not to_host(instruction)
        if not between and not received and (not own or kind in PLAIN):
            return
        self.seen[instruction.name] += 1
        if self.seen[instruction.name] > SHOWN_TURNS:
            return
        self.steps += 1
        trip = f", trip {self.seen[instruction.name]}" if self.seen[instruction.name] > 1 else ""
        where = str(source(self.module, instruction))
        named = f"{kind} {instruction.name}{trip}"
        step = f"{self.steps}, {named}" + (f", from {where}" if where else "")
        self._compare(path(evaluator.callers, instruction), instruction.name, step, result)
        self.lines.append(f"{self.steps}. {named}{self._holds(result)}")
        if where:
            self.lines.append(f"   from {where}")
        if schedule := self.beside.get(instruction.name):
            self.lines.append(f"   {schedule}")
        if between:
            by = 'is_spmd_generated="true"' in instruction.frontend
            who = "the partitioner put it there" if by else "the program spells it"
            self.lines.append(f"   {self._members(evaluator, instruction)}; {who}")
            for operand in operands:
                self.lines += self._values("before", operand, ids)
        if not sends:  # its result is memory that nobody reads
            self.lines += self._values("after " if between or received else "holds ", result, ids)

    def _members(self, evaluator: Evaluator, instruction: Instruction) -> str:
        """The groups or pairs of a collective, as mesh axes or as mesh coordinates."""
        if instruction.opcode == "send" or instruction.opcode.startswith("collective-permute"):
            pairs = pairs_of(evaluator, instruction)
            shown = ", ".join(f"{self._at(a)} to {self._at(b)}" for a, b in pairs[:4])
            return f"{len(pairs)} pairs: {shown}{', ...' * (len(pairs) > 4)}"
        groups = groups_of(evaluator, instruction)
        names = [name for name, size in self.mesh.sizes.items() if size > 1]
        for number in range(1, 2 ** len(names)):
            axes = tuple(n for i, n in enumerate(names) if number >> i & 1)
            if sorted(map(list, groups)) == sorted(self.mesh.groups(axes).tolist()):
                return f"along {'+'.join(axes)}: {_groups(groups)}"
        shown = "; ".join(" ".join(self._at(member) for member in group) for group in groups[:2])
        return f"{_groups(groups)}: {shown}{'; ...' * (len(groups) > 2)}"

    def _at(self, device: int) -> str:
        """The mesh coordinates of a device: (x=0, y=3)."""
        coordinates = np.unravel_index(device, self.mesh.shape)
        return (
            "(" + ", ".join(f"{n}={int(c)}" for n, c in zip(self.mesh.names, coordinates, strict=True)) + ")"
        )

    def _values(self, when: str, value: AnyValue, ids: np.ndarray) -> Iterator[str]:
        """One line per chosen device: the first elements of its block of a value."""
        for part in _arrays(value):
            data = full(part.data, len(ids)) if part.data.shape[0] in (1, len(ids)) else part.data
            for row, device in enumerate(ids.tolist()):
                if device in self.devices and row < len(data):
                    yield f"   {when} {self._at(device)}: {_shown(data[row], part, row)}"

    def _compare(self, operation: str, name: str, step: str, value: AnyValue) -> None:
        """Compare the value of the next step with the one that the lowered program gives for its operation."""
        self.words[name] = step
        parts = list(_arrays(value))
        if (
            not operation
            or len(parts) != 1
            or parts[0].poison is not None
            or len(parts[0].data) not in (1, self.mesh.size)
        ):
            return
        wrong = self.program.apart(operation, full(parts[0].data, self.mesh.size), self.mesh.sizes)
        if wrong is not None:
            self.last.pop(operation, None)
            self.last[operation] = Compared(name, len(self.lines), step, wrong)

    def close(self) -> None:
        """Append to the last step of each operation the number of devices that agree with the lowered program."""
        for step in self.last.values():
            if not self.lines[step.line].endswith(")"):
                right = self.mesh.size - len(step.wrong)
                self.lines[step.line] += f" ({right} of {self.mesh.size} devices hold what the program says)"

    def parting(self, result: int | None = None) -> str:
        """A sentence with the first step whose values differ from the lowered program. `result`: a wrong result.

        A wrong step on which a right one depends does not count: the compiler computes something else there on purpose,
        such as the reciprocal of a divisor."""
        harmless = {name for step in self.last.values() if not step.wrong for name in self._behind(step.name)}
        for step in self.last.values():
            if step.wrong and step.name not in harmless:
                return (
                    f"The values first part from the program at step {step.words}: {len(step.wrong)} of"
                    f" {self.mesh.size} devices hold something else, first {self._at(step.wrong[0])}."
                )
        why = self.program.refused or "no step that has its counterpart there is wrong"
        maker = self.words.get(self._maker(result), "") if result is not None else ""
        made = f" Result {result} is made at step {maker}." if maker else ""
        return f"Where the values first part from the program is not known: {why}.{made}"

    def _maker(self, result: int) -> str:
        """The name of the entry's instruction that computes a result, before any copies and bitcasts of it."""
        found = self.module.entry.root
        if found.opcode == "tuple":
            found = self.module.entry.by_name[found.operands[result]]
        while found.opcode in MOVES:
            found = self.module.entry.by_name[found.operands[0]]
        return found.name

    def _behind(self, name: str) -> set[str]:
        """The names of all instructions of the entry on which the named one depends."""
        found: set[str] = set()
        left = [name]
        while left:
            instruction = self.module.entry.by_name.get(left.pop())
            fresh = set(instruction.operands) - found if instruction else set()
            found |= fresh
            left += fresh
        return found

    def _holds(self, value: AnyValue) -> str:
        """The number of devices that hold their part of a result; "" if the value has no result's shape and dtype."""
        for number, part in enumerate(self.parts):
            for seen in _arrays(value):
                if seen.data.shape[1:] != part.shape[1:] or seen.data.dtype != part.dtype:
                    continue
                if seen.data.shape[0] not in (1, len(part)):
                    continue
                whole = full(seen.data, len(part))
                right = sum(same(a, b) for a, b in zip(whole, part, strict=True))
                return f" ({right} of {len(part)} devices hold their part of result {number})"
        return ""


def _groups(groups: Sequence[Sequence[int]]) -> str:
    return f"{counted(len(groups), 'group')} of {len(groups[0])}"


def _arrays(value: AnyValue) -> Iterator[Value]:
    if isinstance(value, Value):
        yield value
    elif isinstance(value, Pending):
        yield from _arrays(value.value)
    elif any(isinstance(part, Pending) for part in value):  # of a start, what will come out
        for part in value:
            if isinstance(part, Pending):
                yield from _arrays(part)
    else:
        for part in value:
            yield from _arrays(part)


def _shown(block: np.ndarray, value: Value, row: int) -> str:
    """f32[16,32]: 1.5, 2, 3, 4, ..."""
    kind = f"{block.dtype.name}[{','.join(map(str, block.shape))}]"
    if (
        value.poison is not None
        and np.broadcast_to(value.poison, value.data.shape)[row % len(value.data)].any()
    ):
        return f"{kind}: in part not written"
    flat = block.ravel()[:SHOWN_ELEMENTS]
    texts = [
        str(x) if block.dtype.kind in "biu" else f"{complex(x) if block.dtype.kind == 'c' else float(x):.6g}"
        for x in flat
    ]
    return f"{kind}: {', '.join(texts)}{', ...' * (block.size > SHOWN_ELEMENTS)}"


def explain_module(
    module: Module,
    mesh: MeshShape,
    arguments: Sequence[np.ndarray],
    parts: Sequence[np.ndarray],
    devices: Sequence[int],
    bits: dict[str, int],
    beside: Mapping[str, str] | None = None,
    program: Lowered | None = None,
) -> list[str]:
    """The lines of a program. The last ones say whether every device holds its part of each result.

    parts: the expected parts of each result, [devices, *local shape]. devices: those whose values are shown. beside:
    the lines of the schedule (`scheduled`). program: the values that each operation should give."""
    explanation = Explanation(module, mesh, devices, parts, beside or {}, program or Lowered())
    try:
        outputs = interpret(module, arguments, bits, explanation.step)
    except (Fault, Refused) as error:
        explanation.close()
        return [*explanation.lines, f"here it ends: {error}", *([explanation.parting()] if program else [])]
    explanation.close()
    lines, first_wrong = explanation.lines, None
    for number, (output, part) in enumerate(zip(outputs, parts, strict=True)):
        wrong = [d for d in range(len(part)) if not same(output[d], part[d])]
        if not wrong:
            lines.append(f"In the end all {len(part)} devices hold their part of result {number}.")
            continue
        first_wrong = number if first_wrong is None else first_wrong
        first = wrong[0]
        off = np.argwhere(~np.isclose(output[first].astype(float), part[first].astype(float), rtol=1e-2))
        at = tuple(int(i) for i in off[0]) if len(off) else ()
        lines.append(
            f"In the end {len(wrong)} of {len(part)} devices hold something else than their part of result {number}:"
            f" {explanation._at(first)} at {list(at)} holds {output[first][at]} and not {part[first][at]}."
        )
    if program and first_wrong is not None:
        lines.append(explanation.parting(first_wrong))
    return lines


def scheduled(text: str, devices: int) -> dict[str, str]:
    """A sentence per asynchronous collective, by the name of its start: the work that the schedule overlaps with it."""
    return {p.start: _meanwhile(p) for p in schedule.parse_schedule(text, devices).pairs if p.kind != "copy"}


def _meanwhile(pair: schedule.Pair) -> str:
    if pair.stated:
        return f"synchronous after all: the compiler says so of {pair.start}"
    if pair.between is None:
        return "its done is in another turn of the loop, or in another computation"
    if pair.synchronous:
        return f"synchronous after all: nothing is done before {pair.done}"
    work = f"{pair.between.flops:,.0f} flop and {pair.between.nbytes:,} B of other work"
    unknown = f", and {', '.join(pair.between.unknown)}" if pair.between.unknown else ""
    return f"until {pair.done} there are {work}{unknown}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the explanation of one case. Returns 0, or 2 after one line that says why it can't be explained."""
    parser = argparse.ArgumentParser(prog="meshmark explain")
    parser.add_argument("case")
    parser.add_argument("--topology", default="")
    parser.add_argument("--devices", default="0,1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--text", type=Path)
    options = parser.parse_args(argv)
    try:
        lines = lines_of(options)
    except (reader.NotHlo, Refused) as error:
        note(f"{options.text or options.case} can't be explained: {error}")
        return 2
    except BadInput as error:
        note(str(error))
        return 2
    except Exception as error:
        said = saying.first_line(error)[:300]
        if not (options.text and isinstance(error, WRONG_TEXT_ERRORS)):
            note(f"{options.case} can't be explained: {type(error).__name__}: {said}")
            return 2
        note(
            f"{options.text} can't be explained as {options.case}: {said}: name the text of"
            " this case's compiled program, as compiled.as_text() gives it"
        )
        return 2
    print("\n".join(lines))
    return 0


def lines_of(options: Any) -> list[str]:
    """The lines of a case, compiled for the topology or for the devices of this machine. With --text the given text is
    interpreted in place of the compiled one."""
    from meshmark.devices import topologies

    if options.topology:
        topologies.prepare_environment(options.topology)
    import jax

    from meshmark.devices import chips
    from meshmark.devices.compat import whole_text
    from meshmark.judge import interpreted
    from meshmark.judge.programs import Program
    from meshmark.operations import cases

    topology = topologies.parse_topology(options.topology) if options.topology else None
    devices = topologies.devices(topology) if topology else tuple(jax.devices())
    bits = dict(chips.factor_bits(chips.CHIPS[topology.chip])) if topology else {}
    case = cases.find(options.case, len(devices))
    program = Program(case, devices)
    handed = program.lower()
    with program.context():
        compiled = handed.compile()
    text = files.read_text(options.text, errors="replace") if options.text else whole_text(compiled)
    module = reader.parse_module(text)
    expected, _ = interpreted.wanted(case.cell, options.seed, 0.0)
    parts = []
    for plan, result, whole in zip(case.plan.results, program.results, expected, strict=True):
        view = program.view(plan, whole)
        index = layout.indices(result.shape, result.spec, case.mesh.sizes)
        parts.append(np.stack([view[i] for i in index]).astype(whole.dtype))
    where = (
        f"compiled for {topology}"
        if topology
        else f"compiled for {len(devices)} {devices[0].platform} devices"
    )
    shown = [int(d) for d in options.devices.split(",") if int(d) < math.prod(case.mesh.shape)]
    opening = [
        f"{case.id}, {where} by JAX {jax.__version__}; interpreted, nothing ran.",
        f"Mesh {case.mesh.label}: "
        + ", ".join(f"{name}={size}" for name, size in case.mesh.sizes.items())
        + f"; {sum(len(c.instructions) for c in module.computations.values())} instructions.",
        "",
    ]
    arguments = interpreted.arguments(program, compiled, options.seed)
    wholes = [array for array, _ in interpreted.given(program, compiled, options.seed)]
    values = lowered(handed.as_text(dialect="hlo", debug_info=True), case.mesh.size, wholes)
    beside = scheduled(text, case.mesh.size)
    return opening + explain_module(module, case.mesh, arguments, parts, shown, bits, beside, values)


if __name__ == "__main__":
    raise SystemExit(main())
