# SPDX-License-Identifier: Apache-2.0
"""Forms of arguments: a mesh axis as a plain name, negative and third dimensions, trees, scalars, Python numbers,
several collectives in one program, specs that are prefixes, and host arrays in Fortran order.

Each block of the collectives here is [2n, 2n, 3n] for an axis of n, so that every dimension can be split.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Traffic, Variant, nbytes
from meshmark.operations.collective_base import SUMMED, groups_of, over_groups, send
from meshmark.operations.placements.placement import home, matrix, spec_labels, spec_of

DTYPES = ("float32", "bfloat16", "float16", "int32", "int8", "int16", "uint8", "uint16", "uint32")


class Form(Operation):
    """The base of the forms. In manual mode the function gets the block of one device, inside shard_map."""

    family = "forms"
    level = "L1"
    dtypes: ClassVar[tuple[str, ...]] = DTYPES
    modes: ClassVar[tuple[str, ...]] = ("manual", "manual-novma")
    timed: ClassVar[dict[str, int]] = {}
    sizes: ClassVar[dict[str, int]] = {"64B": 0}

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the benchmarks time the ordinary operations."""
        yield from ()


def named(x, call, axis, n):
    """One collective over an axis that is given as a plain name."""
    if call == "psum":
        return lax.psum(x, axis)
    if call == "pmax":
        return lax.pmax(x, axis)
    if call == "pmin":
        return lax.pmin(x, axis)
    if call == "all_gather":
        return lax.all_gather(x, axis, axis=2, tiled=True)
    if call == "psum_scatter":
        return lax.psum_scatter(x, axis, scatter_dimension=2, tiled=True)
    if call == "all_to_all":
        return lax.all_to_all(x, axis, 2, 1, tiled=True)
    if call == "ppermute":
        return lax.ppermute(x, axis, [(i, (i + 1) % n) for i in range(n)])
    if call == "axis_index":
        return x + lax.axis_index(axis).astype(x.dtype)
    return x + jnp.array(lax.axis_size(axis), x.dtype)


def owe(call: str, axis: str, payload: int, mesh: MeshShape, itemsize: int = 0) -> tuple[Traffic, ...]:
    """The collective that one call over a named axis needs, with a device's block of so many bytes."""
    n = mesh.sizes[axis]
    if call in ("psum", "pmax", "pmin"):
        return send("all-reduce", (axis,), payload, mesh, itemsize)
    if call == "all_gather":
        return send("all-gather", (axis,), n * payload, mesh, itemsize)
    if call == "ppermute":
        rings = groups_of(mesh.sizes, (axis,))
        ring = tuple(pair for g in rings for pair in zip(g, (*g[1:], g[0]), strict=True))
        return (Traffic("collective-permute", payload, ring, itemsize),) if n > 1 else ()
    kinds = {"psum_scatter": "reduce-scatter", "all_to_all": "all-to-all"}
    return send(kinds[call], (axis,), payload, mesh, itemsize) if call in kinds else ()


def defined(blocks, call):
    """The result of each member of a group, in NumPy."""
    n = len(blocks)
    if call == "psum":
        return [sum(blocks)] * n
    if call in ("pmax", "pmin"):
        return [(np.max if call == "pmax" else np.min)(blocks, axis=0)] * n
    if call == "all_gather":
        return [np.concatenate(blocks, axis=2)] * n
    if call == "psum_scatter":
        return np.split(sum(blocks), n, axis=2)
    if call == "all_to_all":
        parts = [np.split(block, n, axis=2) for block in blocks]
        return [np.concatenate([row[i] for row in parts], axis=1) for i in range(n)]
    if call == "ppermute":
        return [blocks[(i - 1) % n] for i in range(n)]
    return [block + (i if call == "axis_index" else n) for i, block in enumerate(blocks)]


