# SPDX-License-Identifier: Apache-2.0
"""The time axis: each release of JAX, jaxlib and libtpu behind a figure of the page, ordered by date.

The dates are those of the package index, stored with their source in data/releases.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from meshmark.core.escaping import field as field_of
from meshmark.core.escaping import plain
from meshmark.records.run_definition import RunFacts
from meshmark.report.page_definition import ReleasesData

KINDS = ("JAX", "jaxlib", "libtpu")

Release = tuple[str, str]
"""One of KINDS, and a version."""


@cache
def _known() -> Mapping[str, Any]:
    text = (Path(__file__).resolve().parent / "data" / "releases.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def find_date(kind: str, version: str) -> str:
    """The day of a release, such as 2026-10-19; "" if it is unknown."""
    return str(_known()["dates"][kind.lower()].get(version, ""))


def find_releases(facts: RunFacts) -> list[Release]:
    """The releases in a run's facts: JAX, jaxlib if its version differs, and libtpu."""
    versions = facts.get("versions")
    jax, jaxlib = field_of(versions, "jax"), field_of(versions, "jaxlib")
    libtpu = field_of(facts.get("compiler"), "libtpu")
    named = [("JAX", jax), ("jaxlib", jaxlib if jaxlib != jax else None), ("libtpu", libtpu)]
    return [(kind, plain(version)[:40]) for kind, version in named if isinstance(version, str) and version]


def build(every: Iterable[Sequence[Release]]) -> ReleasesData:
    """The axis with the oldest release first and undated ones last, the source of the dates, and the releases that
    occur together in one run. every: the result of `find_releases` for each run."""
    together = [list(one) for one in every]
    seen = {release: None for one in together for release in one}
    dated = [(find_date(kind, version), kind, version) for kind, version in seen]
    dated.sort(key=lambda one: (not one[0], one[0], KINDS.index(one[1])))
    pairs = {(one[0][1], version): None for one in together for kind, version in one[1:] if kind == "libtpu"}
    return {
        "axis": [{"date": date, "kind": kind, "version": version} for date, kind, version in dated],
        "pairs": list(pairs),
        "source": f"{_known()['source']}, read on {_known()['read']}",
    }
