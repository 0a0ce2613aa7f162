# SPDX-License-Identifier: Apache-2.0
"""What hunts found per hour of a processor, by kind of program; and weights for the next hunt that follow it.

A kind is a family of operations (shape, edge, index ...), a form with a body (scan, vmap ...), or a transform of the
whole (vjp, jvp). The record of a hunt names the family of each operation. A program counts with all of its time for
each of its kinds. A group of findings counts for the kinds of its shrunk program: these are what it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshmark.core.errors import BadInput
from meshmark.hunt import logs
from meshmark.hunt.program import from_json

MOST = 3.0
"""The largest factor by which a kind becomes likelier or rarer than by hand: yields of a few hours are rough."""

TRANSFORMS = ("vjp", "jvp")


@dataclass(frozen=True)
class Yield:
    """One kind of program in some hunts."""

    kind: str
    programs: int
    hours: float
    """Hours of a processor; of a worker's judging where the record has no others (older hunts, a worker that died)."""
    groups: int
    """The number of different root causes, known ones too."""

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 percent interval of root causes per hour, for a Poisson process (Garwood 1936)."""
        from scipy import stats

        if not self.hours:
            return 0.0, float("inf")
        low = stats.chi2.ppf(0.025, 2 * self.groups) / 2 if self.groups else 0.0
        return float(low / self.hours), float(stats.chi2.ppf(0.975, 2 * self.groups + 2) / 2 / self.hours)


def read(files: Iterable[Path], known: Mapping[str, str] | None = None) -> list[Yield]:
    """The yields of hunts by their records, `known` as for `measure`; BadInput for a file that is not such a record."""
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
    """The yields by kind, the most first; `records` are the lines of each hunt (`meshmark.hunt.logs`).

    known: the finding that explains a group (`meshmark.hunt.findings.known_groups`): its groups are one root cause. A
    group that none explains counts for itself."""
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
    """Factors for the weights of the generator: each kind's root causes per hour over those of all kinds, with one root
    cause's worth of the common rate added to each, and at most MOST. Transforms have none: the generator draws these by
    shares of its own."""
    rows = [y for y in found if y.kind not in TRANSFORMS and y.hours]
    hours, groups = sum(y.hours for y in rows), sum(y.groups for y in rows)
    if not groups:
        return {}
    common = groups / hours
    rates = {y.kind: (y.groups + 1) / (y.hours + 1 / common) / common for y in rows}
    return {kind: round(min(MOST, max(1 / MOST, rate)), 2) for kind, rate in sorted(rates.items())}


def tabulate(found: Iterable[Yield]) -> Iterator[list[str]]:
    """Rows of text: kind, programs, hours, root causes, per hour with its interval."""
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
