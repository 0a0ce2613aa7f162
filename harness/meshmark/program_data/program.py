# SPDX-License-Identifier: Apache-2.0
"""A sharded JAX program as data, and its JSON.

A program is a mesh, inputs with shapes, dtypes, shardings and values, a list of operations (a graph: each reads earlier
values), outputs with their shardings, and at most one transform of the whole function. The data is complete: no seed is
needed to repeat a program.

Expressions in the arguments of an operation are JSON values:

    number, text, true, null     themselves; a text may be a dtype or a mode
    [a, b]                       a tuple
    {"v": 3}                     value 3 of the inputs and then the operations, counted from 0
    {"outer": 3}                 inside a body: value 3 of the program around it
    {"name": "lax.add"}          a function of JAX
    {"slice": [1, null, 2]}      1::2
    {"float": "-inf"}            a float that JSON can't write as a number
    {"call": "lax.F", "kwargs": {...}}    the value of a call with constant arguments
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NotRequired, TypedDict

from meshmark.core.errors import BadInput

FORMAT = 1
"""The version of the JSON format. A change that reads older data differently raises it."""

Spec = tuple[tuple[str, ...], ...]
"""The mesh axes that shard each dimension, the slowest first."""


class ProgramError(BadInput, ValueError):
    """Data that is not a program; the message is one line."""


@dataclass(frozen=True)
class Input:
    """One argument: its shape, dtype, sharding and values (see `meshmark.program_data.values`)."""

    shape: tuple[int, ...]
    dtype: str
    spec: Spec
    fill: dict[str, Any] = field(default_factory=lambda: {"kind": "count"})

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def kind(self) -> str:
        """The kind of its values; of rows the kind of each row's values."""
        fill = self.fill
        while fill.get("kind") == "rows":
            fill = fill["of"]
        return str(fill.get("kind"))


@dataclass(frozen=True)
class Body:
    """A function inside a program: the number of its parameters, its operations, and the values that it returns."""

    parameters: int
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Node:
    """One operation: the name of a JAX function or a form (`meshmark.hunt.forms`), its arguments as expressions, and
    the bodies of a form."""

    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    bodies: tuple[Body, ...] = ()

    def reads(self) -> list[int]:
        """The values of its own level that it reads, also by its bodies. A value that it reads twice is in it twice."""
        found = list(list_references((*self.args, *self.kwargs.values())))
        for body in self.bodies:
            found += list_outer_reads(body)
        return found


