# SPDX-License-Identifier: Apache-2.0
"""Convolutions of cuDNN, as XLA of jaxlib 0.12.0.1 writes them for H100: by hand, and by the definition of an
adjoint."""

import numpy as np
import pytest
from jax import lax

from meshmark.core.hlo_types import Refused
from meshmark.interpreter.faults import Fault
from tests.interpreter.modules import run

CONFIG = (
    '{"cudnn_conv_backend_config":{"activation_mode":"kNone","conv_result_scale":1,"side_input_scale":0}}'
)


def called(kind, a, b, result, attributes, config=CONFIG, element=0):
    """One result of a call on one device."""

    def shape(dims):
        return f"f32[{','.join(map(str, dims))}]"

    call = (
        f"custom-call(%a, %b), {attributes}, operand_precision={{highest,highest}}, "
        f'custom_call_target="__cudnn${kind}", backend_config={config}'
    )
    of = shape(result) if element == 0 else "u8[0]"
    [found] = run(
        f"%a = {shape(a.shape)} parameter(0)",
        f"%b = {shape(b.shape)} parameter(1)",
        f"%c = ({shape(result)}, u8[0]) {call}",
        f"%r = {of} get-tuple-element(%c), index={element}",
        arguments=[a[None], b[None]],
        header="num_partitions=1",
    )
    return found[0]


LINE = np.array([1, 2, 3, 4], np.float32).reshape(1, 4, 1)
KERNEL = np.array([1, 10, 100], np.float32).reshape(1, 3, 1)
SAME = "window={size=3 pad=1_1}, dim_labels=b0f_o0i->b0f"


def test_a_line_by_hand():
    """Each output is left + 10 own + 100 right."""
    out = called("convForward", LINE, KERNEL, (1, 4, 1), SAME)
    assert out.ravel().tolist() == [210, 321, 432, 43]
    # The adjoints: what reaches an input is 100 times the output to its left, 10 times its own, once the one to its
    # right; a place of the kernel gathers products of inputs and outputs at its distance.
    back = called("convBackwardInput", LINE, KERNEL, (1, 4, 1), SAME)
    assert back.ravel().tolist() == [12, 123, 234, 340]
    ones = np.array([1, 0, 0, 1], np.float32).reshape(1, 4, 1)
    assert called("convBackwardFilter", LINE, ones, (1, 3, 1), SAME).ravel().tolist() == [3, 5, 2]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pad=1_1", "pad=0_2"),
        ("pad=1_1", "pad=1_1 rhs_reversal=1"),
        ("size=3 pad=1_1", "size=3 pad=2_2 rhs_dilate=2"),
    ],
)
@pytest.mark.parametrize("kind", ["convForward", "convBackwardInput", "convBackwardFilter"])
def test_another_window_gives_other_numbers(kind, old, new):
    """What a compiler could do wrong."""
    second = LINE + 1 if kind == "convBackwardFilter" else KERNEL
    shape = (1, 3, 1) if kind == "convBackwardFilter" else (1, 4, 1)
    right = called(kind, LINE, second, shape, SAME)
    assert not np.array_equal(called(kind, LINE, second, shape, SAME.replace(old, new)), right)


