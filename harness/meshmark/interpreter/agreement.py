# SPDX-License-Identifier: Apache-2.0
"""Checks a module before it is computed: all of it must be known, and its parts must agree about types.

Memory passes from a caller to a computation and back, through tuples, and from a start to its done. Both sides state
the type of the memory, with its layout. If the types differ, the reading side reads other numbers than were written. So
such a module is faulty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from meshmark.core.hlo_module import Computation, Instruction, Module, split_list
from meshmark.core.hlo_types import DTYPES, AnyShape, Layout, Refused, Shape, TupleShape, flat, parse_type
from meshmark.interpreter import tiles
from meshmark.interpreter.faults import Fault
from meshmark.interpreter.meanings import COMMON, called, check_attributes, meaning

_OF_PARAMETERS = COMMON | {"parameter_replication"}
_FLAGS = re.compile(r"\{?(true|false)(, ?(true|false))*\}?")
_HEADER: dict[str, re.Pattern[str]] = {
    "is_scheduled": _FLAGS,
    "allow_spmd_sharding_propagation_to_parameters": _FLAGS,
    "allow_spmd_sharding_propagation_to_output": _FLAGS,
    "alias_passthrough_params": _FLAGS,
    "num_partitions": re.compile(r"\d+"),
    "replica_count": re.compile(r"\d+"),
    "entry_computation_layout": re.compile(r"\{.*\}"),
    "frontend_attributes": re.compile(r"\{.*\}"),
    "buffer_donor": re.compile(r"\{[\d{}(), ]*\}"),
    "input_output_alias": re.compile(r"\{.*\}"),
}
"""The attributes that the first line of a module may have, with the form of each value."""

_ALIAS = re.compile(r"\{([\d, ]*)\}: \((\d+), \{([\d, ]*)\}(?:, (?:may|must)-alias)?\)")
_OF_MEMORY = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
"""Instructions that move memory without a change of layout: operands and results have the same order of dimensions."""


def check_module(module: Module) -> None:
    """Check a module. Raises Refused for anything unknown in it, and Fault if two sides of a type differ."""
    for name, value in module.attributes.items():
        if name not in _HEADER or not _HEADER[name].fullmatch(value):
            raise Refused(f"the attribute {name}={value[:60]} of the module")
    for computation in module.computations.values():
        _check_operands(computation)
        for instruction in computation.instructions:
            _check_known(instruction)
    for computation in module.computations.values():
        for instruction in computation.instructions:
            for what, given, taken in _passed(module, computation, instruction):
                check_equal_types(f"{instruction.name}: {what}", given, taken)
            _check_aliases(computation, instruction)
            _check_constraints(computation, instruction)
    _check_entry(module)


def _check_known(instruction: Instruction) -> None:
    """Refused if the opcode, an attribute or an element type is not known."""
    if instruction.opcode == "parameter":
        check_attributes(instruction, _OF_PARAMETERS)
    else:
        meaning(instruction)
    for shape in flat(instruction.shape):
        if shape.dtype not in ("token", *DTYPES):
            raise Refused(f"type {shape.dtype}")


def _check_operands(computation: Computation) -> None:
    """Refused if parameters are missing, a name occurs twice, or an operand is not computed before its use."""
    numbers = [int(p.literal) for p in computation.parameters]
    if numbers != list(range(len(numbers))):
        raise Refused(f"the parameters {numbers} of {computation.name}")
    seen: set[str] = set()
    for instruction in computation.instructions:
        if missing := set(instruction.operands) - seen:
            raise Refused(f"the operand {min(missing)} of {instruction.name}, which nothing computes before")
        if instruction.name in seen:
            raise Refused(f"two instructions {instruction.name} in {computation.name}")
        seen.add(instruction.name)


# Memory that passes ------------------------------------------------------------------------------------------

Passed = tuple[str, AnyShape, AnyShape]
"""(description of the memory that passes, the type that the giving side states, the type that the taking side
states)"""


def _passed(module: Module, computation: Computation, instruction: Instruction) -> Iterator[Passed]:
    """The memory that an instruction passes to others and gets back."""
    own, opcode = instruction.shape, instruction.opcode
    given = [computation.by_name[name].shape for name in instruction.operands]
    if opcode in ("fusion", "call"):
        inner = _computation(module, instruction, "calls" if opcode == "fusion" else "to_apply")
        yield from _into(inner, given)
        yield "its result", inner.root.shape, own
    elif opcode == "while":
        for which in ("condition", "body"):
            yield from _into(_computation(module, instruction, which), given)
        yield "its state", _computation(module, instruction, "body").root.shape, own
        yield "its result", given[0], own
    elif opcode == "conditional":
        names = _branches(instruction)
        if len(names) != len(given) - 1:
            raise Refused(f"{len(names)} branches for {len(given) - 1} operands")
        for name, argument in zip(names, given[1:], strict=True):
            inner = _named(module, name)
            yield from _into(inner, [argument])
            yield "its result", inner.root.shape, own
    elif opcode == "opt-barrier":
        yield "what it takes", given[0] if len(given) == 1 else TupleShape(tuple(given)), own
    elif opcode == "tuple":
        yield "the tuple", TupleShape(tuple(given)), own
    elif opcode == "get-tuple-element":
        whole, index = given[0], int(instruction.attributes.get("index", "0"))
        if not isinstance(whole, TupleShape) or index >= len(whole.parts):
            raise Refused(f"element {index} of {whole}")
        yield "the element", whole.parts[index], own
    elif opcode.removesuffix("-start") in _OF_MEMORY:
        of_start = opcode.endswith("-start") and isinstance(own, TupleShape) and len(own.parts) > 1
        results = list(flat(own.parts[1] if of_start and isinstance(own, TupleShape) else own))
        if len(results) == len(given):
            for shape, part in zip(given, results, strict=True):
                _same_order(instruction, shape, part)
    elif opcode == "send" and isinstance(own, TupleShape) and not to_host(instruction):
        yield "its operand", given[0], own.parts[0]
    yield from _started(module, instruction, given)
    yield from _awaited(computation, instruction, given)


def _into(inner: Computation, given: list[AnyShape]) -> Iterator[Passed]:
    if len(inner.parameters) != len(given):
        raise Refused(f"{len(given)} operands for the {len(inner.parameters)} parameters of {inner.name}")
    for number, (parameter, shape) in enumerate(zip(inner.parameters, given, strict=True)):
        yield f"operand {number}", shape, parameter.shape


def _started(module: Module, instruction: Instruction, given: list[AnyShape]) -> Iterator[Passed]:
    """The operands of an asynchronous start. Its own tuple type states them again."""
    own = instruction.shape
    if not instruction.opcode.endswith("-start") or not given or not isinstance(own, TupleShape):
        return
    if instruction.opcode == "copy-start":
        yield "its operand", given[0], own.parts[1]
    elif isinstance(own.parts[0], TupleShape):
        yield "its operands", TupleShape(tuple(given)), own.parts[0]
    elif len(given) == 1 and instruction.opcode != "all-reduce-start":
        yield "its operand", given[0], own.parts[0]
    if "calls" in instruction.attributes and len(own.parts) > 1:
        inner = _computation(module, instruction, "calls")
        yield from _into(inner, given)
        yield "its result", inner.root.shape, own.parts[1]


def _awaited(computation: Computation, instruction: Instruction, given: list[AnyShape]) -> Iterator[Passed]:
    """The result of a done, which must be that of its start."""
    kind, _, part = instruction.opcode.rpartition("-")
    if part not in ("done", "update") or kind in ("send", "call") or to_host(instruction):
        return
    source = computation.by_name[instruction.operands[0]]
    if source.opcode.endswith(("-start", "-update", "-done")) and source.opcode.rpartition("-")[0] != kind:
        raise Fault(f"{instruction.name} awaits {source.name}, a {source.opcode}")
    if kind == "recv" and isinstance(given[0], TupleShape) and isinstance(instruction.shape, TupleShape):
        yield "its result", given[0].parts[0], instruction.shape.parts[0]
    elif part == "done" and isinstance(given[0], TupleShape) and kind != "all-reduce":
        yield "its result", given[0].parts[0 if kind == "copy" else 1], instruction.shape


def to_host(instruction: Instruction) -> bool:
    """Whether a send or a receive goes to the host or comes from it, and not to or from another device."""
    return instruction.attributes.get("is_host_transfer") == "true"


def _branches(instruction: Instruction) -> list[str]:
    if "branch_computations" in instruction.attributes:
        return [n.lstrip("%") for n in split_list(instruction.attributes["branch_computations"].strip("{}"))]
    return [called(instruction, f"{which}_computation") for which in ("true", "false")]


def _computation(module: Module, instruction: Instruction, attribute: str) -> Computation:
    return _named(module, called(instruction, attribute))


def _named(module: Module, name: str) -> Computation:
    if name not in module.computations:
        raise Refused(f"the computation {name}")
    return module.computations[name]


# Types -------------------------------------------------------------------------------------------------------


def check_equal_types(what: str, given: AnyShape, taken: AnyShape) -> None:
    """Fault if the two types differ."""
    if given is taken:
        return
    if isinstance(given, TupleShape) or isinstance(taken, TupleShape):
        parts = [list(s.parts) if isinstance(s, TupleShape) else [s] for s in (given, taken)]
        if isinstance(given, TupleShape) != isinstance(taken, TupleShape) or len(parts[0]) != len(parts[1]):
            raise Fault(f"{what}, {given}, is taken for {taken}")
        for a, b in zip(*parts, strict=True):
            check_equal_types(what, a, b)
    elif (given.dtype, given.dims) != (taken.dtype, taken.dims) or not _lie_alike(given, taken):
        raise Fault(f"{what}, {_spelled(given)}, is taken for {_spelled(taken)}")


def _lie_alike(a: Shape, b: Shape) -> bool:
    """Whether two types of the same dimensions have the same layout in memory. A single element always has."""
    if a.size <= 1:
        return True
    return (a.layout.minor_to_major, a.layout.tiles, a.layout.element_bits) == (
        b.layout.minor_to_major,
        b.layout.tiles,
        b.layout.element_bits,
    )


def _spelled(shape: Shape) -> str:
    tiles = "".join(f"({','.join(map(str, t))})" for t in shape.layout.tiles)
    return f"{shape}{{{','.join(map(str, shape.layout.minor_to_major))}{':T' + tiles if tiles else ''}}}"


def _same_order(instruction: Instruction, given: AnyShape, taken: Shape) -> None:
    """Refused if a collective's result has another order of dimensions than its operand."""
    if not isinstance(given, Shape) or len(given.dims) != len(taken.dims) or given.size <= 1:
        return
    if given.layout.minor_to_major != taken.layout.minor_to_major:
        raise Refused(f"{instruction.opcode} from {_spelled(given)} to {_spelled(taken)}")


