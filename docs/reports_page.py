# SPDX-License-Identifier: Apache-2.0
"""Makes the page of reported bugs and the cases that show their kind, from docs/reports.toml and the published
records."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate

from docs.commands_page import cell
from docs.package import ROOT, reading

LIST = ROOT / "docs/reports.toml"
RESULTS = ROOT / "results"
PRODUCT = "cpu-8-virtual"
"""The published product whose verdicts the page shows: eight virtual CPU devices in one process."""

OVER_PROCESSES = "cpu-2x4-virtual"
"""The published product of cases over several processes: two processes of four virtual devices."""

INTRODUCTION = """# Reported bugs and the cases that show them

This page is made from `docs/reports.toml` and from the records in `results/`. Each row is a kind of bug of
distributed JAX that people reported since 2021, with the cases of the standard profile that show the kind.

The verdicts are those of the published runs on eight virtual CPU devices. `12 pass` counts cases. `known` means
that the cases show the bug, and that it is listed as a known issue of that release. A `pass` says that this
release is right here. It does not say that the reported backend is. `not run` stands for cases that are newer than
the published runs.

The last 85 reports were looked up after version 10 of the case table. It had a case of the very kind of 17: the same
operation, transformation, sharding and mode. Version 11 has one of 70, and the other 15 have none. The reproducers
of 76 kinds ran on JAX 0.10.2, 0.11.2 and 0.12.0.1.
"""

SEEN = {
    "gpu": "Seen on GPUs, and judged here on CPU alone.",
    "tpu": "Seen on TPUs, and judged here on CPU alone.",
    "processes": f"The verdicts are of two processes of four devices (`{OVER_PROCESSES}`).",
    "": "",
}


@dataclass(frozen=True)
class Bug:
    """One kind of bug."""

    reports: tuple[str, ...]
    """Numbers of the reports, such as `jax#18434`."""

    symptom: str
    cases: tuple[str, ...] = ()
    """Patterns of case ids."""

    over: str = ""
    """Where the bug occurs, or what the cases need: a key of SEEN."""

    note: str = ""
    nothing: str = ""
    """Why no case shows it."""


def bugs() -> list[Bug]:
    """The listed bugs. ValueError for an entry with neither cases nor the reason why there are none."""
    found = []
    for entry in tomllib.loads(LIST.read_text(encoding="utf-8"))["bug"]:
        bug = Bug(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})
        if bool(bug.cases) == bool(bug.nothing) or bug.over not in SEEN:
            raise ValueError(f"{LIST.name}: {', '.join(bug.reports)} needs either cases or a reason")
        found.append(bug)
    return found


def of(patterns: Iterable[str], ids: Iterable[str]) -> list[str]:
    """The ids that a pattern matches, in their order."""
    one = re.compile("|".join(map(translate, patterns)))
    return [name for name in ids if one.match(name)]


def published(product: str) -> dict[str, dict[str, str]]:
    """The verdict of each case of a published product, by release, the oldest release first."""
    paths = {path.parent.parent.name: path for path in RESULTS.glob(f"*/{product}/conformance.jsonl.gz")}
    releases = sorted(paths, key=lambda release: [int(part) for part in release.split(".")])
    return {
        release: {name: judged.verdict for name, judged in reading.read_records(paths[release]).cases.items()}
        for release in releases
    }


def told(patterns: Iterable[str], verdicts: Mapping[str, str]) -> str:
    """The verdict counts of the matching cases, the worst first: `3 known, 12 pass`; `not run` if no case matches."""
    counts = Counter(verdicts[name] for name in of(patterns, verdicts))
    order = sorted(counts, key=lambda verdict: (verdict == "pass", verdict))
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in order) or "not run"


def page() -> str:
    """The Markdown of the page."""
    every = {product: published(product) for product in (PRODUCT, OVER_PROCESSES)}
    releases = list(every[PRODUCT])
    lines = [
        INTRODUCTION,
        f"| reports | what they say | cases | {' | '.join(f'JAX {release}' for release in releases)} | |",
        "|---|---|---|" + "---|" * (len(releases) + 1),
    ]
    listed = bugs()
    for bug in (bug for bug in listed if bug.cases):
        records = every[OVER_PROCESSES if bug.over == "processes" else PRODUCT]
        cells = (
            ", ".join(bug.reports),
            cell(bug.symptom),
            ", ".join(f"`{pattern}`" for pattern in bug.cases),
            *(told(bug.cases, records.get(release, {})) for release in releases),
            cell(" ".join(filter(None, (SEEN[bug.over], bug.note)))),
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## What no case shows", ""]
    lines += [f"- {', '.join(bug.reports)} ({bug.symptom}): {bug.nothing}" for bug in listed if bug.nothing]
    return "\n".join([*lines, ""])
