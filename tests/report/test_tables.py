# SPDX-License-Identifier: Apache-2.0
"""Tables from records: the right numbers, nothing lost, and no string of a record becomes markup or a command."""

import csv
import io
import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.commands.main import main
from meshmark.core.verdicts import VERDICTS, Line
from meshmark.operations import cases
from meshmark.operations.record_lines import case_lines
from meshmark.records.reading import Judged, RecordError, Records, read_records
from meshmark.records.writing import dumps
from meshmark.report import summary, tables
from tests.browser import records as made_up

FACTS = {
    "versions": {"jax": "0.12.0.1", "jaxlib": "0.12.0.1"},
    "backend": "cpu",
    "device_kind": "cpu",
    "num_devices": 8,
    "virtual": True,
    "devices": [{"id": i, "process": 0, "coords": []} for i in range(8)],
}
RUN = {"schema": 1, "kind": "run", "run": "r1", "facts": FACTS, "selection": {"profile": "smoke"}, "seed": 0}
COLLECTIVE = {"kind": "all-gather", "bytes": 4096, "groups": "1x8", "trips": 1}


def lines_of(case_id, *lines, seconds=0.5):
    return case_lines(cases.find(case_id, 8), lines, 0, seconds)


PASS = lines_of(
    "psum/axes=x+y/manual/2x4/float32/4KiB",
    Line("communication", data={"collectives": [COLLECTIVE], "wire_bytes": 3584.0, "flops": 10.0}),
    Line("numbers", data={"error": 0.0, "bound": 0.0, "bits": "00"}),
)
COSTLY = lines_of(
    "psum/axes=x+y/auto/2x4/float32/4KiB",
    Line(
        "communication", data={"collectives": [COLLECTIVE] * 2, "wire_bytes": 7168.0, "excess_bytes": 3584.0}
    ),
    Line("numbers", data={"error": 0.5, "bound": 2.0}),
)
FAIL = lines_of(
    "pmax/axes=x+y/explicit/2x4/float32/4KiB",
    Line("numbers", "fail", "3 of 4 | differ", {"error": math.inf, "bound": 0.0}),
    Line("replicas"),
)
KNOWN = lines_of(
    "pmin/axes=x+y/manual/2x4/float32/4KiB",
    Line("numbers", "known", "why", {"link": "https://github.com/jax-ml/jax/issues/1", "was": "fail"}),
)


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "records.jsonl", [RUN, *PASS, *COSTLY, *FAIL, *KNOWN])


def write(path, lines):
    path.write_text("".join(dumps({"run": "r1"} | line) + "\n" for line in lines))
    return path


def test_a_row_a_case(file):
    table = tables.frame([read_records(file)]).set_index("case")
    assert len(table) == 4
    good = table.loc[PASS[0]["case"]]
    assert (good.verdict, good.check, good.reason, good.seconds) == ("pass", "", "", 0.5)
    assert (good.collectives, good.wire_bytes) == ("all-gather 4096 B over 1x8", 3584.0)
    assert math.isnan(good.excess_bytes) and good.error_over_bound == 0.0
    assert (good.jax, good.backend, good.run) == ("0.12.0.1", "cpu", "r1")
    bad = table.loc[FAIL[0]["case"]]
    assert (bad.verdict, bad.check, bad.error, bad.error_over_bound) == (
        "fail",
        "numbers",
        math.inf,
        math.inf,
    )
    assert table.loc[COSTLY[0]["case"]].error_over_bound == 0.25


def test_interpreted_errors_are_never_among_measured_ones(tmp_path):
    interpreted = [line | {"interpreted": True} for line in COSTLY]
    [row] = tables.frame([read_records(write(tmp_path / "records.jsonl", [RUN, *interpreted]))]).to_dict(
        "records"
    )
    assert math.isnan(row["error"]) and math.isnan(row["error_over_bound"])


def test_csv_reads_back(file):
    text = tables.as_csv(tables.frame([read_records(file)]))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == list(tables.COLUMNS)
    assert [r["verdict"] for r in rows] == ["pass", "pass", "fail", "known"]
    assert rows[0]["size_bytes"] == "4096" and rows[0]["excess_bytes"] == "" and rows[2]["error"] == "inf"


