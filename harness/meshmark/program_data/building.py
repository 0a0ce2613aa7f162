# SPDX-License-Identifier: Apache-2.0
"""Makes a JAX function from the data of a program, in one of three styles.

"plain" has no sharding: `constrain` does nothing, and shard_map becomes one call of its body per device or, with
collectives, vmap with axis names. "auto" and "explicit" are the program over its mesh, with axes of that type.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.program_data.meanings import COLLECTIVES, MEANINGS
from meshmark.program_data.program import Body, Node, Program, ProgramError, Spec, walk_nodes
from meshmark.program_data.values import dtype_of

ROOTS = {"jax": jax, "jnp": jnp, "lax": lax, "nn": jax.nn}
"""The module by the first part of a function's name."""

STYLES = ("plain", "auto", "explicit")


def find_function(name: str) -> Any:
    """The function with a name such as lax.add; ProgramError if this release of JAX does not have it."""
    first, *rest = name.split(".")
    try:
        return functools.reduce(getattr, rest, ROOTS[first])
    except (KeyError, AttributeError):
        raise ProgramError(f"this JAX has no {name}") from None


def make_spec(spec: Spec) -> P:
    """The jax.sharding.PartitionSpec of a spec of a program."""
    return P(*(None if not e else e[0] if len(e) == 1 else tuple(e) for e in spec))


def mesh_of(program: Program, devices: Sequence[Any], explicit: bool = False) -> Mesh:
    """The program's mesh over the first devices. explicit: its axes are Explicit, otherwise Auto."""
    shape = [size for _, size in program.axes]
    names = tuple(name for name, _ in program.axes)
    kinds = (AxisType.Explicit if explicit else AxisType.Auto,) * len(names)
    return Mesh(np.array(devices[: program.mesh_size]).reshape(shape), names, axis_types=kinds)


def permute_devices(devices: Sequence[Any]) -> list[Any]:
    """The devices in another order."""
    backwards = [*reversed(devices)]
    return [*backwards[1:], backwards[0]]


class Builder:
    """Builds the functions of one program over one mesh (None for the style "plain")."""

    def __init__(self, program: Program, style: str, mesh: Mesh | None) -> None:
        self.program, self.style, self.mesh = program, style, mesh
        self.dtypes: dict[int, Any] = {}
        """The dtype of the value of each node that was built, by the node's identity; of a tuple a list of them."""

    def function(self, keep: bool = False) -> Callable[..., Any]:
        """The program, including its transform, as a function of its inputs that gives a tuple of results.

        keep: leave the transform out, and give (results, largest absolute value of all floats in the program).
        """
        program = self.program

        def plain(*given: Any) -> Any:
            values = self.run(program.nodes, list(given), [])
            if keep:
                return tuple(values[i] for i in program.outputs), find_largest(values, program.special)
            return tuple(values[i] for i in program.outputs)

        kind, wrt = program.transform.kind, program.transform.wrt
        if keep or not kind:
            return lambda *args: plain(*args[: program.given])

        def transformed(*args: Any) -> Any:
            given, extra = list(args[: program.given]), args[program.given :]

            def of_wrt(*chosen: Any) -> Any:
                merged = list(given)
                for at, value in zip(wrt, chosen, strict=True):
                    merged[at] = value
                return plain(*merged)

            chosen = tuple(given[i] for i in wrt)
            if kind == "vjp":
                _, pull = jax.vjp(of_wrt, *chosen)
                return tuple(pull(tuple(extra)))
            if kind == "jvp":
                results, tangents = jax.jvp(of_wrt, chosen, tuple(extra))
                return (*results, *tangents)
            raise ProgramError(f"unknown transform {kind!r}: choose from vjp, jvp")

        return transformed

    def run(self, nodes: Sequence[Node], values: list[Any], outer: list[Any]) -> list[Any]:
        """Append the value of each node to `values`, and give `values`."""
        for node in nodes:
            value = self.node(node, values, outer)
            self.dtypes[id(node)] = name_dtypes(value)
            values.append(value)
        return values

    def node(self, node: Node, values: list[Any], outer: list[Any]) -> Any:
        """The value of one operation."""

        def value(expression: Any) -> Any:
            return self.value(expression, values, outer)

        if node.op in FORMS:
            return FORMS[node.op](self, node, value, values)
        kwargs = {k: value(v) for k, v in node.kwargs.items()}
        function = MEANINGS.get(node.op) if self.style == "plain" else None
        return (function or find_function(node.op))(*map(value, node.args), **kwargs)

    def value(self, expression: Any, values: list[Any], outer: list[Any]) -> Any:
        """The value of an expression."""
        if isinstance(expression, dict):
            if "v" in expression:
                return values[expression["v"]]
            if "outer" in expression:
                return outer[expression["outer"]]
            if "name" in expression:
                return find_function(expression["name"])
            if "float" in expression:
                return float(expression["float"])
            if "slice" in expression:
                return slice(*expression["slice"])
            kwargs = {k: self.value(v, values, outer) for k, v in expression.get("kwargs", {}).items()}
            return find_function(expression["call"])(**kwargs)
        if isinstance(expression, (list, tuple)):
            return tuple(self.value(item, values, outer) for item in expression)
        return expression

    def body(self, body: Body, values: list[Any]) -> Callable[..., Any]:
        """A body as a function. It gives its only result, or a tuple of several results."""

        def function(*given: Any) -> Any:
            own = self.run(body.nodes, list(given), values)
            found = tuple(own[i] for i in body.outputs)
            return found[0] if len(found) == 1 else found

        return function


