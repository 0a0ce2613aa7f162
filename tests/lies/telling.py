# SPDX-License-Identifier: Apache-2.0
"""The definition of a lie, the honest records that lies change, and the changes of lines that several lies share."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

from meshmark.operations import cases
from tests import submissions
from tests.submissions import DEVICES, facts, judged, timing

ROUNDED = "matmul/rows=x,inner=y,check=rounded,precision=highest/manual/2x2/float32/n64"
"""A case that is judged by a bound."""

GLOBAL = "psum/axes=x+y/auto/2x2/float32/4KiB"
"""A case in which the compiler chooses the collectives."""

Records = list[dict]

Change = Callable[[Records, Records], None]
"""Changes the records of conformance and those of timings."""


@dataclass(frozen=True)
class Lie:
    """One lie."""

    change: Change
    answer: str | None
    """A pattern on the complaint that is meant for it; None where it passes."""
    product: dict = field(default_factory=dict)
    """Other fields of product.yaml."""
    name: str = ""
    """The product's name, where it is published under another."""


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
    timed = submissions.timed()[:4]
    timed[0]["selection"] = {"profile": "quick", "timed": True}
    timed += [timing(name, cadence) for cadence in ("isolated", "stream") for name in names]
    timed[-1]["seconds"] = 1.0
    return conformance, timed


def change_runs(lines: Records, change: Callable[[dict], dict]) -> None:
    """Other facts in every run line."""
    for line in lines:
        if line["kind"] == "run":
            line["facts"] = line["facts"] | change(line["facts"])


def of_kind(lines: Records, kind: str, **wanted: str) -> Records:
    """The lines of a kind, and with these fields."""
    return [r for r in lines if r["kind"] == kind and all(r.get(k) == v for k, v in wanted.items())]


def numbers(**fields: object) -> Change:
    """Other fields in the numbers of the rounded case."""

    def lie(conformance: Records, timed: Records) -> None:
        of_kind(conformance, "conformance", case=ROUNDED, check="numbers")[0].update(fields)

    return lie


def on_runs(**fields: object) -> Change:
    """Other fields in every run line."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind([*conformance, *timed], "run"):
            line.update(fields)

    return lie


def on_facts(**fields: object) -> Change:
    """Other facts in every run line."""

    def lie(conformance: Records, timed: Records) -> None:
        change_runs([*conformance, *timed], lambda facts: fields)

    return lie


def both(*lies: Change) -> Change:
    """One lie after the other."""

    def lie(conformance: Records, timed: Records) -> None:
        for one in lies:
            one(conformance, timed)

    return lie


def suite(**fields: object) -> dict:
    """The facts of another suite."""
    return {"suite": facts()["suite"] | fields}


def in_one_case(check: str, case: str = ROUNDED, **fields: object) -> Change:
    """Other fields in one check of one case."""

    def lie(conformance: Records, timed: Records) -> None:
        of_kind(conformance, "conformance", case=case, check=check)[0].update(fields)

    return lie


def in_seconds(change: Callable[[float], float]) -> Change:
    """Other seconds of each case."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(conformance, "conformance"):
            if "seconds" in line:
                line["seconds"] = change(line["seconds"])

    return lie


def of_host(**fields: object) -> Change:
    """Another host in every run line."""

    def lie(conformance: Records, timed: Records) -> None:
        change_runs([*conformance, *timed], lambda facts: {"host": facts["host"] | fields})

    return lie


def with_flags(**fields: str) -> Change:
    """Other variables in every run line, which tells its settings too."""
    return on_facts(flags=facts()["flags"] | fields, surroundings={})


def of_versions(**fields: str) -> Change:
    """Other versions in every run line."""
    return on_facts(versions=facts()["versions"] | fields)


def told(lie: Lie, start: tuple[Records, Records]) -> tuple[Records, Records]:
    """The records after the lie."""
    conformance, timed = copy.deepcopy(start)
    lie.change(conformance, timed)
    return conformance, timed
