# SPDX-License-Identifier: Apache-2.0
"""`meshmark submit`: makes a bundle from records, which `meshmark validate` accepts."""

from __future__ import annotations

import argparse
from pathlib import Path

from meshmark.commands import validate as validate_command
from meshmark.commands.arguments import path
from meshmark.commands.options import add_expectations, expectations
from meshmark.core.errors import BadInput
from meshmark.core.terminal import note, show
from meshmark.levels.expectations import Expectations
from meshmark.publish import origin, submit
from meshmark.publish.submit import BundleRefused, SubmitError, Wanted
from meshmark.records.product_definition import ABOUT, NoteData

SHOWN = 100
"""The most complaints that are printed."""


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument(
        "records", nargs="+", type=path, metavar="RECORDS", help="what --record wrote, .jsonl or .jsonl.gz"
    )
    add.add_argument(
        "--product", required=True, metavar="NAME", help="its directory: lower case, such as v5e-8"
    )
    add.add_argument("--by", required=True, metavar="WHO", help="who ran it: a person, team or company")
    add.add_argument(
        "--contact", default="", metavar="WHERE", help="an address or link to ask at; it is published"
    )
    add.add_argument("--title", default="", metavar="TEXT", help="what the page calls it (default: the name)")
    add.add_argument(
        "--hardware", default="", metavar="TEXT", help="the hardware, as far as the records do not name it"
    )
    add.add_argument(
        "--command",
        default="",
        metavar="TEXT",
        help="the command that repeats it (default: from the run lines)",
    )
    add.add_argument(
        "--level",
        metavar="LEVEL",
        help="the level that is claimed, or none (default: the highest that is met)",
    )
    add.add_argument(
        "--note", action="append", default=[], metavar="ABOUT=TEXT",
        help=f"a note about {', '.join(ABOUT)}; peak explains a rate above the published one",
    )  # fmt: skip
    add.add_argument(
        "--mark",
        action="store_true",
        help="mark a suite with changes, or a level that is not met, instead of refusing",
    )
    add.add_argument(
        "--log", action="append", default=[], type=path, metavar="FILE",
        help="what a run printed; it is cleaned as records are, packed and hashed; may be given several times",
    )  # fmt: skip
    add.add_argument(
        "--sign", type=path, metavar="KEY", help="sign the manifest with this key of SSH (ssh-keygen -Y sign)"
    )
    add_expectations(add)
    validate_command.add_recomputation(add)
    add.add_argument(
        "--output",
        required=True,
        type=path,
        metavar="DIR",
        help="the directory that gets <jax release>/<product>/, such as results/",
    )
    add.add_argument("--archive", action="store_true", help="also write a .tar.gz of it")


def about(text: str) -> NoteData:
    """about=text of a note; BadInput for anything else."""
    named, equals, said = text.partition("=")
    what = next((one for one in ABOUT if one == named), None)
    if not equals or what is None or not said.strip():
        raise BadInput(f"--note: {text[:60]!a} is not a note: write ABOUT=TEXT, about {', '.join(ABOUT)}")
    return {"about": what, "text": said}


def run(arguments: argparse.Namespace) -> int:
    """Make the bundle and describe it; returns 1 if it is refused."""
    level = "" if arguments.level == "none" else arguments.level
    unusable, notes = [], []
    for text in arguments.note:
        try:
            notes.append(about(text))
        except BadInput as error:
            unusable.append(str(error))
    for files, counters in ((arguments.known_issues, None), ((), arguments.counters)):
        try:
            Expectations(files, counters)
        except BadInput as error:
            unusable.append(str(error))
    expected = None if unusable else expectations(arguments)
    wanted = Wanted(
        name=arguments.product, by=arguments.by, command=arguments.command, title=arguments.title,
        contact=arguments.contact, hardware=arguments.hardware, level=level, notes=notes,
        mark=arguments.mark, logs=arguments.log, key=arguments.sign,
        unusable=unusable,
    )  # fmt: skip
    try:
        made = submit.make(
            arguments.records, wanted, Path(arguments.output), arguments.archive, expected,
            arguments.recompute << 30,
        )  # fmt: skip
    except BundleRefused as error:
        for text in error.complaints[:SHOWN]:
            note(text[:500])
        if len(error.complaints) > SHOWN:
            note(f"{len(error.complaints) - SHOWN} more")
        if isinstance(error, SubmitError):
            return 2
        note("no bundle was made")
        return 1
    for name, size in made.files.items():
        print(f"{made.path / name}: {size} bytes")
    if made.archive:
        print(f"{made.archive}: {made.archive.stat().st_size} bytes")
    for text in (*origin.describe_reviewer(), *made.report.notes[:20]):
        show([f"note: {text}"])
    show([validate_command.summary(made.report)], verdicts=True)
    return 0
