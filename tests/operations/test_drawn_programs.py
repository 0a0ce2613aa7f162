# SPDX-License-Identifier: Apache-2.0
"""The drawn programs: their data, how they fit other meshes, and what a case says of a wrong one."""

import json
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from meshmark.hunt.generator import KINDS
from meshmark.operations.base import Missing
from meshmark.operations.programs import drawn
from meshmark.program_data import slopes
from tests.studies.planting import patched

LINES = drawn.PROGRAMS.lines


def having(op):
    """The lines of programs of one kind of operation that have this operation, compiled, without a derivative."""
    every = [(line, drawn.from_line(line)) for line in drawn.OPERATIONS.lines if op in line]
    return [
        line
        for line, one in every
        if op in one.program.operations and one.way == "auto" and not one.program.transform.kind
    ]


def test_the_data_is_whole_batches_of_different_programs():
    assert len(LINES) % drawn.PROGRAMS.batch == 0 and len(LINES) >= 300
    assert len({drawn.from_line(line).program.name for line in LINES}) == len(LINES)
    assert {json.loads(line)["way"] for line in LINES} == {"auto", "explicit", "eager", "permuted", "donated"}


def test_the_programs_have_most_operations_and_forms():
    operations = {op for line in LINES for op in drawn.from_line(line).program.operations}
    assert len(operations) >= 280
    assert {
        "vmap",
        "scan",
        "shard_map",
        "while",
        "cond",
        "switch",
        "fori",
        "remat",
        "custom_vjp",
    } <= operations
    assert {
        f"lax.{c}" for c in ("psum", "all_gather", "all_to_all", "psum_scatter", "ppermute")
    } <= operations
    assert sum(bool(drawn.from_line(line).program.transform.kind) for line in LINES) >= 15


@pytest.mark.one_in(4)
@pytest.mark.parametrize("store", [drawn.PROGRAMS, drawn.OPERATIONS], ids=lambda s: s.path.stem)
def test_every_program_has_results(store):
    for line in store.lines:
        results = drawn.from_line(line).compute()
        assert results and all(isinstance(r, np.ndarray) for r in results)


def test_the_operations_are_each_kind_several_times():
    lines = drawn.OPERATIONS.lines
    assert len(lines) % drawn.OPERATIONS.batch == 0
    assert len({drawn.from_line(line).program.name for line in lines}) == len(lines)
    programs = [drawn.from_line(line).program for line in lines]
    counts = Counter(op for program in programs for op in set(program.operations))
    exact = [kind for kind in KINDS.values() if not kind.rounds and kind.family != "random"]
    assert len(counts) > len(exact)
    assert {
        "lax.psum",
        "lax.all_gather",
        "lax.gather",
        "lax.scatter_add",
        "jnp.einsum",
        "lax.sort",
    } <= counts.keys()
    assert sum(counts.values()) > 15 * len(exact)


@pytest.mark.one_in(2)
def test_stored_derivatives_are_those_of_the_definitions():
    stored = [one for one in map(drawn.from_line, LINES) if one.right is not None]
    for one in stored[::5]:
        for right, own in zip(
            slopes.compute_derivatives(one.program, one.dtypes), one.compute(), strict=True
        ):
            np.testing.assert_array_equal(own, np.round(right, 6).astype(own.dtype))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8])
def test_a_program_fits_other_numbers_of_devices(count):
    fitting = 0
    for line in LINES[::5]:
        program = drawn.from_line(line).program
        fit = drawn.fit(program, count)
        if fit is None:
            assert "shard_map" in program.operations
            continue
        fitting += 1
        assert count % fit.mesh_size == 0
        assert all(old % new == 0 for (_, new), (_, old) in zip(fit.axes, program.axes, strict=True))
    assert fitting > len(LINES[::5]) / 4


FAULTS = {
    "jnp.roll": (jnp, "roll", lambda real: lambda x, shift, axis=None: real(x, -np.asarray(shift), axis)),
    "lax.rev": (lax, "rev", lambda real: lambda x, dims: x),
    "jnp.concatenate": (
        jnp, "concatenate", lambda real: lambda arrays, axis=0: real(arrays[::-1], axis=axis)
    ),
    "lax.reduce_window": (
        lax, "reduce_window", lambda real: lambda x, *rest, **options: real(x + x.dtype.type(1), *rest, **options)
    ),
    "lax.psum": (lax, "psum", lambda real: lambda x, axes: real(x, axes) + x.dtype.type(1)),
    "vmap": (jax, "vmap", lambda real: lambda f, **o: lambda *given: jnp.flip(real(f, **o)(*given), 0)),
}  # fmt: skip


