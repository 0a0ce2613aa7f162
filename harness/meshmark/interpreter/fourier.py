# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms over the last dimensions, computed in double precision and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused
from meshmark.interpreter.elementwise import rounded
from meshmark.interpreter.meanings import array_shape, dimensions, means
from meshmark.interpreter.values import AnyValue, Value, array

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

_TRANSFORMS: dict[str, Callable[..., np.ndarray]] = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}
"""The transform of each kind. Inverse transforms divide by the number of points."""


@means("fft", attributes=("fft_type", "fft_length"))
def _fft(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    kind, lengths = instruction.attributes["fft_type"], dimensions(instruction, "fft_length")
    if kind not in _TRANSFORMS:
        raise Refused(f"an fft of type {kind}")
    data = array(operands[0], instruction.name).known(instruction.name)
    points = data.shape[data.ndim - len(lengths) :]
    halved = kind == "IRFFT"
    if (points[:-1], points[-1]) != (lengths[:-1], lengths[-1] // 2 + 1 if halved else lengths[-1]):
        raise Refused(f"an fft of {lengths} points over an array of {points}")
    exact = data.astype(np.float64 if kind == "RFFT" else np.complex128)
    found = _TRANSFORMS[kind](exact, s=lengths, axes=tuple(range(-len(lengths), 0)))
    return Value(rounded(found, array_shape(instruction).numpy))
