# SPDX-License-Identifier: Apache-2.0
"""Instructions that move elements: reshapes, slices, pads, gathers and scatters. Poison moves with its element."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused, Shape
from meshmark.interpreter.elementwise import narrowed
from meshmark.interpreter.faults import Fault
from meshmark.interpreter.literals import literal
from meshmark.interpreter.meanings import Function, array_shape, called, dimension, dimensions, flag, means
from meshmark.interpreter.reductions import BINARY, plain_reducer
from meshmark.interpreter.tiles import reinterpretation
from meshmark.interpreter.values import AnyValue, Value, array, full, lead, mask, moved

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator


def moves(opcode: str, attributes: Iterable[str] = ()) -> Callable[[Function], Function]:
    """A decorator that registers the meaning of an instruction that moves elements of its first operand.

    If the instruction has type bfloat16 and its operand is float32, its elements become bfloat16. XLA gives this type
    to an instruction whose users round to bfloat16 anyway (xla/hlo/transforms/bfloat16_propagation.h)."""

    def register(function: Function) -> Function:
        @wraps(function)
        def placed(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
            value = array(function(evaluator, instruction, operands), instruction.name)
            return Value(narrowed(value.data, array_shape(instruction).numpy), value.poison)

        means(opcode, attributes=attributes)(placed)
        return function

    return register


def _alike(instruction: Instruction, values: Sequence[Value]) -> None:
    """Refused if arrays that are combined into one have different types, except float32 with bfloat16."""
    kinds = {value.data.dtype for value in values}
    if len(kinds) > 1 and kinds != {np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)}:
        raise Refused(f"{instruction.opcode} of mixed types")


@means("constant")
def _constant(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return Value(literal(instruction.literal, array_shape(instruction))[None])


@means("iota", attributes=("iota_dimension",))
def _iota(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    shape = array_shape(instruction)
    d = int(instruction.attributes["iota_dimension"])
    line = np.arange(shape.dims[d]).astype(shape.numpy)
    line = line.reshape([-1 if e == d else 1 for e in range(len(shape.dims))])
    return Value(np.broadcast_to(line, shape.dims)[None])


@moves("broadcast", attributes=("dimensions",))
def _broadcast(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    shape, at = array_shape(instruction), dimensions(instruction)

    def move(data: np.ndarray) -> np.ndarray:
        order = sorted(range(len(at)), key=lambda i: at[i])
        source = data.transpose(0, *(i + 1 for i in order))
        sizes = [1] * len(shape.dims)
        for i in order:
            sizes[at[i]] = data.shape[i + 1]
        return np.broadcast_to(source.reshape(-1, *sizes), (data.shape[0], *shape.dims))

    return moved(move, array(operands[0], instruction.name))


@moves("reshape")
def _reshape(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    dims = array_shape(instruction).dims
    return moved(lambda data: data.reshape(data.shape[0], *dims), array(operands[0], instruction.name))


@moves("transpose", attributes=("dimensions",))
def _transpose(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    order = [d + 1 for d in dimensions(instruction)]
    return moved(lambda data: data.transpose(0, *order), array(operands[0], instruction.name))


@moves("reverse", attributes=("dimensions",))
def _reverse(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    axes = tuple(d + 1 for d in dimensions(instruction))
    return moved(lambda data: np.flip(data, axes), array(operands[0], instruction.name))


@moves("concatenate", attributes=("dimensions",))
def _concatenate(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    _alike(instruction, values)
    axis, devices = dimension(instruction) + 1, lead(*values)
    return moved(lambda *parts: np.concatenate([full(p, devices) for p in parts], axis), *values)


_SLICE = re.compile(r"\[(\d+):(\d+)(?::(\d+))?\]")


@moves("slice", attributes=("slice",))
def _slice(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    value = array(operands[0], instruction.name)
    found = [(int(a), int(b), int(s or 1)) for a, b, s in _SLICE.findall(instruction.attributes["slice"])]
    for (start, limit, _), n in zip(found, value.data.shape[1:], strict=True):
        if not start <= limit <= n:
            raise Refused(f"a slice from {start} to {limit} of {n}")
    index = (slice(None), *(slice(*bounds) for bounds in found))
    return moved(lambda data: data[index], value)


_PAD = re.compile(r"(-?\d+)_(-?\d+)(?:_(\d+))?")


@moves("pad", attributes=("padding",))
def _pad(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    _alike(instruction, values)
    text = instruction.attributes["padding"]
    pads = [tuple(map(int, m)) for m in (_PAD.fullmatch(p).groups("0") for p in text.split("x"))]  # type: ignore[union-attr]
    return moved(lambda data, fill: padded(data, fill, pads), *values)


def padded(data: np.ndarray, fill: np.ndarray, pads: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Data with padding (low, high, interior) per dimension. Negative low and high remove elements.

    data: [devices, *dims]. fill: [devices]."""
    dims = data.shape[1:]
    if not pads:
        return data
    inner = [(n - 1) * (i + 1) + 1 if n else 0 for n, (_, _, i) in zip(dims, pads, strict=True)]
    sizes = [n + low + high for n, (low, high, _) in zip(inner, pads, strict=True)]
    devices = max(data.shape[0], fill.shape[0])
    result = np.empty((devices, *sizes), data.dtype)
    result[:] = fill.reshape(-1, *(1,) * len(dims))
    to: list[slice] = []
    of: list[slice] = []
    for n, size, (low, _, interior) in zip(dims, sizes, pads, strict=True):
        step = interior + 1
        first = max(0, -(low // step)) if low < 0 else 0
        last = min(n, (size - 1 - low) // step + 1) if size else 0
        if last <= first:
            return result
        to.append(slice(low + first * step, low + (last - 1) * step + 1, step))
        of.append(slice(first, last))
    result[(slice(None), *to)] = data[(slice(None), *of)]
    return result


@means("bitcast")
def _bitcast(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    value = array(operands[0], instruction.name)
    target = array_shape(instruction)
    source = evaluator.shape_of(instruction.operands[0])
    if not isinstance(source, Shape):
        raise Refused("bitcast of a tuple")
    return bitcast(value, source, target)


GARBAGE = 0xA5
"""The value of padding bytes that a bitcast makes a part of an element. If a program reads them, its numbers are
wrong."""


def bitcast(value: Value, source: Shape, target: Shape) -> Value:
    """The bytes in memory of a value of type `source`, read as type `target`.

    An element whose bytes are all padding of the source's tiles is poison."""
    found = reinterpretation(source, target)
    units = target.numpy.itemsize // found.unit
    rows = np.ascontiguousarray(value.data).view(f"u{found.unit}").reshape(value.data.shape[0], -1)
    poison = None if value.poison is None else mask(value).reshape(value.data.shape[0], -1)
    if poison is not None:
        poison = np.repeat(poison, source.numpy.itemsize // found.unit, axis=1)
    if found.index is not None:
        rows = rows[:, found.index]
        poison = None if poison is None else poison[:, found.index]
    if poison is not None:
        poison = np.any(poison.reshape(-1, target.size, units), axis=2)
    if found.missing is not None:
        rows[:, found.missing] = int.from_bytes(bytes([GARBAGE] * found.unit), "little")
        padding = np.all(found.missing.reshape(target.size, units), axis=1)[None]
        poison = padding if poison is None else poison | padding
    data = np.ascontiguousarray(rows).view(target.numpy).reshape(-1, *target.dims)
    return Value(data, None if poison is None else poison.reshape(-1, *target.dims))


# Indices that are data ---------------------------------------------------------------------------------------


def _starts(instruction: Instruction, operands: Sequence[AnyValue]) -> list[np.ndarray]:
    """The start indices: one int64 array [devices] or [1] per dimension."""
    return [array(o, instruction.name).known(instruction.name).astype(np.int64).reshape(-1) for o in operands]


def _within(sizes: Sequence[int], dims: Sequence[int]) -> None:
    """Refused if a window is larger than the array."""
    if any(size > n for size, n in zip(sizes, dims, strict=True)):
        raise Refused(f"a window {list(sizes)} of an array {list(dims)}")


def _clamped(starts: Sequence[np.ndarray], dims: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    """The starts, clamped so that a window of `sizes` lies inside `dims`, int64 [devices, dimensions]."""
    _within(sizes, dims)
    devices = max((s.shape[0] for s in starts), default=1)
    clipped = [np.clip(full(s, devices), 0, n - size) for s, n, size in zip(starts, dims, sizes, strict=True)]
    return np.stack(clipped, axis=1) if clipped else np.zeros((1, 0), np.int64)


@moves("dynamic-slice", attributes=("dynamic_slice_sizes",))
def _dynamic_slice(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    value, sizes = array(operands[0], instruction.name), dimensions(instruction, "dynamic_slice_sizes")
    starts = _clamped(_starts(instruction, operands[1:]), value.data.shape[1:], sizes)

    def move(data: np.ndarray) -> np.ndarray:
        if len(starts) == 1 or (starts == starts[0]).all():
            return data[(slice(None), *_window(starts[0], sizes))]
        each = full(data, len(starts))
        return np.stack([each[d][_window(start, sizes)] for d, start in enumerate(starts)])

    return moved(move, value)


def _window(start: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(int(s), int(s) + n) for s, n in zip(start, sizes, strict=True))


@moves("dynamic-update-slice")
def _dynamic_update_slice(
    evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]
) -> AnyValue:
    value, update = array(operands[0], instruction.name), array(operands[1], instruction.name)
    _alike(instruction, (value, update))
    sizes = update.data.shape[1:]
    starts = _clamped(_starts(instruction, operands[2:]), value.data.shape[1:], sizes)
    devices = max(lead(value, update), len(starts))

    def move(data: np.ndarray, new: np.ndarray) -> np.ndarray:
        result = np.array(full(data, devices))
        if (starts == starts[0]).all():
            result[(slice(None), *_window(starts[0], sizes))] = new
            return result
        each = full(new, devices)
        for d, start in enumerate(starts):
            result[d][_window(start, sizes)] = each[d]
        return result

    return moved(move, value, update)


def _index_vectors(data: np.ndarray, vector_dim: int) -> np.ndarray:
    """The index vectors, int64 [devices, *batch, components]."""
    if vector_dim == data.ndim - 1:  # each index is a scalar
        return data[..., None].astype(np.int64)
    return np.moveaxis(data, vector_dim + 1, -1).astype(np.int64)


def _grid(sizes: Sequence[int]) -> list[np.ndarray]:
    """The indices of a window: one array per dimension, which broadcast against each other."""
    return [
        np.arange(n).reshape([-1 if e == d else 1 for e in range(len(sizes))]) for d, n in enumerate(sizes)
    ]


_GATHER = (
    *("offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim", "slice_sizes"),
    *("operand_batching_dims", "start_indices_batching_dims"),
)


@moves("gather", attributes=_GATHER)
def _gather(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    value, places = (array(operand, instruction.name) for operand in operands)
    named = {name: dimensions(instruction, name) for name in _GATHER}
    vector_dim = int(instruction.attributes["index_vector_dim"])
    vectors = _index_vectors(places.known(instruction.name), vector_dim)
    sizes, dims = named["slice_sizes"], value.data.shape[1:]
    batch = vectors.shape[1:-1]
    _within(sizes, dims)
    every = np.ones((len(vectors), math.prod(batch)), bool)
    _keep_promises(instruction, vectors, named["start_index_map"], every)
    # One index array per dimension of the operand, each [devices, *batch, *window].
    ndim = 1 + len(batch) + len(dims)
    at = _start_arrays(vectors, named["start_index_map"], dims, sizes, ndim)
    _add_batching(
        at,
        named["operand_batching_dims"],
        named["start_indices_batching_dims"],
        vector_dim,
        batch,
        len(dims),
    )
    index = [place + offset for place, offset in zip(at, _grid(sizes), strict=True)]
    devices = max(lead(value), vectors.shape[0])
    first = np.arange(devices).reshape(-1, *(1,) * (ndim - 1))
    dropped = {*named["collapsed_slice_dims"], *named["operand_batching_dims"]}
    kept = [d for d in range(len(dims)) if d not in dropped]
    shape = array_shape(instruction)

    def move(data: np.ndarray) -> np.ndarray:
        found = full(data, devices)[(first, *index)]
        found = np.broadcast_to(found, (devices, *batch, *sizes))
        found = found.reshape(devices, *batch, *(sizes[d] for d in kept))
        order = [0] * (len(shape.dims) + 1)
        rest = iter(range(1, len(batch) + 1))
        offset = dict(zip(named["offset_dims"], range(len(batch) + 1, len(shape.dims) + 1), strict=True))
        for d in range(len(shape.dims)):
            order[d + 1] = offset[d] if d in offset else next(rest)
        return found.transpose(order)

    return moved(move, value)


def _start_arrays(
    vectors: np.ndarray,
    index_map: Sequence[int],
    dims: Sequence[int],
    sizes: Sequence[int],
    ndim: int,
    clamp: bool = True,
) -> list[np.ndarray]:
    """The start of each window: one array [devices, *batch, 1...] per dimension of the operand."""
    if len(index_map) != vectors.shape[-1]:
        raise Refused(f"index vectors of {vectors.shape[-1]} components for {len(index_map)} dimensions")
    at: list[np.ndarray] = [np.zeros((1,) * ndim, np.int64) for _ in dims]
    for component, d in enumerate(index_map):
        start = vectors[..., component]
        if clamp:
            start = np.clip(start, 0, dims[d] - sizes[d])
        at[d] = start.reshape(*start.shape, *(1,) * (ndim - start.ndim))
    return at


def _keep_promises(
    instruction: Instruction, vectors: np.ndarray, index_map: Sequence[int], inside: np.ndarray
) -> None:
    """Refused if the text promises sorted indices, and they are not sorted in the order of the operand's dimensions.

    The result of such a program is not defined. The indices of windows that are left out do not count.
    vectors: [devices, *batch, components]. inside: bool [devices, windows]."""
    if not flag(instruction, "indices_are_sorted"):
        return
    order = sorted(range(len(index_map)), key=lambda component: index_map[component])
    lines = full(vectors.reshape(len(vectors), -1, vectors.shape[-1])[..., order], len(inside))
    for line, counts in zip(lines, inside, strict=True):
        seen = [tuple(index) for index in line[counts].tolist()]
        if seen != sorted(seen):
            raise Refused(f"{instruction.opcode} of indices that are promised to be sorted, and are not")


def _add_batching(
    at: list[np.ndarray],
    operand_dims: Sequence[int],
    index_dims: Sequence[int],
    vector_dim: int,
    batch: Sequence[int],
    rank: int,
) -> None:
    """Add the starts along batching dimensions to `at`: the i-th batch takes the i-th slice of the operand."""
    for operand_dim, index_dim in zip(operand_dims, index_dims, strict=True):
        place = index_dim - (index_dim > vector_dim)
        line = np.arange(batch[place])
        at[operand_dim] = line.reshape(1, *(-1 if b == place else 1 for b in range(len(batch))), *(1,) * rank)


_SCATTER = (
    *("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "index_vector_dim"),
    *("input_batching_dims", "scatter_indices_batching_dims"),
)


@means("scatter", attributes=(*_SCATTER, "to_apply"))
def _scatter(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    if len(values) != 3:
        raise Refused("scatter of several arrays")
    value, places, update = values
    named = {name: dimensions(instruction, name) for name in _SCATTER}
    vector_dim = int(instruction.attributes["index_vector_dim"])
    vectors = _index_vectors(places.known(instruction.name), vector_dim)
    dims, batch = value.data.shape[1:], vectors.shape[1:-1]
    dropped = {*named["inserted_window_dims"], *named["input_batching_dims"]}
    kept = [d for d in range(len(dims)) if d not in dropped]
    window = [1] * len(dims)
    for d, u in zip(kept, named["update_window_dims"], strict=True):
        window[d] = update.data.shape[u + 1]
    _within(window, dims)
    ndim = 1 + len(batch) + len(dims)
    at = _start_arrays(vectors, named["scatter_dims_to_operand_dims"], dims, window, ndim, clamp=False)
    _add_batching(
        at,
        named["input_batching_dims"],
        named["scatter_indices_batching_dims"],
        vector_dim,
        batch,
        len(dims),
    )
    devices = max(lead(value, update), vectors.shape[0])
    inside: np.ndarray = np.ones((1,) * ndim, bool)  # windows that are partly outside are left out
    for place, n, size in zip(at, dims, window, strict=True):
        inside = inside & (place >= 0) & (place + size <= n)
    flat: np.ndarray = np.zeros((1,) * ndim, np.int64)
    for place, offset, n in zip(at, _grid(window), dims, strict=True):
        flat = flat * n + place + offset
    shape = (devices, *batch, *window)
    count = math.prod(batch)
    flat = np.broadcast_to(flat, shape).reshape(devices, count, -1)
    inside = np.broadcast_to(inside, shape).reshape(devices, count, -1)
    _keep_promises(instruction, vectors, named["scatter_dims_to_operand_dims"], np.any(inside, axis=-1))
    scattered = [d for d in range(len(update.data.shape) - 1) if d not in named["update_window_dims"]]
    order = [0, *(d + 1 for d in scattered), *(d + 1 for d in named["update_window_dims"])]

    def rows(data: np.ndarray) -> np.ndarray:
        return full(data, devices).transpose(order).reshape(devices, count, -1)

    combine = evaluator.computation(called(instruction, "to_apply"))
    whole = math.prod(dims)
    lines = np.arange(devices)[:, None, None] * whole
    target = np.broadcast_to(flat + lines, flat.shape)[inside]
    result = np.array(full(value.data, devices)).reshape(-1)
    new = rows(update.data)[inside]
    if flag(instruction, "unique_indices") and len(np.unique(target)) < len(target):
        raise Fault(f"{instruction.name} promises unique indices, and two are equal")
    opcode = plain_reducer(combine)
    unordered = target[:0]
    if combine.root.opcode == "parameter" and combine.root.literal == "1":
        result[target] = new
        # The order of updates is not defined, so of two different numbers for one place either may stay.
        unordered = target[_differ(result[target], new)]
    elif opcode and result.dtype.kind in "fiucb":
        BINARY[opcode].at(result, target, new)
    else:
        _one_by_one(evaluator, instruction, result, flat + lines, inside, rows(update.data))
    poison = None
    if value.poison is not None or update.poison is not None or unordered.size:
        marks = np.array(np.broadcast_to(False if value.poison is None else value.poison, (devices, *dims)))
        marks = marks.reshape(-1)
        marks[unordered] = True
        if update.poison is not None:
            spoiled = rows(np.broadcast_to(update.poison, update.data.shape))[inside]
            marks[target[spoiled]] = True
        poison = marks.reshape(devices, *dims)
    return Value(result.reshape(devices, *dims), poison)


def _differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two arrays hold different numbers. A NaN is like any NaN, and a zero like any zero."""
    return (a != b) & ((a == a) | (b == b))


def _one_by_one(
    evaluator: Evaluator,
    instruction: Instruction,
    result: np.ndarray,
    target: np.ndarray,
    inside: np.ndarray,
    new: np.ndarray,
) -> None:
    """Combine the updates one by one into the flat `result`, by the computation of a scatter."""
    name = called(instruction, "to_apply")
    for n in range(target.shape[1]):
        places, seen = target[:, n][inside[:, n]], new[:, n][inside[:, n]]
        if places.size:
            [result[places]] = evaluator.apply(name, [result[places], seen])
