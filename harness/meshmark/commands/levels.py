# SPDX-License-Identifier: Apache-2.0
"""`meshmark levels`: the statement of record files, the must-pass lists, and a new version of them."""

from __future__ import annotations

import argparse

from meshmark.commands.arguments import devices, path, positive
from meshmark.core.errors import unknown
from meshmark.core.terminal import note, show, show_json
from meshmark.core.text import counted
from meshmark.core.verdicts import BAD
from meshmark.levels import must_pass as levels
from meshmark.levels import statements
from meshmark.levels.must_pass import LevelError
from meshmark.records import reading
from meshmark.records.closing import find_unexplained
from meshmark.records.reading import TORN


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument(
        "records", nargs="*", type=path, metavar="RECORDS", help="what --record wrote: print its statement"
    )
    add.add_argument(
        "--cases", metavar="LEVEL", help="print the must-pass list of this level, one case id per line"
    )
    add.add_argument("--num-devices", type=devices, metavar="N", help="for --cases (default 8)")
    add.add_argument(
        "--processes",
        type=positive,
        metavar="P",
        help=f"for --cases {levels.SEVERAL}: over so many processes (8 devices over 2: 4 each)",
    )
    add.add_argument(
        "--list-version", type=positive, metavar="N", help="a version of the lists (default the newest)"
    )
    add.add_argument(
        "--check", action="store_true", help="say how the case table and the frozen lists differ"
    )
    add.add_argument("--write", action="store_true", help="freeze what the table gives as a new version")
    add.add_argument("--json", action="store_true", help="the statement as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print, check or write. Returns 1 if table and list differ, if the records meet no level, or if their run did not
    end. Returns 2 if a line can't be read, because it may be the line of a failure."""
    chosen = [bool(arguments.records), bool(arguments.cases), arguments.check, arguments.write]
    if sum(chosen) > 1:
        raise LevelError("choose one: RECORDS, --cases LEVEL, --check or --write")
    for option in ("num_devices", "processes"):
        if getattr(arguments, option) and not arguments.cases:
            raise LevelError(f"--{option.replace('_', '-')} is for --cases LEVEL: records say where they ran")
    if arguments.write:
        made = levels.write_must_pass_lists()
        print(f"wrote {made.parent.name}/{made.name}: commit it, and leave the older versions as they are")
        return 0
    if arguments.check:
        found = levels.find_drift(arguments.list_version)
        found += [f"{level}: in no list yet" for level in levels.find_missing_levels(arguments.list_version)]
        show(found)
        print("table and lists differ: `meshmark levels --write`" if found else "table and lists agree")
        return int(bool(found))
    if arguments.cases:
        known = (*levels.names(), levels.SEVERAL)
        if arguments.cases not in known:
            raise LevelError(unknown("level", arguments.cases, known))
        asked = (arguments.cases, arguments.num_devices or 8, arguments.list_version)
        for name in levels.must_pass(*asked, processes=arguments.processes or 1).cases:
            print(name)
        return 0
    if not arguments.records:
        version = levels.versions()[-1] if arguments.list_version is None else arguments.list_version
        for (level, devices, processes), frozen in sorted(levels.read_must_pass_lists(version).items()):
            how = "case by case" if frozen.cases else "by digest"
            where = f"{level} on {levels.spell_place(devices, processes)}"
            show([f"list {version}: {where}: {counted(frozen.count, 'case')}, {how}, {frozen.sha256[:16]}"])
        return 0
    files = [reading.read_records(file) for file in arguments.records]
    problems = [problem for file in files for problem in file.problems]
    for problem in problems:
        note(problem)
    code = 2 if any(not problem.endswith(TORN) for problem in problems) else 0
    said = statements.statement(files, arguments.list_version)
    for name, file in zip(arguments.records, files, strict=True):
        if file.state:
            note(f"{name}: {file.state}")
        if file.cut:
            code = code or 1
        if file.closed and (told := find_unexplained(file.ends[-1], BAD)):
            note(f"{name}: {told}")
    listed = {case for standing in said.standings for case in standing.must.cases}
    worse = {
        n: one.verdict for f in files for n, one in f.cases.items() if one.verdict in BAD and n not in listed
    }
    if worse:
        first = next(iter(worse))
        note(
            f"{len(worse)} cases that no must-pass list asks for have a bad verdict, such as {first} ({worse[first]})"
        )
    if arguments.json:
        show_json(said.to_json())
    else:
        show(said.lines(), verdicts=True)
    return code or int(not said.met)
