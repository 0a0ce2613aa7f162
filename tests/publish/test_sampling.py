# SPDX-License-Identifier: Apache-2.0
"""The numbers of samples that a run can have, and samples that contradict their run."""

import math
import random

import pytest

from meshmark.core import blocks
from meshmark.core.skew import slowest
from meshmark.publish import consistent, sampling
from meshmark.ranks import rank_timing
from meshmark.timing.measure import Budget

pytestmark = pytest.mark.usefixtures("frozen_heap")

RUN = {"timing": {"seconds": 0.06, "least": 10, "most": 1000}, "facts": {"devices": [{"process": 0}]}}
COUNTS = {"auto": 66, "explicit": 67, "manual": 71}


def lines(cadence, counts, calls=1):
    """The timing lines of one cell, whose samples fill the time of the run."""
    random.seed(1)
    return [
        (
            number,
            {
                "case": f"psum/axes=x/{mode}/8/float32/4KiB",
                **{"run": "r", "process": 0, "cadence": cadence, "calls": calls},
                "samples_s": [0.06 / COUNTS[mode] * random.uniform(0.95, 1.05) for _ in range(count)],
            },
        )
        for number, (mode, count) in enumerate(counts.items(), 1)
    ]


def said(found):
    return [reason for _, reason in sampling.of_file(found, {"r": RUN})]


def test_modes_that_are_sampled_alone_may_have_other_numbers_of_samples():
    assert said(lines("plain", COUNTS)) == []
    assert "each round sampled all of them" in said(lines("isolated", COUNTS))[0]


@pytest.mark.parametrize("cadence", ["plain", "isolated"])
def test_half_of_the_samples_is_missed(cadence):
    halves = dict.fromkeys(COUNTS, 30) if cadence == "isolated" else COUNTS | {"explicit": 30}
    assert any("of the time that the run gives" in reason for reason in said(lines(cadence, halves)))


def test_a_plain_sample_is_one_call():
    assert "4 calls per sample of plain calls" in said(lines("plain", COUNTS, calls=4))[0]


def test_samples_of_one_rank_are_not_those_of_two():
    draw = random.Random(1)
    own = [1e-5 * math.exp(draw.gauss(0, 0.02)) for _ in range(20)]
    for made_up in (own, own[::-1], [1.3 * s for s in sorted(own)]):
        assert "ranks 0 and 2 have the same samples" in consistent.of_one_rank([own, [1e-5] * 20, made_up])
    noisy = [s * (1 + 1e-5 * (i % 7)) for i, s in enumerate(reversed(own))]
    assert "the same samples, but for a little noise" in consistent.of_one_rank([own, noisy])
    assert consistent.of_one_rank([own[:5], own[:5]]) == "", "a few samples are alike by chance"
    for seed in range(200):  # a clock of a nanosecond, and calls of ten microseconds
        draw = random.Random(seed)
        honest = [[round(1e-5 * math.exp(abs(draw.gauss(0, 0.005))), 9) for _ in range(20)] for _ in range(2)]
        assert consistent.of_one_rank(honest) == ""


COUNTED = {"timing": RUN["timing"] | {"counts": "samples"}, "facts": RUN["facts"]}
ABOUT = {"the most": 1e-5, "many": 1e-4, "some": 1e-3, "few": 1e-2, "the fewest": 1.0}
"""Seconds of a sample, by how many samples there are."""


def in_rounds(cadence="isolated", seed=0, control=True, about=0.001):
    """The timing lines of one cell, sampled by the rule of a run that counts the time of samples."""
    draw = random.Random(seed)
    calls = min(4096, math.ceil(0.003 / about)) if cadence == "stream" else 1
    found = [
        {
            "case": f"psum/axes=x/{mode}/8/float32/4KiB",
            **{"run": "r", "process": 0, "cadence": cadence, "calls": calls, "samples_s": []},
        }
        for mode in ("auto", "explicit", "manual")
    ]
    every = [(one["samples_s"], calls) for one in found]
    if control:
        found[0]["control_s"] = []
        every.append((found[0]["control_s"], 2 * calls if cadence == "stream" else 1))
    if control and cadence == "stream":
        found[0]["control_calls"] = 2 * calls
    spent, times = 0.0, [0.0]
    while len(times) <= 1000 and (len(times) <= 10 or spent <= 0.06 * len(every)):
        for own, _ in every:
            own.append(float(f"{about * draw.uniform(0.9, 1.1):.7g}"))
        took = sum(own[-1] * each for own, each in every)
        spent += took
        times.append(round(times[-1] + took + 2e-5, 6))
    found[0]["rounds_s"] = times
    return list(enumerate(found, 1))


