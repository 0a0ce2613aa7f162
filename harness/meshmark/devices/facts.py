# SPDX-License-Identifier: Apache-2.0
"""The facts of the environment in which programs run: versions, devices, flags, host, suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from meshmark.records.run_definition import RunFacts
from meshmark.records.run_line import departures, place_of


@dataclass(frozen=True)
class Facts:
    """The environment in which programs run, read where they run."""

    versions: dict[str, str]
    backend: str
    device_kind: str
    num_devices: int
    num_processes: int
    devices: list[dict[str, Any]]
    flags: dict[str, str]
    host: dict[str, Any]
    suite: dict[str, Any] = field(default_factory=dict)
    topology: str = ""
    """The compile-only topology; "" for real devices."""
    layout: str = "plain"
    """The order in which a mesh takes the devices of a topology."""
    compiler: dict[str, str] = field(default_factory=dict)
    """The versions of the distributions that compile for a topology, by name."""
    group: dict[str, Any] = field(default_factory=dict)
    """For several processes: the devices of each (`devices`), where the coordinates come from (`detected`: from JAX),
    what carries CPU collectives (`transport`)."""
    no_layout: dict[str, str] = field(default_factory=dict)
    """Why a mesh (by label) is impossible in this layout of the topology."""

    capabilities: dict[str, str] = field(default_factory=dict)
    """What probes found of optional capabilities: "has", "lacks: REASON", "crash: HOW" or "hang: HOW", by name."""

    surroundings: dict[str, str] = field(default_factory=dict)
    """Settings of JAX that are not the default ones, and functions of NumPy and JAX that somebody replaced, by name."""

    @property
    def place(self) -> str:
        """The topology and its layout as case ids name them: v5e:2x4, v5e:2x4-physical; "" for real devices."""
        return place_of({"topology": self.topology, "layout": self.layout})

    @property
    def virtual(self) -> bool:
        """Whether the devices are CPU devices, which share the cores of this machine."""
        return self.backend == "cpu"

    @property
    def jax(self) -> str:
        """Version of JAX."""
        return self.versions["jax"]

    def describe(self) -> list[str]:
        """The lines that describe what is under test."""
        if self.topology:
            compiled = ", ".join(f"{k} {v}" for k, v in self.compiler.items())
            order = "" if self.layout == "plain" else f", {self.layout} layout"
            return [
                f"topology {self.topology}: {self.num_devices} {self.device_kind} devices{order}, compile-only:"
                f" nothing runs; jax {self.versions['jax']}, {compiled}",
                *self._departures(),
            ]
        virtual = " (virtual: they share the cores)" if self.virtual else ""
        lines = [
            f"jax {self.versions['jax']}, jaxlib {self.versions['jaxlib']}, numpy {self.versions['numpy']},"
            f" python {self.versions['python']}",
            f"{self.num_devices} {self.device_kind} devices, backend {self.backend}{virtual},"
            f" {self.num_processes} process{'es' * (self.num_processes > 1)}",
        ]
        if self.flags:
            lines.append("flags: " + " ".join(f"{k}={v}" for k, v in sorted(self.flags.items())))
        return [*lines, *self._departures()]

    def _departures(self) -> list[str]:
        """Lines about what differs from JAX's defaults."""
        found = departures({"surroundings": self.surroundings, "flags": self.flags})
        lines = [f"not as JAX comes: {', '.join(found)}"] if found else []
        if self.flags.get("JAX_COMPILATION_CACHE_DIR"):
            lines.append("the cache of JAX_COMPILATION_CACHE_DIR is not used: this run compiles each program")
        return lines

    def to_json(self) -> RunFacts:
        """The facts in JSON types."""
        return cast(RunFacts, asdict(self) | {"virtual": self.virtual})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Facts:
        """The inverse of to_json."""
        return cls(**{k: v for k, v in data.items() if k != "virtual"})
