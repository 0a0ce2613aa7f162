# SPDX-License-Identifier: Apache-2.0
"""Shrinking rules. Each gives smaller candidates for a program; a candidate may be invalid."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from meshmark.program_data.building import Builder, find_types
from meshmark.program_data.program import (
    Body,
    Input,
    Node,
    Program,
    Transform,
    from_json,
    prune,
    rename,
    renumber,
    to_json,
    walk_nodes,
)
from meshmark.program_data.values import dtype_of, make_array

Rule = Callable[[Program], Iterator[Program]]


def measure_weight(program: Program) -> tuple[int, ...]:
    """The size of a program, as a tuple: of two programs the smaller one has the smaller tuple."""
    nodes = list(walk_nodes(program.nodes))
    arguments = sum(_size_of_expression(n.args) + _size_of_expression(n.kwargs) for n in nodes)
    specs = sum(len(e) for i in program.inputs for e in i.spec) + sum(
        1 + sum(map(len, s)) for s in program.out_specs if s is not None
    )
    return (
        bool(program.transform.kind) + program.x64,
        len([n for n in nodes if n.op != "item"]),
        len(nodes),
        len(program.outputs) + len(program.inputs),
        len(program.axes),
        program.mesh_size,
        specs,
        sum(i.size for i in program.inputs),
        arguments,
        sum(_rank_of_input(i) for i in program.inputs),
    )


def _size_of_expression(expression: Any) -> int:
    if isinstance(expression, dict):
        return 1 + sum(map(_size_of_expression, expression.values()))
    if isinstance(expression, (list, tuple)):
        return 1 + sum(map(_size_of_expression, expression))
    if isinstance(expression, bool) or expression is None:
        return 1
    return 1 + (min(abs(int(expression)), 50) if isinstance(expression, (int, float)) else 0)


def _rank_of_input(item: Input) -> int:
    ranks = {"count": 0, "data": 1, "ints": 2, "permutation": 2, "distinct": 2, "special": 3, "bits": 3}
    return ranks[item.kind] + (item.kind != item.fill["kind"]) + (item.dtype not in ("float32", "int32"))


# Rules ------------------------------------------------------------------------------------------------------


def drop_outputs(program: Program) -> Iterator[Program]:
    """Only one of the results; or all but one."""
    if len(program.outputs) < 2:
        return
    for keep in [[k] for k in range(len(program.outputs))]:
        yield _with_outputs(program, keep)
    if len(program.outputs) > 2:
        for gone in range(len(program.outputs)):
            yield _with_outputs(program, [k for k in range(len(program.outputs)) if k != gone])


def _with_outputs(program: Program, keep: list[int]) -> Program:
    extra = list(program.inputs[program.given :])
    if program.transform.kind == "vjp":
        extra = [extra[k] for k in keep]
    return prune(
        replace(
            program,
            inputs=(*program.inputs[: program.given], *extra),
            outputs=tuple(program.outputs[k] for k in keep),
            out_specs=tuple(program.out_specs[k] for k in keep),
        )
    )


def drop_transform(program: Program) -> Iterator[Program]:
    """The function without its transform; or with one input fewer in `wrt`."""
    if not program.transform.kind:
        return
    yield prune(replace(program, inputs=program.inputs[: program.given], transform=Transform()))
    wrt = program.transform.wrt
    if len(wrt) > 1:
        for gone in range(len(wrt)):
            left = wrt[:gone] + wrt[gone + 1 :]
            extra = list(program.inputs[program.given :])
            if program.transform.kind == "jvp":
                del extra[gone]
            yield prune(
                replace(
                    program,
                    inputs=(*program.inputs[: program.given], *extra),
                    transform=replace(program.transform, wrt=left),
                )
            )


def return_earlier(program: Program) -> Iterator[Program]:
    """A single earlier value as the result."""
    if program.transform.kind == "vjp":
        found = find_types(program)
    for at in range(program.given, program.given + len(program.nodes)):
        if at in program.outputs:
            continue
        changed = replace(program, outputs=(at,), out_specs=(None,))
        if program.transform.kind == "vjp":
            if not hasattr(found[at], "shape") or found[at].dtype.kind not in "fV":
                continue
            spec = ((),) * len(found[at].shape)
            fill = {"kind": "ints", "low": -3, "high": 3, "seed": 1}
            extra = Input(found[at].shape, found[at].dtype.name, spec, fill)
            changed = replace(changed, inputs=(*program.inputs[: program.given], extra))
        yield prune(changed)


def drop_node(program: Program) -> Iterator[Program]:
    """One operation replaced by a value of the same type that it reads, or by a new input."""
    found = find_types(program)
    for k in reversed(range(len(program.nodes))):
        at = program.given + k
        if not hasattr(found[at], "shape"):
            continue
        for other in sorted({*program.nodes[k].reads()}):
            if hasattr(found[other], "shape") and (found[other].shape, found[other].dtype) == (
                found[at].shape,
                found[at].dtype,
            ):
                yield _replaced(program, at, other)
        if len(program.inputs) < 8:
            yield from _as_input(program, at, found[at])


def _replaced(program: Program, at: int, other: int) -> Program:
    return prune(_redirected(program, at, other))


def _redirected(program: Program, at: int, other: int) -> Program:
    """The program that reads the value `other` where it read `at`."""
    refs = {at: {"v": other}}
    nodes = tuple(rename(n, refs) if program.given + k > at else n for k, n in enumerate(program.nodes))
    outputs = tuple(other if o == at else o for o in program.outputs)
    return replace(program, nodes=nodes, outputs=outputs)


def _as_input(program: Program, at: int, struct: Any) -> Iterator[Program]:
    """The value `at` as an input instead, with at most four shardings: that of its constraint, none, or one axis along
    one dimension that it divides."""
    given = program.given
    specs: list[Any] = [tuple(() for _ in struct.shape)]
    node = program.nodes[at - given]
    if node.op == "constrain":
        specs.insert(0, tuple(tuple(e) for e in node.args[1]))
    for name, size in program.axes:
        for d, n in enumerate(struct.shape):
            if n % size == 0:
                specs.append(tuple((name,) if i == d else () for i in range(len(struct.shape))))
    new = {i: {"v": i if i < given else i + 1} for i in range(given + len(program.nodes))}
    new[at] = {"v": given}
    nodes = tuple(rename(n, new) for n in program.nodes)
    outputs = tuple(new[o]["v"] for o in program.outputs)
    if len(set(specs)) > 4:
        specs = specs[:4]
    for spec in dict.fromkeys(specs):
        fill = {"kind": "ints", "low": -9, "high": 9, "seed": at}
        if struct.dtype.name == "bool" or struct.dtype.kind == "u":
            fill["low"] = 0
        item = Input(tuple(struct.shape), struct.dtype.name, spec, fill)
        inputs = (*program.inputs[:given], item, *program.inputs[given:])
        wrt = program.transform.wrt
        kind = program.transform.kind
        if kind == "vjp" and struct.dtype.kind in "fV":
            wrt = (*wrt, given)
        made = replace(
            program,
            inputs=inputs,
            nodes=nodes,
            outputs=outputs,
            transform=replace(program.transform, wrt=wrt),
        )
        if kind == "vjp":
            yield drop_unread_wrt(made)
        yield prune(made)


def drop_unread_wrt(program: Program) -> Program:
    """The program with a pull-back to only those inputs that the function reads."""
    plain = replace(program, transform=replace(program.transform, wrt=()))
    count = program.given
    keep = set(plain.outputs)
    for k in reversed(range(len(plain.nodes))):
        if count + k in keep:
            keep |= set(plain.nodes[k].reads())
    wrt = tuple(i for i in program.transform.wrt if i in keep)
    return prune(replace(program, transform=replace(program.transform, wrt=wrt or program.transform.wrt)))


def inline_bodies(program: Program) -> Iterator[Program]:
    """The body of a remat, custom_vjp, cond or switch (its first branch) or shard_map in place of the call."""
    for k, node in enumerate(program.nodes):
        if node.op not in ("remat", "custom_vjp", "cond", "switch", "shard_map") or not node.bodies:
            continue
        args = node.args[1:] if node.op in ("cond", "switch") else node.args
        yield from _inline(program, k, node.bodies[0], args)


def _inline(program: Program, k: int, body: Body, args: tuple[Any, ...]) -> Iterator[Program]:
    if len(body.outputs) != 1:
        return
    at = program.given + k
    own: dict[int, Any] = dict(enumerate(args))
    made = []
    for j, inner in enumerate(body.nodes):
        changed = replace(inner, args=renumber(inner.args, own), kwargs=renumber(inner.kwargs, own))
        made.append(changed)
        own[body.parameters + j] = {"v": at + j}
    result = own[body.outputs[0]]
    shift = len(made) - 1
    new: dict[int, Any] = {i: {"v": i + shift} for i in range(at + 1, program.given + len(program.nodes))}
    new[at] = result
    nodes = (*program.nodes[:k], *made, *(rename(n, new) for n in program.nodes[k + 1 :]))
    outputs = tuple(new[o]["v"] if o in new else o for o in program.outputs)
    yield prune(replace(program, nodes=nodes, outputs=outputs))


def shorten_bodies(program: Program) -> Iterator[Program]:
    """A body without one of its operations, replaced by an operand of it or by one of the first two parameters."""
    for k, node in enumerate(program.nodes):
        for b, body in enumerate(node.bodies):
            for j in reversed(range(len(body.nodes))):
                at = body.parameters + j
                for other in sorted({*body.nodes[j].reads(), *range(min(body.parameters, 2))}):
                    if other >= at:
                        continue
                    new: dict[int, Any] = {
                        i: {"v": i - 1} for i in range(at + 1, body.parameters + len(body.nodes))
                    }
                    new[at] = {"v": other}
                    nodes = [rename(n, new) for i, n in enumerate(body.nodes) if i != j]
                    outs = tuple(new[o]["v"] if o in new else o for o in body.outputs)
                    short = replace(body, nodes=tuple(nodes), outputs=outs)
                    bodies = (*node.bodies[:b], short, *node.bodies[b + 1 :])
                    yield _with_node(program, k, replace(node, bodies=bodies))


def drop_unread(program: Program) -> Iterator[Program]:
    """A shard_map without one of its results or arguments that nothing reads."""
    for k, node in enumerate(program.nodes):
        if node.op == "shard_map":
            yield from _without_result(program, k)
            yield from _without_parameter(program, k)


def _without_result(program: Program, k: int) -> Iterator[Program]:
    node, at = program.nodes[k], program.given + k
    body, specs = node.bodies[0], node.kwargs["out_specs"]
    items = {j: n.args[1] for j, n in enumerate(program.nodes) if n.op == "item" and n.args[0] == {"v": at}}
    for gone in set(range(len(specs))) - set(items.values()) if len(specs) > 1 else ():
        left = [n for n in range(len(specs)) if n != gone]
        less = replace(
            node,
            kwargs=node.kwargs | {"out_specs": [specs[n] for n in left]},
            bodies=(replace(body, outputs=tuple(body.outputs[n] for n in left)),),
        )
        made = _with_node(program, k, less)
        if len(left) == 1:  # its value is no tuple any more
            for j in items:
                made = _redirected(made, program.given + j, at)
        else:
            for j, n in items.items():
                made = _with_node(made, j, Node("item", ({"v": at}, left.index(n))))
        yield prune(made)


def _without_parameter(program: Program, k: int) -> Iterator[Program]:
    node = program.nodes[k]
    body = node.bodies[0]
    read = {*body.outputs, *(i for n in body.nodes for i in n.reads())}
    for gone in set(range(body.parameters)) - read if body.parameters > 1 else ():
        new = {i: i - (i > gone) for i in range(body.parameters + len(body.nodes))}
        refs = {old: {"v": i} for old, i in new.items()}
        less = Body(
            body.parameters - 1,
            tuple(rename(n, refs) for n in body.nodes),
            tuple(new[o] for o in body.outputs),
        )
        kwargs = node.kwargs | {"in_specs": _cut(node.kwargs["in_specs"], gone)}
        args = tuple(_cut(node.args, gone))
        yield prune(_with_node(program, k, replace(node, args=args, kwargs=kwargs, bodies=(less,))))


def _cut(items: Sequence[Any], gone: int) -> list[Any]:
    return [*items[:gone], *items[gone + 1 :]]


class _Watching(Builder):
    """A builder that notes the types of the parameters of every body that it traces."""

    seen: dict[int, list[Any]]

    def body(self, body: Body, values: list[Any]) -> Callable[..., Any]:
        inner = super().body(body, values)

        def function(*given: Any) -> Any:
            self.seen[id(body)] = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in map(jnp.asarray, given)]
            return inner(*given)

        return function


def isolate_body(program: Program) -> Iterator[Program]:
    """The body of an operation as the whole program, with new inputs: not sharded, or sharded over one axis."""
    builder = _Watching(program, "plain", None)
    builder.seen = {}
    structs = [jax.ShapeDtypeStruct(i.shape, dtype_of(i.dtype)) for i in program.inputs[: program.given]]
    jax.eval_shape(lambda *given: builder.run(program.nodes, list(given), [])[-1], *structs)
    for body in (b for n in program.nodes if n.op != "shard_map" for b in n.bodies):
        if id(body) not in builder.seen or not body.nodes:
            continue
        for spread in (None, *program.axes):
            inputs = tuple(_fresh(struct, spread) for struct in builder.seen[id(body)])
            for out in dict.fromkeys(body.outputs):
                yield prune(Program(program.axes, inputs, body.nodes, (out,), (None,)))


def _fresh(struct: Any, spread: tuple[str, int] | None) -> Input:
    """An input of small integers, sharded over the axis `spread` along the first dimension that its size divides."""
    shape, dtype = tuple(struct.shape), struct.dtype.name
    spec: list[tuple[str, ...]] = [()] * len(shape)
    fit = [d for d, n in enumerate(shape) if spread and n % spread[1] == 0]
    if spread and fit:
        spec[fit[0]] = (spread[0],)
    low = 0 if dtype == "bool" or dtype.startswith("uint") else -9
    return Input(shape, dtype, tuple(spec), {"kind": "ints", "low": low, "high": 9, "seed": len(shape)})


def _with_node(program: Program, k: int, node: Node) -> Program:
    return replace(program, nodes=(*program.nodes[:k], node, *program.nodes[k + 1 :]))


def simplify_specs(program: Program) -> Iterator[Program]:
    """Without the sharding of a result, or without one axis in the spec of a result, an input or a constraint."""
    for k, spec in enumerate(program.out_specs):
        if spec is not None:
            yield replace(program, out_specs=(*program.out_specs[:k], None, *program.out_specs[k + 1 :]))
            for less in _less(spec):
                yield replace(program, out_specs=(*program.out_specs[:k], less, *program.out_specs[k + 1 :]))
    for k, item in enumerate(program.inputs):
        for less in _less(item.spec):
            yield _with_input(program, k, replace(item, spec=less))
    for k, node in enumerate(program.nodes):
        if node.op == "constrain":
            for less in _less(tuple(tuple(e) for e in node.args[1])):
                args = (node.args[0], [list(e) for e in less])
                yield _with_node(program, k, replace(node, args=args))


def _less(spec: Any) -> Iterator[Any]:
    for d, entry in enumerate(spec):
        for axis in entry:
            yield tuple(tuple(a for a in e if a != axis) if i == d else e for i, e in enumerate(spec))


def _with_input(program: Program, k: int, item: Input) -> Program:
    return replace(program, inputs=(*program.inputs[:k], item, *program.inputs[k + 1 :]))


def reduce_devices(program: Program) -> Iterator[Program]:
    """Without one axis of the mesh, or with a smaller axis."""
    for k, (name, size) in enumerate(program.axes):
        if len(program.axes) > 1:
            yield drop_axis(program, k)
        for less in (2, size // 2, size - 1):
            if 1 < less < size:
                yield replace(program, axes=(*program.axes[:k], (name, less), *program.axes[k + 1 :]))


def drop_axis(program: Program, k: int) -> Program:
    """The program over a mesh without its axis k, which no sharding names any more."""
    name = program.axes[k][0]

    def rid(spec: Any) -> Any:
        return tuple(tuple(a for a in e if a != name) for e in spec)

    def without(node: Node) -> Node:
        bodies = tuple(replace(b, nodes=tuple(map(without, b.nodes))) for b in node.bodies)
        node = replace(node, bodies=bodies)
        if node.op == "constrain":
            return replace(node, args=(node.args[0], [list(e) for e in rid(node.args[1])]))
        if node.op == "shard_map":
            kwargs = dict(node.kwargs)
            for which in ("in_specs", "out_specs"):
                kwargs[which] = [[list(e) for e in rid(s)] for s in kwargs[which]]
            if "axes" in kwargs:
                kwargs["axes"] = [a for a in kwargs["axes"] if a != name]
            return replace(node, kwargs=kwargs)
        return node

    return replace(
        program,
        axes=program.axes[:k] + program.axes[k + 1 :],
        inputs=tuple(replace(i, spec=rid(i.spec)) for i in program.inputs),
        out_specs=tuple(None if s is None else rid(s) for s in program.out_specs),
        nodes=tuple(map(without, program.nodes)),
    )


def reduce_sizes(program: Program) -> Iterator[Program]:
    """One size made smaller: in all inputs and arguments, in all inputs, or in one dimension of one input."""
    sizes = sorted({n for i in program.inputs for n in i.shape if n > 1}, reverse=True)
    for size in sizes:
        for less in dict.fromkeys((1, 2, 3, 4, size // 2, size - 2, size - 1)):
            if 0 < less < size:
                yield _sized(program, {size: less})
                inputs = tuple(_resized(i, {size: less}) for i in program.inputs)
                yield replace(program, inputs=inputs)
    for k, item in enumerate(program.inputs):
        for d, n in enumerate(item.shape):
            for less in dict.fromkeys((1, 2, n // 2, n - 1)):
                if 0 < less < n:
                    shape = (*item.shape[:d], less, *item.shape[d + 1 :])
                    yield _with_input(program, k, refill(replace(item, shape=shape)))


def _sized(program: Program, new: dict[int, int]) -> Program:
    inputs = tuple(_resized(i, new) for i in program.inputs)
    return replace(program, inputs=inputs, nodes=tuple(_node_sized(n, new) for n in program.nodes))


def _node_sized(node: Node, new: dict[int, int]) -> Node:
    bodies = tuple(replace(b, nodes=tuple(_node_sized(n, new) for n in b.nodes)) for b in node.bodies)
    return replace(node, args=_numbers(node.args, new), kwargs=_numbers(node.kwargs, new), bodies=bodies)


def _numbers(expression: Any, new: dict[int, int]) -> Any:
    if isinstance(expression, dict):
        if "v" in expression or "outer" in expression:
            return expression
        return {k: _numbers(v, new) for k, v in expression.items()}
    if isinstance(expression, (list, tuple)):
        return type(expression)(_numbers(e, new) for e in expression)
    if isinstance(expression, int) and not isinstance(expression, bool):
        return new.get(expression, expression)
    return expression


def _resized(item: Input, new: dict[int, int]) -> Input:
    return refill(replace(item, shape=tuple(new.get(n, n) for n in item.shape)))


def refill(item: Input) -> Input:
    """An input whose literal data is cut to its size."""
    if item.fill["kind"] == "data" and len(item.fill["data"]) != item.size:
        return replace(item, fill=item.fill | {"data": item.fill["data"][: item.size]})
    return item


def simplify_arguments(program: Program) -> Iterator[Program]:
    """Without one option, or with one number closer to zero."""
    for k, node in enumerate(program.nodes):
        if node.op in ("shard_map", "item", "constrain"):
            continue
        for name in node.kwargs:
            kwargs = {n: v for n, v in node.kwargs.items() if n != name}
            yield _with_node(program, k, replace(node, kwargs=kwargs))
        for args in _nearer(node.args):
            yield _with_node(program, k, replace(node, args=args))
        for kwargs in _nearer(node.kwargs):
            yield _with_node(program, k, replace(node, kwargs=kwargs))


def _nearer(expression: Any) -> Iterator[Any]:
    if isinstance(expression, dict):
        if "v" in expression or "outer" in expression or "name" in expression:
            return
        for key, value in expression.items():
            for less in _nearer(value):
                yield expression | {key: less}
    elif isinstance(expression, (list, tuple)):
        for i, value in enumerate(expression):
            for less in _nearer(value):
                yield type(expression)((*expression[:i], less, *expression[i + 1 :]))
    elif isinstance(expression, int) and not isinstance(expression, bool) and expression:
        yield from dict.fromkeys(
            n
            for n in (0, 1, expression // 2, expression - 1 if expression > 0 else expression + 1)
            if n != expression and abs(n) <= abs(expression)
        )


def simplify_inputs(program: Program) -> Iterator[Program]:
    """An input of values 1, 2, 3 ...; literal data for small inputs; numbers closer to zero; float32 for all dtypes."""
    for k, item in enumerate(program.inputs):
        if item.fill["kind"] != "count":
            yield _with_input(program, k, replace(item, fill={"kind": "count"}))
        if item.fill["kind"] in ("ints", "distinct", "bits") and item.size <= 4:
            data = [int(n) for n in make_array(item).ravel()]
            yield _with_input(program, k, replace(item, fill={"kind": "data", "data": data}))
        if item.fill["kind"] == "data":
            for j, n in enumerate(item.fill["data"]):
                for less in dict.fromkeys((0, 1, n // 2, n - 1)):
                    if less != n and abs(less) <= abs(n):
                        data = [*item.fill["data"][:j], less, *item.fill["data"][j + 1 :]]
                        yield _with_input(program, k, replace(item, fill={"kind": "data", "data": data}))
    kinds = {i.dtype for i in program.inputs} - {"float32", "int32"}
    for kind in kinds:
        inputs = tuple(replace(i, dtype="float32") if i.dtype == kind else i for i in program.inputs)
        yield replace(program, inputs=inputs)


def narrow_dtypes(program: Program) -> Iterator[Program]:
    """32-bit types in place of 64-bit types."""
    if program.x64:
        text = json.dumps(to_json(replace(program, x64=False)))
        for wide, narrow in (("float64", "float32"), ("int64", "int32")):
            text = text.replace(wide, narrow)
        yield from_json(json.loads(text))


RULES: tuple[Rule, ...] = (
    drop_outputs,
    drop_transform,
    narrow_dtypes,
    return_earlier,
    drop_node,
    inline_bodies,
    isolate_body,
    shorten_bodies,
    drop_unread,
    reduce_devices,
    simplify_specs,
    reduce_sizes,
    simplify_arguments,
    simplify_inputs,
)
