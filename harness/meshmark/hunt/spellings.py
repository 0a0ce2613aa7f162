# SPDX-License-Identifier: Apache-2.0
"""Writes a program in another way: over a mesh with other axis sizes, or inside jax.shard_map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from meshmark.program_data.building import find_types
from meshmark.program_data.program import Body, Input, Node, Program, Spec, rename, spec_of, walk_nodes

CARRYING = frozenset(("scan", "fori", "while", "cond", "switch", "custom_vjp"))
"""The forms for which shard_map's check asks that values vary over equal axes. A constant varies over none, so the
check is off for programs with them. If a function of JAX is refused for a loop inside it, its user can't mend that."""


class Inapplicable(Exception):
    """A mode that a program does not have: its shardings don't fit the other mesh, or a comparison is not possible."""


def turn_mesh(program: Program) -> Program:
    """The program over a mesh with the axis sizes rotated. Inapplicable if all sizes are equal, if its shardings don't
    fit that mesh, or if its results may depend on the mesh (shard_map)."""
    names, sizes = zip(*program.axes, strict=True)
    if len(set(sizes)) == 1 or "shard_map" in program.operations:
        raise Inapplicable("one size of axes, or shard_map")
    other = replace(program, axes=tuple(zip(names, sizes[1:] + sizes[:1], strict=True)))
    kinds = find_types(program)
    placed = [(i.shape, i.spec) for i in program.inputs]
    placed += [(kinds[o].shape, s) for o, s in zip(program.outputs, program.out_specs, strict=True) if s]
    for k, node in enumerate(program.nodes):
        if any(n.op == "constrain" for b in node.bodies for n in walk_nodes(b.nodes)):
            raise Inapplicable("a constraint in a body")
        if node.op == "constrain":
            placed.append((kinds[program.given + k].shape, spec_of(node.args[1])))
    for shape, spec in placed:
        for n, axes in zip(shape, spec, strict=False):
            if n % math.prod(dict(other.axes)[a] for a in axes):
                raise Inapplicable(f"{shape} as {spec}")
    return other


def spell_manually(program: Program) -> Program:
    """The program inside jax.shard_map over the first axis of its mesh, whose other axes stay automatic.

    Each index of that axis has its own inputs, a row of larger ones, and computes the whole program for them. So
    nothing may cross that axis. A transform is that of the whole, so it goes through shard_map. Inapplicable to a
    program that has a shard_map."""
    if "shard_map" in program.operations:
        raise Inapplicable("it has a shard_map")
    (name, size), *others = program.axes
    given = program.given
    rows = [Node("item", ({"v": k}, 0)) for k in range(given)]
    moved = {k: {"v": k + given} for k in range(given + len(program.nodes))}
    inner = [_inside(rename(node, moved), name) for node in program.nodes]
    results = [Node("jnp.expand_dims", ({"v": o + given}, 0)) for o in program.outputs]
    first = given + len(rows) + len(inner)
    outs = tuple(range(first, first + len(results)))
    kwargs: dict[str, Any] = {"in_specs": [[[name]]] * given, "out_specs": [[[name]]] * len(results)}
    if others:
        kwargs["axes"] = [name]
    if not CARRYING.isdisjoint(program.operations):
        kwargs["check_vma"] = False
    whole = Node(
        "shard_map",
        tuple({"v": k} for k in range(given)),
        kwargs,
        (Body(given, (*rows, *inner, *results), outs),),
    )
    several = len(results) > 1
    items = [Node("item", ({"v": given}, k)) for k in range(len(results))] if several else []
    return replace(
        program,
        inputs=tuple(_stacked(item, name, size) for item in program.inputs),
        nodes=(whole, *items),
        outputs=tuple(range(given + 1, given + 1 + len(items))) if several else (given,),
        out_specs=tuple(
            None if spec is None else ((name,), *_without(spec, name)) for spec in program.out_specs
        ),
    )


def _stacked(item: Input, name: str, size: int) -> Input:
    return replace(
        item,
        shape=(size, *item.shape),
        spec=((name,), *_without(item.spec, name)),
        fill={"kind": "rows", "of": item.fill},
    )


def _without(spec: Sequence[Sequence[str]], name: str) -> Spec:
    return tuple(tuple(axis for axis in entry if axis != name) for entry in spec)


def _inside(node: Node, name: str) -> Node:
    """A node as it is inside a shard_map over the axis `name`: no constraint names that axis."""
    if node.op == "constrain":
        spec = _without(node.args[1], name)
        if not any(spec):
            return Node("jnp.asarray", node.args[:1])
        return Node("constrain", (node.args[0], [list(e) for e in spec]), {"inside": True})
    bodies = tuple(replace(b, nodes=tuple(_inside(n, name) for n in b.nodes)) for b in node.bodies)
    return replace(node, bodies=bodies)
