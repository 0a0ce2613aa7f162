# SPDX-License-Identifier: Apache-2.0
"""Products of narrow dtypes whose contracted dimension is short.

Compilers compute products in tiles, and choose other tiles and other kernels for 8 and 4 bits, and for short
dimensions. One program has the products of one pair of dtypes, of every length and in three forms. The factors hold
small whole numbers, so every result is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import values
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import PUT_FROM_ONE_PROCESS, Argument, Operation, Plan, Request, Result, Variant

LENGTHS = (3, 8, 11, 16, 20, 48)
"""Lengths of the contracted dimension: below, at and between the tiles of 16 and 32."""

FORMS: Mapping[str, tuple[int, int]] = {"first": (0, 0), "usual": (1, 0), "last": (1, 1)}
"""Which dimension of each factor is contracted."""


@dataclass(frozen=True)
class Factors:
    """The dtypes of a product."""

    left: str
    right: str
    out: str
    """The dtype of the result, in which it is accumulated."""
    computed: str | None = None
    """The dtype to which both factors are cast before; None: as they are."""
    capability: str | None = None


FACTORS: Mapping[str, Factors] = {
    "int8": Factors("int8", "int8", "int32"),
    "int8_cast": Factors("float32", "float32", "int32", "int8"),
    "uint8": Factors("uint8", "uint8", "int32"),
    "bfloat16_int8": Factors("bfloat16", "int8", "float32", "bfloat16"),
    "float32_bfloat16": Factors("float32", "bfloat16", "float32", "float32"),
    "bfloat16_int4": Factors("bfloat16", "int4", "float32", "bfloat16", "subbyte"),
    "float8": Factors("float8_e4m3fn", "float8_e4m3fn", "float32", None, "fp8"),
}


class NarrowProduct(Operation):
    """Products of narrow dtypes with a short contracted dimension. Rows and columns of the result are sharded over the
    first and the last mesh axis."""

    name = "narrow_product"
    family = "forms"
    level = "L2"
    modes: ClassVar[tuple[str, ...]] = ("host",)
    sizes: ClassVar[dict[str, int]] = {"64B": 0}

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """One variant per pair of dtypes, on the preferred mesh; on others in the profile full."""
        if (1 in mesh.shape and mesh.size > 1) or mesh.order:
            return
        for kind, factors in FACTORS.items():
            yield Variant.of(2 if mesh == preferred(mesh.size) else 3, factors.capability, kind=kind)

    def timed_variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """None: the time of a group of products says nothing about one product."""
        yield from ()

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return PUT_FROM_ONE_PROCESS

    def plan(self, request: Request) -> Plan:
        factors, mesh = FACTORS[request.variant["kind"]], request.mesh
        first = mesh.names[0]
        last = mesh.names[-1] if len(mesh.names) > 1 else None
        rows, columns = 16 * mesh.shape[0], 16 * mesh.shape[-1]
        longest = max(LENGTHS)
        fill: Any = (values.tokens, {"below": 7})
        x = Argument((rows, longest), factors.left, (first, None), *fill)
        y = Argument((longest, columns), factors.right, (None, last), *fill)
        spec = (first, last)
        results = tuple(Result((rows, columns), factors.out, spec) for _ in LENGTHS for _ in FORMS)
        options = {"computed": factors.computed, "out": factors.out, "specs": (x.spec, y.spec, spec)}
        return Plan((x, y), results, options, judge="exact")

    @staticmethod
    def host(mesh, x, y, *, computed, out, specs):
        def products(a: Any, b: Any) -> tuple[Any, ...]:
            if computed:
                a, b = a.astype(computed), b.astype(computed)
            found = []
            for k in LENGTHS:
                for left, right in FORMS.values():
                    one = a[:, :k].T if left == 0 else a[:, :k]
                    other = b[:k].T if right == 1 else b[:k]
                    dims = (((left,), (right,)), ((), ()))
                    found.append(lax.dot_general(one, other, dims, preferred_element_type=jnp.dtype(out)))
            return tuple(found)

        at_x, at_y, back = (NamedSharding(mesh, P(*spec)) for spec in specs)
        given = jax.device_put(x, at_x), jax.device_put(y, at_y)
        return jax.jit(products, out_shardings=(back,) * len(LENGTHS) * len(FORMS))(*given)

    @staticmethod
    def reference(x, y):
        a, b = x.astype(np.int64), y.astype(np.int64)
        return tuple(a[:, :k] @ b[:k] for k in LENGTHS for _ in FORMS)
