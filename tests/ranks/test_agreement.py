# SPDX-License-Identifier: Apache-2.0
"""Merging the findings of ranks about a case into one, and their files into one file."""

import json
import re

import pytest

from meshmark.commands.main import main
from meshmark.ranks import merge
from meshmark.ranks.agreement import merge_findings
from meshmark.records import closing, reading
from meshmark.records.reading import RecordError


def found(check="numbers", verdict="pass", reason="", **data):
    return {"check": check, "verdict": verdict, "reason": reason} | data


# One case ---------------------------------------------------------------------------------------------------


def test_ranks_that_agree_are_one_line_without_ranks():
    assert merge_findings({0: [found()], 1: [found()]}) == [found()]


def test_the_worst_verdict_is_the_case_s_and_says_its_rank():
    (line,) = merge_findings({0: [found()], 1: [found(verdict="fail", reason="1 of 4 differ")], 2: [found()]})
    assert line == found(verdict="fail", reason="rank 1: 1 of 4 differ") | {
        "ranks": {"0": "pass", "1": "fail", "2": "pass"}
    }


def test_of_several_verdicts_each_reason_keeps_its_ranks():
    (line,) = merge_findings(
        {
            0: [found(verdict="fail", reason="a")],
            1: [found(verdict="error", reason="b")],
            2: [found(verdict="fail", reason="a")],
        }
    )
    assert line["verdict"] == "error"
    assert line["reason"] == "ranks 0, 2: a | rank 1: b"


def test_a_reason_that_all_ranks_have_is_said_once():
    (line,) = merge_findings(
        {0: [found(verdict="unsupported", reason="x")], 1: [found(verdict="unsupported", reason="x")]}
    )
    assert line == found(verdict="unsupported", reason="x")


def test_a_check_that_one_rank_alone_came_to_is_kept_with_its_rank():
    lines = merge_findings(
        {0: [found("execute"), found("numbers")], 1: [found("execute", "error", "raised")]}
    )
    assert [line["check"] for line in lines] == ["execute", "numbers"]
    assert lines[0]["verdict"] == "error"
    assert lines[1]["ranks"] == {"0": "pass"}


def test_the_largest_error_comes_with_its_bound():
    (line,) = merge_findings({0: [found(error=1.0, bound=9.0)], 1: [found(error=2.0, bound=3.0)]})
    assert (line["error"], line["bound"]) == (2.0, 3.0)


def test_an_error_that_is_infinite_is_the_largest():
    (line,) = merge_findings({0: [found(error=1.0, bound=9.0)], 1: [found(error="inf", bound=3.0)]})
    assert (line["error"], line["bound"]) == ("inf", 3.0)


def test_the_longest_time_counts():
    (line,) = merge_findings({0: [found(seconds=1.5)], 1: [found(seconds=2.5)]})
    assert line["seconds"] == 2.5


def test_bits_depend_on_every_rank_s_and_on_their_order():
    def bits(*values):
        return merge_findings({rank: [found(bits=value)] for rank, value in enumerate(values)})[0]["bits"]

    assert bits("a", "b") == bits("a", "b")
    assert len({bits("a", "b"), bits("b", "a"), bits("a", "a"), bits("b", "b")}) == 4


def test_fixed_is_what_all_ranks_found_fixed():
    assert merge_findings({0: [found(fixed=True)], 1: [found(fixed=True)]})[0]["fixed"] is True
    assert "fixed" not in merge_findings({0: [found(fixed=True)], 1: [found()]})[0]


# Files ------------------------------------------------------------------------------------------------------


def run_line(rank, size=2, run="abc", **more):
    facts = {
        "num_processes": size,
        "versions": {"jax": "1"},
        "backend": "cpu",
        "device_kind": "cpu",
        "num_devices": 4,
        "flags": {},
    }
    changed = {k: more.pop(k) for k in list(more) if k in facts}
    head = {
        "schema": 1,
        "kind": "run",
        "run": run,
        "facts": facts | changed,
        "selection": {"profile": "smoke"},
    }
    return head | {"seed": 0, "repeat": 1, "rank": rank} | more


def id_of(name):
    return f"{name}/plain/auto/8/float32/4KiB"


def case_line(case, verdict="pass", reason="", seconds=0.5, **more):
    operation, variant, mode, mesh, dtype, _ = id_of(case).split("/")
    head = {"schema": 1, "kind": "conformance", "run": "abc", "case": id_of(case), "level": "L1"}
    head |= {"operation": operation, "variant": variant, "mode": mode, "mesh": mesh, "dtype": dtype}
    ends = {} if seconds is None else {"seconds": seconds}
    return head | {"seed": 0, "size_bytes": 4} | found("execute", verdict, reason) | ends | more


def write(path, *lines, torn=""):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.jsonl"


def rank_file(path, rank):
    return path.with_name(f"{path.name}.rank{rank}")


def verdicts(path):
    return {name.split("/")[0]: judged.verdict for name, judged in reading.read_records(path).cases.items()}


