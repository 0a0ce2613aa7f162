# SPDX-License-Identifier: Apache-2.0
"""Texts and data of a case are made safe: they become printable text of bounded length, or JSON types."""

import json

import execnet
import numpy as np
import pytest

from meshmark.core import saying
from meshmark.core.verdicts import Line
from meshmark.operations import cases
from meshmark.operations.record_lines import case_lines
from meshmark.records.reading import LONGEST, parsed


class Unspeakable:
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


class Leaving:
    def __str__(self):
        raise SystemExit(0)


LOOP: list = []
LOOP.append(LOOP)
SAID = {
    "surrogate": "a \udcff b",
    "nul": "\0",
    "escapes": "\x1b[2J\x1b]0;title\x07",
    "newlines": "a\nb\r\u2028c",
    "long": "x" * (1 << 20),
    "unspeakable": Unspeakable(),
    "leaving": Leaving(),
    "numpy": {"a": np.float32(1.5), "b": np.int64(3), "c": np.bool_(True), "d": np.zeros(())},
    "keys": {1: "a", "\udcff": "b", None: "c"},
    "types": [{1, 2}, (3,), b"bytes", object, 1 + 2j],
    "loop": LOOP,
    "subclass": type("Text", (str,), {})("text"),
}


@pytest.mark.parametrize("value", SAID.values(), ids=SAID)
def test_whatever_is_said_becomes_json_that_everything_can_carry(value):
    line = Line("execute", "error", value, {"data": value})
    text = json.dumps([line.reason, line.data])
    assert all(c.isprintable() for c in line.reason) and len(line.reason) <= saying.LONGEST
    json.loads(text)
    text.encode()
    execnet.dumps(text)


@pytest.mark.parametrize("value", SAID.values(), ids=SAID)
def test_whatever_a_worker_sends_the_channel_carries(value):
    execnet.dumps(saying.encodable({"longrepr": value, "sections": [("a", value)], "n": 1}))


def test_what_is_well_said_stays_as_it_is():
    said = {"a": [1, 2.5, None, True, "ä\n"], "b": ("x",)}
    assert saying.encodable(said) == said
    assert saying.data_of({"a": [1, 2.5, None, True, "ä"]}) == {"a": [1, 2.5, None, True, "ä"]}
    assert saying.printable_line("numbers: fail") == "numbers: fail"
    assert saying.first_line("one\ntwo") == "one"
    assert saying.first_line("") == ""


def test_a_status_code_alone_is_told_with_the_next_line():
    long = "UNIMPLEMENTED: \n\n Can't lower it.\n\nIt needs:\n- s8"
    assert saying.first_line(long) == "UNIMPLEMENTED: Can't lower it."
    assert saying.first_line("UNIMPLEMENTED:") == "UNIMPLEMENTED:"
    assert saying.first_line("UNIMPLEMENTED: no sums\nmore") == "UNIMPLEMENTED: no sums"
    assert saying.first_line("They differ:\nthe first") == "They differ:"


def test_text_that_can_not_be_had_names_its_type():
    assert saying.text_of(Unspeakable()) == "<Unspeakable whose str() raises RuntimeError>"
    assert saying.text_of(Leaving()) == "<Leaving whose str() raises SystemExit>"


@pytest.mark.parametrize(("before", "after"), [("pass", "error"), ("fail", "fail"), ("hang", "hang")])
def test_a_record_line_that_nobody_could_read_loses_its_data_and_is_no_pass(before, after):
    case = cases.find("psum/axes=x+y/manual/2x4/float32/4KiB", 8)
    long = Line("communication", before, "", {"collectives": ["x" * 9000] * 200})
    (line,) = case_lines(case, [long], 0, 1.0)
    assert (line["verdict"], "collectives" in line) == (after, False)
    assert "the data are left out" in line["reason"]
    text = json.dumps({**line, "run": "0" * 12}) + "\n"
    assert len(text) < LONGEST and parsed(text)["case"] == case.id
