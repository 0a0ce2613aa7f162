# SPDX-License-Identifier: Apache-2.0
"""The definition of a record line: every kind of line and every field, with its type, unit, limits and meaning.

Three things follow from it, so that none of them can say something else: the JSON Schema with its descriptions
(meshmark.records.schema), from which the documentation is made; the checks of the reader (meshmark.records.reading);
and the types that the code names in its signatures.

A file is JSON lines: one run line, then one line per check of a case or per measurement. Every line has `schema`,
`kind` and `run`. A field that the definition does not list may be there, except where an object is `closed`.
Readers leave such fields alone.
"""

# No `from __future__ import annotations` here: TypedDict finds its optional fields in the annotations themselves.

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from meshmark.core.verdicts import CHECKS, VERDICTS
from meshmark.records.fields import Field

SCHEMA = 1
"""The version of this definition."""


# Values that several lines share ----------------------------------------------------------------------------

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


class Collective(TypedDict):
    """One collective of a compiled program, as one device sees it."""

    kind: Annotated[Name, Field("The kind in HLO, such as all-reduce.")]
    bytes: Annotated[int, Field("The payload of one device.", "B", least=0)]
    groups: Annotated[str, Field("The replica groups: their number and size (2x4), or the pairs.", most=400)]
    trips: Annotated[int | None, Field("How often a loop runs it; null where the compiler does not say.")]


Collectives = Annotated[list[Collective], Field("The collectives of the compiled program.", most=10_000)]


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


# The run line -----------------------------------------------------------------------------------------------


class Device(TypedDict):
    """One device."""

    id: Annotated[int, Field("Its id in JAX.")]
    process: Annotated[int, Field("The index of the process that owns it.", least=0)]
    coords: NotRequired[
        Annotated[list[int], Field("Its coordinates in the machine; empty where it has none.", most=8)]
    ]


class Host(TypedDict):
    """The machine, without anything that names it."""

    system: NotRequired[Annotated[Name, Field("The operating system.")]]
    machine: NotRequired[Annotated[Name, Field("The processor's architecture.")]]
    cores: NotRequired[Annotated[int | None, Field("Number of CPU cores; null where unknown.")]]


class Suite(TypedDict):
    """The state of the suite that wrote the file."""

    version: Annotated[Name, Field("The version of meshmark.")]
    commit: Annotated[str | None, Field("The git commit; null where neither git nor the build knows it.")]
    clean: Annotated[bool | None, Field("Whether the files are as committed; null where unknown.")]
    digest: NotRequired[
        Annotated[
            str,
            Field(
                "The start of the SHA-256 of the package's files: 16 hexadecimal digits. Records made before"
                " the package was called meshmark lack it.",
                pattern="^[0-9a-f]{16}$",
            ),
        ]
    ]


class ProcessGroup(TypedDict):
    """How several processes came together."""

    devices: NotRequired[Annotated[DeviceCount, Field("Number of devices per process.")]]
    detected: NotRequired[Annotated[bool, Field("Whether JAX found the coordinator by itself.")]]
    transport: NotRequired[
        Annotated[Name, Field("What carries collectives between CPU processes, such as gloo.")]
    ]


class Versions(TypedDict):
    """Versions of packages by name. Further packages may be listed."""

    jax: Name
    jaxlib: Name
    numpy: Name
    python: Name


