# SPDX-License-Identifier: Apache-2.0
"""Environment variables: those of the child processes, and those of this process before JAX starts.

Commands make the environment of a child as a value (`of_child`) and leave their own alone. A process that starts JAX
itself, or whose workers inherit from it, sets variables with `set_here`. No other code of the package writes
`os.environ`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from meshmark.core.installation import SOURCE, make_paths_absolute

CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
X64 = "JAX_ENABLE_X64"

DEFAULT_CPU_DEVICES = 8
CPU_DEVICES_A_PROCESS = 4
"""The default number of virtual CPU devices per process, if there are several processes."""


def cpu_devices(number: int | None, default: int = DEFAULT_CPU_DEVICES) -> dict[str, str]:
    """The variable that sets `number` virtual CPU devices for JAX. Without a number it keeps the value of the
    environment, or takes the default."""
    if number is not None:
        return {CPU_DEVICES: str(number)}
    return {CPU_DEVICES: os.environ.get(CPU_DEVICES, str(default))}


def of_child(variables: Mapping[str, str] | None = None, source: Path = SOURCE) -> dict[str, str]:
    """The environment of a child process: that of this process with `variables` set, and `source` first on the path
    from which Python imports. The child may start in another directory: paths are absolute."""
    made = make_paths_absolute(os.environ | dict(variables or {}))
    return made | {"PYTHONPATH": os.pathsep.join(filter(None, [str(source), made.get("PYTHONPATH", "")]))}


def set_here(variables: Mapping[str, str]) -> None:
    """Set these variables in this process, for JAX and for the processes that it starts.

    Call it before JAX starts a backend. If JAX was imported before, `configure_jax` passes the variables on.
    """
    os.environ.update(variables)


def configure_jax() -> None:
    """Pass JAX the variables of this process that it reads when it is imported; RuntimeError if JAX has already
    started a backend with another number of devices."""
    import jax

    if CPU_DEVICES in os.environ:
        jax.config.update("jax_num_cpu_devices", int(os.environ[CPU_DEVICES]))
    jax.config.update("jax_enable_x64", os.environ.get(X64, "0").lower() in ("1", "true"))
