# SPDX-License-Identifier: Apache-2.0
"""The definition of a record line: every kind of line and every field, with its type, unit, limits and meaning.

Three things are made from it, so they agree: the JSON Schema with its descriptions (meshmark.records.schema), from
which the documentation is made; the checks of the reader (meshmark.records.reading); and the types in the code's
signatures.

A file is JSON lines: one run line, then one line per check of a case or per measurement. Every line has `schema`,
`kind` and `run`. An object may have fields that the definition does not list, unless it is `closed`. Readers ignore
them.
"""

# No `from __future__ import annotations` here: TypedDict finds its optional fields in the annotations themselves.

from typing import Annotated, Literal, NotRequired, TypedDict

from meshmark.core.verdicts import VERDICTS
from meshmark.records.fields import Field
from meshmark.records.run_definition import RunLine
from meshmark.records.shared import (
    CADENCES,
    MODES,
    Bytes,
    CaseId,
    Check,
    Closing,
    Collectives,
    Counters,
    EveryLine,
    Name,
    Number,
    Rank,
    Reason,
    Sample,
    Samples,
    Seconds,
    Stack,
    Verdict,
)


class CaseLine(EveryLine):
    """What every line of a case says of it."""

    case: CaseId
    operation: Annotated[str, Field("The operation, as in the case id.", most=100)]
    variant: Annotated[str, Field("The operation's options, as in the case id.", most=200)]
    mode: Annotated[str, Field("How the program is spelled.", choices=MODES)]
    mesh: Annotated[Name, Field("The mesh, such as 2x4.")]
    dtype: Annotated[str, Field("The dtype of the inputs.", most=40)]
    size_bytes: Annotated[int, Field("The bytes of one device's inputs.", "B", least=0)]
    level: Annotated[str, Field("The level that the case belongs to.", pattern="^L[0-9]$")]
    seed: Annotated[int, Field("The seed of the inputs.", least=0)]
    verdict: Verdict
    reason: Reason
    link: NotRequired[Annotated[str, Field("The known issue's link. A `known` line has it.", most=300)]]
    was: NotRequired[
        Annotated[Verdict, Field("The verdict before a known issue changed it. A `known` line has it.")]
    ]


class Ending(TypedDict):
    """How a program ended that raised, died or did not end in time."""

    stack: NotRequired[
        Annotated[
            list[Annotated[str, Field(most=300)]],
            Field("Where the exception was raised: module:function:line, the innermost last.", most=50),
        ]
    ]
    stacks: NotRequired[
        Annotated[
            Annotated[dict[str, Stack], Field(keys="^[0-9]{1,6}$", most=1 << 16)]
            | Annotated[list[Stack], Field(most=1 << 16)],
            Field(
                "Where the program was when it ended: module:function:line, the innermost first. By rank over several"
                " processes, by thread in one process."
            ),
        ]
    ]
    stderr: NotRequired[
        Annotated[
            list[Annotated[str, Field(most=1000)]],
            Field("The last lines that a dead process wrote.", most=50),
        ]
    ]
    signal: NotRequired[
        Annotated[str, Field("How a dead process ended: the signal, or its exit code.", most=100)]
    ]
    ended_rank: NotRequired[Annotated[Rank, Field("The rank whose end ended the group.")]]


