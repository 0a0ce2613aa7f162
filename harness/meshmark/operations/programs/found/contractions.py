# SPDX-License-Identifier: Apache-2.0
"""Found by the hunt: convolutions and products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Plan, Request, Result, Variant
from meshmark.operations.programs.found.base import Found, small


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
