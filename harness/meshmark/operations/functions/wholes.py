# SPDX-License-Identifier: Apache-2.0
"""Functions of whole arrays, each written once and run in every mode.

`whole` is the function of whole arrays. Auto mode runs it unchanged. Explicit mode runs it unchanged if Explicit axes
have a rule for it (`ruled`), and otherwise inside `jax.sharding.auto_axes`. Manual mode gathers the dimensions along
which the function mixes elements, runs it, and keeps the device's own block of each result. A class with a better
program for a mode defines that mode as usual.

An operation with a `gradient` gets a second operation, NAME_gradient: the vector-Jacobian product of the same function,
with `gradient` as reference. For a function that only moves elements, `gradient` follows from the reference
(`transposed`).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import auto_axes

from meshmark.core import values
from meshmark.core.calls import call
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import Spec, axes_of
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Traffic, Variant, nbytes
from meshmark.operations.collective_base import send
from meshmark.operations.placements.moving import find_connections
from meshmark.operations.placements.placement import matrix, spec_labels, spec_of

MAIN = ("auto", "explicit", "manual", "manual-novma")

Places = tuple[tuple[str, int | None], ...]
"""Shardings of the first argument, each with a dimension to work along, or None."""


@lru_cache(maxsize=1024)
def _sharded(places: Places) -> Places:
    """The places whose dimension is sharded, or all places if no dimension is sharded."""
    return tuple(p for p in places if p[1] is None or axes_of(spec_of(p[0])[p[1]])) or places


def gathered(x, entries):
    """A block, gathered along some dimensions. `entries` are (dimension, mesh axes) pairs."""
    for dim, axes in entries:
        x = lax.all_gather(x, axes, axis=dim, tiled=True)
    return x


def own_block(y, entries):
    """The device's own block of an array that is whole along the dimensions of `entries`."""
    for dim, axes in entries:
        size = y.shape[dim] // lax.axis_size(axes)
        y = lax.dynamic_slice_in_dim(y, lax.axis_index(axes) * size, size, dim)
    return y


def from_the_first(y, axes):
    """A result that every device of these axes has computed, taken from the first one by a psum. So shard_map can prove
    that it does not vary over these axes."""
    if not axes:
        return y
    return lax.psum(jnp.where(lax.axis_index(axes) == 0, y, jnp.zeros_like(y)), axes).astype(y.dtype)


def in_auto_axes(whole: Callable[..., Any]) -> Callable[..., Any]:
    """The program of explicit mode: the function itself, or the function inside auto_axes."""

    def explicit(*arrays, keywords, ruled, out_specs):
        if ruled:
            return whole(*arrays, **keywords)
        places = tuple(P(*spec) for spec in out_specs)
        lifted = auto_axes(
            lambda *a: whole(*a, **keywords), out_sharding=places if len(places) > 1 else places[0]
        )
        return lifted(*arrays)

    return explicit


def over_blocks(whole: Callable[..., Any]) -> Callable[..., Any]:
    """The program of manual mode: gather the mixed dimensions, run the function, keep the own block."""

    def manual(*arrays, keywords, gather, keep, share):
        full = [gathered(x, entries) for x, entries in zip(arrays, gather, strict=True)]
        found = whole(*full, **keywords)
        results = found if isinstance(found, tuple) else (found,)
        own = [
            from_the_first(own_block(y, entries), axes)
            for y, entries, axes in zip(results, keep, share, strict=True)
        ]
        return own[0] if len(own) == 1 else tuple(own)

    return manual


