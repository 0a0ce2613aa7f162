# SPDX-License-Identifier: Apache-2.0
"""Small rules: numbers and slopes that are right until one more condition holds: ties, starts past the end, a rule with
two constants, sums that leave the range of their dtype, dimensions other than the last."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, may_leave_out_devices, refused


def _rules_with_constants(line, grid):
    """A rule of one's own has its constants (`nondiff_argnums`) in their order, wherever they stand among the
    arguments."""
    host = mixed((2 * line.size,), 7, 5).astype(np.float32)
    x = placed(line, host, "d")
    expected = np.full_like(host, 12)

    first = jax.custom_vjp(lambda n, k, v: v, nondiff_argnums=(0, 1))
    first.defvjp(lambda n, k, v: (v, ()), lambda n, k, kept, ct: (ct * (10 * n + k),))
    apart = jax.custom_vjp(lambda n, v, k: v, nondiff_argnums=(0, 2))
    apart.defvjp(lambda n, v, k: (v, ()), lambda n, k, kept, ct: (ct * (10 * n + k),))
    forward = jax.custom_jvp(lambda n, v, k: v, nondiff_argnums=(0, 2))
    forward.defjvp(lambda n, k, primals, tangents: (primals[0], tangents[0] * (10 * n + k)))
    calls = {
        "two constants first": lambda v: first(1, 2, v),
        "constants around": lambda v: apart(1, v, 2),
        "constants around a forward rule": lambda v: forward(1, v, 2),
    }
    found = jax.jit(lambda v: {name: jax.grad(lambda w, f=f: f(w).sum())(v) for name, f in calls.items()})(x)
    for name, call in calls.items():
        expect(np.asarray(found[name]), expected, f"the slope of a rule with {name}")
        expect(
            np.asarray(jax.grad(lambda v, f=call: f(v).sum())(x)), expected, f"the eager slope with {name}"
        )


def _slopes_at_ties(line, grid):
    """The slope of a maximum or a minimum is shared evenly between equal elements, along each dimension."""
    host = np.tile(np.float32([[3, 1, 3, 2], [3, 3, 1, 3]]), (line.size, 1))
    x = placed(line, host, "d")

    def shared(v, axis):
        best = v == v.max(axis, keepdims=True)
        return (best / best.sum(axis, keepdims=True)).astype(np.float32)

    asked = {
        f"{name} along {axis}{', kept' if kept else ''}": (name, axis, kept)
        for name, axis, kept in itertools.product(("max", "min"), (None, 0, 1, -1, (0, 1)), (False, True))
    }

    def slopes(v):
        return {
            label: jax.grad(lambda w, n=name, a=axis, k=kept: getattr(jnp, n)(w, axis=a, keepdims=k).sum())(v)
            for label, (name, axis, kept) in asked.items()
        }

    for way, found in (("compiled", jax.jit(slopes)(x)), ("of a whole array", jax.jit(slopes)(host))):
        for label, (name, axis, _) in asked.items():
            right = shared(host if name == "max" else -host, axis)
            expect(np.asarray(found[label]), right, f"the slope of {label}, {way}")
    pairs = {
        "maximum of equals": (lambda v: jnp.maximum(v, v + 0), 1.0),
        "maximum with a constant": (lambda v: jnp.maximum(v, 3), np.where(host == 3, 0.5, 0)),
        "minimum with a constant": (lambda v: jnp.minimum(v, 1), np.where(host == 1, 0.5, 0)),
        "relu at zero": (lambda v: jax.nn.relu(v - 3), np.zeros_like(host)),
    }
    found = jax.jit(lambda v: {k: jax.grad(lambda w, f=f: f(w).sum())(v) for k, (f, _) in pairs.items()})(x)
    for name, (_, right) in pairs.items():
        expect(
            np.asarray(found[name]), np.broadcast_to(right, host.shape).astype(np.float32), f"slope of {name}"
        )


def _fills_of_whole_numbers(line, grid):
    """Indices outside of an array give the value that is asked for, or the one that is documented for its dtype."""
    n = 2 * line.size
    away = np.array([0, n, n - 1, 3 * n, -n - 1], np.int32)
    inside = np.array([True, False, True, False, False])
    rows = np.where(inside, away, 0)
    for dtype in (np.int8, np.int32, np.uint8, np.uint32, np.float32, np.bool_):
        host = (np.arange(3 * n).reshape(n, 3) % 2).astype(dtype)
        x = placed(line, host, "d")
        kind = np.dtype(dtype).kind
        usual = {"b": True, "f": np.nan}.get(kind)
        if usual is None:
            usual = np.iinfo(dtype).min if kind == "i" else np.iinfo(dtype).max
        asked = -7 if kind in "if" else 1
        calls = {
            "get with a fill value": (lambda v, f=asked: v.at[away].get(mode="fill", fill_value=f), asked),
            "get with fill": (lambda v: v.at[away].get(mode="fill"), usual),
            "take with a fill value": (
                lambda v, f=asked: jnp.take(v, away, 0, mode="fill", fill_value=f),
                asked,
            ),
            "take with fill": (lambda v: jnp.take(v, away, 0, mode="fill"), usual),
        }
        found = jax.jit(lambda v, c=calls: {name: f(v) for name, (f, _) in c.items()})(x)
        for name, (_, value) in calls.items():
            negative = away == -n - 1
            right = np.where((inside & ~negative)[:, None], host[rows], np.array(value).astype(dtype))
            expect(np.asarray(found[name]), right.astype(dtype), f"{name} of {np.dtype(dtype).name}")


def _slopes_of_clamped_starts(line, grid):
    """A start before the beginning or past the end is clamped, and slopes go where the numbers went."""
    n, w = 2 * line.size, 2
    host = mixed((n, 3), 7, 5).astype(np.float32)
    part = mixed((w, 3), 5, 3).astype(np.float32) + 1
    weights = np.arange(1, 3 * n + 1, dtype=np.float32).reshape(n, 3)
    x, u, k = placed(line, host, "d"), placed(line, part), placed(line, weights, "d")

    def updated(a, b, start):
        return jnp.sum(lax.dynamic_update_slice(a, b, (start, 0)) * k)

    def cut(a, start):
        return jnp.sum(lax.dynamic_slice(a, (start, 0), (w, 3)) * u)

    update, slices = jax.jit(jax.grad(updated, (0, 1))), jax.jit(jax.grad(cut))
    for start in (0, 1, n - w, n - 1, n, 3 * n, -1, -n, -5 * n):
        at = min(max(start + n if start < 0 else start, 0), n - w)
        index = np.int32(start)
        kept = weights.copy()
        kept[at : at + w] = 0
        of_operand, of_update = update(x, u, index)
        expect(
            np.asarray(of_operand), kept, f"the operand's slope of an update that starts at {start} of {n}"
        )
        expect(
            np.asarray(of_update),
            weights[at : at + w],
            f"the slope of an update that starts at {start} of {n}",
        )
        right = np.zeros_like(host)
        right[at : at + w] = part
        expect(np.asarray(slices(x, index)), right, f"the slope of a slice that starts at {start} of {n}")
    starts = np.array([0, n - 1, 4 * n], np.int32)
    for size in (1, w):
        found = jax.jit(jax.vmap(lambda s, z=size: lax.dynamic_slice(x, (s, 0), (z, 3))))(starts)
        right = np.stack([host[min(s, n - size) :][:size] for s in starts])
        expect(np.asarray(found), right, f"a batch of slices of {size}, some past the end")


def _slopes_inside_remat(line, grid):
    """A collective inside of `jax.checkpoint` has the slope that it has outside, by each way to save."""
    size = line.size
    host = mixed((2 * size,), 7, 5).astype(np.float32)
    x = placed(line, host, "d")
    # Each function is linear in the square, and its sum over the whole result has slope 2 x times a number.
    inner = {
        "psum": (lambda v: lax.psum(v * v, "d"), P(), 1.0),
        "pmean": (lambda v: lax.pmean(v * v, "d") * size, P(), 1.0),
        "all_gather": (lambda v: lax.all_gather(v * v, "d", tiled=True), P("d"), float(size)),
        "psum_scatter": (
            lambda v: lax.psum_scatter(jnp.tile(v * v, size), "d", tiled=True), P("d"), float(size)
        ),
        "ppermute": (
            lambda v: lax.ppermute(v * v, "d", [(k, (k + 1) % size) for k in range(size)]), P("d"), 1.0
        ),
    }  # fmt: skip
    ways: dict[str, Callable[..., Callable[..., jax.Array]]] = {
        "checkpoint": jax.checkpoint,
        "checkpoint that saves all": lambda f: jax.checkpoint(
            f, policy=jax.checkpoint_policies.everything_saveable
        ),
        "checkpoint of a checkpoint": lambda f: jax.checkpoint(jax.checkpoint(f)),
    }

    def loss_of(f: Callable[..., jax.Array], spec: P) -> Callable[..., jax.Array]:
        return lambda v: mapped(f, line, P("d"), spec)(v).sum()

    for way, wrapped in ways.items():
        losses = {name: loss_of(wrapped(f), spec) for name, (f, spec, _) in inner.items()}
        found = jax.jit(lambda v, c=losses: {name: jax.grad(loss)(v) for name, loss in c.items()})(x)
        for name, (_, _, factor) in inner.items():
            expect(
                np.asarray(found[name]), np.float32(2 * factor) * host, f"the slope of {name} inside a {way}"
            )


def _jacobians_of_matrices(line, grid):
    """A Jacobian has the result's dimensions first, then the argument's in their order, by each way to ask."""
    rows = 2 * line.size
    host = mixed((rows, 3), 7, 5).astype(np.float32)
    cube = mixed((rows, 2, 3), 5, 3).astype(np.float32)
    w = np.arange(1, 3 * rows + 1, dtype=np.float32).reshape(rows, 3)
    c = np.arange(1, 6 * rows + 1, dtype=np.float32).reshape(rows, 2, 3)
    functions = {
        "a matrix": (lambda m: jnp.stack([(m * w).sum(), 2 * (m * w).sum()]), host, np.stack([w, 2 * w])),
        "rows of a matrix": (
            lambda m: (m * w).sum(0), host, np.eye(3, dtype=np.float32)[:, None, :] * w[None]
        ),
        "three dimensions": (lambda m: (m * c).sum()[None], cube, c[None]),
    }  # fmt: skip
    for name, (f, value, right) in functions.items():
        x = placed(line, value, "d")
        for way, derive in (("jacfwd", jax.jacfwd), ("jacrev", jax.jacrev), ("jacobian", jax.jacobian)):
            expect(np.asarray(jax.jit(derive(f))(x)), right, f"{way} of {name}")
    x = placed(line, host, "d")
    seen = np.asarray(jax.jit(jax.hessian(lambda m: (m * m * w).sum()))(x))
    right = np.zeros((rows, 3, rows, 3), np.float32)
    for i, j in np.ndindex(rows, 3):
        right[i, j, i, j] = 2 * w[i, j]
    expect(seen, right, "the hessian of a matrix")


def _middles(line, grid):
    """Medians and quantiles of even and odd numbers, along each dimension, by each way to choose between two."""
    n = 2 * line.size
    for columns in (4, 5):
        host = mixed((n, columns), 11, 7).astype(np.float32)
        x = placed(line, host, "d")
        calls = {
            f"{name} along {axis}": (name, axis)
            for name, axis in itertools.product(("median", "nanmedian"), (None, 0, 1, -1))
        }
        methods = ("linear", "lower", "higher", "midpoint")
        quantiles = {
            f"quantile {q} along {axis} by {method}": (q, axis, method)
            for q, axis, method in itertools.product((0.0, 0.5, 1.0), (0, 1), methods)
        }

        def every(v, calls=calls, quantiles=quantiles):
            found = {label: getattr(jnp, name)(v, axis=axis) for label, (name, axis) in calls.items()}
            for label, (q, axis, method) in quantiles.items():
                found[label] = jnp.quantile(v, q, axis=axis, method=method)
            return found

        found = jax.jit(every)(x)
        for label, (name, axis) in calls.items():
            right = np.asarray(getattr(np, name)(host, axis=axis), np.float32)
            expect(np.asarray(found[label]), right, f"{label} of {n} x {columns}")
        for label, (q, axis, method) in quantiles.items():
            right = np.asarray(np.quantile(host, q, axis=axis, method=method), np.float32)
            expect(np.asarray(found[label]), right, f"{label} of {n} x {columns}")


def _largest_along(line, grid):
    """The largest elements along a dimension, with the place of each, in the order of the values: along the last
    dimension and along earlier ones."""
    n = 2 * line.size
    host = ((np.arange(6 * n) * 7) % (6 * n + 1)).astype(np.float32).reshape(n, 2, 3)
    for k, (axis, spec) in itertools.product(
        (1, 2), ((0, (None, "d")[:1]), (1, ("d",)), (2, ("d",)), (-2, ("d",)))
    ):
        x = placed(line, host, *spec)
        order = np.argsort(-host, axis, kind="stable")
        places = np.take(order, np.arange(k), axis).astype(np.int32)
        values, indices = jax.jit(lambda v, k=k, a=axis: tuple(lax.top_k(v, k, axis=a)))(x)
        expect(np.asarray(values), np.take_along_axis(host, places, axis), f"the {k} largest along {axis}")
        expect(np.asarray(indices), places, f"the places of the {k} largest along {axis}")


def _ends_of_sums(line, grid):
    """Sums whose parts leave the range of their dtype, and logarithms of sums of nothing."""
    n = 2 * line.size
    host = np.full((n, 4), 60_000, np.float16)
    nothing = np.full((n, 4), -np.inf, np.float32)
    nothing[0, 0] = 0
    half, ends = placed(line, host, "d"), placed(line, nothing, "d")
    means = {"along the shards": 0, "along the other dimension": 1, "of all": None}
    found = jax.jit(lambda v: {name: jnp.mean(v, axis=axis) for name, axis in means.items()})(half)
    for name, axis in means.items():
        right = np.mean(host.astype(np.float64), axis).astype(np.float16)
        expect(np.asarray(found[name]), right, f"the mean of float16 {name}, whose sum overflows")
    sums = {"nn.logsumexp": jax.nn.logsumexp, "scipy.special.logsumexp": jax.scipy.special.logsumexp}
    seen = jax.jit(lambda v: {name: (f(v, axis=1), f(v[1:])) for name, f in sums.items()})(ends)
    right = np.where(np.arange(n) == 0, 0, -np.inf).astype(np.float32)
    for name in sums:
        rows, whole = (np.asarray(part) for part in seen[name])
        expect(rows, right, f"{name} of rows of -inf, and of one with a zero")
        expect(whole, np.float32(-np.inf), f"{name} of an array of -inf")


def _counts_of_axes(line, grid):
    """Sums and means of Python numbers and whole numbers over one axis and over several."""
    rows, columns = grid.devices.shape
    sizes = {"x": rows, "y": columns, ("x", "y"): rows * columns, ("y", "x"): rows * columns}
    # Multiples of every size, so that each mean is a whole number and exact.
    host = (np.arange(grid.size, dtype=np.int32).reshape(rows, columns) * 3 + 1) * grid.size
    x = placed(grid, host, "x", "y")

    def counted(v):
        found = {}
        for axes in sizes:
            numbers = lax.psum(1, axes), lax.psum(2.5, axes), lax.psum({"a": 3}, axes)["a"]
            expect(numbers, (sizes[axes], 2.5 * sizes[axes], 3 * sizes[axes]), f"sums of numbers over {axes}")
            expect(lax.axis_size(axes), sizes[axes], f"the size of {axes}")
            found[axes] = lax.pmean(v, axes), lax.pmean({"a": v}, axes)["a"]
        return {str(axes): value for axes, value in found.items()}

    specs = {"x": P(None, "y"), "y": P("x", None), ("x", "y"): P(), ("y", "x"): P()}
    named = {str(axes): (spec, spec) for axes, spec in specs.items()}
    found = mapped(counted, grid, P("x", "y"), named)(x)
    for axes in sizes:
        along = tuple("xy".index(name) for name in axes)
        right = host.mean(along, keepdims=True).astype(np.float32)
        for mean in found[str(axes)]:
            expect(np.asarray(mean), right, f"the mean of whole numbers over {axes}")


def _windows_with_padding(line, grid):
    """The largest of a window does not see the padding, nor does the smallest: negative and positive arrays, padded by
    words and by numbers."""
    n = 4 * line.size
    host = -mixed((n, 4), 11, 7).astype(np.float32) - 1
    x = placed(line, host, "d")
    paddings = {"SAME": "SAME", "numbers": ((1, 1), (0, 2)), "the front alone": ((2, 0), (1, 0))}
    asked = {
        f"{name} of windows, padded by {how}, step {step}": (name, padding, step)
        for name, (how, padding), step in itertools.product(("max", "min"), paddings.items(), (1, 2))
    }

    def windows(v):
        found = {}
        for label, (name, padding, step) in asked.items():
            reduce, empty = (lax.max, -jnp.inf) if name == "max" else (lax.min, jnp.inf)
            value = v if name == "max" else -v
            found[label] = lax.reduce_window(value, empty, reduce, (3, 2), (step, step), padding)
        return found

    found = jax.jit(windows)(x)
    for label, (name, padding, step) in asked.items():
        value, empty = (host, -np.inf) if name == "max" else (-host, np.inf)
        pads = padding
        if isinstance(padding, str):
            pads = []
            for size, window in zip(host.shape, (3, 2), strict=True):
                more = max((-(-size // step) - 1) * step + window - size, 0)
                pads.append((more // 2, more - more // 2))
        wide = np.pad(value, pads, constant_values=empty)
        views = np.lib.stride_tricks.sliding_window_view(wide, (3, 2))[::step, ::step]
        right = getattr(views, name)((2, 3)).astype(np.float32)
        expect(np.asarray(found[label]), right, label)


def _carries_refused(line, grid):
    """A loop's carry keeps its dtype and its shape: another one is refused, and nothing is cast."""
    x = placed(line, np.arange(2 * line.size, dtype=np.float32), "d")
    whole = placed(line, np.arange(2 * line.size, dtype=np.int32), "d")
    words = "dtype|carry|type"
    loops = {
        "scan of whole numbers that become floats": lambda: lax.scan(
            lambda c, _: (c * 1.5, None), whole, length=2
        ),
        "scan of floats that become float16": lambda: lax.scan(
            lambda c, _: (c.astype(jnp.float16), None), x, length=2
        ),
        "scan of another shape": lambda: lax.scan(lambda c, _: (c[:-1], None), x, length=2),
        "fori_loop": lambda: lax.fori_loop(0, 2, lambda k, c: c * 1.5, whole),
        "while_loop": lambda: lax.while_loop(lambda c: c[0] < 0, lambda c: c * 1.5, whole),
    }
    for name, loop in loops.items():
        refused(f"a {name}", words, loop)
        refused(f"a jitted {name}", words, jax.jit(loop))


