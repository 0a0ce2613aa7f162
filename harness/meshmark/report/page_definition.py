# SPDX-License-Identifier: Apache-2.0
"""The definition of the page's data: every object and every column, with its type, unit and meaning.

The builders of the data (report.page_data and its neighbours) give these types. The JSON Schema of the data is made
from them (`describe`), and the documentation of the page's data from the schema.

Tables are stored by column. Every column of a table has one value per row. A text that occurs often is stored once, in
`strings`, and columns hold its index.
"""

# No `from __future__ import annotations` here: TypedDict finds its optional fields in the annotations themselves.

from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_args

from meshmark.levels.interpreted import InterpretedData
from meshmark.records.fields import Field
from meshmark.records.schema.describing import describe_object, docstring

Text = Annotated[int, Field("An index of `strings`.", least=0)]
Count = Annotated[int, Field(least=0)]
Figure = float | None
"""A number with few digits (report.rounding). None stands for an unknown or an infinite one."""
Ends = Annotated[
    list[Figure],
    Field("The low and the high end of a 95 percent interval. Empty for a single run.", most=2),
]

LowEnd = Annotated[list[Figure], Field("Low end of its interval.", "s")]
HighEnd = Annotated[list[Figure], Field("High end of its interval.", "s")]

# Cases ----------------------------------------------------------------------------------------------------------------


CaseColumn = Literal["operation", "variant", "mode", "mesh", "dtype", "size", "level"]
CASE_COLUMNS: tuple[CaseColumn, ...] = get_args(CaseColumn)
"""The columns of CaseColumns, in the order of a case id."""


class CaseColumns(TypedDict):
    """The cases of all runs: the parts of a case id, and the level."""

    operation: list[Text]
    variant: list[Text]
    mode: list[Text]
    mesh: list[Text]
    dtype: list[Text]
    size: list[Text]
    level: list[Text]


class JudgedColumns(TypedDict):
    """The judged cases of one run."""

    case: Annotated[list[Count], Field("The row of the case in `cases`.")]
    verdict: Annotated[list[Count], Field("The index of the case's verdict in `verdicts`.")]
    check: Annotated[list[Text], Field("The first check with that verdict. Empty text for a pass.")]
    reason: Annotated[list[Text], Field("Its reason.")]
    link: Annotated[list[Text], Field("The link of a known issue: an https address, or a document.")]
    kinds: Annotated[list[Text], Field("The compiled collectives, such as 2 all-gather.")]
    wire: Annotated[list[Figure], Field("What one device sends, as compiled.", "B")]
    manual: Annotated[list[Figure], Field("The same of the manual case of the same cell.", "B")]
    owed: Annotated[list[Figure], Field("The bytes of the theory, for a variant without a manual case.", "B")]
    used: Annotated[list[Figure], Field("The largest error as a share of its bound.")]
    temp: Annotated[list[Figure], Field("Temporary memory of one device.", "B")]
    n: NotRequired[
        Annotated[
            list[Count],
            Field("Where a run's cases are on another page: how many cases the row stands for."),
        ]
    ]


class LevelData(
    TypedDict("LevelPasses", {"pass": Annotated[int, Field("Cases of the list that pass.", least=0)]})
):
    """The result of one level."""

    level: Annotated[str, Field("L0 to L4.")]
    list: Annotated[int, Field("The version of the must-pass list.", least=1)]
    cases: Annotated[Count, Field("Cases of the list.")]
    known: Annotated[Count, Field("Cases with a known issue.")]
    missing: Annotated[Count, Field("Cases that the run did not judge.")]
    unmet: Annotated[Count, Field("Cases that fail.")]
    complete: Annotated[bool, Field("Whether every case of the list was judged.")]


# Times ----------------------------------------------------------------------------------------------------------------


