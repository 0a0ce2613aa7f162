# SPDX-License-Identifier: Apache-2.0
"""Transformations around and inside sharded programs, on one function: f(x) = x * s(x). s adds the blocks of x over
mesh axes.

In manual mode s is a psum, in the other modes a sum over the blocks. The inputs are small integers, so every result is
exact. The derivatives of f have closed forms:

    cotangent g:   g * s(x) + s(g * x)
    tangent t:     t * s(x) + x * s(t)

Each transformation is written once (`TRANSFORMS`). It applies to the local function in manual mode, so it is inside
shard_map there, and to the global function in the other modes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import auto_axes

from meshmark.core import values
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant, nbytes
from meshmark.operations.collective_base import send


def added(x, axes, blocks):
    """The sum of the blocks, repeated for each block: a psum over mesh axes, or, if `blocks` is not 0, a sum over the
    blocks of a whole array."""
    if not blocks:
        return lax.psum(x, axes)
    stack = x.reshape(blocks, x.shape[0] // blocks, *x.shape[1:])
    return jnp.broadcast_to(stack.sum(axis=0, dtype=x.dtype), stack.shape).reshape(x.shape)


def _plain(f, x, y):
    return f(x)


def _jitted(f, x, y):
    return jax.jit(jax.jit(f))(x)


def _vjp(f, x, y):
    return jax.vjp(f, x)[1](y)[0]


def _jvp(f, x, y):
    return jax.jvp(f, (x,), (y,))[1]


def _linearize(f, x, y):
    return jax.linearize(f, x)[1](y)


def _linear_transpose(f, x, y):
    return jax.linear_transpose(jax.linearize(f, x)[1], x)(y)[0]


def _remat(f, x, y):
    return jax.vjp(jax.checkpoint(f), x)[1](y)[0]


def _second(f, x, y):
    """The derivative along y of the pullback of y."""
    return jax.jvp(lambda a: jax.vjp(f, a)[1](y)[0], (x,), (y,))[1]


def _closed_over(f, x, y):
    """The gradient with respect to a factor that the function closes over."""
    return jax.vjp(lambda w: (lambda a: f(a) * w)(x), y)[1](y)[0]


def _scan(f, x, y):
    return lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]


def _scan_vjp(f, x, y):
    return jax.vjp(lambda a: _scan(f, a, y), x)[1](y)[0]


def _scan_remat(f, x, y):
    return jax.vjp(lambda a: _scan(jax.checkpoint(f), a, y), x)[1](y)[0]


def _fori_loop(f, x, y):
    return lax.fori_loop(0, 2, lambda _, c: f(c), x)


def _while_loop(f, x, y):
    return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1])), (jnp.int32(0), x))[1]


def _cond(f, x, y):
    return lax.cond(y.dtype.itemsize > 0, f, jnp.negative, x)


def _cond_vjp(f, x, y):
    return jax.vjp(lambda a: _cond(f, a, y), x)[1](y)[0]


def _switch(f, x, y):
    branches = [jnp.negative, f, jnp.abs]
    return lax.switch(jnp.int32(y.ndim - 1), branches, x)


def _vmap(f, x, y):
    return jax.vmap(f, in_axes=1, out_axes=1)(x)


def _vmap_vjp(f, x, y):
    return jax.vjp(lambda a: _vmap(f, a, y), x)[1](y)[0]


def _vmap_named(f, x, y):
    """A sum over the named batch, in addition to the sum over the mesh."""
    return jax.vmap(lambda a: lax.psum(f(a), "batch"), in_axes=1, out_axes=None, axis_name="batch")(x)


def _custom_vjp(f, x, y):
    """A custom rule: three times the cotangent."""
    own = jax.custom_vjp(f)
    own.defvjp(lambda a: (f(a), None), lambda _, g: (3 * g,))
    return jax.vjp(own, x)[1](y)[0]


def _custom_jvp(f, x, y):
    """A custom rule: three times the tangent."""
    own = jax.custom_jvp(f)
    own.defjvp(lambda primals, tangents: (f(*primals), 3 * tangents[0]))
    return jax.jvp(own, (x,), (y,))[1]


def _printed(f, x, y):
    """A debug callback on the function's input."""
    jax.debug.callback(lambda a: None, x)
    return f(x)


def _pure_callback(f, x, y):
    """The host adds one to the function's input, and the program subtracts one again."""
    kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return f(jax.pure_callback(lambda a: np.asarray(a) + 1, kind, x, vmap_method="sequential") - 1)


def _barrier(f, x, y):
    return lax.optimization_barrier(f(lax.optimization_barrier(x)))


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "plain": _plain,
    "jit": _jitted,
    "vjp": _vjp,
    "jvp": _jvp,
    "linearize": _linearize,
    "linear_transpose": _linear_transpose,
    "remat": _remat,
    "second": _second,
    "closed_over": _closed_over,
    "scan": _scan,
    "scan_vjp": _scan_vjp,
    "scan_remat": _scan_remat,
    "fori_loop": _fori_loop,
    "while_loop": _while_loop,
    "cond": _cond,
    "cond_vjp": _cond_vjp,
    "switch": _switch,
    "vmap": _vmap,
    "vmap_vjp": _vmap_vjp,
    "vmap_named": _vmap_named,
    "custom_vjp": _custom_vjp,
    "custom_jvp": _custom_jvp,
    "debug_callback": _printed,
    "pure_callback": _pure_callback,
    "barrier": _barrier,
}
"""Each transformation takes the function, its argument, and a cotangent or tangent of the same shape."""

