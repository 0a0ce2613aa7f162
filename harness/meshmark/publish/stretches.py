# SPDX-License-Identifier: Apache-2.0
"""Finds stretches of samples that come twice in a product: in one line, or in two.

A program that was measured does not take the same times again, one after the other. So a stretch that comes twice was
copied: to make a line longer, or to give a program the times of another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from meshmark.publish.review import AS_WRITTEN, Entry

LENGTH = 6
"""So many samples in a row, all different, are the same twice only in a copy: no published product has such a stretch,
in 600,000 samples."""

Place = tuple[str, int]
"""A file and a line."""


def find_copies(files: Mapping[str, Sequence[Entry]]) -> Iterator[tuple[str, int, str]]:
    """(file, line, problem) of timings in which a stretch of samples comes again."""
    seen: dict[int, Place] = {}
    for name, lines in files.items():
        for number, record in lines:
            if record["kind"] != "timing":
                continue
            taken = record.get("samples_by_rank") or [record["samples_s"]]
            for samples in (*taken, record.get("control_s", ())):
                if copied := _first_copied(samples, seen, (name, number)):
                    at, (there, line) = copied
                    other = "the same line" if (there, line) == (name, number) else f"line {line} of {there}"
                    text = f"its samples {at} to {at + LENGTH - 1} are those of {other}"
                    yield name, number, f"{record['case']}: {text}: {AS_WRITTEN}"
                    break


def _first_copied(samples: Sequence[float], seen: dict[int, Place], place: Place) -> tuple[int, Place] | None:
    """(the index, the earlier place) of the first stretch that was seen. Adds the other stretches to `seen`, as hashes,
    because the stretches themselves would take much memory."""
    found: tuple[int, Place] | None = None
    for at in range(len(samples) - LENGTH + 1):
        stretch = tuple(samples[at : at + LENGTH])
        if len(set(stretch)) < LENGTH:
            continue
        key = hash(stretch)
        if key in seen:
            found = found or (at, seen[key])
        else:
            seen[key] = place
    return found
