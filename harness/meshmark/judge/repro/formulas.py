# SPDX-License-Identifier: Apache-2.0
"""Finds one line of NumPy that computes a result from its input.

The suite's references cut the array into blocks, do what the collective does, and put the blocks together. In a script
that takes sixty lines. Most results are simpler: the input itself, its sum over a dimension, its blocks in another
order. Such formulas are tried, and used only if they give the reference's numbers to the bit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

MOST_BLOCKS = 64
"""The most blocks whose order is written as a list."""


def formula(name: str, given: np.ndarray, wanted: np.ndarray, positions: np.ndarray | None = None) -> str:
    """An expression of `name`, which is the array `given`, that gives `wanted` to the bit; "" if none is found.

    positions: if elements only move, for each element of `wanted` its flat position in `given`, -1 for a zero.
    """
    if not given.size or not wanted.size:
        return ""
    if positions is not None and given.dtype == wanted.dtype:
        for expression in moves(name, positions.ravel(), given.shape, wanted.shape):
            if gives(expression, name, given, wanted):
                return expression
    found = [(code, array) for code, array in sources(name, given) if array.dtype == wanted.dtype]
    for code, array in found:
        if agrees(array, wanted):
            return code
    for code, array in found:
        for expression in arrangements(code, array, wanted):
            if gives(expression, name, given, wanted):
                return expression
    return ""


def gives(expression: str, name: str, given: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether an expression gives `wanted` to the bit if `name` is bound to `given`."""
    try:
        return agrees(eval(expression, {"np": np, name: given}), wanted)
    except ValueError:  # shapes that don't go together
        return False


