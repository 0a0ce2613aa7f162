# SPDX-License-Identifier: Apache-2.0
"""SVG badges of validated products: the level that is met, the release, the hardware, and the date.

Only `meshmark validate` makes them, and only for an accepted product that meets a level. A badge of virtual devices
says so, because it is about JAX and not about hardware. A product that was only compiled meets no level and gets no
badge; if the interpreter computed the numbers of a level's cases, and all pass, its badge says "interpreted".
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from meshmark.core.errors import BadInput
from meshmark.core.escaping import plain
from meshmark.publish.review import Review

CHARACTER = 6.6
"""Pixels: an upper limit for the width of a digit or lower-case letter in common sans-serif fonts."""

LONGEST = 200
"""The most characters of a place that are used as a file name, for every file system. No accepted place is longer."""

NAME, LEVEL = "#444c56", "#176b37"
"""Background colours of the two parts. White text has a contrast of at least 4.5 to 1 on both."""


def spell_badge(review: Review) -> str:
    """The text on the badge of a product; "" if it gets none, such as a product of which some answers were not computed
    again."""
    statement = review.statement
    if review.complaints or review.left_out or statement is None:
        return ""
    if statement.topology and statement.interpreted_up_to:
        what = [f"{statement.interpreted_up_to} interpreted", f"JAX {plain(statement.jax)[:20]}"]
        return " · ".join(
            filter(None, [*what, f"compiled for {plain(statement.topology)[:40]}", review.measured])
        )
    if statement.topology or not statement.met:
        return ""
    kind = "virtual devices" if statement.virtual else plain(statement.device_kind)[:40]
    over = f"{statement.processes} processes, " if statement.processes > 1 else ""
    parts = [statement.met, f"JAX {plain(statement.jax)[:20]}", f"{over}{statement.devices} {kind}"]
    return " · ".join(filter(None, [*parts, review.measured]))


def draw(said: str) -> str:
    """The SVG of a badge."""
    name = "Meshmark"
    left, right = (round(CHARACTER * len(part)) + 14 for part in (name, said))
    said, label = escape(said), escape(f"{name}: {said}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="22" role="img" aria-label="{label}">'
        f"<title>{label}</title>"
        f'<rect width="{left}" height="22" fill="{NAME}"/><rect x="{left}" width="{right}" height="22" fill="{LEVEL}"/>'
        '<g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="15">{name}</text><text x="{left + right / 2}" y="15">{said}</text></g></svg>\n'
    )


def write_badges(reviews: list[Review], directory: Path) -> list[Path]:
    """Write the badge of each product that gets one; its place gives the file name. BadInput if writing fails."""
    made = []
    for review in reviews:
        if said := spell_badge(review):
            name = (
                "".join(
                    c if c.isascii() and (c.isalnum() or c in ".-_") else "-" for c in review.place[:LONGEST]
                ).strip("-.")
                or "product"
            )
            file = directory / f"{name}.svg"
            try:
                directory.mkdir(parents=True, exist_ok=True)
                file.write_text(draw(said), encoding="utf-8", errors="replace")
            except OSError as error:
                raise BadInput(f"can't write {file}: {error.strerror}: choose another --badges") from None
            made.append(file)
    return made
