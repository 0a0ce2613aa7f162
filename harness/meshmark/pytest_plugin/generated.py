# SPDX-License-Identifier: Apache-2.0
"""Programs of the hunt as tests: `--generated N` adds the kept findings and the first N programs of a seed.

Ids are stable: `generated/NAME` for a finding, `generated/v1/SEED/NUMBER` for a random program, where v1 is the version
of the generator. A program runs in a worker process of the hunt, so a crash or a hang loses only this program. A
finding that fails as its data says is known. A random program that fails is shrunk, and it is known if a finding
explains its group. These tests write no records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from meshmark.devices.environment import CPU_DEVICES
from meshmark.hunt import findings, grouping, places, shrinking
from meshmark.hunt.findings import Finding
from meshmark.hunt.hunting import choose_modes
from meshmark.hunt.program import from_json
from meshmark.hunt.reports import KINDS
from meshmark.hunt.versions import GENERATOR
from meshmark.hunt.workers import Answer, Settings, Slot

SHRINK_S = 20.0
"""Seconds to shrink a random program that fails, to find what explains it."""


@dataclass(frozen=True, eq=False)
class Generated:
    """One program: a finding, or number `number` of a seed."""

    id: str
    finding: Finding | None = None
    seed: int = 0
    number: int = 0


def choose_programs(config: pytest.Config) -> list[Generated]:
    """The programs that the options choose."""
    count, seed = config.getoption("generated"), config.getoption("seed")
    kept = [Generated(f"generated/{f.name}", f) for f in findings.read_findings(store(config))]
    drawn = [Generated(f"generated/v{GENERATOR}/{seed}/{n}", None, seed, n) for n in range(count)]
    return [*kept, *drawn]


def store(config: pytest.Config) -> Path:
    """The store of known findings."""
    return Path(config.getoption("findings") or findings.DEFAULT)


def pytest_configure(config: pytest.Config) -> None:
    """Warn of a store without findings: nothing that fails is known then."""
    if not findings.read_findings(store(config)):
        config.issue_config_time_warning(pytest.PytestWarning(findings.describe_empty(store(config))), 2)


@pytest.fixture(scope="session")
def hunting_slot(pytestconfig: pytest.Config) -> Iterator[Slot]:
    """The workers of this session; none starts before the first program."""
    number = pytestconfig.getoption("num_devices") or int(os.environ.get(CPU_DEVICES, 0)) or None
    settings = Settings(environment={"PYTEST_ADDOPTS": ""}, spare=(os.cpu_count() or 1) > 1)
    with Slot(places.adapt_to_device_count(number, settings)) as slot:
        yield slot


@pytest.fixture
def judge_generated(hunting_slot: Slot, pytestconfig: pytest.Config) -> Callable[[Generated], None]:
    """Judges one program and ends the test with its verdict."""
    known = findings.known_groups(findings.read_findings(store(pytestconfig)), version("jax"))

    def judge(item: Generated) -> None:
        if item.finding:
            _judge_finding(hunting_slot, item.finding)
        else:
            _judge_drawn(hunting_slot, item, known)

    return judge


def _judge_finding(slot: Slot, finding: Finding) -> None:
    answer = slot.judge(finding.data(), (finding.mode,))
    if answer.invalid:
        pytest.skip(f"unsupported: {answer.invalid}")
    for difference in answer.differences:
        said = f"{difference['kind']}: {difference['text']}"
        if KINDS[difference["kind"]] == finding.severity:
            pytest.xfail(f"known: {finding.title} | {said}")
        pytest.fail(f"{finding.name} was {finding.severity}, and now is {said}", pytrace=False)


def _judge_drawn(slot: Slot, item: Generated, known: Mapping[str, str]) -> None:
    modes = choose_modes(item.number, slot.settings)
    job = {"draw": [item.seed, item.number], "meshes": places.list_meshes(slot.settings)}
    answer: Answer = slot.judge(job, modes)
    if answer.invalid:
        pytest.skip(f"can't be judged: {answer.invalid}")
    if not answer.differences or answer.program is None:
        return
    difference, program = answer.differences[0], from_json(answer.program)
    mode = difference["mode"] or modes[0]
    key = grouping.make_key(program, difference)
    if key not in known:
        signature = shrinking.Signature.of(difference, mode)
        shrunk = shrinking.shrink(program, signature, slot, difference, SHRINK_S)
        key, difference = grouping.make_key(shrunk.program, shrunk.difference), shrunk.difference
    said = f"{key}: {difference['text']}"
    if key in known:
        pytest.xfail(f"known: {known[key]} | {said}")
    again = f"meshmark hunt --seed {item.seed} --programs {item.number + 1} --keep DIR"
    pytest.fail(f"{said}\n{item.id}\nmake a script of it: {again}", pytrace=False)
