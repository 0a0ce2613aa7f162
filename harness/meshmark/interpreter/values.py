# SPDX-License-Identifier: Apache-2.0
"""The values of a program that is computed: arrays with a leading device axis, and marks of unwritten elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from meshmark.interpreter.faults import Fault

UNWRITTEN = "reads memory that nothing wrote, or where a scatter put two numbers in no order"


class Value:
    """An array of all devices at once.

    `data` has the shape [devices, *dims]. The leading axis is 1 if all devices hold the same. `poison` is a bool array
    that broadcasts with `data`, or None. It marks unwritten elements: padding of tiles, fresh buffers, pending results.
    """

    __slots__ = ("data", "poison")

    def __init__(self, data: np.ndarray, poison: np.ndarray | None = None) -> None:
        self.data = data
        self.poison = poison

    def known(self, what: str) -> np.ndarray:
        """The data; Fault if some of it is poison. what: the name of the reader, for the message."""
        if self.poison is not None and self.poison.any():
            raise Fault(f"{what} {UNWRITTEN}")
        return self.data


class Pending:
    """The result of an asynchronous start. Only the done may read it."""

    __slots__ = ("value",)

    def __init__(self, value: AnyValue) -> None:
        self.value = value


AnyValue = Value | Pending | tuple["AnyValue", ...]


def array(value: AnyValue, what: str) -> Value:
    """This value as an array; Fault for a tuple and for the unfinished result of an asynchronous start."""
    if isinstance(value, Value):
        return value
    if isinstance(value, Pending):
        raise Fault(f"{what} reads the result of an asynchronous start before its done")
    raise Fault(f"{what} reads a tuple as an array")


def lead(*values: Value) -> int:
    """The length of the values' common leading axis."""
    return max(value.data.shape[0] for value in values)


def full(data: np.ndarray, devices: int) -> np.ndarray:
    """The data with a leading axis of this length."""
    return data if data.shape[0] == devices else np.broadcast_to(data, (devices, *data.shape[1:]))


def mask(value: Value) -> np.ndarray:
    """The poison of a value as a bool array of the full shape."""
    if value.poison is None:
        return np.zeros(value.data.shape, bool)
    return np.broadcast_to(value.poison, np.broadcast_shapes(value.poison.shape, value.data.shape))


def moved(move: Callable[..., np.ndarray], *values: Value) -> Value:
    """A value that `move` makes by moving elements of `values`. Poison moves in the same way."""
    data = move(*(value.data for value in values))
    if all(value.poison is None for value in values):
        return Value(data)
    return Value(data, move(*(mask(value) for value in values)))


def joint_poison(values: Sequence[Value]) -> np.ndarray | None:
    """The poison of a result that depends on the values element by element."""
    found = None
    for value in values:
        if value.poison is not None:
            found = value.poison if found is None else found | value.poison
    return found


def spread_poison(values: Sequence[Value], ndim: int) -> np.ndarray | None:
    """The poison of a result whose elements may depend on any element of `values`: a device's whole result, if any of
    its elements is poison."""
    found = None
    for value in values:
        if value.poison is not None:
            each = mask(value).reshape(value.data.shape[0], -1).any(axis=1)
            found = each if found is None else found | each
    return None if found is None else found.reshape(-1, *(1,) * ndim)


def unwritten(shape: tuple[int, ...], kind: np.dtype) -> Value:
    """An unwritten array, the same on all devices."""
    return Value(np.zeros((1, *shape), kind), np.ones((1, *shape), bool))
