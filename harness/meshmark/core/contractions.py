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

from meshmark.core.hlo import Instruction, operands, parse_hlo, shapes

_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_WINDOW = re.compile(r"window=\{([^}]*)\}")
_LIBRARY_CALL = re.compile(r'custom_call_target="([^"]*(?:matmul|gemm|dot|conv)[^"]*)"', re.IGNORECASE)


def flops(text: str) -> int | None:
    """Operations of one device in one execution; None if the count of a loop is unknown, or if the compiler calls a
    library for a contraction."""
    module = parse_hlo(text)
    total = 0
    for computation, lines in module.lines.items():
        if not any(" dot(" in line or " convolution(" in line or "custom-call" in line for line in lines):
            continue
        instructions = module.instructions(computation)
        for name, instruction in instructions.items():
            if name == "ROOT":  # the root is also under its own name
                continue
            if instruction[3] == "custom-call" and _LIBRARY_CALL.search(instruction[4]):
                return None
            if instruction[3] not in ("dot", "convolution"):
                continue
            trips, _ = module.runs(computation)
            if trips is None:
                return None
            total += trips * _of_one(instruction, instructions)
    return total


def _of_one(instruction: Instruction, instructions: dict[str, Instruction]) -> int:
    """The operations of one dot or convolution."""
    dtype, result = shapes(instruction[2])[0]
    left, right = (shapes(instructions[name][2])[0][1] for name in operands(instruction)[:2])
    each = 8 if dtype.startswith("c") else 2
    if instruction[3] == "convolution":
        return each * _products(instruction[4], left, right, result)
    match = _CONTRACTED.search(instruction[4])
    terms = math.prod(left[int(d)] for d in match[1].split(",") if d) if match else 1
    return each * math.prod(result) * terms


def _products(attributes: str, left: Sequence[int], kernel: Sequence[int], result: Sequence[int]) -> int:
    """The number of products of a convolution. Products with padding do not count: libtpu writes a product of several
    dimensions as a window that is mostly past the edge."""
    labels = _LABELS.search(attributes)
    if labels is None:
        return math.prod(result)
    of_left, of_kernel, of_result = labels.groups()
    window = dict(part.split("=", 1) for part in (_WINDOW.search(attributes) or ["", ""])[1].split())
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
