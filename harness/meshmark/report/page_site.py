# SPDX-License-Identifier: Apache-2.0
"""A site of several pages, for records that do not fit into one page.

The first page keeps as many of the newest machines as fit, in full. For the others it keeps numbers of cases. Their
cases and times are on separate pages: one page per machine, or one per group of its families if a machine is too large.
A machine is the set of runs of one release, product and kind of devices. All pages have the same form. An address that
names a cell leads from the first page to the page with its cases.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from meshmark.core.errors import BadInput
from meshmark.report import page_times
from meshmark.report.page_data import JUDGED_TEXTS
from meshmark.report.page_definition import (
    CASE_COLUMNS,
    CaseColumns,
    JudgedColumns,
    LinkedPage,
    PageData,
    RunData,
    TimingColumns,
    WrongData,
)
from meshmark.report.page_parts import Strings
from meshmark.report.page_times import SHARES, TIMED_TEXTS

FIRST = "index.html"
"""The name of the first page."""
_PART = re.compile(r"run-[0-9a-f]{10}(-[0-9a-f]{4})?(-\d+)?\.html", re.ASCII)

TIMING_TEXTS = (*TIMED_TEXTS, *SHARES, "reason", "kinds")
"""The columns of times that hold indices of texts."""

UNKNOWN = "not in this release of the suite"
"""The family of an operation that the table does not have."""

Fits = Callable[[PageData], bool]
Table = TypeVar("Table", JudgedColumns, TimingColumns)


class TooLarge(BadInput, RuntimeError):
    """No division into pages is small enough."""


def build(data: PageData, fits: Fits) -> dict[str, PageData]:
    """The data of each page by its file name. fits: whether a page of some data is small enough. TooLarge if the
    records of one family do not fit into a page."""
    if fits(data):
        return {FIRST: data}
    machines = _machines(data["runs"])
    rest = dict(_pages(data, machines, fits))
    found: list[dict[str, PageData]] = [{}] * len(machines)

    def too_large(whole: int) -> bool:
        moved = {key for keys in machines[whole:] for key in keys}
        own = {name: page for name, page in rest.items() if _keys(page) <= moved}
        found[whole] = {FIRST: _first(data, moved, own)} | own
        return not fits(found[whole][FIRST])

    whole = bisect.bisect_left(range(len(machines)), True, key=too_large) - 1
    if whole < 0:
        raise TooLarge(
            "the summary of all runs alone is more than one page can hold: give it fewer record files"
        )
    pages: list[LinkedPage] = [{"name": name, "label": page["label"]} for name, page in found[whole].items()]
    return {name: {**page, "pages": pages, "here": name} for name, page in found[whole].items()}


def is_part(name: str) -> bool:
    """Whether this is the file name of a page other than the first."""
    return bool(_PART.fullmatch(name))


def _machines(runs: Sequence[RunData]) -> list[list[str]]:
    """The keys of the runs of each machine, in the order of the runs."""
    found: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        name = (run["class"], run["release"], run["machine"], run["product"])
        found.setdefault(name, []).append(run["key"])
    return list(found.values())


def _keys(page: PageData) -> set[str]:
    return {run["key"] for run in page["runs"]}


def _pages(data: PageData, machines: Sequence[Sequence[str]], fits: Fits) -> Iterator[tuple[str, PageData]]:
    """One page for each machine, or several if one is too large: halves of its families, halved again."""
    of = {operation["name"]: operation["family"] for operation in data["operations"]}
    order = [*dict.fromkeys(of.values()), UNKNOWN]
    for keys in machines:
        waiting: list[Sequence[str] | None] = [None]
        number = 0
        while waiting:
            families = waiting.pop(0)
            page = _part(data, keys, families, of)
            if not fits(page):
                halves = order if families is None else families
                if len(halves) < 2:
                    raise TooLarge(
                        f"the {', '.join(halves)} cases of {page['runs'][0]['label']} are more than one page can hold:"
                        " give it fewer records"
                    )
                middle = len(halves) // 2
                waiting[:0] = [halves[:middle], halves[middle:]]
            elif page["cases"]["operation"] or any(
                run["timings"] and run["timings"]["operation"] for run in page["runs"]
            ):
                number += 1
                yield f"run-{keys[0]}{f'-{number}' if number > 1 else ''}.html", page


def _part(
    data: PageData, keys: Sequence[str], families: Collection[str] | None, of: Mapping[str, str]
) -> PageData:
    """A page of some runs, with some families of operations (None: all families)."""
    texts, strings = data["strings"], Strings()
    inside = {
        place: families is None or of.get(text, UNKNOWN) in families for place, text in enumerate(texts)
    }  # by the index of an operation's name
    runs, cases = list[RunData](), _Cases(data, strings)
    for run in data["runs"]:
        if run["key"] not in keys:
            continue
        made = run.copy()
        if run["judged"]:
            operations = data["cases"]["operation"]
            rows = [i for i, case in enumerate(run["judged"]["case"]) if inside[operations[case]]]
            judged = _columns(run["judged"], rows, JUDGED_TEXTS, texts, strings)
            judged["case"] = [cases(case) for case in judged["case"]]
            made["judged"] = judged
        if run["timings"]:
            rows = [i for i, place in enumerate(run["timings"]["operation"]) if inside[place]]
            made["timings"] = _columns(run["timings"], rows, TIMING_TEXTS, texts, strings)
        runs.append(made)
    shown = {strings.all[place] for place in cases.columns["operation"]}
    shown |= {strings.all[i] for run in runs if run["timings"] for i in run["timings"]["operation"]}
    ids = set(cases.ids(strings))
    label = runs[0]["label"].partition(" · timing")[0]
    return {
        **data,
        "label": label if families is None else f"{label}: {', '.join(families)}",
        "runs": runs,
        "cases": cases.columns,
        "operations": [one for one in data["operations"] if one["name"] in shown],
        "programs": {k: text for k, text in data["programs"].items() if k.partition("/")[0] in shown},
        "wrong": list(_wrong(data["wrong"], keys, shown)),
        "scripts": {case: text for case, text in data["scripts"].items() if case in ids},
        "over_time": [],
        "comparisons": [],
        "beside": {"files": [], "weather": None, "growth": [], "others": []},
        "strings": strings.all,
    }


class _Cases:
    """The cases of one page, copied from the full table when they are first used."""

    def __init__(self, data: PageData, strings: Strings) -> None:
        self.columns = cast(CaseColumns, {name: list[int]() for name in CASE_COLUMNS})
        self._data, self._strings, self._places = data, strings, dict[int, int]()

    def __call__(self, case: int) -> int:
        """The index on this page of a case of the full table."""
        found = self._places.get(case)
        if found is None:
            found = self._places[case] = len(self._places)
            for name in CASE_COLUMNS:
                text = self._data["strings"][self._data["cases"][name][case]]
                self.columns[name].append(self._strings.place(text))
        return found

    def ids(self, strings: Strings) -> Iterator[str]:
        """The id of each case."""
        for parts in zip(*(self.columns[name] for name in CASE_COLUMNS[:-1]), strict=True):
            yield "/".join(strings.all[part] for part in parts)


def _columns(
    columns: Table, rows: Sequence[int], named: Collection[str], texts: Sequence[str], strings: Strings
) -> Table:
    """Some rows of a table, with the indices that its texts have on this page."""
    found: dict[str, list[Any]] = {}
    for name, column in cast(Mapping[str, Sequence[Any]], columns).items():
        values = [column[i] for i in rows]
        found[name] = [strings.place(texts[place]) for place in values] if name in named else values
    return cast(Table, found)


def _wrong(
    findings: Sequence[WrongData], keys: Collection[str], shown: Collection[str]
) -> Iterator[WrongData]:
    """The findings of these runs and operations."""
    for one in findings:
        runs = [run for run in one["runs"] if run[0] in keys and run[2].partition("/")[0] in shown]
        if runs:
            passes = [key for key in one["passes"] if key in keys]
            yield {**one, "runs": runs, "passes": passes, "cases": max(number for _, number, _ in runs)}


def _first(data: PageData, moved: Collection[str], rest: Mapping[str, PageData]) -> PageData:
    """The first page. For runs that moved to other pages, it has their numbers of cases and the page of their cases."""
    strings = Strings()
    texts = data["strings"]
    runs, cases, counted = list[RunData](), _Cases(data, strings), dict[tuple[str, ...], int]()
    for run in data["runs"]:
        made = run.copy()
        if run["key"] not in moved:
            if run["judged"]:
                rows = range(len(run["judged"]["case"]))
                judged = _columns(run["judged"], rows, JUDGED_TEXTS, texts, strings)
                judged["case"] = [cases(case) for case in judged["case"]]
                made["judged"] = judged
            if run["timings"]:
                rows = range(len(run["timings"]["operation"]))
                made["timings"] = _columns(run["timings"], rows, TIMING_TEXTS, texts, strings)
        else:
            made.update(page_times.untimed())
            made["noise"], made["claims"], made["ceilings"] = run["noise"], run["claims"], run["ceilings"]
            made["moved"] = [
                (name, [operation["name"] for operation in page["operations"]])
                for name, page in rest.items()
                if run["key"] in _keys(page)
            ]
        runs.append(made)
    ids = set(cases.ids(strings))
    for made in runs:
        if "moved" in made and made["judged"]:
            made["judged"] = _counted(data, made["judged"], cases.columns, counted, strings)
    return {
        **data,
        "label": "all runs",
        "runs": runs,
        "cases": cases.columns,
        "scripts": {case: text for case, text in data["scripts"].items() if case in ids},
        "strings": strings.all,
    }


def _counted(
    data: PageData,
    judged: JudgedColumns,
    columns: CaseColumns,
    known: dict[tuple[str, ...], int],
    strings: Strings,
) -> JudgedColumns:
    """The cases of a run as counts (`n`): one row per operation, mode, level and verdict.

    Each row has its own placeholder case, without variant, mesh, dtype and size. `columns` and `known` hold the
    placeholders of all runs.
    """
    found: dict[tuple[int, int, int, int], int] = {}
    table = data["cases"]
    for case, verdict in zip(judged["case"], judged["verdict"], strict=True):
        key = (table["operation"][case], table["mode"][case], table["level"][case], verdict)
        found[key] = found.get(key, 0) + 1
    made: dict[str, list[Any]] = {name: [] for name in (*judged, "n")}
    empty = strings.place("")
    for (operation, mode, level, verdict), number in found.items():
        text = {
            name: data["strings"][place]
            for name, place in (("operation", operation), ("mode", mode), ("level", level))
        }
        named = (text["operation"], text["mode"], text["level"])
        if named not in known:
            known[named] = len(columns["operation"])
            for part in CASE_COLUMNS:
                columns[part].append(strings.place(text.get(part, "")))
        row = {"case": known[named], "verdict": verdict, "n": number} | dict.fromkeys(JUDGED_TEXTS, empty)
        for name, column in made.items():
            column.append(row.get(name))
    return cast(JudgedColumns, made)
