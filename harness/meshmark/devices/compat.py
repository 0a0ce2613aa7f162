# SPDX-License-Identifier: Apache-2.0
"""The differences between the supported JAX releases (0.10 to 0.12), and functions that have no public name in them."""

from __future__ import annotations

import os
import warnings
from typing import Any

with warnings.catch_warnings():
    # pjit is deprecated and still importable in all supported releases; it is tested as a legacy mode.
    warnings.simplefilter("ignore", DeprecationWarning)
    from jax.experimental.pjit import pjit

__all__ = ["coordinator_address", "pjit", "whole_text"]


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


def whole_text(compiled: Any) -> str:
    """The optimized HLO text of a compiled program, with all of its constants.

    `as_text` leaves out constants of more than a few elements (`{...}`), and no supported release has a public way to
    print them. If a later release moves the one used here, the constants stay left out.
    """
    text: str = compiled.as_text()
    if "{...}" not in text:
        return text
    try:
        from jaxlib import _hlo  # type: ignore[attr-defined]

        options = _hlo.HloPrintOptions()
    except ImportError:
        try:
            from jaxlib.xla_client import _xla

            options = _xla.HloPrintOptions()
        except (ImportError, AttributeError):
            return text
    options.print_large_constants = True
    try:
        modules = compiled.runtime_executable().hlo_modules()
    except AttributeError:
        return text
    return "\n".join(module.to_string(options) for module in modules)
