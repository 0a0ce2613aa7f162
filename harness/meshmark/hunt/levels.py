# SPDX-License-Identifier: Apache-2.0
"""One level of a program during drawing: the program itself, or a body inside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax

from meshmark.hunt.drawing import Miss, Value
from meshmark.program_data.building import Builder
from meshmark.program_data.meanings import COLLECTIVES
from meshmark.program_data.program import Node, Program, list_references, renumber, walk_nodes
from meshmark.program_data.values import dtype_of

if TYPE_CHECKING:
    from meshmark.hunt.generator import Drawing


class Level:
    """The values and operations of one level: the program itself (depth 0), or a body inside it.

    manual: the (name, size) of the level's manual mesh axes."""

    def __init__(
        self,
        depth: int,
        values: list[Value],
        nodes: list[Node],
        manual: tuple[tuple[str, int], ...],
        within: bool = False,
    ) -> None:
        self.depth, self.values, self.nodes, self.manual = depth, values, nodes, manual
        self.within = within
        """Whether this level is inside a shard_map."""
        self.types: dict[str, Any] = {}

    def infer(self, drawing: Drawing, node: Node) -> Any:
        """The type of a node's result, or a tuple of several types. Miss if JAX refuses the node, or if its result is
        empty, has more than 6000 elements or more than five dimensions."""
        known = {repr(v.expression): k for k, v in enumerate(self.values)}
        tuples = {k: self.types[repr(v.expression)] for k, v in enumerate(self.values) if v.dtype == "tuple"}
        reads: list[int] = []

        def at(expression: Any) -> Any:
            k = known[repr({"v": expression})]
            if k not in reads:
                reads.append(k)
            return {"v": k}

        refs = {r: at(r) for r in list_references((*node.args, *node.kwargs.values()))}
        local = replace(node, args=renumber(node.args, refs), kwargs=renumber(node.kwargs, refs))
        program = Program(drawing.axes, (), (), (0,), (None,))
        builder = Builder(program, "plain", None)

        # Every value is mapped over the manual axes: vmap's all_to_all of an unmapped value has another shape.
        def function(*given: Any) -> Any:
            values: list[Any] = [None] * len(self.values)
            for k, x in zip(reads, given, strict=True):
                values[k] = x
            return builder.node(local, values, [])

        for name, size in reversed(self.manual):
            mapped = 0 if reads else None
            function = jax.vmap(function, in_axes=mapped, out_axes=0, axis_name=name, axis_size=size)
        structs = [
            tuples.get(k) or jax.ShapeDtypeStruct(self.values[k].shape, dtype_of(self.values[k].dtype))
            for k in reads
        ]
        sizes = tuple(size for _, size in self.manual)
        structs = jax.tree.map(lambda s: jax.ShapeDtypeStruct((*sizes, *s.shape), s.dtype), structs)
        try:
            found = jax.eval_shape(function, *structs)
        except Exception as error:
            drawing.refusals.append((node.op, f"{type(error).__name__}: {error}"))
            raise Miss from None
        extra = len(self.manual)
        found = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[extra:], s.dtype), found)
        if isinstance(found, (tuple, list)):
            self.types[repr({"v": ("node", len(self.nodes))})] = tuple(found)
            return tuple(found)
        if math.prod(found.shape) > 6000 or len(found.shape) > 5 or 0 in found.shape:
            raise Miss
        return found


SUMS = ("psum", "pmax", "pmin", "pmean")
"""The collectives whose result is the same along their axes."""


def are_accepted(nodes: Sequence[Node], varies: Sequence[set[str]]) -> bool:
    """Whether every collective of a body over manual axes reads a value that varies over all of its axes.

    With check_vma shard_map refuses other collectives, and vmap's all_to_all of an unmapped value differs from its own.
    varies: the axes over which each parameter varies. The nodes refer to values as ("input", k) and ("node", k).
    """
    known: dict[tuple[str, int], set[str]] = {("input", k): set(v) for k, v in enumerate(varies)}
    for k, node in enumerate(nodes):
        read: set[str] = set()
        for place in list_references((*node.args, *node.kwargs.values())):
            read |= known[place]
        name = node.op.removeprefix("lax.")
        axes = set()
        if name in (*COLLECTIVES, "axis_index"):
            named = node.args[0 if name == "axis_index" else 1]
            axes = {named} if isinstance(named, str) else set(named)
        if name in COLLECTIVES and not axes <= read:
            return False
        known["node", k] = read - axes if name in SUMS else read | axes
    return True


CORNERS = (
    *(
        "max",
        "min",
        "abs",
        "sign",
        "clip",
        "clamp",
        "sort",
        "top_k",
        "relu",
        "nn.elu",
        "selu",
        "celu",
        "hard_",
    ),
    *("sparse_", "median", "linalg", "ptp", "partition", "quantile", "percentile"),
)
"""Parts of the names of operations whose derivative may jump."""


def cornered(node: Node) -> bool:
    """Whether the derivative of an operation, or of one in its bodies, may be discontinuous."""
    said = f"{node.op} {node.args}"
    return any(word in said for word in CORNERS) or any(cornered(n) for b in node.bodies for n in b.nodes)


NO_DERIVATIVE = frozenset(
    ("lax.scatter_mul", "at.multiply", "lax.scatter_apply", "at.apply", "lax.pmax", "lax.pmin", "lax.betainc")
)
"""The operations of which JAX has no derivative, or none by some of their arguments."""


def has_no_derivative(node: Node) -> bool:
    """Whether JAX has no derivative of an operation or of one in its bodies: of NO_DERIVATIVE, and of a sum over
    windows of floats whose start is an array (see `meshmark.hunt.drawing.start_sum`)."""
    return any(n.op in NO_DERIVATIVE or _starts_from_an_array(n) for n in walk_nodes([node]))


def _starts_from_an_array(node: Node) -> bool:
    if node.op != "lax.reduce_window" or not isinstance(node.args[1], dict):
        return False
    return "float" in node.args[1].get("kwargs", {}).get("dtype", "")


def has_no_pullback(node: Node) -> bool:
    """Whether JAX has no reverse derivative of an operation: of a loop whose length is a value."""
    return any(
        n.op == "while" or (n.op == "fori" and isinstance(n.args[1], dict)) for n in walk_nodes([node])
    )


def numbered(nodes: Sequence[Node], outputs: Sequence[Any], inputs: int) -> tuple[list[Node], list[int]]:
    """(operations, outputs) that refer to values by number instead of ("input", k) and ("node", k)."""

    def number(place: tuple[str, int]) -> int:
        return place[1] if place[0] == "input" else inputs + place[1]

    made = []
    for node in nodes:
        refs = {r: {"v": number(r)} for r in list_references((*node.args, *node.kwargs.values()))}
        made.append(replace(node, args=renumber(node.args, refs), kwargs=renumber(node.kwargs, refs)))
    return made, [number(o["v"]) for o in outputs]
