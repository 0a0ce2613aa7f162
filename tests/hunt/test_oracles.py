# SPDX-License-Identifier: Apache-2.0
"""A right program passes, and every kind of wrong result is found and named."""

import contextlib

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.hunt import differences, oracles
from meshmark.program_data import definitions
from meshmark.program_data.building import Builder
from meshmark.program_data.program import Body, Input, Node, Program, Transform
from meshmark.program_data.values import dtype_of

COUNT = {"kind": "count"}


PLAIN = Transform()


def program(node, *inputs, axes=(("x", 2), ("y", 2)), transform=PLAIN):
    return Program(axes, inputs, (node,), (len(inputs) - (transform.kind == "vjp"),), (None,), transform)


ROWS = Input((4, 2), "float32", (("x",), ()))


@pytest.mark.parametrize("mode", oracles.MODES)
def test_a_right_program_passes(mode):
    assert oracles.judge(program(Node("jnp.multiply", ({"v": 0}, 2)), ROWS), (mode,)) == []


def test_a_gradient_passes():
    pulled = program(Node("jnp.square", ({"v": 0},)), ROWS, ROWS, transform=Transform("vjp", (0,)))
    assert oracles.judge(pulled, ("auto",)) == []
    assert (oracles.compute_truth(pulled).results[0] == 2 * np.arange(1, 9).reshape(4, 2) ** 2).all()


COLLECTIVES = [
    Node("lax.psum", ({"v": 0}, ["x", "y"])),
    Node("lax.all_gather", ({"v": 0}, "x"), {"axis": 1, "tiled": True}),
    Node("lax.all_to_all", ({"v": 0}, "y"), {"split_axis": 1, "concat_axis": 0, "tiled": True}),
    Node("lax.ppermute", ({"v": 0}, "x", [[0, 1], [1, 0]])),
    Node("lax.psum_scatter", ({"v": 0}, "y"), {"scatter_dimension": 1, "tiled": True}),
]


@pytest.mark.parametrize("node", COLLECTIVES, ids=lambda node: node.op)
def test_shard_map_means_vmap_with_names(node):
    specs = {"in_specs": [[["x"], ["y"]]], "out_specs": [[["x"], ["y"]]]}
    whole = program(
        Node("shard_map", ({"v": 0},), specs, (Body(1, (node,), (1,)),)),
        Input((4, 4), "float32", (("x",), ("y",))),
    )
    assert oracles.judge(whole, ("auto", "eager")) == []