class NamedAxis(Form):
    """Each collective over one axis that is given as a plain name and not as a tuple."""

    name = "named_axis"
    fills: ClassVar[tuple[str, ...]] = SUMMED
    calls: ClassVar[tuple[str, ...]] = (
        *("psum", "pmax", "pmin", "all_gather", "psum_scatter", "all_to_all", "ppermute"),
        *("axis_index", "axis_size"),
    )

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for call in self.calls:
            for axis in mesh.names:
                yield Variant.of(1 + (axis != mesh.names[-1]), call=call, axis=axis)

    def plan(self, request: Request) -> Plan:
        mesh, call, axis = request.mesh, request.variant["call"], request.variant["axis"]
        n, spec = mesh.sizes[axis], (mesh.names, None, None)
        argument = Argument(
            (2 * n * mesh.size, 2 * n, 3 * n), request.dtype, spec, values.summands, {"terms": mesh.size + 1}
        )
        last = {"all_gather": 3 * n * n, "psum_scatter": 3, "all_to_all": 3}.get(call, 3 * n)
        rows = 2 * n * n if call == "all_to_all" else 2 * n
        result = Result((argument.shape[0], rows, last), request.dtype, spec)
        options = {"call": call, "axis": axis, "n": n, "sizes": dict(mesh.sizes), "spec": spec}
        owed = partial(owe, call, axis, nbytes(argument, mesh), mesh)
        return Plan((argument,), (result,), options, judge="exact", owed=owed)

    @staticmethod
    def manual(x, *, call, axis, n):
        return named(x, call, axis, n)

    @staticmethod
    def reference(x, *, call, axis, sizes, spec):
        return over_groups(partial(defined, call=call), x, sizes, (axis,), spec, spec)


class NegativeDimensions(Form):
    """Collectives along dimensions that are counted from the end."""

    name = "negative_dimensions"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for call in ("all_gather", "psum_scatter", "all_to_all"):
            for axis in mesh.names:
                yield Variant.of(1 + (axis != mesh.names[-1]), call=call, axis=axis)

    def plan(self, request: Request) -> Plan:
        return NamedAxis.plan(self, request)  # type: ignore[arg-type]

    @staticmethod
    def manual(x, *, call, axis):
        if call == "all_gather":
            return lax.all_gather(x, axis, axis=-1, tiled=True)
        if call == "psum_scatter":
            return lax.psum_scatter(x, axis, scatter_dimension=-1, tiled=True)
        return lax.all_to_all(x, axis, -1, -2, tiled=True)

    @staticmethod
    def reference(x, *, call, axis, sizes, spec):
        return over_groups(partial(defined, call=call), x, sizes, (axis,), spec, spec)


KEPT = ("psum", "pmax", "ppermute", "axis_index")
"""Collectives that keep the shape, so that any of them can follow another."""


class CollectiveChain(Form):
    """Two collectives in one program, one after the other, over the same axis or over two."""

    name = "collective_chain"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for first, second in itertools.product(KEPT, KEPT):
            for axis in {mesh.names[0]: 0, mesh.names[-1]: 1}:
                yield Variant.of(2 + (axis != mesh.names[-1]), calls=(first, second), then=axis)

    def plan(self, request: Request) -> Plan:
        mesh, (first, second) = request.mesh, request.variant["calls"]
        axes = (mesh.names[0], request.variant["then"])
        spec = (mesh.names, None)
        terms = mesh.sizes[axes[0]] * mesh.sizes[axes[1]] + 1
        room = values.digits_of(dtype_of(request.dtype).numpy) - terms.bit_length()
        fill: Any = (values.summands, {"terms": terms}) if room > 0 else (values.distinct, {})
        argument = Argument((2 * mesh.size, 6), request.dtype, spec, *fill)
        options = {
            "calls": (first, second),
            "axes": axes,
            "numbers": tuple(mesh.sizes[a] for a in axes),
            "sizes": dict(mesh.sizes),
            "spec": spec,
        }
        result = Result(argument.shape, request.dtype, spec)

        def owed() -> tuple[Traffic, ...]:
            each = zip((first, second), axes, strict=True)
            return tuple(t for call, axis in each for t in owe(call, axis, nbytes(argument, mesh), mesh))

        return Plan((argument,), (result,), options, judge="exact", owed=owed)

    @staticmethod
    def manual(x, *, calls, axes, numbers):
        for call, axis, n in zip(calls, axes, numbers, strict=True):
            x = named(x, call, axis, n)
        return x

    @staticmethod
    def reference(x, *, calls, axes, sizes, spec):
        for call, axis in zip(calls, axes, strict=True):
            x = over_groups(partial(defined, call=call), x, sizes, (axis,), spec, spec)
        return x


