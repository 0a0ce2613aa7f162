# SPDX-License-Identifier: Apache-2.0
"""Operations: the vocabulary of the case table.

An operation gives a `Plan` for one cell of the table (a variant on a mesh, with a dtype and a size): the abstract
arguments and results, how the result is judged, what it costs, and what it must communicate. Its programs are
plain static functions named after the mode: `auto`, `explicit`, `manual` or `host`. `reference` is the same
computation in NumPy. A function takes the arrays by position and the options of the plan by keyword, only those
that its signature names. Options are literals, so that `meshmark repro` can print the call.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import Any, ClassVar, Literal

import numpy as np

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import Spec, local_shape
from meshmark.core.meshes import MeshShape

MODES = ("auto", "explicit", "manual", "manual-novma", "pmap", "pjit", "host")
"""The modes. auto: jit over Auto axes. explicit: jit over Explicit axes. manual: shard_map. manual-novma: shard_map
with check_vma=False. pmap and pjit: the legacy forms of manual and auto. host: calls from the host, without a
program."""

SPECIAL_VALUES_WEIGHT = 3
"""The weight of a variant whose first argument holds special values in place of ordinary ones."""

Groups = tuple[tuple[int, ...], ...]
"""Groups of flat mesh positions."""

Judge = Literal["bits", "exact", "bound"]
"""How numbers are judged. bits: the data was moved, and must be equal to the bit. exact: the numbers must be equal,
because every intermediate result is exact. bound: the error must be within the forward error bound that the reference
derives."""


class Missing(RuntimeError):
    """A stated precondition is not met. The verdict is `unsupported`, and the message is the reason."""


@dataclass(frozen=True)
class Argument:
    """An abstract input, and the pure function that gives its values."""

    shape: tuple[int, ...]
    dtype: str
    spec: Spec
    fill: Callable[..., np.ndarray] = values.distinct
    options: Mapping[str, Any] = field(default_factory=dict)

    def block(self, seed: int, index: Sequence[slice]) -> np.ndarray:
        """The values of one block of the global array, in the argument's dtype. MemoryError if it is too large."""
        sizes = [part.stop - part.start for part in index]
        if math.prod(sizes) <= values.AT_ONCE:
            return self._filled(seed, index)
        try:
            made = np.empty(sizes, dtype_of(self.dtype).numpy)
        except ValueError as error:  # NumPy raises it for a size beyond the address space
            raise MemoryError(str(error)) from None
        for piece in values.pieces(sizes):
            there = zip(index, piece, strict=True)
            made[piece] = self._filled(seed, [slice(i.start + p.start, i.start + p.stop) for i, p in there])
        return made

    def _filled(self, seed: int, index: Sequence[slice]) -> np.ndarray:
        flat = values.flat_index(self.shape, index)
        kind = dtype_of(self.dtype).numpy
        return self.fill(values.random_bits(seed, flat), flat, self.shape, kind, **self.options)


@dataclass(frozen=True)
class Result:
    """An abstract output."""

    shape: tuple[int, ...]
    dtype: str
    spec: Spec


@dataclass(frozen=True)
class Cost:
    """The cost of one execution, for the figures of the benchmarks.

    flops: of all devices together. nbytes: S, the bytes of one device as in the bandwidth table of nccl-tests
    (doc/PERFORMANCE.md). factor: f, so that busbw = nbytes / time * factor. idle: the part of flops that no result
    needs, such as those of a pipeline's stages before their first micro-batch; MFU leaves it out.
    """

    flops: int = 0
    nbytes: int = 0
    factor: float = 0.0
    idle: int = 0


@dataclass(frozen=True)
class Traffic:
    """One expected collective of a program: HLO kind, payload S of one device in bytes, and the
    groups of flat mesh positions (for a collective-permute the source-target pairs)."""

    kind: str
    nbytes: int
    groups: tuple[tuple[int, ...], ...]
    itemsize: int = 0
    """The bytes of an element. 0 stands for the itemsize of the case's dtype."""


