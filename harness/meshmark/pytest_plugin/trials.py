# SPDX-License-Identifier: Apache-2.0
"""A case and the place where it is judged: the available devices, or a topology that it is compiled for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from meshmark.devices import topologies
from meshmark.devices.facts import Facts
from meshmark.operations import cases
from meshmark.operations.cases import Case
from meshmark.operations.selection import Selection


@dataclass(frozen=True, eq=False)
class Trial:
    """One case, to be judged in one place: the parameter of a conformance test."""

    case: Case
    facts: Facts
    """The facts of the available devices, or of a topology."""

    @property
    def id(self) -> str:
        """The case's id; on a topology followed by the place, such as psum/axes=x/manual/8/float32/4KiB@v5e:2x4."""
        return f"{self.case.id}@{self.facts.place}" if self.facts.place else self.case.id


def split_id(trial_id: str) -> tuple[str, str]:
    """(the case's own id, its place or "") of the id of a trial."""
    own, _, place = trial_id.partition("@")
    return own, place


def why_left_out(case: Case, selection: Selection, facts: Facts) -> str:
    """Why a case is not compiled for a topology; "" if it is compiled.

    Programs over all devices of the topology are compiled. Host operations have no program. A mesh over a part of a TPU
    slice is compiled only if it is named.
    """
    if case.mode == "host":
        return "have no program to compile (mode host)"
    if case.mesh.order and topologies.parse_topology(facts.topology).slices > 1:
        return "take the devices of several slices in a permuted order"
    if case.mesh.size != facts.num_devices and case.mesh.label not in selection.meshes:
        return (
            "are on sub-meshes, on which libtpu aborts if they don't divide the slice (name them by --meshes)"
        )
    if case.mesh.label in facts.no_layout:
        return "are on meshes without a physical layout in JAX"
    return ""


def trials_of(selection: Selection, facts: Facts) -> tuple[list[Trial], dict[str, int]]:
    """The trials of a selection in one place, and the number of cases left out for each reason (`why_left_out`; none on
    available devices)."""
    taken, left_out = [], Counter[str]()
    for case in cases.cases(selection, facts.num_devices):
        reason = why_left_out(case, selection, facts) if facts.place else ""
        if reason:
            left_out[reason] += 1
        else:
            taken.append(Trial(case, facts))
    return taken, dict(left_out)


def case_of(nodeid: str) -> str:
    """The id of the trial in a node id; pytest-xdist may add a group after the bracket."""
    return nodeid.partition("[")[2].rpartition("]")[0]
