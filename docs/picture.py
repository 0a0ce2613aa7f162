# SPDX-License-Identifier: Apache-2.0
"""Draws the end of a run as a terminal shows it: python -m docs.picture [RECORDS] [--check].

Without arguments it draws docs/summary.svg from the published run that RECORDS names. The picture contains the SHA-256
of its record file and of its text, so `--check` and tests/test_picture.py can say when it is out of date.
"""

import argparse
import hashlib
import io
import re
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from docs.package import ROOT, Facts, reading, summary

PICTURE = ROOT / "docs/summary.svg"
RECORDS = "results/0.12.0.1/cpu-8-virtual/conformance.jsonl.gz"
"""The published run that the README shows."""

MADE = re.compile(
    r"<!-- made by docs/picture\.py of (\S+), sha256 ([0-9a-f]{64}), text sha256 ([0-9a-f]{64}) -->"
)
ROWS = 24
"""The most operations in the picture; the page has the complete table."""

FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Matches the fonts that Rich loads from the network. The picture uses local fonts instead."""


def sha256(content: bytes) -> str:
    """The hexadecimal SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def shown(name: str) -> list[str]:
    """The lines of the terminal for a record file, named from the repository's root."""
    read = reading.read_records(ROOT / name)
    facts = Facts.from_json(read.runs[0]["facts"])
    return ["$ meshmark test", *facts.describe()[:2], "", *folded(summary.closing(read.cases))]


def folded(lines: Iterable[str]) -> list[str]:
    """The closing lines with at most ROWS rows of the table of operations, which ends at the first empty line."""
    found = list(lines)
    end = found.index("") if "" in found else len(found)
    first = next((i for i, line in enumerate(found[:end]) if line.startswith("---")), end) + 1
    if end - first <= ROWS:
        return found
    return [*found[: first + ROWS], f"... and {end - first - ROWS} more operations", *found[end:]]


def mark(name: str, lines: list[str]) -> str:
    """The comment in the picture with the name and SHA-256 of its record file, and the SHA-256 of its text."""
    data, text = sha256((ROOT / name).read_bytes()), sha256("\n".join(lines).encode())
    return f"<!-- made by docs/picture.py of {name}, sha256 {data}, text sha256 {text} -->"


def drawn(name: str) -> str:
    """The SVG of a record file."""
    lines = shown(name)
    console = Console(record=True, width=max(map(len, lines)), file=io.StringIO())
    for line in lines:
        console.print(Text(line))
    svg = FONTS.sub("", console.export_svg(title="meshmark"))
    head, rest = svg.split("\n", 1)
    return f"{head}\n    {mark(name, lines)}\n{rest}"


def stale(picture: str) -> str:
    """Why a picture does not match its record file; "" if it does."""
    found = MADE.search(picture)
    if not found:
        return "it does not say what it was made of"
    name = found[1]
    if not (ROOT / name).is_file():
        return f"{name} is not there"
    data, text = re.findall(r"sha256 ([0-9a-f]{64})", mark(name, shown(name)))
    if data != found[2]:
        return f"{name} has changed"
    return "" if text == found[3] else f"the summary of {name} reads differently today"


def main() -> int:
    """Draw the picture, or check it; returns the exit code."""
    parser = argparse.ArgumentParser(description="Draw docs/summary.svg, the end of a run in a terminal.")
    parser.add_argument("records", nargs="?", default=RECORDS, metavar="RECORDS", help=f"default {RECORDS}")
    parser.add_argument("--check", action="store_true", help="draw nothing; say whether the picture is stale")
    arguments = parser.parse_args()
    if not arguments.check:
        PICTURE.write_text(drawn(arguments.records), encoding="utf-8")
        print(f"wrote {PICTURE.relative_to(ROOT)} from {arguments.records}")
        return 0
    if reason := stale(PICTURE.read_text(encoding="utf-8")):
        print(f"docs/summary.svg is stale: {reason}; run python -m docs.picture", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
