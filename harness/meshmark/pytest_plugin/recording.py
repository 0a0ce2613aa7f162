# SPDX-License-Identifier: Apache-2.0
"""The record file of a run: opened before anything runs, with the line that describes the run."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from meshmark.devices import installed
from meshmark.operations.versions import TABLE_VERSION
from meshmark.pytest_plugin.options import names_of
from meshmark.pytest_plugin.stashed import EXPECTED, FACTS, FINISHED, PLACES, RANK, SELECTION, WRITER
from meshmark.ranks import handover
from meshmark.records.closing import CLOSES
from meshmark.records.reading import RecordError
from meshmark.records.run_definition import MOST_AROUND
from meshmark.records.writing import Writer


def open_records(config: pytest.Config) -> None:
    """Open the file of --record or --resume. Raises RecordError as meshmark.records.reading does."""
    config.stash[FINISHED] = {}
    record, resume = config.getoption("record"), config.getoption("resume")
    if record and resume:
        raise RecordError(
            "--record and --resume name one file each: --resume appends to the file that it names"
        )
    rank = config.stash.get(RANK, None)
    if rank and not (record or resume) and (directory := handover.launcher_directory()):
        record = directory / "records.jsonl"  # to continue the run if a case ends the ranks
    if config.option.collectonly or not (record or resume):
        return
    facts, selection = config.stash[FACTS], config.stash[SELECTION]
    found = [*installed.altered().items(), *facts.surroundings.items()][:MOST_AROUND]
    facts = config.stash[FACTS] = replace(facts, surroundings=dict(found))
    others = [place.to_json() for place in config.stash[PLACES][1:]]
    options = {"topology": config.getoption("topology"), "export": names_of(config, "export")}
    if facts.topology:
        options["layout"] = names_of(config, "layout")
    run = {
        "facts": facts.to_json() | ({"others": others} if others else {}),
        "selection": selection.described()
        | {k: v for k, v in options.items() if v not in ((), [])}
        | config.stash[EXPECTED].described,
        "seed": config.getoption("seed"),
        "repeat": config.getoption("repeat"),
        "table": TABLE_VERSION,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **CLOSES,
    }
    if rank:
        rank.open_records(record or resume, bool(resume) or handover.goes_on(), run)
    elif record:
        config.stash[WRITER] = Writer.create(record, run)
    else:
        config.stash[WRITER], config.stash[FINISHED] = Writer.resume(resume, run)