@pytest.mark.parametrize(
    ("stride", "pads", "wide", "groups"),
    [
        ((1, 1), [(1, 1), (0, 2)], (1, 1), 1),
        ((2, 1), [(0, 1), (2, 2)], (1, 2), 1),
        ((1, 2), [(1, 1), (1, 1)], (2, 1), 2),
    ],
)
def test_adjoints_of_planes(stride, pads, wide, groups):
    """<convolution(x, k), y> = <x, backward input(y, k)> = <k, backward kernel(x, y)>, with whole numbers."""
    rng = np.random.default_rng(7)
    x = rng.integers(-4, 5, (2, 4, 6, 5)).astype(np.float32)
    kernel = rng.integers(-4, 5, (6, 4 // groups, 2, 3)).astype(np.float32)
    want = np.asarray(
        lax.conv_general_dilated(x, kernel, stride, pads, rhs_dilation=wide, feature_group_count=groups)
    )
    y = rng.integers(-4, 5, want.shape).astype(np.float32)
    window = (
        f"size=2x3 stride={stride[0]}x{stride[1]} pad={'x'.join(f'{low}_{high}' for low, high in pads)} "
        f"rhs_dilate={wide[0]}x{wide[1]}"
    )
    attributes = f"window={{{window}}}, dim_labels=bf01_oi01->bf01, feature_group_count={groups}"
    out = called("convForward", x, kernel, want.shape, attributes)
    assert np.array_equal(out, want)
    product = np.sum(out * y)
    assert np.sum(x * called("convBackwardInput", y, kernel, x.shape, attributes)) == product
    assert np.sum(kernel * called("convBackwardFilter", x, y, kernel.shape, attributes)) == product


def test_what_is_not_known_is_refused():
    with pytest.raises(Refused, match="with an activation"):
        called("convForward", LINE, KERNEL, (1, 4, 1), SAME, CONFIG.replace("kNone", "kRelu"))
    with pytest.raises(Refused, match="with a graph"):
        called("convForward", LINE, KERNEL, (1, 4, 1), SAME, CONFIG[:-2] + ',"serialized_graph":"x"}}')
    with pytest.raises(Refused, match="attribute window of custom call TopK"):
        run(
            "%p = f32[4] parameter(0)",
            '%c = (f32[2], s32[2]) custom-call(%p), window={size=2}, custom_call_target="TopK"',
            arguments=[np.zeros((1, 4), np.float32)],
            header="num_partitions=1",
        )


@pytest.mark.parametrize(
    ("mode", "seen"),
    [
        ("kNone", [-2, -1, 1, 7]),
        ("kRelu", [0, 0, 1, 7]),
        ("kRelu6", [0, 0, 1, 6]),
        ("kLeakyRelu", [-0.5, -0.25, 1, 7]),
        ("kElu", [np.expm1(-2), np.expm1(-1), 1, 7]),
    ],
)
def test_a_bias_another_addend_and_an_activation(mode, seen):
    """1 x - 5 + 2 y, of one place."""
    config = (
        f'{{"cudnn_conv_backend_config":{{"activation_mode":"{mode}","conv_result_scale":1,"side_input_scale":2,'
        '"leakyrelu_alpha":0.25}}'
    )
    call = (
        "%c = (f32[1,4,1], u8[0]) custom-call(%x, %k, %bias, %y), window={size=1}, dim_labels=b0f_o0i->b0f, "
        f'custom_call_target="__cudnn$convBiasActivationForward", backend_config={config}'
    )
    given = [LINE, np.ones((1, 1, 1)), np.array([-5]), np.array([1, 1, 1.5, 4]).reshape(1, 4, 1)]
    ask = [
        f"%{name} = f32[{','.join(map(str, g.shape))}] parameter({n})"
        for n, (name, g) in enumerate(zip(("x", "k", "bias", "y"), given, strict=True))
    ]
    last = "%r = f32[1,4,1] get-tuple-element(%c), index=0"
    arguments = [g.astype(np.float32)[None] for g in given]
    [found] = run(*ask, call, last, arguments=arguments, header="num_partitions=1")
    np.testing.assert_allclose(found.ravel(), seen, rtol=1e-6)
    with pytest.raises(Refused, match="of 4 operands"):  # the other addend would not count
        run(*ask, call.replace('"side_input_scale":2', '"side_input_scale":0'), last, arguments=arguments)


def test_the_result_is_scaled():
    doubled = CONFIG.replace('scale":1', 'scale":2')
    assert called("convForward", LINE, KERNEL, (1, 4, 1), SAME, doubled).ravel().tolist() == [
        420,
        642,
        864,
        86,
    ]


def test_the_memory_of_the_library_is_not_read():
    call = (
        f'%c = (f32[1,4,1], f32[4]) custom-call(%a, %b), {SAME}, custom_call_target="__cudnn$convForward", '
        f"backend_config={CONFIG}"
    )
    with pytest.raises(Fault, match="nothing wrote"):
        run(
            "%a = f32[1,4,1] parameter(0)",
            "%b = f32[1,3,1] parameter(1)",
            call,
            "%r = f32[4] get-tuple-element(%c), index=1",
            arguments=[LINE[None], KERNEL[None]],
            header="num_partitions=1",
        )