def _matrices_of_indices(line, grid):
    """Indices of two dimensions, along each dimension of an array, by each way to look up."""
    n = 2 * line.size
    host = ((np.arange(12 * n) * 7) % (12 * n + 1)).astype(np.float32).reshape(n, 4, 3)
    x = placed(line, host, "d")
    for axis, size in ((0, n), (1, 4), (2, 3), (-1, 3), (-2, 4)):
        chosen = ((np.arange(6) * 5 + 1) % size).astype(np.int32).reshape(2, 3)
        before = (slice(None),) * (axis % 3)
        calls = {
            "take": lambda v, i, a=axis: jnp.take(v, i, axis=a),
            "take with a mode": lambda v, i, a=axis: jnp.take(v, i, axis=a, mode="clip"),
            "the method": lambda v, i, a=axis: v.take(i, a),
            "brackets": lambda v, i, b=before: v[(*b, i)],
            "at": lambda v, i, b=before: v.at[(*b, i)].get(),
        }
        found = jax.jit(lambda v, i, c=calls: {name: f(v, i) for name, f in c.items()})(x, chosen)
        for name in calls:
            expect(
                np.asarray(found[name]),
                np.take(host, chosen, axis),
                f"a matrix of indices along {axis} by {name}",
            )


def _slopes_of_vandermonde(line, grid):
    """The slopes of the columns of a Vandermonde matrix are those of powers, at zero too."""
    host = np.arange(-1, 2 * line.size - 1, dtype=np.float32)
    weights = np.float32([3, 5, 2])  # of the powers 0, 1 and 2
    x = placed(line, host, "d")
    for increasing in (True, False):
        own = weights if increasing else weights[::-1]

        def total(v, own=own, increasing=increasing):
            return (jnp.vander(v, 3, increasing=increasing) * own).sum()

        right = weights[1] + 2 * weights[2] * host
        expect(
            np.asarray(jax.jit(jax.grad(total))(x)), right, f"the slope of vander, increasing={increasing}"
        )


