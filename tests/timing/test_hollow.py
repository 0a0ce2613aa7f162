# SPDX-License-Identifier: Apache-2.0
"""Ways for a compiler to skip work of a stream, each written as a program: every one is refused with a reason."""

from unittest.mock import patch

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshmark.core import loops
from meshmark.judge.checks import Judge
from meshmark.operations import cases
from meshmark.timing import measure
from meshmark.timing.measure import Wrong, hollow, prepare

pytestmark = pytest.mark.usefixtures("frozen_heap")

X = jnp.ones((64, 64))
ZERO, COUNT = jnp.int32(0), jnp.int32(1)


def call(x, w):
    """Two results: a product of two computed operands, and arithmetic alone."""
    return jnp.sin(w) @ jnp.cos(x), jnp.tanh(x) + w


def text(function, *arguments):
    return jax.jit(function).lower(*arguments).compile().as_text()


def looped(turn, count, x, w, before=lambda x, w: (), after=lambda *outputs: outputs):
    """A stream whose turn may use what was computed before it, and whose results are changed behind it."""
    ready = before(x, w)

    def body(_, carry):
        (x, w), _ = lax.optimization_barrier(carry)
        return (x, w), turn(x, w, *ready)

    return after(*lax.fori_loop(0, count, body, ((x, w), (x, w)))[1])


def once_more(count, x, w, until=lambda i, stop, _: i < stop, step=lambda i, stop: (i + 1, stop)):
    """A stream whose loop counts otherwise."""

    def body(state):
        i, stop, inputs, _ = state
        x, w = lax.optimization_barrier(inputs)
        return *step(i, stop), (x, w), call(x, w)

    return lax.while_loop(lambda s: until(s[0], s[1], s[2]), body, (ZERO, count, (x, w), (x, w)))[3]