class ConformanceLine(CaseLine, Counters, Ending):
    """One check of one case."""

    kind: Literal["conformance"]
    check: Check
    error: NotRequired[
        Annotated[Number, Field("The measured error of the output that is worst against its bound.")]
    ]
    bound: NotRequired[Annotated[Number, Field("The bound of that error; 0 where the output must be exact.")]]
    bits: NotRequired[
        Annotated[
            str,
            Field(
                "A digest of the assembled outputs, to compare modes: 16 hexadecimal digits.",
                pattern="^[0-9a-f]{16}$",
            ),
        ]
    ]
    subnormals: NotRequired[
        Annotated[
            Literal["flushed", "kept"],
            Field(
                "Where the inputs are special values: `flushed` where subnormal numbers count as zeros, since the"
                " device takes them so or ordinary numbers may take them in."
            ),
        ]
    ]
    deviation: NotRequired[
        Annotated[
            str,
            Field("Why the values may differ from NumPy's: they are those of JAX on one device.", most=1000),
        ]
    ]
    interpreted: NotRequired[
        Annotated[
            Literal[True],
            Field("The line judges an interpretation of the compiled text. Nothing ran on a device."),
        ]
    ]
    refused: NotRequired[
        Annotated[str, Field("Interpretation: what the interpreter does not know.", most=400)]
    ]
    assumed: NotRequired[
        Annotated[
            list[Annotated[str, Field(most=200)]],
            Field("Interpretation: what the text does not say and documentation does.", most=10),
        ]
    ]
    interpret_s: NotRequired[Annotated[Seconds, Field("Interpretation: the time that it took.")]]
    fixed: NotRequired[Annotated[bool, Field("A known issue covers the case, and it passes.")]]
    collectives: NotRequired[Collectives]
    runs: NotRequired[Annotated[int, Field("Executions of the program, where it is repeated.", least=1)]]
    differing_runs: NotRequired[
        Annotated[int, Field("How many of them gave other bits than the first.", least=0)]
    ]
    wrong_runs: NotRequired[Annotated[int, Field("How many of them gave a wrong result.", least=0)]]
    ranks: NotRequired[
        Annotated[
            dict[str, Verdict],
            Field("The verdict by rank, where ranks differ.", keys="^[0-9]{1,6}$", fewest=1, most=1 << 16),
        ]
    ]
    topology: NotRequired[Annotated[str, Field("Compile-only: the topology.", most=100)]]
    layout: NotRequired[Annotated[str, Field("Compile-only: the order of the devices.", most=40)]]
    compile_s: NotRequired[Annotated[Seconds, Field("Compile-only: the time to compile.")]]
    alias_bytes: NotRequired[Annotated[Bytes, Field("Compile-only: what outputs share with arguments.")]]
    memory_bytes: NotRequired[Annotated[Bytes, Field("Compile-only: the memory that one device needs.")]]
    capacity_bytes: NotRequired[Annotated[float, Field("Compile-only: the memory that one device has.", "B")]]
    platform: NotRequired[Annotated[Name, Field("Export: the platform for which the program is exported.")]]
    export_bytes: NotRequired[Annotated[Bytes, Field("Export: the size of the serialized program.")]]
    slice_sends: NotRequired[Annotated[int, Field("Several slices: how many sends leave a slice.", least=0)]]
    slice_bytes: NotRequired[
        Annotated[Bytes, Field("Several slices: what one device sends to other slices.")]
    ]
    seconds: NotRequired[Closing]


class TimedCost(TypedDict):
    """What one execution costs, by the table."""

    flops: Annotated[float, Field("Floating-point operations of all devices together.", "FLOP", least=0)]
    nbytes: Annotated[float, Field("S of the bus bandwidth: bytes per device.", "B", least=0)]
    factor: Annotated[float, Field("f of the bus bandwidth: busbw = S / t * f.", least=0)]


class Skew(TypedDict):
    """How much the ranks differ."""

    median_s: Annotated[Seconds, Field("From the fastest to the slowest rank: the median over positions.")]
    slowest: Annotated[
        list[Annotated[int, Field(least=0)]],
        Field("At how many positions each rank was the slowest, by rank."),
    ]


