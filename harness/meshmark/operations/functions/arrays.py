# SPDX-License-Identifier: Apache-2.0
"""Array functions across shard boundaries: slices, scatters, concatenations, scans and sorts along a sharded
dimension. Each kind was wrong in some release; the operations' docstrings name the issues.

Shardings are written as in family placement (`xy.-` is P(("x", "y"), None)). If Explicit axes have no rule for a
sharded dimension, explicit mode uses the global function inside `jax.sharding.auto_axes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import auto_axes, reshard

from meshmark.core.layout import Spec, axes_of
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Traffic, Variant, nbytes
from meshmark.operations.collective_base import groups_of, send
from meshmark.operations.placements.moving import state_moves
from meshmark.operations.placements.placement import home, matrix, spec_labels, spec_of


class ArrayOperation(Operation):
    """The base of the array operations: a matrix in a sharding (`of`), and a function along dimension `dim`."""

    family = "arrays"
    level = "L2"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int32")
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0, "64B": 3}
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "pjit")
    distance: ClassVar[int] = 0
    """Added to the weight of every variant."""
    whole_of: ClassVar[tuple[int, ...]] = ()
    """The arguments of which a device may need all elements along the dimension, by their number."""
    every_spec: ClassVar[bool] = False
    """Whether the standard profile takes every sharding, or only the most important ones."""

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        forward = "".join(mesh.names)
        near = {f"{forward}.-", f"{mesh.names[-1]}.-"}
        for more, options in self.choices():
            for label in spec_labels(mesh):
                for dim in (0, 1):
                    plain = dim == 0 and label == home(mesh)
                    weight = (
                        0
                        if plain
                        else 1
                        if dim == 0 and label in near
                        else 2
                        if self.every_spec and dim == 0
                        else 3
                    )
                    yield Variant.of(self.distance + more + weight, of=label, dim=dim, **options)

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(weight, options) pairs. The sharding and the dimension are added to the options."""
        yield 0, {}

    def axes(self, variant: Variant) -> tuple[str, ...]:
        """The mesh axes over which the dimension is sharded."""
        return axes_of(spec_of(variant["of"])[variant["dim"]])

    def plan(self, request: Request) -> Plan:
        variant, mesh = request.variant, request.mesh
        axes, spec = self.axes(variant), spec_of(variant["of"])
        arguments = self.arguments(request, Argument(matrix(request), request.dtype, spec))
        results = self.results(request, Result(arguments[0].shape, request.dtype, spec))
        options = {
            "dim": variant["dim"],
            "axes": axes,
            "n": mesh.product(axes),
            "out_spec": spec,
            **self.options(request, arguments[0].shape),
        }
        return Plan(
            arguments,
            results,
            options,
            judge="exact",
            traffic=self.traffic(request, arguments[0], options),
            owed=partial(self.owe, request.mesh, arguments, axes) if self.whole_of else None,
            connect=partial(self.connect, request, arguments, results, options),
        )

    def owe(
        self, mesh: MeshShape, arguments: Sequence[Argument], axes: tuple[str, ...]
    ) -> tuple[Traffic, ...]:
        """The gathers of the arguments in `whole_of` along the dimension, which these axes shard."""
        return tuple(
            t
            for i in self.whole_of
            for t in send("all-gather", axes, nbytes(arguments[i], mesh) * mesh.product(axes), mesh)
        )

    def arguments(self, request: Request, x: Argument) -> tuple[Argument, ...]:
        """The inputs. `x` is the ordinary first input."""
        return (x,)

    def results(self, request: Request, y: Result) -> tuple[Result, ...]:
        """The outputs. `y` has the first input's shape, dtype and spec."""
        return (y,)

    def options(self, request: Request, shape: tuple[int, ...]) -> dict[str, Any]:
        """More options of the programs and the reference."""
        return {}

    def traffic(
        self, request: Request, x: Argument, options: Mapping[str, Any]
    ) -> tuple[Traffic, ...] | None:
        """What manual mode sends; None: not stated."""
        return None

    def connect(
        self,
        request: Request,
        arguments: Sequence[Argument],
        results: Sequence[Result],
        options: Mapping[str, Any],
    ) -> tuple[tuple[int, ...], ...]:
        """The device groups along the sharded dimension. Every result depends on every block of its group."""
        return tuple(g for g in groups_of(request.mesh.sizes, options["axes"]) if len(g) > 1)


class Moves(ArrayOperation):
    """The base of array functions that only move elements. The groups to connect follow from the reference."""

    fills: ClassVar[tuple[str, ...]] = ("nan", "zeros", "subnormal", "extreme")

    def plan(self, request: Request) -> Plan:
        plan = super().plan(request)

        def reference(*numbers: np.ndarray) -> Any:
            named = {k: plan.options[k] for k in ("dim", "pieces", "index", "step") if k in plan.options}
            return type(self).reference(
                *numbers, **named, **({"value": -1} if "value" in plan.options else {})
            )

        return state_moves(plan, reference, request.mesh.sizes)


