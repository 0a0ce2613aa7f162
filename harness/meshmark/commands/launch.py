# SPDX-License-Identifier: Apache-2.0
"""`meshmark launch`: several processes of one command on this machine."""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from meshmark.commands.arguments import positive, seconds
from meshmark.core import interrupts, scratch
from meshmark.ranks import handover
from meshmark.ranks.launch import GRACE, Launcher, LaunchError


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument(
        "-n", "--num-processes", type=positive, required=True, metavar="N", help="how many processes"
    )
    add.add_argument(
        "--devices-per-process",
        type=positive,
        default=4,
        metavar="D",
        help="virtual CPU devices of each (default 4)",
    )
    add.add_argument(
        "--grace",
        type=seconds,
        default=GRACE,
        metavar="S",
        help=f"seconds that the others have to end by themselves when one has ended (default {GRACE:.0f})",
    )
    add.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what each process runs")


def run(arguments: argparse.Namespace) -> int:
    """Start the processes, wait for them, and end them."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise LaunchError("nothing to launch: meshmark launch -n 2 -- meshmark test --profile smoke")
    if handover.launcher_directory():
        raise LaunchError("this is a rank of a launch already: name the command itself, and start it once")
    launcher = Launcher(
        command,
        arguments.num_processes,
        arguments.devices_per_process,
        arguments.grace,
        started=interrupts.warn,
    )

    def pass_on(number: int, frame: FrameType | None) -> None:
        launcher.end(number)

    heard = [signal.SIGTERM] if interrupts.describe_ignored() else [signal.SIGTERM, signal.SIGINT]
    before = {number: signal.signal(number, pass_on) for number in heard}
    try:
        return launcher.run(sys.stdout.buffer)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        scratch.remove(launcher.directory)
