# SPDX-License-Identifier: Apache-2.0
"""`meshmark report`: its output is the same to the byte, its check finds changes, and it refuses bad input."""

import csv
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.checkout import ROOT

pytest.importorskip("bokeh", reason="the page needs Bokeh: pip install -e '.[page]'")
pytest.importorskip("jinja2", reason="the page needs Jinja: pip install -e '.[page]'")

from meshmark.commands import main as cli
from meshmark.report import latex, report, report_check, tables
from tests.browser import records as made_up


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    directory = tmp_path_factory.mktemp("source")
    made_up.write(directory)
    return directory


@pytest.fixture(scope="module")
def texts(source):
    found = report.find_records([source])
    return report.make_report(found.sources, found.beside)


@pytest.fixture
def written(texts, tmp_path):
    report.write_pages(texts, tmp_path / "report")
    return tmp_path / "report"


def changed(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_two_processes_make_the_same_bytes(source, tmp_path):
    made = []
    for seed in ("1", "2"):
        output = tmp_path / seed
        subprocess.run(
            [sys.executable, "-m", "harness", "report", str(source), "--output", str(output)],
            check=True, cwd=ROOT, stdout=subprocess.DEVNULL,
            env=os.environ | {"PYTHONHASHSEED": seed, "TZ": f"UTC+{seed}"},
        )  # fmt: skip
        made.append({p.name: p.read_bytes() for p in output.iterdir()})
    assert made[0] == made[1]
    assert set(made[0]) == {
        "index.html",
        "summary.md",
        "conformance.md",
        "conformance.csv",
        "timings.md",
        "timings.csv",
        "tables.tex",
        "report.json",
    }


def test_check_says_yes_and_no(source, written, capsys):
    arguments = ["report", str(source), "--check", "--output", str(written)]
    assert cli.main(arguments) == 0
    assert "byte by byte" in capsys.readouterr().out
    changed(written / "index.html", '"label":"JAX 0.10.2', '"label":"JAX 0.10.3')
    assert cli.main(arguments) == 1
    assert "index.html differs from byte" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    [
        "summary.md",
        "conformance.md",
        "conformance.csv",
        "timings.md",
        "timings.csv",
        "tables.tex",
        "index.html",
    ],
)
def test_a_change_of_any_file_is_found(texts, written, name):
    with open(written / name, "ab") as file:
        file.write(b"x")
    found = report_check.check_report(texts, written)
    assert not found.same and found.differences[0].startswith(name)
    (written / name).unlink()
    assert report_check.check_report(texts, written).differences == [f"{name} is missing"]


def elsewhere(written, library="pandas", version="0.0.1"):
    """As if the report had been made with another pandas: a manifest that fits the files."""
    manifest = json.loads((written / "report.json").read_text())
    manifest["made_with"][library] = version
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((written / name).read_bytes()).hexdigest()
    (written / "report.json").write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")


def substitute(path, pattern, new):
    """The file with the first match of the pattern replaced by another text."""
    text = path.read_text(encoding="utf-8")
    made = re.sub(pattern, new, text, count=1)
    assert made != text
    path.write_text(made, encoding="utf-8")


def test_with_other_libraries_all_that_they_leave_alone_is_compared_and_it_says_so(texts, written):
    substitute(written / "summary.md", r"\| ", "|    ")  # the width of a column
    substitute(written / "timings.csv", r",(0\.0*[1-9]\d{5})\d", r",\1")  # the last digits of a figure
    assert not report_check.check_report(texts, written).same
    elsewhere(written)
    found = report_check.check_report(texts, written)
    assert found.same and "and not the bytes" in found.how and "made with 0.0.1" in found.how
    strict = report_check.check_report(texts, written, only_bytes=True)
    assert not strict.same and strict.how.startswith("byte by byte") and "made with 0.0.1" in strict.how


