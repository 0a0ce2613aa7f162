# SPDX-License-Identifier: Apache-2.0
"""Lies of parts that do not fit each other: the samples of other programs with a little noise, programs that are timed
and judged otherwise, findings that their processes do not give, and words that say more than the records."""

import random
from collections.abc import Callable

from meshmark.operations import cases
from meshmark.operations.record_lines import case_head
from tests.lies.of_covers import in_comparison, judge
from tests.lies.of_ends import closed_anew
from tests.lies.of_runs import renamed
from tests.lies.telling import GLOBAL, Change, Lie, Records, change_runs, in_seconds, of_kind
from tests.submissions import DEVICES, timing


def noisy(samples: list[float], name: str) -> list[float]:
    """Samples with a noise of a ten-thousandth, in another order."""
    draw = random.Random(name)
    found = [float(f"{s * (1 + 1e-4 * draw.uniform(-1, 1)):.9g}") for s in samples]
    draw.shuffle(found)
    return found


def another_mode_noisy(conformance: Records, timed: Records) -> None:
    """A mode has the samples of another one."""
    first, second, *_ = of_kind(timed, "timing", cadence="isolated")
    second["samples_s"] = noisy(first["samples_s"], "a mode")


def own_control(conformance: Records, timed: Records) -> None:
    """The control of a program has the samples of the program."""
    first = of_kind(timed, "timing", cadence="isolated")[0]
    first["control_s"] = noisy(first["samples_s"], "a control")


def published_noisy(conformance: Records, timed: Records) -> None:
    """Published samples, and other seconds of each case."""
    renamed(new_runs=True)(conformance, timed)
    for line in of_kind(conformance, "conformance"):
        if "seconds" in line:
            line["seconds"] = round(line["seconds"] * 1.37, 6)
    for line in of_kind(timed, "timing"):
        line["samples_s"] = noisy(line["samples_s"], line["case"] + line["cadence"])


def timed_as_judged(**fields: object) -> Change:
    """A program that was judged is timed too, alone in its file, and its line has these fields."""

    def lie(conformance: Records, timed: Records) -> None:
        timed[0]["selection"] = {"profile": "quick", "timed": True, "modes": ["auto"]}
        timed[:] = [line for line in timed if line["kind"] != "timing"]
        for cadence in ("isolated", "stream"):
            timed.append(timing(GLOBAL, cadence) | fields)
        timed[-1]["seconds"] = 1.0

    return lie