def test_markdown_says_everything(file):
    text = tables.make_tables([read_records(file)], ["md"])["md"]
    for part in (
        "JAX 0.12.0.1 on 8 cpu devices (virtual)",
        "4 cases: 2 pass, 1 known, 1 fail.",
        "- L1: 2 of 4 pass (1 fail, 1 known)",
        r"3 of 4 \| differ",
        "<https://github.com/jax-ml/jax/issues/1>",
        "| 7168 ",
        "| 0.25 ",
        "profile",
        "8 listed in the records",
    ):
        assert part in text, part


def test_tables_of_a_file_are_markdown_tables(file):
    text = tables.make_tables([read_records(file)], ["md"])["md"]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows and all(row.endswith("|") for row in rows)


def test_a_run_over_processes_is_told_from_one_of_as_many_devices(tmp_path, file):
    over = {"num_processes": 2, "group": {"devices": 4, "detected": False, "transport": "gloo"}}
    other = write(tmp_path / "other.jsonl", [RUN | {"facts": FACTS | over, "ranks": 2}, *PASS])
    alone = write(tmp_path / "alone.jsonl", [RUN | {"facts": FACTS | over, "rank": 1}, *PASS])
    made = tables.make_tables([read_records(file), read_records(other), read_records(alone)], tables.FORMATS)
    heads = [line for line in made["md"].splitlines() if line.startswith("## ")]
    assert heads == [
        "## JAX 0.12.0.1 on 8 cpu devices (virtual)",
        "## JAX 0.12.0.1 on 2 processes × 4 cpu devices (virtual)",
        "## JAX 0.12.0.1 on 2 processes × 4 cpu devices (virtual), rank 1 alone",
    ]
    rows = list(csv.DictReader(io.StringIO(made["csv"])))
    assert [r["num_processes"] for r in rows] == ["1"] * 4 + ["2"] * 2


def test_several_files_are_chapters(tmp_path, file):
    other = write(tmp_path / "other.jsonl", [RUN | {"run": "r1"}, *PASS])
    files = [read_records(file), read_records(other)]
    made = tables.make_tables(files, tables.FORMATS)
    assert made["md"].count("\n## ") == 2
    assert len(made["csv"].splitlines()) == 1 + 4 + 1


# Untrusted strings.


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("psum_scatter/axes=x+y", "psum_scatter/axes=x+y"),
        ("a|b", r"a\|b"),
        ("<script>&", "&lt;script&gt;&amp;"),
        ("[a](javascript:b)", r"\[a\](javascript:b)"),
        ("*a* _b_ `c`", r"\*a\* \_b\_ \`c\`"),
        ("two\nlines\r", r"two\\nlines\\r"),
        ("\x1b]0;x\x07", r"\\x1b\]0;x\\x07"),
        ("https://x", "https&#58;//x"),
        ("\ud800", r"\\ud800"),
    ],
)
def test_markdown_shows_just_these_characters(text, want):
    assert tables.escape_markdown(text) == want


@pytest.mark.parametrize(
    "text", ["javascript:alert(1)", "https://a b", "https://a>b", "http://a", "https://ä", 3]
)
def test_only_plain_https_is_a_link(text):
    assert not tables.link(text).startswith("<")


@pytest.mark.parametrize("text", ["=1+1", "+a", "-a", "@a", " =a"])
def test_a_spreadsheet_sees_no_formula(text):
    assert tables.cell(text) == "'" + text
    assert tables.cell(-1.5) == -1.5


@pytest.mark.parametrize(
    ("value", "want"),
    [("inf", math.inf), (10**400, math.inf), (True, None), ("1", None), ([], None), (2, 2.0)],
)
def test_numbers(value, want):
    seen = tables.number(value)
    assert math.isnan(seen) if want is None else seen == want


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
MEASURED = ("error", "bound", "collectives", "wire_bytes", "excess_bytes", "flops", "seconds", "seed", "link")
STRINGS = ("case", "operation", "variant", "mode", "mesh", "dtype", "level", "reason", "precision", "run")