@dataclass(frozen=True)
class Plan:
    """Everything concrete about one cell."""

    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    options: Mapping[str, Any]
    judge: Judge
    cost: Cost = Cost()
    traffic: tuple[Traffic, ...] | None = None
    """The collectives of manual mode. None if a transformation (such as grad) makes them."""
    owed: tuple[Traffic, ...] | Callable[[], tuple[Traffic, ...]] | None = None
    """`owed_traffic`, or a function that gives it. None if the plan does not state it. A theory since version 26 of the
    table is a function (`meshmark.operations.versions` asks for it)."""
    kinds: tuple[str, ...] = ()
    """The kinds of collectives that manual mode must have if a transformation makes them."""
    connect: Groups | Callable[[], Groups] = ()
    """The groups of `connected`, or a function that gives them. It is a function if the search for the groups takes
    time, because most plans do not need them."""
    wrt: tuple[int, ...] = ()
    """The arguments by which a gradient plan differentiates. Its last arguments are then the cotangents of `forward`,
    the results of the undifferentiated operation."""
    forward: tuple[Result, ...] = ()
    placed: bool = True
    """Whether jit gets out_shardings. If not, the program itself must place the results."""
    repeats: int = 1
    """The number of times that a loop in the program runs its collectives."""
    arithmetic: Mapping[str, Any] = field(default_factory=dict)
    """The fields of Arithmetic that differ from those of the dtype, for judge "bound" (see meshmark.core.bounds)."""

    @cached_property
    def connected(self) -> Groups:
        """Groups of mesh positions that must exchange data in every mode, directly or through other positions."""
        return self.connect() if callable(self.connect) else self.connect

    @cached_property
    def owed_traffic(self) -> tuple[Traffic, ...] | None:
        """What the computation must send where the program does not spell its collectives, whichever collectives it
        uses. None if the plan does not state it."""
        return self.owed() if callable(self.owed) else self.owed

    @property
    def precision(self) -> str:
        """The requested matmul precision; "" if the operation has none."""
        return self.options.get("precision", "")