def find_largest(values: Sequence[Any], finite: bool = False) -> Any:
    """The largest absolute value of all floats, as a float32 scalar; of the finite ones only, if `finite`."""
    found = jnp.zeros((), jnp.float32)
    for value in jax.tree.leaves(list(values)):
        if hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.inexact) and value.size:
            sizes = jnp.abs(value)
            if finite:
                sizes = jnp.where(jnp.isfinite(sizes), sizes, 0)
            found = jnp.maximum(found, jnp.max(sizes).astype(jnp.float32))
    return found


def find_types(program: Program) -> list[Any]:
    """The type of each value of the function before its transform: a ShapeDtypeStruct or a tuple of them. Raises JAX's
    own errors."""
    builder = Builder(program, "plain", None)
    structs = [jax.ShapeDtypeStruct(i.shape, dtype_of(i.dtype)) for i in program.inputs[: program.given]]
    with jax.enable_x64(program.x64):
        return list(jax.eval_shape(lambda *given: builder.run(program.nodes, list(given), []), *structs))


def name_dtypes(value: Any) -> Any:
    """The name of the dtype of a value, or a list of names for a tuple."""
    if isinstance(value, (tuple, list)):
        return [name_dtypes(item) for item in value]
    return jax.dtypes.result_type(value).name


def find_dtypes(program: Program) -> list[Any]:
    """The dtype of the value of each operation, in the order of `walk_nodes`, as names. Raises JAX's own errors."""
    builder = Builder(program, "plain", None)
    structs = [jax.ShapeDtypeStruct(i.shape, dtype_of(i.dtype)) for i in program.inputs[: program.given]]
    with jax.enable_x64(program.x64):
        jax.eval_shape(lambda *given: tuple(builder.run(program.nodes, list(given), [])), *structs)
    return [builder.dtypes[id(node)] for node in walk_nodes(program.nodes)]


# Forms: operations that are not a plain call -------------------------------------------------------------------


