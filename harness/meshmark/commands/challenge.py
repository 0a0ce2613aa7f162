# SPDX-License-Identifier: Apache-2.0
"""`meshmark challenge`: a random seed and cases, for a run whose answers must follow from them."""

from __future__ import annotations

import argparse
import os
import shlex

from meshmark.commands.arguments import devices, path, positive
from meshmark.core.errors import BadInput
from meshmark.core.text import counted
from meshmark.publish import challenge


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument(
        "--output", required=True, type=path, metavar="FILE", help="where the challenge is written"
    )
    add.add_argument("--cases", type=positive, default=20, metavar="N", help="number of cases (default 20)")
    add.add_argument(
        "--num-devices", type=devices, default=8, metavar="N", help="number of devices (default 8)"
    )
    add.add_argument(
        "--processes", type=positive, default=1, metavar="P", help="number of processes (default 1)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the challenge, and print the command that answers it."""
    made = challenge.make(arguments.num_devices, arguments.cases, arguments.processes)
    try:
        with open(arguments.output, "x", encoding="utf-8") as file:
            file.write(challenge.spell_challenge(made))
    except OSError as error:
        raise BadInput(f"can't write {arguments.output}: {os.strerror(error.errno or 0)}") from None
    print(f"{arguments.output}: seed {made['seed']}, {counted(len(made['cases']), 'case')}; the answer:")
    print(shlex.join(challenge.spell_command(made)))
    print(f"then `meshmark submit`, and `meshmark validate --challenge {arguments.output} BUNDLE`")
    return 0
