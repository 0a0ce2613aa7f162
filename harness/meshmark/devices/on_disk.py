# SPDX-License-Identifier: Apache-2.0
"""Finds changes on disk during a run: an edit, a checkout of another commit, an upgrade of a package.

A run starts processes until its end: after a crash, and for each process of a benchmark. After such a change they would
import other code than that of the run line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Self

from meshmark.core.installation import compute_digest
from meshmark.devices.facts import Facts
from meshmark.devices.installed import OTHERS


@dataclass(frozen=True)
class OnDisk:
    """The state of the code that a new process would import."""

    suite: str
    """The digest of this package's files."""
    versions: dict[str, str]
    """The version of each distribution that computes, by name."""

    @classmethod
    def read(cls, facts: Facts | None = None) -> Self:
        """The present state. `facts`: those of a run that has just begun; its digest is used in place of a new one."""
        began = facts.suite.get("digest") if facts else None
        return cls(began or compute_digest(), {name: _installed_version(name) for name in OTHERS})

    def list_changes(self) -> Iterator[str]:
        """The changes since this state, one line each."""
        now = OnDisk.read()
        if now.suite != self.suite:
            yield f"the suite's files changed while it ran (digest {self.suite}, now {now.suite}): {MEND}"
        for name, was in self.versions.items():
            if now.versions[name] != was:
                yield f"{name} changed while the suite ran ({was}, now {now.versions[name]}): {MEND}"


MEND = "processes that started later ran other code, so run it again"


def _installed_version(name: str) -> str:
    try:
        return version(name.replace("_", "-"))
    except PackageNotFoundError:
        return "not installed"
