# SPDX-License-Identifier: Apache-2.0
"""Instructions that combine elements by a computation: reduce, reduce-window, select-and-scatter, map, sort, top-k.

A sum is accumulated in double precision and rounded once, because the order of a reduction is unspecified.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from meshmark.core.hlo_module import Computation, Instruction
from meshmark.core.hlo_types import flat
from meshmark.interpreter.elementwise import is_float, narrowed, rounded, total_order, wide
from meshmark.interpreter.meanings import called, dimension, dimensions, flag, means
from meshmark.interpreter.values import AnyValue, Value, array, full, lead, mask, moved, spread_poison
from meshmark.interpreter.windows import Window, window_of

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

BINARY: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
"""The reductions that NumPy computes directly. Others are folded in pairs."""


def plain_reducer(computation: Computation) -> str:
    """The opcode of a computation that is one operation of BINARY on its two parameters; "" for any other."""
    root = computation.root
    names = {p.name for p in computation.parameters}
    plain = len(computation.instructions) == 3 and len(names) == 2 and set(root.operands) == names
    return root.opcode if plain and root.opcode in BINARY and not root.attributes else ""


def added(data: np.ndarray, axis: int) -> np.ndarray:
    """The sum along an axis in double precision. It starts at -0, so a sum of negative zeros is a negative zero."""
    return np.add.reduce(wide(data), axis, initial=-0.0)


def reduced(evaluator: Evaluator, name: str, data: np.ndarray, axis: int) -> np.ndarray:
    """An array reduced along one axis by the computation `name`, without an initial value. The axis must not be
    empty."""
    opcode = plain_reducer(evaluator.computation(name))
    if opcode == "add" and is_float(data.dtype):
        return rounded(added(data, axis), data.dtype)
    if opcode and data.dtype.kind != "V":
        # Integers keep their type, so they overflow as on a device.
        return BINARY[opcode].reduce(data, axis, dtype=data.dtype)
    [result] = fold(evaluator, name, [np.moveaxis(data, axis, -1)])
    return result


def fold(evaluator: Evaluator, name: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays reduced together along their last axis by the computation `name`, in pairs of neighbours."""
    current = list(arrays)
    while (n := current[0].shape[-1]) > 1:
        even = n // 2 * 2
        left, right = ([a[..., k:even:2] for a in current] for k in (0, 1))
        shape = left[0].shape
        pairs = evaluator.apply(name, [x.reshape(-1) for x in (*left, *right)])
        joined = [p.reshape(shape) for p in pairs]
        current = [np.concatenate([j, a[..., even:]], -1) for j, a in zip(joined, current, strict=True)]
    return [a[..., 0] for a in current]


