# SPDX-License-Identifier: Apache-2.0
"""Optional capabilities: those of the backend are judged by default, and no probe can end the run or make it pass."""

import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from meshmark.core.verdicts import Line
from meshmark.devices.facts import Facts
from meshmark.devices.probe import MARK, NoBackend
from meshmark.judge import capabilities
from meshmark.levels import must_pass
from meshmark.operations import cases
from meshmark.operations.selection import CAPABILITIES, Selection, SelectionError
from meshmark.pytest_plugin import expecting
from meshmark.pytest_plugin.stashed import FACTS, SELECTION

EVERY = tuple(CAPABILITIES)
ALL = Selection(present=EVERY)


def facts(**answers):
    return Facts({"jax": "0.12.0.1"}, "tpu", "TPU", 8, 1, [], {}, {}, capabilities=answers)


# What joins -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def joining():
    """What joins the standard profile by number of devices."""
    return {n: [cell.case(mode) for cell, mode in cases.optional(ALL, n)] for n in (1, 4, 8)}


def test_one_cell_of_each_operation_and_capability_joins(joining):
    for number, chosen in joining.items():
        assert all(len(case.cell.capabilities) == 1 for case in chosen) and 80 < len(chosen) <= 150
        each = Counter((case.operation.name, *case.cell.capabilities, case.mode) for case in chosen)
        assert max(each.values()) == 1
        found = {name for case in chosen for name in case.cell.capabilities}
        assert found == set(EVERY) - ({"groups"} if number < 4 else set())


def test_the_other_cases_stay_as_they_were_and_in_their_order():
    some = {"operations": ("psum", "pbroadcast", "ragged_all_to_all", "put_get", "dense"), "meshes": ("2x2",)}
    own = [case.id for case in cases.cases(Selection(**some), 4)]
    chosen = [case.id for case in cases.cases(Selection(**some, present=EVERY), 4)]
    assert [name for name in chosen if name in set(own)] == own
    assert len(set(chosen)) == len(chosen) > len(own)


def test_no_id_is_there_twice_on_one_device():
    assert max(Counter(case.id for case in cases.cases(Selection("full"), 1)).values()) == 1


def test_the_shortest_profile_takes_none_and_the_longest_more(joining):
    assert not [*cases.optional(Selection("smoke", present=EVERY), 4)]
    assert len([*cases.optional(Selection("full", present=EVERY), 4)]) > 2 * len(joining[4])


def test_what_is_demanded_or_left_out_does_not_join():
    chosen = Selection(present=("complex", "groups"), capabilities=("groups",), without=("complex",))
    assert chosen.joining == () and not [*cases.optional(chosen, 4)]
    with pytest.raises(SelectionError, match="complex is in --with and in --without"):
        Selection(capabilities=("complex",), without=("complex",)).checked(4)
    with pytest.raises(SelectionError, match="did you mean complex"):
        Selection(without=("complx",)).checked(4)


def test_no_must_pass_list_holds_anything_optional(joining):
    listed = set(must_pass.by_rule("L1", 4))
    assert listed and not listed & {case.id for case in joining[4]}
    assert not [c for c in cases.cases(Selection(levels=("L1",)), 4) if c.cell.capabilities]


def test_the_run_line_repeats_the_selection():
    chosen = Selection(present=("complex",), without=("groups",))
    again = Selection(**{k: tuple(v) if isinstance(v, list) else v for k, v in chosen.described().items()})
    assert again == chosen and again.described() == chosen.described()


# The probes -------------------------------------------------------------------------------------------------


class Judged:
    """A judge of made-up verdicts by operation."""

    def __init__(self, **verdicts):
        self.verdicts, self.ran = verdicts, []

    def run(self, case):
        self.ran.append(case.operation.name)
        verdict = self.verdicts.get(case.operation.name, "unsupported")
        return [Line("execute", verdict, f"NotImplementedError: no {case.operation.name}")]


def test_a_capability_is_lacking_where_every_operation_says_so_itself():
    chosen = capabilities.candidates(ALL, 4)["groups"]
    judge = Judged()
    assert capabilities.answer(judge, chosen).startswith("lacks: NotImplementedError: no ")
    assert len(judge.ran) == len(set(judge.ran)) > 4, "each operation once"
    for verdict in ("pass", "fail", "error"):
        assert capabilities.answer(Judged(all_gather=verdict), chosen) == "has"


