# SPDX-License-Identifier: Apache-2.0
"""Draws operations over windows: convolutions and reductions of windows; and Fourier transforms."""

from __future__ import annotations

from typing import Any

from meshmark.hunt.drawing import Draw, kind, start_sum
from meshmark.hunt.elementwise import ref
from meshmark.program_data.program import Node


@kind("window", weight=2.5)
def reduce_window(d: Draw) -> Node:
    """Sums or maxima of windows, with strides, paddings and dilations."""
    a = d.value(lambda v: v.dtype == "float32", 1)
    dims, strides, padding, base, window = [], [], [], [], []
    for n in a.shape:
        active = d.chance(0.6)
        size = d.integer(1, min(n, 4)) if active else 1
        dims.append(size)
        strides.append(d.choice([1, 1, 2, 3]) if active else 1)
        padding.append([d.integer(0, size - 1), d.integer(0, size - 1)] if active else [0, 0])
        base.append(d.choice([1, 1, 2]) if active else 1)
        window.append(d.choice([1, 1, 1, 2]) if active else 1)
    kwargs: dict[str, Any] = {"window_dimensions": dims, "window_strides": strides, "padding": padding}
    if d.chance(0.3):
        kwargs["base_dilation"] = base
    if d.chance(0.3):
        kwargs["window_dilation"] = window
    adds = d.chance(0.65)
    init: Any = 0.0 if adds else {"float": "-inf"}
    name = "lax.add" if adds else "lax.max"
    return Node("lax.reduce_window", (ref(a), init, {"name": name}), kwargs)


@kind("window", weight=3)
def convolution(d: Draw) -> Node:
    """lax.conv_general_dilated with strides, paddings, dilations and groups."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim in (3, 4))
    spatial = a.ndim - 2
    last = d.chance(0.5)
    c_at = a.ndim - 1 if last else 1
    c = a.shape[c_at]
    extents = a.shape[1:-1] if last else a.shape[2:]
    groups = d.choice([k for k in (1, 1, 2, 4, c) if c % k == 0])
    batch_groups = 1
    if groups == 1 and d.chance(0.15):
        batch_groups = d.choice([k for k in (1, 2, 4) if a.shape[0] % k == 0])
    out = d.choice([1, 2, 4, 3]) * groups * batch_groups
    window = [d.integer(1, min(4, n + 1)) for n in extents]
    kernel_shape = (*window, c // groups, out) if last else (out, c // groups, *window)
    kernel = d.like(kernel_shape, "float32")
    letters = "HW"[:spatial]
    numbers = (
        [f"N{letters}C", f"{letters}IO", f"N{letters}C"]
        if last
        else [f"NC{letters}", f"OI{letters}", f"NC{letters}"]
    )
    dilation = [d.choice([1, 1, 2]) for _ in extents]
    reach = [(w - 1) * k for w, k in zip(window, dilation, strict=True)]
    padding: Any = d.choice(["SAME", "VALID", [[d.integer(0, r), d.integer(0, r)] for r in reach]])
    kwargs: dict[str, Any] = {
        "window_strides": [d.choice([1, 1, 2, 3]) for _ in extents],
        "padding": padding,
        "dimension_numbers": numbers,
    }
    if d.chance(0.3):
        kwargs["rhs_dilation"] = dilation
    if d.chance(0.3) and not isinstance(padding, str):
        kwargs["lhs_dilation"] = [d.choice([1, 2, 3]) for _ in extents]
    if groups > 1:
        kwargs["feature_group_count"] = groups
    if batch_groups > 1:
        kwargs["batch_group_count"] = batch_groups
    return Node("lax.conv_general_dilated", (ref(a), ref(kernel)), kwargs)


@kind("window", weight=0.6)
def convolve(d: Draw) -> Node:
    """jnp.convolve of two vectors."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim == 1)
    b = d.like((d.integer(1, min(5, a.shape[0])),), "float32")
    return Node("jnp.convolve", (ref(a), ref(b)), {"mode": d.choice(["full", "same", "valid"])})


@kind("window", rounds=True, weight=0.4)
def fft(d: Draw) -> Node:
    """A Fourier transform along one dimension."""
    a = d.value(lambda v: v.dtype == "float32", 1)
    return Node(f"jnp.fft.{d.choice(['fft', 'ifft', 'rfft'])}", (ref(a),), {"axis": d.axis(a)})


