# SPDX-License-Identifier: Apache-2.0
"""Pictures of the published page for the documentation, at the widths of a desktop, a tablet and a phone, in both
schemes:

python -m tests.browser.pictures results/page docs

page-pictures.json, beside them, keeps the hashes of the page and of the records from which it was made, so that a test
can find stale pictures.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from tests.browser.chromium import browser, missing

PICTURES = (  # name, width, height, section, theme
    ("page-desktop", 1440, 900, "answers", "light"),
    ("page-tablet", 768, 1024, "answers", "dark"),
    ("page-phone", 390, 844, "answers", "light"),
    ("page-matrix", 1440, 900, "legend", "light"),
    ("page-dark", 1440, 900, "bw-h", "dark"),
)


SOURCES = "page-pictures.json"


def sources(report: Path) -> dict[str, str]:
    """The SHA-256 of a page, and of each record file that it was made from."""
    page = hashlib.sha256((report / "index.html").read_bytes()).hexdigest()
    return {"index.html": page} | json.loads((report / "report.json").read_text(encoding="utf-8"))["sources"]


def main(report: Path, directory: Path) -> int:
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    with browser() as open_:
        for name, width, height, section, theme in PICTURES:
            tab = open_.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            tab.goto((report / "index.html").absolute().as_uri())
            tab.wait_for_selector("html[data-ready=yes]")
            tab.eval_on_selector(f"#{section}", "e => e.scrollIntoView({ behavior: 'instant' })")
            tab.wait_for_timeout(2000)  # charts draw when they come into view
            tab.screenshot(path=directory / f"{name}.png")
            print(f"wrote {directory / name}.png")
            tab.close()
    (directory / SOURCES).write_text(json.dumps(sources(report), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