CHEATS = {
    "an operand is computed before the loop": (
        lambda n, x, w: looped(
            lambda x, w, s: (s @ jnp.cos(x), jnp.tanh(x) + w), n, x, w, before=lambda x, w: (jnp.sin(w),)
        ),
        "outside its loop: 4096 flops on its inputs",
    ),
    "a result is computed behind the loop, of the last turn alone": (
        lambda n, x, w: looped(
            lambda x, w: (jnp.sin(w) @ jnp.cos(x), x), n, x, w, after=lambda y, x: (y, jnp.tanh(x))
        ),
        "outside its loop",
    ),
    "one result is dead, and another is never computed": (
        lambda n, x, w: looped(lambda x, w: (w @ x, x), n, x, w),
        "less than a call",
    ),
    "half of the product is known": (
        lambda n, x, w: looped(
            lambda x, w: (jnp.pad(jnp.sin(w[:32]) @ jnp.cos(x), ((0, 32), (0, 0))), jnp.tanh(x) + w), n, x, w
        ),
        "computes differently",
    ),
    "two turns are one": (lambda n, x, w: once_more((n + 1) // 2, x, w), "not bounded by the argument"),
    "every second turn is left out": (
        lambda n, x, w: once_more(n, x, w, step=lambda i, stop: (i + 2, stop)),
        "steps of 1",
    ),
    "the bound sinks while the loop runs": (
        lambda n, x, w: once_more(n, x, w, step=lambda i, stop: (i + 1, jnp.minimum(stop, 2))),
        "changes its bound",
    ),
    "the loop ends where nothing changes": (
        lambda n, x, w: once_more(n, x, w, until=lambda i, stop, inputs: (i < stop) & (inputs[0][0, 0] < 2)),
        "does not end at a number",
    ),
    "the count jumps to its end": (
        lambda n, x, w: once_more(n, x, w, step=lambda i, stop: (jnp.where(i > 1, stop, i + 1), stop)),
        "does not count",
    ),
    "the count is of eight bits": (
        lambda n, x, w: once_more(n.astype(jnp.int8).astype(jnp.int32), x, w),
        "not bounded by the argument",
    ),
    "a turn's work stands in a loop of its own that may not run": (
        lambda n, x, w: looped(
            lambda x, w: lax.fori_loop(0, jnp.int32(x[0, 0]), lambda _, c: call(*c), (x, w)), n, x, w
        ),
        "computes differently",
    ),
    "the result of before is kept": (
        lambda n, x, w: looped(
            lambda x, w: lax.cond(x[0, 0] < 2, lambda: call(x, w), lambda: (x, w)), n, x, w
        ),
        "in a branch",
    ),
}


@pytest.fixture(scope="module")
def alone():
    return text(call, X, X)


def test_the_stream_itself_is_accepted(alone):
    assert hollow(alone, text(lambda n, x, w: looped(call, n, x, w), COUNT, X, X), 1) == ""
    assert hollow(alone, text(once_more, COUNT, X, X), 1) == ""


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_refused(alone, cheat):
    streamed, says = CHEATS[cheat]
    assert says in hollow(alone, text(streamed, COUNT, X, X), 1)


def test_a_mask_that_needs_no_input_may_be_made_once():
    """A triangle's mask is the same in each turn, so it is no work that is left out."""

    def masked(x, w):
        return jnp.tril(jnp.sin(w) @ jnp.cos(x)), jnp.tanh(x)

    def with_mask(n, x, w):
        mask = jnp.tril(jnp.ones((64, 64), bool))
        return looped(lambda x, w: (jnp.where(mask, jnp.sin(w) @ jnp.cos(x), 0), jnp.tanh(x)), n, x, w)

    assert hollow(text(masked, X, X), text(with_mask, COUNT, X, X), 1) == ""


def test_what_derives_from_an_argument_is_counted_alone():
    found = text(lambda n, x: (jnp.sin(x) + jnp.cos(jnp.float32(n)), jnp.tril(jnp.ones((64, 64)))), COUNT, X)
    assert 8192 <= loops.derived(found, frozenset({1})) < 9000
    assert loops.derived(found, frozenset()) == 0


@pytest.mark.parametrize(
    "case_id",
    ["psum/axes=x+y/manual/2x4/float32/4KiB", "ppermute/axes=x,perm=identity/manual/1/float32/4KiB"],
)
@pytest.mark.parametrize(
    "planted", ["a seldom branch", "what is kept", "a bound that sinks", "a copy instead"]
)
def test_a_collective_cannot_be_left_out(case_id, planted):
    """Of a real case: the collective stands in a branch, its loop ends early, or a copy takes its place."""
    judge = Judge(tuple(jax.devices()))
    p = prepare(cases.find(case_id, 8), judge.devices, judge=judge)
    real = lax.fori_loop

    def fori_loop(start, stop, body, carry):
        if planted == "a seldom branch":
            return real(start, stop, lambda i, c: lax.cond(i < 3, lambda: body(i, c), lambda: c), carry)
        if planted == "what is kept":
            turn = lambda i, s: (lax.cond(s[1], lambda: body(i, s[0]), lambda: s[0]), s[1] & (i < 0))  # noqa: E731
            return real(start, stop, turn, (carry, jnp.bool_(True)))[0]
        if planted == "a copy instead":
            return real(start, stop, lambda i, c: lax.optimization_barrier(c), body(0, carry))
        step = lambda s: (s[0] + 1, jnp.minimum(s[1], 2), body(s[0], s[2]))  # noqa: E731
        return lax.while_loop(lambda s: s[0] < s[1], step, (ZERO, stop, carry))[2]

    says = r"other branches|changes its bound|communicates differently|outside its loop|not counted"
    with patch.object(measure.lax, "fori_loop", fori_loop), pytest.raises(Wrong, match=says):
        measure.verify_stream(p, judge)


@pytest.mark.parametrize("mode", ["auto", "explicit"])
def test_a_pipeline_of_whole_arrays_has_a_stream(mode):
    """Its first state is made of zeros: if it were shifted, a compiler would take that out of the stream's loop."""
    case = cases.find(f"staged_decoder/stages=x,model=y/{mode}/2x4/float32/n16", 8)
    judge = Judge(tuple(jax.devices()), 0)
    assert measure.verify_stream(measure.prepare(case, jax.devices(), judge=judge), judge).compiled
