# SPDX-License-Identifier: Apache-2.0
"""Reads the work of one turn of a counted loop from optimized HLO text: contractions, custom calls, flops, elements.

A stream is a program whose first argument is the number of turns of its loop. Each turn is timed as one call. So the
body of that loop must hold all collectives and contractions of the single call, the same number of times. `divide`
splits the text of a stream into the work of one turn and the work that is done once. Both are texts of a module, which
`meshmark.core.hlo.collectives` and the functions here can read.

Element types are not compared: a compiler may convert what does not change before the loop, as TPU compilers do with
the float32 inputs of a bfloat16 product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from meshmark.core.hlo_module import Computation, Instruction, Module
from meshmark.core.hlo_reader import read_module
from meshmark.core.hlo_types import AnyShape, flat

PASSING = ("copy", "copy-start", "copy-done", "bitcast", "reshape", "optimization-barrier")
"""Operations that hand a number on as it is: a conversion to a narrower type would wrap it."""

ALLOCATING = (
    *("AllocateBuffer", "AssumeGatherIndicesInBound", "AsyncCollectiveStart", "AsyncCollectiveDone"),
    *("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"),
    *("X64Split", "X64Combine", "X64SplitLow", "X64SplitHigh", "MoveToHost", "MoveToDevice"),
)
"""Custom calls that compute nothing."""

FREE = (
    *(
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "while",
        "call",
        "conditional",
        "fusion",
    ),
    *("after-all", "optimization-barrier", "partition-id", "replica-id", "copy-done", "async-start"),
    *("async-update", "async-done", "custom-call", "domain"),
)
"""Operations that write nothing of their own."""

MOVING = (
    *(
        "copy",
        "copy-start",
        "broadcast",
        "iota",
        "reshape",
        "transpose",
        "slice",
        "dynamic-slice",
        "concatenate",
    ),
    *("dynamic-update-slice", "pad", "gather", "reverse", "convert", "bitcast-convert"),
)
"""Operations that write and compute nothing."""

REDUCING = ("reduce", "reduce-window", "sort", "scatter", "select-and-scatter")
"""Operations that look at each element of their first operand."""


class NoLoop(ValueError):
    """No loop of the program has its first argument as the number of turns; the message says what was found."""


@dataclass(frozen=True)
class Effort:
    """The work of one execution on one device, for a program without collectives and contractions.

    An unknown trip count is taken as 1.
    """

    flops: int
    """Elements that arithmetic gives, or that a reduction looks at."""
    written: int
    """Elements that are written to memory: the results of what is not fused into another operation."""


def contractions(text: str) -> Counter[str]:
    """The number of each kind of dot, convolution and working custom call of a program, by sizes and trip count.

    Operands have no order and no element types, since compilers swap and convert them. A text ends with "in a branch"
    if a conditional may skip it.
    """
    module = read_module(text)
    found: Counter[str] = Counter()
    branches = _branches(module)
    for computation, instruction in module.instructions():
        if not (what := _contraction(instruction)):
            continue
        own = computation.by_name
        sizes = sorted(_elements(own[o].logical_shape) for o in instruction.operands if o in own)
        trips, _ = module.runs(computation.name)
        told = "in a loop" if trips is None else f"{trips} times" if trips != 1 else "once"
        where = ", in a branch" if _is_below(module, computation.name, branches) else ""
        found[f"{what} of {sizes} to {_elements(instruction.logical_shape)} elements {told}{where}"] += 1
    return found


def effort(text: str) -> Effort:
    """The effort of a program, from its optimized HLO text."""
    module = read_module(text)
    flops = written = 0
    fused = _fused(module)
    for name, computation in module.computations.items():
        trips = module.runs(name)[0]
        times = 1 if trips is None else trips
        for instruction in computation.instructions:
            opcode = instruction.opcode
            if opcode in FREE and not (opcode == "fusion" and name not in fused):
                continue
            size = _elements(instruction.logical_shape)
            if opcode in REDUCING and (first := _first(computation, instruction)):
                flops += times * _elements(first.logical_shape)
            elif opcode not in (*MOVING, "fusion"):
                flops += times * size
            if name not in fused:
                written += times * size
    return Effort(flops, written)


def branches(text: str) -> Counter[str]:
    """The number of each kind of conditional of a program, by type and trip count. Their branches may never run."""
    module = read_module(text)
    return Counter(
        f"conditional of {found.type_text} {module.runs(computation.name)[0]} times"
        for computation, found in module.instructions()
        if found.opcode == "conditional"
    )


def derived(text: str, parameters: frozenset[int]) -> int:
    """Flops, as `effort` counts them, of everything that is computed from these parameters of a module's entry.

    Each loop counts as one turn. The results of a loop that takes such a value count as computed from it, also if the
    loop's body is not in the text."""
    module = read_module(text)
    return _derived(module, module.entry_name, parameters)


