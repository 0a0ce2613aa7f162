# SPDX-License-Identifier: Apache-2.0
"""Choosing a mode and runs on the page: advice, heat map, the best mode, controls and the decoder's steps, with enough
processes for intervals, and with enough for an order; and the choice of runs."""

import pytest

from tests.browser import chromium
from tests.browser import records as made_up
from tests.browser.conftest import make
from tests.browser.waiting import shows


@pytest.fixture(scope="module")
def pages(browser, tmp_path_factory):
    """The first page by the number of processes behind each time; under 0 that of twelve whose controls differ."""
    found = {}
    for number in (6, 12, 0):
        directory = tmp_path_factory.mktemp("choosing") / "in"
        made_up.file(directory / "verdicts.jsonl", made_up.run("aaaa"), made_up.judged())
        lines = made_up.timed(processes=number or 12) + made_up.stepped(number or 12)
        for line in lines if not number else ():
            if "control_s" in line:
                line["control_s"] = [1.05 * t for t in line["samples_s"]]
        made_up.file(directory / "times.jsonl", made_up.run("bbbb"), lines)
        found[number] = make(directory)
    return found


def cells(tab, mode="auto"):
    tab.select_option("#m-mode", mode)
    return {
        cell.inner_text().partition("\n")[0]: cell.get_attribute("class").split()
        for cell in tab.locator("#heat-out td.heat").all()
    }


def test_six_processes_give_intervals_and_no_order(open_file, pages):
    tab = open_file(pages[6], "#view=modes")
    text = tab.inner_text("#heat-out")
    assert "Intervals of 95 % are over 6 processes." in text
    assert "ratios needs 11 processes, so none is claimed here" in text.replace("An order over all ", "")
    assert "1.20\n1.20–1.20" in text, "each ratio has its interval"
    assert set(cells(tab)) == {"1.20", "1.30"} and not any("sure" in c for c in cells(tab).values())
    assert all("soft" in classes for ratio, classes in cells(tab, "explicit").items() if ratio == "1.00")
    assert "best" not in tab.inner_text("#modes-out thead") and "slower" not in tab.inner_text(
        "#modes-out tbody"
    )


def test_twelve_processes_decide_an_order(open_file, pages):
    tab = open_file(pages[12], "#view=modes")
    shows(tab, "#heat-out", "An order is claimed where the interval, corrected over all")
    assert all("sure" in classes for classes in cells(tab).values())
    found = cells(tab, "explicit")
    assert "sure" not in found["1.00"] and "sure" in found["1.15"]
    assert tab.locator("#modes-out thead th", has_text="best").count() == 1
    rows = {r.locator("th").inner_text(): r.inner_text() for r in tab.locator("#modes-out tbody tr").all()}
    column = tab.locator("#modes-out thead th").all_inner_texts().index("best") - 1
    best = {
        r.locator("th").inner_text().split()[0]: r.locator("td").nth(column).inner_text()
        for r in tab.locator("#modes-out >> table >> nth=0 >> tbody tr").all()
    }
    assert rows and best["decoder"] == "manual", "parted from both other modes"
    assert best["matmul"] == "", "explicit and manual take the same time"
    shows(tab, "#answers-cards", "calls): auto 1.20 (1.20–1.20), slower in")


def test_the_modes_of_a_step_stand_side_by_side(open_file, pages):
    tab = open_file(pages[12], "#view=modes")
    table = tab.locator("#steps-out table")
    assert table.locator("thead th").all_inner_texts() == ["step and figure", "auto", "explicit", "manual"]
    rows = {}
    for body in table.locator("tbody").all():
        step = body.locator(".op").inner_text()
        for row in body.locator("tr").all()[1:]:  # the first row names the step
            rows[step, row.locator("th").last.inner_text()] = row.locator("td").all_inner_texts()
    # 4 sequences of 16 tokens in 1.3, 1.15 and 1 ms, and a little more; a decode step takes one token of each
    assert [int(t.split()[0].replace(",", "")) // 1000 for t in rows["decoder", "tokens/s"]] == [48, 54, 62]
    assert rows["decoder", "tokens/s"][2].endswith("fastest")
    assert rows["decode_step", "tokens/s"][2].startswith("3,")
    assert rows["decoder", "time over manual"][0].startswith("1.30 slower")
    assert rows["decoder", "a device sends"] == ["8.19 kB in all-reduce"] * 3
    assert rows["decoder", "memory of a device"] == ["1.23 MB"] * 3
    assert all("% (" in share for share in rows["decoder", "MFU"]), "with its interval"
    shows(tab, "#steps-out", "largest float32 matmul measured here")


def test_controls_that_differ_leave_every_order_in_doubt(open_file, pages):
    tab = open_file(pages[0], "#view=modes")
    shows(tab, "#heat-out", "No order is claimed here: 2 of 2 controls, the same program twice, exclude 1")
    assert not any("sure" in c for c in cells(tab).values()) and "best" not in tab.inner_text(
        "#modes-out thead"
    )


@pytest.mark.parametrize("number", [6, 12])
def test_controls_are_the_same_program_twice(open_file, pages, number):
    text = open_file(pages[number], "#view=modes").inner_text("#modes-out")
    assert "2 controls; none of them is called faster or slower." in text


def test_advice_follows_a_search_and_the_chosen_cadence(open_file, pages):
    tab = open_file(pages[12])
    row = tab.locator("#advice-out tbody tr", has_text="matmul")
    assert "auto 1.20 (1.20–1.20) in 2 cells, slower in 2" in row.inner_text()
    tab.select_option("#m-cadence", "stream")
    assert "stream" in tab.inner_text("#heat-out caption") and "cadence=stream" in tab.url
    assert "isolated" in tab.inner_text("#steps-out caption"), "no step was timed as a stream"
    tab.fill("#f-q", "psum")
    tab.locator("#modes-out").scroll_into_view_if_needed()
    tab.wait_for_selector("#modes-out:not([aria-busy])")
    tab.wait_for_function("() => !document.querySelector('#modes-out').textContent.includes('matmul')")
    shows(tab, "#modes-out tbody", "psum")


def test_axe_finds_nothing_where_orders_are_shown(open_file, pages):
    axe = chromium.axe()
    found = axe.Axe().run(open_file(pages[12], "#view=modes")).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:100]) for v in found] == []