def shifted(x, dim, value):
    """x shifted by one toward lower indices along `dim`, with `value` in the last place: the program of jax#18434."""
    if dim == 0:
        return x.at[:-1].set(x[1:]).at[-1].set(value)
    return x.at[:, :-1].set(x[:, 1:]).at[:, -1].set(value)


class ShiftSet(Moves):
    """`x.at[:-1].set(x[1:]).at[-1].set(5)`: wrong at shard boundaries on 0.10 and 0.11 (jax#18434)."""

    name = "shift_set"
    modes = ("auto", "explicit", "manual", "manual-novma", "pmap", "pjit")

    def options(self, request: Request, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"value": 5}

    def traffic(self, request: Request, x: Argument, options: Mapping[str, Any]) -> tuple[Traffic, ...]:
        n, dim = options["n"], options["dim"]
        row = nbytes(x, request.mesh) // (x.shape[dim] // n)
        groups = groups_of(request.mesh.sizes, options["axes"])
        hops = tuple((group[i], group[i - 1]) for group in groups for i in range(1, n))
        return (Traffic("collective-permute", row, hops),) if hops else ()

    @staticmethod
    def auto(x, *, dim, value):
        return shifted(x, dim, value)

    @staticmethod
    def explicit(x, *, dim, value, out_spec):
        return auto_axes(lambda y: shifted(y, dim, value), out_sharding=P(*out_spec))(x)

    @staticmethod
    def manual(x, *, dim, value, axes, n):
        if not axes:
            return shifted(x, dim, value)
        first = lax.slice_in_dim(x, 0, 1, axis=dim)
        received = lax.ppermute(first, axes, [(i, i - 1) for i in range(1, n)])
        last = jnp.where(lax.axis_index(axes) == n - 1, jnp.full_like(received, value), received)
        return jnp.concatenate([lax.slice_in_dim(x, 1, None, axis=dim), last], axis=dim)

    @staticmethod
    def reference(x, *, dim, value):
        rest = np.take(x, range(1, x.shape[dim]), axis=dim)
        return np.concatenate([rest, np.full_like(np.take(x, [0], axis=dim), value)], axis=dim)


def joined(arrays, dim, pieces):
    """The pieces (array number, start, stop) of several arrays, joined along a dimension."""
    return jnp.concatenate([lax.slice_in_dim(arrays[a], i, j, axis=dim) for a, i, j in pieces], axis=dim)


class Concatenate(Moves):
    """Two arrays of the same sharding, joined whole or in uneven pieces (with partial replication the values were once
    doubled, jax#24576)."""

    name = "concatenate"
    modes = ("auto", "explicit", "manual", "manual-novma", "pmap", "pjit")
    every_spec = True

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {}
        yield 1, {"uneven": True}

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode in ("manual", "manual-novma", "pmap") and mesh.product(self.axes(variant)) > 1:
            return "along a sharded dimension, blocks joined locally are not the arrays joined"
        return super().absent(mode, variant, mesh)

    def arguments(self, request: Request, x: Argument) -> tuple[Argument, ...]:
        return x, x

    def results(self, request: Request, y: Result) -> tuple[Result, ...]:
        dim = request.variant["dim"]
        return (Result(tuple(2 * s if d == dim else s for d, s in enumerate(y.shape)), y.dtype, y.spec),)

    def options(self, request: Request, shape: tuple[int, ...]) -> dict[str, Any]:
        size = shape[request.variant["dim"]]
        whole = ((0, 0, size), (1, 0, size))
        uneven = ((0, 1, size), (1, 0, size), (0, 0, 1))
        return {"pieces": uneven if request.variant.get("uneven") else whole}

    @staticmethod
    def auto(x, y, *, dim, pieces):
        return joined((x, y), dim, pieces)

    manual = auto

    @staticmethod
    def explicit(x, y, *, dim, pieces, out_spec):
        if len(pieces) == 2:
            return jnp.concatenate([x, y], axis=dim)
        return auto_axes(lambda *arrays: joined(arrays, dim, pieces), out_sharding=P(*out_spec))(x, y)

    @staticmethod
    def reference(x, y, *, dim, pieces):
        return np.concatenate([np.take((x, y)[a], range(i, j), axis=dim) for a, i, j in pieces], axis=dim)


def pad_chain(x, dim, value):
    """Three rounds: shift x down and up by padding and slicing, then join a half of each."""
    size, half = x.shape[dim], x.shape[dim] // 2
    for r in (1, 2, 3):
        before = [(r, 0) if d == dim else (0, 0) for d in range(x.ndim)]
        after = [(0, r) if d == dim else (0, 0) for d in range(x.ndim)]
        down = lax.slice_in_dim(jnp.pad(x, before, constant_values=value), half, size, axis=dim)
        up = lax.slice_in_dim(jnp.pad(x, after, constant_values=value), r, half + r, axis=dim)
        x = jnp.concatenate([down, up], axis=dim)
    return x


