# SPDX-License-Identifier: Apache-2.0
"""NumPy, other meshes, donation, 64-bit types and special values: right programs pass, and a planted fault is found."""

import ast
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshmark.hunt import generator, oracles, scripts
from meshmark.hunt.generator import draw
from meshmark.hunt.hunting import ORACLES, choose_modes
from meshmark.hunt.rules import measure_weight, narrow_dtypes
from meshmark.hunt.workers import Settings
from meshmark.program_data import definitions, values
from meshmark.program_data.building import Builder, find_dtypes
from meshmark.program_data.program import Body, Input, Node, Program, from_json, to_json

ROWS = Input((8, 4), "float32", (("x",), ("y",)), {"kind": "ints", "low": -5, "high": 9, "seed": 4})
AXES = (("x", 2), ("y", 4))


def program(*nodes, inputs=(ROWS,), out=None, **more):
    return Program(AXES, inputs, nodes, (len(inputs) + len(nodes) - 1,), (out,), **more)


ROLLED = program(Node("jnp.roll", ({"v": 0}, 1), {"axis": 0}))

V = {"v": 0}
DEFINED = {
    "lax.pad": (
        V,
        {"call": "jnp.array", "kwargs": {"object": 7, "dtype": "float32"}},
        [[-1, 2, 1], [1, -1, 0]],
    ),
    "lax.slice": (V, [1, 0], [8, 3], [3, 2]),
    "lax.rev": (V, [0, 1]),
    "lax.dynamic_slice": (V, [7, -1], [3, 2]),
    "lax.cumsum": (V,),
    "lax.cummin": (V,),
    "lax.top_k": (V, 2),
    "jnp.argsort": (V,),
    "jnp.einsum": ("ab,ac->cb", V, V),
    "jnp.sum": (V,),
    "jnp.pad": (V, [[1, 0], [2, 1]]),
    "lax.split": (V, [3, 5]),
    "at.set": (V, [{"slice": [1, None, None]}], 5),
    "at.add": (V, [[0, 3, 3]], 2),
    "at.max": (V, [-1, {"slice": [None, None, 2]}], 4),
    "getitem": (V, [{"slice": [None, None, -1]}, -2]),
    "lax.broadcasted_iota": ("int32", [4, 3], 1),
    "lax.slice_in_dim": (V, -5, 8),
    "lax.dynamic_slice_in_dim": (V, 7, 3),
    "lax.dynamic_index_in_dim": (V, -1),
    "lax.dynamic_update_slice_in_dim": (V, V, 2),
}
OPTIONS = {
    "lax.cumsum": {"axis": 0, "reverse": True},
    "lax.cummin": {"axis": 1},
    "jnp.argsort": {"axis": 1, "stable": True, "descending": True},
    "jnp.pad": {"mode": "reflect"},
    "lax.split": {"axis": 0},
    "lax.slice_in_dim": {"stride": 2, "axis": 0},
    "lax.dynamic_slice_in_dim": {"axis": 0},
    "lax.dynamic_update_slice_in_dim": {"axis": 0},
    "lax.dynamic_index_in_dim": {"axis": 1, "keepdims": False},
}


@pytest.mark.parametrize("op", DEFINED)
def test_a_definition_gives_what_jax_gives(op):
    made = program(Node(op, DEFINED[op], OPTIONS.get(op, {})))
    if op in ("lax.top_k", "lax.split"):
        made = program(*made.nodes, Node("item", ({"v": 1}, 1)))
    assert definitions.compute_results(made, find_dtypes(made))[0].size
    assert oracles.judge(made, (oracles.NUMPY,)) == []


def test_jax_that_is_wrong_without_sharding_is_seen_beside_numpy(monkeypatch):
    """The partitioned program is wrong in the same way, so that nothing else can see it."""
    real = jnp.roll
    monkeypatch.setattr(jnp, "roll", lambda x, by, axis: real(x, by + 1, axis=axis))
    assert oracles.judge(ROLLED, ("auto",)) == []
    (found,) = oracles.judge(ROLLED, ("auto", oracles.NUMPY))
    assert (found.mode, found.kind) == ("numpy", "oracles") and "differs from NumPy" in found.text
    right = np.roll(values.make_array(ROWS), 1, 0)
    assert np.array_equal(oracles.compute_expected(ROLLED, "numpy")[0], right)
    assert not np.array_equal(oracles.compute_expected(ROLLED, "auto")[0], right)


