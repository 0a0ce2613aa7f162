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

import numpy as np

from meshmark.core.layout import Spec
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Request, Variant


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