def merged(path, size=2):
    merge.write_merged_file(path, merge.merged(path, size))
    return verdicts(path)


@pytest.mark.parametrize(
    ("ended", "state"), [((0, 1), ""), ((0,), "the run did not end: 1 of 1 chosen cases are there")]
)
def test_a_merged_file_closes_where_all_ranks_have_closed(path, ended, state):
    for rank in range(2):
        account = closing.Account()
        lines = [run_line(rank) | closing.CLOSES, case_line("a")]
        lines.insert(1, closing.make_chosen_line([lines[1]["case"]]) | {"run": lines[0]["run"]})
        for line in lines:
            account.add(line)
        end = [account.end(rank) | {"run": lines[0]["run"]}] if rank in ended else []
        write(rank_file(path, rank), *lines, *end)
    assert merged(path) == {"a": "pass"}
    read = reading.read_records(path)
    assert read.state == state and [line["exit_code"] for line in read.ends] == [1] * (len(ended) == 2)
    assert not read.problems


def test_ranks_that_chose_different_cases_are_of_different_runs(path):
    for rank, names in enumerate((["a"], ["a", "b"])):
        lines = [run_line(rank) | closing.CLOSES, *map(case_line, names)]
        lines.insert(
            1, closing.make_chosen_line([line["case"] for line in lines[1:]]) | {"run": lines[0]["run"]}
        )
        write(rank_file(path, rank), *lines)
    with pytest.raises(RecordError, match=r"chose different cases \(1, 2 of them\)"):
        merged(path)


def test_ranks_of_two_launches_are_not_merged(path):
    write(rank_file(path, 0), run_line(0, group="a" * 12), case_line("a"))
    write(rank_file(path, 1), run_line(1, group="b" * 12), case_line("a"))
    with pytest.raises(
        RecordError, match=r"rank0 is of another launch than the files of the other ranks \(`group`"
    ):
        merged(path)
    write(rank_file(path, 1), run_line(1), case_line("a"))
    with pytest.raises(RecordError, match="is of another launch"):
        merged(path)
    write(rank_file(path, 1), run_line(1, group="a" * 12), case_line("a"))
    assert merged(path) == {"a": "pass"}


def resumed(rank, first, second, *cases):
    """The file of a rank that was started twice: `a` is of the first time, and these cases of the second."""
    again = run_line(rank, run="def", group=second)
    return (run_line(rank, group=first), case_line("a"), again, *(case_line(c, run="def") for c in cases))


def test_two_ways_to_go_on_from_one_killed_run_are_not_merged(path):
    write(rank_file(path, 0), *resumed(0, "a" * 12, "b" * 12, "b"))
    write(rank_file(path, 1), *resumed(1, "a" * 12, "c" * 12, "b"))
    with pytest.raises(RecordError, match=r"is of another launch .*, such as b/plain"):
        merged(path)
    write(rank_file(path, 1), *resumed(1, "a" * 12, "b" * 12, "b"))
    assert merged(path) == {"a": "pass", "b": "pass"}


def test_a_rank_whose_file_was_lost_judges_again_with_the_others(path):
    write(rank_file(path, 0), *resumed(0, "a" * 12, "b" * 12, "a", "b"))
    write(rank_file(path, 1), run_line(1, group="b" * 12), case_line("a"), case_line("b"))
    assert merged(path) == {"a": "pass", "b": "pass"}


def test_files_of_two_ranks_become_one_that_the_suite_reads(path):
    write(rank_file(path, 0), run_line(0), case_line("a"), case_line("b"))
    write(rank_file(path, 1), run_line(1), case_line("a"), case_line("b", "fail", "off by one"))
    assert merged(path) == {"a": "pass", "b": "fail"}
    read = reading.read_records(path)
    assert not read.problems
    assert read.runs[0]["ranks"] == 2 and "rank" not in read.runs[0]
    assert read.cases[id_of("b")].reason == "rank 1: off by one"


def test_a_case_that_not_all_ranks_finished_is_left_out(path):
    write(rank_file(path, 0), run_line(0), case_line("a"), case_line("b"))
    write(rank_file(path, 1), run_line(1), case_line("a"), torn='{"schema":1,"kind":"conf')
    assert merged(path) == {"a": "pass"}


def test_a_case_without_its_last_line_is_not_finished(path):
    write(rank_file(path, 0), run_line(0), case_line("a"))
    write(rank_file(path, 1), run_line(1), case_line("a", seconds=None))
    assert merged(path) == {}


def test_a_case_that_ended_the_group_is_kept_by_whoever_could_tell(path):
    write(rank_file(path, 0), run_line(0), case_line("a"), case_line("b", "crash", "rank 1 ended"))
    write(rank_file(path, 1), run_line(1), case_line("a"))
    assert merged(path) == {"a": "pass", "b": "crash"}
    assert reading.read_records(path).cases[id_of("b")].reason == "rank 1 ended"


