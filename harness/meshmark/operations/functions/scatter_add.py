# SPDX-License-Identifier: Apache-2.0
"""Scatter with addition along a sharded dimension."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from jax.sharding import PartitionSpec as P
from jax.sharding import auto_axes

from meshmark.core import values
from meshmark.operations.base import Argument, Request
from meshmark.operations.collective_base import SUMMED
from meshmark.operations.functions.arrays import ArrayOperation, scatter_index


class ScatterAdd(ArrayOperation):
    """`x.at[index].add(y)`. The first half of the rows receives two rows of y each."""

    name = "scatter_add"
    whole_of: ClassVar[tuple[int, ...]] = (1,)
    fills: ClassVar[tuple[str, ...]] = SUMMED
    distance = 1

    def arguments(self, request: Request, x: Argument) -> tuple[Argument, ...]:
        x = Argument(x.shape, x.dtype, x.spec, values.summands, {"terms": 3})
        return x, x

    def options(self, request: Request, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"index": scatter_index(shape[request.variant["dim"]], repeated=True)}

    def connect(self, *_: Any) -> tuple[tuple[int, ...], ...]:
        return ()

    @staticmethod
    def auto(x, y, *, dim, index):
        at = np.array(index)
        return x.at[at].add(y) if dim == 0 else x.at[:, at].add(y)

    @staticmethod
    def explicit(x, y, *, dim, index, out_spec):
        at = np.array(index)
        add = auto_axes(
            lambda a, b: a.at[at].add(b) if dim == 0 else a.at[:, at].add(b), out_sharding=P(*out_spec)
        )
        return add(x, y)

    @staticmethod
    def reference(x, y, *, dim, index):
        result = x.copy()
        for row, target in zip(np.moveaxis(y, dim, 0), index, strict=True):
            np.moveaxis(result, dim, 0)[target] += row
        return result
