# SPDX-License-Identifier: Apache-2.0
"""Every program reads the same records from an accepted file: each line is spelled as `submit` writes it."""

import pytest

from meshmark.publish import lines as publish_lines
from meshmark.records import reading, writing
from tests.publish.tampering import TIMING, complaints
from tests.submissions import lines_of, resealed, with_lines


def smuggling(line):
    """A line with a faster timing inside of it, between carriage returns."""
    faster = line | {"samples_s": [s / 10 for s in line["samples_s"]]}
    return writing.dumps(line)[:-1] + ',"x":\r' + writing.dumps(faster) + "\r}\n"


def test_a_record_inside_of_a_line_is_read_by_nobody(tmp_path, honest):
    """Readers that take a carriage return for the end of a line would read the inner record, which is not checked."""
    lines = lines_of(honest, TIMING)
    at = next(i for i, line in enumerate(lines) if line["kind"] == "timing")
    made = with_lines(honest, TIMING, [*lines[:at], smuggling(lines[at]), *lines[at + 1 :]])
    assert any("not spelled as `submit` writes lines" in text for text in complaints(resealed(made)))
    path = tmp_path / TIMING
    path.write_bytes(made.files[TIMING].data)
    read = reading.read_records(path)
    assert not read.problems
    assert [one["samples_s"] for one in read.timings] == [
        line["samples_s"] for line in lines if line["kind"] == "timing"
    ]


@pytest.mark.parametrize(
    "spelled",
    [
        lambda text: text.replace(":", ": ", 1),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace('"kind"', '"\\u006bind"'),
        lambda text: text.replace("0.01", "1e-2", 1),
        lambda text: " " + text,
    ],
    ids=["a space", "a carriage return", "an escape", "another number", "a space before"],
)
def test_a_line_in_another_spelling_is_refused(honest, spelled):
    """Programs that look for texts in lines find other ones."""
    texts = [writing.dumps(line) + "\n" for line in lines_of(honest, TIMING)]
    at = next(i for i, text in enumerate(texts) if '"compile_s":0.01' in text)
    texts[at] = spelled(texts[at])
    found = complaints(resealed(with_lines(honest, TIMING, texts)))
    assert any(f"{TIMING}:{at + 1}: not spelled as `submit` writes lines" in text for text in found), found


def test_a_line_that_the_report_does_not_read_is_refused(honest):
    inner: object = 1
    for _ in range(80):
        inner = {"x": inner}
    line = lines_of(honest, TIMING)[-1] | {"x": inner}
    told = publish_lines.spelling_problem((writing.dumps(line) + "\n").encode(), line)
    assert "not read by the report" in told and "more than 60 brackets" in told