class Tree(Form):
    """A collective of a tree of arrays of several dtypes and ranks, with a scalar among them."""

    name = "tree_collective"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int8", "int16")

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for call in ("psum", "pmax", "ppermute"):
            for axis in mesh.names:
                yield Variant.of(1 + (axis != mesh.names[-1]), call=call, axis=axis)

    def plan(self, request: Request) -> Plan:
        mesh, call, axis = request.mesh, request.variant["call"], request.variant["axis"]
        arguments = tuple(
            Argument(
                shape,
                dtype,
                (mesh.names, None, None)[: len(shape)],
                values.summands,
                {"terms": mesh.size + 1},
            )
            for shape, dtype in (
                ((mesh.size,), request.dtype),
                ((mesh.size, 3), "int32"),
                ((2 * mesh.size, 3, 2), "bfloat16"),
            )
        )
        results = tuple(Result(a.shape, a.dtype, a.spec) for a in arguments)
        options = {
            "call": call,
            "axis": axis,
            "n": mesh.sizes[axis],
            "sizes": dict(mesh.sizes),
            "names": mesh.names,
        }

        def owed() -> tuple[Traffic, ...]:
            sizes = [(nbytes(a, mesh), dtype_of(a.dtype).itemsize) for a in arguments]
            return tuple(t for payload, item in sizes for t in owe(call, axis, payload, mesh, item))

        return Plan(arguments, results, options, judge="exact", owed=owed)

    @staticmethod
    def manual(x, y, z, *, call, axis, n):
        tree = {"scalar": x[0], "pair": (y, [z])}
        if call == "ppermute":
            done = lax.ppermute(tree, axis, [(i, (i + 1) % n) for i in range(n)])
        else:
            done = (lax.psum if call == "psum" else lax.pmax)(tree, axis)
        return done["scalar"][None], done["pair"][0], done["pair"][1][0]

    @staticmethod
    def reference(x, y, z, *, call, axis, sizes, names):
        spec = (names,)
        return tuple(
            over_groups(partial(defined, call=call), array, sizes, (axis,), spec, spec) for array in (x, y, z)
        )


class ScalarResult(Form):
    """A scalar such as a loss: the sum, maximum or minimum of an array sharded over all, some or no axes."""

    name = "scalar_result"
    level = "L2"
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "manual", "manual-novma", "pjit")
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int32", "int8", "int16", "uint8", "uint32")
    fills: ClassVar[tuple[str, ...]] = SUMMED

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for kind in ("sum", "max", "min"):
            for label in spec_labels(mesh):
                yield Variant.of(2 if label == home(mesh) else 4, of=label, kind=kind)

    def plan(self, request: Request) -> Plan:
        spec, kind = spec_of(request.variant["of"]), request.variant["kind"]
        shape = matrix(request)
        fill: Any = (values.distinct, {})
        if kind == "sum" and dtype_of(request.dtype).kind == "float":
            fill = (values.tokens, {"below": 2})
        axes = tuple(a for e in spec for a in (e if isinstance(e, tuple) else (e,) if e else ()))
        options = {"kind": kind, "axes": axes}
        result = Result((), request.dtype, ())
        return Plan(
            (Argument(shape, request.dtype, spec, *fill),),
            (result,),
            options,
            judge="exact",
            owed=partial(send, "all-reduce", axes, nbytes(result, request.mesh), request.mesh),
        )

    @staticmethod
    def auto(x, *, kind):
        if kind == "sum":
            return jnp.sum(x, dtype=x.dtype)
        return jnp.max(x) if kind == "max" else jnp.min(x)

    explicit = auto

    @staticmethod
    def manual(x, *, kind, axes):
        if kind == "sum":
            return lax.psum(jnp.sum(x, dtype=x.dtype), axes)
        return lax.pmax(jnp.max(x), axes) if kind == "max" else lax.pmin(jnp.min(x), axes)

    @staticmethod
    def reference(x, *, kind):
        return np.sum(x) if kind == "sum" else np.max(x) if kind == "max" else np.min(x)


