# SPDX-License-Identifier: Apache-2.0
"""Single operations, drawn by hypothesis: interpretation of programs that XLA compiled for one CPU, and execution.

Integers, moved data and predicates are compared to the bit, floating-point arithmetic within a few roundings.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

from meshmark.core.hlo_types import Refused
from meshmark.devices.compat import whole_text
from meshmark.interpreter import reader
from meshmark.interpreter.evaluator import interpret
from tests.interpreter.modules import run

few = settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
KINDS = ("float32", "int32", "int8", "uint8", "bfloat16", "float16", "bool", "uint32")


def compared(function, *arrays, units=4):
    """Compile for one device, run and interpret."""
    arrays = [jnp.asarray(a) for a in arrays]
    compiled = jax.jit(function, keep_unused=True).lower(*arrays).compile()
    ran = [np.asarray(x) for x in jax.tree.leaves(compiled(*arrays))]
    seen = interpret(reader.parse_module(whole_text(compiled)), [np.asarray(a)[None] for a in arrays])
    assert len(ran) == len(seen)
    for one, other in zip(ran, seen, strict=True):
        assert other.shape == (1, *one.shape) and other.dtype == one.dtype
        if jnp.issubdtype(one.dtype, jnp.inexact):
            kind = np.complex128 if one.dtype.kind == "c" else np.float64
            scale = np.abs(np.nan_to_num(one.astype(kind), posinf=0, neginf=0)).max(initial=1.0)
            np.testing.assert_allclose(
                other[0].astype(kind),
                one.astype(kind),
                rtol=0,
                atol=units * scale * float(jnp.finfo(one.dtype).eps),
            )
        else:
            np.testing.assert_array_equal(other[0], one)


def numbers(seed, shape, kind):
    rng = np.random.default_rng(seed)
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if jnp.issubdtype(kind, jnp.integer):
        limits = jnp.iinfo(kind)
        return rng.integers(limits.min, int(limits.max) + 1, shape).astype(kind)
    return np.asarray(jnp.asarray(rng.normal(0, 3, shape), kind))


seeds = st.integers(0, 10**6)
shapes = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)

ONE_OPERAND = [
    (jnp.exp, "float"),
    (jnp.log1p, "float"),
    (jnp.tanh, "float"),
    (jnp.sin, "float"),
    (jnp.cos, "float"),
    (lambda a: lax.rsqrt(jnp.abs(a) + 1), "float"),
    (jax.nn.sigmoid, "float"),
    (lax.erf, "float"),
    (jnp.cbrt, "float"),
    (jnp.floor, "float"),
    (jnp.ceil, "float"),
    (jnp.round, "float"),
    (lambda a: lax.round(a), "float"),
    (jnp.abs, "any"),
    (jnp.sign, "any"),
    (jnp.negative, "any"),
    (jnp.invert, "int"),
    (lax.population_count, "int"),
    (lax.clz, "int"),
    (jnp.isfinite, "float"),
    (lambda a: a.astype(jnp.int8), "any"),
    (lambda a: a.astype(jnp.float32), "any"),
    (lambda a: a.astype(jnp.uint8), "float"),
    (lambda a: a.astype(jnp.bfloat16), "any"),
    (lambda a: a.astype(bool), "any"),
    (lambda a: lax.bitcast_convert_type(a, jnp.uint8), "any"),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", range(len(ONE_OPERAND)))
@few
@given(seeds, shapes, st.sampled_from(("float32", "bfloat16", "int32", "int8", "uint8", "uint32")))
def test_one_operand(number, seed, shape, kind):
    function, of = ONE_OPERAND[number]
    whole = jnp.issubdtype(kind, jnp.integer)
    if (of == "float" and whole) or (of == "int" and not whole):
        return
    compared(function, numbers(seed, shape, kind), units=8)


TWO_OPERANDS = [
    (jnp.add, "any"),
    (jnp.subtract, "any"),
    (jnp.multiply, "any"),
    (jnp.maximum, "any"),
    (jnp.minimum, "any"),
    (lax.div, "any"),
    (lax.rem, "any"),
    (jnp.power, "positive"),
    (jnp.arctan2, "float"),
    (jnp.bitwise_xor, "int"),
    (jnp.bitwise_and, "int"),
    (jnp.bitwise_or, "int"),
    (lax.shift_left, "int"),
    (lax.shift_right_logical, "int"),
    (lax.shift_right_arithmetic, "int"),
    (jnp.less, "any"),
    (jnp.equal, "any"),
    (lambda a, b: jnp.where(a > b, a, b), "any"),
    (lambda a, b: jnp.clip(a, -b, b), "any"),
    (lambda a, b: lax.complex(a, b) * lax.complex(b, a), "float32"),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", range(len(TWO_OPERANDS)))
@few
@given(seeds, shapes, st.sampled_from(("float32", "bfloat16", "int32", "int8", "uint8", "uint32")))
def test_two_operands(number, seed, shape, kind):
    function, of = TWO_OPERANDS[number]
    whole = jnp.issubdtype(kind, jnp.integer)
    if (
        (of == "int" and not whole)
        or (of in ("float", "positive") and whole)
        or (of == "float32" and kind != of)
    ):
        return
    a, b = numbers(seed, shape, kind), numbers(seed + 1, shape, kind)
    if of == "positive":
        a, b = np.abs(a) + np.asarray(0.5, a.dtype), np.clip(b, -2, 2)
    compared(function, a, b, units=16)


@few
@given(seeds, shapes, st.sampled_from(KINDS), st.data())
def test_moves(seed, shape, kind, data):
    array = numbers(seed, shape, kind)
    pads = [
        (data.draw(st.integers(-1, 2)), data.draw(st.integers(-1, 2)), data.draw(st.integers(0, 2)))
        for _ in shape
    ]
    pads = [
        p if (n - 1) * (p[2] + 1) + 1 + p[0] + p[1] >= 0 else (0, 0, 0)
        for n, p in zip(shape, pads, strict=True)
    ]
    order = data.draw(st.permutations(range(len(shape))))
    starts = [data.draw(st.integers(-2, n + 1)) for n in shape]
    sizes = [data.draw(st.integers(1, n)) for n in shape]

    def moves(a, at):
        start = tuple(at)
        part = lax.dynamic_slice(a, start, sizes)
        return (
            lax.pad(a, jnp.zeros((), a.dtype), pads),
            jnp.transpose(a, order),
            jnp.flip(a, 0),
            jnp.concatenate([a, a[::-1]], -1),
            jnp.broadcast_to(a, (2, *a.shape)),
            part,
            lax.dynamic_update_slice(a, part[::-1], start[::-1] if len(set(shape)) == 1 else start),
            a.reshape(-1)[::2],
        )

    compared(moves, array, np.array(starts, np.int32))


@few
@given(seeds, st.integers(1, 6), st.integers(1, 4), st.sampled_from(("float32", "int32", "bfloat16")))
def test_gather_and_scatter(seed, rows, columns, kind):
    array = numbers(seed, (rows, columns), kind)
    places = np.random.default_rng(seed).integers(-1, rows + 1, 5).astype(np.int32)
    new = numbers(seed + 1, (5, columns), kind)

    def scattered(a, i, u):
        return (
            a[i],
            a.at[i].get(mode="clip"),
            a.at[i].add(u),
            a.at[i].max(u, mode="drop"),
            a.at[i, 0].multiply(u[:, 0]),
            jnp.take_along_axis(a, jnp.clip(i[:, None], 0, rows - 1), 0),
            jax.vmap(lambda row, j: row[j])(u, jnp.clip(i, 0, columns - 1)),
        )

    compared(scattered, array, places, new, units=32)


@few
@given(seeds, shapes, st.sampled_from(("float32", "int32", "int8", "bfloat16")), st.data())
def test_reductions(seed, shape, kind, data):
    axis = data.draw(st.integers(0, len(shape) - 1))

    def reductions(a):
        return (
            jnp.sum(a, axis),
            jnp.max(a, axis),
            jnp.min(a),
            jnp.prod(jnp.sign(a), axis),
            jnp.any(a > 0, axis),
            jnp.all(a > 0, axis),
            jnp.argmax(a, axis),
            jnp.argmin(a, axis),
            jnp.cumsum(a, axis),
            lax.cummax(a, axis),
            jnp.sort(a, axis),
            jnp.argsort(a, axis),
            lax.top_k(a, 1),
        )

    compared(reductions, numbers(seed, shape, kind), units=16)


@pytest.mark.parametrize("bits", [0, 1, 3, 7, 9, 22, 23])
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_shorter_significands_are_those_of_xla(bits, kind):
    """To the bit, at ties, infinities and the largest numbers too."""
    rng = np.random.default_rng(bits)
    some = [rng.normal(0, 3, 200), 2.0 ** rng.integers(-120, 127, 50) * rng.integers(1, 64, 50) / 64]
    x = np.concatenate(
        [*some, [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.5, 2.5, 1 + 2.0**-9], [3.4e38, -3.4e38]]
    )
    a = jnp.asarray(x, kind)
    compiled = jax.jit(lambda a: lax.reduce_precision(a, 8, bits)).lower(a).compile()
    (seen,) = interpret(reader.parse_module(whole_text(compiled)), [np.asarray(a)[None]])
    np.testing.assert_array_equal(seen[0].astype(np.float32), np.asarray(compiled(a), np.float32))


@few
@given(seeds, st.integers(3, 9), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2))
def test_windows(seed, n, size, stride, pad):
    def windows(a):
        dims, strides, pads = (1, size), (1, stride), ((0, 0), (min(pad, size - 1),) * 2)
        return (
            lax.reduce_window(a, 0.0, lax.add, dims, strides, pads),
            lax.reduce_window(a, -jnp.inf, lax.max, dims, strides, pads),
            jax.grad(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, dims, strides, pads).sum())(a),
        )

    compared(windows, numbers(seed, (2, n), "float32"))


@few
@given(seeds, st.tuples(*[st.integers(1, 4)] * 4), st.sampled_from(("float32", "bfloat16", "int32", "int8")))
def test_dots(seed, sizes, kind):
    b, m, k, n = sizes
    left, right = numbers(seed, (b, m, k), kind), numbers(seed + 1, (b, k, n), kind)

    def dots(x, y):
        total = jnp.einsum("bmk,bkn->bmn", x, y, precision="highest")
        return total, jnp.einsum("bmk,bkn->mn", x, y, precision="highest"), jnp.einsum("bmk,ckn->mcnb", x, y)

    compared(dots, left, right, units=64)


@few
@given(
    seeds,
    st.integers(3, 7),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(1, 2),
    st.sampled_from([(1, 1), (2, 1), (1, 2)]),
)
def test_convolutions(seed, n, size, stride, pad, base, dilation, groups):
    features, batches = groups
    image = numbers(seed, (2, 2, n, n + 1), "float32")
    kernel = numbers(seed + 1, (4, 2 // features, size, 2), "float32")

    def convolution(x, w):
        return lax.conv_general_dilated(
            x,
            w,
            (stride, 1),
            ((pad, pad), (1, 0)),
            (base, 1),
            (dilation, 1),
            feature_group_count=features,
            batch_group_count=batches,
            precision="highest",
        )

    if base * (n - 1) + 1 + 2 * pad >= dilation * (size - 1) + 1:
        compared(convolution, image, kernel, units=64)
        compared(jax.grad(lambda w, x: (convolution(x, w) ** 2).sum()), kernel, image, units=256)


@few
@given(seeds)
def test_control_flow_and_random_bits(seed):
    def program(a, n):
        total = lax.fori_loop(0, n, lambda i, c: c + a[i % 3], jnp.float32(0))
        branch = lax.switch(n % 3, [lambda x: x, jnp.negative, lambda x: x * 2], a)
        return (
            total,
            branch,
            jax.random.bits(jax.random.key(n), (5,)),
            jax.random.permutation(jax.random.key(n), 6),
        )

    compared(program, numbers(seed, (3,), "float32"), np.int32(seed % 7))


def test_fourier_transforms():
    """All four kinds, over one dimension and two, of even and odd lengths."""

    def every(a, b):
        return (
            jnp.fft.fft(a),
            jnp.fft.ifft(a),
            jnp.fft.fft2(a),
            jnp.fft.rfft(b),
            jnp.fft.irfft(jnp.fft.rfft(b), n=7),
            jnp.fft.irfft2(jnp.fft.rfft2(b[..., :6])),
        )

    rows = numbers(5, (2, 5, 7), "float32")
    compared(every, rows + 1j * rows[::-1], rows, units=40)


def test_a_fourier_transform_of_another_length_is_refused():
    line = "%f = c64[4] fft(%p), fft_type={kind}, fft_length={{{length}}}"
    for kind, length in (("FFT", 3), ("IRFFT", 4), ("HARTLEY", 4)):
        with pytest.raises(Refused, match="fft of"):
            run(
                "%p = c64[4] parameter(0)",
                line.format(kind=kind, length=length),
                arguments=[np.zeros((1, 4), np.complex64)],
                header="num_partitions=1",
            )
