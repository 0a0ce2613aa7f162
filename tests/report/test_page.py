# SPDX-License-Identifier: Apache-2.0
"""The page's text and data: no text of a record becomes markup, and the page shows what the records hold."""

import json
import re

import pytest

pytest.importorskip("bokeh", reason="the page needs Bokeh: pip install -e '.[page]'")
pytest.importorskip("jinja2", reason="the page needs Jinja: pip install -e '.[page]'")

from meshmark.levels import must_pass
from meshmark.records import reading
from meshmark.report import page, page_data, page_parts, report, summary_tables
from tests.browser import records as made_up
from tests.checkout import ROOT


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    directory = tmp_path_factory.mktemp("records")
    made_up.write(directory)
    return report.find_records([directory])


@pytest.fixture(scope="module")
def data(found):
    return page_data.build(found.sources)


@pytest.fixture(scope="module")
def html(data):
    return page.page(data)


def run_of(data, file):
    return next(r for r in data["runs"] if r["file"] == file)


def test_the_data_come_back_from_the_page(html, data):
    assert page.data_of(html) == json.loads(json.dumps(data))


def test_no_string_of_a_record_is_markup(html):
    assert html.count("window.hacked=1") >= 2  # it is there, and everywhere escaped
    assert "<script>window.hacked" not in html and "<img src=x" not in html
    scripts = re.findall(r"<script[^>]*>", html)
    assert len(scripts) == 4 and html.count("</script>") == 4


def test_the_policy_names_exactly_the_scripts_that_run(html):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy
    script = next(part for part in policy.split(";") if part.strip().startswith("script-src"))
    assert script.count("sha256-") == 3 and "unsafe-inline" not in script
    body = html.rpartition("<script>")[2].partition("</script>")[0]
    assert page.script_hash(body) in script
    assert page.script_hash(body + " ") not in script


def test_nothing_is_loaded_from_elsewhere(html):
    head = re.sub(r"<script.*?</script>", "", html, flags=re.S)
    assert not re.findall(r"(?:src|href)=[\"'](?!#|data:)", head)
    assert "@import" not in head and "url(" not in head


def test_verdicts_and_counts_are_those_of_the_records(data):
    run = run_of(data, "old.jsonl")
    names = [data["verdicts"][v] for v in run["judged"]["verdict"]]
    assert (names.count("pass"), names.count("known"), names.count("fail")) == (13, 1, 1)
    place = names.index("fail")
    case = {
        name: data["strings"][column[run["judged"]["case"][place]]] for name, column in data["cases"].items()
    }
    assert (case["operation"], case["mode"], case["level"]) == ("shift_set", "explicit", "L2")
    assert data["strings"][run["judged"]["reason"][place]].startswith("31 of 64 elements differ")
    assert run["judged"]["manual"][place] is None  # a wrong program says nothing about its mode
    known = names.index("known")
    assert (run["judged"]["wire"][known], run["judged"]["manual"][known]) == (8320, 128)


def test_classes_and_order(data):
    assert [r["class"] for r in data["runs"]] == 2 * ["real"] + 5 * ["virtual"] + 2 * ["compiled"]
    assert [r["release"] for r in data["runs"]][2:7] == ["0.12.0.1"] * 2 + ["0.11.2"] + ["0.10.2"] * 2


def test_a_comparison_is_no_run_of_its_own(data):
    run = run_of(data, "comparison.jsonl")
    assert run["comparison"] and run["judged"] is None and run["timings"] is None
    (found,) = data["comparisons"]
    assert found["key"] == run["key"] and found["processes"] == 24 and found["counted"] == 1
    assert [row["verdict"] for row in found["rows"]] == ["slower", "no change", "inconclusive", "left out"]
    assert found["differences"] == [("psum/axes=x/manual/2/float32/1KiB", "wire_bytes", "1024", "2048")]


def test_interpreted_levels_stand_beside_the_levels_and_are_none(data):
    run = run_of(data, "interpreted.jsonl")
    assert not run["levels"] and "no level" in run["statement"] and "L1 (interpreted)" in run["statement"]
    assert {one["level"] for one in run["interpreted"]} >= {"L1", "L2"}
    assert not run_of(data, "compiled.jsonl")["interpreted"]


