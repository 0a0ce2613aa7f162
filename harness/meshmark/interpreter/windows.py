# SPDX-License-Identifier: Apache-2.0
"""Windows of convolutions and of reductions: sizes, strides, paddings, dilations and reversal."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from meshmark.core.hlo_types import Refused


@dataclass(frozen=True)
class Window:
    """One dimension of a window."""

    size: int = 1
    stride: int = 1
    low: int = 0
    high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversed: bool = False

    def output(self, n: int) -> int:
        """The number of outputs over n inputs."""
        dilated = (n - 1) * self.base_dilation + 1 if n else 0
        spread = (self.size - 1) * self.window_dilation + 1
        room = dilated + self.low + self.high - spread
        return room // self.stride + 1 if room >= 0 else 0

    def hits(self, k: int, n: int, outputs: int) -> tuple[slice, slice] | None:
        """(the outputs that meet an input at place k of the window, these inputs); None if there are none.

        The other outputs meet padding or the holes of the dilated base."""
        start = k * self.window_dilation - self.low
        step = self.base_dilation // math.gcd(self.base_dilation, self.stride)
        first = next((o for o in range(step) if (o * self.stride + start) % self.base_dilation == 0), None)
        if first is None:
            return None
        while first < outputs and first * self.stride + start < 0:
            first += step
        at = (first * self.stride + start) // self.base_dilation
        if first >= outputs or at >= n:
            return None
        pace = step * self.stride // self.base_dilation
        count = min((outputs - 1 - first) // step, (n - 1 - at) // pace) + 1
        return (
            slice(first, first + (count - 1) * step + 1, step),
            slice(at, at + (count - 1) * pace + 1, pace),
        )


_FIELDS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")
_PAD = re.compile(r"(-?\d+)_(-?\d+)")


@lru_cache(maxsize=1024)
def window_of(text: str, rank: int) -> tuple[Window, ...]:
    """The window of an attribute such as {size=2x3 stride=1x2 pad=0_0x1_1}; Refused for an unknown field."""
    fields = dict(part.split("=") for part in text.strip("{}").split())
    for name in fields:
        if name not in _FIELDS:
            raise Refused(f"window with {name}")
    if not fields:
        return (Window(),) * rank
    pads = [tuple(map(int, _PAD.fullmatch(p).groups())) for p in fields.get("pad", "").split("x") if p]  # type: ignore[union-attr]

    def each(name: str, default: int) -> list[int]:
        return [int(v) for v in fields[name].split("x")] if name in fields else [default] * rank

    columns = zip(
        each("size", 1),
        each("stride", 1),
        pads or [(0, 0)] * rank,
        each("lhs_dilate", 1),
        each("rhs_dilate", 1),
        each("rhs_reversal", 0),
        strict=True,
    )
    found = tuple(
        Window(size, stride, pad[0], pad[1], base, wide, bool(back))
        for size, stride, pad, base, wide, back in columns
    )
    if len(found) != rank:
        raise Refused(f"window {text[:60]} over {rank} dimensions")
    return found
