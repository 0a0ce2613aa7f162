# SPDX-License-Identifier: Apache-2.0
"""Finds inputs that a call has changed, and chooses the cases that are called again with other values.

The inputs of every case that passes are compared again after its calls. A call with other values needs a second
reference, so only one cell in five has one, in all of its modes. Another seed chooses other cells.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from meshmark.core.dtypes import as_bits
from meshmark.operations.cases import Case

SHARE = 5
"""One cell in this many is called again with other values."""

OTHER = 1 << 20
"""Added to the seed for the values of the second call."""


def is_called_again(case: Case, seed: int) -> bool:
    """Whether the case's program is called with other values too."""
    return bool(case.plan.arguments) and zlib.crc32(case.cell.id.encode()) % SHARE == seed % SHARE


def changed_argument(wanted: Sequence[np.ndarray], placed: Sequence[jax.Array]) -> str:
    """A sentence with the first argument that a call deleted or changed; "" if there is none.

    `wanted`: the host arrays that were placed."""
    for number, (array, want) in enumerate(zip(placed, wanted, strict=True)):
        if array.is_deleted():
            return f"argument {number} was deleted by a call that does not donate it"
        for shard in array.addressable_shards:
            if not np.array_equal(as_bits(_fetched(shard)), as_bits(want[shard.index])):
                return f"argument {number} was changed by the call: {shard.device} holds other values"
    return ""


def changed_host_array(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> str:
    """A sentence with the first host array that a host call changed; "" if there is none."""
    for number, (was, now) in enumerate(zip(before, after, strict=True)):
        if not np.array_equal(as_bits(was), as_bits(now)):
            return f"argument {number}, a host array, was changed by the call"
    return ""


def _fetched(shard: Any) -> np.ndarray:
    """The present data of a shard, fetched again: JAX keeps a copy of data that it has fetched, except on CPU."""
    return np.asarray(shard.data if shard.device.platform == "cpu" else shard.data.copy())
