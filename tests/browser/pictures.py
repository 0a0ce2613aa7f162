"""Pictures of the published page for the documentation, at desktop and phone width:

python -m tests.browser.pictures results/page docs
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.browser.chromium import browser, missing

PICTURES = (  # name, width, height, section, theme
    ("page-desktop", 1280, 1000, "answers", "light"),
    ("page-matrix", 1280, 900, "legend", "light"),
    ("page-dark", 1280, 900, "bw-h", "dark"),
    ("page-phone", 390, 844, "matrix-status", "light"),
)


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
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
