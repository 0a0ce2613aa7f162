# SPDX-License-Identifier: Apache-2.0
"""The tables of `meshmark bench`: modes side by side at every width, and what each mode's program sends."""

import pytest

from meshmark.core.text import wrap
from meshmark.records import reading
from meshmark.timing import timing_tables

CELL = "all_gather/axes=x+y,dim=0,tiled/{}/2x4/float32/1MiB"
MODES = ("auto", "explicit", "manual")
MORE = (*MODES, "manual-novma", "pmap", "pjit")


def records(modes, processes=9, sent=7168.0, count=1, **more):
    """A run in which each mode takes some more time than the one before, in each process."""
    file = reading.Records()
    file.add({"kind": "run", "run": "x", "facts": {"virtual": True}})
    for cadence in ("isolated", "stream"):
        for number, mode in enumerate(modes):
            for process in range(processes):
                file.add(
                    {
                        "kind": "timing",
                        "case": CELL.format(mode),
                        "mode": mode,
                        **dict(zip(("operation", "variant", "mesh", "dtype"), "avmd", strict=True)),
                        "cadence": cadence,
                        "process": process,
                        "samples_s": [(1 + number / 5 + process * 7 % 9 / 100) * 1e-3] * 100,
                        "cost": {"nbytes": 2**20, "factor": 0.875},
                        "devices": 8,
                        "verdict": "pass",
                        "reason": "",
                        "verified": True,
                        "wire_bytes": sent * (number + 1),
                        "collectives": count + number,
                        **more,
                    }
                )
    return file


def shown(file, width):
    """What a terminal of this width shows."""
    return [part for line in timing_tables.table_lines(file, width) for part in wrap(line, width)]


def below(lines, start, columns):
    """The header's words and the cells of the first table behind a line, for its first row."""
    at = next(i for i, line in enumerate(lines) if line.startswith(start))
    rule = next(i for i in range(at, len(lines)) if set(lines[i].strip()) == {"-", " "})
    assert len(lines[rule].split()) == columns, lines[at : rule + 4]
    header = " ".join(" ".join(lines[rule - 2 : rule]).split())
    row = lines[rule + 2 : rule + 4]  # below the row's name; a cell may go on in a second line
    return header, row


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_modes_and_their_ratios_stand_side_by_side(width):
    lines = shown(records(MODES), width)
    assert not [line for line in lines if len(line) > width]
    header, row = below(lines, "isolated: ", 5)
    assert " auto explicit manual auto/manual explicit/manual" in f" {header}"
    assert row[0].count(" ms") == 3 and "±" in "".join(row)
    told = " ".join(row)
    assert "(" in told and "<" in told, "the ratios have their intervals and their order"
    assert "GB/s bus" in "\n".join(lines) and " p99 " in "\n".join(lines)


def test_a_wide_terminal_has_one_table_per_cadence():
    lines = shown(records(MODES), 240)
    header = next(line for line in lines if line.startswith("case "))
    assert header.split() == [
        *("case", "auto", "explicit", "manual", "auto/manual", "explicit/manual", "S,", "B"),
        *("rate", "share", "p10", "p90", "p99", "runs"),
    ]


def test_six_modes_stand_side_by_side_and_their_ratios_below():
    lines = shown(records(MORE), 80)
    assert not [line for line in lines if len(line) > 80]
    header, row = below(lines, "isolated: ", 6)
    assert all(mode in header for mode in MORE) and row[0].count(" ms") == 6
    assert not [line for line in lines if "auto: " in line], "no row is a list of names and values"


def test_a_negative_end_is_a_time_too():
    found = timing_tables.Estimate(289e-6, -1.8e-3, 6e-3)
    assert timing_tables.interval(found, timing_tables.spell_time) == "289 us (-1.8 ms to 6 ms)"


def test_the_bytes_and_the_collectives_of_each_mode_are_told():
    lines = shown(records(MODES, sent=917504.0), 80)
    header, row = below(lines, "compiled: ", 3)
    assert header.endswith(" ".join(MODES))
    told = " ".join(" ".join(row).split())
    assert told == "917504 B (1 collective) 1835008 B (2 collectives) 2752512 B (3 collectives)" or (
        told == "917504 B 1835008 B 2752512 B (1 collective) (2 collectives) (3 collectives)"
    )
    assert "auto sends" not in "\n".join(lines)


def test_records_without_counters_have_no_such_table():
    lines = shown(records(MODES, wire_bytes=None, collectives=None), 80)
    assert not [line for line in lines if line.startswith("compiled")]
    failed = records(MODES)
    for line in failed.timings:
        if line["mode"] == "auto":
            line.update(wire_bytes=None, samples_s=[], verdict="fail", reason="wrong")
    header, row = below(shown(failed, 80), "compiled: ", 2)
    assert "auto" not in header and "14336 B" in row[0]


@pytest.mark.parametrize("sent", ["inf", "nan"])
def test_bytes_that_are_not_finite_numbers_are_not_compared(sent):
    file = records(MODES)
    for line in file.timings:
        if line["mode"] != "manual":
            line["wire_bytes"] = sent
    lines = "\n".join(shown(file, 80))
    assert "auto" in lines and "times the bytes of manual" not in lines
