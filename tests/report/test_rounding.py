# SPDX-License-Identifier: Apache-2.0
"""A report has the same bytes on processors whose logarithms and exponentials differ in the last bit."""

import json
import math
import random

import numpy as np
import pytest

pytest.importorskip("bokeh", reason="the page needs Bokeh: pip install -e '.[page]'")
pytest.importorskip("jinja2", reason="the page needs Jinja: pip install -e '.[page]'")

from meshmark.report import report, rounding
from tests.browser import records as made_up


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Seven processes of times with noise, so that ratios, fits and scaling have all their digits, and errors over
    their bounds."""
    directory = tmp_path_factory.mktemp("noisy")
    rng = random.Random(3)
    lines = made_up.timed(processes=7) + made_up.stepped(processes=7)
    for line in lines:
        for name in ("samples_s", "control_s"):
            if line["kind"] == "timing" and name in line:
                line[name] = [t * (1 + 0.1 * rng.random()) for t in line[name]]
    made_up.file(directory / "times.jsonl", made_up.run("aaaa"), lines)
    judged = made_up.judged()
    for line in judged:
        if "error" in line:
            line |= {"error": rng.random(), "bound": 1 + rng.random()}
    made_up.file(directory / "cases.jsonl", made_up.run("bbbb"), judged)
    made_up.compared(directory / "comparison.jsonl")
    made_up.beside(directory)
    return directory


def made(source):
    found = report.find_records([source])
    return report.make_report(found.sources, found.beside)


FUNCTIONS = (
    *((np, name) for name in ("log", "exp", "sqrt", "quantile")),
    (np.linalg, "norm"),
    *((math, name) for name in ("log", "exp", "log2", "sqrt")),
)
"""The functions whose last bit a processor may decide. Square roots are exact everywhere, and stand for the rest."""


def another_processor(monkeypatch, way):
    """Each of FUNCTIONS as a processor may give it whose last bit differs: one unit in the last place up or down."""

    def off(function):
        def moved(*arguments, **options):
            found = function(*arguments, **options)
            if isinstance(found, float) and not isinstance(found, np.floating):
                return math.nextafter(found, way)
            return np.nextafter(found, way)

        return moved

    for module, name in FUNCTIONS:
        monkeypatch.setattr(module, name, off(getattr(module, name)))


@pytest.mark.parametrize("way", [-math.inf, math.inf])
def test_the_last_bit_of_a_function_changes_no_byte(source, monkeypatch, way):
    before = made(source)
    another_processor(monkeypatch, way)
    after = made(source)
    assert [name for name in before if before[name] != after[name]] == []


def test_without_the_rounding_it_would(source, monkeypatch):
    for function in (rounding.significant, rounding.rounded):
        monkeypatch.setattr(function, "__defaults__", (17,))
    before = made(source)
    another_processor(monkeypatch, math.inf)
    after = made(source)
    assert {"timings.csv", "index.html"} <= {name for name in before if before[name] != after[name]}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1.0076429572845746, 1.00764296),
        (1.0076429572845744, 1.00764296),
        (4096.0, 4096.0),
        (123456789012.0, 123456789012.0),
        (2.0**60, 1.1529215e18),
        (-1.23456789012e-7, -1.23456789e-7),
        (math.inf, math.inf),
    ],
)
def test_a_figure_keeps_nine_digits_and_a_whole_number_all(value, written):
    assert rounding.significant(value) == written


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1.234567, "1.2346"), (4096.0, "4096"), (123456.7, "123460"), (7, "7"), (None, "null"), (math.nan, "null"),
     (math.inf, "null"), (True, "null"), ("1", "null")],
)  # fmt: skip
def test_a_figure_of_the_page_is_a_json_number_or_null(value, shown):
    assert json.dumps(rounding.rounded(value)) == shown
