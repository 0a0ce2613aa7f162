# SPDX-License-Identifier: Apache-2.0
"""How ranks stay in step: what they agree on, how they learn of a rank that could not go on, and who records the
end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from meshmark.core.ports import free_ports
from meshmark.core.verdicts import Line
from meshmark.ranks import consensus as module
from meshmark.ranks.channel import Channel, Ending
from meshmark.ranks.consensus import Consensus, Settled
from meshmark.ranks.wire import ChannelError

SOON = 60.0
CASE = SimpleNamespace(id="psum")
SPELLED = [{"kind": "all-reduce", "bytes": 64, "groups": "1x2", "trips": 1}]
OTHERS = [{"kind": "all-gather", "bytes": 64, "groups": "1x2", "trips": 1}]


@pytest.fixture(autouse=True)
def _one_process(monkeypatch):
    """All ranks are threads of this process here: faulthandler has one timer, and must not end the tests."""
    for name in ("dump_traceback_later", "cancel_dump_traceback_later"):
        monkeypatch.setattr(module.faulthandler, name, lambda *arguments, **options: None)


@contextmanager
def ranks(size):
    where = f"127.0.0.1:{free_ports(1)[0]}"
    with ThreadPoolExecutor(size) as pool:
        made = [pool.submit(Channel, where, rank, size, SOON) for rank in range(size)]
        channels = [one.result(SOON) for one in made]
        try:
            yield [Consensus(channel, 2) for channel in channels]
        finally:
            list(pool.map(Channel.close, channels))


def at_once(*calls):
    """What each gives or raises, each in a thread of its own."""

    def outcome(call):
        try:
            return call()
        except (ChannelError, Settled) as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return [one.result(SOON) for one in [pool.submit(outcome, call) for call in calls]]


def judging(consensus, lines, collectives=None, matter="psum"):
    """One case on one rank: the answer of the others to its program, and what all settle."""

    def run():
        with consensus.on(matter, SOON):
            reason = consensus.compare_programs(CASE, collectives) if collectives else ""
            found = [Line("execute", "error", reason)] if reason else lines
            return reason, consensus.settle(found)

    return run


def test_every_rank_settles_with_the_worst_of_all():
    good, bad = [Line("numbers"), Line("sharding")], [Line("numbers", "fail", "3 of 8"), Line("sharding")]
    with ranks(2) as (first, second):
        one, other = at_once(judging(first, good, SPELLED), judging(second, bad, SPELLED))
    assert one == other
    reason, (numbers, sharding) = one
    assert reason == ""
    assert (numbers.verdict, numbers.reason) == ("fail", "rank 1: 3 of 8")
    assert numbers.data == {"ranks": {"0": "pass", "1": "fail"}}
    assert sharding == Line("sharding")


def test_programs_that_differ_are_not_run_on_any_rank():
    with ranks(2) as (first, second):
        one, other = at_once(judging(first, [], SPELLED), judging(second, [], OTHERS))
    assert one[0].startswith("not run: rank 1 compiled other collectives (")
    assert other[0].startswith("not run: rank 0 compiled other collectives (")
    assert one[1][0].verdict == other[1][0].verdict == "error"


def test_a_rank_that_could_not_compile_is_heard_by_who_comes_to_compare():
    broken = [Line("communication"), Line("execute", "error", "RuntimeError: no memory")]
    with ranks(3) as (first, second, third):
        found = at_once(
            judging(first, [], SPELLED), judging(second, broken), judging(third, [Line("execute")], SPELLED)
        )
    reason = "not run: rank 1 did not come to run it (error: RuntimeError: no memory)"
    assert [one[0] for one in found] == [reason, "", reason]
    assert found[0][1] == found[1][1] == found[2][1]
    assert {line.check: line.verdict for line in found[0][1]} == {"execute": "error", "communication": "pass"}


def test_ranks_at_different_cases_are_told():
    with ranks(2) as (first, second):
        found = at_once(judging(first, [], matter="psum"), judging(second, [], matter="pmax"))
    assert [str(error) for error in found] == ["the ranks are at different cases: psum, pmax"] * 2


def agreeing(consensus, value):
    def run():
        with consensus.on("calibrate psum", SOON):
            return consensus.agree("seconds of a call", value, max)

    return run


def test_what_rank_0_makes_of_all_values_holds_everywhere():
    with ranks(3) as all_ranks:
        assert at_once(*(agreeing(one, value) for one, value in zip(all_ranks, (1, 7, 3), strict=True))) == [
            7,
            7,
            7,
        ]


def test_a_value_is_not_agreed_on_where_a_rank_could_not_go_on():
    def failed(consensus):
        def run():
            with consensus.on("calibrate psum", SOON):
                return consensus.settle([Line("execute", "error", "RuntimeError: sabotaged")])

        return run

    def after(consensus):
        def run():
            with consensus.on("calibrate psum", SOON):
                try:
                    consensus.agree("seconds of a call", 1.0, max)
                except Settled as settled:
                    return str(settled), consensus.settle([Line("execute", "error", str(settled))])

        return run

    with ranks(2) as (first, second):
        (reason, lines), everywhere = at_once(after(first), failed(second))
    assert reason == "rank 1 could not go on (error: RuntimeError: sabotaged)"
    assert lines == everywhere and lines[0].verdict == "error"


def test_one_thread_writes_down_the_end_and_others_wait_for_it():
    consensus = Consensus(SimpleNamespace(rank=0), 2)
    begun, written = threading.Event(), []

    def write(name):
        with consensus.end(Ending("", name)) as first:
            if first:
                begun.set()
                threading.Event().wait(0.3)
                written.append(name)
            return first, list(written)

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(write, "main")
        assert begun.wait(SOON)
        other = pool.submit(write, "channel")
        assert one.result(SOON) == (True, ["main"])
        assert other.result(SOON) == (False, ["main"])
    assert consensus.ending.reason == "main"