class TimedFigures(TypedDict):
    """The numbers of the timed programs of one run. Times of values that are not verified are null."""

    median_s: Annotated[list[Figure], Field("Median over the samples of all processes.", "s")]
    low_s: LowEnd
    high_s: HighEnd
    ratio: Annotated[list[Figure], Field("Time relative to manual mode of the same cell.")]
    ratio_low: Annotated[list[Figure], Field("Low end of its interval.")]
    ratio_high: Annotated[list[Figure], Field("High end of its interval.")]
    busbw: Annotated[list[Figure], Field("Bus bandwidth, as nccl-tests defines it.", "B/s")]
    algbw: Annotated[list[Figure], Field("Bytes of a device by the median time.", "B/s")]
    flops_per_s: Annotated[list[Figure], Field("Operations on floats by the median time.", "FLOP/s")]
    p10_s: Annotated[list[Figure], Field("Quantile of the samples.", "s")]
    p10_low_s: LowEnd
    p10_high_s: HighEnd
    p50_s: Annotated[list[Figure], Field("Quantile of the samples.", "s")]
    p50_low_s: LowEnd
    p50_high_s: HighEnd
    p90_s: Annotated[list[Figure], Field("Quantile of the samples.", "s")]
    p90_low_s: LowEnd
    p90_high_s: HighEnd
    p99_s: Annotated[list[Figure], Field("Quantile of the samples.", "s")]
    p99_low_s: LowEnd
    p99_high_s: HighEnd
    launch_skew_s: Annotated[list[Figure], Field("From the first to the last device's start.", "s")]
    wire_s: Annotated[list[Figure], Field("From the last device's start to the last end.", "s")]
    skew_s: Annotated[list[Figure], Field("Difference of the ranks.", "s")]
    nbytes: Annotated[list[Figure], Field("Payload of the collective.", "B")]
    intensity: Annotated[list[Figure], Field("Arithmetic intensity.", "FLOP/B")]
    moved_bytes: Annotated[list[Figure], Field("Bytes that the program reads and writes.", "B")]
    share: Annotated[list[Figure], Field("Rate as a share of its ceiling.")]
    wire_bytes: Annotated[list[Figure], Field("What one device sends, as compiled.", "B")]
    temp_bytes: Annotated[list[Figure], Field("Temporary memory of one device.", "B")]
    processes: Annotated[list[Figure], Field("Timed processes.")]
    samples: Annotated[list[Figure], Field("Samples of all processes.")]
    devices: Annotated[list[Figure], Field("Devices of the mesh.")]


class TimingColumns(TimedFigures):
    """The timed programs of one run."""

    operation: list[Text]
    variant: list[Text]
    mode: list[Text]
    mesh: list[Text]
    dtype: list[Text]
    size: list[Text]
    cadence: list[Text]
    share_of: Annotated[list[Text], Field("The ceiling that `share` refers to.")]
    bound_by: Annotated[list[Text], Field("The part of the roofline that bounds it.")]
    verdict: Annotated[list[Count], Field("The index of the verdict in `verdicts`.")]
    reason: Annotated[list[Text], Field("Why the time is not published. Empty text for a published one.")]
    kinds: Annotated[list[Text], Field("The compiled collectives.")]
    order: Annotated[
        list[Literal[-1, 0, 1] | None],
        Field("-1: faster than manual mode, 0: not resolved, 1: slower, after correction over the table."),
    ]
    best: Annotated[list[Literal[0, 1]], Field("1 for the fastest mode of its cell.")]


class StepData(TypedDict):
    """One step of the decoder."""

    step: str
    where: Annotated[str, Field("Variant, mesh, dtype and size.")]
    mode: str
    cadence: str
    seconds: Annotated[Figure, Field("Time of a step.", "s")]
    tokens_per_s: Figure
    mfu: Annotated[Figure, Field("Operations on floats as a share of the peak.")]
    peak: Annotated[str, Field("The peak that `mfu` refers to.")]
    memory: Annotated[Figure, Field("Arguments, results and temporaries of one device.", "B")]
    sent: Annotated[
        list[tuple[str, Figure]], Field("The payload of each kind of collective: name and bytes.")
    ]


class ControlData(TypedDict):
    """One program under two names, timed in the same rounds. Its ratio shows what the method makes of no difference."""

    case: str
    cadence: str
    ratio: Figure
    ratio_low: Figure
    ratio_high: Figure
    processes: Figure
    order: Literal[-1, 0, 1] | None


class FactorData(TypedDict):
    """The factor of a mode relative to manual mode, as a median over cells. Empty texts mean any."""

    operation: str
    mesh: str
    size: str
    mode: str
    cadence: str
    cells: Count
    processes: Count
    doubt: Annotated[str, Field("Why the interval is in doubt. Empty text if it is not.")]
    value: Figure
    low: Figure
    high: Figure


class NoiseData(TypedDict):
    """The noise of a run's times."""

    interval: Annotated[Figure, Field("Median half width of the intervals as a share of the time.")]
    processes: Annotated[Figure, Field("Median ratio of the slowest process to the fastest.")]
    most: Annotated[Count, Field("Most processes of a time.")]


