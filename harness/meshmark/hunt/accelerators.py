# SPDX-License-Identifier: Apache-2.0
"""What a hunt does differently on an accelerator.

A program without sharding is held against a CPU of the same process. Products are exact, as on CPU: an accelerator
rounds the factors of a float32 product (TF32 on GPU, bfloat16 on TPU), so a program takes the default precision only
where its values survive that. A convolution may be computed by an algorithm that rounds, such as Winograd's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import jax

from meshmark.hunt.program import Program, walk_nodes

CONVOLUTIONS = frozenset(
    (
        *("lax.conv_general_dilated", "lax.conv_transpose", "lax.conv_general_dilated_patches"),
        "jnp.convolve",
    )
)
"""The operations whose results may be rounded on an accelerator, even where the factors are not."""

KINDS = frozenset(("convolution", "convolve", "convolution_layouts", "convolution_transpose", "patches"))
"""The kinds of the generator that draw CONVOLUTIONS."""

WHOLE = 2.0**8
"""Integers up to it survive rounding to bfloat16, the narrowest type that products take by default."""

OUT_OF_MEMORY = re.compile(r"out of memory|OUT_OF_MEMORY|failed to allocate", re.I)
"""What JAX says where the memory of the device is full. The programs are small, so others hold it."""

LIGHT = {"xla_gpu_autotune_level": 0}
"""Options of XLA's GPU compiler: it takes the first kernel that fits instead of timing all of them."""


def find_backend() -> str:
    """The name of the backend that programs run on."""
    return jax.default_backend()


def has_accelerator() -> bool:
    """Whether programs run on something else than CPUs."""
    return find_backend() != "cpu"


def list_inexact() -> frozenset[str]:
    """The kinds of the generator whose results may be rounded here, beside those that are rounded everywhere."""
    return KINDS if has_accelerator() else frozenset()


def find_host_device() -> jax.Device | None:
    """A CPU of this process, where programs run on something else; None where there is none."""
    if not has_accelerator():
        return None
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS names others alone
        return None


def add_host_backend(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by which a worker has the CPU backend too, behind those that JAX_PLATFORMS names, and takes memory
    of the device as it needs it: several workers share one."""
    made = dict(environment)
    platforms = made.get("JAX_PLATFORMS", os.environ.get("JAX_PLATFORMS", ""))
    if platforms and "cpu" not in platforms.split(","):
        made["JAX_PLATFORMS"] = f"{platforms},cpu"
    if "XLA_PYTHON_CLIENT_PREALLOCATE" not in os.environ:
        made.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return made


def survives(program: Program, largest: float, rounded: bool) -> bool:
    """Whether a program's products are the same where their factors are rounded to eight bits: `largest`, the largest
    value on the way, says nothing of values in bodies and of cotangents."""
    bodies = any(node.bodies for node in walk_nodes(program.nodes))
    return not rounded and not bodies and not program.transform.kind and largest <= WHOLE


@contextmanager
def exact_products(wanted: bool = True) -> Iterator[None]:
    """Products at the highest precision in this context, where accelerators would round factors."""
    if not wanted or not has_accelerator():
        yield
        return
    with jax.default_matmul_precision("highest"):
        yield


def check_health() -> bool:
    """Whether the device still computes: after an illegal address nothing runs in this process any more."""
    try:
        return float(jax.jit(lambda x: x + 1)(1.0)) == 2.0
    except Exception:
        return False
