# SPDX-License-Identifier: Apache-2.0
"""The study of two days: its counts over two runs."""

from tests.studies import two_days


def run(manual, auto):
    """One run of six processes: each has ten samples of both modes, a little apart from process to process."""
    lines = {}
    for mode, time in (("manual", manual), ("auto", auto)):
        case = f"psum/axes=x/{mode}/8/float32/4KiB"
        lines[case, "isolated"] = [
            {"case": case, "process": process, "samples_s": [time * (1 + process / 1000)] * 10}
            for process in range(6)
        ]
    return lines


def test_equal_runs_hold_each_other():
    counts = two_days.count([(run(1e-3, 2e-3), run(1e-3, 2e-3))])
    assert counts["time, isolated"] == {"pairs": 2, "held": 4, "overlap": 2}
    of_ratios = counts["ratio to manual, isolated"]
    assert (of_ratios["pairs"], of_ratios["held"], of_ratios["alike"], of_ratios["opposite"]) == (1, 2, 1, 0)


def test_a_contradiction_is_counted():
    counts = two_days.count([(run(1e-3, 2e-3), run(2e-3, 1e-3))])
    assert counts["time, isolated"]["held"] == counts["time, isolated"]["overlap"] == 0
    assert counts["ratio to manual, isolated"]["opposite"] == 1


def test_one_side_alone_excludes_1():
    counts = two_days.count([(run(1e-3, 1e-3), run(1e-3, 2e-3))])
    assert counts["ratio to manual, isolated"]["one"] == 1


def test_an_odd_number_of_files_is_refused(capsys):
    assert two_days.main(["one.jsonl"]) == 2
    assert "usage" in capsys.readouterr().err
