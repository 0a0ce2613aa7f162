# SPDX-License-Identifier: Apache-2.0
"""The work of the instructions of a compiled program on one device: flops and bytes, counted from the text.

Flops are operations on floating-point and complex elements: one per element that arithmetic gives or a reduction reads;
two per product that a dot or convolution sums (products with padding and with the holes of dilation do not count); and
5 n log2 n for a Fourier transform of n complex points (half of it for real ones), as benchFFT counts them. Dots,
convolutions and reduce-windows count for every element type. Index arithmetic, comparisons and moved data are not
flops.

Bytes are those of operands and results, without padding. Data that stay inside a fusion do not count. Of a slice or a
gather only the elements that are taken count, and of an update in place only those that are written. Communication does
not count: collectives, their starts and dones, and the parts of a pending collective that a fusion passes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from meshmark.core import loops
from meshmark.core.hlo_module import Computation, Instruction, Module
from meshmark.core.hlo_types import AnyShape, Refused, Shape, TupleShape, flat
from meshmark.interpreter import contraction
from meshmark.interpreter.meanings import array_shape, called, dimensions
from meshmark.interpreter.windows import window_of

ARITHMETIC = frozenset(
    (
        *("abs", "add", "atan2", "cbrt", "ceil", "clamp", "cosine", "divide", "erf", "exponential"),
        *("exponential-minus-one", "floor", "log", "log-plus-one", "logistic", "maximum"),
        *("minimum", "multiply", "negate", "power", "remainder", "round-nearest-afz"),
        *("round-nearest-even", "rsqrt", "sign", "sine", "sqrt", "subtract", "tan", "tanh"),
    )
)
"""Opcodes that do one operation per element of their result."""

COLLECTIVES = frozenset(
    (
        *("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "ragged-all-to-all"),
        *("collective-permute", "collective-broadcast", "send", "recv"),
    )
)
"""Opcodes that communicate. With `-start` and `-done` appended they are asynchronous."""

MAIN_MEMORY, FLAGS = 0, 2
"""Memory spaces in layouts: the device's main memory, and synchronization flags, which hold no data."""

_TAKING = ("slice", "dynamic-slice", "gather")


@dataclass(frozen=True)
class Work:
    """The work of one run on one device."""

    flops: float = 0.0
    nbytes: int = 0
    """The bytes of operands and results in any memory."""
    main_bytes: int = 0
    """The part of `nbytes` in the device's main memory, without on-chip memory."""
    unknown: tuple[str, ...] = ()
    """Custom calls, and loops with an unknown trip count: the text does not have their work."""

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.nbytes + other.nbytes,
            self.main_bytes + other.main_bytes,
            tuple(dict.fromkeys(self.unknown + other.unknown)),
        )

    def __mul__(self, times: int) -> Work:
        return Work(self.flops * times, self.nbytes * times, self.main_bytes * times, self.unknown)

    def __bool__(self) -> bool:
        return bool(self.flops or self.nbytes or self.unknown)