def _derived(module: Module, name: str, parameters: frozenset[int]) -> int:
    """Flops of everything that is computed from these parameters of one computation."""
    flops, known = 0, set[str]()
    computation = module.computations[name]
    for instruction in computation.instructions:
        opcode, taken = instruction.opcode, instruction.operands
        if opcode == "parameter":
            if int(instruction.literal) in parameters:
                known.add(instruction.name)
            continue
        given = frozenset(i for i, operand in enumerate(taken) if operand in known)
        if not given:
            continue
        known.add(instruction.name)
        if opcode in ("fusion", "call", "while", "conditional", "async-start"):
            # A branch has the operand of its own as its parameter 0, and the first operand chooses.
            inner = frozenset({0}) if opcode == "conditional" else given
            flops += sum(_derived(module, n, inner) for _, n in instruction.calls if n in module.computations)
        elif opcode in REDUCING and (first := _first(computation, instruction)):
            flops += _elements(first.logical_shape)
        elif opcode not in (*MOVING, *FREE):
            flops += _elements(instruction.logical_shape)
    return flops


def divide(text: str) -> tuple[str, str]:
    """(the work of one turn of the loop that the first argument bounds, the work that is done once), as module texts.

    NoLoop if no loop of the program counts from 0 in steps of 1 up to the first argument.
    """
    module = read_module(text)
    seen = []
    for place in _called_once(module):
        for loop in module.computations[place].instructions:
            if loop.opcode == "while":
                called = dict(loop.calls)
                if not (why := _not_counted(module, place, loop, called)):
                    body, condition = called["body"], called["condition"]
                    return _part(module, body, ()), _part(module, module.entry_name, (body, condition))
                seen.append(why)
    raise NoLoop("; ".join(seen) or "it has no loop")


def _called_once(module: Module) -> list[str]:
    """The entry and the computations that run once by `call`: CPU compilers put small loops into a call of their
    own."""
    found = [module.entry_name] if module.entry_name else []
    for place in found:
        for instruction in module.computations[place].instructions:
            if instruction.opcode == "call":
                called = dict(instruction.calls)["to_apply"]
                if len(module.callers[called]) == 1:
                    found.append(called)
    return found


def _part(module: Module, start: str, without: tuple[str, ...]) -> str:
    """The text of a module with the entry `start` and everything that it calls, except the computations `without` and
    those that only they call."""
    wanted, left = [start], [start]
    while left:
        for instruction in module.computations[left.pop()].instructions:
            for _, name in instruction.calls:
                if name in module.computations and name not in (*wanted, *without):
                    wanted.append(name)
                    left.append(name)
    parts = [module.header]
    for name in wanted:
        parts += [f"{'ENTRY ' if name == start else ''}%{name} {{", *module.computations[name].lines, "}"]
    return "\n".join(parts)


# The loop that the argument bounds --------------------------------------------------------------------------


def _not_counted(module: Module, place: str, loop: Instruction, called: dict[str, str]) -> str:
    """Why the first argument is not the number of turns of a loop; "" if it is. place: the computation of the loop."""
    condition, body = (module.computations[called[name]] for name in ("condition", "body"))
    outside, carry = _followed(module, place, loop.operands[0])
    if carry.opcode != "tuple":
        return f"loop {loop.name} begins with a {carry.opcode}"
    initial, kept = carry.operands, body.root.operands
    test, given, _ = _inside_fusion(module, condition.root)
    if test.opcode != "compare" or test.attributes.get("direction") != "LT":
        return f"loop {loop.name} does not end at a number of turns"
    index, bound = (_element(condition, given[o]) for o in test.operands)
    if index is None or bound is None:
        return f"loop {loop.name} is not bounded by an argument"
    if _element(body, kept[bound]) != bound:
        return f"loop {loop.name} changes its bound"
    where, argument = _followed(module, outside, initial[bound])
    if where != module.entry_name or argument.opcode != "parameter" or argument.literal != "0":
        return f"loop {loop.name} is not bounded by the argument `count` itself"
    if not _constant(_followed(module, outside, initial[index])[1], 0):
        return f"loop {loop.name} does not begin at 0"
    step, given, own = _inside_fusion(module, body.by_name[kept[index]])
    named = {_element(body, outer): outer for outer in given.values() if _element(body, outer) is not None}
    numbers = [o for o in step.operands if _element(body, given[o]) != index]
    if step.opcode != "add" or index not in named or len(numbers) != 1:
        return f"loop {loop.name} does not count"
    number = numbers[0]
    element = _element(body, given[number])
    if element is not None:  # it does not change, as the compiler's own constants
        one = _element(body, kept[element]) == element and _constant(
            _followed(module, outside, initial[element])[1], 1
        )
    else:
        one = _constant(body.by_name.get(_source(body, given[number])) or own.get(number), 1)
    return "" if one else f"loop {loop.name} does not count in steps of 1"


