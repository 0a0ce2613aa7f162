# SPDX-License-Identifier: Apache-2.0
"""Writes the history of releases as Markdown and as a plot (matplotlib is imported only for the plot)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from meshmark.core.escaping import escape_markdown as escaped
from meshmark.core.text import counted
from meshmark.core.verdicts import BAD
from meshmark.growth.documents import pyplot, short, spell_seconds, svg
from meshmark.weather import history
from meshmark.weather.compiling import WeatherError
from meshmark.weather.history import COUNTERS, CounterChange, Line, Release

PAGE, PLOT = "weather-history.md", "weather-history.svg"

TOTALS = (
    "collectives",
    "sent",
    "asynchronous",
    "hidden",
    "exposed",
    "memory",
    "temporaries",
    "copies",
    "loops",
)
"""The counters whose sums over programs are in the tables."""

PLOTTED = ("sent", "collectives", "hidden", "exposed", "memory", "temporaries", "copies")

SHOWN = 5
"""The largest number of programs that are named per counter and step."""


def shown(counter: str, value: float | None) -> str:
    """A counter as text: exact below a million, else with three digits; as seconds for exposed time; "-" for None."""
    if value is None:
        return "-"
    if counter == "exposed":
        return spell_seconds(value) if value else "0"
    return f"{value:,.0f}" if value < 1e6 else short(value)


def page_lines(releases: Sequence[Release]) -> Iterator[str]:
    """The lines of the page, without its plot."""
    yield "# What each release changed in compiled programs"
    yield ""
    yield "This page is made by `meshmark weather --from`. Nothing ran: each figure is read or counted from a compiled"
    yield "program, so a difference is a difference of the compiler. Exposed time is a projection."
    yield "[The weather](weather.md) says what the counters are and what stands out."
    yield ""
    yield "| release | suite | places |"
    yield "|:--|:--|:--|"
    for release in releases:
        yield f"| {escaped(release.label)} | {escaped(release.suite)} | {', '.join(map(escaped, release.lines))} |"
    yield ""
    for place in history.places(releases):
        yield from _place(place, [r for r in releases if place in r.lines])


def _place(place: str, releases: Sequence[Release]) -> Iterator[str]:
    cases = history.common(releases, place)
    of = {name: history.known(releases, place, name) for name in TOTALS}
    yield f"## {escaped(place)}"
    yield ""
    yield f"Sums over the {len(cases)} programs that every release compiled, of one device:"
    yield ""
    yield "| release | " + " | ".join(_titled(name, of[name], cases) for name in TOTALS) + " | not compiled |"
    yield "|:--|" + "--:|" * (len(TOTALS) + 1)
    for release in releases:
        sums = [shown(name, history.total(release, place, of[name], name)) for name in TOTALS]
        bad = sum(line["verdict"] in BAD for line in release.lines[place].values())
        yield f"| {escaped(release.label)} | " + " | ".join(sums) + f" | {bad} |"
    yield ""
    for name in TOTALS:
        if of[name] and (lacking := set(cases).difference(of[name])):
            yield _lacking(
                name, [line for r in releases for c, line in r.lines[place].items() if c in lacking]
            )
            yield ""
    for old, new in itertools.pairwise(releases):
        yield from _step(place, old, new)


def _lacking(counter: str, lines: Sequence[Line]) -> str:
    """A sentence about the programs without a counter, from their lines in all releases: how many, and what the work
    between the start and the done of a collective has that the text does not give."""
    number = len({line["case"] for line in lines})
    title = COUNTERS[counter][0].partition(",")[0]
    text = f"{counted(number, 'program')} {'has' if number == 1 else 'have'} no {title} in some release"
    unknown = {
        name: None for line in lines for pair in line.get("pairs", ()) for name in pair.get("unknown", ())
    }
    if counter == "exposed" and unknown:
        text += f", because the text does not give some work in between ({', '.join(map(escaped, unknown))})"
    return f"{text}. The sum leaves {'it' if number == 1 else 'them'} out."


def _titled(counter: str, known: Sequence[str], cases: Sequence[str]) -> str:
    """The title of a column, with the number of programs that it sums if these are not all."""
    title = COUNTERS[counter][0]
    return (
        title
        if len(known) in (0, len(cases))
        else f"{title} ({len(known)} of {counted(len(cases), 'program')})"
    )


def _step(place: str, old: Release, new: Release) -> Iterator[str]:
    found = [change for change in history.changes(old, new) if change.place == place]
    yield f"### {escaped(place)}: {escaped(old.label)} to {escaped(new.label)}"
    yield ""
    told = [found for found in history.verdicts(old, new) if found[0] == place]
    for _, case, before, now in told:
        bad = now if now["verdict"] in BAD else before
        what = "no longer compiles" if bad is now else "compiles now; it was"
        reason = next(iter(bad["reason"].splitlines()), "")[:160]
        yield f"- `{escaped(case)}` {what}: {bad['verdict']}: {escaped(reason)}"
    if not found:
        yield "No counter of any program changed."
        yield ""
        return
    programs = len({change.case for change in found})
    if told:
        yield ""
    yield f"{counted(programs, 'program')} changed."
    yield ""
    yield "| counter | up | down | the largest changes |"
    yield "|:--|--:|--:|:--|"
    for counter in COUNTERS:
        of = [change for change in found if change.counter == counter]
        if of:
            up = sum(change.now > change.was for change in of)
            yield f"| {COUNTERS[counter][0]} | {up} | {len(of) - up} | {_largest(of)} |"
    yield ""


def _largest(of: Sequence[CounterChange]) -> str:
    ordered = sorted(of, key=lambda c: (-c.distance, -abs(c.now - c.was), c.case))
    told = [
        f"`{escaped(c.case)}` {shown(c.counter, c.was)} to {shown(c.counter, c.now)}" for c in ordered[:SHOWN]
    ]
    more = [f"and {len(of) - SHOWN} more"] if len(of) > SHOWN else []
    return "; ".join((*told, *more))


# The plot ----------------------------------------------------------------------------------------------------


def draw_history(releases: Sequence[Release]) -> Any:
    """A figure with one row per place and one column per counter: its sum over the common programs, by release."""
    plt = pyplot()
    places = history.places(releases)
    drawn, axes = plt.subplots(
        len(places),
        len(PLOTTED),
        figsize=(2.3 * len(PLOTTED), 1.7 * len(places) + 1.3),
        squeeze=False,
        sharex=True,
    )
    labels = [r.jax for r in releases]
    for row, place in enumerate(places):
        for column, counter in enumerate(PLOTTED):
            cases = history.known(releases, place, counter)
            ax = axes[row][column]
            sums = [history.total(r, place, cases, counter) if place in r.lines else None for r in releases]
            points = [(i, value) for i, value in enumerate(sums) if value is not None]
            if points:
                ax.step(*zip(*points, strict=True), where="mid", color="#0072b2", linewidth=1.4)
                ax.plot(*zip(*points, strict=True), "o", color="#0072b2", markersize=3)
                top = max(value for _, value in points) or 1
                ax.set_ylim(0, top * 1.15)
                ax.set_yticks([0, top], ["0", shown(counter, top)])
            else:
                ax.text(0.5, 0.5, "not known", transform=ax.transAxes, ha="center", color="gray")
                ax.set_yticks([])
            ax.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
            ax.grid(True, axis="x", color="#dddddd", linewidth=0.6)
            if row == 0:
                ax.set_title(COUNTERS[counter][0].replace(", ", ",\n"), fontsize=8)
        axes[row][0].set_ylabel(place, fontweight="bold")
    drawn.tight_layout()
    return drawn


def write_history_page(releases: Sequence[Release], directory: Path) -> list[Path]:
    """Write the page and its plot into the directory, which is made if missing; WeatherError if it fails."""
    drawn = draw_history(releases)
    texts = {PAGE: page(releases), PLOT: svg(drawn)}
    pyplot().close(drawn)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, made in texts.items():
            (directory / name).write_text(made, encoding="utf-8")
    except OSError as error:
        raise WeatherError(f"can't write to {directory}: {os.strerror(error.errno or 0)}") from None
    return [directory / name for name in texts]


def page(releases: Sequence[Release]) -> str:
    """The page with its plot."""
    return "\n".join(_with_plot(page_lines(releases))).rstrip("\n") + "\n"


def _with_plot(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line == "| release | suite | places |":
            yield f"![Sums of counters over the programs, release by release, for each place]({PLOT})"
            yield ""
        yield line