def _check_constraints(computation: Computation, instruction: Instruction) -> None:
    """Fault if an operand of a custom call has another layout than the call asks for. Tiles count only if it names
    them."""
    text = instruction.attributes.get("operand_layout_constraints")
    if text is None:
        return
    if not (text.startswith("{") and text.endswith("}")):
        raise Refused(f"operand_layout_constraints={text[:60]}")
    wanted = [parse_type(part) for part in split_list(text[1:-1])]
    given = [computation.by_name[name].shape for name in instruction.operands]
    if len(wanted) != len(given):
        raise Refused(f"{len(wanted)} layouts for {len(given)} operands of {instruction.name}")
    for n, (a, b) in enumerate(zip(given, wanted, strict=True)):
        if not any(shape.layout.tiles for shape in flat(b)):
            a, b = _untiled(a), _untiled(b)
        check_equal_types(f"{instruction.name}: operand {n}", a, b)


def _untiled(shape: AnyShape) -> AnyShape:
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(_untiled, shape.parts)))
    return replace(shape, layout=Layout(shape.layout.minor_to_major))


# Shared memory -----------------------------------------------------------------------------------------------


def aliases(text: str) -> Iterator[tuple[tuple[int, ...], int, tuple[int, ...]]]:
    """(path in the result, number of the operand, path in the operand) of each pair in a text such as {{0}: (1,
    {})}."""
    for part in split_list(text.strip()[1:-1]):
        match = _ALIAS.fullmatch(part)
        if not match:
            raise Refused(f"the alias {part[:60]}")
        to, number, of = match.groups()
        yield _path(to), int(number), _path(of)


