# SPDX-License-Identifier: Apache-2.0
"""The keyboard: a region of the page is one tab stop, arrow keys reach all that is in it, and its name says so. The
back key undoes a step."""

import pytest

from tests.browser.waiting import shows

FOCUS = "document.activeElement"


def stops(tab, place):
    """What Tab reaches in an element, as its tag and text."""
    return tab.eval_on_selector(
        place,
        """box => [...box.querySelectorAll("a[href], button, input, select, summary, [tabindex]")]
          .filter(e => e.tabIndex === 0 && e.checkVisibility())
          .map(e => `${e.tagName} ${e.id || e.textContent.slice(0, 30)}`)""",
    )


def walked(tab, start, end):
    """The elements that the Tab key reaches from one element to another, as the browser moves the focus."""
    tab.focus(start)
    found = []
    for _ in range(40):
        tab.keyboard.press("Tab")
        found.append(tab.evaluate(f"{FOCUS}.id || {FOCUS}.tagName"))
        if tab.evaluate(f"{FOCUS}.matches({end!r})"):
            return found
    raise AssertionError(f"{end} is not reached: {found}")


def test_the_section_of_the_matrix_has_three_tab_stops(open_file, published):
    """Its runs and filters, the matrix, and the provenance."""
    tab = open_file(published)
    assert [text.split(" ")[0] for text in stops(tab, "#matrix")] == ["INPUT", "BUTTON", "SUMMARY"]
    path = walked(tab, "#f-q", "#matrix-prov summary")
    assert path == ["BUTTON", "SUMMARY"], "as the browser moves the focus"
    for place, words in (("#matrix-tools", "Arrow keys"), ("#matrix-box", "Arrow keys")):
        assert words in tab.get_attribute(place, "aria-label")


def test_arrow_keys_reach_every_run_and_filter_and_the_matrix(open_page):
    tab = open_page()
    tab.focus("#f-q")
    tab.keyboard.press("ArrowRight")
    reached = []
    for _ in range(6):
        reached.append(tab.evaluate(f"{FOCUS}.id || {FOCUS}.type"))
        tab.keyboard.press("ArrowRight")
    assert reached == ["f-level", "f-mode", "f-dtype", "f-mesh", "f-verdict", "reset"]
    inside = f"{FOCUS}.closest('#matrix-box') !== null"
    assert tab.evaluate(inside), "after the last filter comes the matrix"
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate(f"{FOCUS}.id") == "f-q", "above the matrix are its filters"
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate(f"{FOCUS}.type") == "checkbox"
    before = tab.locator("#run-chips input:checked").count()
    tab.keyboard.press("Home")
    tab.keyboard.press("Space")
    assert tab.locator("#run-chips input:checked").count() == before - 1
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate(f"{FOCUS}.id") == "f-q" and len(stops(tab, "#matrix-tools")) == 1


def test_the_cursor_of_the_search_and_the_value_of_a_filter_keep_their_keys(open_page):
    tab = open_page()
    tab.focus("#f-q")
    tab.keyboard.type("psm")
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.type("u")
    assert tab.input_value("#f-q") == "psum" and tab.evaluate(f"{FOCUS}.id") == "f-q"
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(f"{FOCUS}.id") == "f-q", "the cursor is not at the end"
    tab.keyboard.press("End")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(f"{FOCUS}.id") == "f-level"
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate(f"{FOCUS}.id") == "f-level" and tab.input_value("#f-level"), "down chooses a level"
    assert "psum" in tab.inner_text(".matrix")


def test_an_empty_matrix_is_a_tab_stop_itself(open_page):
    tab = open_page(width=390)
    tab.fill("#f-q", "nothing has this name")
    shows(tab, "#matrix-status", "0 of 45 cases match")
    assert tab.get_attribute("#matrix-box", "tabindex") == "0", "the keyboard can scroll it"
    tab.fill("#f-q", "")
    shows(tab, "#matrix-status", "45 cases in")
    assert tab.get_attribute("#matrix-box", "tabindex") is None


@pytest.mark.parametrize("place", ["low", "scrolled"])
def test_a_family_that_opens_keeps_the_focus_and_the_scrolled_place(open_file, published, place):
    """Lines below the first ones follow a moment later: none of this may wait for them."""
    tab = open_file(published)
    found = tab.evaluate(
        """scrolled => {
          const box = document.getElementById("matrix-box");
          const all = [...box.querySelectorAll("tr.group:not([hidden]) .toggle")];
          const toggle = all.at(-1);
          toggle.focus();
          box.scrollTop = scrolled ? 1e6 : 0;
          const before = box.scrollTop, open = toggle.getAttribute("aria-expanded");
          toggle.click();
          return [all.length > 20, document.activeElement === toggle, box.scrollTop - before,
                  toggle.getAttribute("aria-expanded") !== open];
        }""",
        place == "scrolled",
    )
    assert found == [True, True, 0, True]


