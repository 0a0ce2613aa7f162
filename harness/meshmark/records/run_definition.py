# SPDX-License-Identifier: Apache-2.0
"""The definition of the run line: the environment in which programs ran, the selection and the settings."""

# No `from __future__ import annotations` here: TypedDict finds its optional fields in the annotations themselves.

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from meshmark.records.fields import Field
from meshmark.records.shared import MOST_DEVICES, DeviceCount, EveryLine, Name, Rank

LONGEST_FLAG = 4000
"""Characters of the longest value of an environment variable."""

MOST_AROUND = 50
"""The most settings, functions and files that a run line names as not JAX's own."""


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
    usable: NotRequired[
        Annotated[
            int,
            Field(
                "How many of the cores the process may use, by its affinity. Missing where the system does not tell,"
                " and in files of earlier versions.",
                least=1,
            ),
        ]
    ]
    quota: NotRequired[
        Annotated[
            float,
            Field(
                "For how many cores the control groups of the process grant time. Missing without a limit, and in files"
                " of earlier versions.",
                above=0,
            ),
        ]
    ]


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
        dict[str, Annotated[str, Field(most=LONGEST_FLAG)]],
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
    surroundings: NotRequired[
        Annotated[
            dict[str, Annotated[str, Field(most=300)]],
            Field(
                "Settings of JAX that are not the default ones, with their values, functions and methods of NumPy and"
                " JAX that somebody replaced, and files that are not as they were installed, by name. Files of earlier"
                " versions lack it.",
                most=MOST_AROUND,
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
    topology: NotRequired[
        Annotated[list[str], Field("The topologies of a compile-only run; of the weather, its places.")]
    ]
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
    counts: NotRequired[
        Annotated[
            str,
            Field(
                "What counts as spent time. `samples`: sampling ends with the first round, from the fewest samples on,"
                " after which the samples of all programs of the cell, times their calls, take more than `seconds` for"
                " each program, or at the most samples. Without it, time between samples counts too, so the samples do"
                " not show exactly where sampling ended. Runs of earlier versions lack it. Over several processes it is"
                " `samples of the slowest rank`: rounds come in blocks, each as long as the time that is left allows,"
                " by the samples so far of the slowest rank, without those of controls.",
                choices=("samples", "samples of the slowest rank"),
            ),
        ]
    ]
    pairs: NotRequired[Annotated[list[int], Field("Comparisons: the numbers of pairs at which it may stop.")]]


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
    closes: NotRequired[
        Annotated[
            Literal[True],
            Field(
                "The run writes a `chosen` line and closes with an `end` line. Earlier versions wrote none."
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
            str,
            Field(
                "Over several ranks: which ranks started together. Conformance of earlier versions lacks it.",
                pattern="^[0-9a-f]{12}$",
            ),
        ]
    ]
    environment: NotRequired[Annotated[str, Field("Comparisons: the side, A or B.", most=20)]]
    named: NotRequired[Annotated[str, Field("Comparisons: how the command line named this side.")]]
    commit: NotRequired[
        Annotated[str, Field("Comparisons: the suite's commit of this side; empty for this checkout.")]
    ]