def test_what_has_no_definition_is_left(monkeypatch):
    other = program(Node("jnp.piecewise", ({"v": 0},)))
    with pytest.raises(definitions.Undefined):
        definitions.compute_results(other, ["float32"])


def test_a_number_that_numpy_does_not_convert_is_left(monkeypatch):
    """JAX takes -1 as the largest unsigned integer, and NumPy 2 raises; older ones convert it as JAX does."""
    small = replace(ROWS, dtype="uint8", fill={"kind": "count"})
    made = program(Node("jnp.where", (V, V, -1)), inputs=(small,))
    assert oracles.judge(made, (oracles.NUMPY,)) == []

    def raising(*_):
        raise OverflowError("Python integer -1 out of bounds for uint8")

    monkeypatch.setitem(definitions.DEFINITIONS, "jnp.where", raising)
    with pytest.raises(oracles.Inapplicable, match="out of bounds"):
        oracles.compare_with_definition(made, oracles.compute_truth(made), False)
    assert oracles.judge(made, (oracles.NUMPY,)) == []


def test_a_dtype_that_numpy_lacks_is_left(monkeypatch):
    rows = replace(ROWS, dtype="bfloat16")
    made = program(Node("jnp.einsum", ("ab,ab->a", V, V)), inputs=(rows,))
    assert definitions.compute_results(made, find_dtypes(made))[0].dtype.name == "bfloat16"
    monkeypatch.setattr(definitions, "KINDS", definitions.KINDS - {"bfloat16"})
    with pytest.raises(definitions.Undefined, match="bfloat16"):
        definitions.compute_results(made, find_dtypes(made))


@pytest.mark.parametrize("mode", ["permuted", "turned", "donated"])
def test_right_programs_pass_on_other_meshes_and_donated(mode):
    assert oracles.judge(ROLLED, (mode,)) == []
    two = program(Node("jnp.add", (V, {"v": 1})), inputs=(ROWS, ROWS))
    assert oracles.judge(two, (mode,)) == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_nan_in_an_argument_that_is_not_donated_is_no_change(dtype):
    special = Input((8, 4), dtype, ((), ()), {"kind": "special", "seed": 25})
    assert np.isnan(values.make_array(special)).any()
    assert oracles.judge(program(Node("jnp.flip", (V,)), inputs=(ROWS, special)), ("donated",)) == []


def test_a_program_that_asks_for_its_place_is_seen_on_other_devices(monkeypatch):
    """Planted: what is right only while the mesh has the devices in their order."""
    real = Builder.node

    def node(self, node, values, outer):
        r = real(self, node, values, outer)
        ordered = self.mesh is None or [d.id for d in self.mesh.devices.flat] == sorted(
            d.id for d in self.mesh.devices.flat
        )
        return r if ordered else r + 1

    monkeypatch.setattr(Builder, "node", node)
    assert [d.mode for d in oracles.judge(ROLLED, ("auto", "turned", "permuted"))] == ["permuted"]


def test_a_program_that_knows_its_mesh_is_seen_on_another(monkeypatch):
    real = Builder.node

    def node(self, node, values, outer):
        r = real(self, node, values, outer)
        return r + 1 if self.mesh is not None and self.mesh.shape["x"] == 4 else r

    monkeypatch.setattr(Builder, "node", node)
    assert [d.mode for d in oracles.judge(ROLLED, ("auto", "turned", "permuted"))] == ["turned"]