class TimingLine(CaseLine, Counters, Ending):
    """The samples of one case and cadence in one process. Samples of one cell, cadence and process at the same
    position belong to one round."""

    kind: Literal["timing"]
    cadence: Annotated[
        str,
        Field(
            "`plain`: one call at a time, the same buffers, one mode alone. `isolated`: one call at a time, two sets of"
            " buffers in turns, the modes in turns. `stream`: a loop inside one program. `device`: the device's own"
            " times.",
            choices=CADENCES,
        ),
    ]
    process: Annotated[int, Field("Which of the child processes timed it: 0, 1, ...", least=0)]
    verified: Annotated[bool, Field("Whether the timed program's values were verified in the same run.")]
    check: NotRequired[Annotated[Check, Field("The check that decided the verdict.")]]
    devices: Annotated[int, Field("Number of devices that take part.", least=1)]
    calls: NotRequired[Annotated[int, Field("Calls per sample.", least=1)]]
    cost: Annotated[TimedCost, Field("What one execution costs, by the table.")]
    lower_s: NotRequired[Annotated[Seconds, Field("The time to trace and lower.")]]
    compile_s: NotRequired[Annotated[Seconds, Field("The time to compile.")]]
    collectives: NotRequired[Annotated[int | None, Field("Number of collectives in one execution.")]]
    communication: NotRequired[Collectives]
    contract: NotRequired[
        Annotated[str, Field("How the communication departs from its contract.", most=10_000)]
    ]
    per_device_s: NotRequired[
        Annotated[
            dict[str, Sample],
            Field("Cadence `device`: how long each device is busy in the median, by name.", "s"),
        ]
    ]
    samples_s: Annotated[
        Samples,
        Field(
            "The time of every call, in the order in which they were taken; the slowest rank's at each position."
        ),
    ]
    control_s: NotRequired[
        Annotated[
            Samples,
            Field(
                "The same program compiled a second time, under a second name: its samples of the same rounds. Tables"
                " make their control row from it."
            ),
        ]
    ]
    control_calls: NotRequired[
        Annotated[int, Field("Cadence `stream`: calls per sample of the control.", least=1)]
    ]
    rounds_s: NotRequired[
        Annotated[
            list[Annotated[float, Field(least=0)]],
            Field(
                "When each round of samples began, and when the last one ended, from the beginning of the first. The"
                " first line of a cell, cadence and process that has samples holds it, for all programs of these"
                " rounds; in cadence `plain` each line holds its own. The samples of a round, times their calls, take"
                " no longer than the round. Lines of earlier versions and of several processes lack it.",
                "s",
                fewest=2,
                most=1_000_001,
            ),
        ]
    ]
    control_rounds_s: NotRequired[
        Annotated[
            list[Annotated[float, Field(least=0)]],
            Field("Cadence `plain`: the same for the rounds of the control.", "s", fewest=2, most=1_000_001),
        ]
    ]
    launch_skew_s: NotRequired[
        Annotated[
            list[Annotated[float, Field(least=0)]],
            Field(
                "Cadence `device`: from the first to the last device's start, per call.", "s", most=1_000_000
            ),
        ]
    ]
    wire_s: NotRequired[
        Annotated[
            list[Annotated[float, Field(least=0)]],
            Field(
                "Cadence `device`: from the last device's start to the last one's end, per call.",
                "s",
                most=1_000_000,
            ),
        ]
    ]
    samples_by_rank: NotRequired[
        Annotated[
            list[Annotated[list[Sample], Field(most=1_000_000)]],
            Field("Over several processes: the samples of each rank, by rank.", "s", fewest=2, most=1 << 16),
        ]
    ]
    skew: NotRequired[Annotated[Skew, Field("Over several processes: how much the ranks differ.")]]
    seconds: NotRequired[Closing]
    environment: NotRequired[Annotated[str, Field("Comparisons: the side, A or B.", most=20)]]


class CeilingLine(EveryLine):
    """The best rate that the machine was seen to reach, on all of its devices at once."""

    kind: Literal["ceiling"]
    name: Annotated[str, Field("What was measured.", choices=("copy bandwidth", "largest matmul"))]
    dtype: NotRequired[Annotated[str, Field("The dtype.", most=40)]]
    unit: Annotated[str, Field("The unit of `value`.", choices=("B/s", "FLOP/s"))]
    value: Annotated[float, Field("The rate of the fastest sample, of all devices together.", above=0)]
    devices: Annotated[int, Field("Number of devices.", least=1)]
    nbytes: NotRequired[
        Annotated[int, Field("Copy bandwidth: the bytes of one device's array.", "B", least=0)]
    ]
    copies: NotRequired[Annotated[int, Field("Copy bandwidth: copies per call.", least=0)]]
    n: NotRequired[Annotated[int, Field("Largest matmul: the matrices are n by n.", least=0)]]
    flops: NotRequired[Annotated[int, Field("Largest matmul: operations of all devices.", "FLOP", least=0)]]
    samples_s: Samples


