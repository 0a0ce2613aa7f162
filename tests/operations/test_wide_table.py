# SPDX-License-Identifier: Apache-2.0
"""Functions of whole arrays, gradients of collectives, transformations and refusals each fail with a planted fault."""

from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from meshmark.core.meshes import MeshShape
from meshmark.core.verdicts import worst
from meshmark.judge.checks import Judge
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.base import Request, Variant
from meshmark.operations.programs import refusals
from meshmark.operations.selection import Selection


def verdict(case_id):
    """The verdict of a case on the devices here."""
    return worst(line.verdict for line in Judge(tuple(jax.devices())).run(cases.find(case_id, 8)))


def off_by_one(function):
    """The function with one more in every element."""
    return lambda *arrays, **options: function(*arrays, **options) + 1


FAULTS = {
    "flip/of=x.y,dim=0/auto/2x4/float32/4KiB": (jnp, "flip", lambda f: lambda x, axis: x),
    "flip_gradient/of=x.y,dim=0/auto/2x4/float32/4KiB": (jnp, "flip", lambda f: lambda x, axis: x),
    "cumulative/of=x.y,dim=0,function=cumsum,reverse/manual/2x4/float32/4KiB": (lax, "cumsum", off_by_one),
    "transform/transform=remat,axes=x+y/manual/2x4/float32/4KiB": (
        lax,
        "psum",
        lambda f: lambda x, axes: f(x, axes[:1]),
    ),
    "program_form/form=partial/host/2x4/float32/4KiB": (lax, "psum", off_by_one),
    "creation/of=x.y,function=ones/auto/2x4/float32/4KiB": (jnp, "ones", off_by_one),
    "uneven_scatter/kind=over_all/auto/2x4/float32/n8": (jnp, "zeros", off_by_one),
    "sorted_rows/kind=even/auto/2x4/float32/n8": (lax, "sort", lambda f: lambda x, dimension: x),
    "padded_windows/kind=sharded/auto/2x4/float32/n8": (lax, "reduce_window", off_by_one),
    "fourier_onward/kind=kept/auto/2x4/float32/n8": (jnp.fft, "fft", off_by_one),
    "sum_over_one/kind=manual/host/2x4/float32/n8": (lax, "psum", off_by_one),
    "sorted_part/kind=even/auto/2x4/float32/n8": (jnp, "sort", lambda f: lambda x: x),
    "sum_beside/kind=psum/host/2x4/float32/n8": (lax, "psum", off_by_one),
    "joined_pads/kind=there_twice/auto/2x4/float32/n8": (lax, "pad", off_by_one),
    "gathered_part/kind=whole/host/2x4/float32/n8": (lax, "gather", off_by_one),
}


@pytest.mark.parametrize("case_id", FAULTS)
def test_a_fault_is_caught(case_id):
    module, name, change = FAULTS[case_id]
    assert verdict(case_id) == "pass"
    with patch.object(module, name, change(getattr(module, name))):
        assert verdict(case_id) in ("fail", "error")


def test_a_call_that_is_not_refused_fails():
    case_id = "refusal/kind=longer_spec/host/2x4/float32/4KiB"
    assert verdict(case_id) == "pass"
    with patch.dict(refusals.REFUSALS, longer_spec=(lambda mesh, x, a: np.asarray(x), "rank")):
        assert verdict(case_id) == "fail"


def test_a_call_that_is_refused_for_another_reason_is_an_error():
    def other(mesh, x, a):
        raise ValueError("something else")

    with patch.dict(refusals.REFUSALS, longer_spec=(other, "rank")):
        assert verdict("refusal/kind=longer_spec/host/2x4/float32/4KiB") == "error"


@pytest.mark.parametrize("name", ["partly_sharded", "partly_sharded_gradient"])
def test_the_standard_profile_has_each_function_of_partly_sharded_arrays(name):
    """In a group, or alone where it goes wrong somewhere; what a drawn matrix can't have is in full alone."""
    operation, found = OPERATIONS[name], set()
    for case in cases.cases(Selection(operations=(name,)), 8):
        group, names = (case.plan.options[option] for option in ("group", "names"))
        found |= {(group, function) for function in names}
    taken = {group: operation.taken(group, "jit") for group in operation.groups}
    assert found == {(group, function) for group in taken for function in taken[group]}


def test_turns_differ_in_shape_and_sharding():
    operation = OPERATIONS["partly_sharded"]
    places = {
        (a.shape, a.spec)
        for turn in range(4)
        for a in operation.plan(request(operation, "reads", turn)).arguments
    }
    assert {spec for _, spec in places} == {
        *(("z", None), (None, "x"), (("z", "x"), None), ("x", "z")),
        (("z", "y", "x"), None),
    }
    assert {shape for shape, _ in places} == {(16, 8), (8, 8)}


def request(operation, group, turn):
    """The program of a turn on a mesh of three axes."""
    return Request(Variant.of(0, group=group, turn=turn), MeshShape((2, 2, 2)), "float32", "64B")
