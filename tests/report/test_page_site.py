# SPDX-License-Identifier: Apache-2.0
"""A site of several pages: every case and time is on one page, the first page has their counts, and links work."""

import json
from collections import Counter

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("pandas")

from meshmark.report import page, page_data, page_definition, page_site, report
from tests.browser import records as made_up


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    made_up.write(directory)
    found = report.find_records([directory])
    return page_data.build(found.sources, found.beside)


def rows(data):
    """Each judged case of a page with all its texts, as often as it is there; those of counted rows too."""
    found, texts = Counter(), data["strings"]
    for run in data["runs"]:
        judged = run["judged"]
        for i, case in enumerate(judged["case"] if judged else ()):
            names = tuple(texts[data["cases"][name][case]] for name in page_definition.CASE_COLUMNS)
            said = tuple(texts[judged[name][i]] for name in page_data.JUDGED_TEXTS)
            wire = judged["wire"][i], judged["manual"][i]
            if "n" not in judged:
                found[run["key"], names, data["verdicts"][judged["verdict"][i]], said, wire] += 1
    return found


def times(data):
    found, texts = Counter(), data["strings"]
    for run in data["runs"]:
        columns = run["timings"] or {"operation": []}
        for i in range(len(columns["operation"])):
            named = tuple(texts[columns[name][i]] for name in page_site.TIMING_TEXTS)
            found[run["key"], named, columns["median_s"][i], columns["order"][i]] += 1
    return found


def counted(data):
    """Cases by run, operation, mode, level and verdict, on a first page: counted there or whole."""
    found, texts = Counter(), data["strings"]
    for run in data["runs"]:
        judged = run["judged"]
        for i, case in enumerate(judged["case"] if judged else ()):
            names = tuple(texts[data["cases"][name][case]] for name in ("operation", "mode", "level"))
            found[run["key"], names, judged["verdict"][i]] += judged.get("n", [1] * (i + 1))[i]
    return found


def most(number):
    """What fits on a page: so many rows of cases and times, a counted row for a tenth."""

    def fits(data):
        judged = [run["judged"] for run in data["runs"] if run["judged"]]
        size = sum(len(j["case"]) * (0.1 if "n" in j else 1) for j in judged)
        timed = sum(len(run["timings"]["operation"]) for run in data["runs"] if run["timings"])
        return size + timed <= number

    return fits


def test_what_fits_is_one_page(data):
    assert page_site.build(data, most(10**6)) == {"index.html": data}


@pytest.mark.parametrize("number", [160, 90])
def test_every_case_and_time_is_on_one_page(data, number):
    """160 rows hold a machine; 90 do not, and its families are divided."""
    found = page_site.build(data, most(number))
    assert len(found) > 2 and all(most(number)(part) for part in found.values())
    assert sum((rows(part) for part in found.values()), Counter()) == rows(data)
    assert sum((times(part) for part in found.values()), Counter()) == times(data)
    assert counted(found["index.html"]) == counted(data)
    assert all(page_site.is_part(name) for name in found if name != "index.html")
    for name, part in found.items():
        assert part["here"] == name and [p["name"] for p in part["pages"]] == list(found)


def test_a_run_that_moved_says_where_its_operations_are(data):
    found = page_site.build(data, most(90))
    moved = [run for run in found["index.html"]["runs"] if "moved" in run]
    assert moved
    for run in moved:
        for name, operations in run["moved"]:
            assert {one["name"] for one in found[name]["operations"]} == set(operations)
            assert run["key"] in {other["key"] for other in found[name]["runs"]}
    whole = [run for run in found["index.html"]["runs"] if "moved" not in run]
    assert all("n" not in run["judged"] for run in whole if run["judged"])


def test_the_newest_machine_stays_on_the_first_page(data):
    first = page_site.build(data, most(200))["index.html"]
    assert "moved" not in first["runs"][0] and "moved" in first["runs"][-1]


def test_findings_of_a_page_are_those_of_its_runs(data):
    found = page_site.build(data, most(160))
    for name, part in found.items():
        keys = {run["key"] for run in part["runs"]}
        for one in part["wrong"]:
            assert {key for key, _, _ in one["runs"]} <= keys, name
    assert found["index.html"]["wrong"] == data["wrong"]
    assert any(part["wrong"] for name, part in found.items() if name != "index.html")


def test_one_family_that_is_too_large_is_refused(data):
    with pytest.raises(page_site.TooLarge, match=r"collectives cases of .* more than one page can hold"):
        page_site.build(data, most(5))


def test_pages_are_small_enough_and_old_ones_go(data, tmp_path, monkeypatch):
    alone = page.pages(data)
    assert list(alone) == ["index.html"]
    monkeypatch.setattr(page, "MOST", len(alone["index.html"].encode()) - 1)
    monkeypatch.setattr(page, "LINKS", 2_000)
    several = page.pages(data)
    assert len(several) > 1 and all(len(text.encode()) <= page.MOST for text in several.values())
    (tmp_path / "run-mine.html").write_text("of someone else")
    manifest = {"suite": "0", "made_with": {}, "sources": {}, "files": dict.fromkeys(several, "")}
    report.write_pages(several | {"report.json": json.dumps(manifest)}, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {*several, "report.json", "run-mine.html"}
    report.write_pages(alone | {"report.json": "{}"}, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"index.html", "report.json", "run-mine.html"}
