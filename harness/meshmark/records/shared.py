# SPDX-License-Identifier: Apache-2.0
"""Definitions that several kinds of record lines share: the version, types of values, collectives, counters."""

# No `from __future__ import annotations` here: TypedDict finds its optional fields in the annotations themselves.

from typing import Annotated, Literal, NotRequired, TypedDict

from meshmark.core.verdicts import CHECKS, VERDICTS
from meshmark.records.fields import Field

SCHEMA = 1
"""The version of the definition of records."""

MOST_DEVICES = 1 << 20
MODES = ("auto", "explicit", "manual", "manual-novma", "pmap", "pjit", "host")
CADENCES = ("plain", "isolated", "stream", "device")

Verdict = Annotated[
    str,
    Field(
        "The verdict: `crash` (the process died), `hang` (past its deadline), `error` (an exception), `fail` (a wrong"
        " result), `known` (a listed known issue), `unsupported` (an optional capability is missing), `not_run`"
        " (compile-only), `pass`. The list goes from worst to best.",
        choices=VERDICTS,
        name="verdict",
    ),
]
Check = Annotated[str, Field("What the line judges.", choices=CHECKS, name="check")]
Number = Annotated[
    float | Literal["inf", "-inf", "nan"],
    Field("A number. JSON lacks infinities and NaN, so these are texts.", name="number"),
]
Name = Annotated[str, Field(most=60)]
Reason = Annotated[str, Field("Why the verdict is not `pass`; empty for `pass`.", most=10_000)]
RunId = Annotated[
    str,
    Field(
        "The id of the run: 12 hexadecimal digits. Lines name their run line by it.", pattern="^[0-9a-f]{12}$"
    ),
]
CASE_ID = (
    r"^[a-z0-9_]+/[^/\s@]+/[a-z-]+/[0-9]+(x[0-9]+){0,2}(-shuffled|-interleaved)?/[a-z0-9_]+/[A-Za-z0-9.]+"
    r"(@[A-Za-z0-9:._-]+)?$"
)
CaseId = Annotated[
    str,
    Field(
        "The case: operation/variant/mode/mesh/dtype/size. A compile-only run adds @topology.",
        most=400,
        pattern=CASE_ID,
    ),
]
DeviceCount = Annotated[int, Field("Number of devices.", least=1, most=MOST_DEVICES)]
Rank = Annotated[int, Field(least=0, most=MOST_DEVICES)]
Bytes = Annotated[int | None, Field(unit="B")]
Seconds = Annotated[float, Field(unit="s", least=0)]
Sample = Annotated[float, Field(unit="s", above=0)]
Samples = Annotated[
    list[Sample],
    Field(
        "The time of every call, in the order in which they were taken. No sample is removed.",
        "s",
        most=1_000_000,
    ),
]
Closing = Annotated[
    Seconds,
    Field(
        "The time that the case (timings: the cell) took. It stands on the last line of the case and closes it."
    ),
]
Stack = Annotated[list[Annotated[str, Field(most=1000)]], Field(most=50)]


class RecordedCollective(TypedDict):
    """One collective of a compiled program, as one device sees it."""

    kind: Annotated[Name, Field("The kind in HLO, such as all-reduce.")]
    bytes: Annotated[int, Field("The payload of one device.", "B", least=0)]
    groups: Annotated[str, Field("The replica groups: their number and size (2x4), or the pairs.", most=400)]
    trips: Annotated[int | None, Field("How often a loop runs it; null where the compiler does not say.")]


Collectives = Annotated[
    list[RecordedCollective], Field("The collectives of the compiled program.", most=10_000)
]


class Counters(TypedDict):
    """What the compiler says of a program, per device."""

    wire_bytes: NotRequired[Annotated[Number, Field("The bytes that the collectives send, per device.", "B")]]
    flops: NotRequired[
        Annotated[Number | None, Field("Floating-point operations by the compiler's cost analysis.")]
    ]
    bytes_accessed: NotRequired[
        Annotated[Number | None, Field("Memory traffic by the compiler's cost analysis.", "B")]
    ]
    temp_bytes: NotRequired[Annotated[Bytes, Field("Memory for temporaries.")]]
    workspace_bytes: NotRequired[
        Annotated[
            Bytes,
            Field(
                "What a library of a GPU (cuBLAS, cuDNN) asks for of these: the most for one call. It is left out where"
                " none asks."
            ),
        ]
    ]
    argument_bytes: NotRequired[Annotated[Bytes, Field("Memory for the arguments.")]]
    output_bytes: NotRequired[Annotated[Bytes, Field("Memory for the outputs.")]]
    theory: NotRequired[
        Annotated[
            dict[str, Number],
            Field(
                "What the operation must send, per device, by the mesh axes over which (x+y).",
                "B",
                keys="^[a-z+]{1,20}$",
            ),
        ]
    ]
    told: NotRequired[
        Annotated[
            list[Annotated[str, Field(most=400)]],
            Field("What the program sends without need, by name: slow, and not wrong.", most=100),
        ]
    ]
    excess_bytes: NotRequired[
        Annotated[
            Number, Field("What is sent beyond the operation's theory; negative where less is sent.", "B")
        ]
    ]
    precision: NotRequired[
        Annotated[
            str, Field("The precision of contractions, and the arithmetic that was found for it.", most=100)
        ]
    ]


Seal = Annotated[
    str,
    Field(
        "The seal of a piece of the file, as the last field of its last line: the start of the SHA-256 of the file up"
        " to there. Published files have none.",
        pattern="^[0-9a-f]{16}$",
        name="seal",
    ),
]


class EveryLine(TypedDict):
    """What every line has."""

    schema: Annotated[Literal[1], Field("The version of the record definition.")]
    run: RunId
    so_far: NotRequired[Seal]