def test_choosing_runs_changes_columns_and_the_address(open_page):
    tab = open_page()
    before = tab.locator(".matrix thead tr:first-child th").count()
    assert before > 2  # the corner and a group of columns for each run that differs
    tab.click(".more-runs summary")
    tab.click("label:has-text('v5e:2x4')")
    assert tab.locator(".matrix thead tr:first-child th").count() == before + 1
    label = tab.locator(".matrix tr.group >> nth=0 >> .cell").last.get_attribute("aria-label")
    assert "runs=" in tab.url and "compiled, not run" in label
    again = open_page("#" + tab.url.partition("#")[2])
    assert again.locator(".matrix thead tr:first-child th").count() == before + 1
    assert again.is_checked("label:has-text('v5e:2x4') input")


@pytest.mark.parametrize("names", ["abc", "cab", "bca"])
def test_a_factor_is_of_the_file_with_an_interval_and_most_cells(open_file, tmp_path, names):
    """Of three files one has few cells, one more, and one most, but of one process without an interval."""
    first = made_up.run("aaaa")
    for name, lines in zip(
        names,
        (made_up.stepped(6), made_up.timed(processes=6), made_up.timed() + made_up.stepped()),
        strict=True,
    ):
        own = [line for line in lines if line.get("cadence") == "isolated"]
        made_up.file(tmp_path / "in" / f"{name}.jsonl", first, own)
    card = open_file(make(tmp_path / "in")).locator("#answers-cards").text_content()
    assert "isolated calls): auto 1.20 (1.20–1.20); explicit 1.00" in card, card
    assert "the median of 14 cells, with a 95 % interval over 6 processes" in card, card


def test_speed_opens_on_a_machine_with_figures_and_empty_charts_say_why(open_file, tmp_path):
    """One real device whose only time is refused, another with contractions alone, and virtual devices with all."""
    refused = [line | {"verified": False, "verdict": "fail"} for line in made_up.stepped()[:1]]
    products = [line for line in made_up.timed() if line.get("operation") == "matmul"]
    one = {"virtual": False, "num_devices": 1}
    made_up.file(tmp_path / "in" / "a.jsonl", made_up.run("aaaa", kind="GPU A", **one), refused)
    made_up.file(tmp_path / "in" / "b.jsonl", made_up.run("bbbb", kind="GPU B", **one), products)
    made_up.file(tmp_path / "in" / "c.jsonl", made_up.run("cccc"), made_up.timed())
    tab = open_file(make(tmp_path / "in"), "#view=speed")
    machines = tab.locator("#s-machine option").all_inner_texts()
    assert "GPU A" in machines[0], "the test means nothing if the machine without figures is not the first"
    assert "GPU B" in tab.eval_on_selector("#s-machine", "e => e.selectedOptions[0].textContent")
    for chart in ("bw", "scale"):
        tab.eval_on_selector(f"#{chart}-chart", "e => e.scrollIntoView()")
        shows(tab, f"#{chart}-chart", "One device")
        assert tab.inner_text(f"#{chart}-table") == "", "nothing more stands below an empty chart"
    only = open_file(make(tmp_path / "in"), "#view=speed&smachine=none")
    assert "GPU B" in only.eval_on_selector("#s-machine", "e => e.selectedOptions[0].textContent")


def test_without_times_the_section_of_speed_is_one_sentence(open_file, tmp_path):
    made_up.file(tmp_path / "in" / "a.jsonl", made_up.run("aaaa"), made_up.judged())
    tab = open_file(make(tmp_path / "in"), "#view=speed")
    shows(tab, "#speed-note", "No times among these records.")
    assert tab.locator("#speed h3:visible, #speed .chart:visible").count() == 0


def test_the_table_of_runs_names_the_must_pass_list(open_page):
    tab = open_page("#view=runs")
    tab.wait_for_selector("#runs-out table")
    heads = tab.locator("#runs-out thead th").all_inner_texts()
    column = next(n for n, text in enumerate(heads) if text.startswith("list"))
    shown = {
        row.locator("th, td").nth(column).inner_text() for row in tab.locator("#runs-out tbody tr").all()
    }
    assert shown > {""} and all(text.isdigit() for text in shown - {""})
