# SPDX-License-Identifier: Apache-2.0
"""Another release of JAX as an oracle: it runs the unsharded program too, and the results must be the same.

A worker under the other release gives its results (`Slot.judge`). A worker under this release compares them with its
own. This shows a wrong number that all modes of one release share, and one that a release has mended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from meshmark.hunt import oracles
from meshmark.hunt.differences import Difference, first_difference
from meshmark.program_data.program import Program
from meshmark.program_data.values import dtype_of


def read_result(data: Mapping[str, Any]) -> np.ndarray:
    """The array of a result that `oracles.write_result` wrote."""
    dtype = dtype_of(data["dtype"])
    items = np.array(data["data"], dtype=object)
    if dtype.kind in "fV":
        items = items.astype(float)
    elif dtype.kind == "c":
        items = items.reshape(-1, 2).astype(float).view(complex)
    return items.astype(dtype).reshape(data["shape"])


def compare_with_release(
    program: Program, there: Sequence[Mapping[str, Any]], release: str
) -> Difference | None:
    """The difference between the unsharded program here and its results under JAX `release`; None if there is none.

    there: the results under that release, as `oracles.write_result` wrote them. Raises Invalid if the program can't be
    judged here."""
    known = oracles.compute_truth(program)
    right = [read_result(data) for data in there]
    said = f"one device under JAX {jax.__version__} differs from JAX {release}"
    for k, (want, seen) in enumerate(zip(right, known.results, strict=True)):
        if (seen.shape, seen.dtype) != (want.shape, want.dtype):
            text = f"result {k} of {said}: {seen.dtype}{seen.shape} for {want.dtype}{want.shape}"
            return Difference(oracles.RELEASE, "oracles", f"type, JAX {release}", text)
    rounded = oracles.rounds(program)
    text = first_difference(known.results, right, known, rounded, said)
    return Difference(oracles.RELEASE, "oracles", f"JAX {release}", text) if text else None
