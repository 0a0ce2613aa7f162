# SPDX-License-Identifier: Apache-2.0
"""Assembles the sources of the documentation site: python -m docs.pages [DIRECTORY].

Copies the pages of docs/, adds generated pages (commands, records, reported bugs ...), and copies each file of the
repository that a page links to. A broken link gives exit code 1. `tox -e docs` then builds the site.
"""

import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from docs import (
    commands_page,
    coverage_page,
    found_page,
    operations_page,
    page_data_page,
    records_page,
    reports_page,
)
from docs.package import ROOT, SCHEMA

DOCS = ROOT / "docs"
DIRECTORY = ROOT / "build/docs"
CARRIED = "repository"
"""The folder of the site for files from outside docs/."""

COPIED = ("*.md", "*.svg", "*.png", "*.txt", "cluster/*")
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
FENCED = re.compile(r"^(```.*?^```|(?: {4}|\t).*?$)", re.MULTILINE | re.DOTALL)


class BrokenLink(Exception):
    """A link of a page has no target."""


def inside(path: Path, directory: Path) -> bool:
    """Whether a path lies in a directory."""
    return path.is_relative_to(directory)


def carried(page: str, link: str, take: Callable[[Path], None]) -> str:
    """The link as it is on the site. `take` is called with each file to copy. page: its path in docs/."""
    if re.match(r"[a-z]+:", link):
        return link
    target = (DOCS / page).parent.joinpath(link).resolve()
    if inside(target, DOCS):
        made = target.relative_to(DOCS).as_posix() in made_pages()
        if not made and not target.is_file():
            raise BrokenLink(f"docs/{page}: {link} leads to nothing")
        return link
    if not inside(target, ROOT) or not target.is_file():
        raise BrokenLink(f"docs/{page}: {link} leads to no file of the repository")
    take(target)
    up = "../" * (len(PurePosixPath(page).parts) - 1)
    return f"{up}{CARRIED}/{target.relative_to(ROOT).as_posix()}"


def made_pages() -> dict[str, Callable[[], str]]:
    """The generated pages, by name."""
    schema = SCHEMA.relative_to(ROOT).as_posix()
    return {
        "commands.md": commands_page.page,
        "operations.md": operations_page.page,
        "coverage.md": coverage_page.page,
        "found.md": found_page.page,
        "page-data.md": page_data_page.page,
        "regressions.md": reports_page.page,
        "records.md": lambda: records_page.page(f"../{schema}"),
    }


def addresses() -> str:
    """The text of the front page on the project's addresses, from [project.urls] of pyproject.toml; "" without them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [f"- {name}: <{address}>" for name, address in project.get("urls", {}).items() if address]
    return "\n".join(["", "## Addresses", "", *lines, ""]) if lines else ""


def linked(page: str, text: str, take: Callable[[Path], None]) -> str:
    """The text of a page with its links changed to those of the site; code blocks are unchanged."""
    parts = FENCED.split(text)
    parts[::2] = [LINK.sub(lambda found: carried(page, found[1], take), part) for part in parts[::2]]
    return "".join(parts)


def assemble(directory: Path) -> list[str]:
    """Write the site's sources into an empty directory; returns the broken links."""
    shutil.rmtree(directory, ignore_errors=True)
    broken: list[str] = []

    def take(file: Path) -> None:
        copy = directory / CARRIED / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)

    texts = {name: make() for name, make in made_pages().items()}
    for pattern in COPIED:
        for file in sorted(DOCS.rglob(pattern)):
            name = file.relative_to(DOCS).as_posix()
            if file.suffix == ".md":
                texts[name] = file.read_text(encoding="utf-8")
            elif file.is_file():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, directory / name)
    texts["index.md"] += addresses()
    for name, text in texts.items():
        place = directory / name
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            place.write_text(linked(name, text, take), encoding="utf-8")
        except BrokenLink as error:
            broken.append(str(error))
    return broken


def main() -> int:
    """Assemble the sources; returns the exit code."""
    directory = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else DIRECTORY
    broken = assemble(directory)
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
