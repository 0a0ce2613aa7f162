# SPDX-License-Identifier: Apache-2.0
"""The yields of hunts, which are root causes per processor hour by kind of program; and weights for the next hunt.

A kind is a family of operations (shape, edge, index ...), a form with a body (scan, vmap ...), or a transform of the
whole program (vjp, jvp). The record of a hunt names the family of each operation. A program counts with all of its time
for each of its kinds. A group of findings counts only for the kinds that its shrunk program still needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshmark.core.errors import BadInput
from meshmark.hunt import logs
from meshmark.program_data.program import from_json

MOST = 3.0
"""The largest factor by which a kind becomes likelier or rarer than by its fixed weight. Yields of a few hours are
rough."""

TRANSFORMS = ("vjp", "jvp")


@dataclass(frozen=True)
class Yield:
    """The yield of one kind of program in some hunts."""

    kind: str
    programs: int
    hours: float
    """Processor hours. For a line without them (an older hunt, a worker that died), the wall time of its judging."""
    groups: int
    """The number of distinct root causes, including known ones."""

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 percent interval of root causes per hour, for a Poisson process (Garwood 1936)."""
        from scipy import stats

        if not self.hours:
            return 0.0, float("inf")
        low = stats.chi2.ppf(0.025, 2 * self.groups) / 2 if self.groups else 0.0
        return float(low / self.hours), float(stats.chi2.ppf(0.975, 2 * self.groups + 2) / 2 / self.hours)


def read_yields(files: Iterable[Path], known: Mapping[str, str] | None = None) -> list[Yield]:
    """The yields of the hunts with these records; BadInput for a file that is not a record. known: as for `measure`."""
    found = []
    for file in files:
        try:
            lines = logs.read_lines(file)
            measure([lines])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInput(
                f"{file}: a line is not what a hunt writes: {type(error).__name__}: {error}"
            ) from None
        found.append(lines)
    return measure(found, known)


def measure(
    records: Iterable[Iterable[Mapping[str, Any]]], known: Mapping[str, str] | None = None
) -> list[Yield]:
    """The yields by kind, the highest first.

    records: the lines of each hunt (`meshmark.hunt.logs`). known: the finding that explains a group, by the group's key
    (`meshmark.hunt.findings.known_groups`). All groups of one finding count as one root cause, and a group without a
    finding counts as one."""
    causes = known or {}
    programs: dict[str, int] = {}
    seconds: dict[str, float] = {}
    groups: dict[str, set[str]] = {}
    for lines in records:
        for line in lines:
            families = line.get("families", {})
            transform = {line["transform"]} if "transform" in line else set()
            for kind in {*families.values(), *transform}:
                programs[kind] = programs.get(kind, 0) + 1
                seconds[kind] = seconds.get(kind, 0.0) + line.get("cpu", line["s"])
            if "shrunk" in line:
                shrunk = from_json(line["shrunk"])
                left = {families[op] for op in shrunk.operations if op in families}
                for kind in left | transform & {shrunk.transform.kind}:
                    groups.setdefault(kind, set()).add(causes.get(line["group"], line["group"]))
    found = [
        Yield(kind, number, seconds[kind] / 3600, len(groups.get(kind, ())))
        for kind, number in programs.items()
    ]
    return sorted(found, key=lambda y: (-(y.groups / y.hours if y.hours else 0.0), y.kind))


def derive_weights(found: Iterable[Yield]) -> dict[str, float]:
    """Factors for the weights of the generator, from 1 / MOST to MOST, by kind.

    A factor is the kind's root causes per hour divided by the rate of all kinds. One root cause, with the hours that it
    takes at the common rate, is added to each kind. Transforms have no factor: the generator draws them with its own
    probabilities."""
    rows = [y for y in found if y.kind not in TRANSFORMS and y.hours]
    hours, groups = sum(y.hours for y in rows), sum(y.groups for y in rows)
    if not groups:
        return {}
    common = groups / hours
    rates = {y.kind: (y.groups + 1) / (y.hours + 1 / common) / common for y in rows}
    return {kind: round(min(MOST, max(1 / MOST, rate)), 2) for kind, rate in sorted(rates.items())}


def tabulate(found: Iterable[Yield]) -> Iterator[list[str]]:
    """Rows of text: kind, programs, hours, root causes, root causes per hour with their interval."""
    for y in found:
        low, high = y.interval
        rate = y.groups / y.hours if y.hours else 0.0
        yield [
            y.kind,
            str(y.programs),
            f"{y.hours:.2f}",
            str(y.groups),
            f"{rate:.1f} ({low:.1f} to {high:.1f})",
        ]
