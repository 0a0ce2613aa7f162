# SPDX-License-Identifier: Apache-2.0
"""Arrays that a program makes without inputs: creation functions and random numbers. They are the same on every mesh.

The reference of the random bits is Threefry-2x32 with 20 rounds, written from its definition (Salmon and others,
"Parallel random numbers: as easy as 1, 2, 3", SC 2011). Each element's counter is its index in the whole array, so
neither mesh nor sharding may change a number (jax#40232, jax#21232).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from meshmark.core.layout import axes_of, indices
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.placements.placement import alone_and_sharded, matrix, spec_labels, spec_of

Array = np.ndarray


class Made(Operation):
    """The base of operations without arguments: the result is one sharded array."""

    level = "L2"
    sizes: ClassVar[Mapping[str, int]] = {"4KiB": 0, "64B": 3}
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "manual", "manual-novma", "pjit")

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(extra weight, options) pairs. An extra weight of 0 is for the standard profile."""
        yield 0, {}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        labels = spec_labels(mesh)
        for number, (far, options) in enumerate(self.choices()):
            for position, of in enumerate(labels):
                taken = position == (3 * number + 1) % len(labels) and mesh == preferred(mesh.size)
                yield Variant.of((2 if taken else 4) + far, of=of, **options)


def made(function, shape, dtype, place=None):
    """The array that a JAX creation function, given by name, makes. `place` is its sharding; functions without an
    `out_sharding` argument are resharded."""
    where = {} if place is None else {"out_sharding": place}
    rows, columns = shape
    if function == "arange":
        return jnp.arange(rows * columns, dtype=dtype).reshape(shape, **where)
    if function == "linspace":
        return jnp.linspace(0, rows * columns - 1, rows * columns).astype(dtype).reshape(shape, **where)
    if function == "iota":
        return lax.broadcasted_iota(dtype, shape, 1, **where)
    if function == "linspace_open":
        found = jnp.linspace(0, columns, columns, endpoint=False).astype(dtype)
        return jnp.broadcast_to(found, shape, **where)
    if function == "eye":
        found = jnp.eye(rows, columns, k=1, dtype=dtype)
    elif function == "eye_below":
        found = jnp.eye(rows, columns, k=-2, dtype=dtype)
    elif function == "arange_down":
        found = jnp.arange(2 * columns, 0, -2, dtype=dtype) + jnp.zeros(shape, dtype)
    elif function == "tri":
        found = jnp.tri(rows, columns, -2, dtype=dtype)
    elif function == "full":
        return jnp.full(shape, 7, dtype, **where)
    else:
        return getattr(jnp, function)(shape, dtype, **where)
    return found if place is None else reshard(found, place)


MORE = ("linspace_open", "eye_below", "arange_down")
"""Functions with an unusual option: no end point, below the diagonal, descending."""


class Creation(Made):
    """`arange`, `linspace`, `iota`, `eye`, `tri`, `full`, `zeros` and `ones` with sharded results. Explicit mode passes
    `out_sharding` to the functions that accept it."""

    name = "creation"
    family = "creation"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int32", "bfloat16")

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for function in ("arange", "linspace", "iota", "eye", "tri", "full", "zeros", "ones", *MORE):
            yield 0, {"function": function}

    def plan(self, request: Request) -> Plan:
        shape, spec = matrix(request), spec_of(request.variant["of"])
        options = {
            "function": request.variant["function"],
            "shape": shape,
            "dtype": request.dtype,
            "spec": spec,
        }
        return Plan((), (Result(shape, request.dtype, spec),), options, judge="exact", traffic=())

    @staticmethod
    def auto(*, function, shape, dtype):
        return made(function, shape, dtype)

    @staticmethod
    def explicit(*, function, shape, dtype, spec):
        return made(function, shape, dtype, P(*spec))

    @staticmethod
    def manual(*, function, shape, dtype, spec):
        found = made(function, shape, dtype)
        for dim, entry in enumerate(spec):
            axes = (entry,) if isinstance(entry, str) else entry
            if axes:
                size = shape[dim] // lax.axis_size(axes)
                found = lax.dynamic_slice_in_dim(found, lax.axis_index(axes) * size, size, dim)
        return found

    @staticmethod
    def reference(*, function, shape):
        rows, columns = shape
        place = np.arange(rows * columns, dtype=np.float64).reshape(shape)
        row, column = np.indices(shape)
        return {
            "arange": place,
            "linspace": place,
            "iota": column,
            "eye": (column - row == 1) * 1,
            "linspace_open": column,
            "eye_below": (column - row == -2) * 1,
            "arange_down": 2 * (columns - column),
            "tri": (column - row <= -2) * 1,
            "full": np.full(shape, 7),
            "zeros": np.zeros(shape),
            "ones": np.ones(shape),
        }[function]