class PythonNumber(Form):
    """Python numbers beside arrays: they take the array's dtype."""

    name = "python_number"
    level = "L2"
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "manual", "manual-novma", "pmap", "pjit")
    dtypes: ClassVar[tuple[str, ...]] = (
        "float32",
        "bfloat16",
        "float16",
        "int32",
        "int8",
        "int16",
        "uint8",
        "uint32",
    )

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for label in spec_labels(mesh):
            yield Variant.of(1 if label == home(mesh) else 3, of=label)

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode == "pmap" and variant["of"] != "x.-":
            return "pmap maps over the first dimension"
        return super().absent(mode, variant, mesh)

    def plan(self, request: Request) -> Plan:
        spec = spec_of(request.variant["of"])
        argument = Argument(matrix(request), request.dtype, spec, values.tokens, {"below": 30})
        result = Result(argument.shape, request.dtype, spec)
        return Plan((argument,), (result,), {}, judge="exact", traffic=())

    @staticmethod
    def auto(x):
        return jnp.where(x > 9, 2 * x + 1, 3) - jnp.maximum(x, 4) % 5

    explicit = auto
    manual = auto

    @staticmethod
    def reference(x):
        return np.where(x > 9, 2 * x + 1, 3) - np.maximum(x, 4) % 5


def arranged(x, order):
    """A host array with the same values and another order in memory."""
    if order == "fortran":
        return np.asfortranarray(x)
    if order == "strided":
        wide = np.repeat(x, 2, axis=0)
        return wide[::2]
    if order == "reversed":
        return np.ascontiguousarray(x[::-1])[::-1]
    return np.ascontiguousarray(x.T).T


class FromHost(Form):
    """The base of forms with NumPy arrays, which go to a transfer or to a jitted function with shardings. Over several
    processes JAX refuses the second by design: it can't know that the array is the same on each process."""

    modes: ClassVar[tuple[str, ...]] = ("host",)

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        if variant["way"] == "jit":
            return "over several processes jit takes no NumPy array with a sharding"
        return None


class HostOrder(FromHost):
    """Host arrays in Fortran order, strided, reversed or transposed in memory, which are put on the devices."""

    name = "host_order"
    dtypes: ClassVar[tuple[str, ...]] = (*DTYPES, "bool")

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for order in ("fortran", "strided", "reversed", "transposed"):
            for way in ("put", "jit", "callback"):
                for label in spec_labels(mesh):
                    yield Variant.of(2 if label == home(mesh) else 4, order=order, way=way, to=label)

    def plan(self, request: Request) -> Plan:
        spec = spec_of(request.variant["to"])
        argument = Argument(matrix(request), request.dtype, spec)
        options = {"order": request.variant["order"], "way": request.variant["way"], "spec": spec}
        return Plan((argument,), (Result(argument.shape, request.dtype, spec),), options, judge="bits")

    @staticmethod
    def host(mesh, x, *, order, way, spec):
        given, target = arranged(x, order), NamedSharding(mesh, P(*spec))
        if way == "put":
            return jax.device_put(given, target)
        if way == "jit":
            return jax.jit(lambda a: a, in_shardings=target, out_shardings=target)(given)
        return jax.make_array_from_callback(given.shape, target, lambda index: given[index])

    @staticmethod
    def reference(x):
        return x


class PrefixSpecs(FromHost):
    """One spec for a whole tree of arguments or results: shard_map's in_specs and out_specs, jit's shardings."""

    name = "prefix_specs"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for way in ("shard_map", "jit"):
            for label in spec_labels(mesh):
                yield Variant.of(1 if label == home(mesh) else 3, way=way, of=label)

    def plan(self, request: Request) -> Plan:
        spec = spec_of(request.variant["of"])
        argument = Argument(matrix(request), request.dtype, spec, values.tokens, {"below": 60})
        result = Result(argument.shape, request.dtype, spec)
        options = {"way": request.variant["way"], "spec": spec}
        return Plan((argument, argument), (result, result), options, judge="exact")

    @staticmethod
    def host(mesh, x, y, *, way, spec):
        def swapped(tree, one):
            return {"a": tree["b"][0] + 1, "b": [tree["a"] + one]}

        one, tree = np.ones((), x.dtype), {"a": x, "b": [y]}
        if way == "shard_map":
            call = jax.shard_map(swapped, mesh=mesh, in_specs=(P(*spec), P()), out_specs=P(*spec))
            done = jax.jit(call)(tree, one)
        else:
            target = NamedSharding(mesh, P(*spec))
            call = jax.jit(swapped, in_shardings=(target, NamedSharding(mesh, P())), out_shardings=target)
            done = call(tree, one)
        return done["a"], done["b"][0]

    @staticmethod
    def reference(x, y):
        return y + 1, x + 1