def over(name, file, **facts):
    """A run of two processes of four devices each, as many devices as all others have."""
    group = {"devices": 4, "detected": False, "transport": "gloo"}
    return made_up.run(name, num_processes=2, group=group, **facts) | {"ranks": 2}


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    """The data of the same records and two more files: verdicts and times of two processes."""
    directory = tmp_path_factory.mktemp("spread")
    made_up.write(directory)
    bad = {("all_gather", "auto"): ("fail", "rank 1: 3 differ")}
    made_up.file(directory / "a-two.jsonl", over("abcd", "a-two"), made_up.judged(bad))
    made_up.file(directory / "a-two-times.jsonl", over("abce", "a-two"), made_up.timed(3.0))
    return page_data.build(report.find_records([directory]).sources)


def test_runs_over_processes_are_never_those_of_one(spread):
    two, one = run_of(spread, "a-two.jsonl"), run_of(spread, "new.jsonl")
    assert two["label"] == "JAX 0.12.0.1 · 2 processes × 4 cpu devices (virtual)"
    assert one["label"] == "JAX 0.12.0.1 · 8 × cpu (virtual)"
    assert (two["processes"], two["devices"], two["class"]) == (2, 8, "virtual")
    assert {r["machine"] for r in spread["runs"] if r["file"].startswith("a-two")} == {two["machine"]}
    assert two["machine"] not in {r["machine"] for r in spread["runs"] if not r["file"].startswith("a-two")}


def test_of_one_release_what_ran_in_one_process_comes_first(spread):
    virtual = [r["file"] for r in spread["runs"] if (r["class"], r["release"]) == ("virtual", "0.12.0.1")]
    assert virtual == ["new-times.jsonl", "new.jsonl", "a-two-times.jsonl", "a-two.jsonl"]


def test_the_levels_of_several_processes_are_l4_alone(spread):
    two = run_of(spread, "a-two.jsonl")
    assert [s["level"] for s in two["levels"]] == ["L4"]
    assert two["statement"].startswith("no level on 2 processes of 4 virtual CPU devices, JAX 0.12.0.1")
    assert [s["level"] for s in run_of(spread, "new.jsonl")["levels"]] == ["L0", "L1", "L2", "L3"]
    header, rows = summary_tables.levels(spread)
    assert header == ["run", "devices", "level met", "list", "L0", "L1", "L2", "L3", "L4"]
    [row] = [r for r in rows if r[0] == two["label"]]
    assert row[1:3] == ["virtual", "none"] and row[4:8] == ["", "", "", ""]
    assert re.fullmatch(r"\d+ of \d+", row[8])


def test_the_table_of_levels_names_the_list_of_each_run(spread):
    """A run that met an older list met fewer cases, so that the table says which."""
    levels = [{"level": level, "list": 3, "cases": 9, "pass": 9, "known": 0} for level in ("L0", "L1")]
    old = run_of(spread, "new.jsonl") | {"label": "an old run", "levels": levels, "met": "L1"}
    newer = old | {"label": "a newer run", "levels": [one | {"list": 5} for one in levels]}
    header, rows = summary_tables.levels({"runs": [old, newer]})
    assert [row[header.index("list")] for row in rows] == ["3", "5"]
    text = "\n".join(summary_tables.summary(spread))
    assert "*list* is the version of the must-pass lists" in text and "L4 repeats L0 to L3" in text


def test_a_failure_over_processes_gets_no_script_of_one(spread, data):
    assert spread["scripts"].keys() == data["scripts"].keys()
    assert not [name for name in spread["scripts"] if name.startswith("all_gather/")]


def test_a_cpu_is_never_called_real():
    assert page_data._virtual({"virtual": False, "backend": "cpu"})
    assert page_data._virtual({"backend": "gpu"})  # a record that does not say
    assert not page_data._virtual({"virtual": False, "backend": "gpu"})


def test_a_time_whose_values_were_not_verified_is_not_in_the_page(data):
    t = run_of(data, "new-times.jsonl")["timings"]
    bad = [i for i, v in enumerate(t["verdict"]) if data["verdicts"][v] == "fail"]
    assert len(bad) == 6 and all(
        t[n][i] is None for i in bad for n in ("median_s", "low_s", "ratio", "busbw", "share")
    )
    assert sum(m is not None for m in t["median_s"]) == len(t["median_s"]) - 6


def test_the_fit_finds_the_line_that_made_the_times(data):
    fit = next(
        f for f in run_of(data, "new-times.jsonl")["fits"] if f["mode"] == "manual" and f["mesh"] == "8"
    )
    assert fit["alpha"] == pytest.approx(
        1.0095e-4, rel=1e-3
    )  # the median of 20 samples that grow by 0.1 percent
    assert fit["beta"] == pytest.approx(1e10 / 1.0095, rel=1e-3)
    assert fit["factor"] == 1.75 and fit["worst"] < 0.01