@kind("edge", weight=0.8)
def select_and_gather(d: Draw) -> Node:
    """Max pooling by reduce_window, whose gradient is a select-and-scatter."""
    a = d.value(lambda v: v.dtype == "float32", 1)
    dims = [min(2, n) if d.chance(0.6) else 1 for n in a.shape]
    return Node(
        "lax.reduce_window",
        (ref(a), {"float": "-inf"}, {"name": "lax.max"}),
        {"window_dimensions": dims, "window_strides": dims, "padding": d.choice(["SAME", "VALID"])},
    )


@kind("window", weight=1.5)
def convolution_layouts(d: Draw) -> Node:
    """A convolution with any order of dimensions of its input, kernel and result."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim in (3, 4))
    letters = "HW"[: a.ndim - 2]

    def order(names: str) -> str:
        return "".join(names[i] for i in d.permutation(len(names)))

    source = order(f"NC{letters}")
    size = dict(zip(source, a.shape, strict=True))
    spec = order(f"IO{letters}")
    window = {c: d.integer(1, min(3, size[c])) for c in letters}
    groups = d.choice([1, 1, size["C"]])
    own = window | {"I": size["C"] // groups, "O": groups * d.choice([1, 2, 4])}
    kernel = d.like(tuple(own[c] for c in spec), "float32")
    kwargs: dict[str, Any] = {
        "window_strides": [d.choice([1, 2]) for _ in letters],
        "padding": d.choice(["SAME", "VALID", [[d.integer(-1, 2), d.integer(-1, 2)] for _ in letters]]),
        "dimension_numbers": [source, spec, order(f"NC{letters}")],
    }
    if groups > 1:
        kwargs["feature_group_count"] = groups
    return Node("lax.conv_general_dilated", (ref(a), ref(kernel)), kwargs)


@kind("window", weight=1)
def convolution_transpose(d: Draw) -> Node:
    """lax.conv_transpose, the layer that enlarges images."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim in (3, 4))
    letters = "HW"[: a.ndim - 2]
    window = [d.integer(1, 4) for _ in letters]
    kernel = d.like((*window, a.shape[-1], d.choice([1, 2, 4])), "float32")
    kwargs = {"dimension_numbers": [f"N{letters}C", f"{letters}IO", f"N{letters}C"]}
    args = (ref(a), ref(kernel), [d.choice([1, 2, 3]) for _ in letters], d.choice(["SAME", "VALID"]))
    return Node("lax.conv_transpose", args, kwargs)


@kind("window", weight=0.7)
def patches(d: Draw) -> Node:
    """The windows of an image as features."""
    a = d.value(lambda v: v.dtype == "float32" and v.ndim in (3, 4), size=400)
    spatial = a.ndim - 2
    window = [d.integer(1, min(3, n)) for n in a.shape[2:]]
    args = (ref(a), window, [d.choice([1, 2]) for _ in range(spatial)], d.choice(["SAME", "VALID"]))
    return Node("lax.conv_general_dilated_patches", args)


@kind("window", weight=1)
def running_window(d: Draw) -> Node:
    """A cumulative sum as XLA writes it: a reduce_window whose window reaches from one end to each element."""
    a = d.number(1)
    axis = d.axis(a, 2)
    n = a.shape[axis]
    dims = [n if k == axis else 1 for k in range(a.ndim)]
    pad = [[n - 1, 0] if k == axis else [0, 0] for k in range(a.ndim)]
    if d.chance(0.4):
        pad[axis] = [0, n - 1]
    kwargs = {"window_dimensions": dims, "window_strides": [1] * a.ndim, "padding": pad}
    return Node("lax.reduce_window", (ref(a), start_sum(a), {"name": "lax.add"}), kwargs)


@kind("window", rounds=True, weight=0.5)
def fft_several(d: Draw) -> Node:
    """A Fourier transform along two dimensions."""
    a = d.value(lambda v: v.dtype == "float32", 2)
    axes = d.permutation(a.ndim)[:2]
    return Node(f"jnp.fft.{d.choice(['fftn', 'ifftn', 'rfftn'])}", (ref(a),), {"axes": axes})
