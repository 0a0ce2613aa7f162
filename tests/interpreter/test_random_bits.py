# SPDX-License-Identifier: Apache-2.0
"""`rng-bit-generator` as a lowered program has it, against what XLA makes of it, and a few published words."""

import jax
import numpy as np
import pytest
from jax import lax

from meshmark.core.hlo_types import Refused
from meshmark.interpreter import reader
from meshmark.interpreter.evaluator import interpret
from tests.interpreter.modules import run

ALL = 2**64 - 1
STATES = ([7, 11], [2**40 + 3, 2**33 - 2], [ALL, ALL])
SHAPES = ((), (1,), (5,), (8, 3), (3, 5), (3, 4, 2), (2, 0))


def agree(algorithm, dtype, shape):
    """Hold the state and the bits by interpretation of the lowered program against those of JAX, for each state."""

    def draw(state):
        return lax.rng_bit_generator(
            state, shape, dtype, algorithm=getattr(lax.RandomAlgorithm, f"RNG_{algorithm}")
        )

    # A state is four words of 32 bits, so that it needs no 64-bit types.
    states = [np.array(state, np.uint64).view(np.uint32) for state in STATES]
    program = jax.jit(draw).lower(states[0])
    module, compiled = reader.parse_module(program.as_text(dialect="hlo")), program.compile()
    for state in states:
        for mine, real in zip(interpret(module, [state[None]]), compiled(state), strict=True):
            assert mine.dtype == real.dtype
            assert np.array_equal(mine[0], real), state


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "uint32"])
@pytest.mark.parametrize("algorithm", ["THREE_FRY", "PHILOX"])
def test_the_bits_are_those_of_xla(algorithm, dtype, shape):
    agree(algorithm, dtype, shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("algorithm", ["THREE_FRY", "PHILOX"])
def test_bits_of_64(algorithm, shape):
    with jax.enable_x64(True):
        agree(algorithm, "uint64", shape)


def made(algorithm, state, kind="u32[4]", n=None):
    """The state and the bits of one instruction on one device."""
    state = np.array([state], np.uint64)
    lines = (
        f"%p = u64[{state.shape[1]}] parameter(0)",
        f"%r = (u64[{state.shape[1]}], {kind}) rng-bit-generator(%p), algorithm={algorithm}",
    )
    found = run(*lines, arguments=[state], header="num_partitions=1")
    return [[int(x) for x in part[0].ravel()] for part in found]


def test_published_vectors():
    """Random123's kat_vectors, philox4x32 with 10 rounds: counters and keys of zeros and of ones."""
    assert made("rng_philox", [0, 0, 0])[1] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    state, bits = made("rng_philox", [ALL, ALL, ALL])
    assert bits == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert state == [ALL, 0, 0]  # the counter of 128 bits starts again
    # threefry2x32 with 20 rounds: the two words of one counter.
    assert made("rng_three_fry", [0, 0], "u32[2]") == [[0, 1], [0x6B200159, 0x99BA4EFE]]


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("rng_default", "u32[4]"), ("rng_of_tomorrow", "u32[4]"), ("rng_philox", "f32[4]")],
)
def test_what_the_text_does_not_say_is_refused(algorithm, kind):
    with pytest.raises(Refused, match="rng-bit-generator"):
        made(algorithm, [0, 0], kind)
