# SPDX-License-Identifier: Apache-2.0
"""The catalogue of lies: what somebody might submit who did not run what he says, and what is said to it.

A liar knows the format: hashes, totals, environment and statement are made anew after each lie. A lie takes the records
of an accepted product, those of conformance and those of timings, and changes them. `None` as the answer: the lie
passes, and docs/submitting.md says that this is taken on trust.
"""

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from meshmark.levels import known_issues
from meshmark.operations import cases
from meshmark.records import closing
from tests import submissions
from tests.submissions import DEVICES, facts, judged, run_line, timing

ROUNDED = "matmul/rows=x,inner=y,check=rounded,precision=highest/manual/2x2/float32/n64"
"""A case that is judged by a bound."""

GLOBAL = "psum/axes=x+y/auto/2x2/float32/4KiB"
"""A case in which the compiler chooses the collectives."""

Records = list[dict]


def whole() -> tuple[Records, Records]:
    """What the lies begin with: L0 and three more cases on four virtual devices, and timings of three modes."""
    chosen = [
        "psum/axes=x+y/manual/2x2/float32/4KiB",
        "all_gather/axes=x+y,dim=0,tiled/manual/2x2/float32/4KiB",
        GLOBAL,
        ROUNDED,
        ROUNDED.replace("/manual/", "/auto/"),
    ]
    conformance = submissions.level()
    for name in chosen:
        conformance += judged(cases.find(name, DEVICES))
    modes = ("manual", "auto", "explicit")
    names = [f"psum/axes=x+y/{mode}/2x2/float32/64KiB" for mode in modes]
    timed = submissions.timed()[:3]
    timed[0]["selection"] = {"profile": "quick", "timed": True}
    timed += [timing(name, cadence) for cadence in ("isolated", "stream") for name in names]
    return conformance, timed


def change_runs(lines: Records, change: Callable[[dict], dict]) -> None:
    """Other facts in every run line."""
    for line in lines:
        if line["kind"] == "run":
            line["facts"] = line["facts"] | change(line["facts"])


def of_kind(lines: Records, kind: str, **wanted: str) -> Records:
    """The lines of a kind, and with these fields."""
    return [r for r in lines if r["kind"] == kind and all(r.get(k) == v for k, v in wanted.items())]