def test_of_a_run_that_was_resumed_every_case_is_there_once(path):
    for rank in range(2):
        write(
            rank_file(path, rank), run_line(rank), case_line("a"), run_line(rank, run="def"), case_line("b")
        )
    assert merged(path) == {"a": "pass", "b": "pass"}
    assert len(reading.read_records(path).runs) == 1


def test_merging_twice_gives_the_same_bytes(path):
    for rank in range(2):
        write(rank_file(path, rank), run_line(rank), case_line("a"))
    merged(path)
    once = path.read_bytes()
    merged(path)
    assert path.read_bytes() == once


def test_a_missing_file_is_named(path):
    write(rank_file(path, 0), run_line(0), case_line("a"))
    with pytest.raises(
        RecordError, match=r"records\.jsonl\.rank1 is missing: bring the files of all 2 ranks together"
    ):
        merge.merged(path, 2)


OTHERS = {
    "it differs from that of rank 0 in seed": {"seed": 1},
    "it differs from that of rank 0 in selection": {"selection": {"profile": "full"}},
    "it differs from that of rank 0 in repeat": {"repeat": 2},
    "it differs from that of rank 0 in versions": {"versions": {"jax": "2"}},
    "it differs from that of rank 0 in backend": {"backend": "gpu"},
    "it differs from that of rank 0 in num_devices": {"num_devices": 8},
    "it differs from that of rank 0 in flags.LD_PRELOAD": {"flags": {"LD_PRELOAD": "libm.so"}},
    "is of rank 0 of 2, not of rank 1 of 2": {"rank": 0},
    "is of rank 1 of 3, not of rank 1 of 2": {"num_processes": 3},
}


@pytest.mark.parametrize(("told", "change"), OTHERS.items(), ids=OTHERS)
def test_a_file_of_another_run_is_refused(path, told, change):
    write(rank_file(path, 0), run_line(0), case_line("a"))
    write(rank_file(path, 1), run_line(**({"rank": 1} | change)), case_line("a"))
    with pytest.raises(RecordError, match=re.escape(told)):
        merge.merged(path, 2)


def test_records_that_are_no_merged_file_are_not_overwritten(path):
    for rank in range(2):
        write(rank_file(path, rank), run_line(rank), case_line("a"))
    write(path, run_line(0), case_line("mine"))
    with pytest.raises(RecordError, match="is not a merged file: records are never overwritten"):
        merged(path)
    assert verdicts(path) == {"mine": "pass"}


def test_the_number_of_ranks_is_read_from_the_files(path):
    with pytest.raises(RecordError, match=r"no .*records\.jsonl\.rank\*: name the file that --record named"):
        merge.sizes(path)
    write(rank_file(path, 1), run_line(1, size=3))
    rank_file(path, 0).with_name(f"{path.name}.rank0.at").write_text("{}")  # no record file
    assert merge.sizes(path) == 3


@pytest.mark.parametrize("size", [..., 0, "2", 2.0])
def test_a_file_that_does_not_say_its_number_of_processes_is_refused(path, size):
    line = run_line(0, num_processes=size)
    if size is ...:
        del line["facts"]["num_processes"]
    write(rank_file(path, 0), line)
    with pytest.raises(RecordError, match=r"num_processes|does not say its number of processes"):
        merge.sizes(path)


def test_the_command_merges_and_says_how_much(path, capsys):
    for rank in range(3):
        write(rank_file(path, rank), run_line(rank, size=3), case_line("a"), case_line("b"))
    assert main(["merge", str(path)]) == 0
    assert capsys.readouterr().out == f"2 cases of 3 ranks in {path}\n"
    assert verdicts(path) == {"a": "pass", "b": "pass"}


def test_the_command_names_what_is_missing(path, capsys):
    write(rank_file(path, 0), run_line(0), case_line("a"))
    assert main(["merge", str(path)]) == 2
    told = capsys.readouterr().err
    assert "records.jsonl.rank1 is missing" in told and len(told.splitlines()) == 1


def test_a_line_that_is_lost_is_not_merged_away(path):
    """The line of one rank's failure: without it the case would pass."""
    failed = case_line("a", "fail", "off by one", seconds=None, check="numbers")
    write(rank_file(path, 0), run_line(0), case_line("a"))
    write(rank_file(path, 1), run_line(1), failed | {"check": "nombers"}, case_line("a"))
    with pytest.raises(
        RecordError, match=r"rank1:2: not a record: `check` .*: what is lost may be a failure"
    ):
        merge.merged(path, 2)
    write(rank_file(path, 1), run_line(1), failed, case_line("a"))
    assert merged(path) == {"a": "fail"}


def test_long_reasons_of_many_ranks_stay_one_that_a_record_holds():
    each = {rank: [found(verdict="error", reason=f"{rank}" * 9_000)] for rank in range(4)}
    (line,) = merge_findings(each)
    assert len(line["reason"]) == 10_000 and line["reason"].startswith("rank 0: 000")