@pytest.mark.parametrize("op", FAULTS)
def test_a_function_that_is_wrong_is_seen_and_named(op):
    """Not each program shows it: a sum may be of zeros."""
    some = having(op)[:6]
    seen = 0
    for line in some:
        name = drawn.from_line(line).program.name
        jax.clear_caches()
        with patched(*FAULTS[op]):
            try:
                drawn.judge([line], jax.devices())
            except RuntimeError as error:
                seen += name in str(error) and op in str(error)
    jax.clear_caches()
    assert some and seen >= len(some) / 3


def test_a_derivative_that_is_wrong_is_seen():
    line = next(line for line in LINES if drawn.from_line(line).program.transform.kind == "vjp")
    real = jax.vjp

    def doubled(function, *given):
        results, pull = real(function, *given)
        return results, lambda cotangents: tuple(2 * c for c in pull(cotangents))

    jax.clear_caches()
    with patched(jax, "vjp", lambda _: doubled), pytest.raises(RuntimeError, match="elements: at"):
        drawn.judge([line], jax.devices())
    jax.clear_caches()


def refusing(what, some):
    """A jax.jit that refuses to compile what takes `some` arguments."""

    def make(real):
        def jit(function, **options):
            compiled = real(function, **options)

            def call(*given):
                if some(given):
                    raise TypeError(what)
                return compiled(*given)

            return call

        return jit

    return patched(jax, "jit", make)


def alike():
    """Three compiled programs over one mesh, with arguments of their own."""
    lines = [line for line in LINES if json.loads(line)["way"] == "auto" and '"x64"' not in line]
    mesh = drawn.from_line(lines[0]).program.axes
    return [line for line in lines if drawn.from_line(line).program.axes == mesh][:3]


def test_one_program_that_raises_is_named_among_others():
    lines = alike()
    second = drawn.from_line(lines[1]).program
    shapes = [item.shape for item in second.inputs]

    def has_it(given):
        return isinstance(given[0], list) or [x.shape for x in given] == shapes

    with refusing("no such thing", has_it), pytest.raises(RuntimeError, match=second.name) as raised:
        drawn.judge(lines, jax.devices())
    assert "no such thing" in str(raised.value)


def test_programs_that_raise_together_alone_are_not_right():
    lines = alike()
    with (
        refusing("not together", lambda given: isinstance(given[0], list)),
        pytest.raises(RuntimeError, match="if they are compiled as one, and none alone: not together"),
    ):
        drawn.judge(lines, jax.devices())


def test_devices_that_can_run_nothing_are_no_pass():
    lines = [line for line in LINES if "shard_map" in drawn.from_line(line).program.operations][:3]
    with pytest.raises(Missing, match="1 devices can run none"):
        drawn.judge(lines, jax.devices()[:1])


def test_an_argument_that_changes_is_seen(monkeypatch):
    ready = next(drawn.prepare(having("jnp.roll")[:1], jax.devices()))
    results = ready.run()
    assert ready.find_wrong(results) == ""
    ready.host[0] = ready.host[0] + ready.host[0].dtype.type(1)
    assert "argument 0 changed" in ready.find_wrong(results)


def test_a_result_that_lies_elsewhere_is_seen():
    for line in LINES:
        one = drawn.from_line(line)
        placed = any(spec and any(spec) for spec in one.program.out_specs)
        if one.way == "auto" and placed and not one.program.transform.kind:
            ready = next(drawn.prepare([line], jax.devices()))
            k = next(k for k, spec in enumerate(one.program.out_specs) if spec and any(spec))
            break
    results = [*ready.run()]
    whole = jax.sharding.NamedSharding(ready.mesh, jax.sharding.PartitionSpec())
    results[k] = jax.device_put(results[k], whole)
    assert f"result {k} lies as" in ready.find_wrong(results)


def test_what_is_compared_is_compared_to_the_bit():
    right = np.array([1.0, np.nan, -0.0], np.float32)
    assert drawn.compare(np.array([1.0, np.nan, 0.0], np.float32), right) == ""
    assert "1 of 3 elements: at [1]" in drawn.compare(np.array([1.0, 2.0, 0.0], np.float32), right)
    assert "a block of" in drawn.compare(np.zeros(2, np.float32), right)
    assert "at [0]" in drawn.compare(np.array([1 + 1e-6, np.nan, 0], np.float32), right)
