# SPDX-License-Identifier: Apache-2.0
"""If two runs of an unsharded program differ, a third one decides which is wrong. Also the names of causes."""

import io
import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from meshmark.hunt import accelerators, blame, differences, findings, grouping, oracles, reports
from meshmark.hunt.hunting import Hunt
from meshmark.hunt.workers import Answer, Settings
from meshmark.program_data.program import Input, Node, Program, Transform, from_json, to_json
from tests.hunt.stubs import StubSlot

V = [{"v": k} for k in range(4)]
ROWS = Input((7, 2), "float32", ((), ()), {"kind": "count"})
NODES = (
    Node("jnp.argmax", (V[0],), {"axis": 1, "keepdims": True}),
    Node("lax.slice", (V[1], [0, 0], [6, 1])),
    Node("at.add", (V[1], [{"slice": [1, 7, None]}], V[2])),
)
MOVED = Program((("x", 1),), (ROWS,), NODES, (3,), (None,))
"""Rows that are moved within their own array: a sum of ones, which XLA's CPU compiler makes a running one."""
RIGHT = [1, 2, 2, 2, 2, 2, 2]

real = oracles.compute_truth


@pytest.fixture
def plant(monkeypatch):
    """Plants what the accelerator and the CPU give; None leaves the right numbers."""

    def of(here=None, beside=None):
        def truth(program, device=None):
            found = real(program, jax.devices()[0])
            found.results = oracles.run_alone(program)
            wrong = here if device is None else beside
            if wrong is not None:
                found.results = [np.array(wrong, found.results[0].dtype).reshape(7, 1)]
            return found

        monkeypatch.setattr(accelerators, "find_backend", lambda: "gpu")
        monkeypatch.setattr(accelerators, "find_host_device", lambda: jax.devices()[0])
        monkeypatch.setattr(oracles, "compute_truth", truth)

    return of


def test_each_operation_alone_is_right_where_the_whole_program_is_not():
    assert oracles.run_alone(MOVED)[0].ravel().tolist() == RIGHT
    found = oracles.judge(MOVED, (oracles.ALONE,))
    if real(MOVED).results[0].ravel().tolist() == RIGHT:
        pytest.skip("this release of XLA is right")
    assert [(d.mode, d.kind, d.what) for d in found] == [("alone", "oracles", "CPU")]
    assert "5 of 7, at (2, 0) expected 2, seen 3" in found[0].text
    with oracles.compile_by(True, "algsimp"):
        assert oracles.judge(MOVED, (oracles.ALONE,)) == []
    with oracles.compile_by(True, "reshape-mover"):
        assert oracles.judge(MOVED, (oracles.ALONE,))


def test_bodies_run_operation_by_operation_too():
    node = Node("vmap", (V[0],), bodies=())
    body = replace(MOVED, inputs=(replace(ROWS, shape=(3, 7, 2), spec=((),) * 3),))
    data = to_json(body) | {
        "nodes": [
            {
                "op": node.op,
                "args": [V[0]],
                "bodies": [{"parameters": 1, "nodes": to_json(MOVED)["nodes"], "outputs": [3]}],
            }
        ],
        "outputs": [1],
    }
    assert oracles.run_alone(from_json(data))[0].ravel().tolist() == RIGHT * 3


def test_a_wrong_cpu_is_blamed_where_the_accelerator_agrees_with_each_operation_alone(plant):
    plant(beside=range(1, 8))
    (found,) = oracles.judge(MOVED, (oracles.HOST,))
    assert (found.mode, found.kind, found.what) == ("alone", "oracles", "CPU")
    assert "one CPU device differs" in found.text and "expected 2, seen 3" in found.text
    assert oracles.compute_expected(MOVED, found.mode)[0].ravel().tolist() == RIGHT


def test_a_wrong_accelerator_is_blamed_where_the_cpu_agrees_with_each_operation_alone(plant):
    plant(here=range(1, 8))
    (found,) = oracles.judge(MOVED, (oracles.HOST,))
    assert (found.mode, found.kind, found.what) == ("host", "oracles", "gpu")
    assert "one gpu device differs" in found.text and "expected 2, seen 3" in found.text
    assert oracles.compute_expected(MOVED, found.mode)[0].ravel().tolist() == RIGHT


