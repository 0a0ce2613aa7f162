# SPDX-License-Identifier: Apache-2.0
"""Lies in several lines at once: each line alone could be true, and the lines that depend on it were changed too."""

import copy
import random
from collections.abc import Callable

from meshmark.levels import known_issues
from meshmark.operations import cases
from meshmark.publish import recomputed
from tests.lies.of_ends import closed, closed_anew
from tests.lies.of_places import closed_timings
from tests.lies.telling import (
    GLOBAL,
    Change,
    Lie,
    Records,
    both,
    change_runs,
    of_kind,
    on_facts,
    on_runs,
)
from tests.submissions import DEVICES, facts, timing


def larger_work(conformance: Records, timed: Records) -> None:
    """Ten times the bytes and the time, so that a rate is what it was."""
    for line in of_kind(timed, "timing"):
        line["cost"] = {name: value * 10 for name, value in line["cost"].items()}
        line["samples_s"] = [s * 10 for s in line["samples_s"]]


def relabelled(conformance: Records, timed: Records) -> None:
    """The times of 64 KiB as those of 1 MiB, in every line of the cell."""
    for line in of_kind(timed, "timing"):
        line["case"] = line["case"].replace("64KiB", "1MiB")
        line["size_bytes"] *= 16


def digest_of(seed: int) -> str:
    """The digest of a rounded case under a seed."""
    case = cases.find(GLOBAL, DEVICES)
    found = recomputed.answer(case.cell, seed, 0.0)
    rounded = [e.astype("float32") for e in found.expected]
    return recomputed.digest_results(
        case, rounded, recomputed.owners(case, {"num_devices": DEVICES, "num_processes": 1})
    )


def another_seed_s_pass(conformance: Records, timed: Records) -> None:
    """The answer of seed 7, where a case failed under that of the run."""
    of_kind(conformance, "conformance", case=GLOBAL, check="numbers")[0]["bits"] = digest_of(7)


def another_seed_s_run(conformance: Records, timed: Records) -> None:
    """The same, in a run line of its own with that seed."""
    moved = [line for line in conformance if line.get("case") == GLOBAL]
    conformance[:] = [line for line in conformance if line.get("case") != GLOBAL]
    run = copy.deepcopy(conformance[0]) | {"run": "abcdef012345", "seed": 7}
    lines = [line | {"run": "abcdef012345", "seed": 7} for line in moved]
    next(line for line in lines if line["check"] == "numbers")["bits"] = digest_of(7)
    conformance += [run, *lines]