def _elements_between_windows(line, grid):
    """What no window of a strided convolution reads changes no result: it may be NaN."""
    two = jax.sharding.Mesh(line.devices.ravel()[:2], ("d",)) if may_leave_out_devices() else line
    n = two.size
    host = np.ones((2, n, 2 * n), np.float32)
    host[1, :, 1::2] = np.nan
    kernel = np.ones((1, n, 1), np.float32)
    shardings = {
        "positions": ((None, None, "d"), ()),
        "channels of both": ((None, "d"), (None, "d")),
        "positions and the kernel's channels": ((None, None, "d"), (None, "d")),
    }
    for name, (spec, own) in shardings.items():
        for padding in ("SAME", "VALID"):
            found = jax.jit(lambda v, k, p=padding: lax.conv_general_dilated(v, k, (2,), p))(
                placed(two, host, *spec), placed(two, kernel, *own)
            )
            what = f"a convolution that skips NaN, sharded along {name}"
            expect(np.asarray(found), np.full((2, 1, n), n, np.float32), what)


def _diagonals_of_sharded_rows(line, grid):
    """The diagonals of matrices whose rows are sharded over one axis, in results over no, one and two axes."""
    rows = 2 if line.size % 2 == 0 else 1
    turned = jax.sharding.Mesh(line.devices.ravel().reshape(rows, -1), ("x", "y"))
    n = line.size
    host = np.arange(n**3, dtype=np.int32).reshape(n, n, n)
    right = np.diagonal(host, axis1=1, axis2=2)
    spellings = {
        "jnp.diagonal": lambda v: jnp.diagonal(v, axis1=1, axis2=2),
        "indices": lambda v: v[:, np.arange(n), np.arange(n)],
    }
    for (name, spelling), (spec, out) in itertools.product(
        spellings.items(),
        (
            (("y",), ("x", "y")),
            ((None, "x"), ()),
            ((None, "x"), ("x",)),
            ((None, "x"), (None, "y")),
            ((None, "x"), ("x", "y")),
        ),
    ):
        found = jax.jit(spelling, out_shardings=NamedSharding(turned, P(*out)))(placed(turned, host, *spec))
        expect(np.asarray(found), right, f"the diagonals by {name} of {P(*spec)} as {P(*out)}")


RULES_OF_CONDITIONS: dict[str, Callable[..., None]] = {
    "rules_with_constants": _rules_with_constants,
    "slopes_at_ties": _slopes_at_ties,
    "fills_of_whole_numbers": _fills_of_whole_numbers,
    "slopes_of_clamped_starts": _slopes_of_clamped_starts,
    "slopes_inside_remat": _slopes_inside_remat,
    "jacobians_of_matrices": _jacobians_of_matrices,
    "middles": _middles,
    "largest_along": _largest_along,
    "ends_of_sums": _ends_of_sums,
    "counts_of_axes": _counts_of_axes,
    "windows_with_padding": _windows_with_padding,
    "carries_refused": _carries_refused,
    "matrices_of_indices": _matrices_of_indices,
    "slopes_of_vandermonde": _slopes_of_vandermonde,
    "elements_between_windows": _elements_between_windows,
    "diagonals_of_sharded_rows": _diagonals_of_sharded_rows,
}
