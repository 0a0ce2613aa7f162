# SPDX-License-Identifier: Apache-2.0
"""Layers with their usual shardings, and their gradients: dense, tensor-parallel MLP, attention.

Contractions have at most 64 terms, so that the derived bounds stay tight. Narrow dtypes multiply in their own type and
accumulate in float32. The reference also rounds stored intermediates (`rounded`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from meshmark.core import values
from meshmark.core.bounds import ARITHMETICS, Bounded, bounded
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import (
    Argument,
    Cost,
    Operation,
    Plan,
    Request,
    Result,
    Traffic,
    Variant,
    nbytes,
    parse_size,
)
from meshmark.operations.functions.contraction import FLOAT32, fitted, narrow, outer_inner, summed

PUBLISHED_INPUTS = np.frombuffer(base64.b64decode(
    "YK9jP+3x1L7ss5s/8yzgP5orNj8AHtG9iaA6vrko1T/2J6C+LYnpv4Zumj/UsPu9t+27P1zdkb/VJwU/ZLFePqqKh75IJ6U+Py77"
    "P3p0Zj4APWk+ZyaBPyXzuL5KsiM+jP8Kv0gxor2CGpM/5BS+vpLTEUCGljY+uB6Gv+uJF7/8drs/QSvFPzmrsL4mBGA+MADgv3H2"
    "gz4xJw1AtOCWviWCqz9A+ca+bwGpvCtkwD74Y6O/ihN4P0GGxz+ji5e9ix5fPx0FQL7TZrQ+wVhPv93Xw787QGG/9+HGv5uQgz+5"
    "UfU+mPCMvywVnr86b7G//RRCv149Vj9Jabe/kUGlPoaOij/8ix0/yOWUvpUV7T4s3ilALv7HP2+d/T/cyGQ/EJZkv/jCCz+UWoi/"
    "P5IZwJNCSb5vcwI/ih9Jv1JG4j0HJV69SZFiP4nWNb5smrK/0ZcrvlUcwD9A59q/6v8EwMPonD+DqWO/J0QzP9rTmL8WU5a/RtJ6"
    "P+SM7z/SlX8/29OuPtN1476EctY+ZF6HPnPqmb8sO6q/pSyzvzyTzr9PNYQ91/KJPwRuJ75a4Z29mH+MPscZ6r5vswe/KiJWPzmK"
    "9z3XaFI/PJdRvwokjr+KEYY/+JAtP1pgw7/X9rW+rfUAP2QfzL1nseo6QiuIPiakAr5v7XI/rxuCv/d4F8DwNPM9jbWpv1L/KD+w"
    "wlE/NW8DwJcpWj8MlyE/vio+v1kfeT54X9i/xmpevgk9xz2/mGM/jI7ZvwwqQT3QX7K+kARMP1EYGL9u4lE+CNrXP4wXCz9JhZO/"
    "35WWPeP9LT6cak0/jq9xv7lSsD8s2YS+IJYKP9IEeb88ZWm/KwKwP8mTPb/lbOM+Iw8tvnqZ0D0="
), "<f4")  # fmt: skip
"""The inputs of the layer in JAX's tutorial "Introduction to parallel programming", x f32[32], W f32[32, 4]
and bias f32[4] one after the other: jax.random.normal with the last three of
jax.random.split(jax.random.key(1701), 4), the same bits in JAX 0.10.2, 0.11.2 and 0.12.0.1."""

PUBLISHED = (0.01422223, 0.9701333, 0.00124826, 0.08572862)
"""The tutorial's printed results, the same in each mode."""


def published(
    bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype, *, start: int
) -> np.ndarray:
    """The tutorial's inputs from position `start` on."""
    return PUBLISHED_INPUTS[start:][index.astype(np.int64)].astype(dtype)


def rounded(x: Any, u: float) -> Any:
    """x after it was stored with unit roundoff u: the same value. If it carries a bound, the bound is wider."""
    if not u or not isinstance(x, Bounded):
        return x
    return Bounded(x.value, x.error + u * (np.abs(x.value) + x.error), x.arithmetic)


def sigmoid(z: Any) -> Any:
    """1 / (1 + exp(-z)), in NumPy."""
    return 1.0 / (1.0 + np.exp(-z))


