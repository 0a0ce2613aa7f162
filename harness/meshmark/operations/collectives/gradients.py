# SPDX-License-Identifier: Apache-2.0
"""Gradients of the collectives. They are taken outside of shard_map, where a collective is a global function.

Each collective is linear, so its gradient is the transposed map of the cotangents. The gradient of a sum gives every
block the cotangent of the sum, that of a scattered sum gathers, and that of a permutation is the inverse permutation.
The gradients of gathers and exchanges follow from where their references move elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from meshmark.core import values
from meshmark.core.calls import option_names
from meshmark.core.layout import assemble, split
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Plan, Request, Result, Variant
from meshmark.operations.collective_base import CollectiveOperation, groups_of, over_groups
from meshmark.operations.collectives import all_reduce, gather_scatter, permutations
from meshmark.operations.functions.wholes import owe_gradients, transposed


def of_sum(x, g, *, sizes, in_spec, out_spec):
    """Every block of a sum gets the sum's cotangent."""
    return assemble(split(g, out_spec, sizes), in_spec, sizes)


def of_mean(x, g, *, sizes, axes, in_spec, out_spec):
    """Every block of a mean gets the mean's cotangent, divided by the number of blocks."""
    number = len(groups_of(sizes, axes)[0])
    return assemble(split(g, out_spec, sizes), in_spec, sizes) / number


def of_scattered_sum(x, g, *, sizes, axes, in_spec, out_spec, dim, tiled):
    """Every block gets the cotangents of all members of its group, joined along `dim`."""

    def gather(blocks):
        if tiled:
            return [np.concatenate(blocks, axis=dim)[None]] * len(blocks)
        return [np.stack(blocks, axis=dim)[None]] * len(blocks)

    return over_groups(gather, g, sizes, axes, out_spec, in_spec)


def of_permutation(x, g, *, sizes, axes, in_spec, out_spec, pairs):
    """Each cotangent returns to the sender. A member that sent nothing gets zeros."""
    sources = {i: j for i, j in pairs}

    def back(blocks):
        return [blocks[sources[i]] if i in sources else np.zeros_like(b) for i, b in enumerate(blocks)]

    return over_groups(back, g, sizes, axes, out_spec, in_spec)


class CollectiveGradient:
    """A mixin that turns the operation of a collective into that of its gradient."""

    family = "transforms"
    level = "L3"
    dtypes = ("float32",)
    sizes: ClassVar[dict[str, int]] = {"4KiB": 0}
    timed: ClassVar[dict[str, int]] = {}
    fills = ()
    everywhere = False
    modes = ("auto", "explicit", "manual", "manual-novma")
    of: type[CollectiveOperation]

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        """The collective's variants without a capability and without `rank`, the lightest first."""
        own = [v for v in self.of().variants(mesh) if v.capability is None and v.get("rank") is None]
        for i, variant in enumerate(sorted(own, key=lambda v: v.weight)):
            weight = 4 if i >= 3 else 2 if mesh == preferred(mesh.size) else 3
            yield replace(variant, weight=weight)

    def mode_weight(self, mode: str, variant: Variant) -> int | None:
        """Manual mode is ordinary with and without check_vma, because check_vma decides how a gradient is
        transposed."""
        return 0 if mode.startswith("manual") else None

    def absent(self, mode: str, variant: Variant, mesh: MeshShape) -> str | None:
        """As for the collective. Also without check_vma if a division by the number of replicas rounds."""
        number = mesh.product(variant["axes"])
        if mode == "manual-novma" and mesh.size & (mesh.size - 1):
            return f"without check_vma a cotangent is divided by {number} and added up again, which rounds"
        return super().absent(mode, variant, mesh)  # type: ignore[misc]

    def plan(self, request: Request) -> Plan:
        """The plan of the collective, differentiated."""
        plan: Plan = self.of().plan(request)
        [x], [y] = plan.arguments, plan.results
        seed = Argument(y.shape, y.dtype, y.spec, values.summands, {"terms": 64})
        reference = self.of.reference
        named = {k: plan.options[k] for k in option_names(reference)}
        return replace(
            plan,
            arguments=(x, seed),
            results=(Result(x.shape, x.dtype, x.spec),),
            forward=(y,),
            wrt=(0,),
            judge="bound" if plan.judge == "bound" else "exact",  # a division by three rounds
            traffic=None,
            owed=partial(
                owe_gradients, plan.traffic or (), (Result(x.shape, x.dtype, x.spec),), request.mesh
            ),
            connect=(),
            options={**plan.options, "keywords": named, "wrt": (0,), "primals": 1},
        )


def derived(of: type[CollectiveOperation], gradient: Callable[..., Any]) -> type[CollectiveOperation]:
    """The operation of the gradient of a collective."""
    about = {
        "name": f"{of.name}_gradient",
        "of": of,
        "gradient": staticmethod(gradient),
        "__doc__": f"The gradient of `{of.name}`, outside of shard_map.",
        "__module__": __name__,
    }
    return type(f"{of.__name__}Gradient", (CollectiveGradient, of), about)


GRADIENTS = [
    derived(all_reduce.Psum, of_sum),
    derived(all_reduce.Pmean, of_mean),
    derived(gather_scatter.AllGather, transposed(gather_scatter.AllGather.reference)),
    derived(gather_scatter.PsumScatter, of_scattered_sum),
    derived(gather_scatter.AllToAll, transposed(gather_scatter.AllToAll.reference)),
    derived(gather_scatter.Pswapaxes, transposed(gather_scatter.Pswapaxes.reference)),
    derived(permutations.Ppermute, of_permutation),
    derived(permutations.Pshuffle, of_permutation),
]
"""Every collective that has a derivative; pmax and pmin have none in JAX."""