def transposed(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a function that only moves elements, from its reference.

    The reference is applied to the number of each element, which shows where the element goes. Its cotangents are
    added there. Numbers below zero are constants.
    """

    def gradient(*arrays, keywords, wrt, primals):
        numbers, total = [], 0
        for i, array in enumerate(arrays[:primals]):
            if i in wrt:
                numbers.append(np.arange(total, total + array.size).reshape(array.shape))
                total += array.size
            else:
                numbers.append(np.asarray(array, np.int64))
        constants = {"value": -1} if "value" in keywords else {}
        found = call(reference, numbers, {**keywords, **constants})
        sums = np.zeros(total, np.float64)
        for sources, seeds in zip(
            found if isinstance(found, tuple) else (found,), arrays[primals:], strict=True
        ):
            sources = np.asarray(sources)
            np.add.at(sums, sources[sources >= 0], np.asarray(seeds)[sources >= 0])
        ends = np.cumsum([arrays[i].size for i in wrt])[:-1]
        return tuple(part.reshape(arrays[i].shape) for i, part in zip(wrt, np.split(sums, ends), strict=True))

    return gradient


@dataclass(frozen=True)
class Form:
    """The result of `WholeFunction.form` for one cell."""

    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    keywords: Mapping[str, Any]
    """The options of `whole` and of the reference."""
    mixed: tuple[tuple[int, ...], ...]
    """For each argument the dimensions along which the function mixes elements."""
    kept: tuple[tuple[int, ...], ...]
    """For each result the dimensions that `whole` gives whole once those are gathered."""
    judge: Any = "exact"
    ruled: bool = False
    """Whether Explicit axes have a rule for the function here."""
    wrt: tuple[int, ...] = ()
    """The arguments of which there are gradients."""
    terms: int = 8
    """The most cotangents that add up in an element of a gradient."""


class WholeFunction(Operation):
    """The base: a function of whole arrays. A subclass gives `whole`, `reference` and `form`."""

    level = "L2"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int32")
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0, "64B": 3}
    whole: ClassVar[Callable[..., Any]]
    derivative: ClassVar[type[Operation]]
    """The operation of the gradients, made with the class."""
    differentiated: ClassVar[bool] = False
    """Whether this is such an operation."""
    moves: ClassVar[bool] = False
    """Whether the function only moves elements: then its gradient and connections follow from the reference."""
    one_mode: ClassVar[bool] = False
    """Whether the standard profile takes each gradient in one mode alone, since it compiles slowly."""
    share: ClassVar[int] = 1
    """How many shardings of each choice the standard profile takes; of a gradient one."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "whole" not in vars(cls):
            return
        own = vars(cls)
        whole = cls.whole
        if "auto" not in own:
            cls.auto = staticmethod(whole)
        if "explicit" not in own:
            cls.explicit = staticmethod(in_auto_axes(whole))
        if "manual" not in own:
            cls.manual = staticmethod(over_blocks(whole))
        if cls.moves and "gradient" not in own:
            cls.gradient = staticmethod(transposed(cls.reference))
        if cls.name and hasattr(cls, "gradient"):
            about = {"name": f"{cls.name}_gradient", "level": "L3", "differentiated": True, "share": 1}
            about["dtypes"] = tuple(d for d in cls.dtypes if dtype_of(d).kind == "float")[:1]
            about["__doc__"] = f"The vector-Jacobian product of `{cls.name}`."
            about["__module__"] = cls.__module__
            cls.derivative = type(f"{cls.__name__}Gradient", (cls,), about)

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(extra weight, options) pairs, without the sharding and the dimension. An extra weight of 0 is for the
        standard profile."""
        yield 0, {}

    def differentiable(self, options: Mapping[str, Any]) -> bool:
        """Whether this choice has a gradient, if the operation has one."""
        return True

    def rarely(self, options: Mapping[str, Any]) -> bool:
        """Whether the standard profile leaves out the gradient of a choice. By default a hash leaves out about half of
        them."""
        return bool(options) and zlib.crc32(f"{self.name} {options}".encode()) % 2 == 1

    def dims(self) -> tuple[int | None, ...]:
        """The dimensions along which the function can work. (None,) if the function has no such choice."""
        return (0, 1)

    def shardings(self, mesh: MeshShape) -> tuple[str, ...]:
        """The shardings of the first argument."""
        return spec_labels(mesh)

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """Each choice in each sharding, along each dimension. The standard profile takes a few of them for each choice;
        `rotation` chooses them by a hash of the choice and the mesh."""
        return self._made(mesh, math.inf)

    def light_variants(self, mesh: MeshShape, most: float) -> Iterator[Variant]:
        if type(self).variants is WholeFunction.variants:
            return self._made(mesh, most)
        return super().light_variants(mesh, most)

    def _made(self, mesh: MeshShape, most: float) -> Iterator[Variant]:
        """The variants of weight `most` or less."""
        places = tuple((of, dim) for of in self.shardings(mesh) for dim in self.dims())
        for far, options in self.choices():
            if self.differentiated:
                if not self.differentiable(options):
                    continue
                far += 2 * self.rarely(options)
            near = far + (2 if mesh == preferred(mesh.size) else 1)
            if near > most:
                continue
            chosen = self.rotation(places, mesh, options)
            for of, dim in places:
                weight = near if (of, dim) in chosen else far + 4
                if weight <= most:
                    named = {} if dim is None else {"dim": dim}
                    yield Variant.of(weight, self.needs(options), of=of, **named, **options)

    def mode_weight(self, mode: str, variant: Variant) -> int | None:
        """About half of the variants are ordinary with check_vma on, and the others with it off. Slow gradients run in
        one mode each, in turns."""
        if self.differentiated and self.one_mode and mode in MAIN:
            return int(mode != MAIN[self.turn(variant) % len(MAIN)])
        if mode not in ("manual", "manual-novma"):
            return None
        off = zlib.crc32(f"{self.name} {variant.label}".encode()) % 2 == 1
        return 0 if (mode == "manual-novma") == off else 2

    def turn(self, variant: Variant) -> int:
        """The number that chooses the mode of a slow gradient."""
        return zlib.crc32(f"{self.name} {variant.label}".encode())

    def needs(self, options: Mapping[str, Any]) -> str | None:
        """The optional capability that a choice needs, or None."""
        return None

    def rotation(
        self, places: Places, mesh: MeshShape, options: Mapping[str, Any]
    ) -> set[tuple[str, int | None]]:
        """The places that the standard profile takes: `share` places on the preferred mesh. On any other mesh, one
        choice in eight has one place."""
        sharded = _sharded(places)
        start = zlib.crc32(f"{self.name} {sorted(options.items())}".encode())
        if mesh != preferred(mesh.size):
            turn = zlib.crc32(mesh.label.encode())
            return {sharded[(start + turn) % len(sharded)]} if (start + turn) % 8 == 0 else set()
        pool = [sharded[(start + 3 * i) % len(sharded)] for i in range(self.share)]
        return set(pool)

    def form(self, request: Request, x: Argument) -> Form:
        """The form of one cell, given the ordinary first argument: a matrix in the variant's sharding."""
        raise NotImplementedError

    def plan(self, request: Request) -> Plan:
        x = Argument(matrix(request), request.dtype, spec_of(request.variant["of"]))
        form = self.form(request, x)
        gather = tuple(entries(a, dims) for a, dims in zip(form.arguments, form.mixed, strict=True))
        keep = tuple(entries(r, dims) for r, dims in zip(form.results, form.kept, strict=True))
        share = tuple(unshown(r, gather) for r in form.results)
        options = {
            **form.keywords,
            "keywords": dict(form.keywords),
            "gather": gather,
            "keep": keep,
            "share": share,
            "out_specs": tuple(r.spec for r in form.results),
            "ruled": form.ruled,
        }
        plan = Plan(
            form.arguments,
            form.results,
            options,
            judge=form.judge,
            traffic=self.traffic(request, form, gather, share),
            connect=partial(self.connect, request, form, gather),
        )
        return self.with_gradient(plan, form, request.mesh) if self.differentiated else plan

    def with_gradient(self, plan: Plan, form: Form, mesh: MeshShape) -> Plan:
        """The plan of the gradients of the same function."""
        seeds = tuple(
            Argument(r.shape, r.dtype, r.spec, values.summands, {"terms": form.terms}) for r in form.results
        )
        arguments = plan.arguments
        gradients = tuple(Result(arguments[i].shape, arguments[i].dtype, arguments[i].spec) for i in form.wrt)
        return replace(
            plan,
            arguments=(*arguments, *seeds),
            results=gradients,
            forward=form.results,
            wrt=form.wrt,
            judge="exact" if plan.judge == "bits" else plan.judge,
            traffic=None,
            owed=None if plan.traffic is None else partial(owe_gradients, plan.traffic, gradients, mesh),
            connect=(),
            options={**plan.options, "wrt": form.wrt, "primals": len(arguments)},
        )

    def traffic(
        self, request: Request, form: Form, gather: Any, share: Sequence[tuple[str, ...]]
    ) -> tuple[Traffic, ...] | None:
        """The collectives of manual mode: an all-gather per gathered dimension of an argument, and an all-reduce per
        result that is taken from the first device. None: not stated."""
        found: list[Traffic] = []
        mesh = request.mesh
        for argument, dims in zip(form.arguments, gather, strict=True):
            payload = nbytes(argument, mesh)
            for _, axes in dims:
                payload *= mesh.product(axes)
                found += send("all-gather", axes, payload, mesh, dtype_of(argument.dtype).itemsize)
        for result, axes in zip(form.results, share, strict=True):
            # A result may have another dtype than the case: `any` gives booleans.
            found += send("all-reduce", axes, nbytes(result, mesh), mesh, dtype_of(result.dtype).itemsize)
        return tuple(found)

    def connect(self, request: Request, form: Form, gather: Any) -> tuple[tuple[int, ...], ...]:
        """The groups that every mode must connect. They follow from the reference of functions that only move
        elements."""
        if not self.moves or len(form.wrt) < len(form.arguments):
            return ()  # if an index decides what moves, a compiled program can't depend on its values

        def reference(*numbers: np.ndarray) -> Any:
            constants = {"value": -1} if "value" in form.keywords else {}
            return call(type(self).reference, numbers, {**form.keywords, **constants})

        return find_connections(reference, form.arguments, form.results, request.mesh.sizes)


def owe_gradients(
    traffic: tuple[Traffic, ...], gradients: Sequence[Result], mesh: MeshShape
) -> tuple[Traffic, ...]:
    """What JAX's rules send for a vector-Jacobian product: the collectives of the function, their transposes, which
    send as much, and the sum of each gradient over the axes that do not shard its argument."""
    whole = [
        t
        for g in gradients
        for t in send(
            "all-reduce",
            mesh.rest(tuple(a for entry in g.spec for a in axes_of(entry))),
            nbytes(g, mesh),
            mesh,
            dtype_of(g.dtype).itemsize,
        )
    ]
    return (*traffic, *traffic, *whole)


def constant(
    bits: np.ndarray, index: np.ndarray, shape: Sequence[int], dtype: np.dtype, *, value: int
) -> np.ndarray:
    """One value everywhere: a start or a length that the compiler must not know."""
    return np.full(index.shape, value, dtype)


def entries(item: Argument | Result, dims: Sequence[int]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """(dimension, mesh axes) pairs of the sharded dimensions among `dims`."""
    spec = (*item.spec, *(None,) * (len(item.shape) - len(item.spec)))
    return tuple((d, axes_of(spec[d])) for d in dims if spec[d] is not None)


def unshown(result: Result, gather: Any) -> tuple[str, ...]:
    """The mesh axes over which arguments were gathered, without those in the result's spec."""
    shown = {a for e in result.spec for a in axes_of(e)}
    return tuple(dict.fromkeys(a for dims in gather for _, axes in dims for a in axes if a not in shown))


def with_entry(spec: Spec, dim: int, entry: Any) -> Spec:
    """The spec with another entry at one dimension."""
    return tuple(entry if d == dim else e for d, e in enumerate(spec))


def resized(shape: Sequence[int], dim: int, size: int) -> tuple[int, ...]:
    """The shape with another size of one dimension."""
    return tuple(size if d == dim else s for d, s in enumerate(shape))
