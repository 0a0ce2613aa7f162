# SPDX-License-Identifier: Apache-2.0
"""Counts the floating-point operations of the contractions in a compiled program: dots and convolutions.

The input is optimized HLO text, as for meshmark.core.hlo. A product of two numbers and its addition count two (eight
for complex numbers). A contraction in a loop counts as often as the loop runs. A contraction in a branch of a
conditional counts as if the branch ran.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from meshmark.core.groups import integers
from meshmark.core.hlo_module import Computation, Instruction
from meshmark.core.hlo_reader import read_module
from meshmark.core.hlo_types import flat

_LABELS = re.compile(r"(\w+)_(\w+)->(\w+)")
_LIBRARY_CALL = re.compile("matmul|gemm|dot|conv", re.IGNORECASE)
_MARKS = (" dot(", " convolution(", " custom-call(")


def flops(text: str) -> int | None:
    """Operations of one device in one execution; None if the count of a loop is unknown, or if the compiler calls a
    library for a contraction."""
    total = 0
    module = read_module(text)
    for computation in module.computations.values():
        for line in computation.lines:
            if not any(mark in line for mark in _MARKS) or not (found := Instruction.of(line)):
                continue
            if found.opcode == "custom-call" and _LIBRARY_CALL.search(found.target):
                return None
            if found.opcode not in ("dot", "convolution"):
                continue
            trips, _ = module.runs(computation.name)
            if trips is None:
                return None
            total += trips * _of_one(found, computation)
    return total


def _of_one(instruction: Instruction, computation: Computation) -> int:
    """The operations of one dot or convolution."""
    result = next(flat(instruction.logical_shape))
    left, right = (
        next(flat(computation.by_name[name].logical_shape)).dims for name in instruction.operands[:2]
    )
    each = 8 if result.dtype.startswith("c") else 2
    if instruction.opcode == "convolution":
        return each * _products(instruction, left, right, result.dims)
    terms = math.prod(
        left[d] for d in integers(instruction.attributes.get("lhs_contracting_dims", "").strip("{}"))
    )
    return each * result.size * terms


def _products(
    instruction: Instruction, left: Sequence[int], kernel: Sequence[int], result: Sequence[int]
) -> int:
    """The number of products of a convolution. Products with padding do not count: libtpu writes a product of several
    dimensions as a window that is mostly past the edge."""
    labels = _LABELS.fullmatch(instruction.attributes.get("dim_labels", ""))
    if labels is None:
        return math.prod(result)
    of_left, of_kernel, of_result = labels.groups()
    window = dict(part.split("=", 1) for part in instruction.attributes.get("window", "").strip("{}").split())
    total = kernel[of_kernel.index("i")]
    for length, label in zip(result, of_result, strict=True):
        if not label.isdigit():
            total *= length
            continue
        number = int(label)

        def given(name: str, otherwise: str, number: int = number) -> list[int]:
            return [int(n) for n in window.get(name, "x".join([otherwise] * 9)).split("x")[number].split("_")]

        [stride], [dilated], [spread] = (
            given("stride", "1"),
            given("rhs_dilate", "1"),
            given("lhs_dilate", "1"),
        )
        before, edge = given("pad", "0_0")[0], (left[of_left.index(label)] - 1) * spread
        taps = range(-before, kernel[of_kernel.index(label)] * dilated - before, dilated)
        total *= sum(_meetings(range(tap, tap + length * stride, stride), spread, edge) for tap in taps)
    return total


def _meetings(places: range, spread: int, edge: int) -> int:
    """The number of these places that are multiples of `spread` from 0 to `edge`."""
    if places.step > 1:
        return sum(0 <= place <= edge and place % spread == 0 for place in places)
    low, high = max(places.start, 0), min(places.stop - 1, edge)
    return max(0, high // spread - -(-low // spread) + 1)