@pytest.mark.parametrize(
    ("name", "pattern", "new", "says"),
    [
        ("index.html", "</body>", "<p>certified: TPU v5p, L4</p></body>", "line "),
        ("index.html", "<title>Meshmark", "<title>meshmark", "line "),
        ("index.html", "</body>", "<script>document.title = 1</script></body>", "has 5 scripts"),
        ("index.html", '<script>"use strict";', '<script>"use strict"; let a;', "own script"),
        ("index.html", '"strings":', '"strings":[],"strings":', "not spelled"),
        ("index.html", '(id="plot-1">)', r"\1let a;", "scripts of Bokeh"),
        ("index.html", r'("cases":\d+)', r"\g<1>1", "the records give"),
        ("summary.md", "virtual", "real", "summary.md: line "),
        ("conformance.md", "fail", "pass", "conformance.md: line "),
        ("timings.md", r"(\d) us", r"\1 ns", "timings.md: line "),
        ("timings.md", r"(\d)\.(\d+) us", r"\g<1>1.\2 us", "timings.md: line "),
        ("tables.tex", "virtual", "real", "tables.tex: line "),
        ("tables.tex", r"\Z", r"\\section{L4}", "tables.tex: line "),
        ("timings.csv", r",8,", ",9,", "timings.csv."),
        ("conformance.csv", r"\n[^\n]*\n", r"\n", "rows, and the records give"),
        ("conformance.csv", "case", '"case', "no table"),
    ],
)
def test_no_version_of_a_library_explains_other_words_scripts_or_counts(
    texts, written, name, pattern, new, says
):
    substitute(written / name, pattern, new)
    elsewhere(written)
    found = report_check.check_report(texts, written)
    assert "and not the bytes" in found.how and not found.same
    assert any(line.startswith((name, "data")) and says in line for line in found.differences), found


@pytest.mark.parametrize("made_with", ["pandas", None])
def test_what_lies_beside_a_report_is_refused(texts, written, made_with):
    if made_with:
        elsewhere(written, made_with)
    assert report_check.check_report(texts, written).same
    (written / "run-0123456789.html").write_text("<h1>L4</h1>")
    (written / "more").mkdir()
    (summary := written / "summary.md").rename(written.parent / "elsewhere.md")
    summary.symlink_to(written.parent / "elsewhere.md")
    assert report_check.check_report(texts, written).differences == [
        "more is not a file of this report: take it away",
        "run-0123456789.html is not a file of this report: take it away",
        "summary.md is missing",
    ]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (r'"sources": \{', '"sources": {"tpu.jsonl": "0",', "report.json.sources.tpu.jsonl is only in"),
        (r'"sources": \{[^}]*\}', '"sources": {}', "is only in the records"),
        (r'("summary.md": ")\w{64}', r"\g<1>00", "the hash of summary.md is not that of the file"),
        (r'"suite": "', '"suite": "9', "report.json.suite is"),
        (r'\A\{', '{"certified": "L4",', "report.json.certified is only in the report"),
        (r'\A\{', '{"suite": "9",', "not spelled"),
        (r'("pandas": ")', r"\1TPU ", "no version of 'pandas'"),
        (r'("made_with": \{)', r'\1"L4": "1",', "no version of 'L4'"),
    ],
)  # fmt: skip
def test_with_other_libraries_the_manifest_still_fits(texts, written, old, new, says):
    elsewhere(written)
    substitute(written / "report.json", old, new)
    found = report_check.check_report(texts, written)
    assert not found.same and any(says in line for line in found.differences), found.differences


def test_scripts_of_another_bokeh_are_known_by_their_hashes(texts, written, monkeypatch):
    """A script can show anything, so the version that a report names does not vouch for it."""
    from meshmark.report import page

    html = (written / "index.html").read_text(encoding="utf-8")
    one, other = re.findall(r'<script type="text/plain" id="plot-\d">(.*?)</script>', html, re.DOTALL)
    html = html.replace(page.script_hash(other), page.script_hash("let a;")).replace(other, "let a;")
    html = re.sub(r"Charts: Bokeh [\w.]+", "Charts: Bokeh 2.9.9", html)
    (written / "index.html").write_text(html, encoding="utf-8")
    elsewhere(written, "bokeh", "2.9.9")
    found = report_check.check_report(texts, written)
    assert found.differences == [
        "index.html: its scripts of Bokeh are none that this suite knows, so nothing is known about what they show:"
        " install bokeh==2.9.9 and check again"
    ]
    hashes = (page.script_hash(one), page.script_hash("let a;"))
    monkeypatch.setitem(report_check.KNOWN_PLOTS, "2.9.9", hashes)
    assert report_check.check_report(texts, written).same


