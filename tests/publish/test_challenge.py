# SPDX-License-Identifier: Apache-2.0
"""Only a run of its seed and cases answers a challenge."""

import json

import pytest

from meshmark.commands import main as cli
from meshmark.operations import cases
from meshmark.publish import challenge, recomputed
from tests import submissions
from tests.submissions import run_line

DEVICES = 2


@pytest.fixture(scope="module")
def asked():
    return challenge.make(DEVICES, 3)


def answers(asked, **other):
    """The entries of a run that answers a challenge."""
    lines = [
        run_line(facts=submissions.facts(num_devices=DEVICES), seed=asked["seed"], started=asked["issued"])
        | other
    ]
    for name in asked["cases"]:
        case = cases.find(name, DEVICES)
        bits = recomputed.digest_results(case, recomputed.answer(case.cell, asked["seed"], 0.0).expected)
        for line in submissions.judged(case, devices=DEVICES):
            lines.append(line | {"seed": asked["seed"]} | ({"bits": bits} if "bits" in line else {}))
    return {"a.jsonl": list(enumerate(lines, 1))}


def test_a_challenge_is_answered(asked):
    assert len(asked["cases"]) == 3 and asked["seed"] > 0
    assert list(challenge.find_unmet_demands(asked, answers(asked))) == []


def test_its_digests_are_those_of_its_seed_alone(asked):
    for name in asked["cases"]:
        case = cases.find(name, DEVICES)
        found = {
            seed: recomputed.digest_results(case, recomputed.answer(case.cell, seed, 0.0).expected)
            for seed in (0, asked["seed"])
        }
        assert len(set(found.values())) == 2
        record = {"error": 0.0, "bound": 0.0, "bits": found[0], "seed": asked["seed"]}
        facts = submissions.facts(num_devices=DEVICES)
        if case.plan.precision:
            record["precision"] = case.plan.precision.replace("default", "default (24 bits)")
        [told] = recomputed.find_impossible_numbers(case, record, facts, recomputed.Tally())
        assert "are not those of seed" in told


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"seed": 0}, "no run has its seed"),
        ({"started": "2026-11-02T00:00:00Z"}, "began before it was issued"),
        ({"facts": submissions.facts(num_devices=4)}, "is on 4 devices, and the challenge for 2"),
    ],
)
def test_another_run_does_not_answer_it(asked, other, told):
    assert any(told in text for text in challenge.find_unmet_demands(asked, answers(asked, **other)))


def test_an_answer_that_nobody_computes_again_is_none(asked):
    name = "psum_scatter/axes=x,dim=0,tiled/manual/2/float32/4KiB"
    asked = asked | {"cases": [name]}
    (told,) = challenge.find_unmet_demands(asked, answers(asked, table=1))
    assert f"is of version 1 of the case table, in which {name} was another program" in told
    assert list(challenge.find_unmet_demands(asked, answers(asked))) == []


def test_a_case_without_an_answer_is_named(asked):
    files = {"a.jsonl": [e for e in answers(asked)["a.jsonl"] if e[1].get("case") != asked["cases"][1]]}
    [told] = challenge.find_unmet_demands(asked, files)
    assert f"1 of its 3 cases have no answer, such as {asked['cases'][1]}" in told


def test_the_command_and_what_is_no_challenge(tmp_path, capsys):
    file = tmp_path / "c.json"
    assert cli.main(["challenge", "--num-devices", "2", "--cases", "2", "--output", str(file)]) == 0
    assert "meshmark test --seed" in capsys.readouterr().out
    assert len(challenge.read_challenge(file)["cases"]) == 2
    assert cli.main(["challenge", "--output", str(file)]) == 2
    whole = json.loads(file.read_text())
    for text, told in (
        ("", "is not a challenge"),
        ("[" * 9999, "is not a challenge"),
        ("{}", "because it must have 'schema'"),
        (json.dumps(whole | {"schema": 2}), "has `schema`, which is unknown"),
        (json.dumps(whole | {"seed": "7"}), "has `seed`, which must be a whole number"),
        (
            json.dumps({name: value for name, value in whole.items() if name != "devices"}),
            "must have 'devices'",
        ),
        (json.dumps(whole | {"cases": [1]}), "has an item that must be text"),
        (json.dumps(whole | {"issued": "today"}), "has `issued`, which is not a time"),
    ):
        file.write_text(text)
        capsys.readouterr()
        assert cli.main(["validate", "--challenge", str(file), str(tmp_path)]) == 2
        assert told in capsys.readouterr().err, text[:40]
