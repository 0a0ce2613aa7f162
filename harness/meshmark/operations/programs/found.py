# SPDX-License-Identifier: Apache-2.0
"""Programs that the hunt found (`results/findings`), so that the suite also judges unforeseen programs.

Each is a function of jax.lax in the sharding in which it was wrong, was refused or ended the process on some release,
and in shardings in which it is right. Most have only auto mode, because they test the partitioner. Other programs of
`results/findings` are cases of the operations `convolution_gradient`, `dynamic_update_slice`, `pad` and
`reduce_window_gradient`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.functions.creation import bits_of
from meshmark.operations.models.programs import constrained


class Found(Operation):
    """The base. `kinds` names programs or shardings. On the preferred mesh all but the rare ones weigh less."""

    family = "found"
    level = "L2"
    modes: ClassVar[tuple[str, ...]] = ("auto",)
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int32")
    sizes: ClassVar[dict[str, int]] = {"n8": 0}
    kinds: ClassVar[tuple[str, ...]] = ()
    rare: ClassVar[tuple[str, ...]] = ()
    """The kinds that only the full profile runs."""
    axes: ClassVar[int] = 1
    """The number of mesh axes that the operation needs."""

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if len(mesh.shape) < self.axes:
            return
        for kind in self.kinds:
            near = mesh == preferred(mesh.size) and kind not in self.rare
            yield Variant.of(2 if near else 3, kind=kind)

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: a wrong program has no speed."""
        yield from ()


def small(request: Request, shape: tuple[int, ...], spec: Spec) -> Argument:
    """An argument of small nonzero integers."""
    return Argument(shape, request.dtype, spec, nonzero, {})


def nonzero(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype) -> np.ndarray:
    """Random integers from 1 to 15, so that elements that are lost or misplaced show. At most 15 elements are all
    different: integers from 1 to 30, one of each pair that 15 lies between."""
    if math.prod(shape) <= 15:
        placed = (np.uint64(7) * index + np.uint64(2)) % np.uint64(15)
        return (1 + placed + np.uint64(15) * ((bits >> np.uint64(16)) % np.uint64(2))).astype(dtype)
    return (1 + (bits >> np.uint64(16)) % np.uint64(15)).astype(dtype)


class StridedSlice(Found):
    """`lax.slice` with a stride along a sharded dimension: only from the last shard, only the last element, or from the
    second element on."""

    name = "strided_slice"
    kinds = ("last_shard", "last_element", "inner")

    def plan(self, request: Request) -> Plan:
        kind, mesh = request.variant["kind"], request.mesh
        axes = mesh.names[:1] if kind == "last_shard" else mesh.names
        n = mesh.product(axes)
        size, start, stride = {
            "last_shard": (n, n - 1, n + 1),
            "last_element": (2 * n, 2 * n - 1, 3),
            "inner": (2 * n, 1, 2),
        }[kind]
        count = len(range(start, size, stride))
        return Plan(
            (small(request, (size,), (axes,)),),
            (Result((count,), request.dtype, (None,)),),
            {"start": start, "limit": size, "stride": stride},
            judge="bits",
        )

    @staticmethod
    def auto(x, *, start, limit, stride):
        return lax.slice(x, (start,), (limit,), (stride,))

    @staticmethod
    def reference(x, *, start, limit, stride):
        return x[start:limit:stride]


class WindowGather(Found):
    """`lax.gather` of windows that span a whole sharded dimension."""

    name = "window_gather"
    kinds = ("whole",)
    axes = 2

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        first, second = mesh.names[:2]
        n, m = mesh.sizes[first], mesh.sizes[second]
        rows = window = 2 * n
        starts = Argument((n, 1), "int32", (first,), values.tokens, {"below": rows})
        table = small(request, (rows, m, 1), (first,))
        result = Result((window, n, m, 1), request.dtype, (None, None, second))
        return Plan((starts, table), (result,), {"window": window}, judge="bits")

    @staticmethod
    def auto(starts, table, *, window):
        numbers = lax.GatherDimensionNumbers(
            offset_dims=(0, 2, 3), collapsed_slice_dims=(), start_index_map=(0,)
        )
        return lax.gather(table, starts, numbers, (window, *table.shape[1:]))

    @staticmethod
    def reference(starts, table, *, window):
        firsts = np.clip(starts[:, 0].astype(int), 0, len(table) - window)
        return np.stack([table[first : first + window] for first in firsts], axis=1)


