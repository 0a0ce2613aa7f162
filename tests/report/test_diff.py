# SPDX-License-Identifier: Apache-2.0
"""Verdicts that changed: new failures and other changes, and the exit codes of `meshmark diff`."""

import json

import pytest

from meshmark.commands.main import main
from meshmark.core.verdicts import BAD, VERDICTS
from meshmark.records.closing import Account
from meshmark.records.reading import Judged, Records
from meshmark.records.writing import dumps
from meshmark.report import diff


def judged(**verdicts):
    return {case: Judged(case, [{"verdict": v, "reason": f"{v}!"}]) for case, v in verdicts.items()}


@pytest.mark.parametrize("old", [*VERDICTS, None])
@pytest.mark.parametrize("new", VERDICTS)
def test_a_new_failure_is_bad_now_and_was_not_before(old, new):
    found = diff.compare_verdicts(judged(a=old) if old else {}, judged(a=new))
    assert bool(found.failures) == (new in BAD and old not in BAD)


def test_missing_cases_are_listed_and_are_no_failure():
    found = diff.compare_verdicts(judged(a="pass", b="pass"), judged(b="pass", c="pass", d="fail"))
    assert (found.missing, found.added, found.same) == (["a"], ["c"], 1)
    assert [(c.case, c.old, c.new) for c in found.failures] == [("d", "", "fail")]
    text = "\n".join(diff.report(found))
    assert "only in OLD: 1 case\n  a" in text and "(absent)" in text and "d: fail!" in text


def test_new_failures_come_first():
    found = diff.compare_verdicts(judged(a="fail", b="pass"), judged(a="pass", b="error"))
    assert [c.case for c in found.changes] == ["b", "a"]


def test_what_a_terminal_would_obey_is_shown():
    case = "\x1b[31mred\r\u202e"
    text = "\n".join(diff.report(diff.compare_verdicts({}, judged(**{case: "fail"}))))
    assert "\\x1b[31mred\\r\\u202e" in text and "\x1b" not in text


def file(path, **verdicts):
    head = {"schema": 1, "kind": "run", "run": "r", "facts": {}}
    names = ("operation", "variant", "mesh", "dtype", "reason")
    base = {
        "schema": 1,
        "kind": "conformance",
        "run": "r",
        **dict.fromkeys(names, "a"),
        "mode": "auto",
        "level": "L1",
        "check": "numbers",
        "seconds": 1.0,
    }
    lines = [
        head,
        *(base | {"case": f"{c}/plain/auto/8/float32/4KiB", "verdict": v} for c, v in verdicts.items()),
    ]
    path.write_text("".join(dumps(line) + "\n" for line in lines))
    return str(path)


def test_exit_codes(tmp_path, capsys):
    old = file(tmp_path / "old", a="pass", b="fail", c="pass")
    new = file(tmp_path / "new", a="fail", b="pass")
    assert main(["diff", old, old]) == 0
    assert main(["diff", new, old]) == 1
    assert main(["diff", old, new]) == 1
    assert "2 changed, 1 of them new failures; 0 as before, 1 only in OLD" in capsys.readouterr().out
    assert main(["diff", old, str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with open(new, "a") as cut:
        cut.write('{"sch')
    assert main(["diff", old, new]) == 2  # what can be compared is
    seen = capsys.readouterr()
    assert "1 of them new failures" in seen.out and "cut off" in seen.err


def test_a_case_that_was_cut_off_is_no_pass(tmp_path, capsys):
    old = file(tmp_path / "old", a="pass")
    new = tmp_path / "new"
    file(new, a="pass")
    new.write_text(new.read_text().replace(',"seconds":1.0', ""))
    assert main(["diff", old, str(new)]) == 2
    seen = capsys.readouterr()
    assert "1 only in OLD" in seen.out and "left out" in seen.err


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ({}, {}, ""),
        ({"num_processes": 2}, {"num_processes": 2}, ""),
        ({"num_processes": 2, "topology": "v5e:2x4"}, {"num_processes": 1, "topology": "v5e:2x4"}, ""),
        ({"num_processes": 1}, {"num_processes": 2}, "OLD is of 1 process and NEW of 2 processes: "),
        ({"num_processes": 4}, {"num_processes": 2}, "OLD is of 4 processes and NEW of 2 processes: "),
    ],
)
def test_other_numbers_of_processes_are_told(tmp_path, capsys, old, new, line):
    paths = []
    for name, facts in (("old", old), ("new", new)):
        paths.append(file(tmp_path / name, a="pass"))
        text = (tmp_path / name).read_text().replace('"facts":{}', f'"facts":{json.dumps(facts)}')
        (tmp_path / name).write_text(text)
    assert main(["diff", *paths]) == 0
    seen = capsys.readouterr().out
    assert seen.startswith(line or "0 changed") and ("OLD is of" in seen) is bool(line)


