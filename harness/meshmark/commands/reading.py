# SPDX-License-Identifier: Apache-2.0
"""Reading the record files that a command names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from meshmark.core.terminal import note
from meshmark.core.verdicts import BAD
from meshmark.records import reading
from meshmark.records.closing import find_unexplained
from meshmark.records.reading import RecordError, Records


def read_all(paths: Iterable[Path]) -> tuple[list[Records], int]:
    """The record files that can be read, and an exit code: 2 after any problem (each is printed in one line),
    otherwise 0."""
    files, code = [], 0
    for file in paths:
        try:
            found = reading.read_records(file)
        except RecordError as error:
            note(str(error))
            code = 2
            continue
        cut = [case for case, judged in found.cases.items() if not judged.finished]
        for case in cut:
            del found.cases[case]
        if cut:
            note(f"{file}: {len(cut)} cases without their last line are left out, such as {cut[0]}")
        for problem in found.problems:
            note(problem)
        if found.cut:
            note(f"{file}: {found.cut}")
        if found.closed and (told := find_unexplained(found.ends[-1], BAD)):
            note(f"{file}: {told}")
        if cut or found.problems:
            code = 2
        files.append(found)
    return files, code
