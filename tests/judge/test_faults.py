# SPDX-License-Identifier: Apache-2.0
"""Faults of the catalogue are caught, and without the fault the case that caught it passes.

The tests use the faults that are caught fastest, at least one per family of operations that catches any, and every
fault that is newer than docs/faults.md. MESHMARK_SLOW=1 uses all of them, compiled as users compile: tox run -e faults.
"""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import jax
import pytest

from meshmark.core.verdicts import BAD, worst
from meshmark.judge.checks import Judge
from meshmark.levels import known_issues
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.cases import Case
from meshmark.operations.selection import Selection
from tests.checkout import ROOT
from tests.studies.faults import hunt, in_order, likely_cases, load_families
from tests.studies.planting import CATALOGUE, Fault

load_families()

ISSUES = known_issues.load(jax.__version__, jax.default_backend())


NOTICED = re.compile(r"^\| ([^|]+) \| [^|]+ \| \d+ \| ([\d.]+) s \| ([^|]+) \|$", re.MULTILINE)
"""A row of docs/faults.md: a fault, the seconds it took, and the case that noticed it first when the whole catalogue
ran."""

FIRST: dict[str, list[str]] = {}
SECONDS: dict[str, float] = {}
for _name, _seconds, _case in NOTICED.findall((ROOT / "docs" / "faults.md").read_text(encoding="utf-8")):
    FIRST.setdefault(_name, []).append(_case)
    SECONDS[_name] = min(SECONDS.get(_name, math.inf), float(_seconds))

SLOW = bool(os.environ.get("MESHMARK_SLOW"))

QUICK = 0.2
"""Seconds on the page up to which the tests take a fault: more than a quarter, in less than a fiftieth of the time of
all."""

if not SLOW:
    pytestmark = pytest.mark.usefixtures("compiled_quickly")


def sampled() -> list[str]:
    """The faults that the tests take, in the order of the catalogue."""
    taken = {name for name in CATALOGUE if SECONDS.get(name, 0.0) <= QUICK}
    catching = {_family(name) for name in taken}
    for name in sorted({*CATALOGUE} - taken, key=SECONDS.__getitem__):
        if _family(name) not in catching:
            taken.add(name)
            catching.add(_family(name))
    return [name for name in CATALOGUE if name in taken]


def _family(name: str) -> str:
    """The family of the operation whose case noticed the fault first; "" for a fault that is newer than the page."""
    operation = FIRST.get(name, ["/"])[0].partition("/")[0]
    return OPERATIONS[operation].family if operation else ""


@cache
def standard(capabilities: tuple[str, ...]) -> dict[str, Case]:
    """The cases of the standard profile, by id."""
    selection = Selection("standard", capabilities=capabilities)
    return {case.id: case for case in cases.cases(selection, jax.device_count())}


def likeliest_cases(fault: Fault) -> Iterator[Case]:
    """The cases of the standard profile that can show a fault, those first that have shown it on some release."""
    known = standard(fault.likely.get("capabilities", ()))
    yield from (known[name] for name in FIRST.get(fault.name, ()) if name in known)
    yield from likely_cases(fault, "standard")


@cache
def verdict(name: str) -> str:
    """The verdict of the case without any fault."""
    jax.clear_caches()  # JAX keeps what a fault made it compute
    lines = Judge(tuple(jax.devices())).run(cases.find(name, 8))
    known_issues.apply(ISSUES, name, lines)
    return worst(line.verdict for line in lines)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CATALOGUE if SLOW else sampled())
def test_caught_by_the_standard_profile(name):
    """Only the cases that the fault is likely to touch; `python -m tests.studies.faults` runs whole profiles."""
    outcome = hunt(CATALOGUE[name], likeliest_cases(CATALOGUE[name]), ISSUES)
    likely = likeliest_cases(CATALOGUE[name])
    if not outcome.caught and likely and all(verdict(c.id) in ("known", "unsupported") for c in likely):
        pytest.skip("this release breaks or lacks what its cases judge, so that no fault can be seen in them")
    assert outcome.caught, f"{name}: none of {outcome.judged} cases noticed"
    assert verdict(outcome.case) not in BAD, f"{outcome.case} fails without the fault too"


def test_the_page_names_the_case_that_noticed_nearly_every_fault():
    """A fault that is newer than the page is judged here on every case that it can touch, which takes its time: where
    there are many, `python -m tests.studies.faults --markdown FILE` makes the page again."""
    assert {*FIRST} <= {*CATALOGUE}
    assert len(FIRST) >= 0.9 * len(CATALOGUE)


def test_the_sample_holds_a_quarter_of_the_faults_and_each_family_that_catches_any():
    taken = sampled()
    assert len(taken) >= 0.25 * len(CATALOGUE)
    assert {_family(name) for name in taken} >= {_family(name) for name in FIRST}
    assert {*taken} >= {*CATALOGUE} - {*FIRST}


@pytest.mark.parametrize("name", [n for n, f in CATALOGUE.items() if f.core])
def test_the_core_is_caught_by_smoke(name):
    assert hunt(CATALOGUE[name], in_order(CATALOGUE[name], "smoke"), ISSUES).caught


MOST = 60
"""The most cases that the selection of a fault may name. A fault that needs more is not a specific one."""


@cache
def selected(likely: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[Case, ...]:
    """The cases of the standard profile that a selection names."""
    return tuple(cases.cases(Selection("standard", **dict(likely)), jax.device_count()))


def badly_selected(catalogue: dict[str, Fault]) -> dict[str, int]:
    """The faults whose selection names too many cases or none, with the number of cases."""
    numbers = {n: sum(map(f.only, selected(tuple(f.likely.items())))) for n, f in catalogue.items()}
    return {name: number for name, number in numbers.items() if not 0 < number <= MOST}


def test_no_fault_selects_a_whole_operation():
    assert badly_selected(CATALOGUE) == {}
    broad, empty = (
        replace(CATALOGUE["lost shard"], likely={"operations": ("psum",)}),
        replace(CATALOGUE["lost shard"], only=lambda case: False),
    )
    assert badly_selected({"broad": broad})["broad"] > MOST
    assert badly_selected({"empty": empty}) == {"empty": 0}


def test_the_catalogue_is_as_large_as_promised():
    assert len(CATALOGUE) >= 140
    assert sum(f.core for f in CATALOGUE.values()) >= 25


@pytest.mark.parametrize(
    ("check", "name"),
    [
        ("numbers", "permutation reversed"),
        ("numbers", "lost shard"),
        ("replicas", "wrong replica on one device"),
        ("sharding", "replicated where sharded was asked for"),
        ("communication", "an extra all gather with the right numbers"),
        ("numbers", "psum rounds to bfloat16 on the way"),
    ],
)
def test_each_kind_of_check_turns_red(check, name):
    outcome = hunt(CATALOGUE[name], likely_cases(CATALOGUE[name], "smoke"), ISSUES)
    assert check in outcome.checks
