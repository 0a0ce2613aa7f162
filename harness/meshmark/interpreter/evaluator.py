# SPDX-License-Identifier: Apache-2.0
"""Computes a module for all of its devices at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from meshmark.core.hlo_module import Computation, Instruction, Module
from meshmark.core.hlo_types import AnyShape, Refused, Shape, TupleShape

# These modules register the meanings of their instructions.
from meshmark.interpreter import (  # noqa: F401
    agreement,
    collectives,
    contraction,
    control,
    cublas,
    cudnn,
    custom_calls,
    elementwise,
    factorizations,
    fourier,
    linear_algebra,
    movement,
    random_bits,
    reductions,
    shardings,
    threefry,
    transfers,
)
from meshmark.interpreter.faults import Fault, Hang
from meshmark.interpreter.meanings import MEANINGS
from meshmark.interpreter.reductions import BINARY, plain_reducer
from meshmark.interpreter.values import UNWRITTEN, AnyValue, Pending, Value, full

control.register_asynchronous()

Watch = Callable[["Evaluator", Instruction, Sequence[AnyValue], AnyValue, np.ndarray], None]
"""An observer. It gets for each instruction the evaluator, the instruction, its operands, its result, and the ids of
the devices that computed it."""


@dataclass
class _Frame:
    """A running computation, with its values so far."""

    computation: Computation
    values: dict[str, AnyValue] = field(default_factory=dict)
    now: Instruction | None = None
    """The instruction that it computes now."""


class Evaluator:
    """The state while a module is computed.

    factor_bits: by precision (default, high), the significand bits to which the chip rounds the factors of float32
    products. It does not round at a precision that is missing.
    """

    def __init__(
        self, module: Module, factor_bits: Mapping[str, int] | None = None, watch: Watch | None = None
    ) -> None:
        self.module = module
        self.factor_bits = factor_bits or {}
        self.watch = watch
        self.trips = 0
        self.sends: dict[str, list[tuple[Instruction, Value]]] = {}
        """The sends between devices that nobody has received yet, by channel, with their values."""
        self.receives: dict[str, list[Instruction]] = {}
        """The receives from devices that are not done, by channel."""
        self.delivered_early: set[str] = set()
        """The names of sends that come after the done of their recv."""
        self._ids: np.ndarray | None = np.arange(module.num_devices)
        self._frames: list[_Frame] = []

    @property
    def ids(self) -> np.ndarray:
        """The ids of the devices that compute now; Refused inside a reduction, which belongs to no device."""
        if self._ids is None:
            raise Refused("a device's id or a collective inside of a reduction")
        return self._ids

    @property
    def devices(self) -> int:
        """The number of devices that compute now."""
        return len(self.ids)

    @property
    def computation_now(self) -> Computation:
        """The running computation."""
        return self._frames[-1].computation

    @property
    def callers(self) -> list[Instruction]:
        """The instructions that called the running computation, the outermost first."""
        return [frame.now for frame in self._frames[:-1] if frame.now]

    def computation(self, name: str) -> Computation:
        """The computation with this name; Refused if the module has none."""
        if name not in self.module.computations:
            raise Refused(f"the computation {name}")
        return self.module.computations[name]

    def value(self, name: str) -> AnyValue:
        """A value of the running computation."""
        return self._frames[-1].values[name]

    def computed(self, name: str) -> bool:
        """Whether the running computation has this value already."""
        return name in self._frames[-1].values

    def shape_of(self, name: str) -> AnyShape:
        """The type of a value of the running computation."""
        return self._frames[-1].computation.by_name[name].shape

    @contextmanager
    def among(self, rows: np.ndarray | None) -> Iterator[None]:
        """A context that computes for some of the devices (rows of the arrays). None: for elements without a device."""
        before = self._ids
        self._ids = None if rows is None else self.ids[rows]
        try:
            yield
        finally:
            self._ids = before

    def run(self, name: str, operands: Sequence[AnyValue]) -> AnyValue:
        """The result of a computation of these operands."""
        computation = self.computation(name)
        frame = _Frame(computation)
        self._frames.append(frame)
        values = frame.values
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                values[instruction.name] = operands[int(instruction.literal)]
                continue
            frame.now = instruction
            given = [values[operand] for operand in instruction.operands]
            result = self._compute(instruction, given)
            values[instruction.name] = result
            if "output_to_operand_aliasing" in instruction.attributes:
                self._overwrite(instruction, result)
            for finished in computation.last_uses.get(instruction.name, ()):
                values.pop(finished, None)
        self._frames.pop()
        return values[computation.root.name]

    def _overwrite(self, instruction: Instruction, result: AnyValue) -> None:
        """Make the operands whose memory the result shares unreadable, because it has overwritten them.

        An operand stays readable if that part of the result is the operand itself. The start of a chain passes on such
        an operand."""
        values = self._frames[-1].values
        for to, number, path in agreement.aliases(instruction.attributes["output_to_operand_aliasing"]):
            name = instruction.operands[number]
            if path or name not in values:
                continue
            part = result
            for index in to:
                part = part[index] if isinstance(part, tuple) else ()
            if part is not values[name]:
                values[name] = control.fresh(self.shape_of(name))

    def _compute(self, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
        function = MEANINGS[instruction.opcode].function
        try:
            result = function(self, instruction, operands)
        except (Fault, Refused, MemoryError):
            raise
        except Exception as error:
            said = next(iter(str(error).splitlines()), "")
            raise Refused(f"this {instruction.opcode} ({type(error).__name__}: {said[:120]})") from error
        _check(result, instruction.shape, instruction)
        if self.watch and self._ids is not None:
            self.watch(self, instruction, operands, result, self._ids)
        return result

    def apply(self, name: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """A computation of scalars, applied to many elements at once: from arrays [n] to arrays [n]."""
        computation = self.computation(name)
        opcode = plain_reducer(computation)
        if opcode and arrays[0].dtype.kind != "V":
            return [BINARY[opcode](*arrays)]
        with self.among(None):
            result = self.run(name, [Value(a) for a in arrays])
        parts = result if isinstance(result, tuple) else (result,)
        n = len(arrays[0])
        return [full(part.known(name), n) for part in parts if isinstance(part, Value)]


def _check(value: AnyValue, shape: AnyShape, instruction: Instruction) -> None:
    """Refused if a result does not have the type that the text states."""
    if isinstance(value, Pending):
        value = value.value
    if isinstance(shape, TupleShape):
        if not isinstance(value, tuple) or len(value) != len(shape.parts):
            raise Refused(f"this {instruction.opcode}: its result is not {shape}")
        for part, of in zip(value, shape.parts, strict=True):
            _check(part, of, instruction)
    elif isinstance(value, Value):
        if value.data.shape[1:] != shape.dims or value.data.dtype != shape.numpy:
            seen = f"{value.data.dtype}{list(value.data.shape[1:])}"
            raise Refused(f"this {instruction.opcode}: its result is {seen} and not {shape}")
    elif shape.dtype != "token":
        raise Refused(f"this {instruction.opcode}: its result is a tuple and not {shape}")


def interpret(
    module: Module,
    arguments: Sequence[np.ndarray],
    factor_bits: Mapping[str, int] | None = None,
    watch: Watch | None = None,
) -> list[np.ndarray]:
    """Compute a module for all of its devices. Gives one array [devices, *local shape] per result.

    arguments: one such array per parameter of the entry. Raises Fault if the program does what no program may do, and
    Refused if the interpreter does not know something in it.
    """
    agreement.check_module(module)
    parameters = module.entry.parameters
    if len(arguments) != len(parameters):
        raise Refused(f"a program of {len(parameters)} parameters for {len(arguments)} arguments")
    given: list[AnyValue] = []
    for parameter, argument in zip(parameters, arguments, strict=True):
        value = Value(argument)
        _check(value, parameter.shape, parameter)
        given.append(value)
    evaluator = Evaluator(module, factor_bits, watch)
    with np.errstate(all="ignore"):
        result = evaluator.run(module.entry.name, given)
    for waiting in evaluator.sends.values():
        for send, _ in waiting:
            raise Hang(f"{send.name} waits for a recv, and there is none")
    found = result if isinstance(module.entry.root.shape, TupleShape) else (result,)
    arrays = []
    for i, part in enumerate(found):  # type: ignore[arg-type]
        if not isinstance(part, Value):
            raise Fault(f"result {i} is not an array that is finished")
        if part.poison is not None and part.poison.any():
            raise Fault(f"result {i} {UNWRITTEN}")
        arrays.append(full(part.data, module.num_devices))
    return arrays


__all__ = ["Evaluator", "Shape", "interpret"]
