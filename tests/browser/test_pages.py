# SPDX-License-Identifier: Apache-2.0
"""A site of several pages in a browser: the first view, links to the cases of a run with its own page, and back."""

import pytest

from meshmark.report import page, page_data, report
from tests.browser import chromium
from tests.browser import records as made_up
from tests.browser.waiting import shows


@pytest.fixture(scope="module")
def site(browser, tmp_path_factory):
    """The first page of made-up records that are more than one page may hold."""
    directory = tmp_path_factory.mktemp("site")
    made_up.write(directory / "in")
    found = report.find_records([directory / "in"])
    data = page_data.build(found.sources, found.beside)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(page, "MOST", len(page.page(data).encode()) - 20_000)
        patched.setattr(page, "LINKS", 2_000)
        texts = page.pages(data)
    assert len(texts) > 1
    report.write_pages(texts, directory / "out")
    return directory / "out" / "index.html"


def moved(tab):
    """The key of a run that has a page of its own, and the name of that page."""
    return tab.evaluate(
        "(() => { const d = JSON.parse(document.getElementById('data').textContent), r = d.runs.find("
        "(x) => x.moved && x.judged && x.label.includes('0.10.2')); return [r.key, r.moved[0][0]]; })()"
    )


def test_the_first_page_has_the_numbers_of_every_run(open_file, site):
    tab = open_file(site)
    key, _ = moved(tab)
    shows(tab, "#pages", "One of ")
    tab.evaluate(f"location.hash = '#runs={key}'")
    tab.wait_for_function(
        "() => document.querySelector('#matrix-status').textContent.startsWith('15 cases in 1 run')"
    )
    shows(tab, "#matrix-prov", "has its cases and times on")
    tab.fill("#f-q", "shift_set auto")
    shows(tab, "#matrix-status", "1 of 15 cases match")


def test_a_cell_of_such_a_run_leads_to_its_cases_and_back(open_file, site):
    tab = open_file(site)
    key, name = moved(tab)
    tab.goto(site.as_uri() + f"#cell=L2~shift_set~explicit~{key}&q=shift_set")
    tab.reload()
    tab.wait_for_selector("dialog[open] .elsewhere a")
    tab.click("dialog[open] .elsewhere a")
    tab.wait_for_url(f"**/{name}*")
    tab.wait_for_selector("html[data-ready=yes]")
    assert tab.inner_text("#detail-h") == "shift_set · explicit · L2"
    tab.click("dialog details.case > summary")
    shows(tab, "#detail-body", "31 of 64 elements differ")
    assert tab.input_value("#f-q") == "shift_set", "filters go along"
    tab.click("#detail-close")
    tab.click("#pages summary")
    tab.click("#pages a >> nth=0")
    tab.wait_for_url(f"**/{site.name}*")
    tab.wait_for_selector("html[data-ready=yes]")
    assert tab.url.partition("#")[0] == site.as_uri()


def test_every_page_has_the_look_of_the_first_and_no_errors(open_file, site):
    names = sorted(p.name for p in site.parent.glob("run-*.html"))
    assert names
    for name in names:
        tab = open_file(site.with_name(name), "#view=matrix")
        assert tab.locator(".matrix").count() <= 1 and tab.is_visible("#answers-h")
        assert "all runs" in tab.evaluate("document.querySelector('#pages').textContent")


def test_axe_finds_nothing_on_a_first_page(open_file, site):
    axe = chromium.axe()
    tab = open_file(site)
    tab.click("#pages summary")
    found = axe.Axe().run(tab).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:100]) for v in found] == []
