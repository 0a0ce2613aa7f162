# SPDX-License-Identifier: Apache-2.0
"""Dropout under rematerialization: the backward pass draws the mask again, and it must be the mask of the forward pass
(jax#21046, jax#17982).

The function is two layers of dropout with half of the elements kept, so each result is 0 or four times the argument.
The value and the pullback of a cotangent come from one program. The reference draws the masks by its own Threefry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from meshmark.core import values
from meshmark.core.layout import axes_of
from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.functions.creation import bits_of, unit
from meshmark.operations.placements.placement import matrix, spec_labels, spec_of

LAYERS = 2
SEED = 1701


def dropped(x, number, shape, place):
    """One layer: each element is doubled or replaced by 0. `place` takes what a device needs of the mask, which is
    drawn for the whole array. The key is made from words, because `fold_in` would draw once more."""
    words = jnp.stack([jnp.uint32(SEED), jnp.uint32(number)])
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    return jnp.where(place(jax.random.bernoulli(key, 0.5, shape)), x / 0.5, 0)


def _in_turn(layer: Callable[..., Any]) -> Callable[..., Any]:
    def layers(x):
        for number in range(LAYERS):
            x = layer(x, number)
        return x

    return layers


def _in_a_scan(layer: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: lax.scan(lambda c, number: (layer(c, number), None), x, jnp.arange(LAYERS))[0]


FORMS: dict[str, Callable[..., Any]] = {
    "kept": _in_turn,
    "each": lambda layer: _in_turn(jax.checkpoint(layer)),
    "all": lambda layer: jax.checkpoint(_in_turn(layer)),
    "dots": lambda layer: jax.checkpoint(_in_turn(layer), policy=jax.checkpoint_policies.dots_saveable),
    "scan": lambda layer: _in_a_scan(jax.checkpoint(layer)),
    "scan_no_cse": lambda layer: _in_a_scan(jax.checkpoint(layer, prevent_cse=False)),
}
"""How the layers are put together. Each takes a layer of (x, number); `kept` saves the masks and draws none again."""


def value_and_pullback(form, shape, place, x, g):
    """The layers' value, and their pullback of g. `shape` is that of the whole array."""
    value, pullback = jax.vjp(FORMS[form](lambda a, number: dropped(a, number, shape, place)), x)
    return value, pullback(g)[0]


COMMON = ("each", "scan")
"""The forms of the standard profile. A program that draws takes long to compile."""


class DropoutGradient(Operation):
    """Two layers of dropout and their gradient in one program, with rematerialization of each layer, of both, with a
    policy, or in a scan."""

    name = "dropout_gradient"
    family = "transforms"
    level = "L3"
    modes: ClassVar[tuple[str, ...]] = ("auto", "explicit", "manual", "manual-novma")

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        labels = spec_labels(mesh)
        for number, form in enumerate(FORMS):
            for position, of in enumerate(labels):
                taken = position == (2 * number + 1) % len(labels) and mesh == preferred(mesh.size)
                yield Variant.of(2 if taken and form in COMMON else 4, form=form, of=of)

    def plan(self, request: Request) -> Plan:
        spec, shape = spec_of(request.variant["of"]), matrix(request)
        x = Argument(shape, request.dtype, spec, values.distinct)
        g = Argument(shape, request.dtype, spec, values.tokens, {"below": 7})
        result = Result(shape, request.dtype, spec)
        options = {
            "form": request.variant["form"],
            "shape": shape,
            "spec": spec,
            "entries": tuple(axes_of(entry) for entry in spec),
        }
        return Plan((x, g), (result, result), options, judge="exact", traffic=())

    @staticmethod
    def auto(x, g, *, form, shape):
        return value_and_pullback(form, shape, lambda kept: kept, x, g)

    @staticmethod
    def explicit(x, g, *, form, shape, spec):
        return value_and_pullback(form, shape, lambda kept: reshard(kept, P(*spec)), x, g)

    @staticmethod
    def manual(x, g, *, form, shape, entries):
        def own_block(kept):
            for dim, axes in enumerate(entries):
                if axes:
                    size = shape[dim] // lax.axis_size(axes)
                    kept = lax.dynamic_slice_in_dim(kept, lax.axis_index(axes) * size, size, dim)
            return kept

        return value_and_pullback(form, shape, own_block, x, g)

    @staticmethod
    def reference(x, g):
        masks = [unit(bits_of((SEED, n), x.shape)) < np.float32(0.5) for n in range(LAYERS)]
        factor = 4.0 * np.logical_and(*masks)
        return x * factor, g * factor
