# SPDX-License-Identifier: Apache-2.0
"""The definition of product.yaml: who ran what, and the command that repeats it.

The reader (meshmark.records.results) makes its checks from it. Each text is one line that somebody can see.
"""

# No `from __future__ import annotations` here: TypedDict finds its optional fields in the annotations themselves.

from typing import Annotated, Literal, NotRequired, TypedDict, get_args

from meshmark.records.fields import Field

About = Literal["peak", "timing", "level", "other"]
ABOUT: tuple[About, ...] = get_args(About)
"""What a note may be about; `peak` explains a rate above the published one."""

NAME = "[a-z0-9][a-z0-9._-]{0,63}"
"""Names of products: they become directories and links."""

MOST_LISTED = 20
"""The most notes, and the most marks."""

NoteText = Annotated[str, Field(most=1000)]
Mark = Annotated[str, Field(most=500)]


class NoteData(TypedDict):
    """A note explains something. Every page shows it."""

    about: About
    text: NoteText


class ProductData(TypedDict):
    """The contents of product.yaml. The file may leave out `notes` and `marks`. Then the reader gives empty lists."""

    name: Annotated[str, Field("The name of its directory.", most=64, pattern=f"^{NAME}$")]
    by: Annotated[str, Field("Who ran it: a person, team or company.", most=200)]
    command: Annotated[str, Field("The command that repeats it.", most=2000)]
    title: NotRequired[Annotated[str, Field("What pages call it, if not by its name.", most=200)]]
    contact: NotRequired[Annotated[str, Field("An address or link to ask at.", most=200)]]
    hardware: NotRequired[
        Annotated[str, Field("The hardware, as far as the records do not name it.", most=1000)]
    ]
    level: NotRequired[Annotated[str, Field("The level that is claimed.", most=8, pattern="^L[0-9]$")]]
    notes: Annotated[list[NoteData], Field("Explanations.", most=MOST_LISTED)]
    marks: Annotated[list[Mark], Field("Admitted defects, as `submit --mark` writes them.", most=MOST_LISTED)]