class Account:
    """Counts the work of a module's instructions. A loop with an unknown trip count counts once and is reported in
    `unknown`. Raises Refused for what it does not know."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._flops: dict[str, Work] = {}

    def total(self, instructions: Iterable[Instruction], computation: Computation) -> Work:
        """The work of some instructions of a computation."""
        return sum((self.work(i, computation) for i in instructions), Work())

    def work(self, instruction: Instruction, computation: Computation) -> Work:
        """The work of one instruction that is not inside a fusion."""
        opcode = instruction.opcode
        if opcode == "fusion-start":  # GPU: a kernel that runs concurrently with others
            return self.work(instruction.changed(opcode="fusion"), computation)
        if communicates(instruction):
            return Work()
        if opcode == "while":
            body, condition = (
                self.module.computations[called(instruction, n)] for n in ("body", "condition")
            )
            turns = self.module.turns(computation, instruction)
            once = self.total(body.instructions, body) + self.total(condition.instructions, condition)
            return once * turns if turns is not None else once + Work(unknown=("a loop",))
        if opcode == "conditional":
            branches = [self.module.computations[name] for name in branches_of(instruction)]
            done = [self.total(b.instructions, b) for b in branches]
            return max(done, key=lambda w: (w.flops, w.nbytes), default=Work())
        if opcode in ("call", "async-start"):
            inner = self.module.computations[called(instruction, _attribute(instruction))]
            return self.total(inner.instructions, inner)
        return self._arithmetic(instruction, computation) + _moved(self._arrays(instruction, computation))

    def _arithmetic(self, instruction: Instruction, computation: Computation) -> Work:
        """The flops of an instruction, including those of the instructions fused into it."""
        if instruction.opcode == "fusion":
            name = called(instruction, "calls")
            if name not in self._flops:
                inner = self.module.computations[name]
                parts = (self._arithmetic(i, inner) for i in inner.instructions)
                self._flops[name] = sum(parts, Work())
            return self._flops[name]
        if instruction.opcode == "custom-call":
            return Work() if instruction.target in loops.ALLOCATING else Work(unknown=(instruction.target,))
        return Work(flops=float(flops(instruction, computation)))

    def _arrays(self, instruction: Instruction, computation: Computation) -> Iterator[Shape]:
        """The arrays that an instruction reads and writes."""
        opcode = instruction.opcode
        if opcode == "fusion":
            yield from _of_fusion(self.module.computations[called(instruction, "calls")])
            return
        if opcode in loops.FREE and not _working_call(instruction):
            return
        operands = [computation.by_name[name].shape for name in instruction.operands]
        if opcode in _TAKING:
            yield from flat(instruction.shape)
            yield from flat(instruction.shape)
            operands = operands[1:]
        elif opcode == "dynamic-update-slice":
            yield from flat(operands[1])
            operands = operands[1:]
        else:
            yield from flat(instruction.shape)
        for operand in operands:
            yield from flat(operand)


def communicates(instruction: Instruction) -> bool:
    """Whether an instruction is a collective, or a start, update or done of anything asynchronous.

    (The start of a fusion nevertheless counts as the work of the fusion.)"""
    return instruction.opcode in COLLECTIVES or instruction.opcode.endswith(("-start", "-update", "-done"))


def flops(instruction: Instruction, computation: Computation) -> float:
    """The flops of one instruction, without those of computations that it calls."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode in ARITHMETIC:
        return _count_elements(instruction.shape) if _floats(instruction.shape) else 0
    if opcode in ("reduce", "select-and-scatter"):
        first = computation.by_name[operands[0]].shape
        return _count_elements(first) if _floats(first) else 0
    if opcode == "scatter":
        updates = computation.by_name[operands[-1]].shape
        return _count_elements(updates) if _floats(updates) else 0
    if opcode == "reduce-window":
        window = window_of(instruction.attributes["window"], len(array_shape(instruction).dims))
        return _count_elements(instruction.shape) * math.prod(w.size for w in window)
    if opcode == "dot":
        left = array_shape(computation.by_name[operands[0]])
        summed = math.prod(left.dims[d] for d in dimensions(instruction, "lhs_contracting_dims"))
        return 2 * _count_elements(instruction.shape) * summed
    if opcode == "convolution":
        return _convolution(instruction, *(array_shape(computation.by_name[name]) for name in operands))
    if opcode == "fft":
        points = math.prod(dimensions(instruction, "fft_length"))
        largest = max(
            _count_elements(instruction.shape), _count_elements(computation.by_name[operands[0]].shape)
        )
        real = instruction.attributes["fft_type"] in ("RFFT", "IRFFT")
        return (2.5 if real else 5) * largest * math.log2(points) if points else 0
    return 0


def _convolution(instruction: Instruction, left: Shape, right: Shape) -> int:
    lhs, rhs, _ = contraction.labels(instruction)
    spatial = sorted(set(lhs) - {"b", "f"})
    window = window_of(instruction.attributes.get("window", "{}"), len(spatial))
    products = 1
    for place, w in zip(spatial, window, strict=True):
        n = left.dims[lhs.index(place)]
        outputs = w.output(n)
        met = (w.hits(k, n, outputs) for k in range(w.size))
        products *= sum(len(range(hit[0].start, hit[0].stop, hit[0].step)) for hit in met if hit)
    batches = left.dims[lhs.index("b")] // int(instruction.attributes.get("batch_group_count", "1"))
    return 2 * products * batches * right.dims[rhs.index("i")] * right.dims[rhs.index("o")]


