# SPDX-License-Identifier: Apache-2.0
"""The differences between the supported JAX releases (0.10 to 0.12), and what has no public name in them."""

from __future__ import annotations

import os
import warnings

with warnings.catch_warnings():
    # pjit is deprecated and still importable in all supported releases; it is tested as a legacy mode.
    warnings.simplefilter("ignore", DeprecationWarning)
    from jax.experimental.pjit import pjit

__all__ = ["coordinator_address", "pjit"]


def coordinator_address() -> str:
    """HOST:PORT of the coordinator that `jax.distributed.initialize` found by itself; "" if it is unknown.

    No supported release has a public name for it. If a later release moves it, `--control` is required instead.
    """
    if given := os.environ.get("JAX_COORDINATOR_ADDRESS"):
        return given
    try:
        from jax._src.distributed import global_state
    except ImportError:
        return ""
    return str(getattr(global_state, "coordinator_address", None) or "")
