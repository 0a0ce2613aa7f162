# SPDX-License-Identifier: Apache-2.0
"""Waits for the callbacks of programs, and leaves no error of one behind.

JAX keeps a token per device for callbacks that nobody waits for. `jax.effects_barrier` raises the error that a token
holds, and keeps the token: each later call raises the error again, whatever ran in between. A later callback on the
device replaces the token.
"""

from __future__ import annotations

from contextlib import suppress

import jax


def wait_for_callbacks() -> None:
    """Wait for all callbacks. Raises the error of one that failed, once: the next call does not raise it again."""
    try:
        jax.effects_barrier()
    except Exception:
        _replace_tokens()
        raise


def drop_errors_of_callbacks() -> None:
    """Wait for all callbacks, of which some may have failed."""
    with suppress(Exception):
        wait_for_callbacks()


def _replace_tokens() -> None:
    """Run a callback that does nothing on each device of this process."""
    calls = jax.jit(lambda x: jax.debug.callback(lambda _: None, x))
    for device in jax.local_devices():
        calls(jax.device_put(0, device))
    with suppress(Exception):
        jax.effects_barrier()
