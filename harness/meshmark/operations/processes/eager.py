# SPDX-License-Identifier: Apache-2.0
"""What processes do with global arrays outside of jit: parts of an array that are read eagerly (see
meshmark.operations.processes.global_arrays).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Argument, Plan, Request, Result, Variant
from meshmark.operations.placements.placement import fill_of, from_host, home, matrix, spec_labels, spec_of
from meshmark.operations.processes.global_arrays import MOVED, OverProcesses, ordinary

PARTS: dict[str, Callable[[Any], Any]] = {
    "block": lambda x: x[1:-1, 2:5],
    "last": lambda x: x[-1],
    "element": lambda x: x[3, 4],
    "backward": lambda x: x[::-3],
    "chosen": lambda x: x[np.array([6, 0, 6]), None],
}
"""Parts of a matrix of at least 8 rows and columns, in the way that both JAX and NumPy read them."""


def parts_of(x):
    """Every part of PARTS, then two that functions of JAX read, the second with a start that is known at run time."""
    return [
        *(part(x) for part in PARTS.values()),
        lax.slice(x, (1, 0), (6, 7), (2, 3)),
        lax.dynamic_slice(x, (np.int32(x.shape[0] - 1), np.int32(1)), (2, 2)),
    ]


def parts_of_host(x):
    """The same parts of a NumPy array. A dynamic slice that reaches past the end starts earlier."""
    return [*(part(x) for part in PARTS.values()), x[1:6:2, 0:7:3], x[-2:, 1:3]]


class EagerSlices(OverProcesses):
    """Parts of a global array, read outside of jit by all processes: a block, a row, an element, rows backward, chosen
    rows, `lax.slice` and `lax.dynamic_slice`. Each is then replicated."""

    name = "eager_slices"
    dtypes: ClassVar[tuple[str, ...]] = MOVED

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        for label in spec_labels(mesh):
            taken = label in (home(mesh), "-.-", f"{''.join(mesh.names)}.-")
            yield Variant.of(1 if taken and ordinary(mesh) else 3, of=label)

    def plan(self, request: Request) -> Plan:
        spec = spec_of(request.variant["of"])
        shape = tuple(max(8, size) for size in matrix(request))
        x = Argument(shape, request.dtype, spec, fill_of(request))
        parts = parts_of_host(np.empty(shape, bool))
        results = tuple(Result(part.shape, request.dtype, (None,) * part.ndim) for part in parts)
        return Plan((x,), results, {"spec": spec}, judge="bits")

    @staticmethod
    def host(mesh, x, *, spec):
        array = from_host(mesh, x, spec)
        together = jax.jit(lambda parts: parts, out_shardings=NamedSharding(mesh, P()))
        return tuple(together(parts_of(array)))

    @staticmethod
    def reference(x):
        return tuple(parts_of_host(x))
