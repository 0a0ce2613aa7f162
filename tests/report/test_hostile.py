# SPDX-License-Identifier: Apache-2.0
"""Every text of a record, through every writer: none of it becomes markup, a formula or a control sequence."""

import copy
import re

import pytest

from meshmark.records import reading
from meshmark.records.reading import RecordError
from meshmark.records.writing import dumps
from meshmark.report import report, tables
from tests.submissions import judged, run_line, timed, timing

pytest.importorskip("jinja2", reason="the extra page brings Jinja and Bokeh")
pytest.importorskip("bokeh", reason="the extra page brings Jinja and Bokeh")

HOSTILE = "<img src=x onerror=alert(1)>|[a](javascript:b)\x1b[31m"


def texts(value, place=()):
    """The place of every text in a record, such as ("facts", "device_kind")."""
    if isinstance(value, str):
        yield place
    elif isinstance(value, (dict, list)):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts(inner, (*place, name))


def with_text(lines, number, place, text):
    """The lines with another text in one place, a key or the value there."""
    lines = copy.deepcopy(lines)
    inner = lines[number]
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = text
    return lines


def lines():
    from meshmark.operations import cases

    case = cases.find("psum/axes=x+y/manual/2x2/float32/4KiB", 4)
    whole = timing(
        contract="contract", communication=[{"kind": "all-reduce", "bytes": 4, "groups": "1x4", "trips": 1}]
    )
    failed = [
        line | {"verdict": "fail", "reason": "wrong", "link": "https://example.org", "precision": "highest"}
        for line in judged(case)
    ]
    return [
        run_line(timing={"cadences": ["isolated"]}),
        *failed,
        *timed()[1:],
        whole | {"run": run_line()["run"]},
    ]


def places():
    """One line of each kind has the same fields as the others."""
    seen = {}
    for number, line in enumerate(lines()):
        for place in texts(line):
            seen.setdefault((line["kind"], *map(str, place)), (number, place))
    return list(seen.items())


def written(path, records):
    """Every file that is made of these records; {} where the reader takes none of them."""
    path.write_text("".join(dumps(line) + "\n" for line in records), encoding="utf-8")
    try:
        found = report.find_records([path])
    except (RecordError, report.ReportError) as error:
        assert str(error).isprintable()
        return {}
    made = report.make_report(found.sources)
    made |= {
        f"tables.{kind}": text
        for kind, text in tables.make_tables([s.records for s in found.sources], tables.FORMATS).items()
    }
    return made


def test_no_text_of_a_record_becomes_markup(tmp_path):
    """All fields that the reader leaves free are hostile at once, and then those that it fixes one by one."""
    together, free = lines(), 0
    path = tmp_path / "r.jsonl"
    for _, (number, place) in places():
        changed = with_text(together, number, place, HOSTILE)
        try:
            reading.parsed(dumps(changed[number]) + "\n")
        except RecordError:
            continue
        if place[0] in ("kind", "run", "case"):
            continue
        together, free = changed, free + 1
    assert free > 25
    made = written(path, together)
    assert len(made) >= 9
    for name, text in made.items():
        assert "\x1b" not in text, name
        if name.endswith((".md", ".html")):
            assert "<img" not in text, name
        if name.endswith(".md"):
            assert not re.search(r"(?<!\\)\]\(javascript", text), name


def test_the_device_kind_is_escaped_in_a_heading(tmp_path):
    """It reached timings.md raw."""
    records = lines()
    for record in records:
        if record["kind"] == "run":
            record["facts"]["device_kind"] = HOSTILE
            record["facts"]["virtual"] = False
    made = written(tmp_path / "r.jsonl", records)
    heading = next(line for line in made["timings.md"].splitlines() if line.startswith("### "))
    assert "&lt;img src=x" in heading and "<img" not in made["timings.md"]
