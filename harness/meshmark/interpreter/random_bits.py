# SPDX-License-Identifier: Apache-2.0
"""Random bits: `rng-bit-generator` with the algorithms Threefry and Philox.

Both are counter-based ciphers of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): Threefry-2x32
with 20 rounds, and Philox-4x32 with 10. XLA's prng.h and rng_bit_generator_expander.h define which counter belongs to
which element. Compilers for CPU, GPU and TPU spell both as ordinary instructions; the program that a compiler is given
has them as one. The default algorithm is the backend's own, which the text does not say: it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused, Shape, TupleShape
from meshmark.interpreter.meanings import means
from meshmark.interpreter.threefry import encrypted
from meshmark.interpreter.values import AnyValue, Value, array

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

_WORD = np.uint64(0xFFFFFFFF)
_FACTORS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_STEPS = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))


@means("rng-bit-generator", attributes=("algorithm",))
def _random_bits(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The result is a tuple of the next state and the bits."""
    state, shape = array(operands[0], instruction.name).known(instruction.name), instruction.shape
    algorithm = instruction.attributes.get("algorithm", "")
    if algorithm not in _ALGORITHMS:
        raise Refused(f"rng-bit-generator with the algorithm {algorithm}")
    if not isinstance(shape, TupleShape) or not isinstance(shape.parts[1], Shape):
        raise Refused(f"rng-bit-generator of type {shape}")
    bits = shape.parts[1]
    if state.dtype != np.uint64 or bits.numpy.kind not in "ui":
        raise Refused(f"rng-bit-generator of {bits} from a state of {state.dtype}")
    made = [_ALGORITHMS[algorithm](each, bits) for each in state]
    return tuple(Value(np.stack(parts)) for parts in zip(*made, strict=True))


def _threefry(state: np.ndarray, bits: Shape) -> tuple[np.ndarray, np.ndarray]:
    """The next state and the bits from [key, counter].

    Each counter gives two words: of 64-bit elements the low and the high half, else two elements. These are neighbours
    along the first dimension of even length, or along the longest one if all are odd, whose last word is left out."""
    wide = bits.numpy.itemsize == 8
    halved = list(bits.dims) if bits.dims else [1]
    along = next((i for i, n in enumerate(halved) if n % 2 == 0), int(np.argmax(halved)))
    if not wide:
        halved[along] = -(-halved[along] // 2)
    counters = math.prod(halved)
    words = encrypted(_words(state[0]), _words(state[1] + np.arange(counters, dtype=np.uint64)))
    after = np.array([state[0], state[1] + np.uint64(counters)])
    if wide:
        return after, (words[0] | words[1].astype(np.uint64) << np.uint64(32)).reshape(bits.dims).astype(
            bits.numpy
        )
    if not bits.dims:
        return after, words[0].reshape(()).astype(bits.numpy)
    both = np.stack([w.reshape(halved) for w in words], axis=along + 1)
    both = both.reshape(*halved[:along], 2 * halved[along], *halved[along + 1 :])
    return after, np.take(both, range(bits.dims[along]), axis=along).astype(bits.numpy)


def _philox(state: np.ndarray, bits: Shape) -> tuple[np.ndarray, np.ndarray]:
    """The next state and the bits from [key, counter, upper half of the counter].

    A state of two numbers has the key as the upper half. Each counter gives four words, which follow each other in the
    order of the elements; 64-bit elements take two of them, the low one first."""
    key, low = state[0], state[1]
    high = state[2] if len(state) > 2 else key
    elements, size = math.prod(bits.dims), max(bits.numpy.itemsize // 4, 1)
    counters = -(-elements * size // 4)
    lows = low + np.arange(counters, dtype=np.uint64)
    words = [*_words(lows), *_words(high + (lows < low))]
    keys = [np.full(counters, word) for word in _words(key)]
    for _ in range(10):
        products = [words[2 * i].astype(np.uint64) * factor for i, factor in enumerate(_FACTORS)]
        (low0, high0), (low1, high1) = (_words(product) for product in products)
        words = [high1 ^ words[1] ^ keys[0], low1, high0 ^ words[3] ^ keys[1], low0]
        keys = [word + step for word, step in zip(keys, _STEPS, strict=True)]
    made = np.stack(words, axis=1).reshape(-1)
    if size == 2:
        made = made[::2] | made[1::2].astype(np.uint64) << np.uint64(32)
    end = low + np.uint64(counters)
    after = np.array([key, end, high + np.uint64(end < low)][: len(state)])
    return after, made[:elements].reshape(bits.dims).astype(bits.numpy)


_ALGORITHMS = {"rng_three_fry": _threefry, "rng_philox": _philox}


def _words(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The low and the high word of 64-bit numbers."""
    return (numbers & _WORD).astype(np.uint32), (numbers >> np.uint64(32)).astype(np.uint32)