class ComparisonLine(EveryLine):
    """What `meshmark compare` adds: the end of one process (`what`: process), or the finding of one case
    (`what`: verdict)."""

    kind: Literal["comparison"]
    what: Annotated[
        str, Field("`process`: a child process ended. `verdict`: what was found of one case.", most=40)
    ]
    environment: NotRequired[Annotated[str, Field("The side, A or B.", most=20)]]
    process: NotRequired[Annotated[int, Field("The number of the process.", least=0)]]
    seconds: NotRequired[Annotated[Seconds, Field("The time that the process took.")]]
    case: NotRequired[Annotated[str, Field("The case and cadence.", most=400)]]
    verdict: NotRequired[
        Annotated[str, Field("`slower`, `faster`, `no change`, `inconclusive` or `left out`.", most=40)]
    ]
    reason: NotRequired[Annotated[str, Field("Why the case was left out; else empty.", most=10_000)]]
    pairs: NotRequired[Annotated[int, Field("Number of pairs of processes.", least=0)]]
    ratio: NotRequired[Annotated[Number, Field("The time of B over the time of A.")]]
    low: NotRequired[Annotated[Number, Field("The lower end of the ratio's interval.")]]
    high: NotRequired[Annotated[Number, Field("The upper end of the ratio's interval.")]]
    p: NotRequired[Annotated[Number, Field("The p-value of the case alone.")]]
    adjusted: NotRequired[Annotated[Number, Field("The p-value adjusted for the number of cases.")]]
    noise: NotRequired[Annotated[Number, Field("The noise of this case's own A/A pairs, as a ratio less 1.")]]
    detectable: NotRequired[
        Annotated[Number, Field("The smallest change that could be detected, as a ratio less 1.")]
    ]
    false_alarms: NotRequired[Annotated[Number, Field("The share of A/A comparisons that the rule flags.")]]
    spread: NotRequired[Annotated[Number, Field("How much a fixed piece of work varied in the process.")]]
    earlier: NotRequired[
        Annotated[
            int,
            Field(
                "How often the comparison had given verdicts before and went on; missing for never.",
                least=0,
                most=1000,
            ),
        ]
    ]


class Asynchronous(TypedDict):
    """A start and the done that waits for it, in the schedule of a compiled program."""

    kind: Annotated[Name, Field("What is started: an opcode such as all-gather or send.")]
    trips: Annotated[
        int | None, Field("How often it runs in one execution; null where the text does not say.")
    ]
    synchronous: Annotated[
        bool, Field("Nothing is done between start and done, or the compiler says that it waits at once.")
    ]
    bytes: NotRequired[Annotated[int, Field("The payload of one device, of a collective.", "B", least=0)]]
    between_flops: NotRequired[
        Annotated[
            Number, Field("Flops of one device between start and done, in one run. Missing without a done.")
        ]
    ]
    between_bytes: NotRequired[
        Annotated[Number, Field("Bytes that these operations read and write, in any memory.", "B")]
    ]
    unknown: NotRequired[
        Annotated[
            list[Annotated[str, Field(most=200)]],
            Field("Custom calls in between, of which the text does not say what they do.", most=1000),
        ]
    ]
    exposed_s: NotRequired[
        Annotated[
            Seconds,
            Field(
                "A projection: the time of one run that the work in between does not hide, by published peaks."
            ),
        ]
    ]


class ScheduleLine(CaseLine, Counters):
    """What the schedule of one compiled program says. Nothing ran; the same compiler gives the same line."""

    kind: Literal["schedule"]
    place: Annotated[
        str,
        Field(
            "What it is compiled for: a topology such as v5e:2x4, or the backend of the devices.", most=100
        ),
    ]
    memory_bytes: NotRequired[Annotated[Bytes, Field("The memory that one device needs.")]]
    peak_bytes: NotRequired[
        Annotated[Bytes, Field("The most memory in use at once, where the compiler says it.")]
    ]
    scheduled: NotRequired[
        Annotated[bool, Field("The text says that its instructions stand in their order.")]
    ]
    collectives: NotRequired[
        Annotated[
            dict[str, Annotated[int, Field(least=0)]],
            Field("How many collectives of each kind the text has.", keys="^[a-z-]{1,40}$"),
        ]
    ]
    collective_runs: NotRequired[
        Annotated[int, Field("Collectives in one execution, those in loops as often as they run.", least=0)]
    ]
    inserted: NotRequired[
        Annotated[
            int, Field("Collectives that carry the partitioner's mark; TPU compilers keep it.", least=0)
        ]
    ]
    pairs: NotRequired[
        Annotated[list[Asynchronous], Field("Everything asynchronous but copies.", most=100_000)]
    ]
    copies: NotRequired[Annotated[int, Field("Asynchronous copies between memories.", least=0)]]
    idle_copies: NotRequired[Annotated[int, Field("Those of them with nothing done meanwhile.", least=0)]]
    exposed_s: NotRequired[
        Annotated[
            float | None,
            Field(
                "A projection: the time of all communication that no work hides, in one execution; null where the"
                " peaks or the work are unknown.",
                "s",
            ),
        ]
    ]
    loops: NotRequired[
        Annotated[
            list[int | None],
            Field("How often each loop runs its body; null where the text does not say.", most=100_000),
        ]
    ]
    decomposed: NotRequired[
        Annotated[int, Field("Permutes that became send and receive, or are the steps of a ring.", least=0)]
    ]
    rematerialized: NotRequired[
        Annotated[int, Field("Instructions that are computed a second time to save memory.", least=0)]
    ]
    rematerialization_warnings: NotRequired[
        Annotated[int, Field("Warnings of an involuntary full rematerialization.", least=0)]
    ]
    host: NotRequired[
        Annotated[
            list[Annotated[str, Field(most=200)]], Field("Transfers between host and device.", most=1000)
        ]
    ]