def test_an_accelerator_that_no_one_agrees_with_is_blamed_with_the_right_numbers(plant):
    plant(here=[0] * 7, beside=range(1, 8))
    (found,) = oracles.judge(MOVED, (oracles.HOST,))
    assert (found.mode, found.what) == ("host", "gpu") and "expected 1, seen 0" in found.text
    assert oracles.compute_expected(MOVED, found.mode)[0].ravel().tolist() == RIGHT


def test_no_side_is_blamed_without_a_third_opinion(plant, monkeypatch):
    plant(here=range(1, 8))
    monkeypatch.setattr(oracles, "run_alone", lambda program: None)
    monkeypatch.setattr(oracles, "compute_truth", lambda program, device=None: replace_results(device))
    (found,) = oracles.judge(MOVED, (oracles.HOST,))
    assert found.what == "undecided" and "which is wrong is not known" in found.text


def replace_results(device):
    """What two sides say that differ."""
    return differences.Truth([np.array(RIGHT if device else range(1, 8), np.int32)], 7.0)


def test_the_script_and_the_report_name_the_side_that_is_wrong():
    def kept(mode, found):
        one = findings.Finding(
            "n", "t", "silent", ["g"], to_json(MOVED), mode, written([RIGHT]), "s", "CPU", found=found
        )
        return reports.script_of(one), reports.report_of(one, "")

    gpu = {"jax": "0.11.2", "backend": "gpu"}
    script, report = kept("alone", gpu)
    assert "JAX_PLATFORMS=cpu" in script and "[1, 2, 2, 2, 2, 2, 2]" in script and "0.11.2, CPU" in report
    script, report = kept("host", gpu)
    assert "One gpu device is wrong" in script and "0.11.2, gpu" in report
    script, report = kept("auto", {"jax": "0.11.2"})
    assert "is wrong" not in script and "0.11.2, CPU" in report


def written(rows):
    """Results as a finding has them."""
    return [oracles.write_result(np.array(r, np.int32)) for r in rows]


class Planted(StubSlot):
    """Wrong numbers, of a program that each operation alone says is itself wrong, by the pass algsimp."""

    def __init__(self, blamed=True, made_by="algsimp"):
        super().__init__(Settings())
        self.blamed, self.made_by = blamed, made_by

    def judge(self, job, modes=("auto",)):
        job = {"program": to_json(job)} if isinstance(job, Program) else job
        found = []
        if job.get("without", "") != self.made_by:
            if modes[0] == "alone":
                found = [differences.Difference("alone", "oracles", "CPU", "t")] if self.blamed else []
            else:
                found = [differences.Difference("auto", "numbers", "values", "t")]
        return Answer([d.to_json() for d in found], program=to_json(MOVED))


@pytest.mark.parametrize(("blamed", "kind"), [(True, "oracles"), (False, "numbers")])
def test_a_finding_is_grouped_by_who_is_wrong_and_by_the_pass_that_makes_it(blamed, kind):
    hunt = Hunt(
        1, Settings(), shrink_s=0.0, out=io.StringIO()
    )  # a smaller program would have no operation left
    hunt.known = {f"{kind}: right without algsimp": "kept"}
    hunt.one(Planted(blamed), 3, lambda _: None, lambda: False)
    (group,) = hunt.groups.values()
    assert (group.key, group.known, group.kind) == (f"{kind}: right without algsimp", "kept", kind)
    assert json.loads(hunt.out.getvalue())["shrunk_difference"]["mode"] == ("alone" if blamed else "auto")


def test_a_program_that_another_pass_makes_wrong_keeps_its_own_group():
    slot = Planted(False, "none of them")
    assert blame.find_guilty_pass(slot, MOVED, {"mode": "auto"}, False) == ""
    hunt = Hunt(1, Settings(), shrink_s=1.0, out=io.StringIO())
    hunt.one(slot, 3, lambda _: None, lambda: False)
    assert "right without" not in next(iter(hunt.groups))


def test_a_program_that_can_not_be_judged_without_a_pass_does_not_count_as_right():
    class Failing(Planted):
        def judge(self, job, modes=("auto",)):
            return Answer([], invalid="no such pass")

    assert blame.find_guilty_pass(Failing(), MOVED, {"mode": "auto"}, False) == ""