@pytest.mark.parametrize(
    "other",
    [
        Program((("x", 8),), (Input((8,), "float32", (("x",),)),), ROLLED.nodes, (1,), (None,)),
        program(*ROLLED.nodes, inputs=(Input((2, 4), "float32", (("x",), ("y",))),)),
        program(*ROLLED.nodes, inputs=(Input((6, 4), "float32", ((), ("y",))),), out=(("x",), ())),
        program(Node("constrain", (V, [[], ["x"]])), inputs=(Input((8, 2), "float32", (("y",), ())),)),
    ],
)
def test_a_mesh_that_does_not_fit_is_left(other):
    with pytest.raises(oracles.Inapplicable):
        oracles.turn_mesh(other)
    assert oracles.judge(other, ("turned",)) == []


def test_an_argument_that_a_donation_takes_along_is_seen(monkeypatch):
    """Planted: the second argument is donated in the place of the first."""
    two = program(Node("jnp.add", (V, {"v": 1})), inputs=(ROWS, ROWS))
    real = oracles.apply_jit

    def jitted(program, mode, mesh, use, donate=()):
        return real(program, mode, mesh, use, (1,) if donate else ())

    monkeypatch.setattr(oracles, "apply_jit", jitted)
    assert oracles.judge(two, ("auto",)) == []
    (found,) = oracles.judge(two, ("donated",))
    assert (found.kind, found.what) == ("numbers", "argument")


WIDE = program(
    Node("jnp.add", (V, 1)),
    inputs=(Input((8, 4), "int64", (("x",), ()), {"kind": "data", "data": [2**40] * 32}),),
    x64=True,
)


def test_64_bits_are_kept_and_their_loss_is_seen(monkeypatch):
    assert oracles.compute_truth(WIDE).results[0].dtype == np.int64
    assert oracles.judge(WIDE, ("auto", "explicit", "eager", "permuted", "turned", oracles.NUMPY)) == []
    assert from_json(json.loads(json.dumps(to_json(WIDE)))) == WIDE
    assert any(i.dtype == "int32" and not p.x64 for p in narrow_dtypes(WIDE) for i in p.inputs)
    assert all(measure_weight(p) < measure_weight(WIDE) for p in narrow_dtypes(WIDE))
    real = oracles.run_program

    def run(program, mode):
        return [jax.device_put(np.asarray(r).astype(np.int32)) for r in real(program, mode)]

    monkeypatch.setattr(oracles, "run_program", run)
    (found,) = oracles.judge(WIDE, ("auto",))
    assert found.what == "type"


SPECIAL = program(
    Node("jnp.roll", (V, 1), {"axis": 0}),
    inputs=(Input((8, 4), "float32", (("x",), ("y",)), {"kind": "special", "seed": 3}),),
)


def test_special_values_are_there_and_pass():
    given = values.make_array(SPECIAL.inputs[0])
    assert np.isnan(given).any() and np.isinf(given).any() and (np.signbit(given) & (given == 0)).any()
    assert oracles.judge(SPECIAL, ("auto", "explicit", "permuted", "turned")) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda r: np.nan_to_num(r, nan=0.0, posinf=np.inf, neginf=-np.inf),
        lambda r: np.where(np.isinf(r), np.nan, r),
        lambda r: np.where(r == 3, np.nan, r),
        lambda r: np.where(np.isneginf(r), np.inf, r),
    ],
    ids=["NaN lost", "infinity lost", "NaN made", "sign of infinity"],
)
def test_a_special_value_that_is_changed_is_seen(monkeypatch, change):
    want = oracles.compute_truth(SPECIAL).results[0]
    assert not np.array_equal(change(want).view(np.int32), want.view(np.int32))
    monkeypatch.setattr(oracles, "run_program", lambda program, mode: [jax.device_put(change(want))])
    (found,) = oracles.judge(SPECIAL, ("auto",))
    assert found.kind == "numbers"


def test_scripts_of_special_and_wide_programs_hold(tmp_path):
    for made, said in ((SPECIAL, "equal_nan=True"), (WIDE, "jax_enable_x64")):
        text = scripts.write_script(made, "auto", ["A title"], oracles.compute_truth(made).results)
        assert said in text and ast.parse(text)
    assert all(
        isinstance(v, (float, int, str))
        for v in oracles.write_result(oracles.compute_truth(SPECIAL).results[0])["data"]
    )
    json.dumps(oracles.write_result(oracles.compute_truth(SPECIAL).results[0]), allow_nan=False)


