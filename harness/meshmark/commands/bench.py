# SPDX-License-Identifier: Apache-2.0
"""`meshmark bench`: times a part of the case table and prints what it found."""

from __future__ import annotations

import argparse
import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from meshmark.commands.arguments import path, positive, seconds
from meshmark.commands.options import (
    add_expectations,
    add_ranks,
    add_timing,
    check_cadences,
    expectations,
    of_ranks,
)
from meshmark.core import interrupts, terminal
from meshmark.core.terminal import note, remark, show
from meshmark.core.verdicts import BAD
from meshmark.devices import probe
from meshmark.devices.environment import cpu_devices
from meshmark.devices.on_disk import OnDisk
from meshmark.operations.choosing import add_options, selected
from meshmark.operations.versions import TABLE_VERSION
from meshmark.ranks import group as ranks
from meshmark.ranks import rank_bench
from meshmark.records import reading
from meshmark.records.closing import CLOSES
from meshmark.records.reading import Records
from meshmark.records.writing import Writer
from meshmark.timing import bench, timing_tables
from meshmark.timing.bench import SECONDS, Progress
from meshmark.timing.measure import COUNTS
from meshmark.timing.progress import shown
from meshmark.timing.timer import Job


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_options(add.add_argument, timed=True, without=("with",))
    add.add_argument(
        "--scaling",
        action="store_true",
        help="instead of a profile, strong and weak scaling over meshes of 1, 2, 4 ... devices",
    )
    add_timing(add, ("plain", "isolated", "stream"))
    add_expectations(add, counters=False)
    add.add_argument(
        "--seconds",
        type=seconds,
        metavar="S",
        help="sampling time of each program and cadence (default "
        + ", ".join(f"{v} {k}" for k, v in SECONDS.items())
        + ")",
    )
    add.add_argument("--precision", type=seconds, metavar="SHARE", help=argparse.SUPPRESS)
    add.add_argument(
        "--processes",
        type=positive,
        default=1,
        metavar="N",
        help="time everything in N processes, one after the other (default 1, a single run; six or more give"
        " intervals). Over ranks: in N launches; run the command again with --resume for each",
    )
    add.add_argument("--no-ceilings", action="store_true", help="leave out copy bandwidth and largest matmul")
    add.add_argument(
        "--record", type=path, metavar="FILE", help="write records (JSON lines) to this new file"
    )
    add.add_argument(
        "--resume", type=path, metavar="FILE", help="continue the interrupted run that wrote this file"
    )
    add_ranks(add)


def run(arguments: argparse.Namespace) -> int:
    """Choose, time, print."""
    check_cadences(arguments.cadence)
    if arguments.precision:
        remark(
            "--precision has no effect: sampling ends by count and time, since an interval looks narrow by chance too;"
            " see --seconds"
        )
    if arguments.record and arguments.resume:
        raise reading.RecordError(
            "--record and --resume name one file each: --resume appends to the file that it names"
        )
    expected = expectations(arguments)
    if rank := ranks.coordinates(os.environ, **of_ranks(arguments)):
        return rank_bench.run_rank_bench(
            arguments, rank, arguments.seconds or SECONDS[arguments.profile], expected
        )
    variables = cpu_devices(arguments.num_devices)
    facts = probe.probe(variables)
    if arguments.num_devices and not facts.virtual:
        remark(f"--num-devices is ignored on backend {facts.backend}")
    selection = selected(vars(arguments), facts.num_devices, timed=True)
    todo, left_out = (bench.scaling if arguments.scaling else bench.select_cells)(selection, facts)
    job = Job(
        cells=[],
        num_devices=facts.num_devices,
        seed=arguments.seed,
        cadences=list(arguments.cadence),
        seconds=arguments.seconds or SECONDS[arguments.profile],
        ceilings=not arguments.no_ceilings,
        deadline=arguments.deadline,
    )
    described = {
        "facts": facts.to_json(),
        "selection": selection.described() | {"scaling": arguments.scaling} | expected.described,
        "seed": arguments.seed,
        "repeat": arguments.processes,
        "table": TABLE_VERSION,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "timing": {k: getattr(job, k) for k in ("cadences", "seconds", "least", "most")} | {"counts": COUNTS},
        **CLOSES,
    }
    before = Records()
    before.add({"kind": "run", **described})
    writer = None
    if arguments.record:
        writer = Writer.create(arguments.record, described)
    elif arguments.resume:
        writer, before = Writer.going_on(arguments.resume, described)
        job = replace(job, ceilings=job.ceilings and not before.ceilings)
    if writer:
        writer.choose(cell.case(mode).id for cell, modes in todo for mode in modes)
    kept = before

    def write(lines: list[dict[str, Any]]) -> None:
        if writer:
            writer.write(lines)
        for line in lines:
            kept.add(line)

    show(facts.describe(), expected.issue_lines(), (f"left out: {why}" for why in left_out))
    interrupts.warn()
    for line in bench.load():
        remark(line)
    interrupted, code = None, 0
    on_disk = OnDisk.read(facts)
    with shown(len(todo) * arguments.processes) as tell:
        try:
            progress = bench.time_cells(
                todo,
                facts,
                job,
                arguments.processes,
                write,
                bench.done_before(before),
                tell,
                expected,
                variables,
            )
        except KeyboardInterrupt as error:
            interrupted, code = "interrupted", interrupts.code(error)
            progress = Progress(0)
        except OSError as error:
            interrupted, code = f"can't go on: {error.strerror or error}", 2
            progress = Progress(0)
    changes = list(on_disk.list_changes())
    code = code or int(any(r["verdict"] in BAD for r in kept.timings) or bool(changes))
    if writer:
        try:
            writer.end(code)
        except OSError as error:
            note(f"can't close {writer.path}: {error.strerror or error}")
            code = code or 2
        writer.close()
    show(timing_tables.table_lines(kept, terminal.width()))
    for line in (*bench.noise(progress), *changes):
        remark(line)
    file = arguments.record or arguments.resume
    if progress.raw and file:
        with suppress(OSError), open(f"{file}.stderr", "a", encoding="utf-8", errors="replace") as beside:
            beside.write("\n".join(progress.raw) + "\n")
    if file:
        print(f"records: {file}")
    if interrupted:
        how = f": go on with --resume {file}" if file else ""
        remark(f"{interrupted}, and what was timed is {'kept' if file else 'above'}{how}")
    return code
