# SPDX-License-Identifier: Apache-2.0
"""Decides how many worker processes use the same devices at once, and how they share the memory.

Each process has virtual devices and compilers of its own. A TPU can be used by one process. GPUs can be used by
several, but the collectives of two processes would take turns. A single GPU has no collectives, so several workers are
the default there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from meshmark.devices.facts import Facts

MOST_ON_A_GPU = 8
"""Workers on one GPU by default: each holds about 0.5 GB of its memory before the first case."""

SHARED = 0.75
"""The share of a GPU's memory that all workers take together. JAX's own default for one process."""

FRACTION, PREALLOCATE = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"
"""https://docs.jax.dev/en/latest/gpu_memory_allocation.html"""


def default_workers(facts: Facts, cores: int) -> int:
    """The number of workers if no option names one. Most of the time of a case is compilation, which needs a core and
    not a device."""
    if facts.virtual or facts.topology:
        return cores
    return min(cores, MOST_ON_A_GPU) if facts.backend == "gpu" and facts.num_devices == 1 else 1


def memory_shares(facts: Facts, workers: int, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that give each of several workers its share of a GPU's memory. Without them the first one would
    take three quarters, and the next would not start. {} for one worker, for another backend, and if the user set one
    of the variables."""
    if facts.backend != "gpu" or workers < 2 or FRACTION in variables or PREALLOCATE in variables:
        return {}
    return {FRACTION: f"{SHARED / workers:.3f}"}