class RunFacts(TypedDict):
    """The environment, read in the process that runs the programs (meshmark.devices.facts)."""

    versions: Annotated[
        Versions, Field("Versions of packages by name; further packages may be listed.", rest=Name)
    ]
    backend: Annotated[Name, Field("The JAX backend, such as cpu, gpu or tpu.")]
    device_kind: Annotated[str, Field("The kind of the devices, as JAX names it.", most=100)]
    num_devices: DeviceCount
    num_processes: Annotated[int, Field("Number of JAX processes.", least=1, most=MOST_DEVICES)]
    devices: Annotated[list[Device], Field("The devices; the first 1024 of them.", most=1024)]
    flags: Annotated[
        dict[str, Annotated[str, Field(most=4000)]],
        Field("The environment variables that JAX, XLA and the suite read, by name.", most=500),
    ]
    host: Annotated[Host, Field("The machine, without anything that names it.", closed=True)]
    suite: Annotated[Suite, Field("The state of the suite that wrote the file.", closed=True)]
    virtual: Annotated[
        bool, Field("Whether the devices are CPU devices that share the cores of one machine.")
    ]
    topology: NotRequired[
        Annotated[str, Field("The topology of a compile-only run, such as v5e:2x4; else empty.", most=100)]
    ]
    layout: NotRequired[
        Annotated[str, Field("The order in which a mesh takes the devices of a topology.", most=40)]
    ]
    compiler: NotRequired[
        Annotated[dict[str, Name], Field("Versions of the packages that compile for a topology, by name.")]
    ]
    group: NotRequired[
        Annotated[
            ProcessGroup, Field("How several processes came together; empty for one process.", closed=True)
        ]
    ]
    no_layout: NotRequired[
        Annotated[dict[str, str], Field("Why a mesh (by label) has no physical layout on the topology.")]
    ]
    capabilities: NotRequired[
        Annotated[
            dict[str, str],
            Field(
                "What probes found of optional capabilities, by name: `has`, or `lacks`, `crash` or `hang` with"
                " the reason."
            ),
        ]
    ]
    others: NotRequired[
        Annotated[list[dict[str, Any]], Field("The facts of further topologies of the same run.")]
    ]


Digest = Annotated[
    str, Field("The start of the contents' SHA-256: 16 hexadecimal digits.", pattern="^[0-9a-f]{16}$")
]


class OwnIssues(TypedDict):
    """Known issues beside the suite's."""

    file: Annotated[str, Field("The name of the file.", most=400)]
    digest: Digest


class OwnCounters(TypedDict):
    """Counters of collectives that go before the suite's."""

    directory: Annotated[str, Field("The name of the directory.", most=400)]
    digest: Digest


class Selected(TypedDict):
    """The options that chose the cases. What was left open is left out."""

    profile: NotRequired[Annotated[Name, Field("How much is chosen: smoke, quick, standard or full.")]]
    levels: NotRequired[Annotated[list[Name], Field("The levels.")]]
    capabilities: NotRequired[Annotated[list[Name], Field("The optional capabilities that were asked for.")]]
    present: NotRequired[
        Annotated[
            list[Name], Field("The optional capabilities that probes found; a few of their cases join.")
        ]
    ]
    without: NotRequired[Annotated[list[Name], Field("The optional capabilities that were left out.")]]
    operations: NotRequired[Annotated[list[str], Field("The operations.")]]
    modes: NotRequired[Annotated[list[str], Field("The modes.")]]
    meshes: NotRequired[Annotated[list[str], Field("The meshes.")]]
    dtypes: NotRequired[Annotated[list[str], Field("The dtypes.")]]
    sizes: NotRequired[Annotated[list[str], Field("The sizes.")]]
    cases: NotRequired[Annotated[list[str], Field("Comparisons: the cases that were named one by one.")]]
    limit: NotRequired[Annotated[int, Field("The largest weight, where it is not the profile's.")]]
    processes: NotRequired[
        Annotated[int, Field("Number of processes; left out where there is one.", least=1, most=MOST_DEVICES)]
    ]
    timed: NotRequired[Annotated[bool, Field("Whether the cases are those of the benchmarks.")]]
    scaling: NotRequired[Annotated[bool, Field("Whether the cases are those of a scaling study.")]]
    topology: NotRequired[Annotated[list[str], Field("The topologies of a compile-only run.")]]
    layout: NotRequired[Annotated[list[str], Field("The layouts of a compile-only run.")]]
    export: NotRequired[Annotated[list[str], Field("The platforms for which programs are exported.")]]
    known_issues: NotRequired[
        Annotated[list[OwnIssues], Field("Known issues that a vendor named.", most=100)]
    ]
    counters: NotRequired[Annotated[OwnCounters, Field("Counters that a vendor named.")]]