def of_counted(found):
    return [reason for _, reason in sampling.of_file(found, {"r": COUNTED})]


@pytest.mark.parametrize("about", ABOUT.values(), ids=ABOUT)
@pytest.mark.parametrize("control", [True, False])
@pytest.mark.parametrize("cadence", ["isolated", "stream"])
def test_honest_rounds_fit_their_rule(cadence, control, about):
    for seed in range(5):
        assert of_counted(in_rounds(cadence, seed, control, about)) == []


def test_in_cadence_plain_each_program_has_rounds_of_its_own():
    draw, found = random.Random(0), []
    for number, mode in enumerate(("auto", "manual"), 1):
        samples, times = [], [0.0]
        while sum(samples) <= 0.06:
            samples.append(float(f"{0.001 * draw.uniform(0.9, 1.1):.7g}"))
            times.append(round(times[-1] + samples[-1] + 1e-5, 6))
        line = {"case": f"psum/axes=x/{mode}/8/float32/4KiB", "run": "r", "process": 0, "cadence": "plain"}
        line |= {"samples_s": samples, "rounds_s": times}
        found.append((number, line | {"control_s": list(samples), "control_rounds_s": list(times)}))
    assert of_counted(found) == []
    del found[1][1]["control_rounds_s"][-1]
    assert "its control: `control_rounds_s` has" in of_counted(found)[0]
    found[1][1]["control_rounds_s"] = found[1][1]["rounds_s"]
    found[0][1]["control_s"] = found[0][1]["control_s"][:-3]
    (told,) = of_counted(found)
    assert "its control: " in told and "it samples until they are spent" in told
    found[0][1]["control_s"] = found[0][1]["samples_s"]
    found[1][1]["samples_s"].remove(max(found[1][1]["samples_s"]))
    del found[1][1]["rounds_s"][-1]
    assert "it samples until they are spent" in of_counted(found)[0]


@pytest.mark.parametrize("share", [0.001, 0.01, 0.03, 0.1, 0.5])
@pytest.mark.parametrize("about", ABOUT.values(), ids=ABOUT)
def test_without_the_slowest_samples_no_cell_fits_the_rule(about, share):
    """A round of the slowest samples takes at least as long as the last round, so the rest never spends the time."""
    for seed in range(5):
        found = in_rounds(seed=seed, control=False, about=about)
        for _, record in found:
            for _ in range(max(1, round(share * len(record["samples_s"])))):
                record["samples_s"].remove(max(record["samples_s"]))
        del found[0][1]["rounds_s"][len(found[0][1]["samples_s"]) + 1 :]
        assert any(
            "it samples until they are spent" in told or "a run takes 10 to" in told
            for told in of_counted(found)
        )


OVER = {
    "timing": RUN["timing"] | {"counts": "samples of the slowest rank"},
    "facts": {"num_processes": 3, "devices": [{"process": p} for p in range(3)]},
}