@settings(max_examples=60, deadline=None)
@given(
    facts=st.dictionaries(st.sampled_from(list(FACTS)) | st.text(), ANYTHING, max_size=4),
    strange=st.lists(
        st.fixed_dictionaries(
            {}, optional={n: ANYTHING for n in MEASURED} | {n: st.text(max_size=8) for n in STRINGS}
        ),
        max_size=4,
    ),
)
def test_any_record_gives_tables(tmp_path_factory, facts, strange):
    path = tmp_path_factory.getbasetemp() / "strange.jsonl"
    with path.open("w", errors="surrogatepass") as out:
        for line in [RUN | {"facts": facts}, *(COSTLY[0] | s for s in strange)]:
            out.write(dumps(line) + "\n")
    try:
        made = tables.make_tables([read_records(path)], tables.FORMATS)
    except RecordError as error:
        assert str(error).isprintable()
        return
    for text in made.values():
        assert text.isascii() or text.encode()
        assert all(c.isprintable() or c == "\n" for c in text)


# The command.


def test_files_are_written_where_asked(tmp_path, file, capsys):
    out = tmp_path / "new" / "out"
    assert main(["tables", str(file), "--output", str(out)]) == 0
    assert sorted(p.name for p in out.iterdir()) == ["conformance.csv", "conformance.md"]
    (out / "conformance.csv").write_text("old")
    (out / "other").write_text("kept")
    assert main(["tables", str(file), "--output", str(out), "--format", "csv"]) == 0
    assert (out / "conformance.csv").read_text() != "old" and (out / "other").read_text() == "kept"
    assert "conformance.csv" in capsys.readouterr().out


def test_the_terminal_gets_one_format(file, capsys):
    assert main(["tables", str(file)]) == 0
    assert capsys.readouterr().out.startswith("# Conformance")
    assert main(["tables", str(file), "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("case,")
    assert main(["tables", str(file), "--format", "md,csv"]) == 2


def test_problems_are_told_and_the_rest_is_made(tmp_path, file, capsys):
    with file.open("a") as out:
        out.write("no json\n" + dumps(PASS[0] | {"schema": 99}) + "\n" + '{"schema": 1, "ki')
    out = tmp_path / "out"
    missing = tmp_path / "missing.jsonl"
    assert main(["tables", str(file), str(missing), "--output", str(out)]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 4
    assert ["not JSON" in told[0], "schema 99" in told[1], "cut off" in told[2], "missing" in told[3]] == [
        True
    ] * 4
    assert len((out / "conformance.csv").read_text().splitlines()) == 5
    assert "3 lines of the records could not be read" in (out / "conformance.md").read_text()


def test_nothing_is_written_where_nothing_can_be_read(tmp_path, capsys):
    assert main(["tables", str(tmp_path / "none"), "--output", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_output_that_cannot_be_written(tmp_path, file, capsys):
    (tmp_path / "taken").write_text("")
    assert main(["tables", str(file), "--output", str(tmp_path / "taken")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_without_pandas_the_command_says_what_to_install(file, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tabulate", None)
    assert main(["tables", str(file)]) == 2
    assert "pip install pandas tabulate" in capsys.readouterr().err


def test_a_file_without_cases(tmp_path):
    path = write(tmp_path / "empty.jsonl", [RUN])
    text = tables.make_tables([read_records(path)], ["md", "csv"])["md"]
    assert "0 cases: none" in text and "Every case passes." not in text
    assert isinstance(read_records(path), Records)


def test_a_file_of_times_alone_has_no_chapter(tmp_path, file):
    path = tmp_path / "times.jsonl"
    made_up.file(path, RUN, made_up.timed())
    text = tables.make_tables([read_records(path), read_records(file)], ["md"])["md"]
    assert text.count("\n## ") == 1 and "0 cases" not in text
    assert "1 record file with times and without cases: no chapter here." in text


@given(
    strange=st.lists(
        st.fixed_dictionaries(
            {name: st.text() for name in ("operation", "mode", "level", "reason")}
            | {"verdict": st.sampled_from(VERDICTS)},
            optional={name: ANYTHING for name in ("bits", "wire_bytes", "excess_bytes", "fixed")},
        ),
        min_size=1,
        max_size=5,
    ),
    name=st.text(),
)
def test_the_closing_lines_show_any_record_harmlessly(strange, name):
    """A resumed run shows what the file holds."""
    lines = summary.closing({name: Judged(name, strange)})
    assert all(line.isprintable() for line in lines)
