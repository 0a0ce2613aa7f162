# SPDX-License-Identifier: Apache-2.0
"""What the small rules share: comparing with a written answer, and asking for a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import reason_of


def line_and_grid(mesh: Any) -> tuple[jax.sharding.Mesh, jax.sharding.Mesh]:
    """Meshes of all devices of a mesh, in its order: over one axis "d", and over two axes "x" and "y"."""
    devices = mesh.devices.ravel()
    columns = 2 if devices.size % 2 == 0 else 1
    return jax.sharding.Mesh(devices, ("d",)), jax.sharding.Mesh(devices.reshape(-1, columns), ("x", "y"))


def may_leave_out_devices() -> bool:
    """Whether a program may run on any of the devices. A TPU's network has shapes, and so may that of a plugin."""
    return jax.default_backend() in ("cpu", "gpu") and jax.process_count() == 1


def expect(found: Any, right: Any, what: str) -> None:
    """RuntimeError if a result is not the written answer: arrays to the bit of their dtype, other things by ==."""
    if isinstance(right, (np.ndarray, np.generic)):
        seen = np.asarray(found)
        wrong(seen.dtype != right.dtype, f"{what} has dtype {seen.dtype} instead of {right.dtype}")
        same = seen.shape == right.shape and np.array_equal(
            seen, right, equal_nan=right.dtype.kind not in "biuSUO"
        )
        wrong(not same, f"{what} is {seen.tolist()} instead of {right.tolist()}"[:600])
        return
    wrong(found != right, f"{what} is {found} instead of {right}")


def refused(what: str, words: str, call: Callable[[], Any]) -> None:
    """RuntimeError if a call that JAX must refuse gives a result, or raises an error for another reason.

    words: a pattern of the reason, which the message contains. A call with a mistake of its own would raise too, and
    its rule could never be broken."""
    try:
        found = jax.block_until_ready(call())
    except Exception as error:
        reason = f"{type(error).__name__}: {reason_of(error)}"
        wrong(not re.search(words, reason), f"{what} is refused for another reason: {reason[:300]}")
    else:
        wrong(True, f"{what} is not refused: it gives {str(found)[:200]}")
