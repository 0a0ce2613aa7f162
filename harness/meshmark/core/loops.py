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

import math
from collections import Counter
from dataclasses import dataclass

from meshmark.core.hlo import CALL, NAME, Instruction, Module, operands, shapes

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
    module = Module(text)
    found: Counter[str] = Counter()
    branches = _branches(module)
    for name in module.lines:
        own = module.instructions(name)
        for key, instruction in own.items():
            what = _contraction(instruction) if key != "ROOT" else ""
            if not what:
                continue
            sizes = sorted(_elements(own[o][2]) for o in operands(instruction) if o in own)
            trips, _ = module.runs(name)
            told = "in a loop" if trips is None else f"{trips} times" if trips != 1 else "once"
            where = ", in a branch" if _is_below(module, name, branches) else ""
            found[f"{what} of {sizes} to {_elements(instruction[2])} elements {told}{where}"] += 1
    return found


def effort(text: str) -> Effort:
    """The effort of a program, from its optimized HLO text."""
    module = Module(text)
    flops = written = 0
    fused = _fused(module)
    for name in module.lines:
        trips = module.runs(name)[0]
        times = 1 if trips is None else trips
        own = module.instructions(name)
        for key, instruction in own.items():
            opcode = instruction[3]
            if key == "ROOT" or (opcode in FREE and not (opcode == "fusion" and name not in fused)):
                continue
            size = _elements(instruction[2])
            if opcode in REDUCING and (first := operands(instruction)) and first[0] in own:
                flops += times * _elements(own[first[0]][2])
            elif opcode not in (*MOVING, "fusion"):
                flops += times * size
            if name not in fused:
                written += times * size
    return Effort(flops, written)


def branches(text: str) -> Counter[str]:
    """The number of each kind of conditional of a program, by type and trip count. Their branches may never run."""
    module = Module(text)
    return Counter(
        f"{found[3]} of {found[2]} {module.runs(name)[0]} times"
        for name in module.lines
        for key, found in module.instructions(name).items()
        if found[3] == "conditional" and key != "ROOT"
    )


def derived(text: str, parameters: frozenset[int]) -> int:
    """Flops, as `effort` counts them, of everything that is computed from these parameters of a module's entry.

    Each loop counts as one turn. The results of a loop that takes such a value count as computed from it, also if the
    loop's body is not in the text."""
    module = Module(text)
    return _derived(module, module.entry, parameters)


def _derived(module: Module, name: str, parameters: frozenset[int]) -> int:
    """Flops of everything that is computed from these parameters of one computation."""
    flops, known = 0, set[str]()
    own = module.instructions(name)
    for key, instruction in own.items():
        opcode, taken = instruction[3], operands(instruction)
        if key == "ROOT":
            continue
        if opcode == "parameter":
            if int(instruction[4].partition(")")[0]) in parameters:
                known.add(key)
            continue
        given = frozenset(i for i, operand in enumerate(taken) if operand in known)
        if not given:
            continue
        known.add(key)
        called = [n for _, names in CALL.findall(instruction[4]) for n in NAME.findall(names)]
        if opcode in ("fusion", "call", "while", "conditional", "async-start"):
            # A branch has the operand of its own as its parameter 0, and the first operand chooses.
            inner = frozenset({0}) if opcode == "conditional" else given
            flops += sum(_derived(module, n, inner) for n in called if n in module.lines)
        elif opcode in REDUCING and taken[0] in own:
            flops += _elements(own[taken[0]][2])
        elif opcode not in (*MOVING, *FREE):
            flops += _elements(instruction[2])
    return flops


def divide(text: str) -> tuple[str, str]:
    """(the work of one turn of the loop that the first argument bounds, the work that is done once), as module texts.

    NoLoop if no loop of the program counts from 0 in steps of 1 up to the first argument.
    """
    module = Module(text)
    seen = []
    for place in _called_once(module):
        for key, loop in module.instructions(place).items():
            if loop[3] == "while" and key != "ROOT":
                called = {attribute: NAME.findall(names)[0] for attribute, names in CALL.findall(loop[4])}
                if not (why := _not_counted(module, place, loop, called)):
                    body, condition = called["body"], called["condition"]
                    return _part(module, body, ()), _part(module, module.entry, (body, condition))
                seen.append(why)
    raise NoLoop("; ".join(seen) or "it has no loop")


def _called_once(module: Module) -> list[str]:
    """The entry and the computations that run once by `call`: CPU compilers put small loops into a call of their
    own."""
    found = [module.entry]
    for place in found:
        for key, instruction in module.instructions(place).items():
            if instruction[3] == "call" and key != "ROOT":
                called = NAME.findall(dict(CALL.findall(instruction[4]))["to_apply"])[0]
                if len(module.callers[called]) == 1:
                    found.append(called)
    return found


def _part(module: Module, start: str, without: tuple[str, ...]) -> str:
    """The text of a module with the entry `start` and everything that it calls, except the computations `without` and
    those that only they call."""
    wanted, left = [start], [start]
    while left:
        for line in module.lines[left.pop()]:
            for _, names in CALL.findall(line):
                for name in NAME.findall(names):
                    if name in module.lines and name not in (*wanted, *without):
                        wanted.append(name)
                        left.append(name)
    parts = [module.header]
    for name in wanted:
        parts += [f"{'ENTRY ' if name == start else ''}%{name} {{", *module.lines[name]]
    return "\n".join(parts)


# The loop that the argument bounds --------------------------------------------------------------------------


