# SPDX-License-Identifier: Apache-2.0
"""Training and inference as programs of many steps: data parallelism, micro-batches, stacked layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.bounds import ARITHMETICS, bounded
from meshmark.core.dtypes import dtype as dtype_of
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
from meshmark.operations.functions.contraction import fitted, outer_inner, summed


class Training(Operation):
    """The base of the programs of many steps."""

    family = "training"
    complete = True
    level = "L3"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    modes = ("auto", "explicit", "manual", "manual-novma", "pmap")

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for weight, options in self.shardings(mesh):
            yield Variant.of(weight, **options)

    def shardings(self, mesh: MeshShape) -> Iterator[tuple[int, dict[str, Any]]]:
        """(weight, options) pairs. By default the batch is sharded over all axes or over the last."""
        names = mesh.names
        yield 0, {"batch": names}
        if len(names) > 1:
            yield 1, {"batch": names[-1:]}


def stepped(x: Any, y: Any, w: Any, *, rate: float, parts: int) -> Any:
    """One gradient step of least squares in NumPy: the mean of the gradients of `parts` equal batches."""
    rows = x.shape[0] // parts
    gradient = np.matmul(x.T, (np.matmul(x, w) - y) * (2.0 / rows)) / parts
    return w - rate * gradient


class DataParallel(Training):
    """100 steps of gradient descent on mean((x @ w - y)**2) in one program, with a sharded batch. In manual mode every
    device takes the gradient of its part, and pmean averages them."""

    name = "data_parallel"
    sizes: ClassVar[dict[str, int]] = {"n8": 0}
    timed: ClassVar[dict[str, int]] = {"n8": 1, "n64": 1, "n256": 4}

    def plan(self, request: Request) -> Plan:
        mesh, batch, dtype = request.mesh, request.variant["batch"], request.dtype
        n, parts, steps = parse_size(request.size), request.mesh.product(batch), 100
        rows = fitted(64, parts)
        result = Result((n,), dtype, (None,))
        groups = summed(mesh, batch)
        payload = steps * nbytes(result, mesh)
        return Plan(
            (
                Argument((rows, n), dtype, (batch, None), values.uniform),
                Argument((rows,), dtype, (batch,), values.uniform),
                Argument((n,), dtype, (None,), values.uniform),
            ),
            (result,),
            {"batch": batch, "parts": parts, "steps": steps, "rate": 0.0625, "precision": "highest"},
            judge="bound",
            cost=Cost(steps * 4 * rows * n),
            repeats=steps,
            traffic=(Traffic("all-reduce", payload, groups),) if groups else (),
            connect=groups,
        )

    @staticmethod
    def manual(x, y, w, *, batch, steps, rate, precision):
        def loss(w):
            return jnp.mean((jnp.matmul(x, w, precision=precision) - y) ** 2)

        def step(_, w):
            mine = jax.grad(loss)(lax.pcast(w, batch, to="varying"))
            return w - rate * lax.pmean(mine, batch)

        return lax.fori_loop(0, steps, step, w)

    @staticmethod
    def auto(x, y, w, *, steps, rate, precision):
        def loss(w):
            return jnp.mean((jnp.matmul(x, w, precision=precision) - y) ** 2)

        return lax.fori_loop(0, steps, lambda _, w: w - rate * jax.grad(loss)(w), w)

    explicit = auto

    @staticmethod
    def reference(x, y, w, *, steps, rate, parts):
        for _ in range(steps):
            w = stepped(x, y, w, rate=rate, parts=parts)
        return w

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        """The bound of the weights after all steps, computed step by step.

        Plain running error analysis lets the error grow by I + |rate H| per step, but the map itself, I - rate H with
        H = 2/rows X^T X, lets it shrink. Let e be the bound so far. A step's own roundings are at most what the
        analysis of that step gives beyond the error that it carries. The next bound is |I - rate H| e plus these."""
        options = {name: plan.options[name] for name in ("rate", "parts")}
        arithmetic = ARITHMETICS[plan.results[0].dtype]
        x, y, w = (a.astype(np.float64) for a in arguments)
        inputs = bounded(x, arithmetic), bounded(y, arithmetic)
        scale = plan.options["rate"] * 2.0 / len(x)
        one = np.eye(len(w))
        carried = one + scale * np.abs(x).T @ np.abs(x)
        true = np.abs(one - scale * x.T @ x)
        error = np.zeros_like(w)
        for _ in range(plan.options["steps"]):
            step = stepped(*inputs, bounded(w, arithmetic, error), **options)
            w, error = step.value, true @ error + (step.error - carried @ error)
        return [error]


class MicroBatches(Training):
    """The gradient of least squares, accumulated over four micro-batches in a scan. The values are integers, so the
    result equals the gradient of the full batch in every order."""

    name = "micro_batches"
    sizes: ClassVar[dict[str, int]] = {"n8": 0}

    def plan(self, request: Request) -> Plan:
        mesh, batch, dtype = request.mesh, request.variant["batch"], request.dtype
        n, rows = parse_size(request.size), fitted(16, mesh.product(batch))
        result = Result((n,), dtype, (None,))
        groups = summed(mesh, batch)
        small = (values.tokens, {"below": 4})
        return Plan(
            (
                Argument((4, rows, n), dtype, (None, batch, None), *small),
                Argument((4, rows), dtype, (None, batch), *small),
                Argument((n,), dtype, (None,), *small),
            ),
            (result,),
            {"batch": batch, "precision": "highest"},
            judge="exact",
            cost=Cost(16 * rows * n),
            repeats=4,
            traffic=(Traffic("all-reduce", nbytes(result, mesh), groups),) if groups else (),
            connect=groups,
        )

    @staticmethod
    def manual(x, y, w, *, batch, precision):
        def loss(w, x, y):
            return jnp.sum((jnp.matmul(x, w, precision=precision) - y) ** 2)

        w = lax.pcast(w, batch, to="varying")
        total, _ = lax.scan(lambda g, part: (g + jax.grad(loss)(w, *part), None), jnp.zeros_like(w), (x, y))
        return lax.psum(total, batch)

    @staticmethod
    def auto(x, y, w, *, precision):
        def loss(w, x, y):
            return jnp.sum((jnp.matmul(x, w, precision=precision) - y) ** 2)

        total, _ = lax.scan(lambda g, part: (g + jax.grad(loss)(w, *part), None), jnp.zeros_like(w), (x, y))
        return total

    explicit = auto

    @staticmethod
    def reference(x, y, w):
        x = x.reshape(-1, x.shape[-1])
        return 2 * np.matmul(x.T, np.matmul(x, w) - y.reshape(-1))


class EmbeddingMicroBatches(Training):
    """The gradient of an embedding table, accumulated over micro-batches in a scan. The vocabulary and the batch are
    sharded over the same axes (openxla/xla#49143). The values are integers, so sums are exact in every order."""

    name = "embedding_micro_batches"
    dtypes = ("float32", "bfloat16", "float64")
    sizes: ClassVar[dict[str, int]] = {"n64": 0}

    def plan(self, request: Request) -> Plan:
        mesh, batch, dtype = request.mesh, request.variant["batch"], request.dtype
        parts = mesh.product(batch)
        words, rows, width = fitted(parse_size(request.size), parts), fitted(8, parts), 8
        table = Result((words, width), dtype, (batch, None))
        length = max(1, 32 // rows)
        groups = summed(mesh, batch)
        payload = words * width * dtype_of(dtype).itemsize
        return Plan(
            (
                Argument(table.shape, dtype, table.spec),
                Argument((2, rows, length), "int32", (None, batch, None), values.tokens, {"below": words}),
                Argument(
                    (2, rows, length, width),
                    dtype,
                    (None, batch),
                    values.summands,
                    {"terms": 2 * rows * length},
                ),
            ),
            (table,),
            {"batch": batch},
            judge="exact",
            repeats=2,
            traffic=(Traffic("reduce-scatter", payload, groups),) if groups else (),
            connect=groups,
        )

    @staticmethod
    def manual(table, tokens, g, *, batch):
        words = table.shape[0] * lax.axis_size(batch)
        zeros = lax.pcast(jnp.zeros((words, table.shape[1]), table.dtype), batch, to="varying")
        total, _ = lax.scan(lambda t, part: (t.at[part[0]].add(part[1]), None), zeros, (tokens, g))
        return lax.psum_scatter(total, batch, scatter_dimension=0, tiled=True)

    @staticmethod
    def auto(table, tokens, g):
        def added(total, part):
            _, pull_back = jax.vjp(lambda t: jnp.take(t, part[0], axis=0), table)
            return total + pull_back(part[1])[0], None

        return lax.scan(added, jnp.zeros_like(table), (tokens, g))[0]

    @staticmethod
    def explicit(table, tokens, g, *, batch):
        def added(total, part):
            rows = P(batch, None, None)
            _, pull_back = jax.vjp(lambda t: t.at[part[0]].get(out_sharding=rows), table)
            return total + pull_back(part[1])[0], None

        return lax.scan(added, jnp.zeros_like(table), (tokens, g))[0]

    @staticmethod
    def reference(table, tokens, g):
        total = np.zeros_like(table)
        np.add.at(total, tokens, g)
        return total


class Inference(Training):
    """A stack of three tensor-parallel layers, x + relu(x @ W1) @ W2, in a scan, with one all-reduce per layer."""

    name = "inference"
    level = "L2"
    sizes: ClassVar[dict[str, int]] = {"n16": 0, "n32": 2}
    timed: ClassVar[dict[str, int]] = {"n32": 2, "n512": 2}

    def shardings(self, mesh: MeshShape) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, outer_inner(mesh, "batch", "model")
        if len(mesh.names) > 1:
            yield 1, {"model": mesh.names}
            yield 2, outer_inner(mesh, "model", "batch")

    def plan(self, request: Request) -> Plan:
        mesh, variant, dtype = request.mesh, request.variant, request.dtype
        batch, model = variant.get("batch"), variant["model"]
        layers, n = 3, parse_size(request.size)
        rows, width = fitted(16, mesh.product(batch or ())), fitted(n, mesh.product(model))
        weights = (values.uniform, {"scale": 2.0 / n})
        result = Result((rows, n), dtype, (batch, None))
        groups = summed(mesh, model)
        payload = layers * nbytes(result, mesh)
        return Plan(
            (
                Argument((rows, n), dtype, (batch, None), values.uniform),
                Argument((layers, n, width), dtype, (None, None, model), *weights),
                Argument((layers, width, n), dtype, (None, model, None), *weights),
            ),
            (result,),
            {
                "model": model,
                "hidden_spec": (batch, model),
                "out_spec": (batch, None),
                "precision": "highest",
            },
            judge="bound",
            cost=Cost(layers * 4 * rows * n * width),
            repeats=layers,
            traffic=(Traffic("all-reduce", payload, groups),) if groups else (),
            connect=groups,
        )

    @staticmethod
    def manual(x, w1, w2, *, model, precision):
        def layer(x, w):
            h = jax.nn.relu(jnp.matmul(x, w[0], precision=precision))
            return x + lax.psum(jnp.matmul(h, w[1], precision=precision), model), None

        return lax.scan(layer, x, (w1, w2))[0]

    @staticmethod
    def auto(x, w1, w2, *, precision):
        def layer(x, w):
            h = jax.nn.relu(jnp.matmul(x, w[0], precision=precision))
            return x + jnp.matmul(h, w[1], precision=precision), None

        return lax.scan(layer, x, (w1, w2))[0]

    @staticmethod
    def explicit(x, w1, w2, *, precision, hidden_spec, out_spec):
        def layer(x, w):
            h = jax.nn.relu(jnp.matmul(x, w[0], precision=precision, out_sharding=P(*hidden_spec)))
            return x + jnp.matmul(h, w[1], precision=precision, out_sharding=P(*out_spec)), None

        return lax.scan(layer, x, (w1, w2))[0]

    @staticmethod
    def reference(x, w1, w2):
        for a, b in zip(w1, w2, strict=True):
            x = x + np.matmul(np.maximum(np.matmul(x, a), 0.0), b)
        return x