def sharded(*nodes):
    """A program of an array over two devices, and of as many indices, that returns its last value."""
    given = (Input((8,), "float32", (("x",),)), Input((8,), "int32", (("x",),)))
    return Program((("x", 2),), given, nodes, (1 + len(nodes),), (None,))


A, B = {"v": 0}, {"v": 1}
MIDDLE = {"v": 2}
BY_OPERATION = {
    "a scatter at whole indices": ((Node("at.max", (A, B, 5.0)),), "numbers: wrong in a scatter"),
    "a scatter at cut indices": (
        (Node("lax.slice", (B, [0], [7])), Node("at.max", (A, MIDDLE, 5.0))),
        "numbers: wrong in a scatter of uneven shards",
    ),
    "a minimum of cut segments": (
        (
            Node("lax.slice", (B, [0], [7])),
            Node("jax.ops.segment_min", (MIDDLE, MIDDLE), {"num_segments": 2}),
        ),
        "numbers: wrong in a scatter of uneven shards",
    ),
    "rows onto rows": (
        (Node("lax.slice", (A, [0], [7])), Node("at.set", (A, [{"slice": [1, None, None]}], MIDDLE))),
        "numbers: wrong in an update of a slice",
    ),
    "a strided slice": ((Node("lax.slice", (A, [1], [7], [3])),), "numbers: wrong in lax.slice"),
    "one of two results": (
        (Node("lax.top_k", (A, 3)), Node("item", (MIDDLE, 1))),
        "numbers: wrong in lax.top_k",
    ),
}


@pytest.mark.parametrize("name", BY_OPERATION)
def test_operations_that_are_one_operation_of_the_compiler_have_one_key(name):
    nodes, key = BY_OPERATION[name]
    program = sharded(*nodes)
    assert grouping.make_key_of_operation(program, nodes[-1]) == key


class WrongAfter(StubSlot):
    """Wrong numbers in the third value that a program returns, and in all after it."""

    def judge(self, job, modes=("auto",)):
        program = from_json(job["program"]) if isinstance(job, dict) else job
        wrong = len(program.outputs) > 2
        found = (
            [differences.Difference("auto", "numbers", "values", "result 2 of 8: 1 of 8, at (0,)")]
            if wrong
            else []
        )
        return Answer([d.to_json() for d in found], program=to_json(program))


def test_the_first_operation_with_a_wrong_result_is_found():
    nodes = (
        Node("jnp.sin", (A,)),
        Node("jnp.cos", (MIDDLE,)),
        Node("lax.rev", ({"v": 3}, [0])),
        Node("jnp.tan", ({"v": 4},)),
    )
    difference = {"mode": "auto"}
    found = blame.find_wrong_operation(WrongAfter(Settings()), sharded(*nodes), difference, False)
    assert found == nodes[2]
    assert not blame.find_wrong_operation(WrongAfter(Settings()), sharded(*nodes[:2]), difference, False)
    derived = replace(sharded(*nodes), transform=Transform("vjp", (0,)))
    assert not blame.find_wrong_operation(WrongAfter(Settings()), derived, difference, False)


def test_wrongness_that_names_a_cause_is_a_group_of_its_own():
    def key(op, what):
        return grouping.make_key(
            replace(MOVED, nodes=(Node(op, (V[0],)),)), {"kind": "numbers", "what": what}
        )

    lost = "numbers: a NaN is lost in a minimum or maximum"
    assert {key(op, differences.LOST_NAN) for op in ("jax.ops.segment_min", "at.max", "lax.scatter_min")} == {
        lost
    }
    assert key("jnp.sum", differences.LOST_NAN) == "numbers: jnp.sum"
    assert key("at.max", "values") == "numbers: at.max"
    large = "numbers: a convolution is too large by an integer factor"
    assert key("jnp.correlate", "factor 2") == key("lax.conv_transpose", "factor 12") == large
    assert key("jnp.correlate", "factor 0.5") == key("jnp.correlate", "values") == "numbers: jnp.correlate"
    assert key("jnp.sum", "factor 2") == "numbers: jnp.sum"
    cut = replace(MOVED, nodes=(Node("lax.slice", (V[0],)), Node("jnp.correlate", (V[1], V[1]))))
    assert grouping.make_key(cut, {"kind": "numbers", "what": "factor 2"}) == large


