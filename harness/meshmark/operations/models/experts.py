# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts: each token goes to the expert with the highest router score, if that expert has a place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Cost, Plan, Request, Result, Variant, nbytes, parse_size
from meshmark.operations.functions.contraction import outer_inner, summed
from meshmark.operations.models.programs import WholeProgram, constrained, integers, over


def routed(x, router, *, capacity, product):
    """The routing of tokens [group, token, d]: the place of each token as zeros and ones [group, token, expert, place],
    and the score of its expert [group, token]. In each group, the first `capacity` tokens of an expert get a place."""
    scores = product("gtd,de->gte", x, router)
    chosen = jnp.argmax(scores, axis=-1)[..., None] == lax.broadcasted_iota(jnp.int32, scores.shape, 2)
    chosen = chosen.astype(x.dtype)
    place = (jnp.cumsum(chosen, axis=1) - 1)[..., None]
    places = lax.broadcasted_iota(x.dtype, (*scores.shape, capacity), 3)
    return chosen[..., None] * (place == places), jnp.sum(scores * chosen, axis=-1)


def mixture(x, router, w1, w2, *, capacity, product, there, back):
    """x plus the results of its experts times their scores. `there` and `back` move [group, expert, place, d] to the
    experts' devices and back."""
    where, score = routed(x, router, capacity=capacity, product=product)
    sent = there(product("gtec,gtd->gecd", where, x))
    done = back(product("gecf,efd->gecd", jax.nn.relu(product("gecd,edf->gecf", sent, w1)), w2))
    return x + score[..., None] * product("gtec,gecd->gtd", where, done)


class MixtureOfExperts(WholeProgram):
    """A mixture of experts: one expert per device of its axes, and one group of tokens per device of the mesh. Tokens
    are routed to places up to a capacity and go to the experts and back by all_to_all. Tokens without a place are
    unchanged. Exact."""

    name = "mixture_of_experts"

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        yield Variant.of(0, experts=mesh.names)
        if len(mesh.names) > 1:
            yield Variant.of(2, **outer_inner(mesh, "batch", "experts"))

    def forward(self, request: Request) -> Plan:
        mesh, variant, dtype = request.mesh, request.variant, request.dtype
        batch, experts = variant.get("batch") or (), variant["experts"]
        e, d = mesh.product(experts), parse_size(request.size)
        groups, t, f = mesh.size, 8, d
        capacity = max(1, 3 * t // (4 * e))
        shards = (*batch, *experts)
        small = (integers, {"most": 2})
        rows: Spec = (experts, None, None)
        x = Argument((groups, t, d), dtype, (shards, None, None), *small)
        w1, w2 = Argument((e, d, f), dtype, rows, *small), Argument((e, f, d), dtype, rows, *small)
        buffer = nbytes(Result((groups, e, capacity, d), dtype, (shards,)), mesh)
        places = groups * e * capacity
        return Plan(
            (x, Argument((d, e), dtype, (None, None), *small), w1, w2),
            (Result(x.shape, dtype, x.spec),),
            {
                "batch": batch,
                "experts": experts,
                "shards": shards,
                "capacity": capacity,
                "precision": "highest",
            },
            judge="exact",
            cost=Cost(2 * groups * t * d * e + 4 * t * d * places + 4 * d * f * places),
            traffic=over(mesh, ("all-to-all", experts, 2 * buffer)),
            connect=summed(mesh, experts),
        )

    @staticmethod
    def manual(x, router, w1, w2, *, experts, capacity, precision):
        def product(subscripts, a, b):
            return jnp.einsum(subscripts, a, b, precision=precision)

        def there(sent):
            return lax.all_to_all(sent, experts, 1, 0, tiled=True)

        def back(done):
            return lax.all_to_all(done, experts, 0, 1, tiled=True)

        return mixture(x, router, w1, w2, capacity=capacity, product=product, there=there, back=back)

    @staticmethod
    def auto(x, router, w1, w2, *, batch, experts, shards, capacity, precision):
        def product(subscripts, a, b):
            return jnp.einsum(subscripts, a, b, precision=precision)

        def there(sent):
            return constrained(sent, batch or None, experts)

        def back(done):
            return constrained(done, shards)

        return mixture(x, router, w1, w2, capacity=capacity, product=product, there=there, back=back)

    @staticmethod
    def explicit(x, router, w1, w2, *, batch, experts, shards, capacity, precision):
        def product(subscripts, a, b):
            return jnp.einsum(subscripts, a, b, precision=precision)

        def there(sent):
            return reshard(sent, P(batch or None, experts, None, None))

        def back(done):
            return reshard(done, P(shards, None, None, None))

        return mixture(x, router, w1, w2, capacity=capacity, product=product, there=there, back=back)

    @staticmethod
    def reference(x, router, w1, w2, *, capacity):
        y = x.copy()
        for group, token, expert, score in places_taken(x, router, capacity):
            h = np.maximum(x[group, token] @ w1[expert], 0.0)
            y[group, token] += score * (h @ w2[expert])
        return y


class MixtureOfExpertsGradient(MixtureOfExperts):
    """The gradients of the mixture of experts with respect to the tokens, the router and the experts. A token without a
    place gets its own cotangent and adds nothing to an expert's gradient. Exact."""

    name = "mixture_of_experts_gradient"
    rare = 2
    wrt = (0, 1, 2, 3)

    def seeds(self) -> tuple[Any, dict[str, Any]]:
        return integers, {"most": 2}

    @staticmethod
    def gradient(x, router, w1, w2, g, *, capacity):
        dx, d_router, d_w1, d_w2 = g.copy(), np.zeros_like(router), np.zeros_like(w1), np.zeros_like(w2)
        for group, token, expert, score in places_taken(x, router, capacity):
            given, seed = x[group, token], g[group, token]
            z = given @ w1[expert]
            h = np.maximum(z, 0.0)
            d_score = seed @ (h @ w2[expert])
            d_w2[expert] += np.outer(h, score * seed)
            dz = np.where(z > 0.0, w2[expert] @ (score * seed), 0.0)
            d_w1[expert] += np.outer(given, dz)
            d_router[:, expert] += d_score * given
            dx[group, token] += w1[expert] @ dz + d_score * router[:, expert]
        return dx, d_router, d_w1, d_w2


def places_taken(x: np.ndarray, router: np.ndarray, capacity: int) -> Iterator[tuple[int, int, int, float]]:
    """(group, token, expert, score) of each token that has a place, in order."""
    for group in range(x.shape[0]):
        taken = [0] * router.shape[1]
        for token in range(x.shape[1]):
            scores = x[group, token] @ router
            expert = int(scores.argmax())
            if taken[expert] < capacity:
                taken[expert] += 1
                yield group, token, expert, scores[expert]
