# SPDX-License-Identifier: Apache-2.0
"""One device, and devices other than CPUs: the drawn programs, how they are judged, and a planted fault of each."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from meshmark.commands.main import main
from meshmark.core.errors import BadInput
from meshmark.hunt import accelerators, generator, logs, oracles, places
from meshmark.hunt.hunting import choose_modes
from meshmark.hunt.workers import Answer, Settings, Slot, Worker
from meshmark.program_data.building import Builder
from meshmark.program_data.program import Input, Node, Program

ROWS = Input((8, 8), "float32", ((), ()), {"kind": "ints", "low": -5, "high": 9, "seed": 4})
PRODUCT = Program((("x", 1),), (ROWS,), (Node("jnp.matmul", ({"v": 0}, {"v": 0})),), (1,), (None,))
LARGE = replace(PRODUCT, inputs=(replace(ROWS, fill=ROWS.fill | {"high": 2000}),))


@pytest.fixture
def accelerator(monkeypatch):
    """The CPU devices of this process stand for those of an accelerator, beside the first of them."""
    monkeypatch.setattr(accelerators, "find_backend", lambda: "gpu")
    monkeypatch.setattr(accelerators, "find_host_device", lambda: jax.devices()[0])


def test_one_device_draws_programs_of_useful_sizes():
    meshes = generator.meshes_of(1)
    drawn = [generator.draw(seed, n, None, meshes) for seed in (3, 4, 5) for n in range(40)]
    assert {p.mesh_size for p in drawn} == {1}
    sizes = [i.size for p in drawn for i in p.inputs]
    assert np.median(sizes) >= 8 and max(sizes) > 100
    assert len({op for p in drawn for op in p.operations}) > 40


def test_one_device_has_no_other_order_and_no_other_mesh():
    found = {m for n in range(16) for m in choose_modes(n, Settings(devices=1))}
    assert found == {"auto", "explicit", "eager", "donated", "manual", oracles.NUMPY, oracles.DERIVATIVE}
    assert oracles.HOST in choose_modes(0, Settings(devices=1, backend="gpu"))
    assert oracles.HOST not in choose_modes(0)


def test_an_accelerator_draws_nothing_that_jumps_behind_a_convolution():
    jumps = ("jnp.sign", "jnp.argmax", "jnp.argmin", "jnp.argsort", "lax.sort", "lax.top_k")
    weights = {"window": 9.0, "sort": 9.0, "vmap": 0.0, "scan": 0.0, "cond": 0.0, "shard_map": 0.0}

    def jumping(inexact):
        found = 0
        for n in range(100):
            ops = generator.draw(6, n, weights, generator.meshes_of(1), inexact).operations
            first = next((k for k, op in enumerate(ops) if op in accelerators.CONVOLUTIONS), None)
            found += first is not None and any(op in jumps for op in ops[first:])
        return found

    assert jumping(frozenset())
    assert not jumping(accelerators.KINDS)


def test_right_programs_pass_on_an_accelerator(accelerator):
    for program in (PRODUCT, LARGE):
        assert oracles.judge(program, ("auto", oracles.HOST)) == []


def test_an_accelerator_that_is_wrong_differs_from_the_cpu(accelerator, monkeypatch):
    real = oracles.compute_truth

    def wrong(program, device=None):
        found = real(program, device)
        if device is None:
            found.results[0] = found.results[0] + np.eye(8, dtype="float32")
        return found

    monkeypatch.setattr(oracles, "compute_truth", wrong)
    (found,) = oracles.judge(PRODUCT, (oracles.HOST,))
    assert (found.mode, found.kind) == ("host", "oracles") and "8 of 64" in found.text
    assert (oracles.compute_expected(PRODUCT, oracles.HOST)[0] == real(PRODUCT).results[0]).all()


@pytest.mark.parametrize(("program", "asked"), [(PRODUCT, None), (LARGE, "highest")])
def test_products_take_the_default_precision_only_where_values_survive_it(
    accelerator, monkeypatch, program, asked
):
    """Factors of TF32 and bfloat16 hold small integers; larger ones would be rounded, and look like wrong numbers."""
    seen = []

    def watched(program, mode):
        seen.append(jax.config.jax_default_matmul_precision)
        return oracles.run_program(program, mode)

    assert (oracles.compute_truth(program).largest <= accelerators.WHOLE) == (asked is None)
    oracles.judge(program, ("auto",), watched)
    assert seen == [asked]


def test_a_convolution_may_round_on_an_accelerator(accelerator):
    """A thousandth of a percent off is an algorithm's rounding on an accelerator, and wrong on a CPU."""
    image = Input((1, 1, 8), "float32", (), {"kind": "ints", "low": -5, "high": 9, "seed": 4})
    node = Node("lax.conv_general_dilated", ({"v": 0}, {"v": 0}), {"window_strides": [1], "padding": "SAME"})
    program = Program((("x", 1),), (image,), (node,), (1,), (None,))

    def rounded(program, mode):
        return [r + np.float32(1e-4) for r in oracles.run_program(program, mode)]

    def off(program, mode):
        return [r + np.float32(1) for r in oracles.run_program(program, mode)]

    assert oracles.judge(program, ("auto",), rounded) == []
    assert [d.kind for d in oracles.judge(program, ("auto",), off)] == ["numbers"]
    accelerators_off = pytest.MonkeyPatch()
    with accelerators_off.context() as patch:
        patch.setattr(accelerators, "find_backend", lambda: "cpu")
        assert [d.kind for d in oracles.judge(program, ("auto",), rounded)] == ["numbers"]


