# SPDX-License-Identifier: Apache-2.0
"""What several small rules share: numbers to compute with, and ways to call a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from meshmark.operations.programs.cuts.running import mixed

WAYS: dict[str, Callable[[Any], Any]] = {"without jit": lambda f: f, "in jit": jax.jit}
"""The ways to call a function that must give the same."""

JIT: dict[str, Callable[[Any], Any]] = {"in jit": jax.jit}
"""The way to call what JAX does not take outside of a program."""


def numbers(*shape: int, step: int = 5) -> np.ndarray:
    """Small whole numbers of both signs, as float32."""
    return (mixed(shape, 23, step) - 9).astype(np.float32)