def test_the_file_of_one_rank_is_told(tmp_path, capsys):
    paths = [file(tmp_path / "old", a="pass"), file(tmp_path / "new", a="pass")]
    (tmp_path / "new").write_text(
        (tmp_path / "new").read_text().replace('"run","run"', '"run","rank":1,"run"')
    )
    assert main(["diff", *paths]) == 0
    assert capsys.readouterr().out.startswith("OLD is of 1 process and NEW of rank 1 alone: ")


@pytest.mark.parametrize("compiled", [(), ("--compiled",)])
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", '"table":2,', "OLD has version 1 of the case table and NEW version 2: "),
        ('"table":2,', '"table":2,', ""),
    ],
)
def test_other_versions_of_the_table_are_told(tmp_path, capsys, old, new, told, compiled):
    """Otherwise a payload that the table changed looks like a change of the compiler."""
    paths = []
    for name, table in (("old", old), ("new", new)):
        paths.append(file(tmp_path / name, a="pass"))
        (tmp_path / name).write_text((tmp_path / name).read_text().replace('"facts"', f'{table}"facts"'))
    assert main(["diff", *compiled, *paths]) == 0
    seen = capsys.readouterr().out.replace("\n  ", " ")
    assert seen.startswith(told) and ("of the case table" in seen) is bool(told)


def test_two_files_without_a_common_case_are_not_compared(tmp_path, capsys):
    """Nothing compared, nothing worse: that would be a green run about nothing."""
    old = file(tmp_path / "old", a="pass", b="pass")
    new = file(tmp_path / "new", c="pass")
    assert main(["diff", old, new]) == 2
    seen = capsys.readouterr()
    assert "no case is in both files" in seen.err and "2 only in OLD, 1 only in NEW" in seen.out
    assert main(["diff", old, file(tmp_path / "bad", c="fail")]) == 1


def of_run(started="2026-11-20T10:00:00Z", **facts):
    return Records(runs=[{"run": "r", "started": started, "facts": facts}])


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (of_run(), of_run(), ["are of the same run"]),
        (of_run(), of_run("2026-11-20T11:00:00Z"), []),
        (of_run("2026-11-20T11:00:00Z"), of_run(), ["after NEW: was it meant the other way round?"]),
        (of_run(backend="cpu"), of_run(backend="gpu"), ["OLD has backend cpu and NEW gpu"]),
        (of_run(num_devices=8), of_run(num_devices=4), ["OLD has num_devices 8 and NEW 4"]),
        (
            of_run(),
            of_run(flags={"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}),
            ["in OLD nothing, in NEW XLA_FLAGS = --xla_cpu_enable_fast_math=true"],
        ),
    ],
)
def test_what_else_differs_is_told(old, new, told):
    lines = list(diff.environments(old, new))
    assert len(lines) == len(told) and all(one in line for one, line in zip(told, lines, strict=True))


def test_an_exit_code_that_no_verdict_explains_is_told(tmp_path, capsys):
    old, new = file(tmp_path / "old", a="pass"), tmp_path / "new"
    file(new, a="pass")
    account = Account()
    for line in new.read_text().splitlines():
        account.add(json.loads(line))
    with open(new, "a") as more:
        more.write(dumps(account.end(1) | {"run": "r"}) + "\n")
    main(["diff", old, str(new)])
    assert "ended with exit code 1, and no case has a bad verdict" in capsys.readouterr().err
