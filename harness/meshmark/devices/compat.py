"""What differs between the supported JAX releases (0.10 to 0.12), or has no public name in them, in one place."""

from __future__ import annotations

import os
import warnings

with warnings.catch_warnings():
    # pjit is deprecated and still importable in all supported releases; it is tested as a legacy spelling.
    warnings.simplefilter("ignore", DeprecationWarning)
    from jax.experimental.pjit import pjit

__all__ = ["coordinator_address", "pjit"]


def coordinator_address() -> str:
    """HOST:PORT of the coordinator that `jax.distributed.initialize` found by itself; "" where it can't be known.

    No supported release has a public name for it; where a later one moves it, `--control` is asked for instead.
    """
    if given := os.environ.get("JAX_COORDINATOR_ADDRESS"):
        return given
    try:
        from jax._src.distributed import global_state
    except ImportError:
        return ""
    return str(getattr(global_state, "coordinator_address", None) or "")
