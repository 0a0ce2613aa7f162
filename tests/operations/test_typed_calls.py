# SPDX-License-Identifier: Apache-2.0
"""Calls over Explicit axes: what is a refusal, which refusals are listed, and results that lie as their types say."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.operation import CUT_ARRAYS
from meshmark.operations.programs.explicit import typed_calls

EVERY = "cut as (d)"


@pytest.fixture
def rows():
    mesh = Mesh(np.array(jax.devices()[:8]), ("d",), axis_types=(AxisType.Explicit,))
    return jax.device_put(np.arange(64, dtype=np.float32).reshape(16, 4), NamedSharding(mesh, P("d")))


def test_a_right_call_runs_and_lies_as_its_type_says(rows):
    found = typed_calls.run_typed({"double": lambda x: 2 * x, "sum": lambda x: x.sum()}, EVERY, [rows])
    assert found["double"].sharding.spec == P("d", None) and float(found["sum"]) == 2016


def test_a_refusal_that_no_release_has_is_a_fault(rows):
    def refuse(x):
        raise ValueError("not over Explicit axes")

    with pytest.raises(RuntimeError, match=r"refused, cut as .*, over Explicit axes is refused: not over"):
        typed_calls.run_typed({"refused": refuse}, EVERY, [rows])


def test_a_listed_refusal_leaves_the_others(rows):
    name, where = min(typed_calls.listed_refusals())

    def refuse(x):
        raise ValueError("no")

    assert list(typed_calls.run_typed({name: refuse, "sum": lambda x: x.sum()}, where, [rows])) == ["sum"]


def test_on_other_numbers_of_devices_a_call_that_takes_no_whole_array_is_a_fault():
    mesh = Mesh(np.array(jax.devices()[:4]), ("d",), axis_types=(AxisType.Explicit,))
    rows = jax.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P("d")))

    def refuse(x):
        raise ValueError("never")

    def refuse_parts(x):
        if jax.typeof(x).sharding.spec[0]:
            raise ValueError("not in parts")
        return x

    assert typed_calls.run_typed({"parts": refuse_parts}, EVERY, [rows]) == {}
    with pytest.raises(RuntimeError, match="refused of whole arrays over Explicit axes is refused: never"):
        typed_calls.run_typed({"refused": refuse}, EVERY, [rows])


def test_a_mistake_in_a_call_is_no_refusal(rows):
    def mistaken(x):
        return {}["absent"]

    with pytest.raises(KeyError):
        typed_calls.run_typed({"mistaken": mistaken}, EVERY, [rows])


def test_a_result_that_lies_elsewhere_than_its_type_says_is_a_fault(rows, monkeypatch):
    compiled = type(jax.jit(lambda x: x).lower(rows).compile())
    real = compiled.__call__

    def elsewhere(self, *given):
        whole = NamedSharding(rows.sharding.mesh, P())
        return jax.tree.map(lambda y: jax.device_put(y, whole), real(self, *given))

    monkeypatch.setattr(compiled, "__call__", elsewhere)
    with pytest.raises(RuntimeError, match=r"has the type .* and is placed as"):
        typed_calls.run_typed({"double": lambda x: 2 * x}, EVERY, [rows])


def test_each_listed_refusal_has_a_reason():
    listed = typed_calls.listed_refusals()
    text = (typed_calls.files("meshmark.operations") / "data/explicit_refusals.tsv").read_text()
    lines = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(listed) and all(len(line) == 4 and line[3] for line in lines)
    assert lines == sorted(lines)


def test_each_listed_refusal_is_of_a_call_that_is_judged(monkeypatch):
    """A name with a mistake would excuse nothing, and the refusal would be a fault."""
    from meshmark.operations.programs.cuts import running as cuts
    from meshmark.operations.programs.explicit import arrays as explicit_arrays
    from meshmark.operations.programs.forms.base import explicit

    devices = np.array(jax.devices()[:8])
    meshes = [explicit(Mesh(devices, ("d",))), explicit(Mesh(devices.reshape(-1, 2), ("x", "y")))]
    seen = set()
    monkeypatch.setattr(
        cuts, "run_typed", lambda functions, where, _: seen.update((n, where) for n in functions) or {}
    )
    for form in explicit_arrays.EXPLICIT_ARRAYS.values():
        form(*meshes)
    assert typed_calls.listed_refusals() <= seen


def test_gradients_by_differences_show_a_doubled_one(monkeypatch):
    import jax.numpy as jnp

    real = jnp.tril
    monkeypatch.setattr(jnp, "tril", lambda x, *a: 2 * real(x, *a) - jax.lax.stop_gradient(real(x, *a)))
    devices = np.array(jax.devices()[:8])
    with pytest.raises(RuntimeError, match="gradient of tril"):
        CUT_ARRAYS["slopes_pads"](Mesh(devices, ("d",)), Mesh(devices.reshape(-1, 2), ("x", "y")))