def test_ratio_to_manual_is_of_pairs(data):
    t = run_of(data, "new-times.jsonl")["timings"]
    ratios = [t["ratio"][i] for i, m in enumerate(t["mode"]) if data["strings"][m] == "auto"]
    assert ratios and all(r == pytest.approx(1.2, rel=1e-3) for r in ratios)


@pytest.mark.parametrize(
    ("releases", "expired"),
    [
        (["0.12.0.1", "0.10.2"], [False, False]),
        (["0.13.0", "0.10.2", "0.11.0"], [False, True, False]),
        (["1.0.0", "0.12.0"], [False, False]),
        (["1.2.0", "0.12.0"], [False, True]),
    ],
)
def test_results_expire_after_two_minors(releases, expired):
    runs = [
        {
            "release": r,
            "machine": "8 × cpu",
            "file": f"{r}.jsonl",
            "class": "virtual",
            "judged": None,
            "timings": None,
            "comparison": False,
            "processes": 1,
        }
        for r in releases
    ]
    page_data._set_labels(runs)
    assert {r["release"]: r["expired"] for r in runs} == dict(zip(releases, expired, strict=True))


def test_reasons_beyond_the_budget_are_cut_and_counted():
    strings = page_parts.Strings()
    budget = page_parts.Budget(strings, left=1000)
    places = [budget(f"{i} " + "x" * 400) for i in range(5)]
    texts = [strings.all[p] for p in places]
    assert [len(t) > 300 for t in texts] == [True, True, False, False, False]
    assert budget.cut == 3 and "in full in the record file" in texts[2]
    assert budget("0 " + "x" * 400) == places[0]


def test_a_link_is_an_https_address_or_a_document_of_this_repository():
    assert (
        page_data.link_of("https://github.com/jax-ml/jax/issues/1")
        == "https://github.com/jax-ml/jax/issues/1"
    )
    for own in ("results/findings/a-name/report.md", "docs/findings.md#what-is-wrong", "docs/limits.md"):
        assert page_data.link_of(own) == own
    bad_ones = ("javascript:alert(1)", 'https://x.y/"onclick=', "http://x.y/", None, 3, "https://a b")
    for bad in (*bad_ones, "results/findings/../../x.md", "docs/a/b.md", "docs/a.md#b c", "/docs/a.md"):
        assert page_data.link_of(bad) == ""


def test_the_program_of_a_case_is_the_one_that_ran(data):
    assert "lax.psum(x" in data["programs"]["psum/manual"]
    assert "def auto(x" in data["programs"]["psum/auto"]


def test_scripts_are_those_of_cases_that_do_not_pass(data):
    assert "shift_set/of=x.y,dim=0/explicit/2x4/float32/4KiB" in data["scripts"]
    assert len(data["scripts"]) == 2
    compile(next(iter(data["scripts"].values())), "script", "exec")


def test_too_large_a_page_is_refused(data, monkeypatch):
    monkeypatch.setattr(page, "MOST", 1000)
    with pytest.raises(page.PageError, match="give it fewer records"):
        page.pages(data)


def test_a_script_that_could_end_its_element_is_refused(tmp_path):
    (tmp_path / "x.js").write_text("var a = '</SCRIPT>'")
    with pytest.raises(page.PageError, match=r"x\.js"):
        page._script(tmp_path / "x.js")


@pytest.mark.parametrize(
    "text", ["", "<html></html>", '<script type="application/json" id="data">{</script>']
)
def test_what_is_no_page_is_refused(text):
    with pytest.raises(page.PageError, match="not a page of Meshmark"):
        page.data_of(text)


def test_a_run_is_stated_by_the_newest_list_that_it_judged_whole():
    """A list that asks for more comes after a run, and takes nothing from what the run has met."""
    published = reading.read_records(ROOT / "results/0.12.0.1/cpu-4x2-virtual/conformance.jsonl.gz")
    stated = {}
    page_data._state(stated, published)
    assert stated["met"] == "L4" and {level["list"] for level in stated["levels"]} == {4}
    del published.cases[next(name for name in published.cases if name.startswith("psum/axes="))]
    page_data._state(stated, published)
    newest = must_pass.versions()[-1]
    assert stated["met"] != "L4" and {level["list"] for level in stated["levels"]} == {newest}
