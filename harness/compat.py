"""What differs between the supported JAX releases (0.10 to 0.12), in one place."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # pjit is deprecated and still importable in all supported releases; it is tested as a legacy spelling.
    warnings.simplefilter("ignore", DeprecationWarning)
    from jax.experimental.pjit import pjit

__all__ = ["pjit"]