@dataclass(frozen=True)
class Transform:
    """The transform of the whole function.

    kind: "" for none; "vjp" for the pull-back to the inputs `wrt`, with one cotangent per output as the last inputs;
    "jvp" for the push-forward of tangents of the inputs `wrt`, which are the last inputs.
    """

    kind: str = ""
    wrt: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """A whole program."""

    axes: tuple[tuple[str, int], ...]
    """The mesh: (name, size) of each axis. It takes the first devices."""
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    out_specs: tuple[Spec | None, ...] = ()
    """The sharding of each result; None leaves it to the compiler."""
    transform: Transform = field(default_factory=Transform)
    x64: bool = False
    """Whether 64-bit types are on."""

    @property
    def special(self) -> bool:
        """Whether an input may have NaN, infinities and negative zero."""
        return any(i.kind == "special" for i in self.inputs)

    @property
    def whole_range(self) -> bool:
        """Whether an input has all bits of its integers at random, so that sums and products of them wrap."""
        return any(i.kind == "bits" for i in self.inputs)

    @property
    def mesh_size(self) -> int:
        """The number of devices."""
        return math.prod(size for _, size in self.axes)

    @property
    def given(self) -> int:
        """The number of inputs without cotangents and tangents."""
        kind = self.transform.kind
        return len(self.inputs) - {"vjp": len(self.outputs), "jvp": len(self.transform.wrt)}.get(kind, 0)

    @property
    def name(self) -> str:
        """A digest of the data: twelve hexadecimal digits."""
        text = json.dumps(to_json(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def operations(self) -> list[str]:
        """The names of all operations, including those in bodies."""
        return [node.op for node in walk_nodes(self.nodes)]


def list_references(expression: Any, key: str = "v") -> Iterator[Any]:
    """The values that an expression reads: the value of each {key: value} in it."""
    if isinstance(expression, dict):
        if key in expression:
            yield expression[key]
        else:
            yield from list_references(list(expression.values()), key)
    elif isinstance(expression, (list, tuple)):
        for item in expression:
            yield from list_references(item, key)


def list_outer_reads(body: Body) -> list[int]:
    """The numbers of the values outside of a body, one level up, that the body reads."""
    return [i for node in body.nodes for i in list_references((*node.args, *node.kwargs.values()), "outer")]


def walk_nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    """These operations, each followed by those in its bodies."""
    for node in nodes:
        yield node
        for body in node.bodies:
            yield from walk_nodes(body.nodes)


def renumber(expression: Any, new: dict[int, Any], key: str = "v") -> Any:
    """An expression whose values are replaced by the expressions in `new`, by number."""
    if isinstance(expression, dict):
        if key in expression:
            return new.get(expression[key], expression)
        return {k: renumber(v, new, key) for k, v in expression.items()}
    if isinstance(expression, (list, tuple)):
        return type(expression)(renumber(item, new, key) for item in expression)
    return expression


# JSON -------------------------------------------------------------------------------------------------------


class InputData(TypedDict):
    """An `Input` as JSON values."""

    shape: list[int]
    dtype: str
    spec: list[Any]
    """For each dimension null, one axis, or a list of axes."""
    fill: NotRequired[dict[str, Any]]


class BodyData(TypedDict):
    """A `Body` as JSON values."""

    parameters: int
    nodes: list[Any]
    """Each has the form of NodeData."""
    outputs: list[Any]


class NodeData(TypedDict):
    """A `Node` as JSON values."""

    op: str
    args: list[Any]
    kwargs: NotRequired[dict[str, Any]]
    bodies: NotRequired[list[BodyData]]


class TransformData(TypedDict):
    """A `Transform` as JSON values."""

    kind: NotRequired[str]
    wrt: NotRequired[list[int]]


class ProgramData(TypedDict):
    """A `Program` as JSON values."""

    format: int
    mesh: list[list[Any]]
    """[name, size] of each axis."""
    inputs: list[InputData]
    nodes: list[NodeData]
    outputs: list[int]
    out_specs: list[Any]
    x64: NotRequired[bool]
    transform: NotRequired[TransformData]


def to_json(program: Program) -> ProgramData:
    """The program as JSON values."""
    made: ProgramData = {
        "format": FORMAT,
        "mesh": [list(axis) for axis in program.axes],
        "inputs": [
            {"shape": list(i.shape), "dtype": i.dtype, "spec": _spec_json(i.spec), "fill": i.fill}
            for i in program.inputs
        ],
        "nodes": list(map(_node_json, program.nodes)),
        "outputs": list(program.outputs),
        "out_specs": [None if s is None else _spec_json(s) for s in program.out_specs],
    }
    if program.x64:
        made["x64"] = True
    if program.transform.kind:
        made["transform"] = {"kind": program.transform.kind, "wrt": list(program.transform.wrt)}
    return made


def from_json(data: Any) -> Program:
    """The program from its JSON values; ProgramError if they are not a program."""
    try:
        if data["format"] != FORMAT:
            raise ProgramError(f"the program has format {data['format']}, this release reads {FORMAT}")
        transform = data.get("transform", {})
        made = Program(
            tuple((str(name), int(size)) for name, size in data["mesh"]),
            tuple(
                Input(tuple(i["shape"]), i["dtype"], spec_of(i["spec"]), i.get("fill", {"kind": "count"}))
                for i in data["inputs"]
            ),
            tuple(map(_node, data["nodes"])),
            tuple(data["outputs"]),
            tuple(None if s is None else spec_of(s) for s in data["out_specs"]),
            Transform(transform.get("kind", ""), tuple(transform.get("wrt", ()))),
            bool(data.get("x64", False)),
        )
        wrong = next(list_problems(made), "")
    except ProgramError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ProgramError(f"this is not a program: {type(error).__name__}: {error}") from None
    if wrong:
        raise ProgramError(f"this is not a program: {wrong}")
    return made


def list_problems(program: Program) -> Iterator[str]:
    """The problems with the form of a program."""
    if not program.outputs or len(program.outputs) != len(program.out_specs):
        yield "it needs outputs, and one of out_specs for each"
    count = program.given
    for node in program.nodes:
        if any(not 0 <= i < count for i in node.reads()):
            yield f"{node.op} reads a value that is not there yet"
        count += 1
    if any(not 0 <= i < count for i in program.outputs):
        yield "an output is not a value"
    sizes = dict(program.axes)
    for item in program.inputs:
        for dim, axes in zip(item.shape, item.spec, strict=False):
            if any(a not in sizes for a in axes) or dim % math.prod(sizes[a] for a in axes):
                yield f"an input of {item.shape} can't be sharded as {item.spec}"


def _node_json(node: Node) -> NodeData:
    made: NodeData = {"op": node.op, "args": list(node.args)}
    if node.kwargs:
        made["kwargs"] = node.kwargs
    if node.bodies:
        made["bodies"] = [
            {"parameters": b.parameters, "nodes": list(map(_node_json, b.nodes)), "outputs": list(b.outputs)}
            for b in node.bodies
        ]
    return made


def _node(data: Any) -> Node:
    bodies = tuple(
        Body(b["parameters"], tuple(map(_node, b["nodes"])), tuple(b["outputs"]))
        for b in data.get("bodies", ())
    )
    return Node(data["op"], tuple(data["args"]), dict(data.get("kwargs", {})), bodies)


def spec_of(data: Sequence[Any]) -> Spec:
    """A spec from JSON, which has null, one axis or a list of axes per dimension."""
    return tuple((e,) if isinstance(e, str) else tuple(e or ()) for e in data)


def _spec_json(spec: Spec) -> list[Any]:
    return [list(entry) for entry in spec]


def prune(program: Program) -> Program:
    """The program without the operations and inputs that no result needs."""
    count, keep = program.given, set(program.outputs)
    for k in reversed(range(len(program.nodes))):
        if count + k in keep:
            keep |= set(program.nodes[k].reads())
    if program.transform.kind:
        keep |= set(program.transform.wrt)
    new: dict[int, Any] = {}
    for i in range(count + len(program.nodes)):
        if i in keep:
            new[i] = len(new)
    refs = {old: {"v": at} for old, at in new.items()}
    inputs = [program.inputs[i] for i in range(count) if i in keep]
    nodes = [rename(n, refs) for k, n in enumerate(program.nodes) if count + k in keep]
    return replace(
        program,
        inputs=(*inputs, *program.inputs[count:]),
        nodes=tuple(nodes),
        outputs=tuple(new[i] for i in program.outputs),
        transform=replace(program.transform, wrt=tuple(new[i] for i in program.transform.wrt)),
    )


def rename(node: Node, refs: dict[int, Any]) -> Node:
    """A node that reads the values in `refs` instead, also in its bodies."""
    outer = {old: {"outer": ref["v"]} for old, ref in refs.items() if isinstance(ref, dict) and "v" in ref}
    bodies = tuple(
        replace(
            body,
            nodes=tuple(
                replace(
                    n,
                    args=renumber(n.args, outer, "outer"),
                    kwargs=renumber(n.kwargs, outer, "outer"),
                )
                for n in body.nodes
            ),
        )
        for body in node.bodies
    )
    return replace(node, args=renumber(node.args, refs), kwargs=renumber(node.kwargs, refs), bodies=bodies)