def spliced(conformance: Records, timed: Records) -> None:
    """The second half of the cases is of another run of the same machine, under other compiler flags."""
    half = next(
        i
        for i in range(len(conformance) // 2, len(conformance))
        if conformance[i]["check"] == "communication"
    )
    run = copy.deepcopy(conformance[0]) | {"run": "abcdef012345", "started": "2026-11-21T10:00:00Z"}
    run["facts"]["flags"] = run["facts"]["flags"] | {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}
    conformance[half:] = [run, *(line | {"run": "abcdef012345"} for line in conformance[half:])]


def one_run_in_two_files(conformance: Records, timed: Records) -> None:
    """The timings are called those of the run that judged."""
    for line in timed:
        line["run"] = conformance[0]["run"]


def of_another_release(conformance: Records, timed: Records) -> None:
    """A failure that is called known, by an issue of its own that is listed for another release alone."""
    issues = [one for one in known_issues.read_known_issues() if not one.concerns("0.12.0.1", "cpu")]
    listed = issues[0]
    line = of_kind(conformance, "conformance", case=GLOBAL, check="numbers")[0]
    line.update(verdict="known", was="fail", link=listed.link, reason=f"{listed.why} | {listed.symptom}")


def jittered(share: float, shuffle: bool) -> Change:
    """Two processes that timed, and the second is the first with a little noise."""

    def lie(conformance: Records, timed: Records) -> None:
        timed[0]["repeat"] = 2
        draw, more = random.Random(3), []
        for line in of_kind(timed, "timing"):
            samples = [float(f"{s * (1 + share * draw.uniform(-1, 1)):.9g}") for s in line["samples_s"]]
            if shuffle:
                draw.shuffle(samples)
            more.append(line | {"process": 1, "samples_s": samples})
        timed += more

    return lie


def best_processes(keeps: Callable[[str, int], bool]) -> Change:
    """A run of three processes, of which these lines are kept."""

    def lie(conformance: Records, timed: Records) -> None:
        timed[0]["repeat"] = 3
        draw, every = random.Random(5), list(of_kind(timed, "timing"))
        for process in (1, 2):
            for line in every:
                samples = [round(draw.uniform(0.9, 1.2) * s, 9) for s in line["samples_s"]]
                timed.append(line | {"process": process, "samples_s": samples})
        timed[:] = [r for r in timed if r["kind"] != "timing" or keeps(r["case"], r["process"])]

    return lie


def faster_streams(conformance: Records, timed: Records) -> None:
    """Twice as many calls in half of the time each."""
    for line in of_kind(timed, "timing", cadence="stream"):
        line |= {"calls": line["calls"] * 2, "samples_s": [s / 2 for s in line["samples_s"]]}


def of_two_processes(**fields: object) -> Change:
    """One process's records as those of two."""
    two = facts(num_processes=2)
    chosen = {"profile": "standard", "processes": 2, "timed": False}
    return both(
        on_facts(**{name: two[name] for name in ("num_processes", "devices", "group", "flags")}),
        lambda conformance, timed: on_runs(ranks=2, selection=chosen, **fields)(conformance, []),
    )


def without_its_processes(conformance: Records, timed: Records) -> None:
    """The same, and both processes have all devices."""
    of_two_processes()(conformance, timed)
    change_runs([*conformance, *timed], lambda own: {"devices": facts()["devices"]})


def counters_of_its_own(conformance: Records, timed: Records) -> None:
    """Twice the bytes in a global mode, and counters of the submitter's own that have them."""
    line = of_kind(conformance, "conformance", case=GLOBAL, check="communication")[0]
    line["collectives"] = [one | {"bytes": 40 * one["bytes"]} for one in line["collectives"]]
    line["wire_bytes"] *= 40
    counters = {"directory": "counters", "digest": "0123456789abcdef"}
    conformance[0]["selection"] = conformance[0]["selection"] | {"counters": counters}


def repeated(conformance: Records, timed: Records) -> None:
    """Every program ran a hundred times, the lines say, and never differed."""
    conformance[0]["repeat"] = 100
    for line in of_kind(conformance, "conformance"):
        if line["mode"] != "host" and line["check"] == "execute":
            line |= {"runs": 100, "differing_runs": 0}


def no_time_for_it(lines: Records) -> None:
    """The run took a minute, its cases an hour on one core."""
    for line in of_kind(lines, "conformance"):
        if "seconds" in line:
            line["seconds"] *= 900


def fewer_devices_judged(conformance: Records, timed: Records) -> None:
    """Eight devices, and all cases on the meshes of four."""
    on_facts(**{name: facts(num_devices=8)[name] for name in ("num_devices", "devices", "flags")})(
        conformance, timed
    )


def every_error_less(conformance: Records, timed: Records) -> None:
    """Errors and bounds of all rounded cases, halved."""
    for line in of_kind(conformance, "conformance"):
        if line.get("bound"):
            line |= {"error": line["error"] / 2, "bound": line["bound"] / 2}


def another_dtype(conformance: Records, timed: Records) -> None:
    """A case of 32 bits as one of 16, in all of its lines."""
    for line in of_kind(conformance, "conformance", case=GLOBAL):
        line |= {"case": GLOBAL.replace("float32", "bfloat16"), "dtype": "bfloat16"}


def one_mode_as_another(conformance: Records, timed: Records) -> None:
    """The lines of mode auto as those of explicit, which was never run."""
    for line in of_kind(conformance, "conformance", case=GLOBAL):
        line |= {"case": GLOBAL.replace("/auto/", "/explicit/"), "mode": "explicit"}


def both_modes(conformance: Records, timed: Records) -> None:
    """The lines of mode auto once more as those of explicit, seconds and all."""
    lines = copy.deepcopy(of_kind(conformance, "conformance", case=GLOBAL))
    one_mode_as_another(lines, [])
    conformance += lines


def slower_ceilings(conformance: Records, timed: Records) -> None:
    """Ceilings of half the rate, samples and values alike: shares look twice as good."""
    for line in of_kind(timed, "ceiling"):
        line["samples_s"] = [s * 2 for s in line["samples_s"]]
        line["value"] /= 2


def all_taken_away(lines: Records) -> None:
    """Cases of the level were deselected, the line of what was chosen says, and are not there."""
    gone = {line["case"] for line in of_kind(lines, "conformance")[:20]}
    lines[:] = [line for line in lines if line.get("case") not in gone]
    of_kind(lines, "chosen")[0]["deselected"] = len(gone)


def of_cases_that_failed(conformance: Records, timed: Records) -> None:
    """Times of a mode that nobody judged, beside one that passed."""
    timed.append(timing("psum/axes=x+y/pmap/2x2/float32/64KiB", seconds=1.0))


def wrong(conformance: Records, timed: Records) -> None:
    """A program whose values were wrong."""
    (first, *_) = of_kind(timed, "timing")
    first |= {"verdict": "fail", "reason": "4 of 4 elements differ", "samples_s": [], "verified": False}


def probed(conformance: Records, timed: Records) -> None:
    """Capabilities of the devices, in the run line of timings."""
    change_runs(timed, lambda own: {"capabilities": {"x64": "lacks: nobody asked"}})


def elsewhere(conformance: Records, timed: Records) -> None:
    """Another run of another machine, with the samples that are published of another mode."""
    for line in [*conformance, *timed]:
        line["run"] = line["run"][::-1]
        if "seconds" in line:
            line["seconds"] *= 1.37
    lines = of_kind(timed, "timing", cadence="isolated")
    every = [line["samples_s"] for line in lines]
    for line, samples in zip(lines, every[1:] + every[:1], strict=True):
        line["samples_s"] = samples


def gpus_of_no_name(name: str) -> Change:
    """GPUs, of a kind whose peaks nobody can look up."""
    return on_facts(backend="gpu", device_kind=name, virtual=False, flags={})


def better_of_two_runs(conformance: Records, timed: Records) -> None:
    """The cadence that was faster in a second run, in a file that looks like that of one run that was interrupted."""
    lines = of_kind(timed, "timing")
    first, second = ([line for line in lines if line["cadence"] == name] for name in ("isolated", "stream"))
    first[-1]["seconds"] = 1.0
    again = copy.deepcopy(timed[0]) | {"run": "abcdef012345", "started": "2026-11-20T11:00:00Z"}
    rest = [line | {"run": again["run"]} for line in second]
    timed[:] = [timed[0], *of_kind(timed, "ceiling"), *first, again, *rest]


def more_work(**fields: object) -> Change:
    """More work in every timing than all pairs of its elements take."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "timing"):
            line.update(fields)

    return lie


LIES: dict[str, Lie] = {
    "the better cadences of two runs, as one that was interrupted": Lie(
        better_of_two_runs, "timed in process 0 again after process 0, and a resumed run goes on"
    ),
    "ten times the bytes in ten times the time": Lie(larger_work, "cost .* is .* in the table, not"),
    "times of 64 KiB as those of 1 MiB": Lie(relabelled, "cost nbytes is 1048576 in the table, not 65536"),
    "a pass of another seed in the place of a failure": Lie(
        another_seed_s_pass, "bits .* are not those of seed 0"
    ),
    "a pass of another seed, in a run of its own": Lie(another_seed_s_run, "the runs differ in seed"),
    "two runs under two sets of flags as one": Lie(spliced, "the runs differ in flags.XLA_FLAGS"),
    "one run that judges and times": Lie(one_run_in_two_files, "has two run lines"),
    "a failure excused by an issue of another release": Lie(of_another_release, "does not list for it"),
    "a second process that is the first, a little noisy": Lie(
        jittered(1e-4, False), "rise and fall as those of line"
    ),
    "a second process that is the first, noisy and shuffled": Lie(
        jittered(1e-4, True), "those of line .*, with a little noise"
    ),
    "the best of three processes": Lie(
        best_processes(lambda case, process: process < 2), "not timed in process 2, and its run had 3"
    ),
    "the best processes of one cell": Lie(
        best_processes(lambda case, process: process != 1 or not case.startswith(GLOBAL.split("/")[0])),
        "not timed in process 1, and its run had 3",
    ),
    "several processes from one": Lie(of_two_processes(), "no level 'L0' of 2 processes"),
    "several processes that share every device": Lie(without_its_processes, "no level 'L0' of 2 processes"),
    "more bytes, and counters of one's own": Lie(counters_of_its_own, "over the ceiling of"),
    "a hundred executions of each program": Lie(repeated, "ran 1 times, and the run repeats each 100 times"),
    "a run shorter than its cases": Lie(
        closed(no_time_for_it, end={"ended": "2026-11-20T10:01:00Z"}), "and its run 180 s at most"
    ),
    "eight devices, judged on four": Lie(fewer_devices_judged, "is not what the selection of its run gives"),
    "all errors and bounds halved": Lie(every_error_less, "is not one of the reference's"),
    "ceilings of half the rate": Lie(slower_ceilings, "sampling stops at 5 samples"),
    "failures deselected afterwards": Lie(
        closed_anew(all_taken_away), "claims L0, which is not met .*5 missing"
    ),
    "another chip in the product's own words": Lie(
        lambda conformance, timed: None,
        "`hardware` names h100, and the records are of 'cpu'",
        product={"hardware": "one NVIDIA H100"},
    ),
    "a chip of nearly the same name": Lie(
        gpus_of_no_name("NVIDIA \u041d100 80GB HBM3"), "with letters that no driver writes"
    ),
    "a product of nearly the same name": Lie(
        lambda conformance, timed: None, "`name`: use lower-case letters", name="cpu\u20104"
    ),
    "a JAX of the next year": Lie(
        on_facts(versions=facts()["versions"] | {"jax": "0.19.0", "jaxlib": "0.19.0"}),
        "is in the published 0.12.0.1/cpu-4",
    ),
    "exit code 1, and every timing is right": Lie(
        closed_timings(code=1), "exit code 1, and has no timing that is not right"
    ),
    "exit code 0, and a timing is wrong": Lie(
        closed_timings(wrong), "exit code 0, and has timings with verdict fail"
    ),
    "answers of probes, of a run that times": Lie(
        probed, "has answers of probes .x64., which only judging asks"
    ),
    "timed programs of more operations than there can be": Lie(
        more_work(flops=1e30), "and each element with every other one takes"
    ),
    "timed programs of more memory than there can be": Lie(
        more_work(temp_bytes=10**20), "for temporaries on a device, and all pairs of elements"
    ),
    "samples of another published case": Lie(
        elsewhere, "timings have the samples of the published", name="mine"
    ),
    "a chip without a name": Lie(
        gpus_of_no_name("GPU"), "`name` says cpu-4, and the records are of 4 devices on backend gpu"
    ),
}

PASSING: dict[str, Lie] = {
    "twice the calls in streams of half the time": Lie(faster_streams, None),
    "a case of 32 bits as one of 16": Lie(another_dtype, None),
    "a mode as another one": Lie(one_mode_as_another, None),
    "a mode copied as another one": Lie(both_modes, None),
}
"""What is taken on trust. A note tells of the second: its results hold zeros, of which nobody knows the sign."""
