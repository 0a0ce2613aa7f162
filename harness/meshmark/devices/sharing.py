# SPDX-License-Identifier: Apache-2.0
"""How many worker processes may have the same devices at once, and what each one gets of them.

Each process has virtual devices and compilers of its own. A TPU takes one process. GPUs take several, but the
collectives of two processes would take turns on them. One GPU has no collectives, so several workers are the default
there.
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
    """The number of workers if no option names one. Most of a case is compiling, which takes a core and no device."""
    if facts.virtual or facts.topology:
        return cores
    return min(cores, MOST_ON_A_GPU) if facts.backend == "gpu" and facts.num_devices == 1 else 1


def memory_shares(facts: Facts, workers: int, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables by which each of several workers takes its share of a GPU's memory; {} for one worker, on another
    backend, and where the user set either of them. The first of several would take three quarters otherwise, and the
    next would not start."""
    if facts.backend != "gpu" or workers < 2 or FRACTION in variables or PREALLOCATE in variables:
        return {}
    return {FRACTION: f"{SHARED / workers:.3f}"}