# Random numbers --------------------------------------------------------------------------------------------------

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key: tuple[int, int], high: Array, low: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds. Returns two 32-bit words per counter; `high` and `low` are the counter's words."""
    with np.errstate(over="ignore"):
        words = [np.uint32(key[0]), np.uint32(key[1]), np.uint32(key[0] ^ key[1] ^ 0x1BD11BDA)]
        x, y = high.astype(np.uint32) + words[0], low.astype(np.uint32) + words[1]
        for group in range(5):
            for turn in ROTATIONS[group % 2]:
                x = x + y
                y = (y << np.uint32(turn)) | (y >> np.uint32(32 - turn))
                y = x ^ y
            x = x + words[(group + 1) % 3]
            y = y + words[(group + 2) % 3] + np.uint32(group + 1)
        return x, y


def bits_of(key: tuple[int, int], shape: tuple[int, ...]) -> Array:
    """32 random bits per element: the exclusive or of Threefry's two words for the element's index."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)
    x, y = threefry(key, index >> np.uint64(32), index & np.uint64(0xFFFFFFFF))
    return x ^ y


def folded(key: tuple[int, int], number: int) -> tuple[int, int]:
    """The key with a number folded in, as `jax.random.fold_in` does."""
    x, y = threefry(key, np.zeros(1, np.uint32), np.full(1, number, np.uint32))
    return int(x[0]), int(y[0])


def unit(bits: Array) -> Array:
    """float32 numbers from 0 to 1 (exclusive), made from the upper 23 bits."""
    return ((bits >> np.uint32(9)) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)


FAR = 0xDEADBEEF
"""The number to fold in. Its upper half is not zero, so a narrower integer would change it."""


def drawn(key, function, shape):
    """The numbers that a function of `jax.random` draws from a key."""
    if function == "bits":
        return lax.bitcast_convert_type(jax.random.bits(key, shape), jnp.int32)
    if function in NARROW:
        return jax.random.bits(key, shape, NARROW[function]).astype(jnp.int32)
    if function == "folded":
        return drawn(jax.random.fold_in(key, FAR), "bits", shape)
    if function == "split":
        return drawn(jax.random.split(key, (2, 3))[0, 2], "bits", shape)
    if function == "uniform":
        return jax.random.uniform(key, shape)
    if function == "bernoulli":
        return jax.random.bernoulli(key, 0.25, shape)
    kept = jax.random.bernoulli(key, 0.5, shape)  # dropout: an array of threes
    return jnp.where(kept, jnp.full(shape, 3, jnp.float32) / 0.5, jnp.float32(0))


class RandomBits(Made):
    """`jax.random.bits` of 8, 16 and 32 bits, `uniform`, `bernoulli` and dropout.

    The key is made from a seed; some cases fold a number into it or split it into six. The reference is an independent
    Threefry. Mesh and sharding must not change the numbers.
    """

    name = "random_numbers"
    family = "creation"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for function in ("bits", "uniform", "bernoulli", "dropout", *NARROW, "folded", "split"):
            yield 0, {"function": function}

    def plan(self, request: Request) -> Plan:
        shape, spec = matrix(request), spec_of(request.variant["of"])
        function = request.variant["function"]
        kind = {"bernoulli": "bool", "uniform": "float32", "dropout": "float32"}.get(function, "int32")
        entries = tuple(axes_of(e) for e in spec)
        options = {
            "function": function,
            "shape": shape,
            "seed": 1701,
            "entries": entries,
            "sizes": dict(request.mesh.sizes),
            "spec": spec,
        }
        return Plan((), (Result(shape, kind, spec),), options, judge="bits", traffic=())

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode in ("manual", "manual-novma"):
            return "inside shard_map every device draws its own numbers: operation random_blocks"
        return super().absent(mode, variant, mesh)

    @staticmethod
    def auto(*, function, shape, seed):
        return drawn(jax.random.key(seed, impl="threefry2x32"), function, shape)

    @staticmethod
    def explicit(*, function, shape, seed, spec):
        return reshard(drawn(jax.random.key(seed, impl="threefry2x32"), function, shape), P(*spec))

    @staticmethod
    def reference(*, function, shape, seed):
        return numbers(bits_of(derived((0, seed), function), shape), function)


NARROW = {"bits8": "uint8", "bits16": "uint16"}
"""Draws of fewer than 32 bits -> dtype."""


def derived(key: tuple[int, int], function: str) -> tuple[int, int]:
    """The key that a function draws from: the given key, that key with `FAR` folded in, or the third of
    six split keys."""
    return {"folded": folded(key, FAR), "split": folded(key, 2)}.get(function, key)


def numbers(bits: Array, function: str) -> Array:
    """The results of a function, made from 32 random bits per element. Narrow draws keep the lowest bits."""
    if function in NARROW:
        return bits.astype(NARROW[function]).astype(np.int32)
    if function in ("bits", "folded", "split"):
        return bits.view(np.int32)
    if function == "uniform":
        return unit(bits)
    if function == "bernoulli":
        return unit(bits) < np.float32(0.25)
    return np.where(unit(bits) < np.float32(0.5), np.float32(6), np.float32(0))


class RandomBlocks(RandomBits):
    """`fold_in(key, axis_index)` inside shard_map: each device draws its own block."""

    name = "random_blocks"
    family = "creation"
    modes: ClassVar[tuple[str, ...]] = ("manual", "manual-novma")

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        if mode not in self.modes:
            return f"{self.name} has no program in mode {mode}"
        return None

    @staticmethod
    def manual(*, function, shape, seed, entries):
        key = jax.random.key(seed, impl="threefry2x32")
        size = list(shape)
        for dim, axes in enumerate(entries):
            if axes:
                size[dim] //= lax.axis_size(axes)
                key = jax.random.fold_in(key, lax.axis_index(axes))
        return drawn(key, function, tuple(size))

    @staticmethod
    def reference(*, function, shape, seed, entries, sizes, spec):
        result = np.empty(shape, numbers(np.zeros(1, np.uint32), function).dtype)
        for index in indices(shape, spec, sizes):
            key = (0, seed)
            for dim, axes in enumerate(entries):
                if axes:
                    block = index[dim].stop - index[dim].start
                    key = folded(key, index[dim].start // block)
            result[index] = numbers(bits_of(derived(key, function), result[index].shape), function)
        return result


class RandomAnywhere(Operation):
    """More functions of `jax.random`, with every key implementation. A program with a sharded result must draw the same
    numbers as one device. The result is one boolean per element."""

    name = "random_anywhere"
    family = "creation"
    level = "L2"
    modes: ClassVar[tuple[str, ...]] = ("host",)

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        labels = spec_labels(mesh)
        choices = [
            ("threefry2x32", f)
            for f in ("normal", "randint", "permutation", "choice", "categorical", "gamma")
        ]
        choices += [(impl, f) for impl in ("rbg", "unsafe_rbg") for f in ("bits", "normal")]
        for number, (impl, function) in enumerate(choices):
            for position, of in enumerate(labels):
                taken = position == (2 * number + 1) % len(labels) and mesh == preferred(mesh.size)
                yield Variant.of(2 if taken else 4, of=of, impl=impl, function=function)

    def plan(self, request: Request) -> Plan:
        shape, spec = matrix(request), spec_of(request.variant["of"])
        options = {
            "impl": request.variant["impl"],
            "function": request.variant["function"],
            "shape": shape,
            "spec": spec,
        }
        x = Argument((1,), "int32", (None,))
        return Plan((x,), (Result(shape, "bool", (None, None)),), options, judge="bits")

    @staticmethod
    def host(mesh, x, *, impl, function, shape, spec):
        def draw():
            key = jax.random.key(1701, impl=impl)
            if function == "bits":
                return jax.random.bits(key, shape)
            if function == "randint":
                return jax.random.randint(key, shape, 0, 1000)
            if function == "permutation":
                whole = jnp.arange(shape[0] * shape[1]).reshape(shape)
                return jax.random.permutation(key, whole, axis=0)
            if function == "choice":
                return jax.random.choice(key, 1000, shape)
            if function == "categorical":
                return jax.random.categorical(key, jnp.zeros((5,)), shape=shape)
            if function == "gamma":
                return jax.random.gamma(key, 2.0, shape)
            return jax.random.normal(key, shape)

        alone, sharded = alone_and_sharded(mesh, draw, spec)
        same = (alone == sharded) & plausible(sharded, function)
        return jax.device_put(same, NamedSharding(mesh, P()))

    @staticmethod
    def reference(x, *, shape):
        return np.ones(shape, bool)


SHARES = {"normal": (0.0, 0.5), "randint": (499, 0.5), "choice": (499, 0.5), "categorical": (1, 0.4)}
SHARES |= {"gamma": (2.0, 1 - 3 * math.exp(-2))}
"""Draw -> (point, expected share of the numbers that do not exceed the point)."""

RANGES = {"randint": 1000, "choice": 1000, "categorical": 5}
"""Draw -> count n: the draw takes the integers from 0 to n - 1 with equal probability."""


def plausible(found: Array, function: str) -> bool:
    """Whether the numbers have the properties of their draw. A permutation has each row once. Integers stay in their
    range and come near both ends. At least 99 % of other numbers are distinct. The share of numbers not above a point
    is within six standard deviations of the expected share."""
    if function == "permutation":
        rows = np.arange(found.size).reshape(found.shape)
        return bool((np.sort(found, axis=0) == rows).all() and (np.diff(found, axis=1) == 1).all())
    if function in RANGES:
        size, gap = RANGES[function], 12 * RANGES[function] / found.size
        if not (0 <= found.min() <= gap and size - 1 - gap <= found.max() < size):
            return False
    elif len(np.unique(found)) < 0.99 * found.size:
        return False
    point, share = SHARES.get(function, (2**31, 0.5))
    spread = math.sqrt(share * (1 - share) / found.size)
    return bool(abs(np.mean(found <= point) - share) < 6 * spread)
