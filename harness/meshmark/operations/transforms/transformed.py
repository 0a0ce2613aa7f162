# SPDX-License-Identifier: Apache-2.0
"""A grid of transformations and functions. A transformation or a function is one entry of a table.

`transformed` has the transformation inside the program: around global functions, or, in manual mode, inside shard_map.
`transformed_shard_map` has it around shard_map, compiled or eagerly. The functions are those of
`transformed_functions`, and all results are exact (`polynomials`). The standard profile runs each pair of a
transformation and a group of functions once. The pairs rotate through modes and meshes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, auto_axes
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import PUT_FROM_ONE_PROCESS, Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.functions.polynomials import pull, push
from meshmark.operations.transforms.transformed_functions import (
    GROUPS,
    exact_for,
    in_numpy,
    of_blocks,
    of_the_whole,
)
from meshmark.operations.transforms.transforms import (
    _fori_loop,
    _jitted,
    _jvp,
    _linear_transpose,
    _linearize,
    _remat,
    _scan,
    _scan_remat,
    _scan_vjp,
    _second,
    _vjp,
    _while_loop,
)

LARGEST = 8
"""The most blocks. A matrix has n**2 rows, and its gradient in NumPy needs a call for each element."""


def _closed_over(f, x, y):
    """The gradient with respect to a factor. The function closes over its argument."""
    return jax.vjp(lambda w: f(x * w), y)[1](y)[0]


def _jacfwd(f, x, y):
    """The derivatives with respect to two factors, as columns of one Jacobian."""
    found = jax.jacfwd(lambda w: f(w[0] * x + w[1] * y))(jnp.array([1, 0], x.dtype))
    return found[..., 0] + 2 * found[..., 1]


def _jacrev(f, x, y):
    """The gradients of two sums, as rows of one Jacobian."""

    def sums(a):
        value = f(a)
        return jnp.stack([(value * y).sum(), value.sum()])

    found = jax.jacrev(sums)(x)
    return found[0] + 2 * found[1]


def _stacked(f, x, y):
    """A scan over stacked arrays that stacks its outputs."""
    carry, seen = lax.scan(lambda c, a: (c + f(a), c), x, jnp.stack([x, y]))
    return carry + 2 * seen[1]


def _cond(f, x, y):
    """A branch whose condition is unknown at compile time."""
    return lax.cond(jnp.min(y) >= 0, f, jnp.negative, x)


def _cond_vjp(f, x, y):
    return jax.vjp(lambda a: _cond(f, a, y), x)[1](y)[0]


def _switch(f, x, y):
    return lax.switch((jnp.min(y) >= 0).astype(jnp.int32), [jnp.negative, f, jnp.abs], x)


def _vmap(f, x, y):
    found = jax.vmap(f, in_axes=1, out_axes=1)(jnp.stack([x, y], axis=1))
    return found[:, 0] + 2 * found[:, 1]


def _vmap_vjp(f, x, y):
    return jax.vjp(lambda a: _vmap(f, a, a + y), x)[1](y)[0]


def _vmap_named(f, x, y):
    """A sum over the named batch, in addition to the collectives of the mesh."""
    mapped = jax.vmap(lambda a: lax.psum(f(a), "batch"), in_axes=1, out_axes=None, axis_name="batch")
    return mapped(jnp.stack([x, y], axis=1))


def _custom_vjp(f, x, y):
    """A custom rule that calls the function again and uses an array that the forward pass kept."""
    mine = jax.custom_vjp(lambda a: f(a))
    mine.defvjp(lambda a: (f(a), a), lambda a, g: (f(g) + a,))
    return jax.vjp(mine, x)[1](y)[0]


def _custom_jvp(f, x, y):
    """A custom rule that calls the function again."""
    mine = jax.custom_jvp(lambda a: f(a))
    mine.defjvp(lambda primals, tangents: (f(*primals), f(*tangents) + primals[0]))
    return jax.jvp(mine, (x,), (y,))[1]


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "jit": _jitted,
    "vjp": _vjp,
    "jvp": _jvp,
    "jacfwd": _jacfwd,
    "jacrev": _jacrev,
    "linearize": _linearize,
    "linear_transpose": _linear_transpose,
    "second": _second,
    "closed_over": _closed_over,
    "remat": _remat,
    "scan": _scan,
    "scan_vjp": _scan_vjp,
    "scan_remat": _scan_remat,
    "stacked": _stacked,
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
}
"""Each transformation takes the function, its argument, and a cotangent or tangent of the same shape."""


TWICE = ("scan", "scan_vjp", "scan_remat", "stacked", "fori_loop", "while_loop", "jacfwd", "jacrev")
"""The transformations that run the function twice. Those of vmap have a batch of two."""

DERIVATIVES = ("vjp", "jvp", "jac", "linear", "second", "closed_over", "remat")
"""Substrings of the names of the transformations that differentiate."""


KINDS = {"all_to_all": "all-to-all", "ppermute": "collective-permute"}
"""The collective to which a function compiles in every transformation of its group."""


def calls(transform):
    """The most times that a program runs the function. A derivative counts as two more runs."""
    number = 2 if transform in TWICE or transform.startswith("vmap") else 1
    return number * (3 if any(word in transform for word in DERIVATIVES) else 1)


def expected(f, x, y, transform):
    """The result of a transformation, from values of the function alone."""
    if transform in ("vjp", "remat", "linear_transpose", "cond_vjp"):
        return pull(f, x, y)
    if transform in ("jvp", "linearize"):
        return push(f, x, y)
    if transform == "jacfwd":
        return push(f, x, x) + 2 * push(f, x, y)
    if transform == "jacrev":
        return pull(f, x, y + 2)
    if transform == "second":
        return push(lambda a: pull(f, a, y), x, y)
    if transform == "closed_over":
        return x * pull(f, x * y, y)
    if transform in ("scan", "fori_loop", "while_loop"):
        return f(f(x))
    if transform in ("scan_vjp", "scan_remat"):
        return pull(f, x, pull(f, f(x), y))
    if transform == "stacked":
        return x + f(x) + f(y) + 2 * (x + f(x))
    if transform == "vmap_vjp":
        return pull(f, x, y) + 2 * pull(f, x + y, y)
    if transform in ("vmap", "vmap_spmd"):
        return f(x) + 2 * f(y)
    if transform == "vmap_named":
        return f(x) + f(y)
    if transform in ("custom_vjp", "custom_jvp"):
        return f(y) + x
    return f(x)


def turn(*words):
    """A number that depends only on these words."""
    return zlib.crc32(" ".join(map(str, words)).encode())


def turned(mesh: MeshShape, number: int) -> MeshShape:
    """The mesh of a rotation over meshes of the same size. Every second number gives the preferred mesh."""
    first = preferred(mesh.size)
    return (first, MeshShape((mesh.size,)), first, MeshShape(first.shape[::-1]))[number % 4]


class Grid(Operation):
    """The base: each transformation on each group, for matrices whose rows are sharded over one mesh axis or all."""

    family = "transforms"
    level = "L3"
    sizes: ClassVar[dict[str, int]] = {"64B": 0}
    transforms: ClassVar[tuple[str, ...]]

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for number, transform in enumerate(self.transforms):
            for more, (group, functions) in enumerate(GROUPS.items()):
                options = self.options(mesh, transform, group)
                if options is None:
                    continue
                first = mesh == preferred(mesh.size)
                usual = self.usual(number, more) and mesh == turned(mesh, number + more)
                far = 2 if first else 0 if 1 in mesh.shape else 1  # together with the mesh's own weight: 2
                yield Variant.of(far if usual else 3, None, **options)
                for function in functions:
                    if first and exact_for(function, mesh.product(options["axes"])):
                        yield self.alone(options, function)

    def alone(self, options: dict[str, Any], function: str) -> Variant:
        """The variant with a single function of a group."""
        return Variant.of(3, None, **options, function=function)

    def usual(self, transform: int, group: int) -> bool:
        """Whether the standard profile runs this pair of a transformation's and a group's number."""
        raise NotImplementedError

    def options(self, mesh: MeshShape, transform: str, group: str) -> dict[str, Any] | None:
        """The options of a pair on a mesh: the mesh axes of the rows, and whether the other axes shard the columns.
        None if no choice of axes fits."""
        alone: list[tuple[str, ...]] = [(a,) for a in mesh.names if len(mesh.names) > 1]
        pairs = [(axes, columns) for axes in alone for columns in (True, False)]
        pairs = [pair for pair in [*pairs, (mesh.names, False)] if 1 < mesh.product(pair[0]) <= LARGEST]
        if not pairs:
            return None
        axes, columns = pairs[turn(transform, group, mesh.label) % len(pairs)]
        return {"transform": transform, "group": group, "axes": axes, "columns": columns}

    def plan(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        axes, name = variant["axes"], variant["transform"]
        n, columns = mesh.product(axes), mesh.rest(axes) if variant.get("columns") else ()
        own = variant.get("function")
        functions = (own,) if own else tuple(f for f in GROUPS[variant["group"]] if exact_for(f, n))
        spec = (axes, columns or None)
        shape = (n * n, 2 * mesh.product(columns))
        below = 2 if name in ("scan", "scan_vjp", "scan_remat", "fori_loop", "while_loop") else 3
        x = Argument(shape, request.dtype, spec, values.tokens, {"below": below})
        y = Argument(shape, request.dtype, spec, values.tokens, {"below": 3})
        return Plan(
            (x, y),
            (Result(shape, request.dtype, spec),) * len(functions),
            {
                "transform": name,
                "names": functions,
                "axes": axes,
                "n": n,
                "spec": spec,
                "eager": variant.get("eager", False),
                "checked": not variant.get("novma"),
            },
            judge="exact",
            traffic=None,
            kinds=() if own else tuple(KINDS[f] for f in functions if f in KINDS),
            repeats=calls(name),
        )

    @staticmethod
    def reference(x, y, *, transform, names, n):
        return tuple(expected(in_numpy(name, n), x, y, transform) for name in names)


class Transformed(Grid):
    """Every transformation of collectives, products, reductions, indexing and sorts, inside the program."""

    name = "transformed"
    transforms = tuple(TRANSFORMS)
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "manual", "manual-novma")

    def usual(self, transform: int, group: int) -> bool:
        """Two of the three groups of functions for each transformation, in rotation."""
        return transform % len(GROUPS) != group

    def mode_weight(self, mode: str, variant: Variant) -> int | None:
        """The standard profile runs each pair in one mode; the pairs rotate through the modes."""
        return int(mode != self.modes[turn(variant.label) % len(self.modes)])

    @staticmethod
    def manual(x, y, *, transform, names, axes):
        found = tuple(TRANSFORMS[transform](of_blocks(name, axes), x, y) for name in names)
        return found if len(found) > 1 else found[0]

    @staticmethod
    def auto(x, y, *, transform, names, n):
        found = tuple(TRANSFORMS[transform](of_the_whole(name, n), x, y) for name in names)
        return found if len(found) > 1 else found[0]

    @staticmethod
    def explicit(x, y, *, transform, names, n, spec):
        def function(name):
            return auto_axes(of_the_whole(name, n), out_sharding=P(*spec))

        found = tuple(TRANSFORMS[transform](function(name), x, y) for name in names)
        return found if len(found) > 1 else found[0]


def _vmap_spmd(f, x, y, axis, size):
    """A batch that is sharded over a separate mesh axis."""
    batch = jnp.stack([x, y] * size, axis=1)
    found = jax.vmap(f, in_axes=1, out_axes=1, spmd_axis_name=axis)(batch)
    return found[:, -2] + 2 * found[:, -1]


EAGER = ("vmap",)
"""The transformations that the standard profile runs eagerly, each on one function."""


class TransformedShardMap(Grid):
    """Every transformation around shard_map, and vmap over a mesh axis, compiled or eagerly."""

    name = "transformed_shard_map"
    transforms = (*TRANSFORMS, "vmap_spmd")
    modes: ClassVar[tuple[str, ...]] = ("host",)

    def usual(self, transform: int, group: int) -> bool:
        """One group of functions for each transformation, in rotation: the one that `Transformed` leaves out."""
        return transform % len(GROUPS) == group

    def options(self, mesh: MeshShape, transform: str, group: str) -> dict[str, Any] | None:
        """The options of a pair, with check_vma on or off."""
        found = super().options(mesh, transform, group)
        if found is None:
            return None
        if transform == "vmap_spmd":
            if len(mesh.names) != 2 or mesh.size > LARGEST:
                return None  # the batch takes the one axis that does not shard the rows
            found |= {"axes": mesh.names[:1], "columns": False}
        return {**found, "novma": turn(transform, group) % 2 == 1}

    def alone(self, options: dict[str, Any], function: str) -> Variant:
        """About half of the single functions run eagerly. Each primitive is then compiled alone; a group would take
        seconds."""
        eager = turn(options["transform"], function) % 2 == 1
        often = function == "psum" and options["transform"] in EAGER
        return Variant.of(2 if often else 3, None, **options, function=function, eager=eager or often)

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    @staticmethod
    def host(mesh, x, y, *, transform, names, axes, spec, eager, checked):
        place = NamedSharding(mesh, P(*spec))
        x, y = jax.device_put(x, place), jax.device_put(y, place)

        def program(a, b):
            found = []
            for name in names:
                f = jax.shard_map(
                    of_blocks(name, axes), mesh=mesh, in_specs=P(*spec), out_specs=P(*spec), check_vma=checked
                )
                if transform == "vmap_spmd":
                    [rest] = [axis for axis in mesh.axis_names if axis not in axes]
                    found.append(_vmap_spmd(f, a, b, rest, mesh.shape[rest]))
                else:
                    found.append(TRANSFORMS[transform](f, a, b))
            return tuple(found)

        run = program if eager else jax.jit(program)
        return tuple(jax.device_put(z, place) for z in run(x, y))
