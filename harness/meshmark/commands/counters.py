# SPDX-License-Identifier: Apache-2.0
"""`meshmark counters`: the committed counters of a release, backend and device count, from the records of a run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from typing import Any

from meshmark.commands.arguments import path
from meshmark.core.installation import CHECKOUT
from meshmark.core.text import counted
from meshmark.levels import counters
from meshmark.levels.counters import CountersError
from meshmark.operations import cases
from meshmark.operations.selection import Selection
from meshmark.records import reading, run_line
from meshmark.records.reading import Records


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add.add_argument(
        "records", type=path, metavar="RECORDS", help="what --record wrote: a run of the standard profile"
    )
    add.add_argument(
        "--output",
        type=path,
        metavar="DIR",
        help="where the file goes (default, in a checkout: the suite's own)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write one file per place of the run: its devices, or each topology."""
    if arguments.output is None and CHECKOUT is None:
        raise CountersError(
            "an installed package keeps its counters: name a directory of your own, --output DIR"
        )
    directory = arguments.output or counters.DIRECTORY
    read = reading.read_records(arguments.records)
    if read.problems:
        raise reading.RecordError(f"{read.problems[0]}: counters are made from whole files")
    facts = read.runs[0]["facts"]
    if run_line.processes(facts) > 1:
        raise CountersError(
            f"{arguments.records} is a run over several processes: counters are made from a run of one process, and"
            " runs over several processes are judged by them too"
        )
    for place in (facts, *facts.get("others", [])):
        named = counters.identity(place)
        if not all(re.fullmatch(r"[\w+-]+(\.[\w+-]+)*", name) for name in named):
            raise CountersError(
                f"{arguments.records} does not say its JAX release, backend and devices: {named}"
            )
        file = counters.path_for(*named, directory)
        lines = sorted(_lines(read, place))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(lines), encoding="utf-8")
        print(f"{counted(len(lines), 'case')} in {file}")
    return 0


def _lines(read: Records, facts: Mapping[str, Any]) -> Iterator[str]:
    """One line per case of the standard profile that was judged there and did not fail."""
    place = run_line.place_of(facts)
    current = {case.id for case in cases.cases(Selection(), int(facts["num_devices"]))}
    for judged in read.cases.values():
        own, _, where = judged.case.partition("@")
        for line in judged.lines:
            told = isinstance(line.get("collectives"), list) and line["verdict"] != "fail"
            if where == place and own in current and told:
                yield f"{own}\t{counters.format_collectives(line['collectives'])}\n"