class RoofData(TypedDict):
    """The roof over the timed layers and contractions of one dtype and precision."""

    dtype: str
    flops: Annotated[Figure, Field("Ceiling.", "FLOP/s")]
    flops_of: Annotated[str, Field("The source of the ceiling.")]
    memory: Annotated[Figure, Field("Ceiling.", "B/s")]
    memory_of: Annotated[str, Field("The source of the ceiling.")]
    together: Annotated[bool, Field("Whether the roof is for all devices together (virtual devices).")]


class CeilingData(TypedDict):
    """A measured ceiling of the machine."""

    name: str
    dtype: str
    value: Figure
    unit: str
    devices: Figure


class FitData(TypedDict):
    """The fit t = alpha + S / beta of a sweep over message sizes S."""

    operation: str
    variant: str
    mesh: str
    dtype: str
    mode: str
    cadence: str
    points: Count
    alpha: Annotated[Figure, Field("Latency.", "s")]
    beta: Annotated[Figure, Field("Bandwidth.", "B/s")]
    alpha_ends: Ends
    beta_ends: Ends
    factor: Annotated[Figure, Field("Bus bandwidth by algorithm bandwidth.")]
    worst: Annotated[Figure, Field("Largest residual as a share of the time.")]


class ScalingData(TypedDict):
    """Times over numbers of devices."""

    name: str
    kind: Annotated[str, Field("strong or weak")]
    points: Annotated[
        list[list[float | None]],
        Field("Devices, seconds, efficiency, and the ends of the interval of the efficiency."),
    ]


class TimedData(TypedDict):
    """All that the page has of the times of one file."""

    timings: TimingColumns | None
    steps: list[StepData]
    controls: list[ControlData]
    claims: Annotated[
        dict[str, tuple[int, int, str]],
        Field(
            "By cadence: ratios of the table, processes from which an order can be claimed, and why none is claimed all"
            " the same."
        ),
    ]
    factors: list[FactorData]
    noise: NoiseData | None
    roofs: list[RoofData]
    ceilings: list[CeilingData]
    fits: list[FitData]
    scaling: list[ScalingData]


# Runs -----------------------------------------------------------------------------------------------------------------


class RunData(
    TimedData,
    TypedDict(
        "RunClass",
        {
            "class": Annotated[
                Literal["real", "virtual", "compiled"],
                Field("The class of the devices. Only runs of one class are ranked together."),
            ]
        },
    ),
):
    """One run of a record file: where it ran, what it judged and what it timed. A file of several topologies has one
    run per topology."""

    key: Annotated[str, Field("The name of the run on the page: the start of the file's hash.")]
    label: Annotated[str, Field("The name of the run for readers.")]
    file: Annotated[str, Field("The record file, relative to the directory of results.")]
    sha256: Annotated[str, Field("The hash of the file.")]
    size: Annotated[Count, Field("The size of the file.", "B")]
    release: Annotated[str, Field("The release of JAX.")]
    jaxlib: Annotated[str, Field("The release of jaxlib.")]
    product: Annotated[str, Field("The title of the product.")]
    machine: Annotated[str, Field("The devices in words, or the topology.")]
    kind: Annotated[str, Field("The kind of device, as JAX names it.")]
    devices: Annotated[int | None, Field("The number of devices.")]
    processes: Annotated[Count, Field("The number of processes.")]
    detected: Annotated[bool, Field("Whether JAX found the processes itself.")]
    facts: Annotated[list[tuple[str, str]], Field("Provenance: one pair of name and value per fact.")]
    commit: Annotated[str, Field("The suite's commit.")]
    clean: Annotated[bool, Field("Whether the suite's files were those of the commit.")]
    compiler: Annotated[str, Field("The compilers of a topology, with versions. Empty text for a real run.")]
    flags: Annotated[str, Field("The flags of XLA and JAX.")]
    profile: Annotated[str, Field("How much was chosen: smoke, quick, standard or full.")]
    started: Annotated[str, Field("When the run began.")]
    runs: Annotated[Count, Field("The run lines of the file.")]
    problems: Annotated[Count, Field("The lines that could not be read.")]
    compared: Annotated[Count, Field("The timings of `meshmark compare`.")]
    comparison: Annotated[bool, Field("Whether the file is one of `meshmark compare`.")]
    expired: Annotated[bool, Field("Whether the release is too old beside the newest one.")]
    judged: JudgedColumns | None
    statement: Annotated[str | None, Field("The computed statement on levels, or why there is none.")]
    met: NotRequired[Annotated[str, Field("The level that is met. Empty text for none.")]]
    levels: list[LevelData]
    interpreted: list[InterpretedData]
    moved: NotRequired[
        Annotated[
            list[tuple[str, list[str]]],
            Field("The pages that have the cases of the run: file name and operations."),
        ]
    ]