def _followed(module: Module, place: str, name: str) -> tuple[str, Instruction]:
    """(the computation, the instruction) that computes the value of a name. A parameter of a computation that one
    `call` calls is followed to the caller."""
    while True:
        own = module.computations[place]
        found = own.by_name[_source(own, name)]
        callers = module.callers.get(place, [])
        if found.opcode != "parameter" or len(callers) != 1:
            return place, found
        called, place = place, callers[0][0]
        calls = (i for i in module.computations[place].instructions if i.opcode == "call")
        call = next((i for i in calls if dict(i.calls).get("to_apply") == called), None)
        if call is None:
            return called, found
        name = call.operands[int(found.literal)]


def _constant(found: Instruction | None, value: int) -> bool:
    return found is not None and found.opcode == "constant" and found.literal == str(value)


def _inside_fusion(
    module: Module, instruction: Instruction
) -> tuple[Instruction, dict[str, str], Mapping[str, Instruction]]:
    """(root of a fusion, the name outside of each of its operands, all instructions of the fusion); for an instruction
    that is not a fusion (itself, its operands, nothing)."""
    if instruction.opcode != "fusion":
        return instruction, {name: name for name in instruction.operands}, {}
    inner, outside = module.computations[dict(instruction.calls)["calls"]], instruction.operands
    given = {i.name: outside[int(i.literal)] for i in inner.instructions if i.opcode == "parameter"}
    names = inner.root.operands
    return inner.root, {name: given.get(_source(inner, name), name) for name in names}, inner.by_name


def _source(computation: Computation, name: str) -> str:
    """The name of the value, before operations that only pass it on."""
    own = computation.by_name
    while name in own and own[name].opcode in PASSING and own[name].operands:
        name = own[name].operands[0]
    return name


def _element(computation: Computation, name: str) -> int | None:
    """The index of the element of a tuple, such as the computation's parameter, that a name is; None if it is none."""
    found = computation.by_name.get(_source(computation, name))
    if found is None or found.opcode != "get-tuple-element":
        return None
    return int(found.attributes["index"])


# Operations -------------------------------------------------------------------------------------------------


def _contraction(instruction: Instruction) -> str:
    """The name of a working operation, "" for any other. Dots and convolutions have the same name, because TPU
    compilers write dots as convolutions."""
    if instruction.opcode in ("dot", "convolution", "ragged-dot"):
        return "contraction"
    if instruction.opcode == "custom-call":
        return "" if instruction.target in ALLOCATING else f"custom call {instruction.target}"
    return ""


def _first(computation: Computation, instruction: Instruction) -> Instruction | None:
    """The first operand of an instruction; None if the computation does not have it."""
    return computation.by_name.get(instruction.operands[0]) if instruction.operands else None


def _elements(shape: AnyShape) -> int:
    """Elements of an array type, or of the largest one of a tuple."""
    return max((array.size for array in flat(shape)), default=0)


def _branches(module: Module) -> set[str]:
    """The computations that are branches of a conditional."""
    return {name for _, i in module.instructions() if i.opcode == "conditional" for _, name in i.calls}


def _is_below(module: Module, name: str, marked: set[str]) -> bool:
    return name in marked or any(
        _is_below(module, caller, marked) for caller, *_ in module.callers.get(name, ())
    )


def _fused(module: Module) -> set[str]:
    """The computations whose results stay in registers: those of fusions, and those that are applied to elements."""
    return {
        name
        for _, instruction in module.instructions()
        for attribute, name in instruction.calls
        if (attribute == "to_apply" and instruction.opcode != "call") or instruction.opcode == "fusion"
    }
