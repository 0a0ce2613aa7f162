# SPDX-License-Identifier: Apache-2.0
"""Lies behind a cover: lines of another kind of run, to which the rules of timings do not apply, and names of chips
that are nearly those of published ones."""

import copy
import math
import random
from collections.abc import Callable

import numpy as np

from meshmark.core.pairs import INTERVAL, adjust, interval, signed_rank_p
from meshmark.core.statistics import hodges_lehmann
from meshmark.timing.compare import key_of, median_seconds
from tests.lies.of_places import closed_timings
from tests.lies.of_several import gpus_of_no_name
from tests.lies.of_times import compared, scheduled
from tests.lies.telling import Change, Lie, Records, both, of_kind

OTHER = "abcdef012345"
"""The run of side B."""

PAIRS = 6
"""Pairs of processes of the comparison."""


def comparing(conformance: Records, timed: Records) -> None:
    """A comparison of two sides, which takes the place of the timings. Each pair has a process of A and one of B."""
    settings = {"cadences": ["isolated", "stream"], "seconds": 0.03, "pairs": [PAIRS], "least": 3.0}
    head = timed[0] | {"timing": settings, "selection": {"profile": "quick", "cases": []}}
    sides = [head | {"environment": side, "named": "here", "commit": ""} for side in "AB"]
    sides[1]["run"] = OTHER
    made = copy.deepcopy(sides)
    lines = of_kind(timed, "timing")
    for process in range(2 * PAIRS):
        side, draw = sides[process % 2], random.Random(process)
        of = {"run": side["run"], "environment": side["environment"], "process": process}
        for line in lines:
            samples = [float(f"{0.001 * (1 + draw.random() / 4):.7g}") for _ in line["samples_s"]]
            made.append({k: v for k, v in line.items() if k != "seconds"} | of | {"samples_s": samples})
        made.append({"schema": 1, "kind": "comparison", "what": "process", "seconds": 1.0} | of)
    for line in lines:
        of = {"run": OTHER, "case": key_of(line["case"], line["cadence"]), "pairs": PAIRS}
        made.append({"schema": 1, "kind": "comparison", "what": "verdict"} | of)
    judge(made)
    timed[:] = made


def judge(lines: Records) -> None:
    """The figures of each verdict, as its processes give them."""
    judged = of_kind(lines, "comparison", what="verdict")
    found = []
    for line in judged:
        own = next(x for x in of_kind(lines, "timing") if key_of(x["case"], x["cadence"]) == line["case"])
        found.append(np.log([b / a for a, b in zip(*medians(lines, own), strict=True)]))
    every = np.array([signed_rank_p(own) for own in found])
    for line, own, p, adjusted in zip(judged, found, every, adjust(every), strict=True):
        low, high = interval(own, 1 - INTERVAL)
        figures = {"ratio": hodges_lehmann(own), "low": low, "high": high}
        line |= {"verdict": "inconclusive", "reason": ""}
        line |= {name: math.exp(value) for name, value in figures.items()}
        line |= {"p": float(p), "adjusted": float(adjusted)}
        line |= {"noise": 0.01, "detectable": 0.1, "false_alarms": 0.01}


def medians(lines: Records, of: dict) -> list[list[float]]:
    """The figures of the processes of A and of those of B, for the program of this line."""
    own = of_kind(lines, "timing", case=of["case"], cadence=of["cadence"])
    return [[median_seconds(line) or 0.0 for line in own if line["environment"] == side] for side in "AB"]


def in_comparison(change: Callable[[Records], None]) -> Change:
    """A change of the lines of an honest comparison."""
    return both(comparing, lambda conformance, timed: change(timed))


def in_findings(**fields: object) -> Change:
    """Other fields in each verdict of an honest comparison."""

    def change(lines: Records) -> None:
        for line in of_kind(lines, "comparison", what="verdict"):
            line.update(fields)

    return in_comparison(change)


