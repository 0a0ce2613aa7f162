# SPDX-License-Identifier: Apache-2.0
"""The comparison of two environments on replayed processes: order, looks, budget, losses, counters."""

import random

import pytest

from meshmark.commands import compare as compare_command
from meshmark.timing import compare
from meshmark.timing.children import ChildError
from meshmark.timing.compare import FIRST, CompareError, incomparable
from meshmark.timing.comparison_report import counter_lines
from meshmark.timing.timer import Job
from tests.timing.replayed import CASES, FACTS, Alternating, Replayed, timed, verdicts


def test_both_processes_of_a_pair_are_announced_before_one_of_them_runs():
    replayed, told = Replayed(), []
    timed(replayed, looks=(12,), ahead=lambda processes: told.append((len(replayed.ran), dict(processes))))
    sampling = replayed.ran[2:]
    assert len(told) == 12
    for pair, (ran, processes) in enumerate(told):
        assert ran == 2 + 2 * pair
        assert processes == {side: process for side, process, _ in sampling[2 * pair : 2 * pair + 2]}


@pytest.mark.parametrize("silent", [(), ("A",), ("B",), ("A", "B")])
def test_processes_start_ahead_where_those_of_both_sides_say_when_they_wait(silent):
    did = []

    class Told:
        def __init__(self, side):
            self.side, self.announces = side, side not in silent

        def begin(self, process):
            did.append(("begin", self.side, process))

        def ready(self):
            did.append(("ready", self.side))

    compare_command.started({side: Told(side) for side in "AB"}, {"B": 4, "A": 5})
    wanted = [("begin", "B", 4), ("begin", "A", 5), ("ready", "B"), ("ready", "A")]
    assert did == ([] if silent else wanted)


def test_pairs_run_in_a_drawn_order_and_stop_at_the_first_clear_look():
    replayed = Replayed({CASES[0]: 1.2, CASES[1]: 0.8})
    made = timed(replayed)
    assert [(side, process) for side, process, _ in replayed.ran[:2]] == [("A", FIRST), ("B", FIRST)]
    sampling = replayed.ran[2:]
    assert [process for _, process, _ in sampling] == list(range(40))
    order = "".join(side for side, _, _ in sampling)
    drawn = [order[i : i + 2] for i in range(0, 40, 2)]
    assert set(drawn) == {"AB", "BA"}  # 20 pairs alike have a probability of 2 in a million
    again = Replayed({CASES[0]: 1.2, CASES[1]: 0.8})
    timed(again, rng=random.Random(1))
    assert "".join(side for side, _, _ in again.ran[2:]) != order, "no two runs have the same order"
    assert verdicts(made) == {CASES[0]: "slower", CASES[1]: "faster", CASES[2]: "no change"}
    assert made.pairs == 20 and "clear" in made.ended
    assert made.outcomes[CASES[0]].change.value == pytest.approx(1.2, rel=0.01)
    assert made.same == (0, 3)


def test_what_is_not_clear_goes_on_to_the_last_look():
    said = []
    made = timed(Replayed(1.028, noise=0.02), say=said.append)
    assert made.pairs == 40 and made.looked == 2 and "40 pairs" in made.ended
    assert "look 1 of 2 at 20 pairs" in said[0] and "inconclusive" in said[0]


def test_the_budget_ends_it_with_the_pairs_that_are_there():
    made = timed(Replayed(1.5), budget=6 + 12 * 6)
    assert made.pairs == 12 and "budget of 78 s" in made.ended
    assert set(verdicts(made).values()) == {"slower"}  # 12 pairs are enough where no look was wasted
    few = timed(Replayed(1.5), budget=6 + 5 * 6)
    assert few.pairs == 5 and set(verdicts(few).values()) == {"inconclusive"}


def test_looks_that_can_find_nothing_are_refused_and_many_cases_get_more():
    with pytest.raises(CompareError, match="5 pairs can find nothing among 3 cases"):
        timed(Replayed(), looks=(5,))
    assert compare.plan_looks((), 10, 0.03).looks == (20, 40)
    many = compare.plan_looks((), 10**6, 0.03)
    assert many.looks[0] == many.needed(10**6) > 20 and many.looks[1] == 2 * many.looks[0]


def test_a_case_that_fails_on_one_side_is_left_out_before_it_is_timed():
    def fault(side, process, line):
        wrong = side == "B" and line["case"] == CASES[1]
        return line | {"verdict": "fail", "reason": "numbers: off", "samples_s": []} if wrong else line

    replayed = Replayed(fault=fault)
    made = timed(replayed)
    assert made.left_out == {CASES[1]: "B: fail: numbers: off"}
    assert all(CASES[1] not in ids for _, process, ids in replayed.ran if process != FIRST)
    assert set(made.outcomes) == {CASES[0], CASES[2]}


