# SPDX-License-Identifier: Apache-2.0
"""`meshmark explain`: a compiled program step by step."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from meshmark.commands.arguments import natural
from meshmark.core.errors import BadInput
from meshmark.core.terminal import note, show
from meshmark.devices import environment, topologies
from meshmark.operations import cases

SECONDS = 600


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument("case", metavar="CASE", help="a case id, as `meshmark list --cases` prints it")
    add.add_argument(
        "--topology", default="", metavar="NAME", help="compile for it (default: for virtual CPU devices)"
    )
    add.add_argument(
        "--devices", default="0,1", metavar="N,N", help="positions in the mesh to show (default 0,1)"
    )
    add.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the inputs (default 0)")
    add.add_argument("--text", type=Path, metavar="FILE", help="explain this HLO text of the case instead")


def run(arguments: argparse.Namespace) -> int:
    """Print the steps of a case. A child process compiles and interprets it."""
    if not re.fullmatch(r"\d+(,\d+)*", arguments.devices):
        raise BadInput(f"--devices {arguments.devices!a} is not a list of positions: write 0,5")
    if arguments.text and not arguments.text.is_file():
        raise BadInput(f"--text {arguments.text}: the file does not exist")
    words = [arguments.case, "--devices", arguments.devices, "--seed", str(arguments.seed)]
    variables = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(environment.DEFAULT_CPU_DEVICES)}
    number = environment.DEFAULT_CPU_DEVICES
    if arguments.topology:
        topology = topologies.parse_topology(arguments.topology)
        topologies.compiler(topology)
        words += ["--topology", topology.name]
        number, variables = topology.num_devices, topologies.ENVIRONMENT
    case = cases.find(arguments.case, number)
    if case.mode == "host":
        raise BadInput(
            f"{case.id} is not one compiled program: mode host runs several, or none; `meshmark repro` prints them"
        )
    if beyond := [n for n in arguments.devices.split(",") if len(n) > 9 or int(n) >= case.mesh.size]:
        size = case.mesh.size
        raise BadInput(f"--devices {beyond[0][:20]}: mesh {case.mesh.label} has positions 0 to {size - 1}")
    if arguments.text:
        words += ["--text", str(arguments.text)]
    try:
        child = subprocess.run(
            [sys.executable, "-m", "meshmark.judge.explaining", *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            env=environment.of_child(variables),
        )
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"{arguments.case} took more than {SECONDS} s to explain: take a smaller one"
        ) from None
    show(child.stdout.splitlines())
    if child.returncode:
        last = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        note(last.removeprefix("meshmark: "))
    return child.returncode