def from_the_table(conformance: Records, timed: Records) -> None:
    """An L0 "on TPU v5 lite", written from the case table alone."""
    where = [{"id": i, "process": 0, "coords": [i % 2, i // 2, 0]} for i in range(DEVICES)]
    tpu = {"backend": "tpu", "device_kind": "TPU v5 lite", "virtual": False, "devices": where}
    for lines in (conformance, timed):
        change_runs(lines, lambda facts: tpu)
    for line in of_kind(conformance, "conformance"):
        if "error" in line:
            line |= {"error": 0.0, "bound": 1.0, "bits": "0123456789abcdef"}
        line.pop("collectives", None)
        line.pop("wire_bytes", None)


def scaled(factor: float, settings: bool = False) -> Callable[[Records, Records], None]:
    """All samples times a factor, and the time that the run gives too."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "timing"):
            line["samples_s"] = [float(f"{s * factor:.7g}") for s in line["samples_s"]]
        if settings:
            for line in of_kind(timed, "run"):
                line["timing"] = line["timing"] | {"seconds": line["timing"]["seconds"] * factor}

    return lie


def dropped(of: Callable[[dict], bool]) -> Callable[[Records, Records], None]:
    """The slower half of the samples of some timings."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in filter(of, of_kind(timed, "timing")):
            kept = sorted(line["samples_s"])[len(line["samples_s"]) // 2]
            line["samples_s"] = [s for s in line["samples_s"] if s < kept]

    return lie


def numbers(**fields: object) -> Callable[[Records, Records], None]:
    """Other fields in the numbers of the rounded case."""

    def lie(conformance: Records, timed: Records) -> None:
        of_kind(conformance, "conformance", case=ROUNDED, check="numbers")[0].update(fields)

    return lie


def smaller_error(conformance: Records, timed: Records) -> None:
    """A tenth of the error that was measured."""
    line = of_kind(conformance, "conformance", case=ROUNDED, check="numbers")[0]
    line["error"] /= 10


def other_error(conformance: Records, timed: Records) -> None:
    """A larger error than the nearest number has, and not that of any number."""
    line = of_kind(conformance, "conformance", case=ROUNDED, check="numbers")[0]
    line["error"] = (line["error"] + line["bound"]) / 2


def random_digests(conformance: Records, timed: Records) -> None:
    """Digests out of the air."""
    draw = random.Random(0)
    for line in of_kind(conformance, "conformance"):
        if "bits" in line:
            line["bits"] = f"{draw.getrandbits(64):016x}"


def another_seed(conformance: Records, timed: Records) -> None:
    """The answers of seed 0 under another seed."""
    for line in conformance:
        line["seed"] = 7


def judged_again(**other: object) -> Callable[[Records, Records], None]:
    """A failing case that is judged again by another run."""

    def lie(conformance: Records, timed: Records) -> None:
        name = conformance[1]["case"]
        again = [line | {"run": "b" * 12} for line in conformance if line.get("case") == name]
        conformance[:] = [line for line in conformance if line.get("case") != name]
        conformance += [run_line("b" * 12, **other), *again]

    return lie


def on_runs(**fields: object) -> Callable[[Records, Records], None]:
    """Other fields in every run line."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind([*conformance, *timed], "run"):
            line.update(fields)

    return lie


def on_facts(**fields: object) -> Callable[[Records, Records], None]:
    """Other facts in every run line."""

    def lie(conformance: Records, timed: Records) -> None:
        change_runs([*conformance, *timed], lambda facts: fields)

    return lie


def both(*lies: Callable[[Records, Records], None]) -> Callable[[Records, Records], None]:
    """One lie after the other."""

    def lie(conformance: Records, timed: Records) -> None:
        for one in lies:
            one(conformance, timed)

    return lie


def suite(**fields: object) -> dict:
    """The facts of another suite."""
    return {"suite": facts()["suite"] | fields}


def renamed(new_runs: bool = False, factor: float = 1.0) -> Callable[[Records, Records], None]:
    """Published records under a new name; with other ids, and with all times scaled."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in (*conformance, *timed):
            if new_runs:
                line["run"] = line["run"][::-1]
            if factor != 1 and "samples_s" in line and line["kind"] == "timing":
                line["samples_s"] = [float(f"{s * factor:.7g}") for s in line["samples_s"]]
            if factor != 1 and "seconds" in line:
                line["seconds"] = round(line["seconds"] * factor, 6)

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


def no_collectives(conformance: Records, timed: Records) -> None:
    """A psum that exchanges nothing."""
    for line in of_kind(conformance, "conformance", check="communication", operation="psum"):
        line |= {"collectives": [], "wire_bytes": 0.0}


def fewer_bytes(conformance: Records, timed: Records) -> None:
    """Half of the payload, with the bytes on the wire that fit."""
    for line in of_kind(conformance, "conformance", check="communication", operation="psum", mode="manual"):
        line["collectives"] = [one | {"bytes": one["bytes"] // 2} for one in line["collectives"]]
        line["wire_bytes"] /= 2


def less_wire(conformance: Records, timed: Records) -> None:
    """Fewer bytes on the wire than the collectives send."""
    for line in of_kind(conformance, "conformance", check="communication"):
        line["wire_bytes"] /= 4


def one_time(conformance: Records, timed: Records) -> None:
    """Every case took a quarter of a second."""
    for line in of_kind(conformance, "conformance"):
        if "seconds" in line:
            line["seconds"] = 0.25


def faster_ceilings(conformance: Records, timed: Records) -> None:
    """A hundredfold machine, ceilings and all."""
    scaled(0.01, settings=True)(conformance, timed)
    for line in of_kind(timed, "ceiling"):
        line["samples_s"] = [s / 100 for s in line["samples_s"]]
        line["value"] *= 100


def another_case_s_digest(conformance: Records, timed: Records) -> None:
    """The digests of two exact cases, swapped."""
    psum, gather = (
        next(
            r
            for r in of_kind(conformance, "conformance", check="numbers", operation=name)
            if name in r["case"]
        )
        for name in ("psum", "all_gather")
    )
    psum["bits"], gather["bits"] = gather["bits"], psum["bits"]


def in_one_case(check: str, case: str = ROUNDED, **fields: object) -> Callable[[Records, Records], None]:
    """Other fields in one check of one case."""

    def lie(conformance: Records, timed: Records) -> None:
        of_kind(conformance, "conformance", case=case, check=check)[0].update(fields)

    return lie


def in_every_timing(**fields: object) -> Callable[[Records, Records], None]:
    """Other fields in every timing."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "timing"):
            line.update(fields)

    return lie


def in_no_time(conformance: Records, timed: Records) -> None:
    """Every case in some microseconds."""
    for line in of_kind(conformance, "conformance"):
        if "seconds" in line:
            line["seconds"] = round(line["seconds"] / 1e4, 9)


def in_another_order(conformance: Records, timed: Records) -> None:
    """The samples that were published, in another order: nothing rises and falls as it did."""
    renamed(new_runs=True)(conformance, timed)
    for line in of_kind(conformance, "conformance"):
        if "seconds" in line:
            line["seconds"] = round(line["seconds"] * 1.01, 6)
    for line in of_kind(timed, "timing"):
        random.Random(line["case"]).shuffle(line["samples_s"])


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


def fewest_dropped(conformance: Records, timed: Records) -> None:
    """The two slowest samples of each timing."""
    for line in of_kind(timed, "timing"):
        kept = sorted(line["samples_s"])[-2]
        line["samples_s"] = [s for s in line["samples_s"] if s < kept]


def two_machines(conformance: Records, timed: Records) -> None:
    """The times of a larger machine."""
    change_runs(timed, lambda facts: {"host": {"system": "Linux", "machine": "aarch64", "cores": 96}})


def twice_the_devices(conformance: Records, timed: Records) -> None:
    """Four devices more than there were."""
    every = [{"id": i, "process": 0, "coords": []} for i in range(2 * DEVICES)]
    for lines in (conformance, timed):
        change_runs(lines, lambda facts: {"num_devices": 2 * DEVICES, "devices": every})


def without_some(conformance: Records, timed: Records) -> None:
    """A level without the cases that went wrong."""
    gone = conformance[1]["case"]
    conformance[:] = [line for line in conformance if line.get("case") != gone]


def excused(conformance: Records, timed: Records) -> None:
    """A failure that is called known, by an issue that the suite lists for another case."""
    line = conformance[1]
    listed = known_issues.read()[0]
    failed = {"verdict": "known", "was": "fail", "link": listed.link, "reason": f"{listed.why} | wrong"}
    line.update(failed)


def failing(conformance: Records, timed: Records) -> None:
    """The timed case, judged too, and wrong."""
    case = cases.find("psum/axes=x+y/manual/2x2/float32/64KiB", DEVICES)
    lines = judged(case)
    lines[2].update(verdict="fail", reason="4 of 16384 elements differ")
    conformance += lines


def without_a_mode(conformance: Records, timed: Records) -> None:
    """The slower mode left out."""
    timed[:] = [line for line in timed if line.get("mode") != "auto"]


def in_samples(change: Callable[[list[float]], list[float]]) -> Callable[[Records, Records], None]:
    """Other samples in every timing."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "timing"):
            line["samples_s"] = change(line["samples_s"])

    return lie


def clipped(samples: list[float]) -> list[float]:
    """The slower half as slow as the median."""
    middle = sorted(samples)[len(samples) // 2]
    return [min(s, middle) for s in samples]


def without_tail(samples: list[float]) -> list[float]:
    """Samples around a mean, made up."""
    draw = random.Random(samples[0])
    return [draw.gauss(0.0011, 0.00001) for _ in samples]


def a_tenth_more(conformance: Records, timed: Records) -> None:
    """One mode's samples times 1.1 for another, in another order."""
    manual, auto = (of_kind(timed, "timing", mode=mode, cadence="isolated")[0] for mode in ("manual", "auto"))
    auto["samples_s"] = [float(f"{s * 1.1:.7g}") for s in manual["samples_s"]]
    random.Random(1).shuffle(auto["samples_s"])


def swapped(conformance: Records, timed: Records) -> None:
    """The samples of two modes, swapped."""
    manual, auto = (of_kind(timed, "timing", mode=mode, cadence="isolated")[0] for mode in ("manual", "auto"))
    manual["samples_s"], auto["samples_s"] = auto["samples_s"], manual["samples_s"]


def twice(conformance: Records, timed: Records) -> None:
    """A faster timing beside the first of its kind."""
    (first, *_) = of_kind(timed, "timing")
    timed.append(first | {"samples_s": [float(f"{s * 0.9:.7g}") for s in reversed(first["samples_s"])]})


def two_run_lines(conformance: Records, timed: Records) -> None:
    """Two run lines of one run."""
    conformance.insert(1, run_line(started="2026-11-20T11:00:00Z"))


def for_days(conformance: Records, timed: Records) -> None:
    """Cases that took longer than their run."""
    for line in of_kind(conformance, "conformance"):
        if "seconds" in line:
            line["seconds"] *= 1e8


def half_elsewhere(conformance: Records, timed: Records) -> None:
    """Half of the cases from a run of another release."""
    versions = facts()["versions"] | {"jax": "0.11.2", "jaxlib": "0.11.2"}
    conformance.insert(1, run_line("c" * 12, facts=facts(versions=versions)))
    names = [line["case"] for line in of_kind(conformance, "conformance")]
    for line in of_kind(conformance, "conformance"):
        if line["case"] in names[: len(names) // 2]:
            line["run"] = "c" * 12


def without_check(conformance: Records, timed: Records) -> None:
    """No replicas were compared."""
    conformance[:] = [line for line in conformance if line.get("check") != "replicas"]


def more_than_all(factor: int, **fields: object) -> Callable[[Records, Records], None]:
    """So many times the collectives in a global program."""

    def lie(conformance: Records, timed: Records) -> None:
        line = of_kind(conformance, "conformance", case=GLOBAL, check="communication")[0]
        line["collectives"] = [one | {"bytes": one["bytes"] * factor} for one in line["collectives"]]
        line["wire_bytes"] *= factor
        line.update(fields)

    return lie


def on_host(conformance: Records, timed: Records) -> None:
    """More cores than there were."""
    change_runs([*conformance, *timed], lambda facts: {"host": facts["host"] | {"cores": 96}})


def same_control(factor: float) -> Callable[[Records, Records], None]:
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


def closed(
    change: Callable[[Records], None] = lambda lines: None,
    end: dict | None = None,
    cut: int = 0,
    **selection: object,
) -> Callable[[Records, Records], None]:
    """A conformance file with a closing line, made anew by who changed the lines before it. end: other fields of it;
    cut: so many lines are cut off. The selection is that of the cases that are there."""

    def lie(conformance: Records, timed: Records) -> None:
        names = dict.fromkeys(line["case"] for line in of_kind(conformance, "conformance"))
        rest = [name for name in names if of_kind(conformance, "conformance", case=name)[0]["level"] != "L0"]
        conformance[:] = [line for line in conformance if line.get("case") not in rest]
        conformance[0] |= closing.CLOSES | {
            "selection": {"profile": "standard", "levels": ["L0"], "timed": False} | selection
        }
        change(conformance)
        there = {line["case"] for line in of_kind(conformance, "conformance")}
        run = {"run": conformance[0]["run"]}
        conformance.insert(1, closing.chosen(there) | run)
        account = closing.Account()
        for line in conformance:
            account.add(line)
        conformance.append(account.end(0) | {"ended": "2026-11-20T10:30:00Z"} | run | (end or {}))
        del conformance[len(conformance) - cut :]

    return lie


def first_taken_out(lines: Records) -> None:
    """The first case goes away."""
    gone = lines[1]["case"]
    lines[:] = [line for line in lines if line.get("case") != gone]


def first_fails(lines: Records) -> None:
    """The first case is wrong."""
    lines[1] |= {"verdict": "fail", "reason": "4 of 4 elements differ"}


def closed_anew(change: Callable[[Records], None]) -> Callable[[Records, Records], None]:
    """A closed conformance file that somebody changed, and closed once more so that it fits."""

    def lie(conformance: Records, timed: Records) -> None:
        closed()(conformance, timed)
        end = conformance.pop()
        change(conformance)
        account = closing.Account()
        for line in conformance:
            account.add(line)
        conformance.append(account.end(0) | {name: end[name] for name in ("ended", "run")})

    return lie


def choice(**fields: object) -> Callable[[Records], None]:
    """Another line of what was chosen."""
    return lambda lines: of_kind(lines, "chosen")[0].update(fields)


def not_chosen(lines: Records) -> None:
    """No line of what was chosen."""
    lines[:] = [line for line in lines if line["kind"] != "chosen"]


def scattered(lines: Records) -> None:
    """The last line of each case behind all other lines."""
    lines.sort(key=lambda line: line.get("check") == "sharding")


def ended_twice(conformance: Records, timed: Records) -> None:
    """Two closing lines."""
    closed()(conformance, timed)
    conformance.append(dict(conformance[-1]))


def one_seed_more(conformance: Records, timed: Records) -> None:
    """One case under a seed at which it passes."""
    for line in of_kind(conformance, "conformance", case=ROUNDED):
        line["seed"] = 7


def with_special_values(conformance: Records, timed: Records) -> None:
    """A case with a NaN, and an error larger than any number."""
    lines = judged(cases.find("psum/axes=x+y,fill=nan-one/auto/2x2/float32/4KiB", DEVICES))
    of_kind(lines, "conformance", check="numbers")[0].update(error=1e299, bound=1e300)
    conformance += lines


def without_field(name: str) -> Callable[[Records, Records], None]:
    """Numbers without one of their fields."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(conformance, "conformance", check="numbers"):
            line.pop(name, None)

    return lie


def compared(**fields: object) -> Callable[[Records, Records], None]:
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


def scheduled(**fields: object) -> Callable[[Records, Records], None]:
    """The line of a schedule."""

    def lie(conformance: Records, timed: Records) -> None:
        own = set(conformance[1]) - {"check", "error", "bound", "bits", "collectives", "wire_bytes", "theory"}
        head = {name: conformance[1][name] for name in own - {"excess_bytes", "seconds"}}
        timed.append(head | {"kind": "schedule", "run": timed[0]["run"], "place": "cpu"} | fields)

    return lie


def first_case(verdict: str) -> Callable[[Records, Records], None]:
    """The first case of the level, which nobody ran."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(conformance, "conformance", case=conformance[1]["case"], check="execute"):
            line.update(verdict=verdict, reason="not here")

    return lie


def in_seconds(change: Callable[[float], float]) -> Callable[[Records, Records], None]:
    """Other seconds of each case."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(conformance, "conformance"):
            if "seconds" in line:
                line["seconds"] = change(line["seconds"])

    return lie


def of_host(**fields: object) -> Callable[[Records, Records], None]:
    """Another host in every run line."""

    def lie(conformance: Records, timed: Records) -> None:
        change_runs([*conformance, *timed], lambda facts: {"host": facts["host"] | fields})

    return lie


OF_A_COMMIT = "d" * 40
"""A commit whose package has a version, and a version of the case table."""


@dataclass(frozen=True)
class Lie:
    """One lie."""

    change: Callable[[Records, Records], None]
    answer: str | None
    """A pattern on the complaint that is meant for it; None where it passes."""
    product: dict = field(default_factory=dict)
    """Other fields of product.yaml."""
    name: str = ""
    """The product's name, where it is published under another."""


LIES: dict[str, Lie] = {
    # Invented values and records from the table alone.
    "a level on TPU v5 lite from the case table alone": Lie(
        from_the_table, "error 0.0 and bound 1.0 of an exact case"
    ),
    "the same: no collectives": Lie(from_the_table, "passes its communication check without `collectives`"),
    "an error of 1e299 under a bound of 1e300": Lie(
        numbers(error=1e299, bound=1e300), "is not one of the reference's"
    ),
    "an error of 0 in a rounded case": Lie(numbers(error=0.0, bound=0.0), "its error is at least"),
    "a tenth of the measured error": Lie(smaller_error, "the nearest numbers are"),
    "an error that no number gives": Lie(other_error, "is not that of a number that float32 has"),
    "random digests": Lie(random_digests, "bits .* are not those of seed 0"),
    "the answers of another seed": Lie(another_seed, "bits .* are not those of seed 7"),
    "a psum without collectives": Lie(no_collectives, "must have all-reduce of"),
    "half of the payload": Lie(fewer_bytes, "must have all-reduce of 4096 B over groups of 4"),
    "fewer bytes on the wire": Lie(less_wire, "are not those of its collectives"),
    "a looser arithmetic": Lie(
        numbers(precision="default (7 bits)"), "precision 'default .7 bits.' of a case at"
    ),
    "every case in the same time": Lie(one_time, "took 1 different times"),
    # Times.
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
    # Where it comes from.
    "a nonexistent commit": Lie(
        on_facts(**suite(commit="f" * 40)), "is not one of the project's main branch"
    ),
    "a package that is not the commit's": Lie(
        on_facts(**suite(commit="e" * 40, digest="0" * 16)), "the package that ran"
    ),
    "a run dated 2020": Lie(on_runs(started="2020-03-01T00:00:00Z"), "no time at which the suite could run"),
    "a run before its commit": Lie(
        on_facts(**suite(commit="e" * 40, digest="1" * 16)), "its commit was made later"
    ),
    "a jaxlib that JAX does not run with": Lie(
        on_facts(versions=facts()["versions"] | {"jaxlib": "0.4.30"}), "jaxlib 0.4.30 with jax 0.12.0.1"
    ),
    "TPUs without a place": Lie(
        on_facts(backend="tpu", device_kind="TPU v5 lite", virtual=False), "at one place of the torus"
    ),
    "one device four times": Lie(
        on_facts(devices=[{"id": 0, "process": 0, "coords": []}] * DEVICES), "two devices have one id"
    ),
    # Other runs' records.
    "somebody else's records under a new name": Lie(
        renamed(), "is in the published 0.12.0.1/cpu-4", name="mine"
    ),
    "the same with other ids": Lie(
        renamed(new_runs=True), "took the same time, to the microsecond", name="mine"
    ),
    "the same with all times scaled": Lie(
        renamed(True, 1.02), "rise and fall as those of the published", name="mine"
    ),
    "a failing case judged again under other flags": Lie(
        judged_again(facts=facts(flags={"XLA_FLAGS": "--xla_x"})), "the runs differ in flags"
    ),
    "a failing case judged again alone": Lie(
        judged_again(selection={"profile": "standard", "operations": ["put_get"]}),
        "claims L0, which is not met",
    ),
    # What the lines of one run show of each other.
    "a failure made a pass, its reason left": Lie(
        in_one_case("numbers", reason="1 of 4096 elements differ"), "passes, and gives a reason"
    ),
    "a pass of which some runs were wrong": Lie(
        in_one_case("numbers", wrong_runs=3), "passes, and 3 of its runs were wrong"
    ),
    "an error that another mode with the same output does not have": Lie(
        numbers(error=0.0, bound=1.0), "has the same output .`bits`. as line"
    ),
    "numbers of the interpreter": Lie(
        in_one_case("numbers", interpreted=True), "is interpreted in a run on devices"
    ),
    "cases in microseconds": Lie(in_no_time, "no compiler is as fast"),
    "the digest of another case": Lie(another_case_s_digest, "bits .* are not those of seed 0"),
    "four bytes on the wire of a global program": Lie(
        in_one_case(
            "communication",
            GLOBAL,
            collectives=[{"kind": "all-reduce", "bytes": 4, "groups": "1x4", "trips": 1}],
            wire_bytes=6.0,
        ),
        "the collective that it computes takes 1536 B at least",
    ),
    "a cadence that was not taken": Lie(
        on_runs(timing={"cadences": ["stream"], "least": 10, "most": 24}),
        "cadence isolated, and the run took stream",
    ),
    "the best of several processes": Lie(in_every_timing(process=4), "process 4, and the run had 1"),
    "one mode's samples in other orders": Lie(
        one_mode_in_another_order, "its samples are those of line .* in another order"
    ),
    "samples of three values": Lie(few_values, "24 samples have 3 different values"),
    "times of another machine": Lie(two_machines, "runs of 2 machines"),
    "more devices than there were": Lie(twice_the_devices, "claims L0, which is not met"),
    "a level without what failed": Lie(without_some, "claims L0, which is not met .*1 missing"),
    "a failure excused by the issue of another case": Lie(excused, "does not list for it"),
    # What the history shows of a run.
    "an old table, with fewer checks": Lie(
        both(on_facts(**suite(commit=OF_A_COMMIT)), on_runs(table=1)),
        "`table` is 1, and its commit has version",
    ),
    "another version of the suite": Lie(
        on_facts(**suite(commit=OF_A_COMMIT, version="0.0.9")), "suite version '0.0.9', and its commit has"
    ),
    "a run of the day after tomorrow": Lie(
        on_runs(started="2099-01-01T00:00:00Z"), "no time at which the suite could run"
    ),
    "a JAX that this Python does not run": Lie(
        on_facts(versions=facts()["versions"] | {"python": "3.11.7"}), "JAX 0.12.0.1 on Python 3.11.7"
    ),
    "a chip's name on a CPU": Lie(
        on_facts(device_kind="TPU v6 lite"), "devices of kind 'TPU v6 lite' on backend 'cpu'"
    ),
    "a published run, its samples in another order": Lie(
        in_another_order, "have the samples of the published 0.12.0.1/cpu-4, in another order", name="mine"
    ),
    # What other lines, or the case table, show to be untrue.
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
    "two run lines of one run": Lie(two_run_lines, "has two run lines"),
    "cases of days": Lie(for_days, "and its run began"),
    "half of the cases from another release": Lie(half_elsewhere, "the runs differ in jax"),
    "no replicas compared": Lie(without_check, "without its check replicas"),
    "programs compiled in no time": Lie(in_every_timing(compile_s=0.0), "no compiler is as fast"),
    "a line shorter than its samples": Lie(in_every_timing(seconds=1e-3), "the line took 0.001 s"),
    "16 calls in a sample": Lie(in_every_timing(calls=16), "16 calls per sample of isolated calls"),
    "64 times the bytes, and no excess": Lie(
        more_than_all(64, excess_bytes=0.0), "excess_bytes .* are not those"
    ),
    "more bytes than all arguments have": Lie(more_than_all(64), "over the ceiling of"),
    "cases of another selection": Lie(
        on_runs(selection={"profile": "smoke", "levels": ["L0"]}), "the run chose levels L0"
    ),
    "virtual devices that no flag makes": Lie(on_facts(flags={}), "no flag that makes them"),
    "virtual devices called real": Lie(on_facts(virtual=False), "`virtual` is not what the backend says"),
    "a backend's name on CPU devices": Lie(on_facts(backend="tpu"), "`virtual` is not what the backend says"),
    "a compile-only run as one of devices": Lie(on_facts(topology="v5e:2x4"), "compile-only"),
    "one process called two": Lie(on_facts(num_processes=2), "2 processes"),
    # Fields that do not fit their line, and figures that contradict each other.
    "a pass of a process that died": Lie(
        in_one_case("execute", signal="SIGSEGV", stderr=["x"]), "execute passes with `signal`"
    ),
    "a pass that was a failure": Lie(
        in_one_case("numbers", was="fail", link="https://example.org/1"), "numbers passes with `was`"
    ),
    "fields of a compile-only run": Lie(
        in_one_case("execute", topology="v5e:2x4", memory_bytes=5), "execute passes with `topology`"
    ),
    "a known issue that nobody listed, fixed": Lie(
        in_one_case("numbers", fixed=True), "called fixed, and no known issue lists it"
    ),
    "a deviation that nobody listed": Lie(
        in_one_case("numbers", deviation="JAX is documented so"), "a deviation that the suite does not list"
    ),
    "each program repeated 100 times": Lie(
        lambda conformance, timed: on_runs(repeat=100)(conformance, []), "and the run repeats each 100 times"
    ),
    "one program repeated, and the run repeats none": Lie(
        numbers(runs=50, differing_runs=0, wrong_runs=0), "ran 50 times, and the run repeats none"
    ),
    "a theory of one's own": Lie(
        in_one_case("communication", GLOBAL, theory={"x+y": 1.0}), "`theory` is .*, and the case's is"
    ),
    "fewer operations than none": Lie(in_one_case("communication", GLOBAL, flops=-5.0), "`flops` is -5.0"),
    "infinite traffic": Lie(
        in_one_case("communication", GLOBAL, bytes_accessed="inf"), "`bytes_accessed` is inf"
    ),
    "a capability of which nothing was judged": Lie(
        on_facts(capabilities={"ragged": "has"}), "has the capability ragged, and judged nothing of it"
    ),
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
    "timed with fast arithmetic": Lie(
        lambda conformance, timed: on_facts(
            flags=facts()["flags"] | {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}
        )([], timed),
        "the runs differ in departures",
    ),
    "timed under another Python": Lie(
        lambda conformance, timed: on_facts(versions=facts()["versions"] | {"python": "3.13.0"})([], timed),
        "the runs differ in versions.python",
    ),
    # The end of a file.
    "a file cut behind a whole case": Lie(closed(cut=5), "the run did not end: .* chosen cases are there"),
    "a failing case taken out, and the file closed anew": Lie(
        closed(first_taken_out), "its selection gives .* cases: 1 are not there"
    ),
    "a longer profile than was run": Lie(closed(levels=["L0", "L1"]), "its selection gives .* are not there"),
    "a run that ends before it begins": Lie(
        closed(end={"ended": "2026-11-19T10:00:00Z"}), "s before that of a line above it"
    ),
    "cases that took longer than their run": Lie(
        closed(lambda lines: lines[5].update(seconds=9000.0)), "took 9000 s, and its run 1920 s at most"
    ),
    "exit code 0 of a run with a failure": Lie(
        closed(first_fails), "ended with exit code 0, and has cases with verdict fail"
    ),
    "a run that was interrupted": Lie(closed(end={"exit_code": 130}), "ended early, with exit code 130"),
    "no closing line, as an earlier version": Lie(
        on_facts(**suite(commit="c" * 40)), "`closes` is missing, and the commit closes its records"
    ),
    "a run that ends in the future": Lie(
        closed(end={"ended": "2099-01-01T00:00:00Z"}), "its time, 2099-01-01T00:00:00Z, is still to come"
    ),
    "a choice of fewer cases than are there": Lie(
        closed_anew(choice(cases=3)), "the run ended early, with exit code 0: 91 of 3 chosen cases"
    ),
    "a choice of other cases": Lie(closed_anew(choice(digest="0" * 16)), "the run ended early"),
    "no line of what was chosen": Lie(closed_anew(not_chosen), "it had not chosen yet"),
    "two closing lines": Lie(ended_twice, "a line behind the closing line"),
    "lines of cases that are scattered": Lie(
        closed_anew(scattered), "are not together, and a case is written"
    ),
    "an exit code that no run has": Lie(closed(end={"exit_code": 77}), "ended early, with exit code 77"),
    # Lines and fields once more.
    "a case of the level that is called unsupported": Lie(
        first_case("unsupported"), "claims L0, .*1 unsupported"
    ),
    "a case of the level that did not run": Lie(first_case("not_run"), "claims L0, .*1 not_run"),
    "one case under a better seed": Lie(one_seed_more, "is of seed 7, and its run of another"),
    "a case with a NaN and an error of 1e299": Lie(with_special_values, "of an exact case, which are 0"),
    "a thousand machines' operations": Lie(
        in_one_case("communication", GLOBAL, flops=1e30), "more than 256 times what its plan allows"
    ),
    "more memory than there is": Lie(
        in_one_case("communication", GLOBAL, temp_bytes=10**18), "more than 256 times what its plan allows"
    ),
    "numbers without a digest": Lie(without_field("bits"), "passes without `bits`"),
    "numbers without an error": Lie(without_field("error"), "passes with error None"),
    "an infinite error under an infinite bound": Lie(
        numbers(error="inf", bound="inf"), "error inf and bound"
    ),
    "an error that is not a number": Lie(numbers(error="nan"), "passes with error nan"),
    "a second rank in one process": Lie(
        in_one_case("numbers", ranks={"0": "pass", "1": "fail"}), "is of rank 1 of 1"
    ),
    "a level that nobody has": Lie(
        in_one_case("execute", GLOBAL, level="L9"), "level of .* is .L9. here, and .L1. in its first line"
    ),
    "seconds in two lines of a case": Lie(
        in_one_case("communication", GLOBAL, seconds=0.1), "is not closed by"
    ),
    "seconds of two digits": Lie(in_seconds(lambda s: round(s, 2) or 0.01), "cases took .* different times"),
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
    "a verdict that no comparison gives": Lie(compared(verdict="the best"), "is no verdict of a comparison"),
    "a schedule of another place": Lie(scheduled(place="v5e:2x4"), "is compiled for 'v5e:2x4'"),
    "communication that takes less than nothing": Lie(scheduled(exposed_s=-1.0), "`exposed_s` is -1.0"),
    # Facts once more.
    "devices below zero": Lie(
        on_facts(devices=[{"id": -1 - i, "process": 0, "coords": []} for i in range(DEVICES)]),
        "an id below 0",
    ),
    "flags that make other devices": Lie(
        on_facts(flags={"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}), "and its flags make 8"
    ),
    "a host without a core": Lie(of_host(cores=0), "a host of 0 cores"),
    "a group of one process": Lie(on_facts(group={"devices": 2}), "`group` is not of 1 processes"),
    "a capability that nobody knows": Lie(
        on_facts(capabilities={"telepathy": "lacks: patience"}), "of a capability 'telepathy', which no probe"
    ),
    "an answer that no probe gives": Lie(on_facts(capabilities={"ragged": "maybe"}), "says 'maybe' of"),
    "functions of NumPy that are not NumPy's": Lie(
        on_facts(surroundings={"numpy.allclose": "replaced by a function of sitecustomize.py"}),
        "what is not JAX's or NumPy's own .numpy.allclose.",
    ),
    "a file of JAX that somebody changed": Lie(
        on_facts(
            surroundings={"jax/_src/api.py": "not as installed: it was changed behind its installation"}
        ),
        "what is not JAX's or NumPy's own .jax/_src/api.py.",
    ),
    # What is taken on trust.
    "another operating system": Lie(of_host(system="Plan 9"), None),
    "every case 200 times slower": Lie(
        closed_anew(lambda lines: in_seconds(lambda s: s * 200)(lines, [])), None
    ),
    "a program that reads and writes nothing": Lie(
        in_one_case("communication", GLOBAL, bytes_accessed=0.0), None
    ),
    "a comparison of a case that nobody has": Lie(compared(case="psum/of=love isolated"), None),
    "the samples of two modes swapped": Lie(swapped, None),
    "samples drawn around a mean": Lie(in_samples(without_tail), None),
    "a host of more cores": Lie(on_host, None),
    "another NumPy": Lie(on_facts(versions=facts()["versions"] | {"numpy": "99.0"}), None),
    "subnormals kept where they were flushed": Lie(in_one_case("numbers", subnormals="kept"), None),
    "the two slowest samples dropped": Lie(fewest_dropped, None),
    "the answers of the reference instead of a device's": Lie(lambda conformance, timed: None, None),
    "times a little faster": Lie(scaled(0.95), None),
    "other hardware in the product's own words": Lie(
        lambda conformance, timed: None, None, product={"hardware": "a machine of another maker"}
    ),
    "times 3 times faster, settings too": Lie(scaled(1 / 3, settings=True), None),
}


def told(lie: Lie, start: tuple[Records, Records]) -> tuple[Records, Records]:
    """The records after the lie."""
    conformance, timed = copy.deepcopy(start)
    lie.change(conformance, timed)
    return conformance, timed