def test_a_lost_nan_is_told_from_other_wrong_elements():
    want = np.array([np.nan, 1, 2], np.float32)
    for seen, lost in (([5, 1, 2], True), ([5, 1, 3], False), ([np.nan, 5, 3], False)):
        seen = np.array(seen, np.float32)
        wrong = ~((seen == want) | (np.isnan(seen) & np.isnan(want)))
        with np.errstate(invalid="ignore"):
            assert (differences.describe_wrongness(want, seen, wrong, False) == differences.LOST_NAN) == lost


def test_a_finding_explains_nothing_on_a_release_where_it_is_right():
    one = findings.Finding(
        "old", "t", "silent", ["g"], {}, "auto", [], "s", "w", releases={"1": "wrong", "2": "right"}
    )
    assert findings.known_groups([one]) == findings.known_groups([one], "1") == {"g": "old"}
    assert findings.known_groups([one], "3") == {"g": "old"} and findings.known_groups([one], "2") == {}


@pytest.mark.parametrize(("times", "groups"), [(1, 0), (9, 1)])
def test_a_crash_without_a_word_is_a_finding_where_it_comes_twice(times, groups):
    """An earlier program may have spoilt the memory of the worker. The record keeps what came once."""

    class Crashing(StubSlot):
        left = times

        def judge(self, job, modes=("auto",)):
            self.left -= 1
            crash = differences.Difference("auto", "crash", "SIGSEGV", "SIGSEGV").to_json()
            return Answer([crash] if self.left >= 0 else [], program=to_json(MOVED))

    hunt = Hunt(1, Settings(), shrink_s=0.0, out=io.StringIO())
    hunt.one(Crashing(), 3, lambda _: None, lambda: False)
    line = json.loads(hunt.out.getvalue())
    assert len(hunt.groups) == groups and line.get("once", False) == (groups == 0)
    assert line["differences"][0]["what"] == "SIGSEGV"


def product_of(dtype):
    """A product of two matrices of this dtype, as JSON values: on a GPU that of int8 is doubled."""
    given = tuple(Input((2, 2), dtype, ((), ())) for _ in range(2))
    numbers = [[[0], [0]], [[], []]]
    node = Node("lax.dot_general", (A, B, numbers), {"preferred_element_type": "int32"})
    return Program((("x", 1),), given, (node,), (2,), (None,))


ON_DEVICE = {
    "mode": oracles.HOST,
    "kind": "oracles",
    "what": "gpu",
    "text": f"result 0 of one gpu device {oracles.DEVICE_IS_WRONG}: 4 of 4, at (0, 0) expected 10, seen 20",
    "data": {"wrongness": "factor 2"},
}


class RightWithoutAPass(StubSlot):
    """Whatever pass is turned off, the program is right then."""

    def judge(self, job, modes=("auto",)):
        return Answer(differences=[] if "without" in job else [ON_DEVICE])


def test_an_error_of_a_device_is_never_taken_for_one_of_the_cpu():
    hunt = Hunt(0, Settings(devices=1, backend="gpu"))
    key = hunt._key(RightWithoutAPass(), product_of("int8"), ON_DEVICE, False)
    assert key == "oracles on gpu: lax.dot_general of int8: factor 2"
    other = ON_DEVICE | {"data": {"wrongness": "zeros"}}
    assert hunt._key(RightWithoutAPass(), product_of("int8"), other, False) != key
    assert key != hunt._key(RightWithoutAPass(), product_of("uint8"), ON_DEVICE, False)
    cpu = ON_DEVICE | {"mode": oracles.ALONE, "what": "CPU", "text": "result 0 of one CPU device differs"}
    assert hunt._key(RightWithoutAPass(), MOVED, cpu, False) == "oracles: right without algsimp"


def test_the_kind_of_wrongness_on_a_device_is_told(plant):
    plant(here=[2 * k for k in RIGHT])
    (found,) = oracles.judge(MOVED, (oracles.HOST,))
    assert found.what == "gpu" and found.data == {"wrongness": "factor 2"}


def test_a_pass_explains_a_program_only_if_it_writes_into_an_array():
    cpu = {"kind": "oracles", "what": "CPU", "text": "result 0 of one CPU device differs"}
    assert grouping.make_key_without(MOVED, cpu, "algsimp") == "oracles: right without algsimp"
    other = grouping.make_key_without(product_of("float32"), cpu, "algsimp")
    assert other == "oracles: right without algsimp: lax.dot_general"