@means("reduce", attributes=("dimensions", "to_apply"))
def _reduce(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    half = len(values) // 2
    arrays, initial = values[:half], values[half:]
    dims, name = dimensions(instruction), called(instruction, "to_apply")
    devices = lead(*values)
    axes = [d + 1 for d in dims]
    kept = [d for d in range(1, arrays[0].data.ndim) if d not in axes]
    outer = tuple(arrays[0].data.shape[d] for d in kept)
    rows = [
        v.data.transpose(0, *kept, *axes).reshape(v.data.shape[0], *outer, -1)
        for v in (arrays if half == 1 else [Value(full(v.data, devices)) for v in arrays])
    ]
    starts = [
        np.broadcast_to(v.data.reshape(-1, *(1,) * len(kept)), (v.data.shape[0], *outer)) for v in initial
    ]
    if not rows[0].shape[-1]:
        results = starts
    elif half == 1:
        opcode = plain_reducer(evaluator.computation(name))
        if opcode == "add" and is_float(rows[0].dtype):
            total = added(rows[0], -1) + wide(starts[0])
            results = [rounded(total, rows[0].dtype)]
        else:
            part = reduced(evaluator, name, rows[0], rows[0].ndim - 1)
            results = _combined(evaluator, name, starts, [part])
    else:
        results = _combined(evaluator, name, starts, fold(evaluator, name, rows))
    poison = None
    if any(v.poison is not None for v in values):
        poison = np.zeros((devices, *outer), bool)
        for value in arrays:
            poison = poison | mask(value).any(axis=tuple(axes)).reshape(value.data.shape[0], *outer)
        for value in initial:
            poison = poison | mask(value).reshape(-1, *(1,) * len(kept))
    # TPU: the computation works in float32, and a result is rounded once to the type that the reduce states for it.
    kinds = [shape.numpy for shape in flat(instruction.shape)]
    found = tuple(Value(narrowed(r, kind), poison) for r, kind in zip(results, kinds, strict=True))
    return found if half > 1 else found[0]


def _combined(
    evaluator: Evaluator, name: str, first: Sequence[np.ndarray], second: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Arrays combined element by element by the computation `name`."""
    shape = np.broadcast_shapes(*(a.shape for a in (*first, *second)))
    flattened = [np.broadcast_to(a, shape).reshape(-1) for a in (*first, *second)]
    return [result.reshape(shape) for result in evaluator.apply(name, flattened)]


@means("map", attributes=("dimensions", "to_apply"))
def _map(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    shape = np.broadcast_shapes(*(v.data.shape for v in values))
    name = called(instruction, "to_apply")
    [result] = evaluator.apply(name, [np.broadcast_to(v.data, shape).reshape(-1) for v in values])
    return Value(result.reshape(shape), spread_poison(values, len(shape) - 1))


# Windows -----------------------------------------------------------------------------------------------------


@means("reduce-window", attributes=("window", "to_apply"))
def _reduce_window(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    half = len(values) // 2
    name = called(instruction, "to_apply")
    opcode = plain_reducer(evaluator.computation(name)) if half == 1 else ""
    devices = lead(*values)
    window = window_of(instruction.attributes.get("window", "{}"), values[0].data.ndim - 1)
    dims = [w.output(n) for w, n in zip(window, values[0].data.shape[1:], strict=True)]
    sums = opcode == "add" and is_float(values[0].data.dtype)
    results = [
        np.array(np.broadcast_to(v.data.reshape(-1, *(1,) * len(dims)), (devices, *dims)))
        for v in values[half:]
    ]
    results = [wide(r) if sums else r for r in results]
    for offsets in itertools.product(*(range(w.size) for w in window)):
        hit = _hits(window, offsets, values[0].data.shape[1:], dims)
        if hit is None:
            continue
        to, of = ((slice(None), *index) for index in hit)
        parts = [v.data[of] for v in values[:half]]
        if sums:
            results[0][to] += wide(parts[0])
        elif opcode and results[0].dtype.kind != "V":
            results[0][to] = BINARY[opcode](results[0][to], parts[0])
        else:
            for result, new in zip(
                results, _combined(evaluator, name, [r[to] for r in results], parts), strict=True
            ):
                result[to] = new
    kinds = [shape.numpy for shape in flat(instruction.shape)]
    poison = spread_poison(values, len(dims))
    found = tuple(Value(rounded(r, kind), poison) for r, kind in zip(results, kinds, strict=True))
    return found if half > 1 else found[0]


def _hits(
    window: Sequence[Window], offsets: Sequence[int], sizes: Sequence[int], outputs: Sequence[int]
) -> tuple[list[slice], list[slice]] | None:
    """(outputs, inputs) that meet at these places of the window; None if all outputs meet padding."""
    found = [w.hits(k, n, o) for w, k, n, o in zip(window, offsets, sizes, outputs, strict=True)]
    if any(hit is None for hit in found):
        return None
    return [hit[0] for hit in found], [hit[1] for hit in found]  # type: ignore[index]


@means("select-and-scatter", attributes=("window", "select", "scatter"))
def _select_and_scatter(
    evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]
) -> AnyValue:
    """Each window selects one element, and combines its source element with the result there."""
    value, source, initial = (array(operand, instruction.name) for operand in operands)
    devices, dims = lead(value, source, initial), value.data.shape[1:]
    window = window_of(instruction.attributes["window"], len(dims))
    outputs = source.data.shape[1:]
    data = full(value.data, devices)
    places = np.broadcast_to(np.arange(data[0].size).reshape(dims), data.shape)
    best = np.zeros((devices, *outputs), data.dtype)
    where = np.full((devices, *outputs), -1, np.int64)
    for offsets in itertools.product(*(range(w.size) for w in window)):
        hit = _hits(window, offsets, dims, outputs)
        if hit is None:
            continue
        to, of = ((slice(None), *index) for index in hit)
        seen, old = data[of], best[to]
        [keeps] = _combined(evaluator, called(instruction, "select"), [old], [seen])
        keep = keeps & (where[to] >= 0)
        best[to] = np.where(keep, old, seen)
        where[to] = np.where(keep, where[to], places[of])
    result = np.array(np.broadcast_to(initial.data.reshape(-1, *(1,) * len(dims)), data.shape))
    rows, name = result.reshape(devices, -1), called(instruction, "scatter")
    chosen, new = where.reshape(devices, -1), full(source.data, devices).reshape(devices, -1)
    for n in range(chosen.shape[1]):
        at = chosen[:, n]
        used = np.flatnonzero(at >= 0)
        if used.size:
            [rows[used, at[used]]] = evaluator.apply(name, [rows[used, at[used]], new[used, n]])
    return Value(rows.reshape(data.shape), spread_poison([value, source, initial], len(dims)))


# Order -------------------------------------------------------------------------------------------------------


@means("sort", attributes=("dimensions", "is_stable", "to_apply"))
def _sort(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    axis, devices = dimension(instruction) + 1, lead(*values)
    keys = [np.moveaxis(full(value.known(instruction.name), devices), axis, -1) for value in values]
    stable = flag(instruction, "is_stable")
    # Data that are equal on all devices are sorted once, because comparisons are most of the cost of a sort.
    if all(map(_alike, keys)):
        keys = [k[:1] for k in keys]
    order = ordered(evaluator, called(instruction, "to_apply"), keys, stable)
    found = tuple(Value(np.moveaxis(np.take_along_axis(k, order, -1), -1, axis)) for k in keys)
    return found if len(found) > 1 else found[0]


def _alike(rows: np.ndarray) -> bool:
    """Whether all devices hold the same bits."""
    bits = np.ascontiguousarray(rows).view(np.uint8)
    return bool((bits == bits[:1]).all())


def ordered(evaluator: Evaluator, name: str, keys: Sequence[np.ndarray], stable: bool = True) -> np.ndarray:
    """The order of the last axis by the comparison `name`, int64 of the keys' shape.

    A stable sort keeps the order of equal elements. Otherwise any order is right, and equal elements are reversed, so
    that a program that relies on their order has wrong numbers. The algorithm is Batcher's odd-even merge sort, because
    each of its steps compares whole arrays."""
    shape = keys[0].shape
    n = shape[-1]
    if not stable:
        return n - 1 - ordered(evaluator, name, [k[..., ::-1] for k in keys])
    order = np.broadcast_to(np.arange(n), shape).copy()
    rows = [np.array(k) for k in keys]
    p = 1
    while p < n:
        k = p
        while k >= 1:
            low = np.array(
                [
                    i + j
                    for j in range(k % p, n - k, 2 * k)
                    for i in range(min(k, n - j - k))
                    if (i + j) // (p * 2) == (i + j + k) // (p * 2)
                ],
                np.int64,
            )
            if low.size:
                _exchange(evaluator, name, rows, order, low, low + k)
            k //= 2
        p *= 2
    return order


def _exchange(
    evaluator: Evaluator,
    name: str,
    rows: list[np.ndarray],
    order: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> None:
    """Exchange the pairs (low, high) that are in the wrong order, in place. Equal elements keep their original
    order."""
    first, second = [r[..., low] for r in rows], [r[..., high] for r in rows]
    shape = first[0].shape
    ahead, behind = (
        evaluator.apply(name, [x.reshape(-1) for pair in zip(a, b, strict=True) for x in pair])[0].reshape(
            shape
        )
        for a, b in ((second, first), (first, second))
    )
    swap = ahead | (~behind & (order[..., high] < order[..., low]))
    for row, a, b in zip([*rows, order], [*first, order[..., low]], [*second, order[..., high]], strict=True):
        row[..., low], row[..., high] = np.where(swap, b, a), np.where(swap, a, b)


def largest(value: Value, k: int, totally: bool = False) -> tuple[Value, Value]:
    """(the k largest elements along the last dimension, their int32 indices). Of equal elements the one with the lower
    index comes first, and NaN is the largest. totally: use the total order, in which -0 < 0 and NaN has a sign."""
    data = value.data
    if totally and is_float(data.dtype):
        return _taken(value, np.argsort(np.invert(total_order(data)), axis=-1, kind="stable")[..., :k])
    key = wide(data) if is_float(data.dtype) else data
    if is_float(data.dtype):
        key = np.where(np.isnan(key), np.inf, key)
        nan = np.isnan(wide(data))
        order = np.lexsort((np.broadcast_to(np.arange(key.shape[-1]), key.shape), -key, ~nan), axis=-1)
    else:
        order = np.argsort(-key.astype(np.int64), axis=-1, kind="stable")
    return _taken(value, order[..., :k])


def _taken(value: Value, order: np.ndarray) -> tuple[Value, Value]:
    taken = moved(lambda a: np.take_along_axis(a, order, -1), value)
    return taken, Value(order.astype(np.int32))