class PadInto(Found):
    """`lax.pad` of a replicated array into a sharded result: a shift that keeps the size, zeros between the elements,
    or zeros after them."""

    name = "pad_into_sharded"
    kinds = ("shift", "interior", "behind")

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        config = {"shift": (-1, 1, 0), "interior": (0, 1, 1), "behind": (0, mesh.size, 0)}[
            request.variant["kind"]
        ]
        size = mesh.size if config[2] == config[0] + config[1] == 0 else 2 * mesh.size
        return Plan(
            (small(request, (mesh.size,), ()),),
            (Result((size,), request.dtype, (mesh.names,)),),
            {"config": config},
            judge="bits",
        )

    @staticmethod
    def auto(x, *, config):
        return lax.pad(x, jnp.zeros((), x.dtype), (config,))

    @staticmethod
    def reference(x, *, config):
        low, high, interior = config
        wide = np.zeros((len(x) - 1) * (interior + 1) + 1, x.dtype)
        wide[:: interior + 1] = x
        return np.pad(wide, (max(low, 0), max(high, 0)))[max(-low, 0) :]


class ScanOfMaximum(Found):
    """`lax.associative_scan` of the maximum, of an argument or of the result of a scatter."""

    name = "scan_of_maximum"
    kinds = ("scattered", "plain")
    dtypes: ClassVar[tuple[str, ...]] = ("int32",)

    def plan(self, request: Request) -> Plan:
        argument = small(request, (request.mesh.size,), ())
        options = {"scattered": request.variant["kind"] == "scattered"}
        return Plan((argument,), (Result(argument.shape, request.dtype, (None,)),), options, judge="bits")

    @staticmethod
    def auto(x, *, scattered):
        if scattered:
            x = x.at[:].max(2)
        return lax.associative_scan(lax.max, x, reverse=True)

    @staticmethod
    def reference(x, *, scattered):
        x = np.maximum(x, 2) if scattered else x
        return np.maximum.accumulate(x[::-1])[::-1]


