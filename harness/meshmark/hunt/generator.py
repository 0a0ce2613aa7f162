# SPDX-License-Identifier: Apache-2.0
"""Draws programs: a seed and a number give the same program in every process."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import jax

from meshmark.core.meshes import shapes
from meshmark.hunt import (  # noqa: F401 - they fill the vocabulary
    algebra,
    arranging,
    collectives,
    elementwise,
    forms,
    general_vocabulary,
    idioms,
    indexing,
    layers,
    pointwise,
    selecting,
    statistics,
    structural,
    uneven,
    windows,
)
from meshmark.hunt.drawing import INTS, KINDS, Draw, Miss, Value
from meshmark.hunt.levels import Level, cornered, has_no_derivative, has_no_pullback, numbered
from meshmark.program_data.program import (
    Input,
    Node,
    Program,
    Spec,
    Transform,
    list_references,
    prune,
    walk_nodes,
)
from meshmark.program_data.values import dtype_of

MESHES = (
    *((2,), (4,), (8,), (2, 2), (2, 4), (4, 2), (2, 2, 2)),
    *((2,), (4,), (8,), (2, 4), (2, 2), (3,), (5,), (6,), (7,), (2, 3), (3, 2), (1, 4)),
)
"""The shapes of meshes to draw from. Likelier ones are in it more than once."""

ALONE = (2, 4, 7, 8)
"""On one device, sizes of dimensions are multiples of these: sizes of vectors, and 7, which no vector divides."""

SINGLE = ((1,), (1,), (1, 1), (1, 1, 1))
"""The meshes of one device."""

X64, SPECIAL, WHOLE = 0.06, 0.06, 0.06
"""The shares of programs with 64-bit types, with special values (NaN, infinities, negative zero), and with integers
that have all bits at random."""

DISTINCT, MOST_DISTINCT = 0.5, 80
"""The share of inputs that have each number once, of those with at most so many elements. Larger ones would have
numbers whose sums and products are soon too large to be exact."""

MOVING = frozenset(("shape", "edge", "index"))
"""The families that only move elements, or add a few. Special values pass through them unchanged, so programs with
special values use only these."""

WRAPPING = MOVING | {"reduce", "cumulative", "sort", "dot", "collective", "uneven"}
"""The families that are exact for integers of all bits, because sums and products wrap alike in every order."""

TRANSFORMS = {"": 0.68, "vjp": 0.27, "jvp": 0.05}
"""The probability of each transform of the whole program."""


class Drawing:
    """The state that draws one program."""

    def __init__(
        self,
        seed: int,
        number: int,
        weights: Mapping[str, float] | None = None,
        meshes: Sequence[Sequence[int]] = (),
        inexact: Set[str] = frozenset(),
    ) -> None:
        self.meshes = meshes or MESHES
        self.inexact = inexact
        self.x64 = self.special = self.whole = False
        self.random = random.Random(f"{seed}/{number}")
        self.axes: tuple[tuple[str, int], ...] = ()
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.rounded = False
        self.refusals: list[tuple[str, str]] = []
        self.weights = weights or {}
        self.families: dict[str, str] = {}
        """By name of a drawn operation, its family or the form that drew it."""

    # Types ----------------------------------------------------------------------------------------------------

    def spec(self, shape: Sequence[int], share: float = 0.65) -> Spec:
        """A sharding that divides a shape evenly. Each mesh axis shards one dimension that it divides, with probability
        `share`, or none."""
        entries: list[list[str]] = [[] for _ in shape]
        left = list(shape)
        axes = list(self.axes)
        self.random.shuffle(axes)
        for name, size in axes:
            fit = [k for k, n in enumerate(left) if n % size == 0 and n]
            if fit and self.random.random() < share:
                k = self.random.choice(fit)
                entries[k].append(name)
                left[k] //= size
        return tuple(tuple(e) for e in entries)

    def shape(self) -> tuple[int, ...]:
        """A shape whose sizes are mostly multiples of mesh axis sizes, with at most 1500 elements."""
        ndim = self.random.choice([1, 1, 2, 2, 2, 3, 3, 4])
        sizes = [n for _, n in self.axes]
        units = [*ALONE] if math.prod(sizes) == 1 else [*sizes, math.prod(sizes)]
        dims = []
        for _ in range(ndim):
            if self.random.random() < 0.7:
                unit = self.random.choice(units)
                dims.append(unit * self.random.choice([1, 1, 2, 3]))
            else:
                dims.append(self.random.choice([1, 2, 3, 4, 5, 6, 8]))
        while math.prod(dims) > 1500:
            dims[dims.index(max(dims))] //= 2
        return tuple(dims)

    def fresh(self, shape: tuple[int, ...], dtype: str, fill: dict[str, Any] | None = None) -> Value:
        """A new input, filled with small integers unless `fill` says otherwise. Miss if the program has five already.
        Inputs may be added after operations; values are numbered at the end."""
        if len(self.inputs) >= 5:
            raise Miss
        size = math.prod(shape)
        unsigned = dtype in ("uint8", "uint16", "uint32", "bool")
        seed = self.random.randint(0, 999)
        if self.special and fill is None and dtype in ("float32", "bfloat16", "float16"):
            fill = {"kind": "special", "seed": seed}
        elif self.whole and fill is None and dtype in INTS:
            fill = {"kind": "bits", "seed": seed}
        elif fill is None and size <= MOST_DISTINCT and self.random.random() < DISTINCT:
            fill = {"kind": "distinct", "low": 0 if unsigned else -(size // 2), "seed": seed}
        elif fill is None:
            reach = self.random.choice([3, 3, 9, 40])
            fill = {"kind": "ints", "low": 0 if unsigned else -reach, "high": reach, "seed": seed}
        below = 0
        if dtype in INTS:
            if fill["kind"] == "ints" and fill["low"] >= 0:
                below = fill["high"] + 1
            elif fill["kind"] == "distinct" and fill["low"] >= 0:
                below = size
            elif fill["kind"] == "data" and min(fill["data"], default=0) >= 0:
                below = max(fill["data"], default=0) + 1
        self.inputs.append(Input(shape, dtype, self.spec(shape), fill))
        value = Value({"v": ("input", len(self.inputs) - 1)}, shape, dtype, below)
        self.values.append(value)
        return value

    # Operations -----------------------------------------------------------------------------------------------

    def kind(self, manual: bool) -> Any:
        """Draw a kind of operation by weight. manual: collectives are possible."""
        kinds = [
            k
            for k in KINDS.values()
            if (k.continuous or not self.rounded)
            and (manual or k.family != "collective")
            and (not self.special or k.family in MOVING)
            and (not self.whole or (k.family in WRAPPING and not k.rounds))
        ]
        weights = [
            k.weight * self.weights.get(k.family, 1.0) * (4.0 if k.family == "collective" else 1.0)
            for k in kinds
        ]
        return self.random.choices(kinds, weights)[0]

    def add(self, level: Level, node: Node) -> Value:
        """Append an operation, after those inside its arguments, and give its value. Miss if JAX refuses its types. If
        the result is a tuple, also append at most two of its items, and give the first of these."""
        return self._add(level, node, {})

    def _add(self, level: Level, node: Node, made: dict[int, Value]) -> Value:
        value = self._append(level, node, made)
        if value.dtype != "tuple":
            return value
        count = len(level.types[repr(value.expression)])
        wanted = self.random.sample(range(count), min(count, 2))
        found = [self._append(level, Node("item", (value.expression, k)), made) for k in sorted(wanted)]
        return found[0]

    def _append(self, level: Level, node: Node, made: dict[int, Value]) -> Value:
        """Append one operation, after those inside its arguments, and give its value, which may be a tuple.

        made: the values of the operations that are appended already, by their identity, so that an operation that is
        an argument twice is appended once."""

        def entered(expression: Any) -> Any:
            if isinstance(expression, list):
                return [entered(item) for item in expression]
            if not isinstance(expression, Node):
                return expression
            if id(expression) not in made:
                inner = self._append if node.op == "item" else self._add
                made[id(expression)] = inner(level, expression, made)
            return made[id(expression)].expression

        args = tuple(map(entered, node.args))
        node = replace(node, args=args, kwargs={k: entered(v) for k, v in node.kwargs.items()})
        shapes = level.infer(self, node)
        level.nodes.append(node)
        at = {"v": ("node", len(level.nodes) - 1)}
        if isinstance(shapes, tuple):
            value = Value(at, (), "tuple")
        else:
            below = 0
            if node.op in ("jnp.argmax", "jnp.argmin", "jnp.argsort") and node.args:
                source = next((v for v in level.values if v.expression == node.args[0]), None)
                axis = node.kwargs.get("axis")
                below = source.shape[axis] if source and axis is not None else 0
            value = Value(at, shapes.shape, shapes.dtype.name, below)
        level.values.append(value)
        return value

    def step(self, level: Level) -> None:
        """Add one operation, or a form with a body. It gives up after 30 attempts that raise Miss."""
        for _ in range(30):
            try:
                if not self.special:
                    form = self.random.random()
                    for name, share in forms.shares(level).items():
                        form -= share * self.weights.get(name, 1.0)
                        if form < 0:
                            start = len(level.nodes)
                            forms.add(self, level, name)
                            self.note(level.nodes[start:], name)
                            return
                chosen = self.kind(bool(level.manual))
                draw = Draw(
                    self.random,
                    level.values,
                    self.fresh if level.depth == 0 else None,
                    self.axes,
                    level.manual,
                )
                before = self.mark(level)
                try:
                    self.add(level, chosen.draw(draw))
                except Miss:
                    self.reset(level, before)
                    continue
                self.note(level.nodes[before[1] :], chosen.family)
                self.rounded = self.rounded or chosen.rounds or chosen.name in self.inexact
                return
            except Miss:
                continue

    def note(self, nodes: Sequence[Node], family: str) -> None:
        """Note the family or form that drew these operations."""
        for node in nodes:
            self.families.setdefault(node.op, family)

    def mark(self, level: Level) -> tuple[int, int, int]:
        """The lengths of the lists of inputs, operations and values, for `reset`."""
        return len(self.inputs), len(level.nodes), len(level.values)

    def reset(self, level: Level, mark: tuple[int, int, int]) -> None:
        """Remove the inputs, operations and values that were added since `mark`."""
        del self.inputs[mark[0] :]
        del level.nodes[mark[1] :]
        del level.values[mark[2] :]

    # The whole ------------------------------------------------------------------------------------------------

    def program(self) -> Program:
        """Draw the mesh and the program. Miss if it has no operation or no result."""
        shape = self.random.choice(self.meshes)
        self.axes = tuple(zip("xyz", shape, strict=False))
        share = self.random.random()
        self.x64, self.special = share < X64, X64 <= share < X64 + SPECIAL
        self.whole = X64 + SPECIAL <= share < X64 + SPECIAL + WHOLE
        with jax.enable_x64(self.x64):
            return self.drawn()

    def drawn(self) -> Program:
        """Draw the inputs and operations, for the mesh and types that are drawn already."""
        level = Level(0, self.values, self.nodes, ())
        kinds = ["float32"] * 8 + ["int32"] * 3 + ["uint8", "int8", "int16", "bfloat16", "float16", "bool"]
        if self.x64:
            kinds = ["float64"] * 5 + ["int64"] * 3 + ["float32", "int32"]
        elif self.special:
            kinds = ["float32"] * 4 + ["bfloat16", "float16"]
        elif self.whole:
            kinds = ["int32"] * 3 + ["uint32", "uint8", "int8", "int16", "uint16"]
        for _ in range(self.random.choice([1, 1, 2])):
            self.fresh(self.shape(), self.random.choice(kinds))
        for _ in range(self.random.choice([1, 2, 2, 3, 3, 4, 5, 6])):
            self.step(level)
            last = level.values[-1]
            if (
                last.dtype != "tuple"
                and last.ndim
                and last.expression["v"][0] == "node"
                and self.random.random() < 0.25
            ):
                spec = [list(e) for e in self.spec(last.shape)]
                self.add(level, Node("constrain", (last.expression, spec)))
        if not self.nodes:
            raise Miss
        return self.finish(level)

    def finish(self, level: Level) -> Program:
        """Draw the outputs, their shardings and the transform. Outputs are at most three values that nothing reads."""
        read = {r for n in level.nodes for r in list_references((*n.args, *n.kwargs.values()))}
        sinks = [
            v
            for v in level.values
            if v.dtype != "tuple"
            and v.size
            and v.expression["v"] not in read
            and v.expression["v"][0] == "node"
        ]
        if not sinks:
            raise Miss
        outputs = sinks[-3:]
        kind = self.random.choices(list(TRANSFORMS), list(TRANSFORMS.values()))[0]
        if self.special or (self.rounded and any(map(cornered, level.nodes))):
            kind = ""  # rounding may decide which branch of a derivative is taken
        if any(n.kwargs.get("check_vma") is False for n in level.nodes):
            kind = ""  # without the check a cotangent has another meaning
        if any(map(has_no_derivative, level.nodes)):
            kind = ""
        if kind == "vjp" and any(map(has_no_pullback, level.nodes)):
            kind = "jvp"
        if kind == "jvp" and any(n.op == "custom_vjp" for n in walk_nodes(level.nodes)):
            kind = ""
        nodes, outs = numbered(level.nodes, [v.expression for v in outputs], len(self.inputs))
        specs = tuple(self.spec(v.shape) if self.random.random() < 0.5 else None for v in outputs)
        made = Program(self.axes, tuple(self.inputs), tuple(nodes), tuple(outs), specs, x64=self.x64)
        made = prune(made)
        if kind:
            made = self.transformed(made, kind, outputs)
        return made

    def transformed(self, program: Program, kind: str, outputs: Sequence[Value]) -> Program:
        """The program with the transform "vjp" or "jvp", if it has float inputs and outputs; else the program."""
        wrt = tuple(k for k, i in enumerate(program.inputs) if dtype_of(i.dtype).kind in "fV")
        keep = [k for k, v in enumerate(outputs) if v.is_float]
        if not wrt or not keep:
            return program
        if len(wrt) > 1 and self.random.random() < 0.4:
            wrt = (self.random.choice(wrt),)
        program = prune(
            replace(
                program,
                outputs=tuple(program.outputs[k] for k in keep),
                out_specs=tuple(program.out_specs[k] for k in keep),
                transform=Transform("", ()),
            )
        )
        wrt = tuple(k for k, i in enumerate(program.inputs) if dtype_of(i.dtype).kind in "fV")
        if not wrt:
            return program
        if len(wrt) > 1 and self.random.random() < 0.4:
            wrt = (self.random.choice(wrt),)
        extra = []
        if kind == "vjp":
            for k in keep:
                v = outputs[k]
                fill = {"kind": "ints", "low": -3, "high": 3, "seed": self.random.randint(0, 999)}
                extra.append(Input(v.shape, v.dtype, self.spec(v.shape), fill))
        else:
            for k in wrt:
                i = program.inputs[k]
                extra.append(
                    replace(
                        i,
                        spec=self.spec(i.shape),
                        fill=i.fill | {"seed": 77} if i.fill["kind"] == "ints" else i.fill,
                    )
                )
        return replace(program, inputs=(*program.inputs, *extra), transform=Transform(kind, wrt))


def meshes_of(devices: int) -> list[tuple[int, ...]]:
    """The shapes of MESHES that need at most this many devices; SINGLE for one device."""
    return [*SINGLE] if devices == 1 else [shape for shape in MESHES if math.prod(shape) <= devices]


def meshes_over(devices: int) -> list[tuple[int, ...]]:
    """The meshes over all of these devices with one to three axes, each longer than 1. A program for a topology is
    compiled for all of its devices."""
    found = [s for axes in (1, 2, 3) for s in shapes(devices, axes) if 1 not in s]
    return found or [(devices,)]


def draw(
    seed: int,
    number: int,
    weights: Mapping[str, float] | None = None,
    meshes: Sequence[Sequence[int]] = (),
    inexact: Set[str] = frozenset(),
) -> Program:
    """Program `number` of a seed.

    weights: factors by family or form. meshes: the shapes to draw from (default: MESHES). inexact: the kinds that round
    on the backend, beside those that round everywhere."""
    return draw_with_families(seed, number, weights, meshes, inexact)[0]


def draw_with_families(
    seed: int,
    number: int,
    weights: Mapping[str, float] | None = None,
    meshes: Sequence[Sequence[int]] = (),
    inexact: Set[str] = frozenset(),
) -> tuple[Program, dict[str, str]]:
    """(the program that `draw` gives, the family or form of each of its operations).

    If an attempt fails, the next one has another random stream. RuntimeError after 50 attempts."""
    for attempt in range(50):
        drawing = Drawing(seed, number * 64 + attempt, weights, meshes, inexact)
        try:
            program = drawing.program()
        except Miss:
            continue
        return program, {op: drawing.families[op] for op in program.operations if op in drawing.families}
    raise RuntimeError(f"no program came of seed {seed}, number {number}")
