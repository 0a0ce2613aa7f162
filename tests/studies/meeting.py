# SPDX-License-Identifier: Apache-2.0
"""Plants faults where two unusual coordinates meet: a test of the call decides where a function is wrong.

`meet` plants a fault in a public function or a primitive: if the operands, the options and the mesh pass the test, the
result is edited. `parted` plants a fault of the partitioner: if an operation of a program passes the test with the
mesh, the program's results are shifted by one device. Both are independent of cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import primitives
from jax.sharding import Mesh, NamedSharding

from meshmark.judge import programs
from tests.studies.faults_of_combinations import bound, nudged
from tests.studies.faults_of_conditions import changed
from tests.studies.faults_of_nesting import called
from tests.studies.planting import Mangled, Shards, axes_of, fault

Test = Callable[..., Any]
PLANTS: dict[str, tuple[Any, str, Test]] = {}
"""The owner, the name and the test of each fault that `meet` has registered, by title."""

PARTED: dict[str, Test] = {}
"""The test of each fault that `parted` has registered, by title."""


def off_by_one(real: Any, found: Any, *operands: Any, **options: Any) -> Any:
    """An edit that changes one element of the last result by one, or negates a bool."""
    leaves, tree = jax.tree.flatten(found)
    return jax.tree.unflatten(tree, [*leaves[:-1], nudged(leaves[-1], True)])


def reversed_along(dimension: int) -> Callable[..., Any]:
    """An edit that reverses a dimension."""
    return lambda real, found, *a, **k: jnp.flip(found, dimension)


def passes(test: Test, *operands: Any, **options: Any) -> bool:
    """Whether a call passes a test. A call for which the test raises does not."""
    try:
        return bool(test(*operands, **options))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, NameError):
        return False


def meet(
    title: str, owner: Any, name: str, test: Test, edit: Callable[..., Any] = off_by_one, **likely: Any
) -> None:
    """Register a fault: `owner.name` (a function, or a primitive) is wrong where its call passes the test."""

    def call(real: Any, *operands: Any, **options: Any) -> Any:
        found = real(*operands, **options)
        return edit(real, found, *operands, **options) if passes(test, *operands, **options) else found

    def make() -> Any:
        return bound(name, call) if owner is primitives else changed(owner, name, call)

    make.__name__ = title
    PLANTS[title] = (owner, name, test)
    fault(**likely)(make)


def sizes() -> dict[str, int]:
    """The sizes of the mesh axes over which a manual program runs."""
    return dict(jax.sharding.get_abstract_mesh().shape)


def label(mesh: Mesh) -> str:
    """The label of a mesh, as in case ids."""
    ids = [d.id for d in mesh.devices.flat]
    return "x".join(map(str, mesh.devices.shape)) + "-shuffled" * (ids != sorted(ids))


def operations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a program, nested ones included."""
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(
            [*equation.params.values()], is_leaf=lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from operations(inner)


def rotated(shards: Shards) -> Shards:
    """An edit that gives every device the shard of the next one."""
    return [*shards[1:], shards[0]]


def made_wrong(test: Test, traced: Any, mesh: Mesh) -> bool:
    """Whether the partitioner is wrong in a program: one of its operations passes the test."""
    names = label(mesh)
    return any(
        passes(test, e.primitive.name, [v.aval for v in e.invars], e.params, names)
        for e in operations(traced.jaxpr.jaxpr)
        if e.primitive.name not in ("shard_map", "jit", "pjit")
    )


def manual(traced: Any) -> bool:
    """Whether a program has a shard_map."""
    return any(e.primitive.name == "shard_map" for e in operations(traced.jaxpr.jaxpr))


@contextmanager
def partitioned(test: Test) -> Iterator[None]:
    """In this context, programs without shard_map in which an operation passes the test give each device the result of
    the next one."""
    real = programs.Program.compile

    def compile_(program: programs.Program) -> Any:
        compiled = real(program)
        if program.case.mode not in ("auto", "explicit", "pjit"):
            return compiled
        with program.context():
            traced = program.jitted().trace(*program.structs())
        return Mangled(compiled, rotated) if made_wrong(test, traced, program.mesh) else compiled

    def edit(run: Any, state: Any, *a: Any, **k: Any) -> Any:
        found = run(*a, **k)
        arrays = [x for x in jax.tree.leaves((a, k)) if isinstance(x, jax.Array)]
        places = [x.sharding for x in arrays if not isinstance(x, jax.core.Tracer)]
        meshes = [p.mesh for p in places if isinstance(p, NamedSharding)]
        if not meshes or len(places) < len(arrays):
            return found
        traced = run.trace(*a, **k)
        if manual(traced) or not made_wrong(test, traced, meshes[0]):
            return found
        return jax.tree.map(Mangled(None, rotated)._mangle, found)

    with patch.object(programs.Program, "compile", compile_), called(edit):
        yield


def parted(title: str, test: Test, **likely: Any) -> None:
    """Register a fault of the partitioner. The test takes the name of a primitive, the types of its operands, its
    parameters and the label of the mesh."""

    def make() -> Any:
        return partitioned(test)

    make.__name__ = title
    PARTED[title] = test
    fault(**likely)(make)


def leaf(x: Any) -> Any:
    """The first array of an operand that may be a tree."""
    return jax.tree.leaves(x)[0]


def n_of(axes: Any) -> int:
    """The number of devices along axes."""
    return int(lax.axis_size(axes_of(axes)))
