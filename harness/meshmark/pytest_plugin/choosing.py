# SPDX-License-Identifier: Apache-2.0
"""Chooses what a run judges: the places, and the cases of each place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec

import pytest

from meshmark.core import meshes
from meshmark.core.errors import unknown
from meshmark.devices import probe, topologies
from meshmark.devices.facts import Facts
from meshmark.judge import capabilities
from meshmark.operations import OPERATIONS, cases, choosing
from meshmark.operations.cases import Case
from meshmark.operations.selection import CAPABILITIES, Selection, SelectionError
from meshmark.pytest_plugin.options import names_of, selection_of
from meshmark.pytest_plugin.stashed import FACTS, LEFT_OUT, PLACES, SELECTION, TRIALS
from meshmark.pytest_plugin.trials import case_of, trials_of


def choose(config: pytest.Config, places: list[Facts], processes: int = 1) -> None:
    """Choose the cases of every place, by family, and note what is left out. SelectionError if the options name
    something unknown, or select no case."""
    stash = config.stash
    stash[PLACES], stash[FACTS] = places, places[0]
    stash[TRIALS], stash[LEFT_OUT] = {}, []
    for facts in places:
        without = config.getoption("without")
        here = tuple(c for c in capabilities.present(facts.capabilities) if c not in without)
        selection = stash[SELECTION] = selection_of(config, facts.num_devices, processes, here)
        taken, left_out = trials_of(selection, facts)
        if not (taken or left_out):
            cases.not_empty(selection, facts.num_devices)  # this raises an error that says why
        stash[LEFT_OUT] += [(facts.place, why, number) for why, number in left_out.items()]
        for trial in taken:
            stash[TRIALS].setdefault(trial.case.operation.family, []).append(trial)
    if places[0].topology and not any(stash[TRIALS].values()):
        reasons = "; ".join(f"{number} {why}" for _, why, number in stash[LEFT_OUT])
        raise SelectionError(f"no case can be compiled for {places[0].place}: {reasons}")


OF_A_CASE: Mapping[str, Callable[[Case], str]] = {
    "level": lambda case: case.level,
    "operations": lambda case: case.operation.name,
    "modes": lambda case: case.mode,
    "meshes": lambda case: case.mesh.label,
    "dtypes": lambda case: case.cell.request.dtype,
    "sizes": lambda case: case.cell.request.size,
}
"""For each option by which a case has exactly one name: the function that gives this name."""


def without_a_case(config: pytest.Config) -> list[str]:
    """The option names that select no case. Each name is valid, but no case combines it with the other options. Without
    this check the run would pass, and nobody would notice that the name was not judged."""
    every = [trial.case for family in config.stash[TRIALS].values() for trial in family]
    found = []
    for option, name_of in OF_A_CASE.items():
        chosen = {name_of(case) for case in every}
        if lacking := [name for name in config.getoption(option) if name not in chosen]:
            found.append(f"--{option} {','.join(lacking)}")
    return found


def find_places(config: pytest.Config) -> list[Facts]:
    """Probe the devices, or the requested topologies; raises the errors of an invalid choice."""
    wanted = topologies.parse_all(config.getoption("topology"))
    layouts = tuple(dict.fromkeys(names_of(config, "layout"))) or ("plain",)
    exports = names_of(config, "export")
    for name, valid in ((layouts, topologies.LAYOUTS), (exports, topologies.EXPORTS)):
        for one in name:
            if one not in valid:
                option = "--layout" if name is layouts else "--export"
                raise SelectionError(unknown(option, one, valid))
    if exports and find_spec("flatbuffers") is None:
        raise SelectionError(
            "--export needs the package flatbuffers, with which jax.export writes: pip install flatbuffers"
        )
    if not wanted:
        given = "--layout" if layouts != ("plain",) else "--export" if exports else ""
        if given or config.getoption("topology"):
            raise SelectionError(f"{given or '--topology'} takes a topology: --topology v5e:2x4")
        return [_probed(config)]
    topologies.prepare_environment(*(topology.name for topology in wanted))  # for the workers too
    found = []
    for topology in wanted:
        number = topology.num_devices
        shapes = [*meshes.weighted(number), *map(meshes.parse_mesh, selection_of(config, number, 1).meshes)]
        found += [probe.probe_topology(topology, layout, shapes) for layout in layouts]
    return found


def _probed(config: pytest.Config) -> Facts:
    """The facts of the available devices, with the probe results of the optional capabilities that the run may
    judge."""
    wanted = config.getoption("with_")
    given = choosing.named(vars(config.option))
    chosen = Selection(profile=config.getoption("profile"), **given)
    if not chosen.operations:
        # Cases that are named one by one need no probe of what other operations use.
        chosen = replace(chosen, operations=operations_of(config.args))
    joining = replace(chosen, present=tuple(CAPABILITIES)).joining
    names = [name for name in CAPABILITIES if name in (*wanted, *joining)]
    return capabilities.probe_facts(chosen, names)


def operations_of(arguments: Sequence[str]) -> tuple[str, ...]:
    """The operations of cases that are named by their node ids; () where any argument names more than one case."""
    named = [case_of(argument).partition("/")[0] for argument in arguments]
    return tuple(dict.fromkeys(named)) if all(name in OPERATIONS for name in named) else ()
