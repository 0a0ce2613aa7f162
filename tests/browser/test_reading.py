# SPDX-License-Identifier: Apache-2.0
"""Reading the page: a screen reader has all of it, the first choice of machine answers the question of its section,
nothing is cut at any width, and pages of few records name their contents."""

import itertools
import re

import pytest

from tests.browser import chromium
from tests.browser import records as made_up
from tests.browser.conftest import make
from tests.browser.waiting import shows

NEAR = "e => e.scrollIntoView({ block: 'center', behavior: 'instant' })"


def screen_reader(tab):
    """All that the browser tells a screen reader."""
    session = tab.context.new_cdp_session(tab)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    return " ".join(str(n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored"))


def test_a_screen_reader_has_what_is_far_from_the_view(open_page):
    """Chromium leaves what content-visibility skips out of what it tells a screen reader."""
    tab = open_page()
    text = screen_reader(tab)
    assert "grow faster than theory" in text and "Beside others: JAX, torch and MPI" in text
    assert "psum" in text and "collectives, auto, JAX" in text, "the cells of the matrix have names"
    roles = tab.evaluate(
        "[...document.querySelectorAll('.matrix, .matrix *')].filter(e => /^(TABLE|T[A-Z]+)$/.test(e.tagName)"
        " && !e.getAttribute('role')).map(e => e.tagName)"
    )
    assert roles == [], "laid out as blocks, the matrix is a table by its roles"


def test_arrows_reach_the_last_row_of_all(open_file, published):
    tab = open_file(published, "#q=x&view=matrix")  # a search opens every family
    tab.wait_for_function("() => document.querySelectorAll('.matrix tbody tr:not([hidden])').length > 100")
    tab.focus("#matrix-box button[tabindex='0']")
    number = tab.evaluate("document.querySelectorAll('.matrix tbody tr:not([hidden])').length")
    for _ in range(number // 10 + 1):
        tab.keyboard.press("PageDown")
    rows = "[...document.querySelectorAll('.matrix tbody tr:not([hidden])')]"
    cell = (
        "[...document.activeElement.closest('tr').children].indexOf(document.activeElement.closest('td, th'))"
    )
    last = f"{rows}.findLast((tr) => tr.children[{cell}].querySelector('button:not([hidden])'))"
    assert tab.evaluate(f"document.activeElement.closest('tr') === {last}")
    box = tab.evaluate(
        "(() => { const r = document.activeElement.getBoundingClientRect(); return [r.top, r.bottom]; })()"
    )
    assert 0 < box[0] < 890, "the cell with the focus is in view"


def test_a_search_fills_every_row_that_it_leaves(open_file, published):
    """The first rows come at once and the others after them, each with the cells that its cases have."""
    tab = open_file(published, "#q=float32")
    status = tab.inner_text("#matrix-status")
    tab.wait_for_function(
        "() => [...document.querySelectorAll('.matrix tr.group .toggle .small')].reduce((n, e) => n +"
        " (e.closest('tr').hidden ? 0 : parseInt(e.textContent)), 0) ==="
        " document.querySelectorAll('.matrix tbody tr:not(.group):not([hidden])').length"
    )
    shown = tab.evaluate(
        "[...document.querySelectorAll('.matrix tbody tr:not(.group):not([hidden]) .cell:not([hidden])')]"
        ".map(e => Number(e.getAttribute('aria-label').match(/: (?:\\d+ of )?(\\d+) /)[1])).reduce((a, b) => a + b, 0)"
    )
    runs = tab.locator("#run-chips input:checked").count()
    found = int(status.split(" of ")[0].replace(",", ""))
    assert runs == 3 and shown == found


def test_a_filter_waits_for_no_more_rows_than_the_box_can_show(open_file, published):
    """The frame after a key has the rows in the box; those below it follow, and each row is filled in the end."""
    tab = open_file(published, "#view=matrix")
    typed = """() => { const q = document.getElementById("f-q"); q.value = "x";
        q.dispatchEvent(new Event("input", { bubbles: true }));
        return document.querySelectorAll(".matrix tbody tr:not([hidden])").length; }"""
    # The least heights of the head and of a row, as the next lines hold them.
    assert 10 < tab.evaluate(typed) <= (0.78 * 900 - 128) / 29 + 2
    tab.wait_for_function("() => document.querySelectorAll('.matrix tbody tr:not([hidden])').length > 100")
    heights = "[...document.querySelectorAll('%s')].map((e) => e.getBoundingClientRect().height)"
    assert min(tab.evaluate(heights % ".matrix tbody tr:not([hidden])")) >= 29
    assert sum(tab.evaluate(heights % ".matrix caption, .matrix thead")) >= 128


CUT = """() => { const found = [], walk = (n) => { for (const e of n.children) {
  const r = e.getBoundingClientRect(), text = e.classList.contains("bk-label") || e.tagName === "text";
  if (text && r.width && r.right > innerWidth + 1 && !e.closest(".scroll")) found.push(e.textContent.slice(0, 60));
  if (e.shadowRoot) walk(e.shadowRoot); walk(e); } };
  walk(document.body); return found; }"""
"""Names in charts and pictures that go beyond the right edge of the page."""


@pytest.mark.parametrize("width", [1440, 768, 390])
def test_nothing_is_cut_at_any_width(open_file, published, width):
    """All sections of the published page, with their charts: no sideways scrolling, and names end within the page."""
    tab = open_file(published, width=width)
    for section in tab.eval_on_selector_all("section", "all => all.map(s => s.id)"):
        tab.eval_on_selector(f"#{section}", "e => e.scrollIntoView({ behavior: 'instant' })")
        for chart in tab.locator(f"#{section} .chart").all():
            chart.evaluate(NEAR)
        tab.wait_for_timeout(300)
        assert tab.evaluate("document.documentElement.scrollWidth") == width, section
        assert tab.evaluate(CUT) == [], section
    tab.eval_on_selector("#growth", "e => e.scrollIntoView({ behavior: 'instant' })")
    beyond = """all => all.filter(t => { const b = t.getBBox(), w = t.ownerSVGElement.viewBox.baseVal;
        return b.x < w.x - 1 || b.x + b.width > w.x + w.width + 1; }).map(t => t.textContent)"""
    for place in ("#growth-out svg text", "#time-out svg text"):
        tab.locator(place).first.evaluate(NEAR)
        assert tab.eval_on_selector_all(place, beyond) == [], place


WIDER = """() => [...document.querySelectorAll(".matrix .cell:not([hidden])")].filter((e) => {
  const text = document.createRange(); text.selectNodeContents(e);
  return text.getBoundingClientRect().width > e.clientWidth; }).map((e) => e.textContent)"""
"""Cells of the matrix whose text is wider than they are."""


@pytest.mark.parametrize("width", [1280, 390])
def test_the_cells_of_the_matrix_hold_their_text(open_file, published, width):
    tab = open_file(published, "#q=x&view=matrix", width=width)
    tab.wait_for_function("() => document.querySelectorAll('.matrix tbody tr:not([hidden])').length > 100")
    assert tab.locator(".matrix .cell:visible").count() > 100
    assert tab.evaluate(WIDER) == []
    box = "[box.scrollWidth, box.clientWidth]"
    wide, seen = tab.eval_on_selector("#matrix-box", f"box => {box}")
    assert wide < (1.6 if width == 1280 else 3) * seen, "three runs are not much wider than the box"
    tab.add_style_tag(
        content=".cell { max-width: 0.2rem !important; min-width: 0 !important; padding: 0 !important; }"
    )
    assert tab.evaluate(WIDER) != [], "narrower cells are seen"


def test_a_phone_shows_the_rows_of_a_table_as_cards(open_file, published):
    """No table has to be scrolled sideways, but for those whose columns are compared: the matrix, the heat map, the
    steps of the decoder by mode, and the axis of releases."""
    tab = open_file(published, width=390, height=844)
    tab.eval_on_selector_all("section details:has(.scroll)", "all => all.forEach(d => d.open = true)")
    wider = tab.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(b => b.scrollWidth > b.clientWidth + 1)"
        ".map(b => b.getAttribute('aria-label').split(/[.,]/)[0])"
    )
    assert [text.split(" ")[0] for text in wider] == ["Conformance", "Heat", "Steps", "Releases"], wider
    rows = tab.locator("#advice-out tbody tr")
    assert rows.count() == 12, "a table is as long as its cards, and more are shown on demand"
    first = rows.first.inner_text()
    assert first.splitlines()[0] == rows.first.locator(".op").inner_text(), (
        "the operation is the title of its card"
    )
    places = rows.first.evaluate(
        "tr => [...tr.children].map(c => c.getBoundingClientRect()).map(r => [r.left, r.right])"
    )
    assert max(right for _, right in places) <= 390 and len({left for left, _ in places[:3]}) == 1, places
    named = rows.first.evaluate("tr => [...tr.children].map(c => getComputedStyle(c, '::before').content)")
    assert named[0] == "none" and "advice" in named[1] and "bytes" in named[2], named
    tab.click("#advice-out .more")
    assert rows.count() == tab.evaluate("document.querySelectorAll('#advice-out tbody tr').length") > 100
    tab.click("#advice-out thead button >> nth=0")
    tab.click("#advice-out thead button >> nth=0")
    names = tab.locator("#advice-out tbody .op").all_inner_texts()
    assert names == sorted(names, reverse=True), "the heads sort the cards"
    assert tab.locator("#advice-out thead").evaluate("e => getComputedStyle(e).position") == "static"


def test_cards_are_rows_of_a_table_for_a_screen_reader(open_page):
    tab = open_page(width=390, height=844)
    session = tab.context.new_cdp_session(tab)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    roles = [n["role"]["value"] for n in nodes if not n.get("ignored")]
    without = tab.evaluate(
        "[...document.querySelectorAll('.stack, .stack *')].filter(e => /^(TABLE|T[A-Z]+)$/.test(e.tagName)"
        " && !e.getAttribute('role')).length"
    )
    assert without == 0, "some browsers forget the table where it is laid out as blocks"
    assert roles.count("table") > 8 and roles.count("row") > 30 and roles.count("columnheader") > 30
    assert roles.count("rowheader") > 20 and roles.count("cell") > 100


def test_the_tables_of_runs_growth_and_others_fit_a_small_desktop(open_file, published):
    tab = open_file(published, width=1280)
    for place in ("wrong", "advice", "communication", "growth", "others", "changes", "runs"):
        wide = tab.eval_on_selector(f"#{place}-out .scroll", "b => [b.scrollWidth, b.clientWidth]")
        assert wide[0] <= wide[1] + 1, (place, wide)
    ids = "[...document.querySelectorAll('#changes-out tbody tr:first-child > *')].map(e => e.offsetWidth)"
    case, *_, reason = tab.evaluate(ids)
    assert reason > case, "the words have more room than the id"


def test_a_print_names_its_columns_and_its_records(open_file, published):
    tab = open_file(published)
    tab.emulate_media(media="print")
    text = tab.inner_text("#answers-prov")
    files = tab.evaluate(
        "JSON.parse(document.getElementById('data').textContent).runs.filter(r => r.judged)"
        ".map(r => [r.file, r.sha256])"
    )
    printed = [file for file, digest in files if file in text and digest in text]
    assert len(printed) == tab.locator("#glance figure").count() > 2
    heads = tab.locator("#wrong-out thead th button")
    assert (
        heads.evaluate_all("all => all.map(e => getComputedStyle(e).display)") == ["contents"] * heads.count()
    )
    for paper, landscape in itertools.product(("A4", "Letter"), (False, True)):
        pdf = tab.pdf(format=paper, landscape=landscape)
        assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 2, (paper, landscape)
    tab.emulate_media(media="screen")
    assert not tab.locator("#answers-prov .on-paper").is_visible()


def test_the_newest_release_is_in_the_headline_where_another_run_is_first(open_file, published):
    """The first run is of a real device with an older release; a maintainer asks about the newest one."""
    tab = open_file(published)
    text = " ".join(tab.inner_text("#headline").split())
    assert text.startswith("JAX 0.11.2 on 1 × NVIDIA H100")
    news = re.search(r"JAX (\S+) on 8 × cpu \(virtual\) broke (\d+) and mended (\d+) beside (\S+)\.$", text)
    assert news, text
    items = tab.locator("#wrong-out .note li")
    for item, number in zip(items.all(), news.groups()[1:3], strict=True):
        assert item.locator("button.link").count() == int(number), "each finding is a link"
    items.nth(1).locator("button.link").first.click()
    assert tab.inner_text("#detail-body").startswith(f"JAX {news[4]}"), (
        "a mended one opens where it was wrong"
    )


def test_modes_are_of_several_devices_and_speed_is_of_real_ones(open_file, published):
    tab = open_file(published)
    chosen = "e => e.selectedOptions[0].textContent"
    assert "8 × cpu" in tab.eval_on_selector("#m-machine", chosen)
    assert "1 × NVIDIA H100" in tab.eval_on_selector("#s-machine", chosen)
    advice = tab.inner_text("#advice-out")
    assert "8 × cpu" in advice.partition("\n")[0] and "Use shard_map where the bytes matter." in advice
    heads = tab.inner_text("#communication-out thead")
    assert "H100" not in heads and "8 × cpu" in heads, "one device sends nothing"
    virtual = tab.locator("#s-machine option", has_text="0.12.0.1 · 8 × cpu").first.get_attribute("value")
    tab.select_option("#s-machine", virtual)
    shows(tab, "#speed-note", "8 × cpu")
    assert f"smachine={virtual}" in tab.url and "8 × cpu" in tab.eval_on_selector("#m-machine", chosen)
    again = open_file(published, "#" + tab.url.partition("#")[2])
    assert again.input_value("#s-machine") == virtual


def test_an_operation_without_a_manual_mode_stands_beside_what_it_must_send(open_file, tmp_path):
    first = made_up.head("reshard", "from=x.y,to=y.x", "auto", "2x4", "L2") | {
        "verdict": "pass",
        "reason": "",
    }
    moved = [
        first | {"check": "communication", "wire_bytes": 12288.0, "theory": {"x+y": 4096.0},
                 "collectives": [{"kind": "all-to-all", "bytes": 8192, "groups": "2x4", "trips": 1}]},
        first | {"check": "numbers", "error": 0.0, "bound": 0.0, "seconds": 0.1},
    ]  # fmt: skip
    made_up.file(tmp_path / "in" / "one.jsonl", made_up.run("aaaa"), [*made_up.judged(), *moved])
    tab = open_file(make(tmp_path / "in"))
    beside, owed = tab.locator("#communication-out table").all()
    assert "reshard" not in beside.inner_text() and "shift_set" in beside.inner_text()
    row = " ".join(owed.locator("tbody tr").inner_text().split())
    assert row.startswith("reshard auto 3× 12,288 / 4,096 B, 1 case") and "all-to-all" in row


def test_one_device_says_that_it_sends_nothing(open_file, tmp_path):
    made_up.file(tmp_path / "in" / "one.jsonl", made_up.run("aaaa", num_devices=1), made_up.judged())
    tab = open_file(make(tmp_path / "in"))
    shows(tab, "#answers-cards", "One device sends nothing, in any mode")
    shows(tab, "#advice-out", "a run on several devices says which mode to choose")


def test_the_trend_of_times_has_its_intervals_in_the_table(open_file, tmp_path):
    for release, factor in (("0.10.2", 1.5), ("0.12.0.1", 1.0)):
        first = made_up.run("aaaa", release)
        made_up.file(tmp_path / "in" / f"{release}.jsonl", first, made_up.judged())
        made_up.file(tmp_path / "in" / f"{release}-times.jsonl", first, made_up.timed(factor, processes=6))
    tab = open_file(make(tmp_path / "in"))
    tab.click("#time-out details:not(.prov) > summary")
    heads = tab.locator("#time-out thead th").all_inner_texts()
    rows = [row.inner_text().split("\t") for row in tab.locator("#time-out tbody tr").all()]
    column = heads.index("Time of manual mode over JAX 0.10.2")
    assert [row[column] for row in rows] == ["1.00 (1.00–1.00)", "0.67 (0.66–0.67)"]
    assert "0.66–0.67" in tab.locator("#time-out svg[role=img]").evaluate("e => e.textContent")
    shows(tab, "#time-out", "with 95 % intervals over 6 processes")


def few(kind):
    """The lines of a run of one kind, after its first."""
    lines = made_up.judged()
    if kind == "no records":
        return []
    if kind == "one record":
        return lines[:2]
    verdict = {"verdict": "fail", "reason": f"1 differs {made_up.HOSTILE}"}
    return [line | verdict for line in lines]


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("kind", ["no records", "one record", "only failures", "only compiled"])
def test_pages_of_few_records_say_what_they_have(open_file, tmp_path, kind, width):
    if kind == "only compiled":
        first = made_up.run("dddd", kind="TPU v5 lite", virtual=False, topology="v5e:2x4")
        lines = made_up.judged(topology="v5e:2x4")
    else:
        first, lines = made_up.run("aaaa"), few(kind)
    made_up.file(tmp_path / "in" / "few.jsonl", first, lines)
    tab = open_file(make(tmp_path / "in"), width=width)
    text = tab.inner_text("#answers")
    for expected in {
        "no records": ["No conformance records here."],
        "one record": ["1 of 1 pass", "Nothing is wrong"],
        "only failures": ["15 fail", "that no list knows"],
        "only compiled": ["v5e:2x4", "compiled, not run"],
    }[kind]:
        assert expected in text, text
    if kind == "only failures":
        assert (
            tab.locator("#glance rect:not(.g-bad)").count() == 0 and tab.locator("#glance .g-bad").count() > 0
        )
        assert tab.locator(".matrix .v-fail").count() > 0 and tab.locator(".matrix .v-pass").count() == 0
    if kind == "only compiled":
        assert tab.locator("#glance .g-pass").count() == 0 and "pass" not in tab.inner_text("#headline")
    assert tab.evaluate("window.hacked") is None
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    axe = chromium.axe()
    found = axe.Axe().run(tab).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:100]) for v in found] == []