class TimingSettings(TypedDict):
    """How the cases are timed."""

    cadences: NotRequired[Annotated[list[Name], Field("The cadences.")]]
    seconds: NotRequired[Annotated[float | None, Field("The time to spend per case and cadence.", "s")]]
    precision: NotRequired[
        Annotated[
            float,
            Field("Of earlier versions: the relative precision of the median at which sampling stopped."),
        ]
    ]
    least: NotRequired[
        Annotated[
            float,
            Field(
                "Fewest samples per case and cadence; of a comparison: the smallest difference, in percent.",
                least=0,
            ),
        ]
    ]
    most: NotRequired[Annotated[int, Field("Most samples per case and cadence.", least=1)]]
    pairs: NotRequired[Annotated[list[int], Field("Comparisons: the numbers of pairs at which it may stop.")]]


class EveryLine(TypedDict):
    """What every line has."""

    schema: Annotated[Literal[1], Field("The version of the record definition.")]
    run: RunId


class RunLine(EveryLine):
    """The first line of a run: the environment, the selection and the settings."""

    kind: Literal["run"]
    facts: Annotated[RunFacts, Field("The environment in which the programs ran.", name="facts")]
    table: NotRequired[
        Annotated[
            int,
            Field(
                "The version of the case table that made the cases. Costs and level lists are checked as of this"
                " version. A line without it means 1.",
                least=1,
            ),
        ]
    ]
    selection: NotRequired[Annotated[Selected, Field("The options that chose the cases.")]]
    rank: NotRequired[
        Annotated[Rank, Field("In FILE.rankK: the rank that wrote it. A merged file has none.")]
    ]
    ranks: NotRequired[
        Annotated[int, Field("In a merged file: the number of ranks.", least=1, most=MOST_DEVICES)]
    ]
    seed: NotRequired[Annotated[int, Field("The seed of inputs and order.", least=0)]]
    repeat: NotRequired[
        Annotated[
            int, Field("Executions per case, or processes that time each cell one after the other.", least=1)
        ]
    ]
    started: NotRequired[
        Annotated[
            str,
            Field(
                "When the run began, in UTC.",
                pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$",
            ),
        ]
    ]
    timing: NotRequired[Annotated[TimingSettings, Field("How the cases are timed.")]]
    group: NotRequired[
        Annotated[
            str, Field("Timings over several ranks: which ranks started together.", pattern="^[0-9a-f]{12}$")
        ]
    ]
    environment: NotRequired[Annotated[str, Field("Comparisons: the side, A or B.", most=20)]]
    named: NotRequired[Annotated[str, Field("Comparisons: how the command line named this side.")]]
    commit: NotRequired[
        Annotated[str, Field("Comparisons: the suite's commit of this side; empty for this checkout.")]
    ]


# Lines of cases ---------------------------------------------------------------------------------------------


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
                "Where the inputs are special values: whether the device takes subnormal numbers for zeros."
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
        Annotated[dict[str, Sample], Field("Cadence `device`: the median time of each device, by name.", "s")]
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


LINES: dict[str, type] = {
    "run": RunLine,
    "conformance": ConformanceLine,
    "timing": TimingLine,
    "ceiling": CeilingLine,
    "comparison": ComparisonLine,
    "schedule": ScheduleLine,
}
"""Every kind of line."""

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
    "comparison process": ("environment", "process", "seconds", "run"),
}
"""The fields without which the reader refuses a line, by kind (comparisons of `what` process apart). A hand-made file,
or one of another version, is read though it lacks others; the JSON Schema asks for all of them."""