def test_one_crash_costs_its_pair_and_three_leave_the_case_out():
    def fault(times):
        def crash(side, process, line):
            dies = line["case"] == CASES[1] and process in times
            return line | {"verdict": "crash", "reason": "SIGSEGV", "samples_s": []} if dies else line

        return crash

    one = timed(Replayed(1.2, fault=fault([5])), rng=Alternating())
    assert one.outcomes[CASES[1]].pairs == 19 and one.outcomes[CASES[0]].pairs == 20 and not one.left_out
    assert one.sporadic() == [f"{CASES[1]}: B: lost in 1 of its processes: crash: SIGSEGV"]
    three = timed(Replayed(1.2, fault=fault([1, 5, 7, 9, 11])), rng=Alternating())
    assert three.left_out[CASES[1]] == "B: crash: SIGSEGV (in 3 of 4 processes)"
    assert set(verdicts(three)) == {CASES[0], CASES[2]}
    assert three.pairs == 20


def test_a_lost_process_costs_its_pair_and_three_in_a_row_end_it():
    class Dying(Replayed):
        def run(self, side, job):
            if job.process in self.dying:
                self.ran.append((side, job.process, []))
                raise ChildError("children die before they time anything: no memory")
            yield from super().run(side, job)

    one = Dying(1.2)
    one.dying = {7}
    made = timed(one)
    assert made.pairs == 20 and 7 not in made.complete and one.ran[-1][1] == 41
    assert {outcome.pairs for outcome in made.outcomes.values()} == {20}
    dead = Dying()
    dead.dying = {4, 5, 6}
    with pytest.raises(ChildError, match="no memory"):
        timed(dead)
    first = Dying()
    first.dying = {FIRST}
    with pytest.raises(ChildError, match="A: children die"):
        timed(first)


def test_everything_left_out_is_told():
    made = timed(Replayed(fault=lambda s, p, x: x | {"verdict": "error", "reason": "no", "samples_s": []}))
    assert not made.outcomes and len(made.left_out) == 3 and "nothing is left" in made.ended


def test_an_environment_that_changes_meanwhile_is_an_error():
    class Changing(Replayed):
        def run(self, side, job):
            for message in super().run(side, job):
                if "facts" in message and job.process > 1 and side == "B":
                    message = {"facts": FACTS | {"versions": {"jax": "10.0"}}}
                yield message

    with pytest.raises(CompareError, match="B changed while it was compared: its versions"):
        timed(Changing())


def test_counters_are_compared_exactly():
    def fault(side, process, line):
        if side == "B" and line["case"] == CASES[2]:
            line["communication"] *= 2
            line["temp_bytes"] = 1
        return line

    made = Replayed(fault=fault).comparison()
    found = made.prepare()
    assert [(d.case, d.counter, d.a, d.b) for d in found] == [
        (CASES[2], "collectives", "1 all-reduce 4096B 1x8", "2 all-reduce 4096B 1x8"),
        (CASES[2], "temp_bytes", 0, 1),
    ]
    assert "2 differ, in 1 of 3 programs" in "\n".join(counter_lines(found, 3))
    assert Replayed().comparison().prepare() == []


def test_a_stream_is_compared_apart():
    def run(side, job):
        for message in Replayed(1.2).run(side, job):
            for x in list(message.get("timings", ())):
                message["timings"].append(x | {"cadence": "stream", "samples_s": [1e-4]})
            yield message

    job = Job(cells=[], num_devices=8, cadences=["isolated", "stream"], seconds=0.1)
    made = timed(Replayed(), run=run, job=job)
    assert verdicts(made)[CASES[0]] == "slower" and verdicts(made)[f"{CASES[0]} (stream)"] == "no change"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"backend": "gpu", "device_kind": "H200", "virtual": False}, ["virtual devices and B real", "H200"]),
        ({"num_devices": 4}, ["number of devices is 8 in A and 4 in B"]),
        ({"host": {"cores": 64}}, ["unlike machines (cores 2 and cores 64)"]),
    ],
)
def test_what_is_not_comparable(change, words):
    found = "; ".join(incomparable(FACTS, FACTS | change))
    assert all(word in found for word in words), found
    with pytest.raises(CompareError, match="--anyway"):
        compare_command.refuse([found], anyway=False)
    compare_command.refuse([found], anyway=True)
    assert not incomparable(FACTS, dict(FACTS, versions={}, topology=""))
