# SPDX-License-Identifier: Apache-2.0
"""Optimizers alone, on given gradients: their state must be sharded like the parameters, and nothing is sent.

Adam's first step is nearly the sign of the gradient, so the bound of a computed gradient would be useless after it.
Here gradients are inputs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import extras, values
from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Missing, Plan, Request, Result, Variant, parse_size
from meshmark.operations.functions.contraction import fitted
from meshmark.operations.models.programs import WholeProgram, integers

STEPS = 3
B1, B2, TINY = 0.875, 1.0 - 2.0**-6, 2.0**-20
"""Adam's decays and the number below its fraction: the dtypes hold them, and 1 less each of them."""
RATE, DECAY = 0.25, 0.5
"""The learning rate, and the decay of momentum: on small integers a few steps are exact."""


def momentum(parameters, gradients):
    """SGD with momentum: the parameters and the momenta after all steps."""
    moments = jax.tree.map(jnp.zeros_like, parameters)
    for step in range(STEPS):
        moments = jax.tree.map(lambda m, g: DECAY * m + g[step], moments, gradients)  # noqa: B023
        parameters = jax.tree.map(lambda p, m: p - RATE * m, parameters, moments)
    return *parameters, *moments


def adam(parameters, gradients):
    """Adam: the parameters, the means and the mean squares after all steps."""
    means = squares = jax.tree.map(jnp.zeros_like, parameters)
    for step in range(STEPS):
        given = jax.tree.map(lambda g: g[step], gradients)  # noqa: B023
        means = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * g, means, given)
        squares = jax.tree.map(lambda v, g: B2 * v + (1 - B2) * g * g, squares, given)
        first, second = 1 - B1 ** (step + 1), 1 - B2 ** (step + 1)

        def moved(p, m, v):
            return p - RATE * (m / first) / (jnp.sqrt(v / second) + TINY)  # noqa: B023

        parameters = jax.tree.map(moved, parameters, means, squares)
    return *parameters, *means, *squares


class Optimizing(WholeProgram):
    """The base: a matrix and a vector with their gradients in each step. All are sharded alike, over some or all
    axes."""

    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        for far, rule in enumerate(("adam", "momentum")):
            yield Variant.of(2 * far, rule=rule, rows=mesh.names[:-1] or None, columns=mesh.names[-1:])
            if len(mesh.names) > 1:
                yield Variant.of(2 * far + 2, rule=rule, rows=mesh.names[-1:])

    def forward(self, request: Request) -> Plan:
        mesh, variant, dtype = request.mesh, request.variant, request.dtype
        rows, columns, rule = variant.get("rows"), variant.get("columns"), variant["rule"]
        n = parse_size(request.size)
        shape = fitted(2 * n, mesh.product(rows or ())), fitted(n, mesh.product(columns or ()))
        fill: Any = (integers, {"most": 9}) if rule == "momentum" else (values.uniform, {})
        kinds: tuple[tuple[tuple[int, ...], Spec], ...] = ((shape, (rows, columns)), (shape[1:], (columns,)))
        parameters = tuple(Argument(size, dtype, spec, *fill) for size, spec in kinds)
        gradients = tuple(Argument((STEPS, *size), dtype, (None, *spec), *fill) for size, spec in kinds)
        results = tuple(Result(size, dtype, spec) for size, spec in kinds)
        return Plan(
            (*parameters, *gradients),
            results * (3 if rule == "adam" else 2),
            {"rule": rule, "specs": tuple(spec for _, spec in kinds)},
            judge="bound" if rule == "adam" else "exact",
            traffic=(),
            placed=False,
        )

    @staticmethod
    def reference(w, b, gw, gb, *, rule):
        parameters, state = [], []
        for p, g in ((w, gw), (b, gb)):
            p, *of_p = {"adam": adam_of, "momentum": momentum_of}[rule](p, g)
            parameters.append(p)
            state.append(of_p)
        return *parameters, *(s for kind in zip(*state, strict=True) for s in kind)