# Over several runs ----------------------------------------------------------------------------------------------------


class OperationData(TypedDict):
    """An operation of the case table."""

    name: str
    family: str
    about: Annotated[str, Field("The first paragraph of its docstring.")]


class WrongData(TypedDict):
    """A fault or a known issue, once for all runs."""

    kind: Annotated[str, Field("The kind of fault, such as wrong numbers.")]
    known: bool
    text: str
    link: Annotated[str, Field("An https address, or a document. Empty text for none.")]
    operations: list[str]
    modes: list[str]
    cases: Annotated[Count, Field("Cases of all runs that show it.")]
    runs: Annotated[
        list[tuple[str, int, str]], Field("Key, number of cases and first case of each run that shows it.")
    ]
    passes: Annotated[list[str], Field("The keys of the runs that judged such cases and in which all pass.")]


class ReleaseData(TypedDict):
    """A release on the axis of time."""

    date: Annotated[str, Field("The day. Empty text if it is unknown.")]
    kind: Annotated[str, Field("JAX, jaxlib or libtpu.")]
    version: str


class ReleasesData(TypedDict):
    """The releases behind the figures of the page."""

    axis: Annotated[list[ReleaseData], Field("The oldest first, undated ones last.")]
    pairs: Annotated[list[tuple[str, str]], Field("Versions of JAX and libtpu that ran together.")]
    source: Annotated[str, Field("The source of the dates.")]


class OverTimeRow(
    TypedDict("CasesThatPass", {"pass": Annotated[int, Field("Shared cases without a fault.", least=0)]})
):
    """The shared cases of one release."""

    known: Annotated[Count, Field("Shared cases with a known issue.")]
    bad: Annotated[Count, Field("Shared cases that fail.")]
    wire: Annotated[float, Field("Bytes sent by all shared programs.", "B")]
    temp: Annotated[float, Field("Temporary memory of all shared programs.", "B")]
    changed: Annotated[
        int | None, Field("Programs whose collectives differ from the release before. Null for the first.")
    ]


class TrendData(TypedDict):
    """Times over releases."""

    timed: Annotated[Count, Field("Times that all releases share.")]
    times: Annotated[
        list[tuple[int, Figure, Figure, Figure]],
        Field(
            "Per release: processes, the factor relative to the oldest release, and the ends of its interval. The"
            " factor is null with fewer than six processes."
        ),
    ]


class OverTimeData(
    TrendData,
    TypedDict("OverTimeClass", {"class": Annotated[str, Field("The class of the devices.")]}),
):
    """Runs of several releases on machines of one kind."""

    machine: str
    runs: Annotated[list[str], Field("The key of one run per release, the oldest first.")]
    cases: Annotated[Count, Field("Cases that all releases have.")]
    rows: list[OverTimeRow]


class SideData(TypedDict):
    """One side of a comparison."""

    named: Annotated[str, Field("The name of the environment.")]
    jax: str
    jaxlib: str
    python: str
    commit: str


class DecidedData(TypedDict):
    """What `meshmark compare` decided for one case."""

    case: str
    verdict: str
    reason: str
    ratio: Annotated[Figure, Field("Time of the second side relative to the first.")]
    low: Figure
    high: Figure
    adjusted: Annotated[Figure, Field("p value, corrected over the cases.")]
    detectable: Annotated[Figure, Field("The smallest change that the pairs can show.")]
    false_alarms: Annotated[Figure, Field("False alarms in the control.")]
    pairs: Annotated[Figure, Field("Pairs of processes.")]


class ComparisonData(TypedDict):
    """A file of `meshmark compare`."""

    key: Annotated[str, Field("The key of its run.")]
    sides: dict[str, SideData]
    processes: Count
    rows: list[DecidedData]
    counted: Annotated[Count, Field("Programs that both sides have.")]
    differing: Annotated[Count, Field("Cases with a counter that differs.")]
    differences: Annotated[list[tuple[str, str, str, str]], Field("Case, counter and both values, as text.")]


# Beside runs ----------------------------------------------------------------------------------------------------------


class FileData(TypedDict):
    """A file that is no run of the suite."""

    name: str
    sha256: str
    kind: Annotated[str, Field("schedule, growth or others")]


class WeatherRelease(TypedDict):
    """The programs that one environment compiled."""

    label: str
    jax: str
    suite: Annotated[str, Field("The suite's commit.")]