def test_keys_in_the_matrix_are_not_slower_than_its_lines(open_file, published):
    """All lines are reached in the moment in which they were asked for."""
    tab = open_file(published)
    assert tab.evaluate(
        """() => {
          const box = document.getElementById("matrix-box");
          const first = box.querySelector("tr.group:not([hidden]) .toggle");
          const key = { key: "PageDown", bubbles: true };
          first.focus();
          first.click();
          for (let i = 0; i < 200; i++) document.activeElement.dispatchEvent(new KeyboardEvent("keydown", key));
          return document.activeElement === [...box.querySelectorAll("tbody:not([hidden]) .toggle")].at(-1);
        }"""
    )


def test_a_table_is_one_tab_stop(open_page):
    """Its heads, which sort, and the links and buttons of its rows."""
    tab = open_page()
    boxes = tab.locator(".scroll[role=region]")
    assert boxes.count() > 8
    for box in boxes.all():
        box.evaluate(
            "e => { for (let d = e; d; d = d.parentElement) if (d.tagName === 'DETAILS') d.open = true; }"
        )
        found = box.evaluate(
            "e => [e, ...e.querySelectorAll('*')].filter(x => x.tabIndex === 0 && x.checkVisibility()).length"
        )
        assert found == 1, box.get_attribute("aria-label")
        several = box.locator("a[href], button").count() > 1
        assert several == ("Arrow keys" in box.get_attribute("aria-label")), (
            "the name says how to reach the rest"
        )
    box = "#wrong-out .scroll"
    found = tab.locator(f"{box} tbody a, {box} tbody button")
    assert found.count() == 6
    tab.focus(f"{box} thead button")
    tab.keyboard.press("ArrowDown")
    at = f"[...document.querySelectorAll('{box} tbody a, {box} tbody button')].indexOf({FOCUS})"
    reached = [tab.evaluate(at)]
    for key in ("ArrowRight", "ArrowDown", "End", "Home", "ArrowUp"):
        tab.keyboard.press(key)
        reached.append(tab.evaluate(at))
    assert reached == [0, 1, 3, 5, 0, -1], reached
    assert tab.evaluate(f"{FOCUS}.closest('thead') !== null"), "above the rows are the heads"
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    assert tab.is_visible("dialog[open]")
    tab.keyboard.press("Escape")
    assert tab.evaluate(at) == 0, "the focus is back where it was"


def test_heads_sort_by_the_keyboard(open_page):
    tab = open_page()
    tab.focus("#modes-out thead button")
    for _ in range(3):
        tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert tab.get_attribute("#modes-out thead th:nth-child(4)", "aria-sort") == "ascending"
    assert "sort=modes" in tab.url
    assert tab.evaluate(f"{FOCUS}.closest('th').getAttribute('aria-sort')") == "ascending", "the focus stays"


def test_the_facts_of_all_runs_are_one_tab_stop(open_page):
    tab = open_page("#view=runs")
    boxes = "#runs-out [role=group]"
    assert len(stops(tab, boxes)) == 1 and tab.locator(f"{boxes} > details").count() > 5
    tab.focus(f"{boxes} summary")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    assert tab.locator(f"{boxes} > details[open]").count() == 1
    assert tab.evaluate(f"{FOCUS}.parentElement === document.querySelectorAll('{boxes} > details')[1]")


def test_the_back_key_closes_a_cell_and_leaves_a_section(open_page):
    tab = open_page("#q=shift_set")
    tab.click("nav a[href='#view=growth']")
    tab.wait_for_url("**view=growth")
    tab.click(".matrix tr:not(.group) .cell:visible >> nth=0")
    assert tab.is_visible("dialog[open]") and "cell=" in tab.url
    tab.go_back()
    tab.wait_for_function("() => !document.querySelector('dialog[open]')")
    assert tab.url.endswith("q=shift_set&view=growth")
    tab.go_back()
    tab.wait_for_function("() => !location.hash.includes('view=')")
    assert tab.input_value("#f-q") == "shift_set", "the search stays"
    tab.go_forward()
    tab.wait_for_function(
        "() => Math.abs(document.getElementById('growth').getBoundingClientRect().top) < 120"
    )


@pytest.mark.parametrize("fragment", ["#growth", "#view=growth"])
def test_a_section_has_an_address(open_page, fragment):
    tab = open_page(fragment)
    tab.wait_for_function(
        "() => Math.abs(document.getElementById('growth').getBoundingClientRect().top) < 120"
    )