def _path(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(",") if n.strip())


def _at(shape: AnyShape, path: tuple[int, ...]) -> AnyShape:
    for index in path:
        if not isinstance(shape, TupleShape) or index >= len(shape.parts):
            raise Fault(f"an alias of element {index} of {shape}")
        shape = shape.parts[index]
    return shape


def _share(what: str, to: AnyShape, of: AnyShape) -> None:
    """Fault if types that share memory take different numbers of bytes, including the padding of tiles."""
    a, b = ([tiles.offsets(s)[1] * s.numpy.itemsize for s in flat(shape)] for shape in (to, of))
    if a != b:
        raise Fault(f"{what}: {to} shares the memory of {of}")


def _check_aliases(computation: Computation, instruction: Instruction) -> None:
    text = instruction.attributes.get("output_to_operand_aliasing")
    if text is None:
        return
    given = [computation.by_name[name].shape for name in instruction.operands]
    for to, number, of in aliases(text):
        if number >= len(given):
            raise Fault(f"{instruction.name} shares the memory of operand {number}, which it does not have")
        _share(instruction.name, _at(instruction.shape, to), _at(given[number], of))


def _check_entry(module: Module) -> None:
    """Check that the module's stated layouts are those of its entry, and that results fit the arguments whose memory
    they take over."""
    entry = module.entry
    if text := module.attributes.get("entry_computation_layout"):
        arguments, arrow, result = text[1:-1].rpartition(")->")
        if not arrow:
            raise Refused(f"entry_computation_layout={text[:60]}")
        wanted = parse_type(arguments + ")")
        check_equal_types("the arguments", wanted, TupleShape(tuple(p.shape for p in entry.parameters)))
        check_equal_types("the results", entry.root.shape, parse_type(result))
    used: set[tuple[int, tuple[int, ...]]] = set()
    for to, number, of in aliases(module.attributes.get("input_output_alias", "{}")):
        if number >= len(entry.parameters):
            raise Fault(f"a result shares the memory of argument {number}, which there is not")
        if (number, of) in used:
            raise Fault(f"two results share the memory of argument {number}")
        used.add((number, of))
        _share(f"argument {number}", _at(entry.root.shape, to), _at(entry.parameters[number].shape, of))