def softmax(s: Any) -> Any:
    """exp(s - max s) / sum exp(s - max s) along the last dimension, in NumPy."""
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


NOT_INFINITE = ("nan-one", "nan-first", "nan-last", "zeros")
"""The special values of layers that have no bound where an infinity saturates a function."""


class Layer(Operation):
    """The base of the layers. A subclass plans the forward pass. A subclass with `wrt` is its gradient: its last
    arguments are the cotangents, and its results are the gradients with respect to `wrt`."""

    family = "layers"
    complete = True
    fills: ClassVar[tuple[str, ...]] = (*NOT_INFINITE, "inf-one")
    level = "L2"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float64")
    sizes: ClassVar[dict[str, int]] = {"n64": 0, "n16": 2}
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "manual", "manual-novma", "pmap", "pjit")
    wrt: ClassVar[tuple[int, ...]] = ()
    rare: ClassVar[int] = 0
    """The weight of all its variants."""
    gathers: ClassVar[tuple[str, ...]] = ()
    """The sharded dimensions over which a gradient must exchange data."""
    recomputed: ClassVar[float] = 1.0
    """The part of the forward pass's flops whose results a gradient needs: no gradient needs a last product's."""

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for i, variant in enumerate(self.shardings(mesh)):
            rare = bool(self.wrt and i)  # gradients compile slowly
            yield replace(variant, weight=variant.weight + self.rare + rare)

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        """The variants: the sharded dimensions and their mesh axes."""
        raise NotImplementedError

    def forward(self, request: Request) -> Plan:
        """The plan of the forward pass."""
        raise NotImplementedError

    def plan(self, request: Request) -> Plan:
        forward = self.forward(request)
        if not self.wrt:
            return forward
        seeds = tuple(Argument(r.shape, r.dtype, r.spec, *self.seeds(r)) for r in forward.results)
        inputs = [forward.arguments[i] for i in self.wrt]
        arithmetic = forward.arithmetic
        if narrow(request.dtype):  # gradients are summed over devices in the dtype of their argument
            parts = [request.mesh.product(request.variant.get(name) or ()) for name in self.gathers]
            arithmetic = {"u_sum": 2.0**-24, "stores": max(parts)}
        return replace(
            forward,
            arguments=(*forward.arguments, *seeds),
            results=tuple(Result(a.shape, a.dtype, a.spec) for a in inputs),
            forward=forward.results,
            wrt=self.wrt,
            cost=replace(forward.cost, flops=round((2 + self.recomputed) * forward.cost.flops)),
            traffic=None,
            owed=(
                *(forward.traffic or ()),
                *(forward.traffic or ()),
                *self.summed_gradients(request, inputs),
            ),
            connect=tuple(
                group
                for name in self.gathers
                for group in summed(request.mesh, request.variant.get(name) or ())
            ),
            arithmetic=arithmetic,
        )

    def summed_gradients(self, request: Request, inputs: Sequence[Argument]) -> Iterator[Traffic]:
        """The all-reduces of the gradients over the axes that do not shard their argument. They come in addition to the
        traffic of the forward pass and of its transpose."""
        for argument in inputs:
            axes = request.mesh.rest(tuple(a for entry in argument.spec for a in entry or ()))
            yield from added(Result(argument.shape, argument.dtype, argument.spec), request.mesh, axes)

    def seeds(self, result: Result) -> tuple[Any, dict[str, Any]]:
        """The fill of the cotangents, and its options."""
        return values.uniform, {}

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if self.wrt and mode == "pmap":
            return "pmap takes blocks, and the pull-back of a pmap is not that of the global function"
        if self.wrt and mode == "manual-novma" and mesh.size & (mesh.size - 1):
            # The function does not have this division, which rounds: the result is neither exact nor within the bound.
            return "check_vma=False divides a cotangent by the number of its replicas and adds them up again"
        return super().absent(mode, variant, mesh)


def layer_options(request: Request, **options: Any) -> dict[str, Any]:
    """The options of every layer: precision, the accumulator's dtype, and the roundoff of stored values (0: none)."""
    small = narrow(request.dtype)
    return {
        "precision": request.variant.get("precision", "highest"),
        "accumulate": "float32" if small else request.dtype,
        "u": dtype_of(request.dtype).unit_roundoff if small else 0.0,
        **options,
    }