SUMS = {
    **dict.fromkeys(
        ("vjp", "jvp", "linearize", "cond_vjp", "vmap_vjp", "scan", "fori_loop", "while_loop"), 2
    ),
    **dict.fromkeys(("linear_transpose", "remat"), 3),
    **dict.fromkeys(("second", "scan_vjp"), 4),
    "scan_remat": 6,
}
"""The most sums over the axes that a transformation needs; one if it is not here. The derivative of a sum is a sum, and
a checkpoint computes it again."""

CALLBACKS = ("debug_callback", "pure_callback")
"""The transformations that call a function of the host."""

ONLY_LOCAL = ("pure_callback", "vmap", "vmap_vjp", "vmap_named")
"""The transformations that auto and explicit mode leave out. A callback in a global program sees the whole array on one
device, and the global function has a reshape that is not local to a column."""


class Transform(Operation):
    """One sharded function under every transformation of JAX: derivatives, batching, loops, branches, custom rules,
    callbacks."""

    name = "transform"
    family = "transforms"
    level = "L3"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    sizes: ClassVar[dict[str, int]] = {"4KiB": 0}
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "manual", "manual-novma")

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for number, name in enumerate(TRANSFORMS):
            choices = [(mesh.names, False)]
            others = (False,) if name == "vmap_named" else (False, True)
            choices += [((a,), other) for a in mesh.names for other in others if len(mesh.names) > 1]
            for position, (axes, other) in enumerate(choices):
                taken = mesh == preferred(mesh.size) and position == number % len(choices)
                yield Variant.of(2 if taken else 4, None, transform=name, axes=axes, columns=other)

    def mode_weight(self, mode: str, variant: Variant) -> int | None:
        """Manual mode with and without check_vma has weight 0: check_vma decides how collectives are transposed."""
        return 0 if mode.startswith("manual") else None

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode in ("auto", "explicit") and variant["transform"] in ONLY_LOCAL:
            return "the transformation is of a local function: see ONLY_LOCAL"
        return super().absent(mode, variant, mesh)

    def calls_host(self, variant: Variant) -> bool:
        return variant["transform"] in CALLBACKS

    def plan(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        axes, name = variant["axes"], variant["transform"]
        blocks = mesh.product(axes)
        columns = mesh.rest(axes) if variant.get("columns") else ()
        spec = (axes, columns or None)
        shape = (4 * blocks, 4 * mesh.product(columns) if columns else 4)
        x = Argument(shape, request.dtype, spec, values.tokens, {"below": 2 if "scan" in name else 3})
        y = Argument(shape, request.dtype, spec, values.tokens, {"below": 3})
        result = Result(shape, request.dtype, spec)
        if name == "vmap_named":
            result = Result(shape[:1], request.dtype, spec[:1])
        return Plan(
            (x, y),
            (result,),
            {"transform": name, "axes": axes, "blocks": blocks, "spec": spec, "columns": columns},
            judge="exact",
            owed=partial(send, "all-reduce", axes, SUMS.get(name, 1) * nbytes(x, mesh), mesh),
        )

    @staticmethod
    def manual(x, y, *, transform, axes):
        return TRANSFORMS[transform](lambda a: a * added(a, axes, 0), x, y)

    @staticmethod
    def auto(x, y, *, transform, blocks):
        return TRANSFORMS[transform](lambda a: a * added(a, (), blocks), x, y)

    @staticmethod
    def explicit(x, y, *, transform, blocks, spec):
        def total(a):
            return auto_axes(lambda b: added(b, (), blocks), out_sharding=P(*spec))(a)

        return TRANSFORMS[transform](lambda a: a * total(a), x, y)

    @staticmethod
    def reference(x, y, *, transform, blocks):
        def s(a):
            stack = a.reshape(blocks, -1, *a.shape[1:])
            return np.broadcast_to(stack.sum(axis=0), stack.shape).reshape(a.shape)

        def back(a, g):
            return g * s(a) + s(g * a)

        f = x * s(x)
        if transform in ("vjp", "remat", "linear_transpose", "cond_vjp", "vmap_vjp"):
            return back(x, y)
        if transform in ("jvp", "linearize"):
            return y * s(x) + x * s(y)
        if transform == "second":
            return y * s(y) + s(y * y)
        if transform == "closed_over":
            return f * y
        if transform in ("scan", "fori_loop", "while_loop"):
            return f * s(f)
        if transform in ("scan_vjp", "scan_remat"):
            return back(x, back(f, y))
        if transform == "vmap_named":
            return f.sum(axis=1)
        if transform in ("custom_vjp", "custom_jvp"):
            return 3 * y
        return f
