# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: filters, links, keyboard, themes, charts, no errors and no network requests.

The fixture `open_page` fails a test if an error was logged, or if something was requested over a network.
"""

import re
import shlex
import subprocess
import sys

import pytest

from meshmark.levels import must_pass
from tests.browser import chromium
from tests.browser import records as made_up
from tests.browser.records import HOSTILE
from tests.browser.waiting import shows
from tests.checkout import ROOT

LAST_LINE = "document.querySelector('#answers-prov summary').getBoundingClientRect().bottom"
"""Where the last line of the first view ends: the provenance."""

OPERATION_CELL = ".matrix tr:not(.group) .cell:visible"


def visible_rows(tab):
    return tab.eval_on_selector_all(
        ".matrix tbody tr:not(.group):not([hidden]) th", "all => all.map(e => e.textContent)"
    )


def test_the_first_view_answers_with_denominators(open_page):
    text = open_page().inner_text("#answers")
    assert (
        "What is wrong, and what works?" in text
        and "Is it as fast as it should be?" in text
        and "Which mode should I use?" in text
    )
    assert "14 of 15 pass, 1 crash" in text
    assert "Time over manual" not in text and "of its ceiling" not in text, "a single run has no interval"
    behind = open_page().evaluate("document.querySelector('#answers').textContent")
    assert "an interval takes six, so no factor is told" in behind
    assert "no share of a ceiling has an interval" in text
    assert "shift_set in auto: up to 65× the bytes" in text
    listed = len(must_pass.must_pass("L1", 8).cases)
    assert "no level" in text and f"/{listed:,}" in text  # the denominator is the must-pass list's


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_the_first_view_fits_one_screen(browser, tmp_path, width, height, failing):
    """Also where every run fails, in several operations: on one real device of an older release, and on two machines
    of the newest."""
    from meshmark.report import report

    bad = {(o, "auto"): ("fail", "3 of 9 elements differ") for o in ("psum", "matmul")} if failing else {}
    bad |= {("all_gather", "manual"): ("error", "no such thing")} if failing else {}
    real = made_up.run("cccc", "0.11.2", "NVIDIA H100 80GB HBM3", virtual=False, num_devices=1)
    runs = [made_up.run("aaaa"), *([made_up.run("dddd", num_devices=4), real] if failing else [])]
    for nth, run in enumerate(runs):
        made_up.file(tmp_path / "in" / f"verdicts-{nth}.jsonl", run, made_up.judged(bad))
    made_up.file(tmp_path / "in" / "times.jsonl", made_up.run("bbbb"), made_up.timed(processes=6))
    report.write_pages(report.make_report(report.find_records([tmp_path / "in"]).sources), tmp_path / "out")
    tab = browser.new_page(viewport={"width": width, "height": height})
    tab.goto((tmp_path / "out" / "index.html").as_uri())
    tab.wait_for_selector("html[data-ready=yes]")
    assert tab.evaluate(LAST_LINE) <= height
    assert ("failures that no list knows" in tab.inner_text("#answers")) == failing
    assert tab.locator(".card details[open]").count() == 0
    assert (tab.locator(".card > ul:visible").count() > 0) == (width > 640), "a phone shows them on demand"
    shows(tab, "#answers-cards", "of its ceiling")
    tab.close()


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_the_first_view_of_the_published_page_fits_one_screen(open_file, published, width, height):
    tab = open_file(published, width=width, height=height)
    assert tab.evaluate(LAST_LINE) <= height
    assert tab.evaluate("document.querySelector('#answers-prov summary').getClientRects().length") == 1


def test_the_legend_of_the_picture_names_every_mode_in_it(open_file, published):
    tab = open_file(published, width=1440, height=900)
    drawn = set(tab.locator("#glance svg .g-end").all_text_contents())
    assert {"auto", "manual", "no-vma", "host"} <= drawn
    assert set(tab.locator("#glance .legend code").all_text_contents()) == drawn


def test_search_and_filters_change_the_matrix_and_the_address(open_page):
    tab = open_page()
    assert visible_rows(tab) == ["shift_set", "matmul"]  # a family that is all green is folded
    tab.fill("#f-q", "shift")
    assert visible_rows(tab) == ["shift_set"]
    tab.wait_for_url("**q=shift*")
    family = tab.locator(".matrix tr.group:not([hidden]) .cell:visible").first
    family.click()  # the cell of a family folds it, and unfolds it
    assert visible_rows(tab) == []
    family.click()
    assert visible_rows(tab) == ["shift_set"]
    tab.fill("#f-q", "elements differ")  # a reason
    assert visible_rows(tab) == ["shift_set"]
    shows(tab, "#matrix-status", "2 of 45 cases match")
    tab.click("#filters button[type=reset]")
    tab.wait_for_function(
        "() => document.querySelectorAll('.matrix tbody tr:not(.group):not([hidden])').length === 2"
    )
    tab.select_option("#f-verdict", "crash")
    assert visible_rows(tab) == ["matmul"]
    tab.select_option("#f-verdict", "")
    tab.select_option("#f-level", "L1")
    assert visible_rows(tab) == ["psum", "all_gather"]


def test_a_link_keeps_the_view(open_page):
    tab = open_page("#q=shift_set&verdict=known")
    tab.click(OPERATION_CELL)
    assert tab.is_visible("dialog[open]")
    tab.select_option("#theme", "dark", force=True)
    fragment = "#" + tab.url.partition("#")[2]
    again = open_page(fragment)
    assert again.input_value("#f-q") == "shift_set" and again.input_value("#f-verdict") == "known"
    assert again.inner_text("#detail-h") == "shift_set · auto"
    again.click("#detail-close")
    again.wait_for_function("() => !location.hash.includes('cell=')")  # the link follows after a moment


def test_the_detail_has_reason_command_and_program(open_page):
    tab = open_page("#q=shift_set&verdict=fail")
    tab.click(OPERATION_CELL)
    tab.click("dialog details.case > summary")
    tab.wait_for_selector("dialog details.case pre")
    text = tab.inner_text("#detail-body")
    assert "31 of 64 elements differ" in text
    assert "meshmark repro 'shift_set/of=x.y,dim=0/explicit/2x4/float32/4KiB'" in text
    assert "meshmark test 'conformance/test_arrays.py::" in text
    tab.click("#detail-body > details > summary")
    shows(tab, "#detail-body", "def explicit(")


def test_the_commands_that_the_page_prints_choose_just_that_case(open_page):
    tab = open_page("#q=shift_set&verdict=fail")
    tab.click(OPERATION_CELL)
    tab.click("dialog details.case > summary")
    tab.wait_for_selector("dialog details.case pre")
    command = shlex.split(tab.locator("dialog pre", has_text="meshmark test").inner_text())
    assert command[:2] == ["meshmark", "test"] and "--num-devices" in command
    done = subprocess.run(
        [sys.executable, "-m", "meshmark", *command[1:], "--collect-only", "-q"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = [line for line in done.stdout.splitlines() if "::" in line]
    assert found == [
        "conformance/test_arrays.py::test_arrays[shift_set/of=x.y,dim=0/explicit/2x4/float32/4KiB]"
    ], done


def test_the_keyboard_reaches_everything(open_page):
    tab = open_page()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "matrix"
    stops = (
        "[...document.querySelectorAll('#matrix-box, #matrix-box *')].filter(b => b.tabIndex === 0).length"
    )
    assert tab.evaluate(stops) == 1  # the matrix is one tab stop
    tab.focus("#matrix-box button[tabindex='0']")
    tab.keyboard.press("Enter")  # the family of all collectives opens
    assert visible_rows(tab)[:2] == ["psum", "all_gather"]
    label = "document.activeElement.getAttribute('aria-label')"
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate(label).startswith("psum, auto")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("End")
    assert tab.evaluate(label).startswith("all_gather, manual")
    tab.keyboard.press("Home")
    tab.keyboard.press("PageDown")
    assert tab.evaluate(label).startswith("matmul, auto") and tab.evaluate(stops) == 1
    tab.keyboard.press("Enter")
    assert tab.is_visible("dialog[open]")
    tab.keyboard.press("Escape")
    assert not tab.is_visible("dialog[open]")
    assert "cell" in tab.evaluate("document.activeElement.className")  # focus returns to where it was
    outline = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    unnamed = tab.evaluate(
        "[...document.querySelectorAll('button, select, input, [role=region]')].filter(e => !(e.textContent.trim() ||"
        " e.getAttribute('aria-label') || e.labels?.length)).map(e => e.outerHTML.slice(0, 80))"
    )
    assert not unnamed
    assert tab.evaluate(
        "[...document.querySelectorAll('table')].every(t => t.caption && t.querySelector('th[scope]'))"
    )


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_axe_finds_nothing(open_page, width, scheme):
    """The rules of axe-core for screen readers, names, roles, contrast and landmarks."""
    axe = chromium.axe()
    tab = open_page(width=width, color_scheme=scheme)
    found = axe.Axe().run(tab).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:100]) for v in found] == []


def test_cells_say_their_verdict_in_words_and_signs(open_page):
    tab = open_page("#verdict=crash")
    cell = tab.locator(OPERATION_CELL).first
    assert cell.get_attribute("aria-label").endswith("0 of 1 pass, worst: crash")
    assert cell.locator("b").inner_text() == "✱"


@pytest.mark.parametrize("chosen", ["light", "dark"])
def test_light_and_dark_follow_the_system_and_the_choice(open_page, chosen):
    other = {"light": "dark", "dark": "light"}[chosen]
    tab = open_page(color_scheme=chosen)

    def lightness():
        return tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")

    assert (lightness() > 128) == (chosen == "light")
    tab.select_option("#theme", other)
    assert (lightness() > 128) == (other == "light")
    tab.reload()
    tab.wait_for_selector("html[data-ready=yes]")
    assert (lightness() > 128) == (other == "light")


def test_text_has_contrast_in_both_themes(open_page):
    """At least 4.5 to 1 (WCAG 2.1, 1.4.3) for text, muted text, links and every verdict on its own ground."""
    measure = """() => {
      const linear = (v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
      const light = (c) => {
        const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(linear);
        return .2126 * r + .7152 * g + .0722 * b;
      };
      const ground = (e) => {
        for (; e; e = e.parentElement) {
          const c = getComputedStyle(e).backgroundColor;
          if (!/, 0\\)$/.test(c)) return c;
        }
        return 'rgb(255,255,255)';
      };
      const found = {};
      const texts = ['.legend', 'nav a', '.v-pass', '.v-known', '.v-fail', '.v-not_run', 'caption', '.prov summary'];
      for (const q of [...texts, 'td', '.tag']) {
        const e = document.querySelector(q), a = light(getComputedStyle(e).color), b = light(ground(e));
        found[q] = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
      }
      return found; }"""
    for scheme in ("light", "dark"):
        found = open_page(color_scheme=scheme).evaluate(measure)
        assert not {k: v for k, v in found.items() if v < 4.5}, scheme


def test_what_changed_between_two_releases(open_page):
    tab = open_page()
    old = tab.locator("#c-old option", has_text="JAX 0.10.2").first.get_attribute("value")
    new = tab.locator("#c-new option", has_text="JAX 0.12.0.1 · 8 × cpu").first.get_attribute("value")
    tab.select_option("#c-old", old)
    tab.select_option("#c-new", new)
    text = tab.inner_text("#changes-out")
    assert "3 changed, 12 as before" in text
    assert "new failure" in text and "now passes" in text and "SIGSEGV" in text
    tab.select_option("#c-what", "times")
    text = tab.inner_text("#changes-out")
    assert "too few processes" in text and "apart" not in text.replace("told apart", "")
    assert "0.667" not in text, "a ratio without an interval is not published"
    real = tab.locator("#c-new option", has_text="H200").first.get_attribute("value")
    tab.select_option("#c-new", real)
    shows(tab, "#changes-out", "not put beside")


def test_a_comparison_shows_its_own_verdicts(open_page):
    tab = open_page("#view=changes")
    text = tab.inner_text("#compared-out")
    assert "A is JAX 0.11.2" in text and "B is JAX 0.12.0.1" in text
    assert "4 cases over 24 processes: 1 slower, 1 inconclusive, 1 left out, 1 no change." in text
    assert "Compiled counters differ in 1 of 1 program." in text and "flags 0.2 % per case" in text
    rows = [
        row.inner_text().split("\t") for row in tab.locator("#compared-out table >> nth=0 >> tbody tr").all()
    ]
    assert [row[1] for row in rows] == ["slower", "inconclusive", "left out", "no change"]
    assert rows[0][2:7] == ["1.250", "1.240 to 1.260", "0.003", "+4 %", "12"] and HOSTILE in rows[2][-1]
    tab.click("#compared-out summary >> nth=0")
    assert tab.locator("#compared-out table >> nth=1 >> tbody tr").inner_text().split("\t")[1:] == [
        "wire_bytes", "1024", "2048"
    ]  # fmt: skip
    machines = tab.eval_on_selector_all("#c-new option", "all => all.map(e => e.textContent)")
    assert not any("0.11.2" in name for name in machines), "a comparison is no machine of its own"


def test_interpreted_numbers_have_marks_of_their_own(open_page):
    """In the matrix, in the answers beside the levels, and in the detail: nothing of it says that it ran or passed."""
    tab = open_page()
    tab.click(".card:nth-child(1) summary")
    answers = tab.inner_text("#answers-cards")
    assert "v6e:2x4, interpreted: nothing ran" in answers and "≈ L1" in answers
    tab.click(".more-runs summary")
    tab.click("label:has-text('v6e:2x4')")
    cell = tab.locator(".matrix tr.group >> nth=0 >> .cell").last
    assert "v-interpreted" in cell.get_attribute("class") and cell.locator("b").inner_text() == "≈"
    assert "compiled, not run, numbers of" in cell.get_attribute("aria-label")
    cell.click()
    tab.locator(".matrix tr:not(.group) .v-interpreted:visible").first.click()
    detail = tab.inner_text("#detail-body")
    assert "Nothing ran here: the compiled text was interpreted" in detail and "≈ interpreted" in detail
    assert "pass" not in tab.locator("dialog details.case > summary").first.inner_text()
    statements = tab.evaluate("document.querySelector('#runs-out').textContent")
    assert "L1 (interpreted): numbers of" in statements


def test_times_of_six_processes_are_apart_or_overlap(browser, tmp_path):
    from meshmark.report import report

    for name, release, factor in (("old", "0.10.2", 1.5), ("new", "0.12.0.1", 1.0)):
        first = made_up.run(name, release)
        made_up.file(tmp_path / "in" / f"{name}.jsonl", first, made_up.timed(factor, processes=6))
    report.write_pages(report.make_report(report.find_records([tmp_path / "in"]).sources), tmp_path / "out")
    tab = browser.new_page()
    tab.goto((tmp_path / "out" / "index.html").as_uri())
    tab.wait_for_selector("html[data-ready=yes]")
    for place, text in (("#c-old", "JAX 0.10.2"), ("#c-new", "JAX 0.12.0.1")):
        option = tab.locator(f"{place} option", has_text=text).first.get_attribute("value")
        tab.select_option(place, option)
    tab.select_option("#c-what", "times")
    found = tab.inner_text("#changes-out")
    assert "0.667" in found and "apart" in found and "too few processes" not in found
    assert "noise: 95 % intervals are" in tab.locator("#changes details.prov").first.evaluate(
        "e => e.textContent"
    )


def test_runs_over_processes_are_told_apart_and_repeated_over_processes(browser, tmp_path):
    from meshmark.report import report

    two = made_up.run("abcd", num_processes=2, group={"devices": 4, "detected": False}) | {"ranks": 2}
    bad = {("shift_set", "explicit"): ("fail", "rank 1: 3 differ")}
    made_up.file(tmp_path / "in" / "one.jsonl", made_up.run("aaaa"), made_up.judged(bad))
    made_up.file(tmp_path / "in" / "two.jsonl", two, made_up.judged(bad))
    report.write_pages(report.make_report(report.find_records([tmp_path / "in"]).sources), tmp_path / "out")
    tab = browser.new_page()
    tab.goto((tmp_path / "out" / "index.html").as_uri() + "#q=shift_set&verdict=fail")
    tab.wait_for_selector("html[data-ready=yes]")
    answers = tab.inner_text("#answers")
    assert "JAX 0.12.0.1 · 2 processes × 4 cpu devices (virtual)" in answers
    behind = tab.evaluate("document.querySelector('#answers').textContent")
    assert re.search(r"L4 \d+/\d,\d{3}", behind)
    shows(tab, "#changes-out", "The first ran over 2 processes, the second over one process")
    printed = []
    shows(tab, ".matrix thead", "2 runs with the same verdicts")
    tab.click(OPERATION_CELL)
    for made in tab.locator("dialog details.case").all():
        made.locator("> summary").click()
        made.locator("pre").first.wait_for()
        printed.append(made.inner_text())
    tab.close()
    one, over = sorted(printed, key=lambda text: "launch" in text)
    case = "shift_set/of=x.y,dim=0/explicit/2x4/float32/4KiB"
    assert f"meshmark repro '{case}'" in one and "Stand-alone script" in one
    assert "repro" not in over and "Stand-alone script" not in over
    test = f"'conformance/test_arrays.py::test_arrays[{case}]'"
    start = "meshmark launch -n 2 --devices-per-process 4 -- meshmark test"
    assert f"{start} {test} --profile full" in over


def test_virtual_devices_never_stand_beside_real_ones(open_page):
    tab = open_page()
    options = tab.eval_on_selector_all("#s-class option", "all => all.map(e => e.textContent)")
    assert options == ["NVIDIA H200, real", "virtual devices"]
    for option in options:
        tab.select_option("#s-class", option)
        heads = tab.inner_text("#side-table thead")
        assert ("H200" in heads) != ("cpu" in heads)


def test_values_that_were_not_verified_have_no_time(open_page):
    tab = open_page()
    machine = tab.locator("#m-machine option", has_text="JAX 0.12.0.1 · 8 × cpu").first.get_attribute("value")
    tab.select_option("#m-machine", machine)
    row = tab.locator("#modes-out tbody tr", has_text="8 float32 16KiB").first
    assert "fail" in row.locator("td").nth(1).inner_text()
    assert row.locator("td").nth(0).inner_text().endswith("s"), "a single run has a time and no interval"


def test_charts_are_drawn_with_a_table_behind_each(open_page):
    tab = open_page("#view=speed")
    for chart in ("bw", "scale", "share", "roof"):
        tab.locator(f"#{chart}-chart").scroll_into_view_if_needed()
        tab.wait_for_selector(f"#{chart}-chart[data-ready=yes]")
        assert tab.locator(f"#{chart}-chart canvas").count() > 0
        tab.click(f"#{chart}-table summary >> nth=0")
        assert tab.locator(f"#{chart}-table tbody tr").count() > 0
    tab.select_option("#s-y", "time")
    tab.wait_for_selector("#bw-chart canvas >> nth=0", state="attached")
    assert "sy=time" in tab.url
    tab.click("#bw-table summary >> nth=0")
    text = tab.inner_text("#bw-table")
    assert "100 µs" in text or "1 µs" in text  # alpha of the sweep, 0.1 ms or a hundredth of it


def test_the_roofline_names_the_ceiling_that_binds(open_page):
    """300 of 400 GFLOP/s, and 51 FLOP for each byte that must move: arithmetic binds, as the run measured it."""
    tab = open_page()
    machine = tab.locator("#m-machine option", has_text="JAX 0.12.0.1 · 8 × cpu").first.get_attribute("value")
    tab.select_option("#m-machine", machine)
    tab.locator("#roof-chart").scroll_into_view_if_needed()
    tab.wait_for_selector("#speed-note:not([aria-busy])")
    tab.click("#roof-table summary >> nth=0")
    rows = [row.inner_text().split("\t") for row in tab.locator("#roof-table tbody tr").all()]
    assert [row[0] for row in rows] == [f"matmul rows=x,check=exact 8 float32 n{n}" for n in (256, 512)]
    assert rows[1][3] == f"{2 * 512**3 / 8 / (5 * 512**2):.3g}" and rows[1][5] == "compute"
    assert rows[1][6].startswith("74.") and rows[1][7] == "largest float32 matmul measured here"
    shows(tab, "#speed-note", "Layers and contractions are held against: largest float32 matmul")


def test_every_table_has_provenance_with_the_hash(open_page):
    tab = open_page()
    for place in (
        "#matrix",
        "#changes",
        "#modes",
        "#bw-table",
        "#share-table",
        "#side-table",
        "#communication",
    ):
        found = tab.locator(f"{place} details.prov").first
        text = found.evaluate("e => e.textContent")
        assert "sha256:" in text and "c0ffee" in text and "XLA_FLAGS --some=1" in text, place
    assert tab.locator("#modes details.prov").first.evaluate("e => e.textContent").count("noise: ") >= 1
    for place, name in (("weather", "weather-0.11.2"), ("growth", "growth"), ("others", "others")):
        text = tab.locator(f"#{place} details.prov").last.evaluate("e => e.textContent")
        assert f"{name}.jsonl sha256:" in text, place


def test_strings_of_records_stay_text(open_page):
    tab = open_page("#q=shift_set&verdict=fail")
    tab.click(OPERATION_CELL)
    tab.click("dialog details.case > summary")
    tab.wait_for_selector("dialog details.case pre")
    shows(tab, "#detail-body", HOSTILE)  # shown as it is
    assert tab.evaluate("window.hacked") is None
    assert tab.evaluate("document.querySelectorAll('img, iframe, object, form:not(.filters)').length") == 0
    assert tab.evaluate("[...document.links].every(a => /^(https:|#|file:)/.test(a.getAttribute('href')))")


@pytest.mark.parametrize(
    "fragment",
    [
        "#q=%3Cimg%20src%3Dx%20onerror%3Dwindow.hacked%3D1%3E&sort=x~y~z",
        "#cell=a~b~c~d&runs=zz.yy&machine=q",
        "#%%%&view=nothing",
    ],
)
def test_a_made_up_address_does_no_harm(open_page, fragment):
    tab = open_page(fragment)
    assert tab.evaluate("window.hacked") is None
    assert tab.is_visible("#matrix-h")


def test_the_policy_stops_other_scripts(browser, page_file):
    tab = browser.new_page()
    tab.goto(page_file.as_uri())
    tab.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 9'; document.body.append(s)"
    )
    assert tab.evaluate("window.hacked") is None
    tab.close()


def test_a_phone_scrolls_tables_in_their_own_box(open_page):
    tab = open_page(width=390, height=844)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.eval_on_selector("#matrix-box", "b => b.scrollWidth > b.clientWidth")
    assert tab.evaluate(
        "[...document.querySelectorAll('.scroll')].every(b => b.getAttribute('aria-label') &&"
        " [b, ...b.querySelectorAll('*')].filter(e => e.tabIndex === 0).length === 1)"
    ), "each is named and one tab stop"


def test_a_print_is_a_summary_of_two_pages(open_page):
    tab = open_page()
    tab.emulate_media(media="print")
    assert not tab.is_visible("#filters") and not tab.is_visible(".top") and not tab.is_visible(".matrix")
    assert tab.is_visible("#glance svg") and "SIGSEGV" in tab.inner_text("#wrong-out")
    shows(tab, "#wrong", "Printed are the summary")
    assert len(re.findall(rb"/Type\s*/Page\b", tab.pdf(format="A4"))) <= 2


def test_what_is_wrong_comes_first_with_its_releases(open_page):
    tab = open_page()
    rows = [row.inner_text() for row in tab.locator("#wrong-out tbody tr").all()]
    assert len(rows) == 3
    assert "wrong numbers" in rows[0] and "shift_set" in rows[0] and "new" in rows[0] and "0.10.2" in rows[0]
    assert "process dies" in rows[1] and "signal 11" in rows[1]
    assert "known" in rows[2] and "https://github.com/jax-ml/jax/issues/18434" in rows[2]
    text = tab.inner_text("#wrong-out")
    assert "Broke 1: matmul (process dies)" in text and "Mended 2: shift_set (wrong numbers)" in text
    tab.click("#wrong-out tbody button.link >> nth=0")
    assert tab.inner_text("#detail-h") == "shift_set · explicit"
    assert tab.locator("dialog details.case").count() == 1


def test_a_failure_in_the_answers_is_red_and_leads_to_its_cases(open_page):
    tab = open_page()
    button = tab.locator("#answers-cards button.loud").first
    assert "1 crash" in button.inner_text()
    red = tab.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--bad').trim()")
    made = button.evaluate("b => getComputedStyle(b).color")
    assert made == "rgb({}, {}, {})".format(*(int(red[i : i + 2], 16) for i in (1, 3, 5)))
    button.click()
    assert visible_rows(tab) == ["matmul"] and "verdict=crash" in tab.url


def test_the_picture_has_a_square_for_each_operation_and_mode(open_page):
    tab = open_page()
    assert tab.locator("#glance svg").count() >= 2  # a run on devices, and one that was compiled only
    assert tab.locator("#glance svg >> nth=0 >> rect").count() == 12
    tab.click("#glance svg >> nth=0 >> rect >> nth=0")
    assert tab.is_visible("dialog[open]") and "psum · auto" in tab.inner_text("#detail-h")


def test_growth_stands_beside_its_theory(open_page):
    tab = open_page("#view=growth")
    text = " ".join(tab.inner_text("#growth").split())
    assert "1 of 3 series grow faster than theory" in text
    label = tab.locator("#growth-out svg").first.get_attribute("aria-label")
    assert "manual 64 B on 4, 64 B on 64, 64 B on 1,024" in label and "theory 64 B on 4" in label
    red = tab.locator("#growth-out td .bar-slow").first.inner_text()
    assert red == str((8 * 1024 + 64) // 64)


def test_jax_stands_beside_others(open_page):
    tab = open_page("#view=others")
    cells = tab.locator("#others-out tbody tr").first.locator("td, th").all_inner_texts()
    assert cells[:2] == ["all_reduce", "4 KiB"]
    assert cells[2].startswith("104 µs") and cells[3].startswith("53.5 µs") and cells[4].startswith("1.9")


def test_the_heat_map_claims_no_order_for_a_single_run(open_page):
    tab = open_page()
    text = tab.inner_text("#heat-out")
    assert "no order is claimed" in text and tab.locator("#heat-out td.heat").count() > 0
    assert tab.locator("#heat-out td.sure").count() == 0 and "slower in" not in tab.inner_text("#answers")


def test_advice_follows_the_bytes(open_page):
    tab = open_page()
    rows = {
        row.locator("th").inner_text(): row.inner_text() for row in tab.locator("#advice-out tbody tr").all()
    }
    assert (
        "Use shard_map where the bytes matter" in rows["shift_set"]
        and "choose the one that reads best" in rows["psum"]
    )


def test_without_javascript_the_runs_are_there(open_page, browser, page_file):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(page_file.as_uri())
    assert "SHA-256" in tab.content() and tab.locator("noscript table, main table").count() >= 1
    context.close()
