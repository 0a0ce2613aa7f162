# SPDX-License-Identifier: Apache-2.0
"""Ways to shard one block, data-parallel training as in JAX's tutorial, and a product of cast arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Cost, Plan, Request, Result, Variant, nbytes, parse_size
from meshmark.operations.functions.contraction import fitted, summed
from meshmark.operations.models.programs import WholeProgram, constrained, integers, over


class ParallelBlock(WholeProgram):
    """x + relu(x @ W1) @ W2 on [batch, sequence, features]. Tensor parallel: W1 is split by columns and W2 by rows.
    Sequence parallel: x is also sharded over the sequence. FSDP: both are split by rows, and gathered before use.
    Exact."""

    name = "parallel_block"

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        outer, inner = mesh.names[:-1] or None, mesh.names[-1:]
        yield Variant.of(0, how="sequence", batch=outer, model=inner)
        yield Variant.of(1, how="fsdp", batch=mesh.names, model=mesh.names)
        yield Variant.of(2, how="tensor", batch=outer, model=inner)
        if outer:
            yield Variant.of(2, how="fsdp", batch=mesh.names, model=inner)
            yield Variant.of(3, how="sequence", model=mesh.names)
            yield Variant.of(3, how="tensor", batch=inner, model=outer)

    def forward(self, request: Request) -> Plan:
        mesh, variant, dtype = request.mesh, request.variant, request.dtype
        how, batch, model = variant["how"], variant.get("batch"), variant["model"]
        parts = mesh.product(model)
        n = parse_size(request.size)
        b, t = fitted(4, mesh.product(batch or ())), fitted(n, parts)
        d, f = (fitted(size, parts if how == "fsdp" else 1) for size in (n, 2 * n))
        f = fitted(f, parts)
        along = model if how == "sequence" else None
        x = Argument((b, t, d), dtype, (batch, along, None), integers, {"most": 3})
        of_w1: Spec = (model, None) if how == "fsdp" else (None, model)
        w1 = Argument((d, f), dtype, of_w1, integers, {"most": 2})
        w2 = Argument((f, d), dtype, (model, None), integers, {"most": 2})
        block = nbytes(Result(x.shape, dtype, (batch, None, None)), mesh)
        traffic = {
            "tensor": (("all-reduce", model, block),),
            "sequence": (("all-gather", model, block), ("reduce-scatter", model, block)),
            "fsdp": (("all-gather", model, parts * (nbytes(w1, mesh) + nbytes(w2, mesh))),),
        }[how]
        return Plan(
            (x, w1, w2),
            (Result(x.shape, dtype, x.spec),),
            {"how": how, "batch": batch, "model": model, "precision": "highest"},
            judge="exact",
            cost=Cost(4 * b * t * d * f),
            traffic=over(mesh, *traffic),
            connect=summed(mesh, model),
        )

    @staticmethod
    def manual(x, w1, w2, *, how, model, precision):
        h = x
        if how == "sequence":
            h = lax.all_gather(x, model, axis=1, tiled=True)
        if how == "fsdp":
            w1, w2 = (lax.all_gather(w, model, axis=0, tiled=True) for w in (w1, w2))
        h = jax.nn.relu(jnp.matmul(h, w1, precision=precision))
        y = jnp.matmul(h, w2, precision=precision)
        if how == "sequence":
            y = lax.psum_scatter(y, model, scatter_dimension=1, tiled=True)
        return x + (lax.psum(y, model) if how == "tensor" else y)

    @staticmethod
    def auto(x, w1, w2, *, how, batch, model, precision):
        if how == "fsdp":
            w1, w2 = constrained(w1), constrained(w2)
        h = constrained(x, batch) if how == "sequence" else x
        h = jax.nn.relu(jnp.matmul(h, w1, precision=precision))
        h = constrained(h, batch, None, None if how == "fsdp" else model)
        y = jnp.matmul(h, w2, precision=precision)
        return x + (constrained(y, batch, model) if how == "sequence" else y)

    @staticmethod
    def explicit(x, w1, w2, *, how, batch, model, precision):
        if how == "fsdp":
            w1, w2 = reshard(w1, P(None, None)), reshard(w2, P(None, None))
        h = reshard(x, P(batch, None, None)) if how == "sequence" else x
        between = P(batch, None, None if how == "fsdp" else model)
        h = jax.nn.relu(jnp.matmul(h, w1, precision=precision, out_sharding=between))
        out = P(batch, model if how == "sequence" else None, None)
        return x + jnp.matmul(h, w2, precision=precision, out_sharding=out)

    @staticmethod
    def reference(x, w1, w2):
        return x + np.matmul(np.maximum(np.matmul(x, w1), 0.0), w2)


class ParallelBlockGradient(ParallelBlock):
    """The gradients of the block with respect to x, W1 and W2. Exact."""

    name = "parallel_block_gradient"
    rare = 1
    wrt = (0, 1, 2)

    def seeds(self):
        return integers, {"most": 3}

    @staticmethod
    def gradient(x, w1, w2, g):
        z = np.matmul(x, w1)
        dz = np.where(z > 0.0, np.matmul(g, w2.T), 0.0)
        dw1 = np.einsum("btd,btf->df", x, dz)
        return g + np.matmul(dz, w1.T), dw1, np.einsum("btf,btd->fd", np.maximum(z, 0.0), g)


class TutorialTraining(WholeProgram):
    """20 steps of data-parallel training as in a JAX tutorial: two sigmoid layers, weights and biases in a list of
    pairs, a sharded batch, and the mean squared difference as loss. In manual mode every device takes the gradients of
    its part, and pmean averages them."""

    name = "tutorial_training"
    timed: ClassVar[Mapping[str, int]] = {"n8": 1, "n64": 4}

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        yield Variant.of(0, batch=mesh.names)
        if len(mesh.names) > 1:
            yield Variant.of(2, batch=mesh.names[:1])

    def forward(self, request: Request) -> Plan:
        mesh, batch, dtype = request.mesh, request.variant["batch"], request.dtype
        # The tutorial takes 100. Over sockets 100 steps pass the deadline, and a case has the same program everywhere.
        n, steps = parse_size(request.size), 20
        rows, out = fitted(32, mesh.product(batch)), 4
        whole: Spec = (None, None)
        weights = (values.uniform, {"scale": 1.0})
        arguments = (
            Argument((rows, n), dtype, (batch, None), values.uniform),
            Argument((rows, out), dtype, (batch, None), values.uniform),
            Argument((n, n), dtype, whole, *weights),
            Argument((n,), dtype, (None,), *weights),
            Argument((n, out), dtype, whole, *weights),
            Argument((out,), dtype, (None,), *weights),
        )
        parameters = arguments[2:]
        itemsize = dtype_of(dtype).itemsize
        sent = steps * sum(itemsize * int(np.prod(p.shape)) for p in parameters)
        return Plan(
            arguments,
            tuple(Result(p.shape, dtype, p.spec) for p in parameters),
            {"batch": batch, "steps": steps, "rate": 0.0625, "precision": "highest"},
            judge="bound",
            cost=Cost(steps * 2 * rows * (2 * n * n + 3 * n * out)),
            repeats=steps,
            traffic=over(mesh, ("all-reduce", batch, sent)),
            connect=summed(mesh, batch),
        )

    @staticmethod
    def manual(x, y, *parameters, batch, steps, rate, precision):
        def step(_, layers):
            local = lax.pcast(layers, batch, to="varying")
            gradients = jax.grad(squares)(local, x, y, precision)
            return jax.tree.map(lambda p, g: p - rate * lax.pmean(g, batch), layers, gradients)

        return flat(lax.fori_loop(0, steps, step, paired(parameters)))

    @staticmethod
    def auto(x, y, *parameters, steps, rate, precision):
        def step(_, layers):
            gradients = jax.grad(squares)(layers, x, y, precision)
            return jax.tree.map(lambda p, g: p - rate * g, layers, gradients)

        return flat(lax.fori_loop(0, steps, step, paired(parameters)))

    explicit = auto

    @staticmethod
    def reference(x, y, w1, b1, w2, b2, *, steps, rate):
        for _ in range(steps):
            h = 1.0 / (1.0 + np.exp(-(np.matmul(x, w1) + b1)))
            p = 1.0 / (1.0 + np.exp(-(np.matmul(h, w2) + b2)))
            dz2 = (p - y) * (2.0 / y.size) * (p * (1.0 - p))
            dz1 = np.matmul(dz2, w2.T) * (h * (1.0 - h))
            w1, b1 = w1 - rate * np.matmul(x.T, dz1), b1 - rate * dz1.sum(axis=0)
            w2, b2 = w2 - rate * np.matmul(h.T, dz2), b2 - rate * dz2.sum(axis=0)
        return w1, b1, w2, b2


def paired(parameters):
    """The weights and biases as a list of pairs."""
    return list(zip(parameters[::2], parameters[1::2], strict=True))


def flat(layers):
    """The weights and biases as a flat tuple, in the order of the pairs."""
    return tuple(jax.tree.leaves(layers))


def squares(layers, x, y, precision):
    """The mean squared difference between the layers' prediction and y."""
    for w, b in layers:
        x = jax.nn.sigmoid(jnp.matmul(x, w, precision=precision) + b)
    return jnp.mean((x - y) ** 2)


