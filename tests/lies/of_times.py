# SPDX-License-Identifier: Apache-2.0
"""Lies about times: samples, ceilings, controls, comparisons and schedules that nobody measured."""

import random
from collections.abc import Callable

from meshmark.operations import cases
from tests.lies.telling import GLOBAL, Change, Lie, Records, of_kind, on_runs
from tests.submissions import DEVICES, judged


def scaled(factor: float, settings: bool = False) -> Change:
    """All samples times a factor, and the time that the run gives too."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "timing"):
            line["samples_s"] = [float(f"{s * factor:.7g}") for s in line["samples_s"]]
        if settings:
            for line in of_kind(timed, "run"):
                line["timing"] = line["timing"] | {"seconds": line["timing"]["seconds"] * factor}

    return lie


def dropped(of: Callable[[dict], bool]) -> Change:
    """The slower half of the samples of some timings."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in filter(of, of_kind(timed, "timing")):
            kept = sorted(line["samples_s"])[len(line["samples_s"]) // 2]
            line["samples_s"] = [s for s in line["samples_s"] if s < kept]

    return lie


def in_order(conformance: Records, timed: Records) -> None:
    """Samples that rise evenly."""
    for line in of_kind(timed, "timing"):
        line["samples_s"] = sorted(line["samples_s"])


def copied(conformance: Records, timed: Records) -> None:
    """One mode's samples for all, a little slower each."""
    lines = of_kind(timed, "timing")
    for number, line in enumerate(lines):
        line["samples_s"] = [float(f"{s * (1 + number / 50):.7g}") for s in lines[0]["samples_s"]]


def faster_ceilings(conformance: Records, timed: Records) -> None:
    """A hundredfold machine, ceilings and all."""
    scaled(0.01, settings=True)(conformance, timed)
    for line in of_kind(timed, "ceiling"):
        line["samples_s"] = [s / 100 for s in line["samples_s"]]
        line["value"] *= 100


def in_every_timing(**fields: object) -> Change:
    """Other fields in every timing."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "timing"):
            line.update(fields)

    return lie


def one_mode_in_another_order(conformance: Records, timed: Records) -> None:
    """One mode's samples for all, each in an order of its own."""
    lines = of_kind(timed, "timing")
    for number, line in enumerate(lines):
        line["samples_s"] = list(lines[0]["samples_s"])
        random.Random(number).shuffle(line["samples_s"])


def few_values(conformance: Records, timed: Records) -> None:
    """Samples of somebody who makes up three figures."""
    for line in of_kind(timed, "timing"):
        draw = random.Random(line["case"])
        line["samples_s"] = [draw.choice((0.00101, 0.00112, 0.00123)) for _ in line["samples_s"]]


def failing(conformance: Records, timed: Records) -> None:
    """The timed case, judged too, and wrong."""
    case = cases.find("psum/axes=x+y/manual/2x2/float32/64KiB", DEVICES)
    lines = judged(case)
    lines[2].update(verdict="fail", reason="4 of 16384 elements differ")
    conformance += lines


def without_a_mode(conformance: Records, timed: Records) -> None:
    """The slower mode left out."""
    timed[:] = [line for line in timed if line.get("mode") != "auto"]


def in_samples(change: Callable[[list[float]], list[float]]) -> Change:
    """Other samples in every timing."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "timing"):
            line["samples_s"] = change(line["samples_s"])

    return lie


def clipped(samples: list[float]) -> list[float]:
    """The slower half as slow as the median."""
    middle = sorted(samples)[len(samples) // 2]
    return [min(s, middle) for s in samples]


def a_tenth_more(conformance: Records, timed: Records) -> None:
    """One mode's samples times 1.1 for another, in another order."""
    manual, auto = (of_kind(timed, "timing", mode=mode, cadence="isolated")[0] for mode in ("manual", "auto"))
    auto["samples_s"] = [float(f"{s * 1.1:.7g}") for s in manual["samples_s"]]
    random.Random(1).shuffle(auto["samples_s"])


def twice(conformance: Records, timed: Records) -> None:
    """A faster timing beside the first of its kind."""
    (first, *_) = of_kind(timed, "timing")
    timed.append(first | {"samples_s": [float(f"{s * 0.9:.7g}") for s in reversed(first["samples_s"])]})


def same_control(factor: float) -> Change:
    """A control row that is the program's own samples, times a factor: no noise at all."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "timing"):
            line["control_s"] = [float(f"{s * factor:.9g}") for s in line["samples_s"]]

    return lie


def two_ceilings(conformance: Records, timed: Records) -> None:
    """A slower ceiling beside the first, of which shares look better."""
    (first, *_) = of_kind(timed, "ceiling")
    slower = {"samples_s": [s * 3 for s in first["samples_s"]], "value": first["value"] / 3}
    timed.insert(2, first | slower)


def compared(**fields: object) -> Change:
    """A finding of a comparison."""
    found = {
        "verdict": "slower",
        "reason": "",
        "ratio": 1.2,
        "low": 1.1,
        "high": 1.3,
        "p": 0.001,
        "pairs": 12,
    }

    def lie(conformance: Records, timed: Records) -> None:
        head = {"schema": 1, "kind": "comparison", "what": "verdict", "run": timed[0]["run"]}
        timed.append(head | {"case": f"{GLOBAL} isolated"} | found | fields)

    return lie


def scheduled(**fields: object) -> Change:
    """The line of a schedule."""

    def lie(conformance: Records, timed: Records) -> None:
        own = set(conformance[1]) - {"check", "error", "bound", "bits", "collectives", "wire_bytes", "theory"}
        head = {name: conformance[1][name] for name in own - {"excess_bytes", "seconds"}}
        timed.append(head | {"kind": "schedule", "run": timed[0]["run"], "place": "cpu"} | fields)

    return lie


LIES: dict[str, Lie] = {
    "times 10 times too fast": Lie(scaled(0.1), "samples took 1.% of the time that the run gives"),
    "times 1,000 times too fast": Lie(scaled(0.001), "samples took 2% of the time|an isolated call of"),
    "times 1,000 times too fast, settings too": Lie(
        scaled(0.001, settings=True), "an isolated call of 1.*e-06 s"
    ),
    "a hundredfold machine": Lie(faster_ceilings, "is more than 2 cores of any CPU have"),
    "the slower half of the samples dropped": Lie(dropped(lambda r: True), "of the time that the run gives"),
    "the same in one mode": Lie(
        dropped(lambda r: r["mode"] == "manual"), "the modes of this cell have 12, 24 samples"
    ),
    "samples that rise evenly": Lie(in_order, "samples are in order of their size"),
    "one mode's samples for all": Lie(copied, "rise and fall as those of line"),
    "a cadence that was not taken": Lie(
        on_runs(timing={"cadences": ["stream"], "least": 10, "most": 24}),
        "cadence isolated, and the run took stream",
    ),
    "the best of several processes": Lie(in_every_timing(process=4), "process 4, and the run had 1"),
    "one mode's samples in other orders": Lie(
        one_mode_in_another_order, "its samples are those of line .* in another order"
    ),
    "samples of three values": Lie(few_values, "24 samples have 3 different values"),
    "a timing of a case that fails": Lie(failing, "timed with values that are right, and judged fail"),
    "the slower mode left out": Lie(without_a_mode, "/auto/.* is not timed in cadence isolated"),
    "the slower half of the samples cut": Lie(in_samples(clipped), "12 of 24 samples are the slowest"),
    "the fastest sample so far": Lie(
        in_samples(lambda samples: [min(samples[: i + 1]) for i in range(len(samples))]),
        "samples are the slowest|different values",
    ),
    "samples of three digits": Lie(
        in_samples(lambda samples: [float(f"{s:.2e}") for s in samples]), "more than 3 digits"
    ),
    "a tenth more than another mode, shuffled": Lie(a_tenth_more, "those of line .* times 1.1"),
    "a faster timing of the same": Lie(twice, "is timed in line .* too"),
    "programs compiled in no time": Lie(in_every_timing(compile_s=0.0), "no compiler is as fast"),
    "a line shorter than its samples": Lie(in_every_timing(seconds=1e-3), "the line took 0.001 s"),
    "16 calls in a sample": Lie(in_every_timing(calls=16), "16 calls per sample of isolated calls"),
    "a control without noise": Lie(same_control(1.0), "its samples are those of line|rise and fall as those"),
    "a control with its factor": Lie(same_control(1.001), "its samples are those of line|rise and fall as"),
    "a timed psum without a collective": Lie(
        in_every_timing(communication=[], collectives=0, wire_bytes=0.0), "must have all-reduce of"
    ),
    "more collectives than are listed": Lie(
        in_every_timing(
            communication=[{"kind": "all-reduce", "bytes": 65536, "groups": "1x4", "trips": 1}],
            collectives=7,
            wire_bytes=98304.0,
        ),
        "has 1 collectives, and counts 7",
    ),
    "a timing that departs from its contract": Lie(
        in_every_timing(contract="other groups"), "passes, and departs from its contract"
    ),
    "times of a profiler in another cadence": Lie(
        in_every_timing(wire_s=[1e-9]), "in cadence isolated with `wire_s`"
    ),
    "compiled for days": Lie(in_every_timing(compile_s=1e8), "to compile, and its run began later"),
    "timed with inputs of another seed": Lie(in_every_timing(seed=7), "is of seed 7, and its run of another"),
    "a slower ceiling beside the first": Lie(two_ceilings, "is in line 2 too, of the same run"),
    "times of programs that nobody verified": Lie(
        in_every_timing(verified=False), "wrong values must not have"
    ),
    "a skew of one process": Lie(in_every_timing(skew={"median_s": 0.0, "slowest": [24]}), "with `skew`"),
    "a slowdown without a difference": Lie(compared(p=0.9, adjusted=0.95), "slower, and its p is 0.95"),
    "a slowdown that is faster": Lie(
        compared(ratio=0.8, low=0.7, high=0.9), "slower, and its ratio and interval are 0.7, 0.8, 0.9"
    ),
    "a speedup whose interval has 1": Lie(
        compared(verdict="faster", ratio=0.9, low=0.7, high=1.2), "faster, and its ratio and interval"
    ),
    "a slowdown of nothing": Lie(compared(pairs=0), "no pair of processes was compared"),
    "a slowdown by no number": Lie(compared(ratio="nan"), "its ratio and interval are 1.1, nan, 1.3"),
    "a verdict that no comparison gives": Lie(
        compared(verdict="the best"), "is not a verdict of a comparison"
    ),
    "a schedule of another place": Lie(scheduled(place="v5e:2x4"), "is compiled for 'v5e:2x4'"),
    "communication that takes less than nothing": Lie(scheduled(exposed_s=-1.0), "`exposed_s` is -1.0"),
    "a comparison of a case that nobody has": Lie(
        compared(case="psum/of=love/manual/2x2/float32/4KiB isolated"), "there is no such case"
    ),
    "a comparison of no case": Lie(compared(case="psum/of=love isolated"), "there is no such case"),
}
