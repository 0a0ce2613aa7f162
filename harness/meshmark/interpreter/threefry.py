# SPDX-License-Identifier: Apache-2.0
"""Threefry-2x32 on GPU: the custom call by which JAX encrypts counters if `jax_threefry_gpu_kernel_lowering` is on.

Without that setting, which is off by default, JAX spells the rounds as ordinary instructions. The cipher is that of
Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), with 20 rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused
from meshmark.interpreter.custom_calls import target, typed_attributes
from meshmark.interpreter.values import AnyValue, Value, array, joint_poison

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def encrypted(keys: Sequence[np.ndarray], counters: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The two encrypted words of each counter. All arrays are uint32 and have one shape, also the two words of the
    keys."""
    schedule = (*keys, keys[0] ^ keys[1] ^ _PARITY)
    a, b = counters[0] + schedule[0], counters[1] + schedule[1]
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            a = a + b
            b = ((b << np.uint32(turn)) | (b >> np.uint32(32 - turn))) ^ a
        a = a + schedule[(group + 1) % 3]
        b = b + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return a, b


@target("cu_threefry2x32_ffi")
def _threefry(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    values = [array(operand, instruction.name) for operand in operands]
    data = [value.data for value in values]
    if typed_attributes(instruction):
        raise Refused(f"custom call {instruction.target} with {min(typed_attributes(instruction))}")
    if len(data) != 4 or any(d.dtype != np.uint32 or d.shape[1:] != data[0].shape[1:] for d in data):
        raise Refused(f"custom call {instruction.target} of other than four equal arrays of u32")
    with np.errstate(over="ignore"):
        return tuple(Value(words, joint_poison(values)) for words in encrypted(data[:2], data[2:]))