class CastProduct(WholeProgram):
    """x cast to bfloat16 and gathered by a constraint, then x @ x.T with sums in float32. The cast rounds the ten bits
    of x to eight, and the products are exact."""

    name = "cast_product"
    dtypes = ("float32",)
    sizes: ClassVar[Mapping[str, int]] = {"n16": 0}

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        outer, inner = mesh.names[:-1], mesh.names[-1:]
        yield Variant.of(0, rows=mesh.names)
        if outer:
            yield Variant.of(2, rows=outer, inner=inner)
        yield Variant.of(3, inner=inner)

    def forward(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        rows, inner = variant.get("rows"), variant.get("inner")
        n = parse_size(request.size)
        height, width = fitted(2 * n, mesh.product(rows or ())), fitted(n, mesh.product(inner or ()))
        x = Argument((height, width), "float32", (rows, inner), integers, {"most": 1023})
        whole, product = (
            Result(x.shape, "bfloat16", (None, inner)),
            Result((height, height), "float32", (rows, None)),
        )
        return Plan(
            (x,),
            (product,),
            {"rows": rows, "inner": inner, "out_spec": product.spec, "precision": "default"},
            judge="exact",
            cost=Cost(2 * height * height * width),
            traffic=None,  # XLA's CPU backend moves the cast back behind the gather, which then sends float32
            owed=over(
                mesh, ("all-gather", rows, nbytes(whole, mesh)), ("all-reduce", inner, nbytes(product, mesh))
            ),
            connect=(*summed(mesh, rows or ()), *summed(mesh, inner or ())),
        )

    @staticmethod
    def manual(x, *, rows, inner):
        small = x.astype(jnp.bfloat16)
        whole = lax.all_gather(small, rows, axis=0, tiled=True) if rows else small
        y = jnp.matmul(small, whole.T, preferred_element_type=jnp.float32)
        return lax.psum(y, inner) if inner else y

    @staticmethod
    def auto(x, *, inner):
        small = x.astype(jnp.bfloat16)
        whole = constrained(small, None, inner)
        return jnp.matmul(small, whole.T, preferred_element_type=jnp.float32)

    @staticmethod
    def explicit(x, *, inner, out_spec):
        small = x.astype(jnp.bfloat16)
        whole = reshard(small, P(None, inner))
        return jnp.matmul(small, whole.T, preferred_element_type=jnp.float32, out_sharding=P(*out_spec))

    @staticmethod
    def reference(x):
        small = rounded_to_eight_bits(x)
        return np.matmul(small, small.T)


def rounded_to_eight_bits(x: np.ndarray) -> np.ndarray:
    """The nearest numbers with a significand of eight bits, ties to even."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(fraction, 8)), exponent - 8)
