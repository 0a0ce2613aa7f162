# SPDX-License-Identifier: Apache-2.0
"""The parts of a hunt that differ on an accelerator.

The unsharded program is compared with its result on a CPU of the same process. Products must be exact, as on CPU. By
default an accelerator rounds the factors of a float32 product (TF32 on GPU, bfloat16 on TPU). So a program uses the
default precision only if this rounding does not change its values. Convolutions may be computed by an algorithm that
rounds, such as Winograd's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import jax

from meshmark.program_data.program import Program, walk_nodes

CONVOLUTIONS = frozenset(
    (
        *("lax.conv_general_dilated", "lax.conv_transpose", "lax.conv_general_dilated_patches", "lax.conv"),
        *("lax.conv_with_general_padding", "lax.conv_general_dilated_local"),
        *("jnp.convolve", "jnp.correlate", "jnp.polymul"),
    )
)
"""The operations whose results may be rounded on an accelerator, even if their factors are not."""

KINDS = frozenset(
    (
        *("convolution", "convolve", "convolution_layouts", "convolution_transpose", "patches", "correlated"),
        *("convolutions_by_name", "polynomials"),
    )
)
"""The generator's kinds that draw CONVOLUTIONS."""

WHOLE = 2.0**8
"""Integers up to this size are exact in bfloat16, the narrowest type to which products round factors by default."""

OUT_OF_MEMORY = re.compile(r"out of memory|OUT_OF_MEMORY|failed to allocate", re.I)
"""JAX's messages for a full device memory. The programs are small, so other processes hold the memory."""

LIGHT = {"xla_gpu_autotune_level": 0}
"""Options of XLA's GPU compiler with which it takes the first kernel that fits instead of timing all kernels."""


def find_backend() -> str:
    """The name of the backend that runs the programs, such as "cpu" or "gpu"."""
    return jax.default_backend()


def has_accelerator() -> bool:
    """Whether the programs run on devices other than CPUs."""
    return find_backend() != "cpu"


def list_inexact() -> frozenset[str]:
    """The generator's kinds whose results may be rounded on this backend, beside those that round everywhere."""
    return KINDS if has_accelerator() else frozenset()


def find_host_device() -> jax.Device | None:
    """A CPU device of this process; None if the programs run on CPUs, or if the process has no CPU backend."""
    if not has_accelerator():
        return None
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS does not name "cpu"
        return None


def add_host_backend(environment: Mapping[str, str]) -> dict[str, str]:
    """A copy of these variables that adds the CPU backend behind the platforms that JAX_PLATFORMS names. It also turns
    preallocation of device memory off, because several workers share one device."""
    made = dict(environment)
    platforms = made.get("JAX_PLATFORMS", os.environ.get("JAX_PLATFORMS", ""))
    if platforms and "cpu" not in platforms.split(","):
        made["JAX_PLATFORMS"] = f"{platforms},cpu"
    if "XLA_PYTHON_CLIENT_PREALLOCATE" not in os.environ:
        made.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return made


def survives(program: Program, largest: float, rounded: bool) -> bool:
    """Whether a program's products stay the same if their factors are rounded to eight bits.

    largest: the largest absolute value in the program. It does not cover values in bodies and cotangents, so a program
    with a body or a transform never survives. rounded: whether an operation of the program rounds."""
    bodies = any(node.bodies for node in walk_nodes(program.nodes))
    return not rounded and not bodies and not program.transform.kind and largest <= WHOLE


@contextmanager
def exact_products(wanted: bool = True) -> Iterator[None]:
    """A context in which products have the highest precision on accelerators, which otherwise round their factors."""
    if not wanted or not has_accelerator():
        yield
        return
    with jax.default_matmul_precision("highest"):
        yield


def check_health() -> bool:
    """Whether the device still computes. After an illegal address nothing runs in this process any more."""
    try:
        return float(jax.jit(lambda x: x + 1)(1.0)) == 2.0
    except Exception:
        return False
