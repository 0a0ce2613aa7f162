# SPDX-License-Identifier: Apache-2.0
"""Estimates the memory that timing a cell needs, before anything is allocated."""

from __future__ import annotations

import math
import os
from typing import Any

from meshmark.devices import chips
from meshmark.operations.base import Argument, Result, nbytes
from meshmark.operations.cases import Cell

COPIES = 4
"""Copies of inputs and outputs on the devices: two rotated sets for meshes of Auto and of Explicit axes, and the
same number of outputs in flight."""

HOST_BYTES = 24
"""Bytes per element of the global arrays on the host: values, their widest dtype, the reference."""


def device_bytes(cell: Cell) -> int:
    """The bytes that timing a cell needs on one device."""
    return COPIES * sum(nbytes(item, cell.request.mesh) for item in _arrays(cell))


def host_bytes(cell: Cell) -> int:
    """The bytes that a cell needs on the host, for inputs and reference."""
    return HOST_BYTES * sum(math.prod(item.shape) for item in _arrays(cell))


def _arrays(cell: Cell) -> list[Argument | Result]:
    return [*cell.plan.arguments, *cell.plan.results]


def available_bytes() -> int:
    """The available memory of this machine in bytes; on systems other than Linux the physical memory."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 2**63


def refusal(cell: Cell, facts: Any) -> str:
    """Why a cell does not fit in memory, with the figures; "" if it fits."""
    device, host = device_bytes(cell), host_bytes(cell)
    if facts.virtual:  # virtual devices use the host's memory
        device, host = 0, host + device * cell.request.mesh.size
    chip = chips.chip_of(facts.device_kind)
    if chip and device > chip.memory_bytes / chip.devices_per_chip:
        return (
            f"{cell.id} needs about {gigabytes(device)} per device,"
            f" and {chip.name} has {gigabytes(chip.memory_bytes)}"
        )
    here = available_bytes()
    if host > here:
        return f"{cell.id} needs about {gigabytes(host)} of memory here, and {gigabytes(here)} are available"
    return ""


def gigabytes(number: float) -> str:
    """A number of bytes as text, in decimal GB."""
    return f"{number / 1e9:.3g} GB"