def added(partial_sum: Result, mesh: MeshShape, axes: Sequence[str]) -> tuple[Traffic, ...]:
    """The all-reduce of partial sums over these axes, if they have several devices."""
    groups = summed(mesh, axes)
    itemsize = dtype_of(partial_sum.dtype).itemsize
    return (Traffic("all-reduce", nbytes(partial_sum, mesh), groups, itemsize),) if groups else ()


class Dense(Layer):
    """sigmoid(x @ W + b), the layer of JAX's tutorial. The batch, contracted or output dimension is sharded. The
    variant `published` has the tutorial's inputs."""

    name = "dense"
    fills: ClassVar[tuple[str, ...]] = NOT_INFINITE

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        names = mesh.names
        if not self.wrt and 32 % mesh.size == 0:
            yield Variant.of(inner=names, published=True)
        yield Variant.of(**outer_inner(mesh, "batch", "inner"))
        yield Variant.of(1, **outer_inner(mesh, "batch", "cols"))
        yield Variant.of(2, **outer_inner(mesh, "batch", "inner"), precision="default")
        yield Variant.of(2, batch=names)
        if len(names) > 1:
            yield Variant.of(1, inner=names)
            yield Variant.of(1, **outer_inner(mesh, "inner", "cols"))
            yield Variant.of(2, **outer_inner(mesh, "cols", "inner"))

    def forward(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        batch, inner, cols = (variant.get(name) for name in ("batch", "inner", "cols"))
        dtype, size = request.dtype, parse_size(request.size)
        options = layer_options(request, inner=inner or ())
        if variant.get("published"):
            shapes: list[tuple[int, ...]] = [(32,), (32, 4), (4,)]
            specs: list[Spec] = [(inner,), (inner, None), (None,)]
            starts = (0, 32, 160)
            arguments = tuple(
                Argument(shape, dtype, spec, published, {"start": start})
                for shape, spec, start in zip(shapes, specs, starts, strict=True)
            )
            rows, n, m = 1, 32, 4
            result = Result((4,), options["accumulate"], (None,))
        else:
            rows = fitted(32, mesh.product(batch or ()))
            n, m = fitted(size, mesh.product(inner or ())), fitted(size, mesh.product(cols or ()))
            arguments = (
                Argument((rows, n), dtype, (batch, inner), values.uniform),
                Argument((n, m), dtype, (inner, cols), values.uniform),
                Argument((m,), dtype, (cols,), values.uniform),
            )
            result = Result((rows, m), options["accumulate"], (batch, cols))
        return Plan(
            arguments,
            (result,),
            options | {"out_spec": result.spec},
            judge="bound",
            cost=Cost(2 * rows * n * m),
            traffic=added(result, mesh, inner or ()),
            connect=summed(mesh, inner or ()),
            arithmetic=FLOAT32 if narrow(dtype) else {},
        )

    @staticmethod
    def manual(x, w, b, *, inner, precision, accumulate):
        z = jnp.matmul(x, w, precision=precision, preferred_element_type=accumulate)
        if inner:
            z = lax.psum(z, inner)
        return jax.nn.sigmoid(z + b)

    @staticmethod
    def auto(x, w, b, *, precision, accumulate):
        return jax.nn.sigmoid(jnp.matmul(x, w, precision=precision, preferred_element_type=accumulate) + b)

    @staticmethod
    def explicit(x, w, b, *, precision, accumulate, out_spec):
        out = P(*out_spec)
        z = jnp.matmul(x, w, precision=precision, preferred_element_type=accumulate, out_sharding=out)
        return jax.nn.sigmoid(z + b)

    @staticmethod
    def reference(x, w, b):
        return sigmoid(np.matmul(x, w) + b)


class DenseGradient(Dense):
    """The gradients of the dense layer with respect to x, W and b. There is no bfloat16: its bound is as large as the
    gradient, so a wrong result could pass (embedding_gradient is exact in bfloat16)."""

    name = "dense_gradient"
    level = "L3"
    dtypes = ("float32", "float64")
    wrt = (0, 1, 2)
    rare = 1
    gathers = ("batch", "inner", "cols")

    @staticmethod
    def gradient(x, w, b, g):
        s = sigmoid(np.matmul(x, w) + b)
        dz = g * (s * (1.0 - s))
        return np.matmul(dz, w.T), np.matmul(x.T, dz), dz.sum(axis=0)


class Mlp(Layer):
    """relu(x @ W1) @ W2 with W1 split by columns and W2 by rows (tensor parallelism): one all-reduce."""

    name = "mlp"
    timed: ClassVar[dict[str, int]] = {"n256": 1, "n1024": 1, "n4096": 4}

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        names = mesh.names
        yield Variant.of(**outer_inner(mesh, "batch", "model"))
        yield Variant.of(2, **outer_inner(mesh, "batch", "model"), precision="default")
        if len(names) > 1:
            yield Variant.of(1, model=names)
            yield Variant.of(1, **outer_inner(mesh, "model", "batch"))
        yield Variant.of(2, batch=names)

    def forward(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        batch, model = variant.get("batch"), variant.get("model")
        dtype, n = request.dtype, parse_size(request.size)
        rows, width = fitted(32, mesh.product(batch or ())), fitted(n, mesh.product(model or ()))
        options = layer_options(
            request, model=model or (), hidden_spec=(batch, model), out_spec=(batch, None)
        )
        result = Result((rows, n), options["accumulate"], (batch, None))
        return Plan(
            (
                Argument((rows, n), dtype, (batch, None), values.uniform),
                Argument((n, width), dtype, (None, model), values.uniform),
                Argument((width, n), dtype, (model, None), values.uniform),
            ),
            (result,),
            options,
            judge="bound",
            cost=Cost(4 * rows * n * width),
            traffic=added(result, mesh, model or ()),
            connect=summed(mesh, model or ()),
            arithmetic=FLOAT32 if narrow(dtype) else {},
        )

    @staticmethod
    def manual(x, w1, w2, *, model, precision, accumulate):
        h = jax.nn.relu(jnp.matmul(x, w1, precision=precision, preferred_element_type=accumulate))
        y = jnp.matmul(h.astype(x.dtype), w2, precision=precision, preferred_element_type=accumulate)
        return lax.psum(y, model) if model else y

    @staticmethod
    def auto(x, w1, w2, *, precision, accumulate):
        h = jax.nn.relu(jnp.matmul(x, w1, precision=precision, preferred_element_type=accumulate))
        return jnp.matmul(h.astype(x.dtype), w2, precision=precision, preferred_element_type=accumulate)

    @staticmethod
    def explicit(x, w1, w2, *, precision, accumulate, hidden_spec, out_spec):
        hidden, out = P(*hidden_spec), P(*out_spec)
        h = jnp.matmul(x, w1, precision=precision, preferred_element_type=accumulate, out_sharding=hidden)
        h = jax.nn.relu(h).astype(x.dtype)
        return jnp.matmul(h, w2, precision=precision, preferred_element_type=accumulate, out_sharding=out)

    @staticmethod
    def reference(x, w1, w2, *, u):
        h = rounded(np.maximum(np.matmul(x, w1), 0.0), u)
        return np.matmul(h, w2)


class MlpGradient(Mlp):
    """The gradients of the MLP with respect to x, W1 and W2. There is no bfloat16, as for the dense layer."""

    name = "mlp_gradient"
    # With a NaN in x the bounds of the finite gradients exceed the gradients, so that no wrong value could fail.
    fills: ClassVar[tuple[str, ...]] = ()
    level = "L3"
    dtypes = ("float32", "float64")
    wrt = (0, 1, 2)
    gathers = ("batch", "model")
    recomputed = 0.5

    @staticmethod
    def gradient(x, w1, w2, g):
        z = np.matmul(x, w1)
        dz = np.where(z > 0.0, np.matmul(g, w2.T), 0.0)
        return np.matmul(dz, w1.T), np.matmul(x.T, dz), np.matmul(np.maximum(z, 0.0).T, g)


class Attention(Layer):
    """softmax(Q K^T / sqrt(d)) V on [batch, heads, sequence, d]. d is 16 in the sizes that are judged, and 128 in the
    larger sizes that are timed. Sharded over heads, it communicates nothing. Sharded over the sequence, every device
    gathers all of K and V."""

    name = "attention"
    sizes: ClassVar[dict[str, int]] = {"n32": 0, "n64": 3}
    timed: ClassVar[dict[str, int]] = {"n128": 1, "n512": 1, "n2048": 4}

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        names = mesh.names
        yield Variant.of(**outer_inner(mesh, "batch", "sequence"))
        yield Variant.of(2, **outer_inner(mesh, "batch", "heads"))
        yield Variant.of(3, **outer_inner(mesh, "batch", "sequence"), precision="default")
        if len(names) > 1:
            yield Variant.of(2, sequence=names)
            yield Variant.of(2, **outer_inner(mesh, "sequence", "heads"))

    def forward(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        batch, heads, sequence = (variant.get(name) for name in ("batch", "heads", "sequence"))
        dtype, n = request.dtype, parse_size(request.size)
        parts = [mesh.product(axes or ()) for axes in (batch, heads, sequence)]
        width = 16 if f"n{n}" in self.sizes or variant.get("shape") == "odd" else 128
        shape = (*(fitted(size, k) for size, k in zip((2, 2, n), parts, strict=True)), width)
        spec: Spec = (batch, heads, sequence, None)
        options = layer_options(
            request,
            sequence=sequence or (),
            n=parts[2],
            sizes=dict(mesh.sizes),
            whole_spec=(batch, heads, None, None),
            out_spec=spec,
        )
        arguments = (Argument(shape, dtype, spec, values.uniform, {"scale": 2.0}),) * 3
        groups = summed(mesh, sequence or ())
        return Plan(
            arguments,
            (Result(shape, options["accumulate"], spec),),
            options,
            judge="bound",
            cost=Cost(4 * shape[0] * shape[1] * shape[2] ** 2 * shape[3]),
            traffic=self.moved(2 * nbytes(arguments[0], mesh), mesh, sequence or (), groups),
            connect=groups,
            arithmetic=FLOAT32 if narrow(dtype) else {},
        )

    def moved(
        self, payload: int, mesh: MeshShape, axes: Sequence[str], groups: tuple[tuple[int, ...], ...]
    ) -> tuple[Traffic, ...]:
        """The collectives of manual mode, for blocks of K and V of `payload` bytes together."""
        return (Traffic("all-gather", payload * len(groups[0]), groups),) if groups else ()

    @staticmethod
    def manual(q, k, v, *, sequence, precision, accumulate):
        if sequence:
            k = lax.all_gather(k, sequence, axis=2, tiled=True)
            v = lax.all_gather(v, sequence, axis=2, tiled=True)
        s = jnp.einsum("bhqd,bhkd->bhqk", q, k, precision=precision, preferred_element_type=accumulate)
        p = jax.nn.softmax(s * q.shape[-1] ** -0.5, axis=-1).astype(v.dtype)
        return jnp.einsum("bhqk,bhkd->bhqd", p, v, precision=precision, preferred_element_type=accumulate)

    @staticmethod
    def auto(q, k, v, *, precision, accumulate):
        s = jnp.einsum("bhqd,bhkd->bhqk", q, k, precision=precision, preferred_element_type=accumulate)
        p = jax.nn.softmax(s * q.shape[-1] ** -0.5, axis=-1).astype(v.dtype)
        return jnp.einsum("bhqk,bhkd->bhqd", p, v, precision=precision, preferred_element_type=accumulate)

    @staticmethod
    def explicit(q, k, v, *, sequence, precision, accumulate, whole_spec):
        if sequence:  # two dimensions of the scores can't be sharded over the same axes
            k, v = reshard(k, P(*whole_spec)), reshard(v, P(*whole_spec))
        s = jnp.einsum("bhqd,bhkd->bhqk", q, k, precision=precision, preferred_element_type=accumulate)
        p = jax.nn.softmax(s * q.shape[-1] ** -0.5, axis=-1).astype(v.dtype)
        return jnp.einsum("bhqk,bhkd->bhqd", p, v, precision=precision, preferred_element_type=accumulate)

    @staticmethod
    def reference(q, k, v, *, u):
        s = np.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
        return np.einsum("bhqk,bhkd->bhqd", rounded(softmax(s), u), v)


class AttentionGradient(Attention):
    """The gradients of attention with respect to Q, K and V."""

    name = "attention_gradient"
    level = "L3"
    dtypes = ("float32", "float64")
    wrt = (0, 1, 2)
    gathers = ("sequence",)
    recomputed = 0.5
    rare = 1

    @staticmethod
    def gradient(q, k, v, g):
        scale = q.shape[-1] ** -0.5
        p = softmax(np.einsum("bhqd,bhkd->bhqk", q, k) * scale)
        dp = p * np.einsum("bhqd,bhkd->bhqk", g, v)
        ds = (dp - p * dp.sum(axis=-1, keepdims=True)) * scale
        return (
            np.einsum("bhqk,bhkd->bhqd", ds, k),
            np.einsum("bhqk,bhqd->bhkd", ds, q),
            np.einsum("bhqk,bhqd->bhkd", p, g),
        )


class RingAttention(Attention):
    """Attention sharded over the sequence: blocks of K and V go round a ring, and the softmax is rescaled when larger
    scores arrive (Liu, Zaharia, Abbeel, "Ring attention", 2023)."""

    name = "ring_attention"
    modes = ("manual", "manual-novma", "pmap")

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        yield Variant.of(**outer_inner(mesh, "batch", "sequence"))
        if len(mesh.names) > 1:
            yield Variant.of(1, sequence=mesh.names)

    def moved(
        self, payload: int, mesh: MeshShape, axes: Sequence[str], groups: tuple[tuple[int, ...], ...]
    ) -> tuple[Traffic, ...]:
        if not groups:
            return ()
        n = len(groups[0])
        hops = tuple((group[i], group[(i + 1) % n]) for group in groups for i in range(n))
        return (Traffic("collective-permute", payload * (n - 1), hops),)

    @staticmethod
    def manual(q, k, v, *, sequence, n, precision, accumulate):
        ring = [(i, (i + 1) % n) for i in range(n)]
        most = total = out = None
        for step in range(n):
            if step:
                k, v = lax.ppermute(k, sequence, ring), lax.ppermute(v, sequence, ring)
            s = jnp.einsum("bhqd,bhkd->bhqk", q, k, precision=precision, preferred_element_type=accumulate)
            s = s * q.shape[-1] ** -0.5
            top = s.max(axis=-1, keepdims=True)
            if step:
                top = jnp.maximum(most, top)
            e = jnp.exp(s - top)
            p = e.astype(v.dtype)
            o = jnp.einsum("bhqk,bhkd->bhqd", p, v, precision=precision, preferred_element_type=accumulate)
            if step:
                kept = jnp.exp(most - top)
                total, out = total * kept + e.sum(axis=-1, keepdims=True), out * kept + o
            else:
                total, out = e.sum(axis=-1, keepdims=True), o
            most = top
        return out / total

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        """The bounds of the rescaled softmax. Each block of queries takes the blocks of keys in the order in which its
        device receives them: its own, then the one before, and so on."""
        n, u = plan.options["n"], plan.options["u"]
        arithmetic = ARITHMETICS[plan.options["accumulate"]]
        q, k, v = (np.split(a.astype(np.float64), n, axis=2) for a in arguments)
        errors = []
        for i in range(n):
            order = [(i - step) % n for step in range(n)]
            seen = [q[i], *(k[j] for j in order), *(v[j] for j in order)]
            result = rescaled(*(bounded(a, arithmetic) for a in seen), u=u)
            errors.append(result.error + np.abs(result.value - np.split(expected[0], n, axis=2)[i]))
        return [np.concatenate(errors, axis=2)]


def rescaled(q: Any, *blocks: Any, u: float) -> Any:
    """Attention of queries to blocks of keys and values, one block after the other. `blocks`: all keys, then all
    values."""
    n = len(blocks) // 2
    most: Any = None
    total: Any = None
    out: Any = None
    for k, v in zip(blocks[:n], blocks[n:], strict=True):
        s = np.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
        top = s.max(axis=-1, keepdims=True)
        if most is not None:
            top = np.maximum(most, top)
        e = np.exp(s - top)
        o, t = np.einsum("bhqk,bhkd->bhqd", rounded(e, u), v), e.sum(axis=-1, keepdims=True)
        if most is not None:
            kept = np.exp(most - top)
            o, t = out * kept + o, total * kept + t
        most, total, out = top, t, o
    return out / total