def test_a_device_whose_memory_others_hold_is_no_finding(accelerator):
    def full(program, mode):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 512 bytes.")

    left = []
    assert oracles.judge(PRODUCT, ("auto",), full, left) == []
    assert left == ["the memory of the device is full"]


def test_a_worker_whose_device_is_spoilt_judges_nothing_more(monkeypatch):
    """After an illegal address all that follows in the process fails: it would be findings of right programs."""
    ended = []
    monkeypatch.setattr(Slot, "_start", lambda slot: Spoilt(slot.directory, ended))
    with Slot(Settings(spare=False)) as slot:
        answer: Answer = slot.judge(PRODUCT)
        assert answer.differences and ended == [0]
        assert slot.judge(PRODUCT).differences and len(ended) == 2
        assert slot.restarts == 2


class Spoilt(Worker):
    def __init__(self, directory, ended):
        self.name, self.ready, self.place, self.ended = "spoilt", True, {}, ended

    def ask(self, job):
        return {"differences": [{"mode": "auto", "kind": "internal"}], "spoilt": True}, None

    def end(self):
        self.ended.append(len(self.ended))


class Elsewhere:
    """A slot on an accelerator of one device."""

    backend, number = "gpu", 1

    def __init__(self, settings):
        self.settings = settings

    def place(self):
        return {"backend": self.backend, "devices": self.number}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_an_accelerator_has_the_devices_that_it_has(monkeypatch):
    monkeypatch.setattr(places, "Slot", Elsewhere)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    found = places.adapt_to_device_count(None, Settings())
    assert (found.backend, found.devices, found.spare) == ("gpu", 1, True)
    assert found.environment["JAX_PLATFORMS"] == "cuda,cpu"
    assert found.environment["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert {len(m) and int(np.prod(m)) for m in places.list_meshes(found)} == {1}
    with pytest.raises(BadInput, match="this machine has 1 device of gpu"):
        places.adapt_to_device_count(8, Settings())
    monkeypatch.setattr(Elsewhere, "backend", "tpu")
    assert not places.adapt_to_device_count(None, Settings()).spare


def test_a_hunt_on_another_backend_does_not_go_on(tmp_path):
    now = logs.make_head(3, "", 1, backend="gpu")
    file = tmp_path / "hunt.jsonl"
    file.write_text(json.dumps(logs.stamp(logs.make_head(3, "", 1))) + "\n")
    with pytest.raises(BadInput, match="backend cpu and not gpu: go on with JAX_PLATFORMS=cpu"):
        logs.read_log(file, now)


def test_a_hunt_on_one_device(tmp_path, capsys):
    words = [
        "--num-devices",
        "1",
        "--seed",
        "7",
        "--programs",
        "4",
        "--workers",
        "1",
        "--known",
        str(tmp_path),
    ]
    assert main(["hunt", *words, "--record", str(tmp_path / "hunt.jsonl")]) in (0, 1)
    assert "4 programs" in capsys.readouterr().out
    head = json.loads((tmp_path / "hunt.jsonl").read_text().splitlines()[0])
    assert (head["devices"], head["backend"]) == (1, "cpu")


def test_the_largest_value_is_of_the_function_alone():
    """Why transforms and bodies take the highest precision: the truth does not see their values."""
    builder = Builder(PRODUCT, "plain", None)
    assert builder.function(keep=True)(np.ones((8, 8), np.float32))[1] == 8
    pulled = replace(PRODUCT, transform=replace(PRODUCT.transform, kind="vjp", wrt=(0,)))
    assert accelerators.survives(PRODUCT, 8.0, False)
    assert not accelerators.survives(pulled, 8.0, False)
    assert not accelerators.survives(PRODUCT, 8.0, True)