WRONG = {
    "values": lambda want: want + np.eye(4, 2, dtype=want.dtype) * 0.5,
    "factor 2": lambda want: want * 2,
    "zeros": lambda want: want * (np.arange(4)[:, None] > 1),
    "moved": lambda want: np.roll(want, 1, 0),
    "type": lambda want: want.astype(np.int32),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_results_are_seen_and_named(monkeypatch, what):
    """Planted: the partitioned program gives something else."""
    good = program(Node("jnp.add", ({"v": 0}, 1)), ROWS)

    def run(program, mode):
        return [jax.device_put(WRONG[what](oracles.compute_truth(program).results[0]))]

    monkeypatch.setattr(oracles, "run_program", run)
    (found,) = oracles.judge(good, ("auto",))
    assert (found.kind, found.what) == ("numbers", what)


def test_one_wrong_replica_is_seen(monkeypatch):
    good = program(Node("jnp.add", ({"v": 0}, 1)), ROWS)

    def run(program, mode):
        want = oracles.compute_truth(program).results[0]
        mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
        parts = [jax.device_put(want + k, d) for k, d in enumerate(mesh.devices.flat)]
        return [jax.make_array_from_single_device_arrays(want.shape, NamedSharding(mesh, P()), parts)]

    monkeypatch.setattr(oracles, "run_program", run)
    (found,) = oracles.judge(good, ("auto",))
    assert found.what == "replicas differ"


def test_a_rounding_is_no_difference_and_a_lost_row_is_one(monkeypatch):
    rounded = program(Node("nn.softmax", ({"v": 0},), {"axis": 0}), ROWS)
    for change, expected in ((lambda r: r * (1 + 1e-6), 0), (lambda r: np.vstack([r[:3], r[:1]]), 1)):
        monkeypatch.setattr(
            oracles,
            "run_program",
            lambda p, mode, change=change: [jax.device_put(change(oracles.compute_truth(p).results[0]))],
        )
        assert len(oracles.judge(rounded, ("auto",))) == expected


def test_special_values_are_compared_even_where_sums_may_round():
    """Infinity less infinity is NaN, which is no error of a result that holds it; a lost NaN is one."""
    for dtype in ("float32", "bfloat16", "float16"):
        right = np.array([np.nan, np.inf, -np.inf, 3000.0]).astype(dtype_of(dtype))
        assert not differences.mark_wrong(right.copy(), right, 1.0).any()
        for lost in ([0.0, np.inf, -np.inf, 3000.0], [np.nan, -np.inf, -np.inf, 3000.0]):
            assert differences.mark_wrong(np.array(lost).astype(right.dtype), right, 1.0).sum() == 1


def test_integers_that_wrap_are_compared_with_numpy(monkeypatch):
    """Its sums of narrow integers are wider, and are cast."""
    inputs = (Input((8,), "int8", (("x",),), {"kind": "bits", "seed": 1}),)
    whole = Program((("x", 2),), inputs, (Node("jnp.cumsum", ({"v": 0},)),), (1,), (None,))
    assert whole.whole_range and oracles.judge(whole, ("auto", "numpy")) == []
    monkeypatch.setitem(definitions.DEFINITIONS, "jnp.cumsum", lambda x: np.cumsum(x) + 1)
    said = oracles.compare_with_definition(whole, oracles.compute_truth(whole), False)
    assert said and "8 of 8" in said.text


def test_a_derivative_that_equal_elements_share_is_rounded():
    """Three equal elements have a third of it each: seed 401, number 285, was a false alarm."""
    nodes = (Node("jnp.tile", ({"v": 0}, [2, 1, 3])), Node("jnp.min", ({"v": 1},), {"axis": 2}))
    inputs = (Input((1, 1, 1), "float32", ((), (), ())), Input((2, 1), "float32", (("y",), ())))
    tied = Program((("y", 2),), inputs, nodes, (2,), (None,), Transform("vjp", (0,)))
    assert oracles.judge(tied, ("auto",)) == []


def test_a_program_without_a_truth_is_invalid():
    with pytest.raises(oracles.Invalid):
        oracles.judge(program(Node("jnp.reshape", ({"v": 0}, [3])), ROWS), ("auto",))


def test_a_value_on_the_way_that_is_not_finite_can_not_be_judged():
    """No bound follows from it: every result, or none, would be wrong."""
    outside = Input((4,), "int32", ((),), {"kind": "data", "data": [0, 1, 2, 9]})
    taken = Program(
        (("x", 2), ("y", 2)),
        (ROWS, outside, ROWS),
        (Node("jnp.take", ({"v": 0}, {"v": 1}), {"axis": 0}),),
        (2,),
        (None,),
        Transform("vjp", (0,)),
    )
    with pytest.raises(oracles.Invalid, match="on the way"):
        oracles.judge(taken, ("auto",))


def test_refusals_of_explicit_mode_are_rules_and_no_findings():
    assert oracles.judge(program(Node("lax.cumsum", ({"v": 0},), {"axis": 0}), ROWS), ("explicit",)) == []


def test_an_exception_of_the_compiler_is_internal():
    assert (
        differences.make_difference("auto", RuntimeError("INTERNAL: RET_CHECK failure 7")).kind == "internal"
    )
    assert differences.make_difference("auto", ValueError("no")).kind == "refused"
    where = "INTERNAL: no\n\nSuspected Python Code Location:\n  /home/somebody/f.py:1:2"
    assert differences.make_difference("auto", RuntimeError(where)).text == "RuntimeError: INTERNAL: no"


@pytest.mark.parametrize("mode", ["auto", "explicit", "eager", "permuted", "donated"])
def test_an_error_that_comes_while_a_program_runs_is_a_finding(monkeypatch, mode):
    """Planted: a program over a mesh that compiles, and fails when it runs, after its call has returned."""

    def fail(x):
        raise RuntimeError("INTERNAL: RET_CHECK failure")

    def late(self, keep=False):
        if self.style == "plain":
            return real(self, keep)
        return lambda x: (jax.pure_callback(fail, jax.typeof(x), x),)

    real = Builder.function
    monkeypatch.setattr(Builder, "function", late)
    (found,) = oracles.judge(program(Node("jnp.add", ({"v": 0}, 1)), ROWS), (mode,))
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        jax.effects_barrier()  # JAX raises the error of a callback once more
    assert (found.kind, found.mode) == ("internal", mode)


def test_the_plain_function_has_no_sharding():
    plain = Builder(program(Node("constrain", ({"v": 0}, [["x"], []])), ROWS), "plain", None).function()
    assert "sharding" not in str(jax.make_jaxpr(plain)(np.zeros((4, 2), np.float32)))