def _not_counted(module: Module, place: str, loop: Instruction, called: dict[str, str]) -> str:
    """Why the first argument is not the number of turns of a loop; "" if it is. place: the computation of the loop."""
    condition, body = (module.instructions(called[name]) for name in ("condition", "body"))
    outside, carry = _followed(module, place, operands(loop)[0])
    if carry[3] != "tuple":
        return f"loop {loop[1]} begins with a {carry[3]}"
    initial, kept = operands(carry), operands(body["ROOT"])
    test, given, _ = _inside_fusion(module, condition["ROOT"])
    if test[3] != "compare" or "direction=LT" not in test[4]:
        return f"loop {loop[1]} does not end at a number of turns"
    index, bound = (_element(condition, given[o]) for o in operands(test))
    if index is None or bound is None:
        return f"loop {loop[1]} is not bounded by an argument"
    if _element(body, kept[bound]) != bound:
        return f"loop {loop[1]} changes its bound"
    where, argument = _followed(module, outside, initial[bound])
    if where != module.entry or argument[3] != "parameter" or not argument[4].startswith("0)"):
        return f"loop {loop[1]} is not bounded by the argument `count` itself"
    if not _constant(_followed(module, outside, initial[index])[1], 0):
        return f"loop {loop[1]} does not begin at 0"
    step, given, own = _inside_fusion(module, body[kept[index]])
    named = {_element(body, outer): outer for outer in given.values() if _element(body, outer) is not None}
    numbers = [o for o in operands(step) if _element(body, given[o]) != index]
    if step[3] != "add" or index not in named or len(numbers) != 1:
        return f"loop {loop[1]} does not count"
    number = numbers[0]
    element = _element(body, given[number])
    if element is not None:  # it does not change, as the compiler's own constants
        one = _element(body, kept[element]) == element and _constant(
            _followed(module, outside, initial[element])[1], 1
        )
    else:
        one = _constant(body.get(_source(body, given[number])) or own.get(number), 1)
    return "" if one else f"loop {loop[1]} does not count in steps of 1"


def _followed(module: Module, place: str, name: str) -> tuple[str, Instruction]:
    """(the computation, the instruction) that computes the value of a name. A parameter of a computation that one
    `call` calls is followed to the caller."""
    while True:
        own = module.instructions(place)
        name = _source(own, name)
        found = own[name]
        callers = module.callers.get(place, [])
        if found[3] != "parameter" or len(callers) != 1:
            return place, found
        position, called, place = int(found[4].partition(")")[0]), place, callers[0][0]
        calls = (i for i in module.instructions(place).values() if i[3] == "call")
        call = next((i for i in calls if f"to_apply=%{called}" in i[4]), None)
        if call is None:
            return called, found
        name = operands(call)[position]


def _constant(found: Instruction | None, value: int) -> bool:
    return found is not None and found[3] == "constant" and found[4].startswith(f"{value})")


def _inside_fusion(
    module: Module, instruction: Instruction
) -> tuple[Instruction, dict[str, str], dict[str, Instruction]]:
    """(root of a fusion, the name outside of each of its operands, all instructions of the fusion); for an instruction
    that is not a fusion (itself, its operands, nothing)."""
    if instruction[3] != "fusion":
        return instruction, {name: name for name in operands(instruction)}, {}
    called = NAME.findall(dict(CALL.findall(instruction[4]))["calls"])[0]
    own, outside = module.instructions(called), operands(instruction)
    given = {
        key: outside[int(inner[4].partition(")")[0])]
        for key, inner in own.items()
        if key != "ROOT" and inner[3] == "parameter"
    }
    root = own["ROOT"]
    return root, {name: given.get(_source(own, name), name) for name in operands(root)}, own


def _source(own: dict[str, Instruction], name: str) -> str:
    """The name of the value, before operations that only pass it on."""
    while name in own and own[name][3] in PASSING and operands(own[name]):
        name = operands(own[name])[0]
    return name


def _element(own: dict[str, Instruction], name: str) -> int | None:
    """The index of the element of a tuple, such as the computation's parameter, that a name is; None if it is none."""
    found = own.get(_source(own, name))
    if found is None or found[3] != "get-tuple-element":
        return None
    return int(found[4].partition(", index=")[2].partition(",")[0])


# Operations -------------------------------------------------------------------------------------------------


def _contraction(instruction: Instruction) -> str:
    """The name of a working operation, "" for any other. Dots and convolutions have the same name, because TPU
    compilers write dots as convolutions."""
    opcode = instruction[3]
    if opcode in ("dot", "convolution", "ragged-dot"):
        return "contraction"
    if opcode == "custom-call":
        target = instruction[4].partition('custom_call_target="')[2].partition('"')[0]
        return "" if target in ALLOCATING else f"custom call {target}"
    return ""


def _elements(shape: str) -> int:
    """Elements of an array type, or of the largest one of a tuple."""
    return max((math.prod(dimensions) for _, dimensions in shapes(shape)), default=0)


def _branches(module: Module) -> set[str]:
    """The computations that are branches of a conditional."""
    return {
        name
        for lines in module.lines.values()
        for line in lines
        if " conditional(" in line
        for _, names in CALL.findall(line)
        for name in NAME.findall(names)
    }


def _is_below(module: Module, name: str, marked: set[str]) -> bool:
    return name in marked or any(
        _is_below(module, caller, marked) for caller, *_ in module.callers.get(name, ())
    )


def _fused(module: Module) -> set[str]:
    """The computations whose results stay in registers: those of fusions, and those that are applied to elements."""
    return {
        name
        for lines in module.lines.values()
        for line in lines
        for attribute, names in CALL.findall(line)
        if (attribute == "to_apply" and " call(" not in line) or " fusion(" in line
        for name in NAME.findall(names)
    }
