# SPDX-License-Identifier: Apache-2.0
"""The digest of a case's outputs, `bits` in records. It compares modes, and reviewers compute it again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np


def of_arrays(arrays: Sequence[np.ndarray]) -> str:
    """The digest of whole arrays: BLAKE2b of their bytes in row-major order, one after the other."""
    state = hashlib.blake2b(digest_size=8)
    for array in arrays:
        state.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return state.hexdigest()


def of_ranks(digests: Iterable[str]) -> str:
    """The digest of the outputs of several ranks, from the digest of each rank. In a rank's own digest the positions
    that it does not own are zero."""
    return hashlib.blake2b(" ".join(digests).encode(), digest_size=8).hexdigest()
