# SPDX-License-Identifier: Apache-2.0
"""The page of the false-green table says what its generator writes; a run gives only seconds and machine."""

import re

from tests.checkout import ROOT
from tests.trouble import false_green

PAGE = (ROOT / "docs" / "false-green.md").read_text(encoding="utf-8")

MADE = r"\(jax .*? ways\)"
"""Where the page was made, and of how many ways."""


def rows():
    """The rows of the table of ways, which has five columns."""
    split = [tuple(line.strip("| ").split(" | ")) for line in PAGE.splitlines() if line.startswith("| ")]
    return [row for row in split if len(row) == 5][1:]


def without_the_machine(page):
    return re.sub(MADE, "", page, flags=re.DOTALL)


def test_the_text_is_the_generator_s():
    assert without_the_machine(PAGE) == without_the_machine(false_green.page(rows()))
    assert without_the_machine(PAGE) != PAGE


def test_the_table_has_each_way_with_its_end():
    listed = {(name, workers): (verdict, code) for name, workers, verdict, code, _ in rows()}
    ways = {(way.name, way.workers): (way.verdict, str(way.code)) for way in false_green.WAYS}
    assert listed == ways and len(rows()) == len(ways)
