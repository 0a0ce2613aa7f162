# SPDX-License-Identifier: Apache-2.0
"""A case and the place where it is judged: the devices that are there, or a topology that it is compiled for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from meshmark.devices.facts import Facts
from meshmark.judge import compile_only
from meshmark.operations import cases
from meshmark.operations.cases import Case
from meshmark.operations.selection import Selection


@dataclass(frozen=True, eq=False)
class Trial:
    """One case, to be judged in one place: what a conformance test gets."""

    case: Case
    facts: Facts
    """Of the devices that are there, or of a topology."""

    @property
    def id(self) -> str:
        """The case's id; on a topology with its place behind it: psum/axes=x/manual/8/float32/4KiB@v5e:2x4."""
        return f"{self.case.id}@{self.facts.place}" if self.facts.place else self.case.id


def split_id(trial_id: str) -> tuple[str, str]:
    """(the case's own id, its place or "") of the id of a trial."""
    own, _, place = trial_id.partition("@")
    return own, place


def trials_of(selection: Selection, facts: Facts) -> tuple[list[Trial], dict[str, int]]:
    """The trials of a selection in one place, and how many cases are left out for which reason
    (`meshmark.judge.compile_only.left_out`; none where the devices are there)."""
    taken, left_out = [], Counter[str]()
    for case in cases.cases(selection, facts.num_devices):
        reason = compile_only.left_out(case, selection, facts) if facts.place else ""
        if reason:
            left_out[reason] += 1
        else:
            taken.append(Trial(case, facts))
    return taken, dict(left_out)


def case_of(nodeid: str) -> str:
    """The id of the trial in a node id; pytest-xdist may write a group behind the bracket."""
    return nodeid.partition("[")[2].rpartition("]")[0]