def test_manual_mode_is_tried_first():
    for chosen in capabilities.candidates(ALL, 4).values():
        assert chosen[0].mode in ("manual", "host")


CHILD = f"""
import json, os, signal, sys, time
question = json.loads(sys.argv[1])
def say(**message): print({MARK!r} + json.dumps(message), flush=True)
if "never" in question["wanted"]: sys.exit("no device")
say(facts=dict(versions=dict(jax="0"), backend="x", device_kind="x", num_devices=1, num_processes=1, devices=[],
    flags=dict(), host=dict()))
print("a plugin's words")
for name in question["wanted"]:
    if name == "unasked": continue
    say(begins=name)
    if name == "dies": os.kill(os.getpid(), signal.SIGSEGV)
    if name == "leaves": os._exit(0)
    if name == "hangs":
        if not os.fork(): time.sleep(3)  # a child of its own, which holds the output
        time.sleep(60)
    say(answers={{name: "lacks: x" if name == "lacking" else "has"}})
say(done=True)
"""


@pytest.fixture
def child(tmp_path, monkeypatch):
    (tmp_path / "child.py").write_text(CHILD)
    monkeypatch.setattr(capabilities, "CHILD", (sys.executable, str(tmp_path / "child.py")))
    monkeypatch.setattr(capabilities, "DEADLINE", 0.5)


def test_a_probe_that_ends_the_child_costs_its_own_answer_alone(child):
    wanted = ("first", "dies", "lacking", "leaves", "unasked", "last")
    found = capabilities.probe_facts(Selection(), wanted).capabilities
    assert found == {
        "first": "has",
        "dies": "crash: SIGSEGV",
        "lacking": "lacks: x",
        "leaves": "crash: exit code 0",
        "last": "has",
    }
    assert capabilities.present(found) == ("first", "last")


def test_a_probe_that_hangs_is_ended(child):
    found = capabilities.probe_facts(Selection(), ("first", "hangs", "last"), timeout=0.0).capabilities
    assert found["first"] == found["last"] == "has" and found["hangs"].startswith("hang: ")


def test_without_devices_there_is_no_answer(child):
    with pytest.raises(NoBackend, match="no device"):
        capabilities.probe_facts(Selection(), ("never",))


@pytest.mark.skipif(
    sys.platform != "linux", reason="the CPU backend of another system may have other capabilities"
)
def test_the_child_finds_what_the_cpu_backend_has(monkeypatch):
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "2")
    chosen = Selection(
        operations=("psum", "ppermute"), capabilities=("ragged",), dtypes=("complex64", "float64")
    )
    found = capabilities.probe_facts(chosen, EVERY)
    assert found.num_devices == 2
    assert {name: answer.partition(":")[0] for name, answer in found.capabilities.items()} == {
        "x64": "has",
        "complex": "has",
        "ragged": "lacks",
    }, "those of which the selection has a case, and what it demands"


# What the run says ------------------------------------------------------------------------------------------


def told(found, **selection):
    options = {"expect_devices": None, "expect_level": None}
    stash = {
        FACTS: found,
        SELECTION: Selection(present=capabilities.present(found.capabilities), **selection),
    }
    config = SimpleNamespace(stash=stash, getoption=options.get)
    return expecting.find_unmet_expectations(config, {}), expecting.unjudged(config, {})


def test_a_demanded_capability_that_is_lacking_is_an_error():
    (problem,), _ = told(facts(complex="lacks: NotImplementedError: c64"), capabilities=("complex",))
    assert problem.startswith("--with complex demands complex numbers, and there is none here: lacks: Not")


@pytest.mark.parametrize("answer", ["crash: SIGSEGV", "hang: past its deadline"])
def test_a_probe_that_did_not_end_well_is_an_error_unless_its_cases_tell(answer):
    (problem,), closing = told(facts(complex=answer))
    assert answer in problem and "--without complex" in problem
    assert f"optional capabilities complex ({answer})" in closing
    assert told(facts(complex=answer), capabilities=("complex",))[0] == [], (
        "its cases have verdicts of their own"
    )


def test_the_closing_line_says_why_a_capability_was_not_judged():
    problems, closing = told(facts(complex="has", fp8="lacks: no", x64="has"), without=("x64",))
    assert problems == []
    assert "optional capabilities fp8 (not here)" in closing
    assert "optional capabilities x64 (--without)" in closing
    assert "subbyte" in closing and "complex" not in closing
