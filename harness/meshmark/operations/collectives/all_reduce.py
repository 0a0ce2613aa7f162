# SPDX-License-Identifier: Apache-2.0
"""The collectives that reduce: `psum`, `pmean`, `pmax` and `pmin`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.core import values
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import Spec
from meshmark.operations.base import (
    Argument,
    Cost,
    Plan,
    Request,
    Result,
    nbytes,
)
from meshmark.operations.collective_base import (
    NUMBERS,
    ORDERED,
    SUMMED,
    CollectiveOperation,
    groups_of,
    over_groups,
)


class Reduction(CollectiveOperation):
    """The base of reductions. The argument [n, A, B, C] has one block per member; every member gets the reduced
    block."""

    kind = "all-reduce"
    fills: ClassVar[tuple[str, ...]] = (*SUMMED, "ties")
    divided: ClassVar[bool] = False

    def choices(self, n: int) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {}
        yield 2, {"rank": 1}
        yield from self.with_groups(n)

    def plan(self, request: Request) -> Plan:
        mesh, variant = request.mesh, request.variant
        axes, rest = variant["axes"], mesh.rest(variant["axes"])
        n = mesh.product(axes)
        local = self.block(request, 0)
        if variant.get("rank") == 1:
            local, inner = [math.prod(local)], [rest or None]
        else:
            inner = [None, None, rest or None]
        wide = [*local[:-1], local[-1] * mesh.product(rest)]
        in_spec: Spec = (axes, *inner)
        out_spec: Spec = (axes if variant.get("groups") else None, *inner)
        options = self.options(request, in_spec, out_spec)
        members = len(groups_of(mesh.sizes, axes, options["groups"])[0])
        argument = Argument((n, *wide), request.dtype, in_spec, *self.fill(members))
        result = Result((n if variant.get("groups") else 1, *wide), request.dtype, out_spec)
        payload = nbytes(argument, mesh)
        return Plan(
            (argument,),
            (result,),
            options,
            judge="bound" if self.divided and members & (members - 1) else "exact",
            cost=Cost(0, payload, 2 * (members - 1) / members),
            traffic=self.traffic(request, payload, options),
            connect=self.connect(request, options),
        )

    def fill(self, members: int) -> tuple[Callable[..., np.ndarray], dict[str, Any]]:
        """Values whose reduction is exact in any order."""
        return values.distinct, {}


class Psum(Reduction):
    """Sum over mesh axes; in a global program, a sum over the sharded dimension."""

    name = "psum"
    fills: ClassVar[tuple[str, ...]] = SUMMED
    common_fills: ClassVar[tuple[str, ...]] = ("nan-one", "inf")
    everywhere = True
    dtypes: ClassVar[tuple[str, ...]] = NUMBERS

    def fill(self, members: int) -> tuple[Callable[..., np.ndarray], dict[str, Any]]:
        return values.summands, {"terms": members}

    @staticmethod
    def manual(x, *, axes, groups):
        return lax.psum(x, axes[0] if groups else axes, axis_index_groups=groups)

    @staticmethod
    def auto(x):
        return jnp.sum(x, axis=0, keepdims=True, dtype=x.dtype)

    explicit = auto

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, groups):
        return over_groups(
            lambda blocks: [sum(blocks)] * len(blocks), x, sizes, axes, in_spec, out_spec, groups
        )


class Pmean(Psum):
    """Mean over mesh axes. Exact if the group size is a power of two, else within 2u (XLA multiplies by 1/n)."""

    name = "pmean"
    common_fills: ClassVar[tuple[str, ...]] = ()
    fills: ClassVar[tuple[str, ...]] = tuple(
        kind for kind in SUMMED if kind != "extreme"
    )  # for extreme values the sum overflows, and the mean does not
    everywhere = False
    dtypes = ("float32", "bfloat16", "float16", "complex64", "float64", "complex128")
    divided = True

    @staticmethod
    def manual(x, *, axes, groups):
        return lax.pmean(x, axes[0] if groups else axes, axis_index_groups=groups)

    @staticmethod
    def auto(x):
        return jnp.mean(x, axis=0, keepdims=True, dtype=x.dtype)

    explicit = auto

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, groups):
        def mean(blocks):
            return [sum(blocks) / len(blocks)] * len(blocks)

        return over_groups(mean, x, sizes, axes, in_spec, out_spec, groups)

    def bound(self, plan: Plan, arguments: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Any:
        # The sum is exact. 1/n and the product are each rounded once, and the product may be flushed to zero.
        kind = dtype_of(plan.results[0].dtype)
        return [
            2 * kind.unit_roundoff * np.abs(e) + kind.tiny * (np.abs(e) < 2 * kind.tiny) for e in expected
        ]


class Pmax(Reduction):
    """Maximum over mesh axes."""

    name = "pmax"
    dtypes = ORDERED

    @staticmethod
    def manual(x, *, axes, groups):
        return lax.pmax(x, axes[0] if groups else axes, axis_index_groups=groups)

    @staticmethod
    def auto(x):
        return jnp.max(x, axis=0, keepdims=True)

    explicit = auto

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, groups):
        def largest(blocks):
            return [np.max(blocks, axis=0)] * len(blocks)

        return over_groups(largest, x, sizes, axes, in_spec, out_spec, groups)


class Pmin(Reduction):
    """Minimum over mesh axes."""

    name = "pmin"
    dtypes = ORDERED

    @staticmethod
    def manual(x, *, axes, groups):
        return lax.pmin(x, axes[0] if groups else axes, axis_index_groups=groups)

    @staticmethod
    def auto(x):
        return jnp.min(x, axis=0, keepdims=True)

    explicit = auto

    @staticmethod
    def reference(x, *, sizes, axes, in_spec, out_spec, groups):
        def smallest(blocks):
            return [np.min(blocks, axis=0)] * len(blocks)

        return over_groups(smallest, x, sizes, axes, in_spec, out_spec, groups)
