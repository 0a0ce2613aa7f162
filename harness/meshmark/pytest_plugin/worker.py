# SPDX-License-Identifier: Apache-2.0
"""A worker of pytest-xdist: contained, with a clock that its controller reads, and with safe text in all that it
sends."""

from __future__ import annotations

from typing import Any

import pytest

from meshmark.core import saying
from meshmark.devices import containment, offspring
from meshmark.devices.starvation import Starvation
from meshmark.devices.watchdog import Watchdog
from meshmark.pytest_plugin.stashed import JUDGED, WATCHDOG, WORKERS

_clock: containment.Clock | None = None
"""The clock of this process if it is a worker."""


def begin_worker(config: Any, controller: int) -> None:
    """Make this process a worker that ends with its controller."""
    global _clock
    directory, name = config.stash[WORKERS], config.workerinput["workerid"]
    containment.belong_to(controller)
    offspring.adopt()
    stream = containment.own_stderr(directory, name)
    _clock = containment.Clock(directory / f"{name}.until")
    config.stash[WATCHDOG] = Watchdog(config.getoption("deadline"), stream, _clock, Starvation())
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent"):
            plugin.sendevent = _safely(plugin.sendevent)


def silent(seconds: float) -> None:
    """Tell the controller how long this worker may be silent; does nothing in another process."""
    if _clock:
        _clock.within(seconds)


def end_worker(config: pytest.Config) -> None:
    """Tell the controller the memory size of this process, and that it ends now."""
    config.workeroutput["judged"] = config.stash.get(JUDGED, {})  # type: ignore[attr-defined]
    config.workeroutput["resident"] = containment.largest_resident_bytes()  # type: ignore[attr-defined]
    silent(containment.BETWEEN)


def _safely(send: Any) -> Any:
    """pytest-xdist's function that sends reports, captured logs, warnings and errors to the controller, made safe: a
    text with a lone surrogate would otherwise end the worker."""

    def sendevent(name: str, **content: object) -> None:
        send(name, **saying.encodable(content))

    return sendevent