def _constrain(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    x = value(node.args[0])
    if builder.mesh is None:
        return x
    spec = make_spec(node.args[1])
    if builder.style == "explicit":
        return jax.sharding.reshard(x, spec)
    # inside shard_map the mesh of the context has the information which axes are manual
    place = spec if node.kwargs.get("inside") else NamedSharding(builder.mesh, spec)
    return lax.with_sharding_constraint(x, place)


def _item(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    return value(node.args[0])[node.args[1]]


def _getitem(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    return value(node.args[0])[value(node.args[1])]


def _at(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    place = value(node.args[0]).at[value(node.args[1])]
    kwargs = {k: value(v) for k, v in node.kwargs.items()}
    return getattr(place, node.op.removeprefix("at."))(*map(value, node.args[2:]), **kwargs)


def _vmap(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    kwargs = {k: value(v) for k, v in node.kwargs.items()}
    return jax.vmap(builder.body(node.bodies[0], values), **kwargs)(*map(value, node.args))


def _remat(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    return jax.checkpoint(builder.body(node.bodies[0], values))(*map(value, node.args))


def _custom_vjp(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    """A function with its own derivative rule, which equals the rule that JAX would derive."""
    body = builder.body(node.bodies[0], values)
    function = jax.custom_vjp(body)
    function.defvjp(lambda *given: jax.vjp(body, *given), lambda pull, cotangent: pull(cotangent))
    return function(*map(value, node.args))


def _scan(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    return lax.scan(builder.body(node.bodies[0], values), *map(value, node.args), **node.kwargs)


def _map(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    return lax.map(builder.body(node.bodies[0], values), value(node.args[0]), **node.kwargs)


def _cond(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    branches = [builder.body(b, values) for b in node.bodies]
    return lax.cond(value(node.args[0]), *branches, *map(value, node.args[1:]))


def _fori(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    low, high, start = map(value, node.args)
    return lax.fori_loop(low, high, builder.body(node.bodies[0], values), start)


def _switch(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    branches = [builder.body(b, values) for b in node.bodies]
    return lax.switch(value(node.args[0]), branches, *map(value, node.args[1:]))


def _while(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    """The arguments are the most turns and the start. The bodies are the condition, of the value alone, and a turn, of
    the number of the turn and the value."""
    test, turn = (builder.body(b, values) for b in node.bodies)
    most, start = map(value, node.args)
    found = lax.while_loop(
        lambda carry: (carry[0] < most) & test(carry[1]),
        lambda carry: (carry[0] + 1, turn(*carry)),
        (0, start),
    )
    return found[1]


def _shard_map(builder: Builder, node: Node, value: Callable[..., Any], values: list[Any]) -> Any:
    """The node's kwargs are in_specs, out_specs, axes (the manual axes; all axes if missing) and check_vma."""
    ins, outs = node.kwargs["in_specs"], node.kwargs["out_specs"]
    axes = node.kwargs.get("axes") or [name for name, _ in builder.program.axes]
    body = builder.body(node.bodies[0], values)
    given = list(map(value, node.args))
    if builder.style == "plain":
        over = jax.vmap if communicates(node.bodies[0]) else _call_each
        return _on_one_device(
            body, given, ins, outs, {n: s for n, s in builder.program.axes if n in axes}, over
        )
    options: dict[str, Any] = {"check_vma": node.kwargs.get("check_vma", True)}
    if builder.style == "auto":
        options["mesh"] = builder.mesh
    out_specs = [make_spec(s) for s in outs]
    function = jax.shard_map(
        body,
        in_specs=tuple(make_spec(s) for s in ins),
        out_specs=out_specs[0] if len(outs) == 1 else tuple(out_specs),
        axis_names=set(axes),
        **options,
    )
    return function(*given)


def communicates(body: Body) -> bool:
    """Whether a body has a collective, or reads the place of its device."""
    return any(n.op.removeprefix("lax.") in (*COLLECTIVES, "axis_index") for n in walk_nodes(body.nodes))


def _call_each(
    function: Callable[..., Any],
    in_axes: Sequence[int | None],
    out_axes: int,
    axis_name: str,
    axis_size: int,
) -> Callable[..., Any]:
    """As jax.vmap, but one call per row: the truth of a body without collectives needs no rule of vmap."""

    def over(*given: Any) -> Any:
        rows = [
            function(*(x if at is None else x[k] for x, at in zip(given, in_axes, strict=True)))
            for k in range(axis_size)
        ]
        return jax.tree.map(lambda *found: jnp.stack(found), *rows)

    return over


def _on_one_device(
    body: Callable[..., Any],
    given: list[Any],
    ins: Sequence[Spec],
    outs: Sequence[Spec],
    sizes: dict[str, int],
    over: Callable[..., Any],
) -> Any:
    """The same results as shard_map's, on one device: the body for every index of every axis, by `over`, which is
    jax.vmap or as it."""
    split = []
    for x, spec in zip(given, ins, strict=True):
        shape: list[int] = []
        at = {}
        for d, dim in enumerate(x.shape):
            entry = spec[d] if d < len(spec) else ()
            for a in entry:
                at[a] = len(shape)
                shape.append(sizes[a])
            shape.append(dim // math.prod(sizes[a] for a in entry))
        order = [at[a] for a in sizes if a in at]
        moved = x.reshape(shape).transpose([*order, *(i for i in range(len(shape)) if i not in order)])
        split.append((moved, [0 if a in at else None for a in sizes]))
    function = body
    for k in reversed(range(len(sizes))):
        function = over(
            function,
            in_axes=tuple(flags[k] for _, flags in split),
            out_axes=0,
            axis_name=list(sizes)[k],
            axis_size=list(sizes.values())[k],
        )
    found = function(*(x for x, _ in split))
    found = found if isinstance(found, tuple) else (found,)
    merged = []
    names = list(sizes)
    for x, spec in zip(found, outs, strict=True):
        used = [a for entry in spec for a in entry]
        x = x[tuple(slice(None) if a in used else 0 for a in names)]
        left = [a for a in names if a in used]
        order, shape = [], []
        for d in range(x.ndim - len(left)):
            entry = spec[d] if d < len(spec) else ()
            order += [left.index(a) for a in entry] + [len(left) + d]
            shape.append(x.shape[len(left) + d] * math.prod(sizes[a] for a in entry))
        merged.append(x.transpose(order).reshape(shape))
    return merged[0] if len(merged) == 1 else tuple(merged)


FORMS: dict[str, Callable[..., Any]] = {
    "constrain": _constrain,
    "item": _item,
    "getitem": _getitem,
    **{f"at.{m}": _at for m in ("get", "set", "add", "multiply", "min", "max", "apply")},
    "vmap": _vmap,
    "remat": _remat,
    "custom_vjp": _custom_vjp,
    "scan": _scan,
    "map": _map,
    "cond": _cond,
    "switch": _switch,
    "fori": _fori,
    "while": _while,
    "shard_map": _shard_map,
}
"""The forms, by their name in the data of programs."""
