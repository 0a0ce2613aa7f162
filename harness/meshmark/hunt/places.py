# SPDX-License-Identifier: Apache-2.0
"""The devices for the programs of a hunt: the workers' backend, and the number of devices per program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshmark.core.errors import BadInput
from meshmark.core.text import counted
from meshmark.devices.environment import cpu_devices
from meshmark.hunt import accelerators, generator
from meshmark.hunt.workers import Settings, Slot

MOST = 8
"""The largest number of devices of a program."""


def adapt_to_device_count(number: int | None, settings: Settings) -> Settings:
    """Settings for the devices of this machine: `number` virtual CPU devices (default: 8) or accelerators (default: all
    up to 8). BadInput if it has fewer."""
    environment = accelerators.add_host_backend({**settings.environment, **cpu_devices(number or MOST)})
    settings = replace(settings, environment=environment, devices=number or MOST)
    if environment.get("JAX_PLATFORMS", os.environ.get("JAX_PLATFORMS")) == "cpu":
        return settings
    with Slot(replace(settings, spare=False)) as slot:
        place = slot.place()
    backend, found = str(place["backend"]), int(place["devices"])
    if number and number > found:
        raise BadInput(f"--num-devices {number}: this machine has {counted(found, 'device')} of {backend}")
    # only one process can hold a TPU
    spare = settings.spare and backend != "tpu"
    return replace(settings, backend=backend, devices=min(number or MOST, found), spare=spare)


def require_compilation(around: dict[str, str]) -> dict[str, str]:
    """The unusual settings themselves. BadInput if JAX compiles no program under them: a hunt looks for what the
    compiler does."""
    if "jax_disable_jit" in around:
        raise BadInput(
            f"jax_disable_jit is {around['jax_disable_jit']}: nothing would be compiled; unset JAX_DISABLE_JIT"
        )
    return around


def describe_surroundings(around: Mapping[str, str]) -> list[str]:
    """A line that names the settings and functions that are not those of a fresh process; none without them."""
    named = ", ".join(f"{name} = {value}" for name, value in around.items())
    return [f"not as JAX comes: {named}"] if named else []


def list_meshes(settings: Settings) -> Sequence[Sequence[int]]:
    """The shapes of meshes to draw from on the devices of this machine; () for all of the generator's shapes."""
    return generator.meshes_of(settings.devices) if settings.devices < MOST else ()