class CumulativePair(Found):
    """Two cumulative functions of one array along its sharded dimension, in one program."""

    name = "cumulative_pair"
    kinds = ("sum_product", "product_sum", "sum_maximum", "maximum_sum", "minimum_maximum")
    dtypes: ClassVar[tuple[str, ...]] = ("int32",)

    def plan(self, request: Request) -> Plan:
        spec: Spec = (request.mesh.names,)
        x = small(request, (2 * request.mesh.size,), spec)
        functions = tuple(request.variant["kind"].split("_"))
        return Plan(
            (x,), (Result(x.shape, request.dtype, spec),) * 2, {"functions": functions}, judge="exact"
        )

    @staticmethod
    def auto(x, *, functions):
        every = {"sum": lax.cumsum, "product": lax.cumprod, "maximum": lax.cummax, "minimum": lax.cummin}
        return tuple(every[name](x) for name in functions)

    @staticmethod
    def reference(x, *, functions):
        every = {"sum": np.add, "product": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
        return tuple(every[name].accumulate(x, dtype=x.dtype) for name in functions)


NEUTRAL = {"sum": 0.0, "product": 1.0, "maximum": -np.inf, "minimum": np.inf}
"""The number that changes no result of a reduction."""


class WindowPair(Found):
    """Two reductions of one array over windows that overlap along its sharded dimension, in one program: of three
    elements each, or the largest and the sum of each 3 x 3 pixels of an image, as networks pool."""

    name = "window_pair"
    kinds = ("maximum_sum", "sum_product", "minimum_maximum", "pools")
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        kind, every = request.variant["kind"], request.mesh.names
        shape: tuple[int, ...] = (2 * request.mesh.size,)
        spec: Spec = (every,)
        window: tuple[int, ...] = (3,)
        if kind == "pools":
            kind, shape, spec, window = "maximum_sum", (2, *shape, 4, 2), (None, every), (1, 3, 3, 1)
        x = small(request, shape, spec)
        options = {"functions": tuple(kind.split("_")), "window": window}
        return Plan((x,), (Result(shape, request.dtype, spec),) * 2, options, judge="exact")

    @staticmethod
    def auto(x, *, functions, window):
        every = {"sum": lax.add, "product": lax.mul, "maximum": lax.max, "minimum": lax.min}
        return tuple(
            lax.reduce_window(x, NEUTRAL[name], every[name], window, (1,) * x.ndim, "SAME")
            for name in functions
        )

    @staticmethod
    def reference(x, *, functions, window):
        every = {"sum": np.sum, "product": np.prod, "maximum": np.max, "minimum": np.min}
        found = []
        for name in functions:
            padded = np.pad(x, [(n // 2, n // 2) for n in window], constant_values=NEUTRAL[name])
            windows = np.lib.stride_tricks.sliding_window_view(padded, window)
            found.append(every[name](windows, axis=tuple(range(x.ndim, 2 * x.ndim))))
        return tuple(found)


class ReshapePullback(Found):
    """The pullback of a reshape into a sharding over the mesh's axes, in their order or reversed, together with a
    second cotangent."""

    name = "reshape_pullback"
    kinds = ("reversed", "ordered")
    axes = 2
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        last = mesh.names[-1]
        shape = (mesh.size, mesh.sizes[last])
        flat = mesh.size * mesh.sizes[last]
        axes = mesh.names if request.variant["kind"] == "ordered" else mesh.names[::-1]
        x = small(request, shape, ())
        seeds = (small(request, (flat,), ()), small(request, shape, (None, last)))
        forward = (Result((flat,), request.dtype, (axes,)), Result(shape, request.dtype, ()))
        return Plan(
            (x, *seeds),
            (Result(shape, request.dtype, (None, None)),),
            {"axes": axes},
            judge="exact",
            wrt=(0,),
            forward=forward,
        )

    @staticmethod
    def auto(x, *, axes):
        return constrained(jnp.reshape(x, (x.size,)), axes), x

    @staticmethod
    def reference(x):
        return np.reshape(x, (x.size,)), x

    @staticmethod
    def gradient(x, flat, square):
        return flat.reshape(x.shape) + square


class MovedRows(Found):
    """Each element is set to the previous one, after a reshape: an update of an array by its own rows. It can be wrong
    on a single device."""

    name = "moved_rows"
    kinds = ("whole", "sharded")

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        shape = (2 * mesh.size, 1)
        place: Spec = () if request.variant["kind"] == "whole" else (mesh.names,)
        result = Result(shape[:1], request.dtype, (None,))
        return Plan((small(request, shape, place),), (result,), {}, judge="bits")

    @staticmethod
    def auto(x):
        rows = jnp.reshape(x, (x.size,))
        return rows.at[1:].set(rows[:-1])

    @staticmethod
    def reference(x):
        rows = x.ravel()
        return np.concatenate([rows[:1], rows[:-1]])


class WindowMaximaTangent(Found):
    """The tangent of maxima over windows of one element. The tangent is sharded or replicated; the result is
    replicated."""

    name = "window_maxima_tangent"
    kinds = ("sharded", "whole")
    rare = ("sharded",)
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        shape = (2 * mesh.size,)
        place: Spec = () if request.variant["kind"] == "whole" else (mesh.names,)
        arguments = (small(request, shape, ()), small(request, shape, place))
        return Plan(arguments, (Result(shape, request.dtype, (None,)),), {}, judge="exact")

    @staticmethod
    def auto(x, tangent):
        def maxima(v):
            return constrained(lax.reduce_window(v, -jnp.inf, lax.max, (1,), (1,), "VALID"), None)

        return jax.jvp(maxima, (x,), (tangent,))[1]

    @staticmethod
    def reference(x, tangent):
        return tangent


class ScatterTwice(Found):
    """Two windows are added one after the other. The first is sharded over both mesh axes along one dimension, in their
    order or reversed."""

    name = "scatter_twice"
    kinds = ("reversed", "ordered")
    axes = 2
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        first, second = mesh.names[:2]
        n, m = mesh.sizes[first] * mesh.sizes[second], mesh.sizes[second]
        over = (first, second) if request.variant["kind"] == "ordered" else (second, first)
        at = Argument((1, 1), "int32", (), values.tokens, {"below": 1})
        arguments = (
            *(small(request, (n, m), ()), at, small(request, (1, n, 1), (None, over))),
            *(at, small(request, (1, 1, 1), ())),
        )
        return Plan(arguments, (Result((n, m), request.dtype, (first, second)),), {}, judge="exact")

    @staticmethod
    def auto(x, first, column, second, element):
        numbers = lax.ScatterDimensionNumbers((1, 2), (), (0,))
        return lax.scatter_add(lax.scatter_add(x, first, column, numbers), second, element, numbers)

    @staticmethod
    def reference(x, first, column, second, element):
        made = x.copy()
        made[:, :1] += column[0]
        made[:1, :1] += element[0]
        return made


class GroupedConvolution(Found):
    """`lax.conv_general_dilated` with feature groups. Either each feature is a group, and the batch is sharded, or
    features and kernel alike, or the kernel over more axes; or there are two groups and more shards. In the kind
    `alike` the compiler writes past its memory, which may affect later cases, so only the full profile runs it."""

    name = "grouped_convolution"
    kinds = ("batch", "kernel_further", "more_shards", "alike")
    rare = ("alike",)
    axes = 2
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        kind, mesh = request.variant["kind"], request.mesh
        first, every = mesh.names[:1], mesh.names
        n = mesh.sizes[first[0]]
        if kind == "more_shards":
            shape, kernel_shape, groups, behind = (1, 2 * mesh.size, 3), (2 * mesh.size, mesh.size, 2), 2, 0
            places: tuple[Spec, ...] = ((None, every), (None, every), (None, every, None))
        else:
            length, outputs, behind = (1, mesh.size, 1) if kind == "kernel_further" else (2, n, 0)
            shape, kernel_shape, groups = (n if kind == "batch" else 1, n, length), (outputs, 1, 1), n
            over = {"batch": (), "alike": (first,), "kernel_further": (every,)}[kind]
            places = ((first,) if kind == "batch" else (None, first), over, (None, None, None))
        size = shape[2] + behind - kernel_shape[2] + 1
        x, kernel = small(request, shape, places[0]), small(request, kernel_shape, places[1])
        result = Result((shape[0], kernel_shape[0], size), request.dtype, places[2])
        return Plan((x, kernel), (result,), {"groups": groups, "behind": behind}, judge="exact")

    @staticmethod
    def auto(x, kernel, *, groups, behind):
        return lax.conv_general_dilated(
            x, kernel, (1,), ((0, behind),), feature_group_count=groups, precision="highest"
        )

    @staticmethod
    def reference(x, kernel, *, groups, behind):
        x = np.pad(x, ((0, 0), (0, 0), (0, behind)))
        taps = kernel.shape[2]
        length = x.shape[2] - taps + 1
        parts = [
            sum(np.einsum("ni...,oi->no...", a[:, :, t : t + length], b[:, :, t]) for t in range(taps))
            for a, b in zip(np.split(x, groups, 1), np.split(kernel, groups, 0), strict=True)
        ]
        return np.concatenate(parts, axis=1)


class SeveralContractions(Found):
    """A product contracted over three dimensions. The first dimension of both operands is sharded over one mesh axis.
    Another axis shards the last dimension of both, or the last of one and the middle one of the other."""

    name = "several_contractions"
    kinds = ("crossed", "alike")
    axes = 2
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        first, second = mesh.names[:2]
        n, m = mesh.sizes[first], mesh.sizes[second]
        ends: Spec = (second, None, first)
        other: Spec = (second, first, None) if request.variant["kind"] == "crossed" else ends
        shape = (m, n, n)
        x, y = small(request, shape, ends), small(request, shape, other)
        return Plan((x, y), (Result((), request.dtype, ()),), {}, judge="exact")

    @staticmethod
    def auto(x, y):
        return jnp.einsum("abc,abc->", x, y, precision="highest")

    @staticmethod
    def reference(x, y):
        return np.sum(x * y)


class IndexVectors(Found):
    """`lax.gather` and `lax.scatter_add` of single elements, with two coordinates per index. The coordinate dimension
    is sharded over an axis of two devices (or replicated), and the rows of the operand over another axis."""

    name = "index_vectors"
    kinds = ("gather", "scatter", "gather_whole")
    axes = 2
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if 2 in mesh.shape:
            yield from super().variants(mesh)

    def plan(self, request: Request) -> Plan:
        kind, mesh = request.variant["kind"], request.mesh
        pair = next(name for name in mesh.names if mesh.sizes[name] == 2)
        other = next(name for name in mesh.names if name != pair)
        rows = 2 * mesh.sizes[other]
        table = small(request, (rows, 4), (other,))
        over: Spec = () if kind == "gather_whole" else (None, pair)
        places = Argument((6, 2), "int32", over, values.tokens, {"below": min(4, rows)})
        if kind == "scatter":
            given: tuple[Argument, ...] = (table, places, small(request, (6, 1, 1), ()))
            result = Result((rows, 4), request.dtype, (None, None))
        else:
            given, result = (table, places), Result((6, 1, 1), request.dtype, (None, None, None))
        return Plan(given, (result,), {}, judge="exact")

    @staticmethod
    def auto(table, places, *updates):
        if updates:
            numbers = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
            return lax.scatter_add(table, places, updates[0], numbers)
        offsets = lax.GatherDimensionNumbers(
            offset_dims=(1, 2), collapsed_slice_dims=(), start_index_map=(0, 1)
        )
        return lax.gather(table, places, offsets, (1, 1))

    @staticmethod
    def reference(table, places, *updates):
        rows, columns = places.astype(int).T
        if not updates:
            return table[rows, columns].reshape(-1, 1, 1)
        found = table.copy()
        np.add.at(found, (rows, columns), updates[0].ravel())
        return found


class ShardedKey(Found):
    """`jax.random.bits` of a raw key whose two words are sharded over an axis of two devices, or replicated."""

    name = "sharded_key"
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit")
    kinds = ("words", "whole")
    dtypes: ClassVar[tuple[str, ...]] = ("int32",)

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if 2 in mesh.shape:
            yield from super().variants(mesh)

    def plan(self, request: Request) -> Plan:
        mesh = request.mesh
        pair = next(name for name in mesh.names if mesh.sizes[name] == 2)
        over: Spec = (pair,) if request.variant["kind"] == "words" else ()
        key = Argument((2,), "uint32", over, values.tokens, {"below": 2**31})
        return Plan(
            (key,), (Result((4 * mesh.size,), "int32", (None,)),), {"count": 4 * mesh.size}, judge="bits"
        )

    @staticmethod
    def auto(key, *, count):
        return lax.bitcast_convert_type(jax.random.bits(key, (count,)), jnp.int32)

    explicit = auto

    @staticmethod
    def reference(key, *, count):
        return bits_of((int(key[0]), int(key[1])), (count,)).view(np.int32)


class FeatureGroups(Found):
    """`lax.conv_general_dilated` of features sharded over all mesh axes, with windows of one element. Either groups
    have two features; or each feature is a group, and the result has the same dimension order or another one; or the
    batch has two groups."""

    name = "feature_groups"
    kinds = ("pairs", "relaid", "in_place", "batch", "cut")
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for variant in super().variants(mesh):
            if variant["kind"] != "batch" or (mesh.size > 2 and mesh.size % 2 == 0):
                yield variant

    def plan(self, request: Request) -> Plan:
        kind, every = request.variant["kind"], request.mesh.names
        groups = size = request.mesh.size
        over: Spec
        place: Spec = ()
        if kind == "batch":
            shapes, over, place = ((2, size, 1), (size, size, 1)), (None, every, None), (every,)
            layout, groups, result = ("NCH", "OIH", "NCH"), -2, (1, size, 1)
        elif kind == "cut":
            shapes, over = ((1, 4 * size, 1), (2, 2 * size, 1)), (None, every)
            layout, groups, result = ("NCH", "IOH", "NCH"), 2 * size, (1, 2 * size, 1)
        elif kind == "pairs":
            shapes, over = ((1, 1, 2 * groups), (1, 2, groups**2)), (None, None, every)
            layout, result = ("NHC", "HIO", "NHC"), (1, 1, groups**2)
        else:
            shapes, over = ((groups, 1, 1), (1, groups, 1)), (every, None, None)
            layout = ("CHN", "IOH", "HNC" if kind == "relaid" else "CHN")
            result = (1, 1, groups) if kind == "relaid" else (groups, 1, 1)
        x, kernel = small(request, shapes[0], over), small(request, shapes[1], place)
        options = {"layout": layout, "groups": groups}  # a negative number means groups of the batch
        return Plan((x, kernel), (Result(result, request.dtype, (None,) * 3),), options, judge="exact")

    @staticmethod
    def auto(x, kernel, *, layout, groups):
        return lax.conv_general_dilated(
            x,
            kernel,
            (1,),
            "VALID",
            dimension_numbers=layout,
            feature_group_count=max(groups, 1),
            batch_group_count=max(-groups, 1),
            precision="highest",
        )

    @staticmethod
    def reference(x, kernel, *, layout, groups):
        if groups < 0:
            halves = zip(x[:, :, 0], np.split(kernel[:, :, 0], -groups), strict=True)
            return np.concatenate([k @ row for row, k in halves]).reshape(1, -1, 1)
        features = np.split(x.ravel(), groups)
        taps = np.split(kernel.reshape(len(features[0]), -1), groups, axis=1)
        parts = [a @ b for a, b in zip(features, taps, strict=True)]
        return np.concatenate(parts).reshape([-1 if c == "C" else 1 for c in layout[2]])


class ConvolutionIntoChannels(Found):
    """`lax.conv_general_dilated` by a constant kernel. The array's spatial dimension is sharded over one mesh axis, and
    the result's channels are sharded over the same axis; the other mesh axes are unused."""

    name = "convolution_into_channels"
    kinds = ("first", "last")
    rare = kinds
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    axes = 2

    def plan(self, request: Request) -> Plan:
        axis = request.mesh.names[0 if request.variant["kind"] == "first" else -1]
        n = request.mesh.sizes[axis]
        x = small(request, (1, 2, 4 * n), (None, None, axis))
        result = Result((1, n, 4 * n), request.dtype, (None, axis, None))
        return Plan((x,), (result,), {"channels": n}, judge="exact")

    @staticmethod
    def auto(x, *, channels):
        kernel = jnp.asarray(taps(channels), x.dtype)
        return lax.conv_general_dilated(x, kernel, (1,), "SAME", precision="highest")

    @staticmethod
    def reference(x, *, channels):
        wide = np.pad(x[0], ((0, 0), (1, 1)))
        windows = np.stack([wide[:, i : i + x.shape[2]] for i in range(3)], axis=1)
        return np.einsum("ocw,cwp->op", taps(channels), windows)[None]


def taps(channels: int) -> np.ndarray:
    """float64[channels, 2, 3]: a kernel of small integers that differ between neighbouring channels."""
    return 1.0 + np.arange(channels * 6).reshape(channels, 2, 3) % 7


class CumulativePullback(Found):
    """The pullback of `lax.cummax` with one element per device of one mesh axis; the other axes are unused. The
    cotangent is replicated, or sharded like the array (`placed`)."""

    name = "cumulative_pullback"
    kinds = ("first", "last", "placed")
    rare = kinds
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    def plan(self, request: Request) -> Plan:
        kind, mesh = request.variant["kind"], request.mesh
        axis = mesh.names[-1 if kind == "last" else 0]
        n = mesh.sizes[axis]
        cotangent = small(request, (n,), (axis,) if kind == "placed" else ())
        result = Result((n,), request.dtype, (None,))
        x = Argument((n,), request.dtype, (axis,), zigzag, {})
        return Plan((x, cotangent), (result,), {}, judge="exact")

    @staticmethod
    def auto(x, cotangent):
        return jax.vjp(lax.cummax, x)[1](cotangent)[0]

    @staticmethod
    def reference(x, cotangent):
        made = np.zeros_like(x)
        for i, y in enumerate(cotangent):
            made[np.argmax(x[: i + 1])] += y
        return made


def zigzag(bits: np.ndarray, index: np.ndarray, shape: Any, dtype: np.dtype) -> np.ndarray:
    """1, -1, 3, -3, 5, ...: distinct numbers, because JAX does not specify how equal maxima share a cotangent."""
    index = index.astype(np.int64)
    return np.where(index % 2, -index, index + 1).astype(dtype)