def over_ranks(seed=0, about=0.001, calls=1):
    """The merged timing lines of one cell over three ranks, sampled by the code that ranks sample with."""

    class Drawn:
        def __init__(self):
            self.draw, self.count = random.Random(f"{seed} {len(timers)}"), calls

        def sample(self):
            """One in thirty is slow."""
            slow = self.draw.uniform(1, 2) if self.draw.random() < 1 / 30 else 0.0
            return about * (1 + self.draw.random() / 4 + slow)

    timers, others = [], 3  # three modes on each of three ranks
    for _ in range(others * 3):
        timers.append(Drawn())
    every = [[] for _ in timers]

    class OfRank:
        """One timer of rank 0, with which those of the other ranks are sampled."""

        def __init__(self, mode):
            self.mode, self.count = mode, calls

        def sample(self):
            taken = [float(f"{timers[3 * rank + self.mode].sample():.7g}") for rank in range(3)]
            for rank, own in enumerate(taken):
                every[3 * rank + self.mode].append(own)
            return taken[0]

    def agree(question, value, rule):
        if question == "warm-up":
            numbers = rule([value])
            for own in every:
                own.clear()
            return [0 for _ in numbers]
        done = int(question.split()[0])
        return rule(
            [
                blocks.spent([(own, calls) for own in every[3 * rank : 3 * rank + 3]], done)
                for rank in range(3)
            ]
        )

    budget = Budget(0.06, 10, 1000)
    rank_timing.sample([OfRank(mode) for mode in range(3)], 3, budget, random.Random(seed), agree)
    return [
        (
            number + 1,
            {
                "case": f"psum/axes=x/{mode}/8/float32/4KiB",
                **{"run": "r", "process": 0, "cadence": "isolated" if calls == 1 else "stream"},
                "calls": calls,
                "samples_by_rank": (ranks := [every[3 * rank + number] for rank in range(3)]),
                "samples_s": slowest(ranks),
            },
        )
        for number, mode in enumerate(("auto", "explicit", "manual"))
    ]


def of_ranks(found):
    return [reason for _, reason in sampling.of_file(found, {"r": OVER})]


@pytest.mark.parametrize("about", ABOUT.values(), ids=ABOUT)
def test_ranks_stop_where_their_rule_says(about):
    for seed in range(5):
        assert of_ranks(over_ranks(seed, about)) == []
        if about < 0.001:
            assert of_ranks(over_ranks(seed, about, calls=math.ceil(0.003 / about))) == []


@pytest.mark.parametrize("share", [0.01, 0.03, 0.1, 0.5])
@pytest.mark.parametrize("about", ABOUT.values(), ids=ABOUT)
def test_without_their_slowest_rounds_ranks_would_have_gone_on(about, share):
    for seed in range(3):
        found = over_ranks(seed, about)
        took = [sum(own) for own in zip(*(record["samples_s"] for _, record in found), strict=True)]
        gone = sorted(range(len(took)), key=took.__getitem__)[-max(2, round(share * len(took))) :]
        for _, record in found:
            record["samples_by_rank"] = [
                [s for i, s in enumerate(own) if i not in gone] for own in record["samples_by_rank"]
            ]
            record["samples_s"] = slowest(record["samples_by_rank"])
        assert any(
            "and the rule of the run gives more" in told or "samples, and the rule" in told
            for told in of_ranks(found)
        ), (seed, len(took), len(gone))


@pytest.mark.parametrize("ranks", [None, [], [[]], [[0.0]] * 3, [[1e-3]] * 2])
def test_samples_that_some_ranks_lack_are_told(ranks):
    found = over_ranks()
    found[1][1]["samples_by_rank"] = ranks
    if ranks is None:
        del found[1][1]["samples_by_rank"]
    assert "samples of each of 3 ranks" in of_ranks(found)[0]


def test_a_time_beyond_all_numbers_is_no_trouble():
    run = OVER | {"timing": OVER["timing"] | {"seconds": 1.5e308}}
    assert any("gives more" in told for _, told in sampling.of_file(over_ranks(), {"r": run}, True))


def test_ranks_take_no_block_more_than_the_rule_gives():
    found = over_ranks()
    for _, record in found:
        record["samples_by_rank"] = [own * 2 for own in record["samples_by_rank"]]
        record["samples_s"] = record["samples_s"] * 2
    assert "and the rule of the run gives as many or fewer" in of_ranks(found)[0]


def test_a_machine_may_stop_between_two_samples():
    found = in_rounds(control=False)
    times = found[0][1]["rounds_s"]
    found[0][1]["rounds_s"] = [*times[:20], *(round(s + 3.0, 6) for s in times[20:])]
    assert of_counted(found) == []


def test_a_time_of_ones_own_is_explained():
    run = COUNTED | {"selection": {"profile": "standard"}}
    (told,) = [reason for _, reason in sampling.of_file(in_rounds(), {"r": run})]
    assert "0.06 s of sampling, and profile standard gives 0.2 s: explain it in a note" in told
    assert not list(sampling.of_file(in_rounds(), {"r": run}, time_explained=True))