@dataclass(frozen=True)
class Variant:
    """A choice of options. `options` name it in the case id; `weight` is its distance from the ordinary variant."""

    options: tuple[tuple[str, Any], ...] = ()
    weight: int = 0
    capability: str | None = None

    @classmethod
    def of(cls, weight: int = 0, capability: str | None = None, /, **options: Any) -> Variant:
        """A variant from keyword options, such as Variant.of(1, axes=("y", "x"), tiled=True)."""
        return cls(tuple(options.items()), weight, capability)

    def but(self, weight: int, **options: Any) -> Variant:
        """This variant with more options. `weight` is added to its own."""
        return Variant((*self.options, *options.items()), self.weight + weight, self.capability)

    def __getitem__(self, name: str) -> Any:
        return dict(self.options)[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The option, or the default."""
        return dict(self.options).get(name, default)

    @property
    def label(self) -> str:
        """The options as text, such as axes=y+x,dim=1,tiled. Options that are False or None are left out; without
        options the text is "plain"."""
        parts = []
        for name, value in self.options:
            if value is True:
                parts.append(name)
            elif value is not False and value is not None:
                parts.append(f"{name}={'+'.join(map(str, value)) if isinstance(value, tuple) else value}")
        return ",".join(parts) or "plain"


@dataclass(frozen=True)
class Request:
    """The input of `Operation.plan`: one cell of the table, without the operation."""

    variant: Variant
    mesh: MeshShape
    dtype: str
    size: str
    processes: int = 1
    """The number of processes. They share the devices equally and in order."""

    @property
    def elements(self) -> int:
        """The number of elements of one device's block, for a size in bytes such as 4KiB."""
        return parse_size(self.size) // dtype_of(self.dtype).itemsize


PUT_FROM_ONE_PROCESS = "the inputs are put from one process"
"""The reason of `Operation.refuses` for operations whose program gets host arrays."""


class Operation:
    """One row of the case table. Subclasses that have a `name` are registered, with one instance each.

    The docstring of a subclass is its description in the table.
    """

    name: ClassVar[str] = ""
    family: ClassVar[str]
    level: ClassVar[str]
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0}
    """The weight of each size, by label: bytes of one device's block (4KiB), or a dimension (n64)."""
    timed: ClassVar[Mapping[str, int]] = {}
    """The weight of each size that the benchmarks time; if empty, they time `sizes`, in the full profile only."""
    fills: ClassVar[tuple[str, ...]] = ()
    """The kinds of special values that the first argument may hold as well (see meshmark.core.special_values)."""
    common_fills: ClassVar[tuple[str, ...]] = ()
    """The kinds of `fills` that the standard profile takes in every main mode, with the ordinary variant."""
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "manual", "manual-novma", "pmap", "pjit")
    processes: ClassVar[bool] = False
    """Whether the operation needs several processes."""
    complete: ClassVar[bool] = False
    """Whether the plan states all that a program needs: mesh axes, operations and memory. A program that uses more is
    then a fault. For other operations the report only names what the program uses beyond the plan."""
    everywhere: ClassVar[bool] = False
    """Whether the standard profile has the operation on every mesh shape, also on those with axes of size 1."""
    magnified: ClassVar[float] = 1.0
    """How many times more the reference of a gradient magnifies the roundings of its host than the bound magnifies
    those of the device. It is 1 if both compute the same, and more for differences that are divided by a small
    step."""

    auto: ClassVar[Callable[..., Any]]
    explicit: ClassVar[Callable[..., Any]]
    manual: ClassVar[Callable[..., Any]]
    host: ClassVar[Callable[..., Any]]
    reference: ClassVar[Callable[..., Any]]
    gradient: ClassVar[Callable[..., Any]]
    """The NumPy reference of a gradient plan: takes arguments and cotangents, gives gradients in the order of wrt."""

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """The options that make sense on this mesh."""
        yield Variant()

    def light_variants(self, mesh: MeshShape, most: float) -> Iterator[Variant]:
        """The variants of weight `most` or less, in the same order. Most of the table is heavier than any profile
        takes, so an operation with many variants overrides this and makes only the light ones."""
        return (variant for variant in self.variants(mesh) if variant.weight <= most)

    def filled_variants(self, mesh: MeshShape, most: int) -> Iterator[Variant]:
        """The variants of weight `most` or less, each with its own values and then with special ones. Heavier variants
        are not made."""
        for variant in self.light_variants(mesh, most):
            yield variant
            if variant.weight + SPECIAL_VALUES_WEIGHT - 1 <= most:
                yield from (v for v in self.with_fills(variant, self.fills) if v.weight <= most)

    def with_fills(self, variant: Variant, kinds: Iterable[str]) -> Iterator[Variant]:
        """The variant with each of these kinds of special values. Nothing if the variant already names its values."""
        if variant.get("fill") is None:
            for kind in kinds:
                yield variant.but(SPECIAL_VALUES_WEIGHT - (kind in self.common_fills), fill=kind)

    def mode_weight(self, mode: str, variant: Variant) -> int | None:
        """The weight of a mode in the conformance tests; None for the ordinary weight."""
        return None

    def calls_host(self, variant: Variant) -> bool:
        """Whether the program calls host functions while it runs. Other compiled programs must not call the host."""
        return False

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """The variants that the benchmarks time: the ordinary ones."""
        return (v for v in self.variants(mesh) if not v.weight and not v.capability)

    def plan(self, request: Request) -> Plan:
        """The plan of one cell."""
        raise NotImplementedError

    def describe(self, variant: Variant) -> str:
        """What a variant judges, in one sentence: that of its form, where the operation has a table of forms."""
        form = getattr(self, "forms", {}).get(variant.get("form"))
        about = (inspect.getdoc(form) if isinstance(form, FunctionType) else "") or inspect.getdoc(type(self))
        paragraph = " ".join((about or self.name).split("\n\n")[0].split())
        return paragraph.partition(". ")[0].rstrip(".") + "."

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        """Why this mode has no program here; None if it has one."""
        if mode not in self.modes:
            return f"{self.name} has no program in mode {mode}"
        if mode == "pmap" and mesh.label != str(mesh.size):
            return "pmap has one axis over the devices in order"
        return None

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Sequence[int]) -> str | None:
        """Why there is no case if several processes share the devices; None if there is one.

        `owners`: the process of each flat position of the mesh."""
        return None

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        """Bounds for judge "bound" that are sharper than forward error analysis; None if the operation has none."""
        return None


def owners_of(mesh: MeshShape, num_devices: int, processes: int) -> tuple[int, ...]:
    """The process of each flat mesh position. The mesh takes the first devices; the processes share the devices equally
    and in order."""
    return tuple((mesh.ordinals.ravel() // max(1, num_devices // processes)).tolist())


def parse_size(label: str) -> int:
    """The number in a size label: 4KiB -> 4096, 64B -> 64, n64 -> 64. ValueError for other text; the message names the
    expected form."""
    if label.startswith("n") and label[1:].isdecimal():
        return int(label[1:])
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1)):
        if label.endswith(unit) and label.removesuffix(unit).isdecimal():
            return int(label.removesuffix(unit)) * factor
    raise ValueError(
        f"{label!r} is not a size: use a number of bytes such as 4KiB or a dimension such as n64"
    )


def nbytes(result: Argument | Result, mesh: MeshShape) -> int:
    """Bytes of one device's block."""
    block = local_shape(result.shape, result.spec, mesh.sizes)
    return math.prod(block) * dtype_of(result.dtype).itemsize
