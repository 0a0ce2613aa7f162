# SPDX-License-Identifier: Apache-2.0
"""`meshmark devices`: what JAX sees, which meshes will be used, and which to use for what."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from meshmark.commands.arguments import devices
from meshmark.core import meshes, terminal
from meshmark.core.terminal import note, show, show_json
from meshmark.core.text import text_table, wrap
from meshmark.devices import advice, probe
from meshmark.devices.environment import cpu_devices
from meshmark.operations.weights import PROFILES


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument("--num-devices", type=devices, metavar="N", help="virtual CPU devices (default 8)")
    add.add_argument("--json", action="store_true", help="the same as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Ask a child process for the devices, and print what it found."""
    facts = probe.probe(cpu_devices(arguments.num_devices))
    if arguments.num_devices and not facts.virtual:
        note(f"note: --num-devices is ignored on backend {facts.backend}")
    advised, used = advice.advise(facts), meshes_used(facts.num_devices)
    if arguments.json:
        shown = [vars(a) for a in advised]
        show_json({"facts": facts.to_json(), "meshes": used, "advice": shown, "notes": advice.notes(facts)})
        return 0
    show(facts.describe())
    show(["", "Devices"], text_table(["id", "process", "coordinates"], _rows(facts.devices)))
    show(["", "Meshes that a profile uses"], _meshes(used.items()))
    show(["", "Which mesh for which parallelism (rules of thumb)"])
    for a in advised:
        show([f"  {a.parallelism}: {a.mesh}"], _hanging(f"      {a.why}", 0))
    show(["", "Notes"], (f"  {text}" for text in advice.notes(facts)))
    return 0


def meshes_used(num_devices: int) -> dict[str, list[str]]:
    """By profile, the labels of all meshes that it may use."""
    weights = meshes.weighted(num_devices)
    return {
        profile: [m.label for m, weight in weights.items() if weight <= limit]
        for profile, limit in PROFILES.items()
    }


def _rows(listed: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    for d in listed:
        yield [str(d["id"]), str(d["process"]), ",".join(map(str, d["coords"])) or "-"]


def _meshes(used: Iterable[tuple[str, Sequence[str]]]) -> Iterator[str]:
    for profile, labels in used:
        yield from _hanging(f"  {profile:9} {' '.join(labels)}", 10)


def _hanging(line: str, hang: int) -> list[str]:
    return wrap(line, terminal.width(), hang)
