# SPDX-License-Identifier: Apache-2.0
"""The expected devices (`--expect-devices`) and levels (`--expect-level`) of a run, and what it did not judge.

A green run does not show what it did not judge. So each run ends with a line that says it, and these options make it a
failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from meshmark.core.errors import unknown
from meshmark.devices.facts import Facts
from meshmark.judge import capabilities
from meshmark.levels import must_pass
from meshmark.levels.must_pass import LevelError
from meshmark.operations.selection import CAPABILITIES, Selection, SelectionError
from meshmark.pytest_plugin.stashed import FACTS, SELECTION

COUNTING = ("meshmark-controller", "meshmark-count", "meshmark-rank")
"""The pytest plugins that write records and count verdicts, by the names that `-p no:NAME` takes."""

FEW = 5
"""The most unjudged cases of a level that are named."""


def check_level_options(config: pytest.Config) -> None:
    """SelectionError for an unknown level, and for options that prevent the count of judged cases."""
    level = config.getoption("expect_level")
    names = (*must_pass.names(), must_pass.SEVERAL)
    if level is not None and level not in names:
        raise SelectionError(unknown("level", level, names, "meshmark levels"))
    for option in ("expect_level", "expect_devices"):
        if config.option.collectonly and config.getoption(option) is not None:
            name = f"--{option.replace('_', '-')}"
            raise SelectionError(
                f"{name} asks for verdicts, and --collect-only judges nothing: leave one out"
            )
    for plugin in COUNTING:
        if config.pluginmanager.is_blocked(plugin):
            raise SelectionError(f"-p no:{plugin} takes away what counts the verdicts: leave it out")


def find_unmet_expectations(config: pytest.Config, judged: Mapping[str, Any]) -> list[str]:
    """The unmet expectations, and the problems of capability probes; [] if there are none."""
    facts: Facts = config.stash[FACTS]
    found = []
    devices, level = config.getoption("expect_devices"), config.getoption("expect_level")
    if devices is not None and facts.num_devices != devices:
        found.append(f"{devices} devices were expected, and JAX shows {facts.num_devices}")
    found += _capabilities(config)
    if level is not None:
        try:
            lists = _lists(facts, level)
        except LevelError as error:
            return [*found, f"level {level} was expected: {error}"]
        for name, cases in lists.items():
            unjudged = _unjudged(cases, judged)
            if unjudged:
                named = ", ".join(unjudged[:FEW]) + (", ..." if len(unjudged) > FEW else "")
                found.append(
                    f"level {level} was expected, and {len(unjudged)} of {len(cases)} must-pass cases of {name}"
                    f" have no verdict of their own: {named}"
                )
    return found


def unjudged(config: pytest.Config, judged: Mapping[str, Any]) -> str:
    """The line about what a run did not judge; "" if it judged all that it could, or ran nothing."""
    facts: Facts = config.stash[FACTS]
    if facts.topology:  # nothing ran, and no level can be met
        found = _absent(config)
        return f"not judged: {'; '.join(found)}" if found else ""
    several = facts.num_processes > 1
    parts = []
    try:
        lists = _lists(facts, must_pass.SEVERAL if several else must_pass.names()[-1])
        for name, cases in lists.items():
            if missing := len(_unjudged(cases, judged)):
                parts.append(f"{missing} of {len(cases)} must-pass cases of {name}")
    except LevelError as error:
        parts.append(str(error))
    parts += _absent(config)
    return f"not judged: {'; '.join(parts)}" if parts else ""


def _absent(config: pytest.Config) -> list[str]:
    """The optional capabilities without any judged case, with the reasons."""
    facts: Facts = config.stash[FACTS]
    chosen = config.stash[SELECTION]
    absent: dict[str, list[str]] = {}
    for name in CAPABILITIES:
        if name not in (*chosen.capabilities, *chosen.joining):
            absent.setdefault(_why_absent(name, facts, chosen), []).append(name)
    return [f"optional capabilities {', '.join(names)} ({why})" for why, names in absent.items()]


def _why_absent(name: str, facts: Facts, chosen: Selection) -> str:
    """Why a run judges nothing of an optional capability."""
    if name in chosen.without:
        return "--without"
    found = facts.capabilities.get(name, "")
    return "not here" if found.startswith(capabilities.LACKS) else found or "--with"


def _capabilities(config: pytest.Config) -> list[str]:
    """Problems of the optional capabilities: a required one is missing, or a probe failed, so nothing of it is
    judged."""
    chosen: Selection = config.stash[SELECTION]
    found = []
    for name, answer in config.stash[FACTS].capabilities.items():
        demanded, lacking = name in chosen.capabilities, answer.startswith(capabilities.LACKS)
        if demanded and lacking:
            found.append(f"--with {name} demands {CAPABILITIES[name]}, and there is none here: {answer}")
        elif not demanded and not lacking and answer != capabilities.HAS:
            found.append(
                f"the probe of {name} ({CAPABILITIES[name]}) ended with {answer}: nothing of it is judged;"
                f" --with {name} judges it, --without {name} leaves it out"
            )
    return found


def _lists(facts: Facts, level: str) -> dict[str, tuple[str, ...]]:
    """The must-pass cases of a level and of those below it, by level."""
    number, processes = facts.num_devices, facts.num_processes
    if (processes > 1) != (level == must_pass.SEVERAL):
        over = "several processes" if level == must_pass.SEVERAL else "one process"
        raise LevelError(f"{level} is a level of {over}")
    names = (level,) if processes > 1 else must_pass.names()[: must_pass.names().index(level) + 1]
    return {name: tuple(must_pass.must_pass(name, number, processes=processes).cases) for name in names}


def _unjudged(cases: tuple[str, ...], judged: Mapping[str, Any]) -> list[str]:
    """The cases without a verdict on what they compute."""
    return [
        name for name in cases if name not in judged or judged[name].verdict in ("unsupported", "not_run")
    ]
