# SPDX-License-Identifier: Apache-2.0
"""The definition of the page's data: what is built follows it, field by field, and the documents have every field."""

import copy
import json

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("pandas")

from jsonschema import Draft202012Validator

from docs import page_data_page
from meshmark.records.fields import entries
from meshmark.report import page, page_data, page_definition, page_site, report
from tests.browser import records as made_up
from tests.checkout import ROOT


def closed(schema):
    """The schema without room for fields that are not listed."""
    if isinstance(schema, dict):
        more = {"additionalProperties": False} if "properties" in schema else {}
        return {name: closed(value) for name, value in schema.items()} | more
    return [closed(one) for one in schema] if isinstance(schema, list) else schema


WHOLE = Draft202012Validator(closed(page_definition.describe()))


def problems(data):
    """Where data leave the definition."""
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
        for error in WHOLE.iter_errors(json.loads(json.dumps(data)))
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("records")
    made_up.write(directory)
    found = report.find_records([directory])
    return page_data.build(found.sources, found.beside)


def test_made_up_records_give_what_is_defined(data):
    assert data["comparisons"] and data["over_time"] and data["wrong"]  # so that their fields are there
    assert any(run["timings"] for run in data["runs"])
    assert problems(data) == []


def test_the_pages_of_a_site_are_defined_too(data):
    size = len(page.embed(data))
    found = page_site.build(data, lambda part: len(page.embed(part)) < 0.8 * size)
    assert len(found) > 1
    assert [problem for part in found.values() for problem in problems(part)] == []


def test_the_published_page_is_defined():
    text = (ROOT / "results/page/index.html").read_text(encoding="utf-8")
    assert problems(page.data_of(text)) == []


@pytest.mark.parametrize(
    "spoil, where",
    [
        (lambda data: data.pop("strings"), "'strings' is a required property"),
        (lambda data: data.update(extra=1), "'extra' was unexpected"),
        (lambda data: data["runs"][0].update(devices="8"), "devices"),
        (lambda data: data["runs"][0].update({"class": "imaginary"}), "class"),
        (lambda data: data["runs"][0]["facts"].append(["a name alone"]), "too short"),
        (lambda data: data["cases"]["mesh"].append("2x4"), "cases/mesh"),
    ],
)
def test_what_is_not_defined_is_seen(data, spoil, where):
    spoilt = copy.deepcopy(data)
    spoil(spoilt)
    assert any(where in problem for problem in problems(spoilt)), problems(spoilt)


def test_every_field_is_documented():
    text = page_data_page.page()
    objects = page_data_page.objects()
    assert len({page_data_page.title(one) for one in objects}) == len(objects) > 20
    for one in objects:
        section = text.partition(f"## {page_data_page.title(one)}\n")[2].partition("\n## ")[0]
        assert (one.__doc__ or "").split()[0] in section
        for entry in entries(one):
            assert f"| `{entry.name}` |" in section, (one.__name__, entry.name)