class WeatherStep(
    TypedDict("FromRelease", {"from": Annotated[int, Field("The index of the older release.", least=0)]})
):
    """What changed from one release to the next."""

    to: Annotated[Count, Field("The index of the newer release.")]
    programs: Annotated[Count, Field("Programs with a change.")]
    changed: Annotated[Count, Field("Counters that changed.")]
    changes: Annotated[
        list[tuple[str, int, Figure, Figure]], Field("Case, index of the counter, and both values.")
    ]
    broken: Annotated[list[str], Field("Cases that compiled before and do not now.")]
    mended: Annotated[list[str], Field("Cases that compile now and did not before.")]


class WeatherPlace(TypedDict):
    """The compiled programs of one place, such as a topology."""

    name: str
    programs: Annotated[Count, Field("Programs that all releases have.")]
    sums: Annotated[
        dict[str, list[Figure]], Field("By counter: the sum of each release. Null without this place.")
    ]
    without: Annotated[dict[str, int], Field("By counter: the programs that lack it.")]
    steps: list[WeatherStep]


class WeatherData(TypedDict):
    """Compiled programs over releases."""

    releases: list[WeatherRelease]
    counters: Annotated[list[tuple[str, str]], Field("Name and meaning of each counter.")]
    places: list[WeatherPlace]


Curve = Annotated[list[tuple[int, Figure]], Field("Devices and value, as compiled or by theory.")]


class GrowthData(TypedDict):
    """How one program grows with the number of devices."""

    chip: str
    operation: str
    variant: str
    mode: str
    scaling: Annotated[str, Field("strong or weak")]
    faster: Annotated[list[str], Field("The quantities that grow faster than their theory.")]
    wire_bytes: Curve
    wire_bytes_theory: Curve
    memory_bytes: Curve
    memory_bytes_theory: Curve
    collective_runs: Curve
    collective_runs_theory: Curve


class OthersRow(TypedDict):
    """One operation at one size."""

    operation: str
    bytes: Annotated[Count, Field("The message of one rank.", "B")]
    times: Annotated[
        dict[str, tuple[Figure, Figure, Figure]],
        Field("By contestant: the median of the rounds, and the quartiles.", "s"),
    ]
    ratios: Annotated[
        dict[str, tuple[Figure, Figure, Figure]],
        Field("By contestant: the time of JAX relative to it, in pairs of rounds, with the quartiles."),
    ]


class OthersData(TypedDict):
    """JAX beside torch and MPI on one machine."""

    names: list[str]
    labels: dict[str, str]
    rows: list[OthersRow]
    processes: float
    machine: str
    cores: int | None
    started: str
    versions: dict[str, str]


class BesideData(TypedDict):
    """What is no run of the suite."""

    files: list[FileData]
    weather: WeatherData | None
    growth: list[GrowthData]
    others: list[OthersData]


# The page -------------------------------------------------------------------------------------------------------------


class LinkedPage(TypedDict):
    """Another page of the site."""

    name: Annotated[str, Field("Its file name.")]
    label: str


class PageData(TypedDict):
    """The data of a page."""

    schema: Annotated[int, Field("The version of this definition.")]
    suite: Annotated[str, Field("The version of Meshmark.")]
    verdicts: Annotated[list[str], Field("The verdicts, to which columns refer.")]
    modes: Annotated[list[str], Field("The modes, in their order.")]
    runs: Annotated[
        list[RunData],
        Field("Real devices first, then virtual, then compiled. Within each, the newest release is first."),
    ]
    cases: CaseColumns
    operations: list[OperationData]
    programs: Annotated[dict[str, str], Field("The source of a program, by operation/mode.")]
    wrong: Annotated[list[WrongData], Field("What is wrong: unknown faults first, then the most severe.")]
    releases: ReleasesData
    over_time: list[OverTimeData]
    scripts: Annotated[dict[str, str], Field("The scripts of some wrong cases, by case id.")]
    comparisons: list[ComparisonData]
    cut: Annotated[Count, Field("Reasons that are cut to keep the page small.")]
    pages: Annotated[list[LinkedPage], Field("The other pages of a site of several pages.")]
    here: NotRequired[Annotated[str, Field("The file name of this page, on a site of several pages.")]]
    label: NotRequired[Annotated[str, Field("The name of this page, on a site of several pages.")]]
    beside: BesideData
    strings: Annotated[list[str], Field("Each text of a column once.")]


def describe() -> dict[str, Any]:
    """The JSON Schema of a page's data."""
    definitions: dict[str, Any] = {}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Data of a page of Meshmark's results",
        "description": docstring(PageData),
        **describe_object(PageData, definitions),
        "$defs": definitions,
    }
