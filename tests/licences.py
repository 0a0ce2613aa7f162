# SPDX-License-Identifier: Apache-2.0
"""The licence line of every source file: `python -m tests.licences` adds missing ones.

A source file is a file that git tracks, or would track, and that has a form of comment listed below. Results and
generated files are data and have no such line. The line is the first one, or the second after `#!`.
"""

import subprocess
from pathlib import Path

from tests.checkout import ROOT

LINE = "SPDX-License-Identifier: Apache-2.0"
FORMS = {
    **dict.fromkeys((".py", ".sh", ".sbatch", ".toml", ".yaml", ".yml", ".ini", ".in", ".cff"), "# {}\n"),
    **dict.fromkeys((".css", ".js"), "/* {} */\n"),
    ".html": "{{# {} -#}}\n",  # a comment of Jinja, which the page does not have
    **dict.fromkeys(("Containerfile", "run"), "# {}\n"),  # `run` is .ci/run, a script without a suffix
}
"""Suffix or name: how a comment is written."""

DATA = ("results/", "docs/transcripts/", "harness/meshmark/levels/data/must_pass/")
"""Directories of data."""


def sources(root: Path = ROOT) -> list[Path]:
    """Every source file of the checkout."""
    listed = ("git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = [root / n for n in sorted(set(names)) if n and not n.startswith(DATA)]
    return [p for p in paths if _form(p) and p.is_file()]


def missing(paths: list[Path]) -> list[Path]:
    """Those of the files that lack the line."""
    return [
        p for p in paths if _form(p).format(LINE) not in p.read_text(encoding="utf-8").splitlines(True)[:2]
    ]


def add(path: Path) -> None:
    """Put the line into one file."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    first = 1 if lines and lines[0].startswith("#!") else 0
    path.write_text("".join([*lines[:first], _form(path).format(LINE), *lines[first:]]), encoding="utf-8")


def _form(path: Path) -> str:
    return FORMS.get(path.name) or FORMS.get(path.suffix, "")


if __name__ == "__main__":
    for source in missing(sources()):
        add(source)
        print(source.relative_to(ROOT))
