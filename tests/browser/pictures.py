# SPDX-License-Identifier: Apache-2.0
"""Pictures of the published page for the documentation, at desktop and phone width:

python -m tests.browser.pictures results/page docs

page-pictures.json, beside them, keeps the hashes of the records from which the page was made, so that a test can find
stale pictures.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.browser.chromium import browser, missing

PICTURES = (  # name, width, height, section, theme
    ("page-desktop", 1280, 1000, "answers", "light"),
    ("page-matrix", 1280, 900, "legend", "light"),
    ("page-dark", 1280, 900, "bw-h", "dark"),
    ("page-phone", 390, 844, "matrix-status", "light"),
)


SOURCES = "page-pictures.json"


def sources(report: Path) -> dict[str, str]:
    """The SHA-256 of each record file that a page was made from."""
    return json.loads((report / "report.json").read_text(encoding="utf-8"))["sources"]


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