def branches_of(instruction: Instruction) -> list[str]:
    """The names of a conditional's branch computations."""
    attributes = instruction.attributes
    if listed := attributes.get("branch_computations"):
        return [name.strip().lstrip("%") for name in listed.strip("{}").split(",")]
    return [called(instruction, f"{which}_computation") for which in ("true", "false")]


def _attribute(instruction: Instruction) -> str:
    return "to_apply" if "to_apply" in instruction.attributes else "calls"


def _working_call(instruction: Instruction) -> bool:
    return instruction.opcode == "custom-call" and instruction.target not in loops.ALLOCATING


# Fusions -----------------------------------------------------------------------------------------------------


def _of_fusion(inner: Computation) -> Iterator[Shape]:
    """The arrays outside a fusion that it reads and writes."""
    users: dict[str, list[Instruction]] = {}
    for instruction in inner.instructions:
        for name in dict.fromkeys(instruction.operands):
            users.setdefault(name, []).append(instruction)
    results = list(_results(inner))
    for parameter in inner.parameters:
        uses = [
            (name, user)
            for name, user in _uses(parameter, users)
            if not _hands_on(inner, name, user, results)
        ]
        if all(user.opcode in _TAKING and user.operands[0] == name for name, user in uses):
            for _, user in uses:
                yield from flat(user.shape)
        else:
            yield from flat(parameter.shape)
    given = inner.root.shape.parts if isinstance(inner.root.shape, TupleShape) else (inner.root.shape,)
    for result, shape in zip(results, given, strict=True):
        source = _behind(inner, result)
        if source.opcode == "dynamic-update-slice":
            yield from flat(inner.by_name[source.operands[1]].shape)
        elif source.opcode != "parameter" and not _on_its_way(source):
            yield from flat(shape)


def _uses(value: Instruction, users: dict[str, list[Instruction]]) -> Iterator[tuple[str, Instruction]]:
    """(the name by which a value is used, the instruction that uses it) of each use, also through bitcasts."""
    for user in users.get(value.name, ()):
        if user.opcode == "bitcast":
            yield from _uses(user, users)
        else:
            yield value.name, user


def _hands_on(inner: Computation, name: str, user: Instruction, results: list[Instruction]) -> bool:
    """Whether a use of a parameter reads nothing: it passes the parameter on, or updates it in place."""
    if user is inner.root and user.opcode == "tuple":
        return True
    if user.opcode == "dynamic-update-slice" and user.operands[0] == name:
        return user in [_behind(inner, result) for result in results]
    return _on_its_way(user)


def _results(inner: Computation) -> Iterator[Instruction]:
    root = inner.root
    if root.opcode == "tuple":
        yield from (inner.by_name[name] for name in root.operands)
    else:  # a root with several results gives all of them
        yield from [root] * (len(root.shape.parts) if isinstance(root.shape, TupleShape) else 1)


def _behind(inner: Computation, value: Instruction) -> Instruction:
    while value.opcode in ("bitcast", "get-tuple-element"):
        value = inner.by_name[value.operands[0]]
    return value


def _on_its_way(value: Instruction) -> bool:
    """Whether an instruction is a collective, or the custom call that starts or ends one."""
    return communicates(value) or "AsyncCollective" in value.target


# Sizes -------------------------------------------------------------------------------------------------------


def _moved(arrays: Iterable[Shape]) -> Work:
    nbytes = main = 0
    for array in arrays:
        if array.dtype == "token" or array.layout.space == FLAGS:
            continue
        size = array.nbytes
        nbytes += size
        main += size if array.layout.space == MAIN_MEMORY else 0
    return Work(nbytes=nbytes, main_bytes=main)


def _count_elements(shape: AnyShape) -> int:
    """The number of elements of an array, or of the first array of a tuple."""
    return next(flat(shape)).size


def _floats(shape: AnyShape) -> bool:
    first = shape.parts[0] if isinstance(shape, TupleShape) else shape
    if isinstance(first, TupleShape):
        raise Refused("arithmetic on nested tuples")
    return first.dtype.startswith(("f", "bf", "c"))
