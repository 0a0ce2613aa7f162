# SPDX-License-Identifier: Apache-2.0
"""Another release of JAX as an oracle: equal releases agree, and a release that differs is a finding."""

import argparse
import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from meshmark.commands import hunt
from meshmark.core.errors import BadInput
from meshmark.hunt import another_release, oracles, reports
from meshmark.hunt.hunting import choose_modes
from meshmark.hunt.workers import Settings, Slot, WorkerError
from meshmark.program_data.program import Input, Node, Program, to_json
from meshmark.timing.environments import Environment

ROWS = Input((8, 4), "float32", (("x",),), {"kind": "ints", "low": -5, "high": 9, "seed": 4})

CHANGES = """
import jax, jax.numpy as jnp
jax.__version__ = "0.0.1"
negative = jnp.negative
jnp.negative = lambda x: negative(x).at[(0,) * x.ndim].add(1)
jnp.flip = lambda x: x.astype(jnp.bfloat16)
del jnp.square
"""


def with_operation(name):
    return Program((("x", 2),), (ROWS,), (Node(name, ({"v": 0},)),), (1,), (None,))


@pytest.fixture(scope="module")
def slot(tmp_path_factory):
    """A slot beside another "release": this one with CHANGES."""
    directory = tmp_path_factory.mktemp("there")
    (directory / "sitecustomize.py").write_text(CHANGES)
    python = directory / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={directory}:"$PYTHONPATH" exec {sys.executable} "$@"\n', encoding="utf-8"
    )
    python.chmod(0o755)
    settings = Settings(environment={"JAX_PLATFORMS": "cpu"}, against=Environment("there", str(python)))
    with Slot(settings) as made:
        yield made


def test_what_both_releases_compute_alike_is_right(slot):
    answer = slot.judge(with_operation("jnp.sign"), ("auto", oracles.RELEASE))
    assert (answer.differences, answer.not_run, answer.invalid) == ([], [], "")


@pytest.mark.parametrize("modes", [("auto", oracles.RELEASE), (oracles.RELEASE,)])
def test_a_number_that_differs_is_found(slot, modes):
    (found,) = slot.judge(with_operation("jnp.negative"), modes).differences
    assert (found["mode"], found["kind"], found["what"]) == ("release", "oracles", "JAX 0.0.1")
    assert "differs from JAX 0.0.1: 1 of 32, at (0, 0)" in found["text"]


def test_another_dtype_is_found(slot):
    (found,) = slot.judge(with_operation("jnp.flip"), (oracles.RELEASE,)).differences
    assert found["what"] == "type, JAX 0.0.1" and "float32(8, 4) for bfloat16(8, 4)" in found["text"]


def test_a_function_that_the_other_release_lacks_is_not_run(slot):
    answer = slot.judge(with_operation("jnp.square"), ("auto", oracles.RELEASE))
    assert answer.differences == [] and answer.not_run == ["under JAX 0.0.1"]


def test_an_environment_without_jax_is_named(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    settings = Settings(environment={"JAX_PLATFORMS": "cpu"}, against=Environment("there", str(python)))
    with (
        Slot(settings) as slot,
        pytest.raises(WorkerError, match=f"{python} starts no worker: does it have JAX"),
    ):
        slot.judge(with_operation("jnp.sign"), ("auto", oracles.RELEASE))


def test_a_kept_finding_holds_the_results_of_the_other_release(slot):
    program = with_operation("jnp.negative")
    (found,) = slot.judge(program, (oracles.RELEASE,)).differences
    finding = reports.finding_of("negative", to_json(program), found, slot, {})
    expected = reports.arrays(program, finding.expected)[0]
    here = another_release.read_result(slot.truth(program)[0])
    assert [tuple(at) for at in np.argwhere(expected != here)] == [(0, 0)]
    assert "under another release of JAX" in reports.script_of(finding)


@pytest.mark.parametrize(
    "result",
    [
        np.array([[1.5, np.nan], [np.inf, -0.0]], np.float32),
        np.array([2**62 + 1, -(2**63)], np.int64),
        np.array([True, False]),
        np.array([1 + 2j, complex(np.nan, -3)], np.complex64),
        np.array([0.25, -3], jnp.bfloat16),
        np.array(7, np.uint8),
        np.zeros((0, 3), np.float32),
    ],
    ids=lambda result: str(result.dtype),
)
def test_results_come_back_as_they_were_written(result):
    again = another_release.read_result(json.loads(json.dumps(oracles.write_result(result))))
    assert again.dtype == result.dtype and again.shape == result.shape
    assert np.array_equal(again, result, equal_nan=result.dtype.kind in "fc")


def test_each_program_is_compared_where_a_release_is_named():
    there = Settings(against=Environment("there", sys.executable))
    assert all(choose_modes(n, there)[-1] == oracles.RELEASE for n in range(16))
    assert not any(oracles.RELEASE in choose_modes(n, Settings()) for n in range(16))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"against": "0.11.2", "topology": "v5e:2x4"}, "leave out --topology"),
        ({"against": "0.11.2", "oracles": "one"}, "--oracles one"),
        ({"against": "commit:HEAD"}, "name a release of JAX"),
        ({"against": "no-such-python"}, "there is no 'no-such-python'"),
    ],
)
def test_what_can_not_be_compared_is_refused(given, said, tmp_path):
    options = argparse.Namespace(**{"topology": None, "oracles": "turns"} | given)
    with pytest.raises(BadInput, match=said):
        hunt._find_other_release(options, tmp_path)
