# SPDX-License-Identifier: Apache-2.0
"""Convolutions by cuDNN, on GPU: the forward one, and its adjoints with respect to the input and to the kernel.

Each has the window and the labels of the forward convolution (openxla/xla, xla/service/gpu/cublas_cudnn.h):

    convForward         input,  kernel -> output
    convBackwardInput   output, kernel -> input
    convBackwardFilter  input,  output -> kernel
    convBiasActivationForward  input, kernel, bias of each feature, side input if it has a scale -> output

The second result is the library's workspace, which no program may read.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused, Shape, TupleShape
from meshmark.interpreter.contraction import convolution, factor_bits, factors, labels
from meshmark.interpreter.control import fresh
from meshmark.interpreter.custom_calls import check_names, target
from meshmark.interpreter.elementwise import rounded, wide
from meshmark.interpreter.values import AnyValue, Value, array, spread_poison
from meshmark.interpreter.windows import Window, window_of

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

_ATTRIBUTES = ("window", "dim_labels", "feature_group_count", "batch_group_count", "operand_precision")


_NAMES = (
    *("activation_mode", "conv_result_scale", "side_input_scale", "leakyrelu_alpha"),
    *("algorithm", "reordered_int8_nchw_vect"),
)
"""The entries that the configuration of a convolution may have. The algorithm does not change numbers."""

_ACTIVATIONS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "kNone": lambda a, alpha: a,
    "kRelu": lambda a, alpha: np.maximum(a, 0),
    "kRelu6": lambda a, alpha: np.clip(a, 0, 6),
    "kElu": lambda a, alpha: np.where(a > 0, a, np.expm1(a)),
    "kLeakyRelu": lambda a, alpha: np.where(a > 0, a, alpha * a),
}
"""The functions after a forward convolution, by activation mode; alpha is leakyrelu_alpha."""


def _register(name: str, operands_of: str, compute: Callable[..., np.ndarray], more: bool = False) -> None:
    """Register a convolution.

    operands_of: the roles of the two operands and the result, as i(nput), k(ernel) and o(utput). compute: the function
    over arrays. more: whether it has a bias, perhaps a side input, and an activation."""

    def function(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
        shape = instruction.shape
        if not isinstance(shape, TupleShape) or not isinstance(shape.parts[0], Shape):
            raise Refused(f"custom call {name} of type {shape}")
        config = _config(instruction)
        addends = 1 + bool(config.get("side_input_scale", 0)) if more else 0
        if len(operands) != 2 + addends:
            raise Refused(f"custom call {name} of {len(operands)} operands")
        orders = {what: _order(what, text) for what, text in zip("iko", labels(instruction), strict=True)}
        window = window_of(instruction.attributes.get("window", "{}"), len(orders["i"]) - 2)
        values = [array(operand, instruction.name) for operand in operands]
        bits = factor_bits(evaluator, instruction, values[0].data.dtype)
        given = [
            factors(value.data, bits).transpose(0, *(d + 1 for d in orders[what]))
            for value, what in zip(values[:2], operands_of[:2], strict=True)
        ]
        groups, batches = (
            int(instruction.attributes.get(f"{kind}_group_count", "1")) for kind in ("feature", "batch")
        )
        if batches > 1:
            raise Refused(f"custom call {name} with groups of the batch")
        sides = dict(zip(operands_of[:2], given, strict=True))
        to = orders[operands_of[2]]
        sizes = [shape.parts[0].dims[d] for d in to]
        spatial = {what: side.shape[1:] for what, side in sides.items()} | {operands_of[2]: tuple(sizes)}
        _fit(window, *(spatial[what] for what in "iko"))
        total = compute(*given, window, groups, sizes) * float(config.get("conv_result_scale", 1))
        whole = total.transpose(0, *(to.index(d) + 1 for d in range(len(to))))
        if more:
            whole = _activated(whole, [wide(v.data) for v in values[2:]], config, to[-1])
        elif config.get("activation_mode", "kNone") != "kNone" or config.get("side_input_scale", 0):
            raise Refused(f"custom call {name} with an activation or another addend")
        found = Value(rounded(whole, shape.parts[0].numpy), spread_poison(values, whole.ndim - 1))
        return (found, *(fresh(part) for part in shape.parts[1:]))

    target(name, attributes=_ATTRIBUTES)(function)


def _order(what: str, text: str) -> list[int]:
    """The dimensions of an array in the order spatial, batch, features (for a kernel: window, input, output)."""
    spatial = sorted(set(text) - set("bfio"))
    return [text.index(c) for c in (*spatial, *("io" if what == "k" else "bf"))]


def _fit(
    window: Sequence[Window], inputs: Sequence[int], kernel: Sequence[int], outputs: Sequence[int]
) -> None:
    """Refused if the window does not have the size of the kernel, or gives another output size for this input."""
    for w, i, k, o in zip(window, inputs, kernel, outputs, strict=False):
        if w.size != k or w.output(i) != o:
            raise Refused(f"a convolution of cuDNN of {i} by {k} to {o} places with the window {w}")


def _config(instruction: Instruction) -> dict[str, Any]:
    """The configuration of a call; Refused for an unknown entry."""
    found: dict[str, Any] = json.loads(instruction.backend_config or "{}").get(
        "cudnn_conv_backend_config", {}
    )
    if "serialized_graph" in found or found.get("reordered_int8_nchw_vect"):
        raise Refused("a convolution of cuDNN with a graph or another order of int8")
    check_names("a convolution of cuDNN", found, _NAMES)
    return found


def _activated(
    result: np.ndarray, addends: Sequence[np.ndarray], config: dict[str, Any], features: int
) -> np.ndarray:
    """The activated sum of the result, the bias of each feature and the scaled side input."""
    mode = config.get("activation_mode", "kNone")
    if mode not in _ACTIVATIONS:
        raise Refused(f"a convolution of cuDNN with activation {mode}")
    bias, *side = addends
    line = [-1 if d == features else 1 for d in range(result.ndim - 1)]
    total = result + bias.reshape(bias.shape[0], *line)
    for addend in side:
        total = total + float(config["side_input_scale"]) * addend
    return _ACTIVATIONS[mode](total, float(config.get("leakyrelu_alpha", 0)))


def _forward(
    a: np.ndarray, b: np.ndarray, window: Sequence[Window], groups: int, sizes: Sequence[int]
) -> np.ndarray:
    return convolution(a, b, window, groups)


def _met(
    window: Sequence[Window], inputs: Sequence[int], outputs: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]]:
    """(index, outputs, inputs) of each place of the kernel: the inputs that it multiplies, for which outputs."""
    for place in itertools.product(*(range(w.size) for w in window)):
        hits = [w.hits(k, n, o) for w, k, n, o in zip(window, place, inputs, outputs, strict=True)]
        if all(hit is not None for hit in hits):
            kernel = tuple(w.size - 1 - k if w.reversed else k for w, k in zip(window, place, strict=True))
            yield kernel, tuple(h[0] for h in hits if h), tuple(h[1] for h in hits if h)


_EVERY = (slice(None),)


def _to_input(
    out: np.ndarray, kernel: np.ndarray, window: Sequence[Window], groups: int, sizes: Sequence[int]
) -> np.ndarray:
    """The input's adjoint, [devices, *spatial, batch, features], of the output and of the kernel, which is [devices,
    *window, input, output]."""
    if groups > 1:
        parts = zip(np.split(out, groups, -1), np.split(kernel, groups, -1), strict=True)
        each = [*sizes[:-1], sizes[-1] // groups]
        return np.concatenate([_to_input(o, k, window, 1, each) for o, k in parts], -1)
    result = np.zeros((max(out.shape[0], kernel.shape[0]), *sizes), np.result_type(out, kernel))
    expand = (slice(None), *(None,) * len(window))
    for at, to, of in _met(window, sizes[:-2], out.shape[1:-2]):
        result[_EVERY + of] += out[_EVERY + to] @ kernel[_EVERY + at].swapaxes(-1, -2)[expand]
    return result


def _to_kernel(
    a: np.ndarray, out: np.ndarray, window: Sequence[Window], groups: int, sizes: Sequence[int]
) -> np.ndarray:
    """The kernel's adjoint, [devices, *window, input, output], of the input and the output."""
    if groups > 1:
        parts = zip(np.split(a, groups, -1), np.split(out, groups, -1), strict=True)
        each = [*sizes[:-1], sizes[-1] // groups]
        return np.concatenate([_to_kernel(x, o, window, 1, each) for x, o in parts], -1)
    devices = max(a.shape[0], out.shape[0])
    result = np.zeros((devices, *sizes), np.result_type(a, out))
    for at, to, of in _met(window, a.shape[1:-2], out.shape[1:-2]):
        left, right = a[_EVERY + of], out[_EVERY + to]
        rows = [part.reshape(part.shape[0], -1, part.shape[-1]) for part in (left, right)]
        result[_EVERY + at] += rows[0].swapaxes(-1, -2) @ rows[1]
    return result


_register("__cudnn$convForward", "iko", _forward)
_register("__cudnn$convBiasActivationForward", "iko", _forward, more=True)
_register("__cudnn$convBackwardInput", "oki", _to_input)
_register("__cudnn$convBackwardFilter", "iok", _to_kernel)
