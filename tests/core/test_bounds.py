# SPDX-License-Identifier: Apache-2.0
"""Derived bounds are sound (no implementation exceeds them) and useful (a narrower type exceeds them).

test_bounds_of_rules tests each rule, and functions without one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.core.bounds import (
    ARITHMETICS,
    FLOAT32,
    bounded,
)
from tests.core.rounded import (
    CASES,
    DTYPES,
    Real,
    Worst,
    attention,
    dot,
    mlp,
    norm,
    references,
    run,
    share,
    token_loss,
)

SEEDS = st.integers(0, 2**32 - 1)
seeded = settings(max_examples=8, deadline=None, derandomize=True, database=None)


# Sound: no implementation exceeds the bound.


@pytest.mark.parametrize("stores", [0, 4])
@pytest.mark.parametrize("machine", [Real, Worst])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("case", CASES)
@given(seed=SEEDS)
@seeded
def test_no_implementation_exceeds_the_bound(case, name, machine, stores, seed):
    machine = machine(name, seed, stores)
    plain, reference, bounds = references(case, machine)
    got = run(case, plain, machine)
    for r, b in zip(reference, bounds, strict=True):
        np.testing.assert_array_equal(b.value, r)
    assert share(got, bounds) <= 1.0


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_xla_keeps_the_bound(case, name):
    machine = Real(name, 7)
    plain, _, bounds = references(case, machine)
    arrays = [x if x.dtype.kind == "i" else x.astype(machine.dtype) for x in plain]
    with jax.default_matmul_precision("highest"):
        got = jax.jit(lambda *xs: case(jnp, *xs))(*map(jnp.asarray, arrays))
    used = share([np.asarray(g, np.float64) for g in got], bounds)
    print(f"{case.__name__} {name}: XLA uses {used:.2%} of the bound")
    assert used <= 1.0


@pytest.mark.parametrize("name", DTYPES)
def test_xla_keeps_the_error_of_elementary_functions(name):
    dtype, arithmetic = DTYPES[name], ARITHMETICS[name]
    if name == "float32":
        x = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32).view(dtype)
    else:
        x = np.arange(2**16, dtype=np.uint16).view(dtype)
    functions = {jnp.exp: np.exp, jnp.log: np.log, jnp.tanh: np.tanh, jnp.sqrt: np.sqrt}
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64)
        for function, reference in {**functions, jax.lax.rsqrt: lambda x: 1.0 / np.sqrt(x)}.items():
            r = reference(exact)
            off = np.abs(np.asarray(jax.jit(function)(x), np.float64) - r)
            judged = np.isfinite(r) & (np.abs(r) < arithmetic.largest) & (np.abs(exact) >= arithmetic.tiny)
            units = (off - arithmetic.tiny) / (arithmetic.u * np.abs(r))
            assert units[judged].max() <= arithmetic.elementary, function


finite = st.floats(-20.0, 20.0)
ONE_OPERAND = [np.exp, np.tanh, np.log, np.sqrt, np.square, np.abs, lambda x: x**3, lambda x: x**-2]


@pytest.mark.parametrize("function", ONE_OPERAND)
@given(finite, st.floats(0.0, 30.0), st.floats(-1.0, 1.0))
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_intervals_of_any_width_are_covered(function, x, reach, where):
    r = function(bounded(x, FLOAT32, reach))
    with np.errstate(all="ignore"):
        off = np.abs(function(np.float64(x + where * reach)) - r.value)
    assert not off > r.error


@given(finite, finite, st.floats(0.0, 30.0), st.floats(0.0, 30.0), st.floats(-1.0, 1.0), st.floats(-1.0, 1.0))
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_intervals_of_two_operands_are_covered(a, b, ea, eb, s, t):
    near_a, near_b = np.float64(a + s * ea), np.float64(b + t * eb)
    for f in (np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum):
        r = f(bounded(a, FLOAT32, ea), bounded(b, FLOAT32, eb))
        with np.errstate(all="ignore"):
            assert not np.abs(f(near_a, near_b) - r.value) > r.error, f


# Useful: a narrower type on the way shows.


@pytest.mark.parametrize(("name", "u"), [("bfloat16", 2.0**-8), ("TF32", 2.0**-11)])
def test_a_dot_of_64_terms_tells_narrower_factors(name, u):
    machine = Real("float32", 1, u_factor=u)
    plain, _, (r,) = references(dot, machine, 64)
    off = np.abs(run(dot, plain, machine)[0] - r.value)
    assert (off <= r.error).all()  # the arithmetic says so
    (r,) = dot(np, *(bounded(x, FLOAT32) for x in plain))
    print(f"{name} factors cost {np.median(off / r.error):.0f} bounds, {np.mean(off > r.error):.1%} above 1")
    assert np.mean(off > r.error) > 0.9


# The least share of a bound that errors of one sign use up: a rule grown loose lowers it.
LEAST = {dot: 0.3, mlp: 0.15, attention: 0.02, norm: 0.07, token_loss: 0.12}


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_the_bound_of_a_layer_is_not_idle(case, name):
    plain, reference, bounds = references(case, Real(name, 3))
    narrowed = [Real(name, 3, u_factor=u) for u in (2.0**-8, 2.0**-11)]
    machines = Real(name, 3), Worst(name, 3), *narrowed
    real, worst, bfloat16, tf32 = (share(run(case, plain, machine), bounds) for machine in machines)
    relative = max(np.max(b.error) / np.max(np.abs(r)) for b, r in zip(bounds, reference, strict=True))
    print(
        f"{case.__name__} {name}: bound {relative:.0e} of the largest value, of which rounding uses"
        f" {real:.3f}, the worst rounding {worst:.3f}, bfloat16 factors {bfloat16:.1f}, TF32's {tf32:.1f}"
    )
    assert worst > LEAST[case]
    assert name != "float32" or min(bfloat16, tf32) > 5.0