class PadConcatenate(Moves):
    """A chain of pad, slice and concatenate (once wrong: the fused program aliased buffers, jax#39100)."""

    name = "pad_concatenate"
    distance = 2

    def plan(self, request: Request) -> Plan:
        return replace(super().plan(request), repeats=3)  # the rounds

    def options(self, request: Request, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"value": 0}

    @staticmethod
    def auto(x, *, dim, value):
        return pad_chain(x, dim, value)

    @staticmethod
    def explicit(x, *, dim, value, out_spec):
        return auto_axes(lambda y: pad_chain(y, dim, value), out_sharding=P(*out_spec))(x)

    @staticmethod
    def reference(x, *, dim, value):
        size, half = x.shape[dim], x.shape[dim] // 2
        for r in (1, 2, 3):
            source = [*range(half - r, size - r), *range(r, half + r)]
            rows = [
                np.take(x, i, axis=dim) if 0 <= i < size else np.full_like(np.take(x, 0, axis=dim), value)
                for i in source
            ]
            x = np.stack(rows, axis=dim)
        return x


def strided_set(x, y, dim, step):
    """x with every step-th element along a dimension replaced, starting with the second."""
    return x.at[1::step].set(y) if dim == 0 else x.at[:, 1::step].set(y)


class StridedSet(Moves):
    """`x.at[1::step].set(y)`, with one step that divides the block size and one that does not (jax#22827)."""

    name = "strided_set"
    distance = 1

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"step": 2}
        yield 1, {"step": 3}

    def options(self, request: Request, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"step": request.variant["step"]}

    def arguments(self, request: Request, x: Argument) -> tuple[Argument, ...]:
        dim = request.variant["dim"]
        count = len(range(1, x.shape[dim], request.variant["step"]))
        shape = tuple(count if d == dim else s for d, s in enumerate(x.shape))
        spec = tuple(None if d == dim else e for d, e in enumerate(x.spec))
        return x, Argument(shape, x.dtype, spec)

    @staticmethod
    def auto(x, y, *, dim, step):
        return strided_set(x, y, dim, step)

    @staticmethod
    def explicit(x, y, *, dim, step, out_spec):
        return auto_axes(lambda a, b: strided_set(a, b, dim, step), out_sharding=P(*out_spec))(x, y)

    @staticmethod
    def reference(x, y, *, dim, step):
        result = x.copy()
        np.moveaxis(result, dim, 0)[1::step] = np.moveaxis(y, dim, 0)
        return result


def scatter_index(size: int, *, repeated: bool) -> tuple[int, ...]:
    """The target of each row: a permutation that spreads the rows over the shards; if repeated, each target twice."""
    step = next(k for k in range(size // 3 + 1, size + 2) if math.gcd(k, size) == 1)
    order = [(i * step + 1) % size for i in range(size)]
    return tuple(i // 2 for i in order) if repeated else tuple(order)


class Scatter(Moves):
    """`x.at[index].set(y)` for a permutation of all rows (jax#23052)."""

    name = "scatter"
    distance = 1

    def arguments(self, request: Request, x: Argument) -> tuple[Argument, ...]:
        return x, x

    def options(self, request: Request, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"index": scatter_index(shape[request.variant["dim"]], repeated=False)}

    @staticmethod
    def auto(x, y, *, dim, index):
        at = np.array(index)
        return x.at[at].set(y) if dim == 0 else x.at[:, at].set(y)

    @staticmethod
    def explicit(x, y, *, dim, index, out_spec):
        at = np.array(index)
        put = auto_axes(
            lambda a, b: a.at[at].set(b) if dim == 0 else a.at[:, at].set(b), out_sharding=P(*out_spec)
        )
        return put(x, y)

    @staticmethod
    def reference(x, y, *, dim, index):
        result = x.copy()
        for row, target in zip(np.moveaxis(y, dim, 0), index, strict=True):
            np.moveaxis(result, dim, 0)[target] = row
        return result


class Transpose(Moves):
    """The transpose of a matrix.

    Either the sharding is transposed too, so that each device transposes its own block, or the sharding is kept (once
    wrong, jax#23100).
    """

    name = "transpose"
    modes = ("auto", "explicit", "manual", "manual-novma", "pmap", "pjit")

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for label in spec_labels(mesh):
            weight = 1 if label == home(mesh) else 2
            yield Variant.of(weight, of=label, keep=True)
            yield Variant.of(weight + 1, of=label)

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode in ("manual", "manual-novma", "pmap") and variant.get("keep"):
            return "with the sharding kept it is an all_to_all, which family collectives holds"
        return super().absent(mode, variant, mesh)

    def plan(self, request: Request) -> Plan:
        spec = spec_of(request.variant["of"])
        argument = Argument(matrix(request), request.dtype, spec)
        out_spec: Spec = spec if request.variant.get("keep") else spec[::-1]
        result = Result(argument.shape[::-1], request.dtype, out_spec)
        plan = Plan(
            (argument,),
            (result,),
            {"out_spec": out_spec},
            judge="bits",
            traffic=None if request.variant.get("keep") else (),
        )
        return state_moves(plan, np.transpose, request.mesh.sizes)

    @staticmethod
    def auto(x):
        return x.T

    manual = auto

    @staticmethod
    def explicit(x, *, out_spec):
        return reshard(x.T, P(*out_spec))

    @staticmethod
    def reference(x):
        return np.transpose(x)
