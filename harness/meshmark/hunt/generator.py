# SPDX-License-Identifier: Apache-2.0
"""Draws programs: a seed and a number give the same program in every process."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from meshmark.core.meshes import shapes
from meshmark.hunt import (  # noqa: F401 - they fill the vocabulary
    collectives,
    elementwise,
    indexing,
    layers,
    structural,
    windows,
)
from meshmark.hunt.building import Builder
from meshmark.hunt.drawing import INTS, KINDS, Draw, Miss, Value
from meshmark.hunt.program import Body, Input, Node, Program, Spec, Transform, needed, references, renumbered
from meshmark.hunt.values import dtype_of

MESHES = (
    *((2,), (4,), (8,), (2, 2), (2, 4), (4, 2), (2, 2, 2)),
    *((2,), (4,), (8,), (2, 4), (2, 2), (3,), (5,), (6,), (7,), (2, 3), (3, 2), (1, 4)),
)
"""The shapes of meshes, the likely ones more than once."""

FORMS = {
    "vmap": 0.06,
    "remat": 0.03,
    "scan": 0.05,
    "cond": 0.02,
    "map": 0.02,
    "fori": 0.02,
    "shard_map": 0.07,
}
"""How often an operation is a form with a body."""

BODY_CONSTRAINTS = 0.12
"""How often a value inside a body is constrained."""

UNCHECKED = 0.25
"""How many shard_maps have check_vma=False."""

X64, SPECIAL = 0.06, 0.06
"""How many programs have 64-bit types, and how many have special values."""

MOVING = frozenset(("shape", "edge", "index"))
"""The families that only move elements, or add some up: special values go through them as they are."""

TRANSFORMS = {"": 0.68, "vjp": 0.27, "jvp": 0.05}
"""How often the whole is transformed."""


class Drawing:
    """The drawing of one program."""

    def __init__(
        self,
        seed: int,
        number: int,
        weights: Mapping[str, float] | None = None,
        meshes: Sequence[Sequence[int]] = (),
    ) -> None:
        self.meshes = meshes or MESHES
        self.x64 = self.special = False
        self.random = random.Random(f"{seed}/{number}")
        self.axes: tuple[tuple[str, int], ...] = ()
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.rounded = False
        self.refusals: list[tuple[str, str]] = []
        self.weights = weights or {}
        self.families: dict[str, str] = {}
        """The family of operations, or the form, that each drawn operation came of."""

    # Types ----------------------------------------------------------------------------------------------------

    def spec(self, shape: Sequence[int], share: float = 0.65) -> Spec:
        """A sharding of a shape that divides evenly: each axis of the mesh goes to some dimension, or to none."""
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
        """A shape whose dimensions mostly divide by axes of the mesh."""
        ndim = self.random.choice([1, 1, 2, 2, 2, 3, 3, 4])
        sizes = [n for _, n in self.axes]
        dims = []
        for _ in range(ndim):
            if self.random.random() < 0.7:
                unit = self.random.choice([*sizes, math.prod(sizes)])
                dims.append(unit * self.random.choice([1, 1, 2, 3]))
            else:
                dims.append(self.random.choice([1, 2, 3, 4, 5, 6, 8]))
        while math.prod(dims) > 1500:
            dims[dims.index(max(dims))] //= 2
        return tuple(dims)

    def fresh(self, shape: tuple[int, ...], dtype: str, fill: dict[str, Any] | None = None) -> Value:
        """A new input; where others were drawn before, values are renumbered at the end."""
        if len(self.inputs) >= 5:
            raise Miss
        if self.special and fill is None and dtype == "float32":
            fill = {"kind": "special", "seed": self.random.randint(0, 999)}
        if fill is None:
            reach = self.random.choice([3, 3, 9, 40])
            low = 0 if dtype in ("uint8", "uint32", "bool") else -reach
            fill = {"kind": "ints", "low": low, "high": reach, "seed": self.random.randint(0, 999)}
        below = 0
        if dtype in INTS:
            if fill["kind"] == "ints" and fill["low"] >= 0:
                below = fill["high"] + 1
            elif fill["kind"] == "data" and min(fill["data"], default=0) >= 0:
                below = max(fill["data"], default=0) + 1
        self.inputs.append(Input(shape, dtype, self.spec(shape), fill))
        value = Value({"v": ("input", len(self.inputs) - 1)}, shape, dtype, below)
        self.values.append(value)
        return value

    # Operations -----------------------------------------------------------------------------------------------

    def kind(self, manual: bool) -> Any:
        """A kind of operation, by weight."""
        kinds = [
            k
            for k in KINDS.values()
            if (k.continuous or not self.rounded)
            and (manual or k.family != "collective")
            and (not self.special or k.family in MOVING)
        ]
        weights = [
            k.weight * self.weights.get(k.family, 1.0) * (4.0 if k.family == "collective" else 1.0)
            for k in kinds
        ]
        return self.random.choices(kinds, weights)[0]

    def add(self, level: Level, node: Node) -> Value:
        """Append an operation, and those inside its arguments before it; Miss where JAX refuses its types."""
        node = replace(node, args=self.added(level, node.args))
        shapes = level.infer(self, node)
        level.nodes.append(node)
        at = {"v": ("node", len(level.nodes) - 1)}
        if isinstance(shapes, tuple):
            value = Value(at, (), "tuple")
            level.values.append(value)
            wanted = self.random.sample(range(len(shapes)), min(len(shapes), 2))
            found = [self.add(level, Node("item", (at, k))) for k in sorted(wanted)]
            return found[0]
        below = 0
        if node.op in ("jnp.argmax", "jnp.argmin", "jnp.argsort") and node.args:
            source = next((v for v in level.values if v.expression == node.args[0]), None)
            axis = node.kwargs.get("axis")
            below = source.shape[axis] if source and axis is not None else 0
        value = Value(at, shapes.shape, shapes.dtype.name, below)
        level.values.append(value)
        return value

    def added(self, level: Level, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Arguments without operations inside them: these are added before."""
        found: list[Any] = []
        for a in arguments:
            if isinstance(a, list) and any(isinstance(item, Node) for item in a):
                a = [*self.added(level, a)]
            found.append(self.add(level, a).expression if isinstance(a, Node) else a)
        return tuple(found)

    def step(self, level: Level) -> None:
        """Add one operation, or a form with a body."""
        for _ in range(30):
            try:
                if level.depth == 0 and not self.special:
                    form = self.random.random()
                    for name, share in FORMS.items():
                        form -= share * self.weights.get(name, 1.0)
                        if form < 0:
                            start = len(level.nodes)
                            self.form(level, name)
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
                self.rounded = self.rounded or chosen.rounds
                return
            except Miss:
                continue

    def note(self, nodes: Sequence[Node], family: str) -> None:
        """Remember what these operations came of."""
        for node in nodes:
            self.families.setdefault(node.op, family)

    def mark(self, level: Level) -> tuple[int, int, int]:
        """Where the lists are."""
        return len(self.inputs), len(level.nodes), len(level.values)

    def reset(self, level: Level, mark: tuple[int, int, int]) -> None:
        """Take back what came since."""
        del self.inputs[mark[0] :]
        del level.nodes[mark[1] :]
        del level.values[mark[2] :]

    # Forms ----------------------------------------------------------------------------------------------------

    def body(
        self, types: Sequence[Value], manual: Sequence[tuple[str, int]], length: int, outer: Any = None
    ) -> Any:
        """(the level of a body with parameters of these types, filled with operations)."""
        params = [Value({"v": ("input", k)}, t.shape, t.dtype, t.below) for k, t in enumerate(types)]
        level = Level(1, list(params), [], tuple(manual))
        for _ in range(length):
            self.step(level)
            if self.random.random() < BODY_CONSTRAINTS:
                self.constrain(level)
        return level

    def constrain(self, level: Level) -> None:
        """Constrain the last value over those axes that are not manual."""
        last = level.values[-1]
        manual = {name for name, _ in level.manual}
        if len(manual) == len(self.axes) or last.dtype == "tuple" or not last.ndim:
            return
        spec = [[a for a in e if a not in manual] for e in self.spec(last.shape)]
        if any(spec):
            self.add(level, Node("constrain", (last.expression, spec), {"inside": True} if manual else {}))

    def close(self, level: Level, parameters: int, outputs: Sequence[Value]) -> Body:
        """A body as data."""
        nodes, outs = _numbered(level.nodes, [v.expression for v in outputs], parameters)
        return Body(parameters, tuple(nodes), tuple(outs))

    def form(self, level: Level, name: str) -> None:
        """A form with a body over values that are there; Miss where none fits."""
        before = self.mark(level)
        rounded = self.rounded
        try:
            getattr(self, f"_{name}")(level)
        except Miss:
            self.reset(level, before)
            self.rounded = rounded
            raise

    def _draw(self, level: Level) -> Draw:
        return Draw(self.random, level.values, self.fresh, self.axes)

    def _vmap(self, level: Level) -> None:
        d = self._draw(level)
        a = d.value(ndim=1)
        at = d.integer(0, a.ndim - 1)
        others = [
            v
            for v in level.values
            if v.ndim and v.shape[0] == a.shape[at] and v is not a and v.dtype != "tuple"
        ]
        parts = [(a, at)]
        if others and d.chance(0.5):
            parts.append((d.choice(others), 0))
        types = [replace(v, shape=v.shape[:k] + v.shape[k + 1 :]) for v, k in parts]
        inside = self.body(types, (), d.integer(1, 2))
        out = inside.values[-1]
        if out.dtype == "tuple" or out.expression["v"][0] == "input":
            raise Miss
        out_axis = d.integer(0, out.ndim)
        body = self.close(inside, len(types), [out])
        kwargs: dict[str, Any] = {"in_axes": [k for _, k in parts], "out_axes": out_axis}
        self.add(level, Node("vmap", tuple(v.expression for v, _ in parts), kwargs, (body,)))

    def _remat(self, level: Level) -> None:
        d = self._draw(level)
        a = d.value()
        inside = self.body([a], (), d.integer(1, 2))
        out = inside.values[-1]
        if out.dtype == "tuple" or out.expression["v"][0] == "input":
            raise Miss
        self.add(level, Node("remat", (a.expression,), {}, (self.close(inside, 1, [out]),)))

    def _map(self, level: Level) -> None:
        d = self._draw(level)
        a = d.value(ndim=1)
        inside = self.body([replace(a, shape=a.shape[1:])], (), d.integer(1, 2))
        out = inside.values[-1]
        if out.dtype == "tuple" or out.expression["v"][0] == "input":
            raise Miss
        self.add(level, Node("map", (a.expression,), {}, (self.close(inside, 1, [out]),)))

    def _scan(self, level: Level) -> None:
        d = self._draw(level)
        xs = d.value(lambda v: v.ndim >= 1 and v.shape[0] <= 16 and v.is_number, 1)
        carry = d.number()
        inside = self.body([carry, replace(xs, shape=xs.shape[1:])], (), d.integer(1, 3))
        fit = [v for v in inside.values if v.shape == carry.shape and v.dtype == carry.dtype]
        ys = [v for v in inside.values if v.dtype != "tuple"]
        if len(fit) == 1:
            row = replace(xs, shape=xs.shape[1:])
            same = row.shape == carry.shape and row.dtype == carry.dtype
            if same:
                new = self.add(inside, Node("jnp.add", ({"v": ("input", 0)}, {"v": ("input", 1)})))
                fit.append(new)
        body = self.close(inside, 2, [fit[-1], ys[-1]])
        kwargs = {"reverse": True} if d.chance(0.3) else {}
        self.add(level, Node("scan", (carry.expression, xs.expression), kwargs, (body,)))

    def _cond(self, level: Level) -> None:
        d = self._draw(level)
        a = d.number()
        flags = [v for v in level.values if v.dtype == "bool" and not v.ndim]
        flag = d.choice(flags) if flags else self.fresh((), "bool")
        inside = self.body([a], (), d.integer(1, 2))
        fit = [v for v in inside.values[1:] if v.shape == a.shape and v.dtype == a.dtype]
        if not fit:
            raise Miss
        one, other = self.close(inside, 1, [fit[-1]]), Body(1, (), (0,))
        self.add(level, Node("cond", (flag.expression, a.expression), {}, (one, other)))

    def _fori(self, level: Level) -> None:
        d = self._draw(level)
        a = d.number()
        index = Value(None, (), "int32")
        inside = self.body([index, a], (), d.integer(1, 2))
        fit = [v for v in inside.values[2:] if v.shape == a.shape and v.dtype == a.dtype]
        if not fit:
            raise Miss
        body = self.close(inside, 2, [fit[-1]])
        self.add(level, Node("fori", (0, d.integer(2, 4), a.expression), {}, (body,)))

    def _shard_map(self, level: Level) -> None:
        d = self._draw(level)
        manual = [a for a in self.axes if d.chance(0.75)] or [d.choice(self.axes)]
        given = [d.value(ndim=1)]
        if d.chance(0.4):
            given.append(d.value(ndim=1))
        ins, types = [], []
        for v in given:
            entries: list[list[str]] = [[] for _ in v.shape]
            left = list(v.shape)
            for name, size in manual:
                fit = [k for k, n in enumerate(left) if n % size == 0]
                if fit and d.chance(0.85):
                    k = d.choice(fit)
                    entries[k].append(name)
                    left[k] //= size
            ins.append(entries)
            types.append(replace(v, shape=tuple(left)))
        if not any(e for entries in ins for e in entries):
            raise Miss
        inside = self.body(types, manual, d.integer(1, 3))
        out = inside.values[-1]
        if out.dtype == "tuple" or not out.ndim or out.expression["v"][0] == "input":
            raise Miss
        total = out.size * math.prod(n for _, n in manual)
        if total > 6000:
            raise Miss
        if not accepted(inside.nodes, [{a for e in entries for a in e} for entries in ins]):
            raise Miss
        entries = [[] for _ in out.shape]
        last = inside.nodes[-1]
        summed: list[str] = []
        if last.op in ("lax.psum", "lax.pmax", "lax.pmin") and d.chance(0.6):
            summed = [last.args[1]] if isinstance(last.args[1], str) else list(last.args[1])
        for name, _ in manual:
            if name not in summed:
                d.choice(entries).append(name)
        body = self.close(inside, len(types), [out])
        kwargs: dict[str, Any] = {"in_specs": ins, "out_specs": [entries]}
        if len(manual) < len(self.axes):
            kwargs["axes"] = [name for name, _ in manual]
        if d.chance(UNCHECKED):
            kwargs["check_vma"] = False
        self.add(level, Node("shard_map", tuple(v.expression for v in given), kwargs, (body,)))

    # The whole ------------------------------------------------------------------------------------------------

    def program(self) -> Program:
        """Draw it; Miss where nothing came of it."""
        shape = self.random.choice(self.meshes)
        self.axes = tuple(zip("xyz", shape, strict=False))
        share = self.random.random()
        self.x64, self.special = share < X64, X64 <= share < X64 + SPECIAL
        with jax.enable_x64(self.x64):
            return self.drawn()

    def drawn(self) -> Program:
        """The program over the mesh, in the types that were drawn for it."""
        level = Level(0, self.values, self.nodes, ())
        usual = ["float32"] * 8 + ["int32"] * 3 + ["uint8", "bfloat16", "bool"]
        wide = ["float64"] * 5 + ["int64"] * 3 + ["float32", "int32"]
        kinds = wide if self.x64 else ["float32"] if self.special else usual
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
        """Outputs, their shardings, and the transform."""
        read = {r for n in level.nodes for r in references((*n.args, *n.kwargs.values()))}
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
            kind = ""  # a rounding may decide which branch of a derivative is taken
        if any(n.kwargs.get("check_vma") is False for n in level.nodes):
            kind = ""  # without the check a cotangent means something else
        nodes, outs = _numbered(level.nodes, [v.expression for v in outputs], len(self.inputs))
        specs = tuple(self.spec(v.shape) if self.random.random() < 0.5 else None for v in outputs)
        made = Program(self.axes, tuple(self.inputs), tuple(nodes), tuple(outs), specs, x64=self.x64)
        made = needed(made)
        if kind:
            made = self.transformed(made, kind, outputs)
        return made

    def transformed(self, program: Program, kind: str, outputs: Sequence[Value]) -> Program:
        """With a gradient or a tangent, where the dtypes have one."""
        wrt = tuple(k for k, i in enumerate(program.inputs) if dtype_of(i.dtype).kind in "fV")
        keep = [k for k, v in enumerate(outputs) if v.is_float]
        if not wrt or not keep:
            return program
        if len(wrt) > 1 and self.random.random() < 0.4:
            wrt = (self.random.choice(wrt),)
        program = needed(
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


class Level:
    """The values and operations of one level: the program, or a body."""

    def __init__(
        self, depth: int, values: list[Value], nodes: list[Node], manual: tuple[tuple[str, int], ...]
    ) -> None:
        self.depth, self.values, self.nodes, self.manual = depth, values, nodes, manual
        self.types: dict[str, Any] = {}

    def infer(self, drawing: Drawing, node: Node) -> Any:
        """The types of a node's result; Miss where JAX refuses."""
        known = {repr(v.expression): k for k, v in enumerate(self.values)}
        tuples = {k: self.types[repr(v.expression)] for k, v in enumerate(self.values) if v.dtype == "tuple"}
        reads: list[int] = []

        def at(expression: Any) -> Any:
            k = known[repr({"v": expression})]
            if k not in reads:
                reads.append(k)
            return {"v": k}

        refs = {r: at(r) for r in references((*node.args, *node.kwargs.values()))}
        local = replace(node, args=renumbered(node.args, refs), kwargs=renumbered(node.kwargs, refs))
        program = Program(drawing.axes, (), (), (0,), (None,))
        builder = Builder(program, "plain", None)

        # every value is mapped over the manual axes: vmap's all_to_all of one that is not gives another shape
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


COLLECTIVES = ("psum", "pmax", "pmin", "all_gather", "psum_scatter", "all_to_all", "ppermute")


def accepted(nodes: Sequence[Node], varies: Sequence[set[str]]) -> bool:
    """Whether every collective of a body over manual axes reads a value that varies over all of its axes.

    shard_map refuses others where it checks that, and vmap's all_to_all of a value that is not mapped differs from it.
    varies: the axes over which each parameter varies. The nodes have the numbers ("input", k) and ("node", k).
    """
    known: dict[tuple[str, int], set[str]] = {("input", k): set(v) for k, v in enumerate(varies)}
    for k, node in enumerate(nodes):
        read: set[str] = set()
        for place in references((*node.args, *node.kwargs.values())):
            read |= known[place]
        name = node.op.removeprefix("lax.")
        axes = set()
        if name in (*COLLECTIVES, "axis_index"):
            named = node.args[0 if name == "axis_index" else 1]
            axes = {named} if isinstance(named, str) else set(named)
        if name in COLLECTIVES and not axes <= read:
            return False
        known["node", k] = read - axes if name in ("psum", "pmax", "pmin") else read | axes
    return True


def cornered(node: Node) -> bool:
    """Whether the derivative of an operation, or of one in its bodies, jumps."""
    said = f"{node.op} {node.args}"
    return any(
        w in said for w in ("max", "min", "abs", "sign", "clip", "sort", "top_k", "relu", "median", "linalg")
    ) or any(cornered(n) for b in node.bodies for n in b.nodes)


def _numbered(nodes: Sequence[Node], outputs: Sequence[Any], inputs: int) -> tuple[list[Node], list[int]]:
    """Operations and outputs with numbers in the place of ("input", k) and ("node", k)."""

    def number(place: tuple[str, int]) -> int:
        return place[1] if place[0] == "input" else inputs + place[1]

    made = []
    for node in nodes:
        refs = {r: {"v": number(r)} for r in references((*node.args, *node.kwargs.values()))}
        made.append(replace(node, args=renumbered(node.args, refs), kwargs=renumbered(node.kwargs, refs)))
    return made, [number(o["v"]) for o in outputs]


def meshes_of(devices: int) -> list[tuple[int, ...]]:
    """Those of MESHES that so many devices have."""
    return [shape for shape in MESHES if math.prod(shape) <= devices]


def meshes_over(devices: int) -> list[tuple[int, ...]]:
    """The meshes over all of so many devices, of one to three axes longer than 1: a topology is compiled for whole."""
    found = [s for axes in (1, 2, 3) for s in shapes(devices, axes) if 1 not in s]
    return found or [(devices,)]


def draw(
    seed: int,
    number: int,
    weights: Mapping[str, float] | None = None,
    meshes: Sequence[Sequence[int]] = (),
) -> Program:
    """Program `number` of a seed, over one of these meshes (default: MESHES)."""
    return draw_with_families(seed, number, weights, meshes)[0]


def draw_with_families(
    seed: int,
    number: int,
    weights: Mapping[str, float] | None = None,
    meshes: Sequence[Sequence[int]] = (),
) -> tuple[Program, dict[str, str]]:
    """A program, and the family or form that each of its operations came of. Where nothing came of a try the next one
    is made from the same stream."""
    for attempt in range(50):
        drawing = Drawing(seed, number * 64 + attempt, weights, meshes)
        try:
            program = drawing.program()
        except Miss:
            continue
        return program, {op: drawing.families[op] for op in program.operations if op in drawing.families}
    raise RuntimeError(f"no program came of seed {seed}, number {number}")
