# SPDX-License-Identifier: Apache-2.0
"""Checks that a built site loads nothing from the network: python -m docs.offline [DIRECTORY].

Links that a reader may follow are allowed. Scripts, styles, fonts, pictures and frames must be part of the site.
Scripts that the theme would fetch for a class of the page (`mermaid`) count too.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from docs.package import ROOT

DIRECTORY = ROOT / "build/site"
REMOTE = re.compile(r"\s*(https?:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)
FETCHED = {"mermaid"}
"""Classes for which the theme fetches a script."""


class Page(HTMLParser):
    """Collects what a page would load from the network."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Look at one tag."""
        for name, value in attributes:
            value = value or ""
            takes = name in ("src", "srcset", "poster", "data") or (name == "href" and tag == "link")
            if takes and REMOTE.match(value):
                self.found.append(value)
            if name == "style":
                self.found += IN_STYLE.findall(value)
            if name == "class" and FETCHED & set(value.split()):
                self.found.append(f'class="{value}"')


def taken(directory: Path) -> Iterator[tuple[Path, str]]:
    """(file, what it loads from the network) of a built site."""
    for file in sorted(directory.rglob("*")):
        if file.suffix == ".html":
            page = Page()
            text = file.read_text(encoding="utf-8")
            page.feed(text)
            styles = re.findall(r"<style.*?</style>", text, re.DOTALL)
            yield from ((file, what) for what in [*page.found, *IN_STYLE.findall("".join(styles))])
        elif file.suffix in (".css", ".svg"):
            yield from ((file, what) for what in IN_STYLE.findall(file.read_text(encoding="utf-8")))


def main() -> int:
    """Check the site; gives the exit code."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY
    if not (directory / "index.html").is_file():
        print(f"{directory} holds no built site: run tox run -e docs", file=sys.stderr)
        return 1
    found = list(taken(directory))
    for file, what in found:
        print(f"{file.relative_to(directory)} takes {what} from the network", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