def without(side: str) -> Callable[[Records], None]:
    """A comparison without one of its sides."""

    def change(lines: Records) -> None:
        gone = {line["run"] for line in of_kind(lines, "run", environment=side)}
        lines[:] = [line for line in lines if line["run"] not in gone]

    return change


def sides_exchanged(lines: Records) -> None:
    """The timings of A as those of B, and those of B as those of A."""
    for line in of_kind(lines, "timing"):
        line["environment"] = "B" if line["environment"] == "A" else "A"


def without_ends(lines: Records) -> None:
    """Processes that did not end."""
    lines[:] = [line for line in lines if line.get("what") != "process"]


def both_of_one_side(lines: Records) -> None:
    """A pair whose processes are both of A."""
    line = of_kind(lines, "comparison", what="process")[1]
    line |= {"run": lines[0]["run"], "environment": "A"}


def as_a_side(conformance: Records, timed: Records) -> None:
    """Timings without the slower half of their samples, as those of a comparison, which is not held to the sampling
    rule."""
    timed[0]["environment"] = "A"
    for line in of_kind(timed, "timing"):
        kept = sorted(line["samples_s"])[len(line["samples_s"]) // 2]
        line |= {"environment": "A", "samples_s": [s for s in line["samples_s"] if s < kept]}
    of = {"run": timed[0]["run"], "environment": "A", "process": 0, "seconds": 1.0}
    timed.append({"schema": 1, "kind": "comparison", "what": "process"} | of)


def faster_samples(lines: Records) -> None:
    """A comparison without the two slowest samples of each process."""
    for line in of_kind(lines, "timing"):
        kept = sorted(line["samples_s"])[-2]
        line["samples_s"] = [s for s in line["samples_s"] if s < kept]
    judge(lines)


def other_ceilings(name: str, **fields: object) -> Change:
    """Another ceiling in a file that is closed, with the value that fits."""

    def change(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "ceiling", name=name):
            line.update(fields)
            if name == "largest matmul":
                line["flops"] = 2 * line["devices"] * line["n"] ** 3
            work = line.get("flops") or 2 * line["copies"] * line["devices"] * line["nbytes"]
            line["value"] = work / min(line["samples_s"])

    return closed_timings(change)


def without_ceilings(name: str) -> Change:
    """A file that is closed, without the ceilings of this name."""

    def change(conformance: Records, timed: Records) -> None:
        timed[:] = [line for line in timed if (line["kind"], line.get("name")) != ("ceiling", name)]

    return closed_timings(change)


def slow_mode(**fields: object) -> Change:
    """A slow mode that has another excuse than its time."""

    def lie(conformance: Records, timed: Records) -> None:
        (line,) = of_kind(timed, "timing", mode="auto", cadence="isolated")
        line |= {"samples_s": [], "verified": False, "reason": "no"} | fields

    return lie


def unchanged(conformance: Records, timed: Records) -> None:
    """Nothing: the lie is in product.yaml."""


NO_DRIVER = "which no driver writes so"
NOTHING = "and its run compares nothing"

LIES: dict[str, Lie] = {
    "timings without slow samples, as a side of a comparison": Lie(
        as_a_side, "a comparison of A, and not of"
    ),
    "a finding in a run that compares nothing": Lie(compared(), NOTHING),
    "a comparison of one side": Lie(in_comparison(without("B")), "a comparison of A, and not of A and B"),
    "the sides of a comparison, exchanged": Lie(
        in_comparison(sides_exchanged), "in a run or process of the other one"
    ),
    "a comparison whose processes did not end": Lie(
        in_comparison(without_ends), "a timing of process 0, which did not end"
    ),
    "a pair of one side": Lie(in_comparison(both_of_one_side), "process 1 of 'A' is not one of its pair"),
    "a finding that its processes do not give": Lie(
        in_findings(verdict="faster", ratio=0.5, low=0.4, high=0.6, p=0.001, adjusted=0.002),
        "the ratio is 0.5, and its processes give",
    ),
    "a finding of more pairs than there are": Lie(
        in_findings(pairs=PAIRS + 1), "in 7 pairs of processes, and 6 are there"
    ),
    "no change, and nothing compared": Lie(
        in_findings(verdict="no change", pairs=0), "has not changed, and no pair of processes was compared"
    ),
    "a finding of a cadence that nobody knows": Lie(
        in_findings(case="psum/axes=x+y/auto/2x2/float32/64KiB (love)"),
        "is not a case, or a case and its cad",
    ),
    "a line of a comparison about nothing": Lie(
        in_findings(what="miracle"), "'miracle' is not the end of a process or a verdict"
    ),
    "a comparison with less noise than none": Lie(in_findings(noise=-1.0), "`noise` is -1.0"),
    "a comparison with more false alarms than all": Lie(
        in_findings(false_alarms=2.0), "`false_alarms` is 2.0"
    ),
    "a schedule in a run that times": Lie(scheduled(), "is the schedule of a program, and its run judges or"),
    "a schedule of a case that nobody has": Lie(
        scheduled(case="psum/of=love/manual/2x2/float32/4KiB"), "psum/of=love/.*: there is no such case"
    ),
    "a schedule of less memory than none": Lie(scheduled(memory_bytes=-5), "`memory_bytes` is -5"),
    "without the largest product": Lie(
        without_ceilings("largest matmul"), "has ceilings, but not that of largest matmul in float32"
    ),
    "without the bandwidth": Lie(without_ceilings("copy bandwidth"), "but not that of copy bandwidth"),
    "ceilings of one of four devices": Lie(
        other_ceilings("copy bandwidth", devices=1), "is of 1 devices, and the run has 4"
    ),
    "a copy that fits into a cache": Lie(
        other_ceilings("copy bandwidth", nbytes=1 << 22), "copies 4194304 B 4 times, which no version does"
    ),
    "fewer copies in the same time": Lie(
        other_ceilings("copy bandwidth", copies=1), "copies 33554432 B 1 times, which no version does"
    ),
    "a small product that takes long": Lie(other_ceilings("largest matmul", n=100), "is of n = 100, and the"),
    "a product of integers": Lie(
        other_ceilings("largest matmul", dtype="int32"), "is of int32, and the products are of float32 and bf"
    ),
    "a slow mode that was not run": Lie(
        slow_mode(verdict="not_run"), "is timed with verdict not_run, which only a compile-only run"
    ),
    "a slow mode as a known issue": Lie(
        slow_mode(verdict="known", was="fail", link="https://example.org/1"),
        "is known by 'https://example.org/1', which the suite's known_issues.toml does not list",
    ),
    "a chip in the title": Lie(
        unchanged, "`title` names h100, and the records are of 'cpu'", product={"title": "Eight NVIDIA H100"}
    ),
    "a chip in letters that look like its own": Lie(
        unchanged, "`title` names h100, and the records are of 'cpu'", product={"title": "Eight NVIDIA H1OO"}
    ),
    "a chip by the name under which it is sold": Lie(
        unchanged, "`hardware` names v6e, and the records", product={"hardware": "Google Cloud Trillium"}
    ),
    "another kind of devices in the product's name": Lie(
        unchanged, "`name` says tpu-4, and the records are of 4 devices on backend cpu", name="tpu-4"
    ),
    "a chip in the product's name": Lie(unchanged, "`name` names v5e, and the records", name="v5e-4"),
    "a chip by the name of its kind": Lie(
        unchanged, "`hardware` names v5e, and the records", product={"hardware": "4 x TPU v5 lite"}
    ),
    **{
        f"a chip with {how}": Lie(gpus_of_no_name(kind), NO_DRIVER)
        for how, kind in {
            "a space behind its name": "NVIDIA H100 80GB HBM3 ",
            "two spaces in its name": "NVIDIA  H100 80GB HBM3",
            "its name in small letters": "nvidia h100 80gb hbm3",
        }.items()
    },
}

PASSING: dict[str, Lie] = {
    "a comparison without the two slowest samples of each process": Lie(in_comparison(faster_samples), None),
}
"""What is taken on trust."""
