# SPDX-License-Identifier: Apache-2.0
"""What the small rules share: comparing with a written answer, and asking for a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.options import wrong


def put(host: Any, mesh: Mesh, *spec: Any) -> jax.Array:
    """An array with this spec over the mesh."""
    return jax.device_put(host, NamedSharding(mesh, P(*spec)))


def mapped(f: Callable[..., Any], mesh: Mesh, given: Any, made: Any, **options: Any) -> Callable[..., Any]:
    """The jitted shard_map of a function."""
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=given, out_specs=made, **options))


def explicit(mesh: Mesh) -> Mesh:
    """The same mesh with Explicit axes."""
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Explicit,) * len(mesh.axis_names))


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


def refused(what: str, call: Callable[[], Any], *, running: bool = False) -> None:
    """RuntimeError if a call that JAX must refuse gives a result, also one that is read, or ends in an internal error.

    running: JAX may notice it only when the program runs, and then raises a RuntimeError."""
    try:
        found = jax.block_until_ready(call())
    except (AssertionError, RuntimeError) as error:
        named = isinstance(error, NotImplementedError) or (running and not isinstance(error, AssertionError))
        wrong(not named, f"{what} ends in {type(error).__name__}: {str(error)[:200]}")
    except Exception:
        return
    else:
        wrong(True, f"{what} is not refused: it gives {str(found)[:200]}")