@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_a_share_of_the_programs_has_them(monkeypatch, shares):
    monkeypatch.setattr(generator, "X64", shares[0])
    monkeypatch.setattr(generator, "SPECIAL", shares[1])
    made = [draw(13, n) for n in range(2)]
    assert {p.x64 for p in made} == {shares[0] == 1.0}
    assert {p.special for p in made} == {shares[1] == 1.0}
    assert not any(p.transform.kind for p in made if p.special)
    if shares[0]:
        assert any(i.dtype in ("float64", "int64") for p in made for i in p.inputs)


def test_every_mode_has_its_turn():
    beside = {oracles.NUMPY, oracles.DERIVATIVE}
    assert {m for n in range(16) for m in choose_modes(n)} == {*oracles.MODES, *beside}
    over = {m for n in range(16) for m in choose_modes(n, Settings(topology="v5e:2x4"))}
    assert over == {"auto", "explicit", "manual"}


@pytest.mark.parametrize(
    ("settings", "every"),
    [
        (Settings(), (*oracles.MODES, oracles.NUMPY, oracles.DERIVATIVE)),
        (
            Settings(devices=1),
            ("auto", "explicit", "eager", "donated", "manual", oracles.NUMPY, oracles.DERIVATIVE),
        ),
        (
            Settings(devices=1, backend="gpu"),
            ("auto", "explicit", "eager", "donated", "manual", oracles.NUMPY, oracles.HOST),
        ),
        (Settings(topology="v5e:2x4"), ("auto", "explicit", "manual")),
        (Settings(ranks=2), ("auto", "explicit", "permuted", "manual")),
    ],
    ids=["CPU", "one device", "GPU", "topology", "ranks"],
)
def test_all_oracles_judge_each_program_or_one_does(settings, every):
    for number in range(16):
        assert choose_modes(number, settings, "all")[0] == "auto"
        assert sorted(choose_modes(number, settings, "all")) == sorted(every)
        assert choose_modes(number, settings, "one") == ("auto",)
        assert set(choose_modes(number, settings)) <= set(every)


def test_a_fault_of_another_mode_is_seen_by_all_oracles(monkeypatch):
    """Planted: donation takes another argument along. In turns most programs do not ask for it, so it stays unseen."""
    real = oracles.run_program

    def run(program, mode):
        if mode == "donated":
            raise oracles.ChangedArgument("argument 1 was not donated, and is changed")
        return real(program, mode)

    monkeypatch.setattr(oracles, "run_program", run)
    seen = {how: [d.mode for d in oracles.judge(ROLLED, choose_modes(0, None, how))] for how in ORACLES}
    assert seen == {"all": ["donated"], "turns": [], "one": []}


def test_a_negative_number_beside_an_unsigned_type_is_left():
    """JAX wraps the number, and NumPy compares it as it is."""
    given = Input((2,), "uint8", ((),))
    for number, beside in ((-1, None), (1, [True, False])):
        program = Program((("x", 1),), (given,), (Node("jnp.less_equal", ({"v": 0}, number)),), (1,), (None,))
        if beside is None:
            with pytest.raises(definitions.Undefined, match="negative"):
                definitions.compute_results(program, find_dtypes(program))
        else:
            assert definitions.compute_results(program, find_dtypes(program))[0].tolist() == beside


@pytest.mark.parametrize(("form", "rounded"), [("scan", True), ("fori", True), ("map", False)])
def test_a_loop_that_halves_numbers_again_and_again_rounds(form, rounded):
    body = Body(1, (Node("jnp.gradient", ({"v": 0},)),), (1,))
    given = Input((4,), "float32", ((),))
    program = Program((("x", 1),), (given,), (Node(form, ({"v": 0},), {}, (body,)),), (1,), (None,))
    assert oracles.rounds(program) is rounded
    assert not oracles.rounds(replace(program, nodes=body.nodes))
