# SPDX-License-Identifier: Apache-2.0
"""Lies with the samples of other programs, changed; timings of which some are left out; and products that are made to
be slow to review, or to be read otherwise than they were checked."""

import copy
import hashlib
import random

from tests.lies.of_places import closed_timings
from tests.lies.of_runs import renamed
from tests.lies.telling import Change, Lie, Records, both, change_runs, of_kind, on_facts
from tests.submissions import facts, sampled


def modes(timed: Records) -> tuple[dict, dict]:
    """The timings of two modes in one cadence."""
    first, second, *_ = of_kind(timed, "timing", cadence="isolated")
    return first, second


def rounded(samples: list[float]) -> list[float]:
    """The samples with seven digits, as a run writes them."""
    return [float(f"{s:.7g}") for s in samples]


def moved(conformance: Records, timed: Records) -> None:
    """A mode has the samples of another one, 50 microseconds more each, in another order."""
    first, second = modes(timed)
    second["samples_s"] = rounded([s + 5e-5 for s in first["samples_s"]])
    random.Random(7).shuffle(second["samples_s"])


def mirrored(conformance: Records, timed: Records) -> None:
    """A mode has the samples of another one, its slowest as the fastest."""
    first, second = modes(timed)
    most = min(first["samples_s"]) + max(first["samples_s"])
    second["samples_s"] = rounded([most - s for s in first["samples_s"]])


def again(conformance: Records, timed: Records) -> None:
    """The first half of the samples of each program twice."""
    for line in of_kind(timed, "timing"):
        half = line["samples_s"][: len(line["samples_s"]) // 2]
        line["samples_s"] = half + half


def within(conformance: Records, timed: Records) -> None:
    """A third of the samples of a program are those of another one."""
    first, second = modes(timed)
    second["samples_s"] = second["samples_s"][:16] + first["samples_s"][:8]


def published_again(conformance: Records, timed: Records) -> None:
    """Published samples, a tenth faster, 20 microseconds less and in another order."""
    renamed(new_runs=True)(conformance, timed)
    for line in of_kind(conformance, "conformance"):
        if "seconds" in line:
            line["seconds"] = round(line["seconds"] * 1.37, 6)
    for line in of_kind(timed, "timing"):
        line["samples_s"] = rounded([0.9 * s - 2e-5 for s in line["samples_s"]])
        random.Random(line["case"] + line["cadence"]).shuffle(line["samples_s"])


def whole_quick_profile(conformance: Records, timed: Records) -> None:
    """The run chose every cell of its profile, the run line says, and one is there."""
    timed[0]["selection"] = {"profile": "quick", "timed": True}


def no_stream(conformance: Records, timed: Records) -> None:
    """The streams of one mode are not there."""
    *_, last = of_kind(timed, "timing", cadence="stream")
    first = of_kind(timed, "timing", cadence="stream")[0]
    timed[:] = [line for line in timed if line is not first]
    assert last in timed


def runs_without_end(number: int, commits: bool = False) -> Change:
    """So many further run lines, each of its own commit."""

    def lie(conformance: Records, timed: Records) -> None:
        for i in range(number):
            one = copy.deepcopy(conformance[0]) | {"run": f"{i:012x}"}
            if commits:
                one["facts"]["suite"]["commit"] = hashlib.sha1(str(i).encode()).hexdigest()
            conformance.append(one)

    return lie


def selections_without_end(conformance: Records, timed: Records) -> None:
    """Fifty further run lines, each with a selection of its own."""
    for i in range(50):
        conformance.append(
            copy.deepcopy(conformance[0])
            | {"run": f"{i:012x}", "selection": {"profile": "full", "limit": i, "timed": False}}
        )


def nested(depth: int) -> dict | int:
    """Objects inside each other."""
    found: dict | int = 1
    for _ in range(depth):
        found = {"x": found}
    return found


def unread(conformance: Records, timed: Records) -> None:
    """The slower mode has a field of which the report reads nothing, and so it does not read the line."""
    for line in of_kind(timed, "timing", mode="auto"):
        line["x"] = nested(80)


def hidden(conformance: Records, timed: Records) -> None:
    """A capability is called absent, and none of its cases is there."""
    change_runs(conformance, lambda own: {"capabilities": {"fp8": "lacks: the probe found an error"}})


def better_cells(conformance: Records, timed: Records) -> None:
    """The better one of two runs for a cell, in one run line."""
    for line in of_kind(timed, "timing", cadence="stream"):
        line["samples_s"] = sampled(f"{line['case']} of another run")


def published_verdicts(conformance: Records, timed: Records) -> None:
    """The verdicts that were published, each case a little slower or faster; and times of one's own."""
    renamed(new_runs=True)(conformance, timed)
    draw = random.Random(11)
    for line in of_kind(conformance, "conformance"):
        if "seconds" in line:
            line["seconds"] = round(line["seconds"] * draw.uniform(1.005, 1.03), 6)
    for line in of_kind(timed, "timing"):
        line["samples_s"] = sampled(f"{line['case']} of another machine {line['cadence']}")


LIES: dict[str, Lie] = {
    "a mode with another one's samples and a constant, shuffled": Lie(
        moved, "its samples are those of line .* of timing.jsonl.gz, times 1 and with a constant"
    ),
    "a mode with another one's samples, mirrored": Lie(
        mirrored, "its samples are those of line .*, mirrored"
    ),
    "half of the samples twice": Lie(again, "its samples 12 to 17 are those of the same line"),
    "some samples of another program": Lie(within, "its samples 16 to 21 are those of line"),
    "published samples, scaled, moved and shuffled": Lie(
        published_again, "a timing has the samples of .* of the published 0.12.0.1/cpu-4, times", name="mine"
    ),
    "cells that were chosen and not timed": Lie(
        closed_timings(whole_quick_profile), "213 of 216 cases of its selection are not timed"
    ),
    "a cadence that one mode does not have": Lie(
        both(no_stream, closed_timings()), "is not timed in cadence stream in process 0"
    ),
    "a release in another spelling": Lie(
        on_facts(versions=facts()["versions"] | {"jax": "0.12.0.01"}),
        "JAX '0.12.0.01', which is spelled 0.12.0.1",
    ),
    "run lines without end": Lie(runs_without_end(300), "302 runs, and a product has 200 at most"),
    "commits without end": Lie(
        runs_without_end(30, commits=True), "31 commits of the suite, and a product has 20 at most"
    ),
    "selections without end": Lie(
        selections_without_end, "selections of cases, and a product has 40 at most"
    ),
    "a million devices": Lie(
        on_facts(**{n: facts(num_devices=1 << 20)[n] for n in ("num_devices", "flags")}),
        "no must-pass list for 1048576 devices: use 1 to 16384",
    ),
    "a slow mode that the report does not read": Lie(
        unread, "not read by the report .*more than 60 brackets inside each other"
    ),
}

PASSING: dict[str, Lie] = {
    "a capability that is called absent": Lie(hidden, None),
    "the better cells of two runs, as one run": Lie(better_cells, None),
    "published verdicts, with slightly other seconds": Lie(published_verdicts, None, name="mine"),
}
"""What is taken on trust: only the device knows what a probe of it found, and which of two runs a cell is from. A
second run of a quiet machine may take nearly the same seconds as the published one."""
