# SPDX-License-Identifier: Apache-2.0
"""Computes the values of each operation of a lowered program, which no compiler has changed yet.

JAX hands the compiler a program of global values and of the bodies of its `shard_map`s, with the name of each
operation. This program is interpreted in the same way as the compiled text. Steps of the compiled text are compared
with the operation of the same name, and a wrong result is followed to the first step that differs.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from meshmark.core import layout
from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused
from meshmark.interpreter import reader
from meshmark.interpreter.evaluator import Evaluator, interpret
from meshmark.interpreter.faults import Fault
from meshmark.interpreter.sources import path
from meshmark.interpreter.values import AnyValue, Value

MOST = 16
"""The most values of one operation that are kept. In a loop these are the values of the first turns."""


@dataclass
class Lowered:
    """The values of the lowered program by operation: [1, *dims] where all devices hold the same value."""

    values: dict[str, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    refused: str = ""
    """The reason why there are no values, or only those of the operations before some point."""

    def keep(
        self,
        evaluator: Evaluator,
        instruction: Instruction,
        operands: Sequence[AnyValue],
        result: AnyValue,
        ids: np.ndarray,
    ) -> None:
        """Keep the value of one instruction, if all devices have computed it."""
        if (
            len(ids) < evaluator.module.num_devices
            or not isinstance(result, Value)
            or result.poison is not None
        ):
            return
        kept = self.values[path(evaluator.callers, instruction)]
        if len(kept) < MOST:
            kept.append(result.data)

    def apart(self, operation: str, data: np.ndarray, sizes: Mapping[str, int]) -> list[int] | None:
        """The devices that do not hold their part of an operation's value; None if no value of such a shape is known.

        data: [devices, *local]. A part is the device's own value, or its block of a global value under one sharding
        for all devices. Of the shardings that fit the shapes, the one on which most devices agree counts."""
        best: list[int] | None = None
        for known in self.values.get(operation, ()):
            if known.dtype != data.dtype:
                continue
            for whole, local in _shaped(known, data):
                for parts in _parts(whole, local.shape[1:], sizes):
                    wrong = [d for d, (a, b) in enumerate(zip(local, parts, strict=True)) if not same(a, b)]
                    if not wrong:
                        return []
                    best = wrong if best is None or len(wrong) < len(best) else best
        return best


def lowered(text: str, devices: int, arguments: Sequence[np.ndarray]) -> Lowered:
    """The values of a lowered program, from its HLO text and its global arguments. What can't be interpreted is named
    in `refused`."""
    found = Lowered()
    try:
        module = reader.parse_module(text).over(devices)
        interpret(module, [a[None] for a in arguments], watch=found.keep)
    except (Refused, Fault) as error:
        found.refused = str(error)
    return found


def _shaped(known: np.ndarray, data: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of `known` and `data` with the same number of dimensions. Compilers add and drop dimensions of size 1; one
    of `data` may also be a device's part of a larger dimension."""
    if known.ndim == data.ndim:
        yield known, data
        return
    whole = known.reshape(len(known), *(n for n in known.shape[1:] if n > 1))
    ones = [d for d, n in enumerate(data.shape) if d and n == 1]
    for dropped in itertools.combinations(ones, max(0, data.ndim - whole.ndim)):
        local = data.reshape([n for d, n in enumerate(data.shape) if d not in dropped])
        if local.ndim == whole.ndim:
            yield whole, local


def _parts(
    known: np.ndarray, dims: Sequence[int], sizes: Mapping[str, int]
) -> Iterator[Sequence[np.ndarray]]:
    """The blocks of shape `dims` that the devices may hold of a value: lists with one block per device."""
    count = int(np.prod(list(sizes.values()), dtype=int))
    if known.shape[1:] == tuple(dims):
        yield list(known if len(known) == count else np.broadcast_to(known, (count, *dims)))
    if len(known) > 1 or any(n % part for n, part in zip(known.shape[1:], dims, strict=True) if part):
        return
    times = [n // part if part else 1 for n, part in zip(known.shape[1:], dims, strict=True)]
    if set(times) <= {1}:
        return
    for spec in _specs(times, tuple(a for a in sizes if sizes[a] > 1), sizes):
        yield layout.split(known[0], spec, sizes)


def _specs(times: Sequence[int], free: tuple[str, ...], sizes: Mapping[str, int]) -> Iterator[layout.Spec]:
    """The specs that cut dimension i into times[i] parts. Each of the `free` axes is used at most once."""
    if not times:
        yield ()
        return
    for number in range(len(free) + 1):
        for axes in itertools.permutations(free, number):
            if np.prod([sizes[a] for a in axes], dtype=int) == times[0]:
                rest = tuple(a for a in free if a not in axes)
                yield from ((axes or None, *others) for others in _specs(times[1:], rest, sizes))


def same(seen: np.ndarray, want: np.ndarray) -> bool:
    """Whether two blocks are equal. Floats and complex numbers may differ by 1 percent plus 0.001 of the largest
    magnitude, since the compiler may round differently."""
    if seen.dtype.kind in "fcV":
        wide = np.complex128 if seen.dtype.kind == "c" else np.float64
        a, b = seen.astype(wide), want.astype(wide)
        scale = np.abs(np.nan_to_num(b)).max(initial=0.0)
        return bool(np.allclose(a, b, rtol=1e-2, atol=1e-3 * scale, equal_nan=True))
    return bool(np.array_equal(seen, want))