class Optimizer(Optimizing):
    """A few steps of SGD with momentum (exact) and Adam (within bounds) on given gradients. The program states no
    sharding for its results: parameters and state must be sharded like the given parameters."""

    name = "optimizer"

    @staticmethod
    def auto(w, b, gw, gb, *, rule):
        return {"adam": adam, "momentum": momentum}[rule]((w, b), (gw, gb))

    explicit = auto
    manual = auto


def momentum_of(p: Any, gradients: Any) -> tuple[Any, ...]:
    """The parameter and its momentum in NumPy."""
    m = np.zeros_like(p)
    for step in range(STEPS):
        m = DECAY * m + gradients[step]
        p = p - RATE * m
    return p, m


def adam_of(p: Any, gradients: Any) -> tuple[Any, ...]:
    """The parameter, its mean and its mean square in NumPy. The bias corrections carry a bound, because they are
    rounded."""
    m, v, one = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p) + 1.0
    for step in range(STEPS):
        g = gradients[step]
        m, v = B1 * m + (1.0 - B1) * g, B2 * v + (1.0 - B2) * (g * g)
        mean = m / (1.0 - (one * B1) ** (step + 1))
        p = p - RATE * (mean / (np.sqrt(v / (1.0 - (one * B2) ** (step + 1))) + TINY))
    return p, m, v


class OptaxOptimizer(Optimizing):
    """SGD with momentum and Adam by optax: the state and the results of each step must be sharded like the parameters.
    The state is made from sharded parameters, eagerly or in a program over Explicit axes."""

    name = "optax_optimizer"
    modes = ("host",)
    dtypes = ("float32",)

    def shardings(self, mesh: MeshShape) -> Iterator[Variant]:
        for variant in super().shardings(mesh):
            for far, made in enumerate(("eagerly", "explicit")):
                options = {**dict(variant.options), "made": made}
                yield Variant.of(max(variant.weight, far, mesh != preferred(mesh.size)), "optax", **options)

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Sequence[int]) -> str | None:
        return "the parameters are put from one process"

    def forward(self, request: Request) -> Plan:
        plan = super().forward(request)
        explicit = request.variant["made"] == "explicit"
        return Plan(plan.arguments, plan.results, {**plan.options, "explicit": explicit}, judge=plan.judge)

    @staticmethod
    def host(mesh, w, b, gw, gb, *, rule, specs, explicit):
        if importlib.util.find_spec("optax") is None:
            raise Missing("optax is not installed: " + extras.command("optax"))
        import optax

        kinds = (AxisType.Explicit if explicit else AxisType.Auto,) * len(mesh.axis_names)
        typed = Mesh(mesh.devices, mesh.axis_names, axis_types=kinds)

        def put(arrays, *first):
            places = [NamedSharding(typed, P(*first, *spec)) for spec in specs]
            return tuple(jax.device_put(np.asarray(a), p) for a, p in zip(arrays, places, strict=True))

        chosen = {"adam": optax.adam(RATE, B1, B2, TINY), "momentum": optax.sgd(RATE, DECAY)}[rule]

        def step(parameters, state, gradients):
            updates, state = chosen.update(gradients, state, parameters)
            return optax.apply_updates(parameters, updates), state

        with jax.set_mesh(typed):
            parameters = put((w, b))
            state = jax.jit(chosen.init)(parameters) if explicit else chosen.init(parameters)
            # Check the first state: a step adds sharded gradients, so even a replicated state is sharded after it.
            for kind in moments(state[0], rule):
                for begun, parameter in zip(kind, parameters, strict=True):
                    if not begun.sharding.is_equivalent_to(parameter.sharding, parameter.ndim):
                        raise RuntimeError(f"the state begins as {begun.sharding}, not {parameter.sharding}")
            for number in range(STEPS):
                gradients = put((gw[number], gb[number]))
                parameters, state = jax.jit(step)(parameters, state, gradients)
            return *parameters, *(leaf for kind in moments(state[0], rule) for leaf in kind)


def moments(state, rule):
    """The parts of an optax state that have the shapes of the parameters."""
    return (state.mu, state.nu) if rule == "adam" else (state.trace,)
