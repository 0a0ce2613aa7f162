# SPDX-License-Identifier: Apache-2.0
"""The embedding layer: rows of a sharded table, and its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import (
    Argument,
    Plan,
    Request,
    Result,
    Variant,
    parse_size,
)
from meshmark.operations.functions.contraction import fitted, outer_inner, summed
from meshmark.operations.models.layers import Layer, added


class Embedding(Layer):
    """Rows of a table by token. Sharded over the vocabulary, each device looks up the tokens that it holds, and a sum
    over devices combines the rows. Sharded over features, nothing is exchanged."""

    name = "embedding"
    sizes: ClassVar[dict[str, int]] = {"n64": 0, "n16": 2}

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        names = mesh.names
        yield Variant.of(**outer_inner(mesh, "batch", "vocabulary"))
        yield Variant.of(1, **outer_inner(mesh, "batch", "features"))
        if len(names) > 1:
            yield Variant.of(1, vocabulary=names)
            yield Variant.of(2, **outer_inner(mesh, "features", "vocabulary"))

    def forward(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        batch, features, vocabulary = (variant.get(name) for name in ("batch", "features", "vocabulary"))
        parts = [mesh.product(axes or ()) for axes in (batch, features, vocabulary)]
        rows, width = fitted(8, parts[0]), fitted(16, parts[1])
        length = max(1, 64 // rows)  # few tokens, so that the gradient has room for exact sums
        words = fitted(parse_size(request.size), parts[2])
        result = Result((rows, length, width), request.dtype, (batch, None, features))
        return Plan(
            (
                Argument((words, width), request.dtype, (vocabulary, features)),
                Argument((rows, length), "int32", (batch, None), values.tokens, {"below": words}),
            ),
            (result,),
            {"vocabulary": vocabulary or (), "out_spec": result.spec},
            judge="exact",
            traffic=added(result, mesh, vocabulary or ()),
            connect=summed(mesh, vocabulary or ()),
        )

    @staticmethod
    def manual(table, tokens, *, vocabulary):
        if not vocabulary:
            return jnp.take(table, tokens, axis=0)
        here = tokens - lax.axis_index(vocabulary) * table.shape[0]
        mine = (here >= 0) & (here < table.shape[0])
        rows = jnp.take(table, jnp.where(mine, here, 0), axis=0)
        return lax.psum(jnp.where(mine[..., None], rows, 0), vocabulary)

    @staticmethod
    def auto(table, tokens):
        return jnp.take(table, tokens, axis=0)

    @staticmethod
    def explicit(table, tokens, *, out_spec):
        return table.at[tokens].get(out_sharding=P(*out_spec))

    @staticmethod
    def reference(table, tokens):
        return table[tokens]


class EmbeddingGradient(Embedding):
    """The gradient of the embedding with respect to its table: each token's cotangent is added to its row and to no
    other row (openxla/xla#42481). Cotangents are integers whose sums are exact in any order."""

    name = "embedding_gradient"
    level = "L3"
    dtypes = ("float32", "bfloat16", "float64")
    wrt = (0,)
    gathers = ("batch",)

    def seeds(self, result: Result) -> tuple[Any, dict[str, Any]]:
        return values.summands, {"terms": result.shape[0] * result.shape[1]}

    @staticmethod
    def gradient(table, tokens, g):
        total = np.zeros_like(table)
        np.add.at(total, tokens, g)
        return total