def test_the_scripts_of_the_published_page_are_known():
    from meshmark.report import page

    made = json.loads((PAGE_OF_RESULTS / "report.json").read_text())["made_with"]
    html = (PAGE_OF_RESULTS / "index.html").read_text(encoding="utf-8")
    plots = re.findall(r'<script type="text/plain" id="plot-\d">(.*?)</script>', html, re.DOTALL)
    assert report_check.KNOWN_PLOTS[made["bokeh"]] == tuple(map(page.script_hash, plots))


def test_bytes_are_an_option_of_a_check(source, written, capsys):
    arguments = ["report", str(source), "--bytes", "--output", str(written)]
    assert cli.main(arguments) == 2 and "--check" in capsys.readouterr().err
    assert cli.main([*arguments, "--check"]) == 0
    elsewhere(written)
    assert cli.main([*arguments, "--check"]) == 1
    assert "report.json differs from byte" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        (
            "index.html",
            '"devices":8',
            '"devices":9',
            "data.runs[0].ceilings[0].devices is '9', and the records give '8'",
        ),
        ("index.html", '"met":""', '"met":"L3"', "met is 'L3'"),
        ("timings.csv", "isolated", "stream", "timings.csv.cadence[0] is 'stream'"),
        (
            "conformance.csv",
            "pass",
            "fail",
            "conformance.csv.verdict[30] is 'fail', and the records give 'pass'",
        ),
    ],
)
def test_with_other_libraries_other_data_are_found(texts, written, name, old, new, says):
    changed(written / name, old, new)
    elsewhere(written)
    found = report_check.check_report(texts, written)
    assert not found.same and any(says in line for line in found.differences), found.differences


def test_figures_that_were_rounded_elsewhere_are_the_same():
    assert report_check._is_close(1.0000001, 1.0)
    assert report_check._is_close_text("0.30000000000000004", "0.3")
    assert report_check._is_close_text("8", "8.0")
    for new, old in ((1.01, 1.0), (5721, 5722), (True, 1), ("1.0", "1.0000001"), ("a", "b"), (None, 0)):
        assert not report_check._is_close(new, old)
    for new, old in (("5721", "5722"), ("5721", "5722.0"), ("nan", "inf"), ("", "0"), ("L3", "L4")):
        assert not report_check._is_close_text(new, old)
    assert report_check._is_close_line("| a  | 1.0000 ms |", "| a | 1.0001 ms |")
    for new, old in (("JAX 0.12.0.1", "JAX 0.12.0.2"), ("L3", "L4"), ("5721 of 5721", "5720 of 5721")):
        assert not report_check._is_close_line(new, old)


