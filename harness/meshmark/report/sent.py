# SPDX-License-Identifier: Apache-2.0
"""Compares the bytes that the modes of one cell send, as their programs were compiled.

Manual mode is measured by its compiled program, not by its source. The backend may widen a narrow dtype or gather in
another way in manual mode too. The same bytes in auto or explicit mode are then not an excess. A variant without a
manual case, such as a change of sharding, is compared with what its operation must send (`theory` in its record).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from meshmark.core.dtypes import DTYPES
from meshmark.core.text import number
from meshmark.core.verdicts import BAD
from meshmark.records.reading import Judged

GLOBAL_MODES = ("auto", "explicit", "pjit")
"""The modes in which the compiler chooses the collectives."""


@dataclass(frozen=True)
class Sent:
    """A case of a global mode and the manual case of its cell, or the theory of its operation; `bytes` and `least` are
    per device and call."""

    judged: Judged
    bytes: float
    least: float

    @property
    def times(self) -> float:
        """The bytes divided by `least`; infinite if that is none."""
        if self.bytes == self.least:
            return 1.0
        return self.bytes / self.least if self.least else math.inf


def wire_bytes(judged: Judged) -> float:
    """Bytes per device that a judged program sends as compiled; NaN if its record does not say."""
    return next((number(line["wire_bytes"]) for line in judged.lines if "wire_bytes" in line), math.nan)


def manual_case(case: str) -> str:
    """The id of the manual case of the same cell; a topology after "@" stays."""
    parts = case.split("/")
    return "/".join([*parts[:2], "manual", *parts[3:]])


def manual_bytes(case: str, cases: Mapping[str, Judged]) -> float:
    """Bytes per device of the manual case of the same cell; NaN if there is none, or if its verdict is bad."""
    manual = cases.get(manual_case(case))
    return math.nan if manual is None or manual.verdict in BAD else wire_bytes(manual)


def beside_manual(cases: Mapping[str, Judged]) -> list[Sent]:
    """Every case of a global mode whose cell has a manual case, with the bytes of both, in the order of the records.

    A case with a bad verdict shows nothing about its mode, so it is left out. A cell with a bad manual case is left out
    too.
    """
    found = []
    for case, judged in cases.items():
        if judged["mode"] in GLOBAL_MODES and judged.verdict not in BAD:
            sent, manual = wire_bytes(judged), manual_bytes(case, cases)
            if math.isfinite(sent) and math.isfinite(manual):
                found.append(Sent(judged, sent, manual))
    return found


def beside_theory(cases: Mapping[str, Judged]) -> list[Sent]:
    """Every case of a global mode of a variant that has no manual case in these records, with the bytes that it sends
    and those of its theory, in the order of the records. Dtypes of less than 32 bits are left out, because a backend
    may send wider ones."""
    spelled = {_variant(judged) for judged in cases.values() if judged["mode"] not in GLOBAL_MODES}
    found = []
    for judged in cases.values():
        owed = next((line["theory"] for line in judged.lines if isinstance(line.get("theory"), dict)), None)
        if judged["mode"] in GLOBAL_MODES and judged.verdict not in BAD and owed is not None:
            sent, needed = wire_bytes(judged), sum(map(number, owed.values()))
            known = math.isfinite(sent) and math.isfinite(needed)
            if known and _variant(judged) not in spelled and not _is_narrow(judged):
                found.append(Sent(judged, sent, needed))
    return found


def _variant(judged: Judged) -> tuple[str, str]:
    return judged["operation"], _part(judged, 1)


def _is_narrow(judged: Judged) -> bool:
    name = _part(judged, 4)
    return name in DTYPES and DTYPES[name].itemsize < 4


def _part(judged: Judged, number: int) -> str:
    """A part of the case id; "" if the record has an id of fewer parts."""
    return "".join(judged.case.split("/")[number : number + 1])


def largest(found: Iterable[Sent]) -> list[tuple[Sent, int]]:
    """For each operation and mode that sends more than it is compared with: the case with the largest factor, and the
    number of such cases. The largest factor comes first."""
    rows: dict[tuple[str, str], list[Sent]] = {}
    for one in found:
        if one.times > 1:
            rows.setdefault((one.judged["operation"], one.judged["mode"]), []).append(one)
    worst = [(max(same, key=lambda s: (s.times, s.bytes)), len(same)) for same in rows.values()]
    return sorted(worst, key=lambda row: (-row[0].times, -row[0].bytes))