def agrees(seen: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether two arrays have the same shape, dtype and bits."""
    return seen.shape == wanted.shape and seen.dtype == wanted.dtype and seen.tobytes() == wanted.tobytes()


def sources(name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(expression, value): the array itself, and the array with one dimension reduced."""
    yield name, array
    for reduce in ("sum", "max", "min", "mean"):
        if reduce in ("sum", "mean") and array.dtype.kind not in "fciu":
            continue
        for axis in range(array.ndim):
            if array.shape[axis] == 1:
                continue
            dtype = f", dtype={name}.dtype" if array.dtype.kind in "iu" and reduce == "sum" else ""
            for keep in ("", ", keepdims=True"):
                code = f"{name}.{reduce}(axis={axis}{dtype}{keep})"
                with np.errstate(all="ignore"):
                    try:
                        yield code, eval(code, {name: array})
                    except TypeError:
                        continue


def arrangements(code: str, array: np.ndarray, wanted: np.ndarray) -> Iterator[str]:
    """Expressions that may bring the elements of an array into the wanted shape and order."""
    shape = spelled(wanted.shape)
    if wanted.shape == array.shape:
        yield code
    if wanted.size == array.size:
        yield reshaped(code, wanted.shape)
        positions = where(array, wanted)
        if positions is not None:
            yield from moves(code, positions, array.shape, wanted.shape)
    elif wanted.size % array.size == 0:
        yield f"np.broadcast_to({code}, {shape})"
        yield f"np.broadcast_to({reshaped(code, squeezed(array.shape, wanted.shape))}, {shape})"


def moves(code: str, positions: np.ndarray, shape: Sequence[int], wanted: Sequence[int]) -> Iterator[str]:
    """Expressions that may take the elements at these flat positions into the wanted shape, the shortest first."""
    if np.array_equal(positions, np.arange(len(positions))):
        yield code if tuple(shape) == tuple(wanted) else reshaped(code, wanted)
    if len(positions) == math.prod(shape) and positions.min() >= 0:
        yield from turns(code, positions, shape, wanted)
        yield from digits(code, positions, shape, wanted)
        yield from blocks(code, positions, shape, wanted)
    yield from runs(code, positions, shape, wanted)


def runs(code: str, positions: np.ndarray, shape: Sequence[int], wanted: Sequence[int]) -> Iterator[str]:
    """An expression that concatenates slices and zeros along one dimension."""
    if len(shape) != len(wanted):
        return
    for axis, size in enumerate(shape):
        after = math.prod(shape[axis + 1 :])
        if (*shape[:axis], *shape[axis + 1 :]) != (*wanted[:axis], *wanted[axis + 1 :]):
            continue
        source = positions.reshape(-1, wanted[axis], after)
        rows = np.where(source[0, :, 0] < 0, -1, source[0, :, 0] // after % size)
        numbers = np.arange(math.prod(shape)).reshape(-1, size, after)
        if not np.array_equal(source, np.where(rows[None, :, None] < 0, -1, numbers[:, rows])):
            continue
        lines = rows.tolist()
        starts = [i for i, row in enumerate(lines) if not i or row != lines[i - 1] + (row >= 0)]
        if len(starts) > MOST_RUNS:
            continue
        parts = []
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            row, length = lines[start], end - start
            taken = f"{code}[{':, ' * axis}{max(row, 0)}:{max(row, 0) + length}]"
            parts.append(taken if row >= 0 else f"np.zeros_like({taken})")
        yield f"np.concatenate([{', '.join(parts)}]{f', axis={axis}' if axis else ''})"


def reshaped(code: str, shape: Sequence[int]) -> str:
    """A reshape as source. NumPy takes the empty shape only as a tuple."""
    return f"{code}.reshape{spelled(shape) if len(shape) else '(())'}"


def spelled(shape: Sequence[int]) -> str:
    """A shape as source."""
    return repr(tuple(map(int, shape)))


def squeezed(shape: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """The shape without leading dimensions of size 1, down to the wanted number of dimensions."""
    left = list(shape)
    while len(left) > len(wanted) and left[0] == 1:
        left.pop(0)
    return left


MOST_RUNS = 8
"""The most slices that are put together."""


def where(array: np.ndarray, wanted: np.ndarray) -> np.ndarray | None:
    """The flat position in `array` of each element of `wanted`; None if values of `array` repeat or one is missing."""
    ordered, first = np.unique(_keys(array), return_index=True)
    if len(ordered) != array.size:
        return None
    want = _keys(wanted)
    at = np.searchsorted(ordered, want)
    at[at == len(ordered)] = 0
    return first[at] if np.array_equal(ordered[at], want) else None


def _keys(array: np.ndarray) -> np.ndarray:
    """Each element's bits as one number (complex: as a complex number)."""
    flat = np.ascontiguousarray(array).ravel()
    return flat if flat.dtype.kind == "c" else flat.view(f"u{flat.dtype.itemsize}")


def turns(code: str, positions: np.ndarray, shape: Sequence[int], wanted: Sequence[int]) -> Iterator[str]:
    """A transpose of the dimensions."""
    numbers = np.arange(len(positions)).reshape(shape)
    for order in itertools.permutations(range(len(shape))):
        turned = numbers.transpose(order)
        if turned.shape == tuple(wanted) and np.array_equal(turned.ravel(), positions):
            yield f"{code}.transpose{spelled(order)}"


def digits(code: str, positions: np.ndarray, shape: Sequence[int], wanted: Sequence[int]) -> Iterator[str]:
    """A reshape, a transpose and a reshape, for positions that are a sum of strides times digits of the new
    position."""
    found: list[tuple[int, int]] = []
    left = positions - positions[0]
    if positions[0]:
        return
    while len(left) > 1:
        stride = int(left[1])
        length = next(
            (
                n
                for n in range(len(left), 1, -1)
                if len(left) % n == 0 and _regular(left.reshape(-1, n), stride)
            ),
            0,
        )
        if not length:
            return
        found.insert(0, (length, stride))
        left = left[::length]
    order = sorted(range(len(found)), key=lambda i: -found[i][1])
    rest = 1
    for i in reversed(order):
        if found[i][1] != rest:
            return
        rest *= found[i][0]
    inner = [found[i][0] for i in order]
    turned = [order.index(i) for i in range(len(found))]
    before = "" if tuple(inner) == tuple(shape) else f".reshape{spelled(inner)}"
    after = "" if [found[i][0] for i in range(len(found))] == list(wanted) else f".reshape{spelled(wanted)}"
    yield f"{code}{before}.transpose{spelled(turned)}{after}"


def _regular(rows: np.ndarray, stride: int) -> bool:
    return np.array_equal(rows, rows[:, :1] + stride * np.arange(rows.shape[1]))


def blocks(code: str, positions: np.ndarray, shape: Sequence[int], wanted: Sequence[int]) -> Iterator[str]:
    """Blocks along one dimension in another order, as a roll or by a list of the order."""
    if tuple(shape) != tuple(wanted):
        return
    for axis, size in enumerate(shape):
        after = math.prod(shape[axis + 1 :])
        source = positions.reshape(-1, size, after)
        rows = source[0, :, 0] // after % size
        if not np.array_equal(source, np.arange(len(positions)).reshape(-1, size, after)[:, rows]):
            continue
        shift = int(-rows[0]) % size
        if np.array_equal(rows, np.roll(np.arange(size), shift)):
            yield f"np.roll({code}, {shift}, axis={axis})"
        for number in (n for n in range(2, MOST_BLOCKS + 1) if size % n == 0):
            width = size // number
            lines = rows.reshape(number, width)
            if np.array_equal(lines, lines[:, :1] + np.arange(width)) and not (lines[:, 0] % width).any():
                order = (lines[:, 0] // width).tolist()
                cut = [*shape[:axis], number, width, *shape[axis + 1 :]]
                taken = ":, " * axis + repr(order)
                yield f"{code}.reshape{spelled(cut)}[{taken}].reshape{spelled(wanted)}"
                break
