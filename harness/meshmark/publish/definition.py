# SPDX-License-Identifier: Apache-2.0
"""The definition of the files beside the records: a product's manifest, and a challenge."""

# No `from __future__ import annotations` here: TypedDict finds its optional fields in the annotations themselves.

from typing import Annotated, Literal, TypedDict

from meshmark.levels.statements import StatementData
from meshmark.records.fields import Field


class FileEntry(TypedDict):
    """What a manifest says of one file."""

    sha256: Annotated[str, Field("The hash of the packed file.")]
    bytes: Annotated[int, Field("Its size.", "B", least=0)]


class Totals(TypedDict):
    """What the records of a product amount to."""

    lines: int
    runs: int
    cases: int
    verdicts: Annotated[dict[str, int], Field("Cases by verdict; of several files the worst one counts.")]
    timings: int
    samples: Annotated[int, Field("Samples of all timings.")]
    ceilings: int
    comparisons: int


class Manifest(TypedDict):
    """manifest.json: the files of a product with their hashes, and what its records amount to."""

    schema: Literal[1]
    made_by: Annotated[str, Field("The suite that made it, such as meshmark 0.1.0.")]
    files: dict[str, FileEntry]
    totals: Totals
    statement: StatementData


class Challenge(TypedDict):
    """A seed and cases that were drawn before the run that answers them."""

    schema: Literal[1]
    kind: Literal["challenge"]
    seed: Annotated[int, Field("The seed of the inputs.", least=0)]
    devices: Annotated[int, Field("The number of devices of the run.", least=1)]
    processes: Annotated[int, Field("The number of its processes.", least=1)]
    issued: Annotated[str, Field("The time at which it was drawn, UTC.", most=40)]
    cases: list[Annotated[str, Field(most=400)]]
