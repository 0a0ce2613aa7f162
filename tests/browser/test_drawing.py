# SPDX-License-Identifier: Apache-2.0
"""The order in which parts of the page are drawn: the first view first, the others in idle moments or on request, and
again after a change when the reader comes near them."""

import pytest

from tests.browser import records as made_up
from tests.browser.conftest import make
from tests.browser.waiting import shows


@pytest.fixture
def busy(browser, page_file):
    """The page in a browser that is never idle."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.add_init_script("window.requestIdleCallback = () => 1")
    tab.goto(page_file.as_uri())
    tab.wait_for_selector("html[data-shown=yes]")
    yield tab
    tab.close()


def test_the_first_view_waits_for_nothing(busy):
    assert "JAX 0.12.0.1" in busy.inner_text("#headline") and busy.locator("#glance rect").count() > 0
    shows(busy, "#answers-cards", "Which mode should I use?")
    assert busy.get_attribute("html", "data-ready") is None
    assert busy.get_attribute("#growth-out", "aria-busy") == "true" and not busy.inner_text("#growth-out")


def test_a_search_is_answered_at_once(busy):
    busy.fill("#f-q", "shift_set")
    shows(busy, "#matrix-status", "cases match")
    assert busy.locator(".matrix tbody tr:not(.group):not([hidden])").count() == 1


def test_a_link_draws_what_it_leads_to_and_what_is_above(busy):
    busy.click("nav a[href='#view=growth']")
    shows(busy, "#growth-out", "grow faster than theory")
    assert busy.locator("#wrong-out tbody tr").count() == 3 and busy.locator(".matrix").count() == 1
    assert not busy.text_content("#runs-out"), "what is below waits"
    busy.wait_for_function(
        "() => Math.abs(document.getElementById('growth').getBoundingClientRect().top) < 120"
    )


def test_after_a_change_what_is_far_waits_until_it_is_near(open_page):
    tab = open_page()
    assert "cumsum" not in tab.inner_text("#communication-out") and tab.locator("[aria-busy]").count() == 0
    tab.fill("#f-q", "zzz")
    tab.wait_for_selector("#changes-out[aria-busy]")
    before = tab.inner_text("#changes-out")
    tab.locator("#changes-h").scroll_into_view_if_needed()
    tab.wait_for_selector("#changes-out:not([aria-busy])")
    assert tab.inner_text("#changes-out") != before


def test_the_headline_says_what_the_newest_release_mended_and_broke(open_file, tmp_path):
    old = {("shift_set", "auto"): ("known", "row lost"), ("shift_set", "explicit"): ("fail", "3 differ")}
    bad = {("matmul", "manual"): ("crash", "signal 11")}
    made_up.file(tmp_path / "in" / "old.jsonl", made_up.run("aaaa", "0.10.2"), made_up.judged(old))
    made_up.file(tmp_path / "in" / "new.jsonl", made_up.run("bbbb"), made_up.judged(bad))
    tab = open_file(make(tmp_path / "in"))
    text = " ".join(tab.inner_text("#headline").split())
    assert text.startswith("JAX 0.12.0.1 on 8 × cpu (virtual): 14 of 15 pass, 1 crash.")
    assert "1 failure that no list knows, 0 known issues." in text
    assert text.endswith("Beside 0.10.2 it broke 1 and mended 2.")
    tab.click("#headline a")
    assert "view=wrong" in tab.url
