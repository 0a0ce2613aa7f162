# SPDX-License-Identifier: Apache-2.0
"""The page of a running run in a browser: it reloads while the file grows, and keeps the search and the position."""

from meshmark.report import live
from tests.browser import records as made_up
from tests.browser.waiting import SECONDS, shows
from tests.report.test_live import serving


def test_a_page_that_loads_again_keeps_the_search_and_the_place(browser, tmp_path, monkeypatch):
    file, lines = tmp_path / "run.jsonl", made_up.judged()
    made_up.file(file, made_up.run("aaaa"), lines[:20])
    monkeypatch.setattr(live, "GROWING", 3600.0)
    with serving(file, refresh=2) as address:
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.goto(address)
        tab.wait_for_selector("html[data-ready=yes]")
        tab.fill("#f-q", "manual")
        tab.wait_for_url("**q=manual*")
        shows(tab, "#matrix-status", "of 10 cases match")
        tab.evaluate("scrollTo({ top: 700, behavior: 'instant' })")
        made_up.file(file, made_up.run("aaaa"), lines)
        shows(tab, "#matrix-status", "of 15 cases match")
        assert tab.input_value("#f-q") == "manual"
        tab.wait_for_function("() => Math.abs(scrollY - 700) < 60", timeout=SECONDS * 1000)
        tab.close()


def test_what_is_typed_as_the_page_loads_again_stays(browser, tmp_path, monkeypatch):
    file = tmp_path / "run.jsonl"
    made_up.file(file, made_up.run("aaaa"), made_up.judged())
    monkeypatch.setattr(live, "GROWING", 3600.0)
    with serving(file, refresh=60) as address:
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        # The page loads again when the test says so, not after its 60 s.
        tab.add_init_script(
            "const wait = setTimeout; setTimeout = (f, ms) => ms === 60000 ? (globalThis.again = f) : wait(f, ms);"
        )
        tab.goto(address)
        tab.wait_for_selector("html[data-ready=yes]")
        with tab.expect_navigation(
            wait_until="load"
        ):  # the address follows the search after 120 ms: too late
            tab.evaluate(
                """() => {
                  const search = document.getElementById("f-q");
                  search.value = "manual"; search.dispatchEvent(new Event("input")); globalThis.again();
                }"""
            )
        shows(tab, "#matrix-status", "of 15 cases match")
        assert tab.input_value("#f-q") == "manual" and tab.url.endswith("#q=manual")
        tab.close()
