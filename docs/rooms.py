# SPDX-License-Identifier: Apache-2.0
"""Draws the rooms of the package, from the contract that import-linter checks: python -m docs.rooms.

The order of the rooms is that of the contract in pyproject.toml, and the text of a room is its docstring. A test fails
if docs/architecture.svg differs.
"""

import ast
import sys
import textwrap
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

from docs.package import ROOT

PICTURE = ROOT / "docs/architecture.svg"
WIDTH, MARGIN, GAP = 720, 20, 14
LINE, PADDING = 17, 10
CHARACTER = 6.3
"""The largest width of a character of the small text; it decides how much text fits into a box."""

STYLE = """  <style>
    svg { font-family: sans-serif; }
    .room { fill: #eef2ff; stroke: #4051b5; }
    text { font-size: 12px; text-anchor: middle; fill: #222222; }
    .name { font-weight: bold; font-size: 14px; }
    .arrow { stroke: #4051b5; stroke-width: 2; fill: #4051b5; }
  </style>"""


def layers() -> list[list[str]]:
    """The rooms from top to bottom; rooms of one layer do not import each other."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract = next(c for c in settings["contracts"] if c["type"] == "layers")
    return [[room.strip() for room in layer.split("|")] for layer in contract["layers"]]


def purpose(room: str) -> str:
    """What a room is for: the first sentence of its docstring, on one line."""
    source = (ROOT / f"harness/meshmark/{room}/__init__.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(docstring.split("\n\n")[0].split()).replace("`", "")


def box(room: str, x: float, y: float, width: float, height: float, lines: list[str]) -> list[str]:
    """One room as SVG."""
    middle = x + width / 2
    drawn = [f'  <rect class="room" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{height}" rx="5"/>']
    drawn.append(f'  <text class="name" x="{middle:.0f}" y="{y + PADDING + 11}">{room}</text>')
    for number, line in enumerate(lines, 1):
        place = y + PADDING + 11 + LINE * number
        drawn.append(f'  <text x="{middle:.0f}" y="{place}">{escape(line)}</text>')
    return drawn


def drawn() -> str:
    """The SVG of all rooms."""
    shapes, y = [], 16
    for layer in layers():
        width = (WIDTH - GAP * (len(layer) - 1)) / len(layer)
        texts = [textwrap.wrap(purpose(room), int((width - 2 * PADDING) / CHARACTER)) for room in layer]
        height = 2 * PADDING + LINE * (1 + max(map(len, texts))) - 6
        for number, (room, lines) in enumerate(zip(layer, texts, strict=True)):
            shapes += box(room, MARGIN + number * (width + GAP), y, width, height, lines)
        y += height + GAP
    end, right = y - GAP, MARGIN + WIDTH + 26
    size = f"0 0 {MARGIN + WIDTH + 60} {end + 34}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img" aria-label="The rooms of the package,'
            ' each above those that it imports">',
            "  <!-- made by docs/rooms.py from the contract in pyproject.toml and the docstrings of the rooms -->",
            STYLE,
            f'  <rect width="{MARGIN + WIDTH + 60}" height="{end + 34}" fill="#ffffff"/>',
            *shapes,
            f'  <path class="arrow" d="M {right} 16 V {end - 12}"/>',
            f'  <polygon class="arrow" points="{right - 5},{end - 12} {right + 5},{end - 12} {right},{end}"/>',
            f'  <text transform="translate({right + 20} {end // 2}) rotate(90)">imports point down</text>',
            f'  <text x="{MARGIN + WIDTH // 2}" y="{end + 22}">A room imports only rooms below it, never one above it'
            " or beside it.</text>",
            "</svg>\n",
        ]
    )


def main() -> int:
    """Write the picture; returns the exit code."""
    PICTURE.write_text(drawn(), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(Path.cwd()) if PICTURE.is_relative_to(Path.cwd()) else PICTURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