Verdicts = Annotated[
    dict[str, Annotated[int, Field(least=1)]], Field(keys="^[a-z_]{4,11}$", most=len(VERDICTS))
]


class ChosenLine(EveryLine):
    """What a run is to judge, written once it is known: what a resumed run had finished is part of it."""

    kind: Literal["chosen"]
    cases: Annotated[int, Field("Number of cases.", least=0)]
    digest: Annotated[
        str,
        Field("The start of the SHA-256 of their ids, sorted, one per line.", pattern="^[0-9a-f]{16}$"),
    ]
    deselected: Annotated[int, Field("Cases that options or plugins of pytest took away.", least=0)]


class EndLine(EveryLine):
    """The last line of a run that ended: what the lines before it amount to (meshmark.records.closing). It shows a
    cut and a slip. It does not prove anything against a person who makes it anew."""

    kind: Literal["end"]
    ended: Annotated[
        str,
        Field(
            "When the run ended, in UTC.",
            pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$",
        ),
    ]
    exit_code: Annotated[int, Field("The exit code; over several processes the largest.", least=0, most=255)]
    cases: Annotated[int, Field("Number of judged cases in the file.", least=0)]
    verdicts: Annotated[Verdicts, Field("How many of them have each verdict.")]
    timings: Annotated[int, Field("Number of timing lines in the file.", least=0)]
    lines: Annotated[int, Field("Number of lines before this one.", least=1)]
    digest: Annotated[
        str,
        Field(
            "The start of a SHA-256 of what these lines say, without their texts.", pattern="^[0-9a-f]{16}$"
        ),
    ]


LINES: dict[str, type] = {
    "run": RunLine,
    "conformance": ConformanceLine,
    "timing": TimingLine,
    "ceiling": CeilingLine,
    "comparison": ComparisonLine,
    "schedule": ScheduleLine,
    "chosen": ChosenLine,
    "end": EndLine,
}
"""Every kind of line."""

AnyLine = (
    RunLine
    | ConformanceLine
    | TimingLine
    | CeilingLine
    | ComparisonLine
    | ScheduleLine
    | ChosenLine
    | EndLine
)

KINDS = tuple(LINES)

KNOWN_NEEDS = ("link", "was")
"""The fields that a conformance line of verdict `known` must have."""

CASE_FIELDS = ("case", "operation", "variant", "mode", "mesh", "dtype", "reason", "verdict")

RELIED_ON: dict[str, tuple[str, ...]] = {
    "run": ("run", "facts"),
    "conformance": (*CASE_FIELDS, "level", "check", "run"),
    "timing": (*CASE_FIELDS, "cadence", "process", "samples_s", "run"),
    "ceiling": ("name", "unit", "value", "run"),
    "comparison": ("what", "case", "verdict", "reason", "run"),
    "schedule": (*CASE_FIELDS, "place", "run"),
    "chosen": ("cases", "digest", "run"),
    "end": ("exit_code", "cases", "lines", "digest", "run"),
    "comparison process": ("environment", "process", "seconds", "run"),
}
"""The fields without which the reader refuses a line, by kind (comparisons of `what` process apart). A hand-made file,
or one of another version, is read though it lacks others; the JSON Schema asks for all of them."""
