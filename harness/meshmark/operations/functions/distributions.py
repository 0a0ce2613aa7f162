# SPDX-License-Identifier: Apache-2.0
"""The distributions of `jax.random`, and its keys.

A program with a sharded result must draw the same numbers as one device. The random bits are equal, so the numbers
may differ by 16 units of roundoff at most, for the functions that turn bits into numbers. A second check: the share of
the numbers that do not exceed a point must be within six standard deviations of the cumulative distribution function
at this point. A formula gives that value. The standard deviation is that of as many independent draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.placements.placement import alone_and_sharded, matrix, spec_labels, spec_of


def phi(x: float) -> float:
    """The cumulative distribution function of the standard normal distribution."""
    return (1 + math.erf(x / math.sqrt(2))) / 2


ROUNDED = 16 * 2.0**-24
"""The tolerance of the module's docstring: 16 float32 units of roundoff."""

MAXWELL = math.erf(1 / math.sqrt(2)) - math.sqrt(2 / math.pi) * math.exp(-0.5)


def _split(key, shape):
    """Uniform numbers: one half each from the second and third of three split keys."""
    _, first, second = jax.random.split(key, 3)
    half = (shape[0] // 2, shape[1])
    rest = (shape[0] - half[0], shape[1])
    return jnp.concatenate((jax.random.uniform(first, half), jax.random.uniform(second, rest)))


def _stored(key, shape):
    """Uniform numbers from a key that was cloned, unwrapped to its data, wrapped again and folded."""
    data = jax.random.key_data(jax.random.clone(key))
    again = jax.random.wrap_key_data(data, impl=str(jax.random.key_impl(key)))
    return jax.random.uniform(jax.random.fold_in(again, 7), shape)


DRAWS: dict[str, tuple[Callable[..., Any], float, float]] = {
    "exponential": (lambda k, s: jax.random.exponential(k, s), 1.0, 1 - math.exp(-1)),
    "beta": (lambda k, s: jax.random.beta(k, 2.0, 3.0, s), 0.5, 11 / 16),
    "binomial": (lambda k, s: jax.random.binomial(k, 5, 0.5, s), 2.0, 0.5),
    "cauchy": (lambda k, s: jax.random.cauchy(k, s), 1.0, 0.75),
    "chisquare": (lambda k, s: jax.random.chisquare(k, 2.0, s), 2.0, 1 - math.exp(-1)),
    "dirichlet": (lambda k, s: jax.random.dirichlet(k, jnp.ones(3), s)[..., 0], 0.5, 0.75),
    "double_sided_maxwell": (
        lambda k, s: jax.random.double_sided_maxwell(k, 0.0, 1.0, s),
        1.0,
        (1 + MAXWELL) / 2,
    ),
    "f": (lambda k, s: jax.random.f(k, 2.0, 2.0, s), 3.0, 0.75),
    "generalized_normal": (
        lambda k, s: jax.random.generalized_normal(k, 2.0, s),
        0.5,
        (1 + math.erf(0.5)) / 2,
    ),
    "geometric": (lambda k, s: jax.random.geometric(k, 0.5, s), 2.0, 0.75),
    "gumbel": (lambda k, s: jax.random.gumbel(k, s), 0.0, math.exp(-1)),
    "laplace": (lambda k, s: jax.random.laplace(k, s), 1.0, 1 - math.exp(-1) / 2),
    "loggamma": (lambda k, s: jax.random.loggamma(k, 2.0, s), math.log(2), 1 - 3 * math.exp(-2)),
    "logistic": (lambda k, s: jax.random.logistic(k, s), 1.0, 1 / (1 + math.exp(-1))),
    "lognormal": (lambda k, s: jax.random.lognormal(k, shape=s), math.e, phi(1)),
    "maxwell": (lambda k, s: jax.random.maxwell(k, s), 1.0, MAXWELL),
    "multinomial": (
        lambda k, s: jax.random.multinomial(k, 6, jnp.full((*s, 2), 0.5))[..., 0],
        3.0,
        84 / 128,
    ),
    "multivariate_normal": (
        lambda k, s: jax.random.multivariate_normal(k, jnp.zeros(2), jnp.eye(2), s)[..., 1],
        1.0,
        phi(1),
    ),
    "orthogonal": (lambda k, s: jax.random.orthogonal(k, 2, s)[..., 0, 0], 0.5, 2 / 3),
    "pareto": (lambda k, s: jax.random.pareto(k, 2.0, s), 2.0, 0.75),
    "poisson": (lambda k, s: jax.random.poisson(k, 2.0, s), 2.0, 5 * math.exp(-2)),
    "rademacher": (lambda k, s: jax.random.rademacher(k, s), 0.0, 0.5),
    "rayleigh": (lambda k, s: jax.random.rayleigh(k, 1.0, s), 1.0, 1 - math.exp(-0.5)),
    "t": (lambda k, s: jax.random.t(k, 1.0, s), 1.0, 0.75),
    "triangular": (lambda k, s: jax.random.triangular(k, 0.0, 0.5, 1.0, s), 0.25, 0.125),
    "truncated_normal": (
        lambda k, s: jax.random.truncated_normal(k, -1.0, 1.0, s),
        0.5,
        (phi(0.5) - phi(-1)) / (phi(1) - phi(-1)),
    ),
    "wald": (lambda k, s: jax.random.wald(k, 1.0, s), 1.0, 0.5 + math.exp(2) * phi(-2)),
    "weibull_min": (lambda k, s: jax.random.weibull_min(k, 1.0, 2.0, s), 1.0, 1 - math.exp(-1)),
    "ball": (lambda k, s: jnp.linalg.norm(jax.random.ball(k, 2, shape=s), axis=-1), 0.5, 0.25),
    "split": (_split, 0.5, 0.5),
    "key_data": (_stored, 0.5, 0.5),
    "PRNGKey": (lambda k, s: jax.random.uniform(jax.random.PRNGKey(5), s), 0.25, 0.25),
}
"""Name -> (draw of a key and a shape, point, value of the cumulative distribution function at the point)."""


class RandomDistributions(Operation):
    """Draws from the distributions of `jax.random`, and from keys that were split, stored and folded. A sharded program
    must draw the same numbers as one device, and the expected share of them up to a point. The result is one boolean
    per element."""

    name = "random_distributions"
    family = "creation"
    level = "L2"
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0}
    modes: ClassVar[tuple[str, ...]] = ("host",)

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """The standard profile takes every third draw, in one sharding. The other variants have higher weights."""
        labels = spec_labels(mesh)
        for number, draw in enumerate(DRAWS):
            for position, of in enumerate(labels):
                taken = position == (2 * number + 1) % len(labels) and mesh == preferred(mesh.size)
                yield Variant.of(4 if not taken else 2 if number % 3 == 0 else 3, of=of, draw=draw)

    def plan(self, request: Request) -> Plan:
        shape = matrix(request)
        options = {"draw": request.variant["draw"], "shape": shape, "spec": spec_of(request.variant["of"])}
        x = Argument((1,), "int32", (None,))
        return Plan((x,), (Result(shape, "bool", (None, None)),), options, judge="bits")

    @staticmethod
    def host(mesh, x, *, draw, shape, spec):
        function, point, share = DRAWS[draw]

        def drawn():
            return function(jax.random.key(1701, impl="threefry2x32"), shape)

        alone, sharded = alone_and_sharded(mesh, drawn, spec)
        seen, spread = np.mean(sharded <= point), math.sqrt(share * (1 - share) / sharded.size)
        same = abs(alone - sharded) <= ROUNDED * np.maximum(abs(alone), 1)
        return jax.device_put(same & (abs(seen - share) < 6 * spread), NamedSharding(mesh, P()))

    @staticmethod
    def reference(x, *, shape):
        return np.ones(shape, bool)
