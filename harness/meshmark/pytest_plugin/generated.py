# SPDX-License-Identifier: Apache-2.0
"""Programs of the hunt as tests: `--generated N` adds the kept findings and the first N programs of a seed.

Ids are stable: `generated/NAME` for a finding, `generated/v1/SEED/NUMBER` for a random program, where v1 is the version
of the generator. A program runs in a worker process of the hunt, so a crash or a hang loses only this program. A
finding that fails as its data says is known. A random program that fails is shrunk, and it is known if a finding
explains its group. These tests write no records.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from meshmark.devices.environment import CPU_DEVICES
from meshmark.hunt import findings, places
from meshmark.hunt.findings import Finding
from meshmark.hunt.hunting import Hunt
from meshmark.hunt.reports import KINDS
from meshmark.hunt.versions import GENERATOR
from meshmark.hunt.workers import Settings, Slot

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


def known_here(config: pytest.Config) -> Mapping[str, str]:
    """The groups that a finding explains on the installed release of JAX."""
    return findings.known_groups(findings.read_findings(store(config)), version("jax"))


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
    known = known_here(pytestconfig)

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
    """Judge one program as a hunt does, so that its group has the same key and a hang must come twice."""
    record = io.StringIO()
    hunt = Hunt(
        item.seed,
        slot.settings,
        meshes=places.list_meshes(slot.settings),
        shrink_s=SHRINK_S,
        always_whole=True,
        known=known,
        out=record,
    )
    hunt.one(slot, item.number, lambda said: None, lambda: False)
    line = json.loads(record.getvalue())
    if "invalid" in line:
        pytest.skip(f"can't be judged: {line['invalid']}")
    if line.get("slow") or line.get("once"):
        pytest.skip("it hung or ended without a message once, and was right when it was judged again")
    if "group" not in line:
        for difference in line.get("differences", []):
            pytest.fail(f"{difference['kind']}: {difference['text']}\n{item.id}", pytrace=False)
        return
    key = line["group"]
    said = f"{key}: {line['shrunk_difference']['text']}"
    if key in known:
        pytest.xfail(f"known: {known[key]} | {said}")
    again = f"meshmark hunt --seed {item.seed} --programs {item.number + 1} --keep DIR"
    pytest.fail(f"{said}\n{item.id}\nmake a script of it: {again}", pytrace=False)
