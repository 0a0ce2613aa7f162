# SPDX-License-Identifier: Apache-2.0
"""The operations that every contestant has: bytes, inputs, and their answers by NumPy. Plain arithmetic.

n processes hold one float32 buffer each. The size S and the factor f of the bus bandwidth, busbw = S / t * f, are
those of NVIDIA's nccl-tests (doc/PERFORMANCE.md):

    all_reduce   S: the buffer, in and out            f = 2 (n - 1) / n
    all_gather   S: the output; S / n goes in         f = (n - 1) / n
    all_to_all   S: the buffer; S / n for each        f = (n - 1) / n

Values are whole numbers from 1 to 509, so that a sum over up to 32,000 processes is exact in float32 whatever its
order, and no two ranks have the same number at one position: a rank that is left out, taken twice or put in the place
of another changes the answer. 509 is a prime and divides no size here, so that a shifted block differs too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

OPERATIONS = ("all_reduce", "all_gather", "all_to_all")

ITEM = 4
"""Bytes of a float32."""

_PRIME, _STEP, _APART = 509, 37, 101


def factor(operation: str, processes: int) -> float:
    """f of the bus bandwidth."""
    return (2.0 if operation == "all_reduce" else 1.0) * (processes - 1) / processes


def fits(nbytes: int, processes: int) -> bool:
    """Whether S bytes are a whole number of float32 for every process, and also for each block of a process."""
    return nbytes > 0 and nbytes % (ITEM * processes) == 0


def input_length(operation: str, nbytes: int, processes: int) -> int:
    """The number of float32 values in the input of one process."""
    return nbytes // ITEM // (processes if operation == "all_gather" else 1)


def output_length(nbytes: int) -> int:
    """The number of float32 values in the output of one process, for any operation."""
    return nbytes // ITEM


def values(rank: int, length: int) -> Array:
    """The input of a rank, float32 [length]."""
    return ((np.arange(length, dtype=np.int64) * _STEP + rank * _APART) % _PRIME + 1).astype(np.float32)


def expected(operation: str, nbytes: int, rank: int, processes: int) -> Array:
    """The exact output that a rank must get, float32 [S / 4]."""
    length = input_length(operation, nbytes, processes)
    if operation == "all_reduce":
        total = np.zeros(length, np.float32)
        for other in range(processes):
            total += values(other, length)
        return total
    if operation == "all_gather":
        return np.concatenate([values(other, length) for other in range(processes)])
    block = length // processes
    here = slice(rank * block, (rank + 1) * block)
    return np.concatenate([values(other, length)[here] for other in range(processes)])


def difference(got: Array, want: Array) -> str | None:
    """What is wrong with an output, in words; None if every value is right."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {list(got.shape)}, not {want.dtype} {list(want.shape)}"
    wrong = np.flatnonzero(got != want)  # NaN differs from everything
    if not wrong.size:
        return None
    first = int(wrong[0])
    return f"{wrong.size} of {want.size} values are wrong, the first at {first}: {got[first]:g}, not {want[first]:g}"