def test_packed_records_give_the_same_tables(source, texts, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in source.iterdir():
        with gzip.open(packed / f"{path.name}.gz", "wb") as file:
            file.write(path.read_bytes())
    again = report.make_report(report.find_records([packed]).sources)
    one, other = (list(csv.DictReader(io.StringIO(t["timings.csv"]))) for t in (texts, again))
    strip = [{k: v for k, v in row.items() if k not in ("file", "sha256")} for row in one]
    assert strip == [{k: v for k, v in row.items() if k not in ("file", "sha256")} for row in other] and strip


def test_one_content_counts_once_however_it_is_packed(source, tmp_path):
    plain, *packed = (tmp_path / name for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.gz"))
    shutil.copy(source / "new.jsonl", plain)
    for level, path in enumerate(packed, 1):
        path.write_bytes(gzip.compress(plain.read_bytes(), level))
    assert packed[0].read_bytes() != packed[1].read_bytes()
    for files in ([plain, *packed], [*packed, plain], packed):
        found = report.find_records(files)
        assert [one.name for one in found.sources] == [files[0].name]
        assert [n for n in found.notes if "taken once" in n] == [
            f"{path.name}: the same file as {files[0].name}; taken once" for path in files[1:]
        ]
    packed[1].write_bytes(packed[1].read_bytes()[:-9])  # an unpacked beginning is not the content
    with pytest.raises(report.RecordError, match="not a whole gzip file"):
        report.find_records([plain, packed[1]])


def test_a_results_directory_names_its_products(source, tmp_path):
    place = tmp_path / "results" / "0.12.0.1" / "eight-cpus"
    place.mkdir(parents=True)
    shutil.copy(source / "new.jsonl", place / "conformance.jsonl")
    (place / "product.yaml").write_text(
        "name: eight-cpus\nby: somebody\ntitle: Eight of them\ncommand: tox run -e results\n"
    )
    pytest.importorskip("yaml")
    (found,) = report.find_records([tmp_path / "results"]).sources
    assert (found.name, found.product, found.about["title"]) == (
        "0.12.0.1/eight-cpus/conformance.jsonl",
        "eight-cpus",
        "Eight of them",
    )


def test_no_path_of_this_machine_is_published(texts, source):
    for text in texts.values():
        assert str(source) not in text and str(ROOT) not in text


def test_provenance_stands_under_the_markdown_and_in_every_row_of_csv(texts, source):
    for name in ("summary.md", "conformance.md", "timings.md"):
        assert len(re.findall(r"\b[0-9a-f]{64}\b", texts[name])) >= 7
    for name in ("conformance.csv", "timings.csv"):
        rows = list(csv.DictReader(io.StringIO(texts[name])))
        assert rows and all(re.fullmatch("[0-9a-f]{64}", row["sha256"]) and row["file"] for row in rows)


def test_what_was_not_verified_has_no_time_in_any_table(texts):
    rows = [r for r in csv.DictReader(io.StringIO(texts["timings.csv"])) if r["verdict"] == "fail"]
    assert len(rows) == 6
    assert all(row[n] == "" for row in rows for n in ("median_s", "low_s", "high_s", "busbw", "ratio"))
    assert "| fail" in texts["timings.md"]


def test_formulas_and_markup_are_harmless(texts):
    for row in csv.reader(io.StringIO(texts["conformance.csv"])):
        assert not any(cell.startswith(("=", "+", "@")) for cell in row)
    for name in ("summary.md", "conformance.md", "timings.md"):
        assert "<script" not in texts[name] and "<img" not in texts[name]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("50% & $x_1$ #2", r"50\% \& \$x\_1\$ \#2"),
        ("\\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("--flag", "-{}-flag"),
        ("a^b~c", r"a\textasciicircum{}b\textasciitilde{}c"),
        ("8 × µs ± 1–2", r"8 $\times$ $\mu$s $\pm$ 1--2"),
        ("日本", "??"),
        ('say "yes"', r"say \texttt{\symbol{34}}yes\texttt{\symbol{34}}"),
        ("''", "'{}'{}"),
        ("?`", "?`{}"),
    ],
)
def test_latex_is_escaped(value, shown):
    assert latex.escape_latex(value) == shown


PAGE_OF_RESULTS = ROOT / "results" / "page"


def compiled_log(tables_tex, directory, before=""):
    """The log of pdflatex for an article with these tables. Without pdflatex the test is skipped."""
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex here")
    head = rf"\documentclass{{article}}{before}\usepackage{{booktabs}}\begin{{document}}"
    text = f"{head}\n{tables_tex}\\end{{document}}"
    (directory / "x.tex").write_text(text)
    ran = subprocess.run(
        ["pdflatex", "-interaction=batchmode", "-halt-on-error", "x.tex"],
        cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    log = (directory / "x.log").read_text("utf-8", errors="replace")
    assert ran.returncode == 0, "\n".join(re.findall(r"^!.*(?:\n.*){0,6}", log, re.MULTILINE))
    return log


@pytest.mark.parametrize("name", ["made up", "published"])
def test_latex_compiles_within_a_column_where_it_can(texts, tmp_path, name):
    made = texts["tables.tex"] if name == "made up" else (PAGE_OF_RESULTS / "tables.tex").read_text("utf-8")
    log = compiled_log(made, tmp_path)
    assert "Overfull" not in log and "Float too large" not in log


@pytest.mark.parametrize("before", ["", r"\usepackage[T1]{fontenc}"])
def test_every_character_compiles_anywhere_in_a_latex_table(tmp_path, before):
    signs = [chr(c) for c in range(32, 127)] + ["×", "±", "µ", "·", "–", "é", "\n"]
    rows = [[sign, f"{sign}8{sign}{sign}"] for sign in signs]
    every = "".join(signs)
    made = latex.table("signs", every, ["[8]", every[:40]], rows, [every, *signs])
    compiled_log("\n".join(made), tmp_path, before)


@pytest.mark.parametrize(("sign", "wrong"), [('"', r"\textquotedbl{}"), ("_", "_"), ("[", "[")])
def test_a_wrong_escape_is_seen_where_latex_compiles(tmp_path, monkeypatch, sign, wrong):
    monkeypatch.setitem(latex.SPECIAL, sign, wrong)
    monkeypatch.setattr(latex, "_row", lambda cells: " & ".join(map(latex.escape_latex, cells)) + r" \\")
    made = "\n".join(latex.table("x", "x", ["a", "b"], [["1", "2"], [sign, sign]]))
    with pytest.raises(AssertionError):
        compiled_log(made, tmp_path)


def test_a_row_may_start_as_an_option_of_a_line_break():
    made = list(latex.table("x", "x", ["a", "b"], [["[8]", "1"], ["*", "2"], ["", "*"]]))
    assert [line for line in made if line.endswith(r" \\")] == [
        r"a & b \\", r"{}[8] & 1 \\", r"{}* & 2 \\", r" & * \\"
    ]  # fmt: skip


def tex_tables(text):
    """The rows of each table of LaTeX, with its header, as lists of cells."""
    for table in re.findall(r"\\toprule\n(.*?)\\bottomrule", text, re.DOTALL):
        yield [row.split(" & ") for row in table.replace("\\midrule\n", "").split(" \\\\\n") if row]


def test_latex_tables_are_narrow(texts):
    """In footnote size a column of text holds about 85 characters; a gap between two columns takes one and a half."""
    published = (PAGE_OF_RESULTS / "tables.tex").read_text("utf-8")
    found = [*tex_tables(texts["tables.tex"]), *tex_tables(published)]
    assert len(found) > 2
    for rows in found:
        assert sum(max(map(len, column)) + 1.5 for column in zip(*rows, strict=True)) < 90, rows[0]


def test_a_long_device_kind_is_cut_at_a_word():
    run = {
        "key": "k",
        "class": "real",
        "release": "0.12.0.1",
        "devices": 1024,
        "processes": 128,
        "machine": "",
    }
    assert latex.short_names([run | {"kind": "NVIDIA Long Name With 80GB"}]) == {
        "k": "0.12.0.1, 128x8 NVIDIA Long"
    }
    assert latex.short_names([run | {"kind": "Unbelievable-1"}]) == {"k": "0.12.0.1, 128x8 Unbelievable"}


def test_equal_short_names_get_numbers():
    run = {
        "class": "virtual",
        "release": "0.12.0.1",
        "devices": 8,
        "processes": 1,
        "kind": "cpu",
        "machine": "",
    }
    named = latex.short_names([run | {"key": "a"}, run | {"key": "b"}, run | {"key": "c", "processes": 2}])
    assert named == {
        "a": "0.12.0.1, 8 virtual cpu (1)",
        "b": "0.12.0.1, 8 virtual cpu (2)",
        "c": "0.12.0.1, 2x4 virtual cpu",
    }


def markdown_tables(text):
    """(the number of rows, the line two below) of each table of Markdown."""
    lines = [*text.splitlines(), "", ""]
    start = None
    for place, line in enumerate(lines):
        if line.startswith("|"):
            start = place if start is None else start
        elif start is not None:
            yield place - start - 2, lines[place + 1]
            start = None


def test_every_table_is_capped_unless_asked(source, monkeypatch):
    found = report.find_records([source])
    whole = report.make_report(found.sources, found.beside, long=True)
    monkeypatch.setattr(tables, "ONE_PAGE", 1)
    short = report.make_report(found.sources, found.beside)
    for name in ("summary.md", "conformance.md", "timings.md"):
        each, longer = list(markdown_tables(short[name])), list(markdown_tables(whole[name]))
        assert len(each) == len(longer) and max(rows for rows, _ in longer) > 1
        for (rows, below), (of, below_whole) in zip(each, longer, strict=True):
            assert rows == 1 and (f"{of - 1} more row" in below) == (of > 1), below
            assert "more row" not in below_whole
    assert [len(rows) for rows in tex_tables(short["tables.tex"])] == [2] * 3
    assert "more rows: meshmark report -{}-long" in short["tables.tex"]
    assert all(len(rows) > 2 for rows in tex_tables(whole["tables.tex"]))


def test_latex_has_the_figures_and_balances(texts):
    text = texts["tables.tex"]
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 3
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert "none" in text
    assert "1.20" not in text and "single run" in text, "a factor without an interval is not published"


def test_a_factor_of_several_cells_has_its_interval_in_every_table(tmp_path):
    for number in (5, 6):
        made_up.file(tmp_path / f"{number}.jsonl", made_up.run("aaaa"), made_up.timed(processes=number))
        texts = report.make_report(report.find_records([tmp_path / f"{number}.jsonl"]).sources)
        for name, start in (("summary.md", "| JAX"), ("tables.tex", "0.12.0.1, 8 virtual cpu & auto")):
            row = next(li for li in texts[name].splitlines() if "auto" in li and li.startswith(start))
            assert ("1.20 (1.20-1.20)" in row) == (number == 6), row
            assert ("5 processes: no interval" in row) == (number == 5), row


def test_tails_rates_and_shares_have_the_interval_of_six_processes(tmp_path):
    made_up.file(tmp_path / "six.jsonl", made_up.run("aaaa"), made_up.timed(processes=6))
    texts = report.make_report(report.find_records([tmp_path]).sources)
    rows = list(csv.DictReader(io.StringIO(texts["timings.csv"])))
    for name in ("p10", "p50", "p90"):
        assert all(
            float(r[f"{name}_low_s"]) <= float(r[f"{name}_s"]) <= float(r[f"{name}_high_s"]) for r in rows
        )
    assert all(r["compile_low_s"] and r["compile_high_s"] for r in rows)
    head, row = [
        [c.strip() for c in li.split("|")]
        for li in texts["timings.md"].splitlines()
        if li.startswith(("| case", "| psum"))
    ][:2]
    for name in ("manual", "rate", "p10", "p50", "p90"):
        assert "±" in row[head.index(name)], name
    assert "±" not in row[head.index("bytes sent")], "bytes are exact"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda d: [], "no records in"),
        (lambda d: (d / "x.jsonl").write_text("nonsense\n"), "x.jsonl holds no run"),
        (lambda d: (d / "x.jsonl.gz").write_bytes(b"\x1f\x8bnothing"), "not a whole gzip file"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, make, says):
    make(tmp_path)
    assert cli.main(["report", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_check_without_a_report_is_one_line(source, tmp_path, capsys):
    assert cli.main(["report", str(source), "--check", "--output", str(tmp_path)]) == 2
    assert "holds no report" in capsys.readouterr().err
    (tmp_path / "report.json").write_text("[]")
    assert cli.main(["report", str(source), "--check", "--output", str(tmp_path)]) == 2
    assert "is not a manifest of `meshmark report`" in capsys.readouterr().err


def test_an_output_that_can_not_be_written_is_one_line(source, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["report", str(source / "new.jsonl"), "--output", str(tmp_path / "file")]) == 2
    assert "can't write to" in capsys.readouterr().err


def test_the_file_of_one_rank_is_left_out_and_told(tmp_path, capsys):
    made_up.write(tmp_path / "in")
    for name, more in (("all.jsonl", {"ranks": 2}), ("one.jsonl", {"rank": 0})):
        run = made_up.run("abcd", num_processes=2, group={"devices": 4}) | more
        made_up.file(tmp_path / "in" / name, run, made_up.judged())
    arguments = ["report", str(tmp_path / "in"), "--output", str(tmp_path / "report")]
    assert cli.main(arguments) == 2
    assert "one.jsonl: records of rank 0 alone are left out: name the merged file" in capsys.readouterr().err
    with open(tmp_path / "report" / "conformance.csv", newline="") as file:
        over = {(r["file"], r["num_processes"]) for r in csv.DictReader(file)}
    assert ("all.jsonl", "2") in over and not [name for name, _ in over if name == "one.jsonl"]
    assert {n for name, n in over if name != "all.jsonl"} == {"1"}


def test_records_of_other_programs_stand_beside_the_runs(tmp_path):
    made_up.file(tmp_path / "one.jsonl", made_up.run("aaaa"), made_up.judged())
    line = {"kind": "run", "schema": "meshmark-others-1", "processes": 2}
    with gzip.open(tmp_path / "others.jsonl.gz", "wt") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")
    found = report.find_records([tmp_path])
    assert [s.name for s in found.sources] == ["one.jsonl"]
    assert [note for note in found.notes if "no closing line" not in note] == []
    [problem] = found.problems
    assert "no times of others that can be shown" in problem
    assert set(found.beside.files) == {"others.jsonl.gz"}
    texts = report.make_report(found.sources, found.beside)
    assert set(json.loads(texts["report.json"])["sources"]) == {"one.jsonl", "others.jsonl.gz"}


def test_times_over_processes_say_so(tmp_path):
    made_up.file(tmp_path / "one.jsonl", made_up.run("aaaa"), made_up.timed())
    two = made_up.run("bbbb", num_processes=2, group={"devices": 4}) | {"ranks": 2}
    made_up.file(tmp_path / "two.jsonl", two, made_up.timed(3.0))
    texts = report.make_report(report.find_records([tmp_path]).sources)
    rows = list(csv.DictReader(io.StringIO(texts["timings.csv"])))
    assert {(r["file"], r["num_processes"], r["virtual"]) for r in rows} == {
        ("one.jsonl", "1", "True"),
        ("two.jsonl", "2", "True"),
    }
    heads = [line for line in texts["timings.md"].splitlines() if line.startswith("### JAX")]
    assert heads == [
        "### JAX 0.12.0.1 · 8 × cpu (virtual), virtual devices (one.jsonl)",
        "### JAX 0.12.0.1 · 2 processes × 4 cpu devices (virtual), virtual devices (two.jsonl)",
    ]


def test_a_torn_file_is_reported_and_the_rest_used(source, tmp_path, capsys):
    text = (source / "new.jsonl").read_text()
    (tmp_path / "torn.jsonl").write_text(text[:-20])
    assert cli.main(["report", str(tmp_path / "torn.jsonl"), "--output", str(tmp_path / "out")]) == 2
    assert "cut off" in capsys.readouterr().err and (tmp_path / "out" / "index.html").exists()


def test_the_same_file_twice_is_taken_once(source, tmp_path):
    shutil.copy(source / "new.jsonl", tmp_path / "a.jsonl")
    shutil.copy(source / "new.jsonl", tmp_path / "b.jsonl")
    found = report.find_records([tmp_path])
    assert len(found.sources) == 1 and "the same file as a.jsonl" in found.notes[0]
    assert found.notes[1].startswith("1 of 1 record files, such as a.jsonl: no closing line")


def test_an_opened_report_needs_no_folder(source, tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr("webbrowser.open", lambda place: seen.append(place) or True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main(["report", str(source / "new.jsonl"), "--open"]) == 0
    (page,) = tmp_path.glob("meshmark-report-*/index.html")
    assert seen == [page.as_uri()]
    for options in ([], ["--check", "--open"]):
        capsys.readouterr()
        assert cli.main(["report", str(source / "new.jsonl"), *options]) == 2
        error = capsys.readouterr().err
        assert "Name its folder: --output DIR" in error and error.count("\n") == 1