def with_collective(conformance: Records, timed: Records) -> None:
    """A collective is sent in two halves where it is timed."""
    timed_as_judged()(conformance, timed)
    for line in of_kind(timed, "timing"):
        (one,) = line["communication"]
        line["communication"] = [one | {"bytes": one["bytes"] // 2}] * 2
        line["collectives"] = 2


def found_slower(**fields: object) -> Callable[[Records], None]:
    """B is half slower in every process, and each verdict has these fields."""

    def change(lines: Records) -> None:
        for line in of_kind(lines, "timing", environment="B"):
            line["samples_s"] = [float(f"{s * 1.5:.7g}") for s in line["samples_s"]]
        judge(lines)
        for line in of_kind(lines, "comparison", what="verdict"):
            line.update(fields)

    return change


def slowest_not_told(lines: Records) -> None:
    """The verdict of one program is not there."""
    lines.remove(of_kind(lines, "comparison", what="verdict")[0])


def slowest_left_out(lines: Records) -> None:
    """One program is left out, and its processes are all there."""
    own = of_kind(lines, "comparison", what="verdict")
    for line in own:
        if line["case"].startswith(own[0]["case"]):
            kept = {name: line[name] for name in ("schema", "kind", "what", "run", "case")}
            line.clear()
            line.update(kept | {"verdict": "left out", "reason": "B: fail: it did not end"})


def unchanged(conformance: Records, timed: Records) -> None:
    """Nothing: the lie is in product.yaml."""


def timed_though_wrong(conformance: Records, timed: Records) -> None:
    """A program has times, and its numbers are a known issue."""
    timed_as_judged()(conformance, timed)
    line = of_kind(conformance, "conformance", case=GLOBAL, check="numbers")[0]
    line |= {
        "verdict": "known",
        "was": "fail",
        "link": "https://example.org/1",
        "reason": "wrong | 4 of 4 elements",
    }


def at_once(conformance: Records, timed: Records) -> None:
    """Calls of a tenth of the time that the devices are busy with them."""
    timed[0]["timing"]["cadences"] = ["isolated", "stream", "device"]
    of_kind(timed, "timing")[-1].pop("seconds")
    for mode in ("manual", "auto", "explicit"):
        line = timing(f"psum/axes=x+y/{mode}/2x2/float32/64KiB", "device")
        samples = [round(10 * s, 9) for s in line["samples_s"][:10]]
        each = {f"/device:CPU:{i}": sorted(samples)[0] for i in range(4)}
        apart = {name: [1e-5 * (i + 1) for i in range(10)] for name in ("launch_skew_s", "wire_s")}
        timed.append(line | {"samples_s": samples, "per_device_s": each} | apart)
    timed[-1]["seconds"] = 1.0


def excused(check: str, reason: str) -> Change:
    """A failure of a case that no level needs is called unsupported."""

    def lie(conformance: Records, timed: Records) -> None:
        own = of_kind(conformance, "conformance", case=GLOBAL)
        line = next(line for line in own if line["check"] == check)
        kept = {name: line[name] for name in case_head(cases.find(GLOBAL, DEVICES), 0, "conformance")}
        line.clear()
        line |= kept | {"run": own[0]["run"], "check": check, "verdict": "unsupported", "reason": reason}

    return lie


def absent_and_timed(conformance: Records, timed: Records) -> None:
    """A capability is called absent where cases are judged, and a program of it has times."""
    change_runs(conformance, lambda own: {"capabilities": {"x64": "lacks: the probe found an error"}})
    name = GLOBAL.replace("float32", "float64")
    timed[0]["selection"] = {"profile": "full", "timed": True, "modes": ["auto"], "capabilities": ["x64"]}
    timed[:] = [line for line in timed if line["kind"] != "timing"]
    timed += [timing(name), timing(name, "stream", seconds=1.0)]


LIES: dict[str, Lie] = {
    "wrong numbers that are called unsupported": Lie(
        excused("numbers", "4 of 4 elements differ"),
        "is unsupported in its check numbers, and only a program",
    ),
    "an exception that is called unsupported": Lie(
        excused("execute", "ValueError: no"), "is unsupported, and its reason names no optional capability"
    ),
    "a capability that is called absent, and timed": Lie(
        absent_and_timed, "passes, and another run of this product lacks the capability x64"
    ),
    "times of a program whose numbers are known to be wrong": Lie(
        timed_though_wrong, "timed with values that are right, and judged fail"
    ),
    "calls that are shorter than the devices are busy": Lie(
        at_once, "a call in cadence isolated takes .* and its devices are busy for"
    ),
    "a mode with another one's samples, noisy and shuffled": Lie(
        another_mode_noisy, "its samples are those of line .*, with a little noise"
    ),
    "a control with its program's samples, noisy and shuffled": Lie(
        own_control, "its samples are those of line .*, with a little noise"
    ),
    "published samples, noisy and shuffled": Lie(
        published_noisy, "has the samples of .* of the published 0.12.0.1/cpu-4, with a little", name="mine"
    ),
    "fewer operations where a program is timed": Lie(
        timed_as_judged(flops=5.0), "`flops` is not that of the same program in line"
    ),
    "other collectives where a program is timed": Lie(
        with_collective, "`collectives` is not that of the same program in line"
    ),
    "every case 4000 times slower, in half an hour": Lie(
        closed_anew(lambda lines: in_seconds(lambda s: s * 4000)(lines, [])),
        "that is more than all cores have, 2",
    ),
    "a slowdown that is called no change": Lie(
        in_comparison(found_slower(verdict="no change")), "no change, and its interval is"
    ),
    "a finding of a smaller p than its processes give": Lie(
        in_comparison(found_slower(verdict="slower", p=1e-6, adjusted=2e-6)), "p is 1e-06, and its pairs give"
    ),
    "a finding that its adjusted p does not give": Lie(
        in_comparison(found_slower(verdict="slower")), "slower, and its adjusted p is 0.0312"
    ),
    "a finding with a narrower interval": Lie(
        in_comparison(found_slower(low=1.49, high=1.51)), "the interval .* is narrower than"
    ),
    "a finding that is not told": Lie(in_comparison(slowest_not_told), "was compared, and has no verdict"),
    "a finding that is left out": Lie(in_comparison(slowest_left_out), "is left out, and its processes have"),
    "more devices in the product's name": Lie(
        unchanged, "`name` says cpu-64, and the records are of 4 devices of one process", name="cpu-64"
    ),
    "more processes in the product's name": Lie(
        unchanged, "`name` says cpu-4x1, and the records are of 4 devices of one process", name="cpu-4x1"
    ),
}
