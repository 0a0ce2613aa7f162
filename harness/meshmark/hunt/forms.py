# SPDX-License-Identifier: Apache-2.0
"""Draws the forms: operations that take functions as arguments. The functions are their bodies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshmark.hunt.drawing import Draw, Miss, Value
from meshmark.hunt.levels import Level, are_accepted, numbered
from meshmark.program_data.program import Body, Node

if TYPE_CHECKING:
    from meshmark.hunt.generator import Drawing

BODY_CONSTRAINTS = 0.12
"""The probability of a sharding constraint after an operation inside a body."""

UNCHECKED = 0.25
"""The share of shard_maps with check_vma=False."""

NESTED = 0.3
"""The factor on SHARES for a form inside another form."""


def add(drawing: Drawing, level: Level, name: str) -> None:
    """Add a form with a body, over existing values. Raises Miss if none fits, and then changes nothing."""
    before = drawing.mark(level)
    rounded = drawing.rounded
    try:
        FORMS[name](drawing, level)
    except Miss:
        drawing.reset(level, before)
        drawing.rounded = rounded
        raise


def shares(level: Level) -> dict[str, float]:
    """The probability of each form at a level. Inside a shard_map only vmap, remat and map are possible: the carry or
    the branches of other forms must vary over the same axes."""
    if level.depth == 0:
        return SHARES
    if level.depth > 1:
        return {}
    fit = ("vmap", "remat", "map") if level.within else tuple(SHARES)
    return {name: NESTED * SHARES[name] for name in fit}


def choices(drawing: Drawing, level: Level) -> Draw:
    """Choices among the values of a level. Only the program itself can have new inputs, not a body."""
    return Draw(drawing.random, level.values, drawing.fresh if level.depth == 0 else None, drawing.axes)


def filled(
    drawing: Drawing,
    around: Level,
    types: Sequence[Value],
    length: int,
    manual: Sequence[tuple[str, int]] = (),
) -> Level:
    """The level of a body with parameters of these types, filled with operations."""
    params = [Value({"v": ("input", k)}, t.shape, t.dtype, t.below) for k, t in enumerate(types)]
    level = Level(around.depth + 1, list(params), [], tuple(manual), bool(manual) or around.within)
    for _ in range(length):
        drawing.step(level)
        if drawing.random.random() < BODY_CONSTRAINTS and (manual or not around.within):
            constrain(drawing, level)
    return level


def constrain(drawing: Drawing, level: Level) -> None:
    """Add a sharding constraint of the last value, over axes that are not manual."""
    last = level.values[-1]
    manual = {name for name, _ in level.manual}
    if len(manual) == len(drawing.axes) or last.dtype == "tuple" or not last.ndim:
        return
    spec = [[a for a in e if a not in manual] for e in drawing.spec(last.shape)]
    if any(spec):
        drawing.add(level, Node("constrain", (last.expression, spec), {"inside": True} if manual else {}))


def close(level: Level, parameters: int, outputs: Sequence[Value]) -> Body:
    """The body of a level that is drawn, as data. parameters: their number. outputs: the values that it returns."""
    nodes, outs = numbered(level.nodes, [v.expression for v in outputs], parameters)
    return Body(parameters, tuple(nodes), tuple(outs))


def _vmap(drawing: Drawing, level: Level) -> None:
    d = choices(drawing, level)
    a = d.value(ndim=1)
    at = d.integer(0, a.ndim - 1)
    others = [
        v for v in level.values if v.ndim and v.shape[0] == a.shape[at] and v is not a and v.dtype != "tuple"
    ]
    parts = [(a, at)]
    if others and d.chance(0.5):
        parts.append((d.choice(others), 0))
    types = [replace(v, shape=v.shape[:k] + v.shape[k + 1 :]) for v, k in parts]
    inside = filled(drawing, level, types, d.integer(1, 2))
    out = inside.values[-1]
    if out.dtype == "tuple" or out.expression["v"][0] == "input":
        raise Miss
    out_axis = d.integer(0, out.ndim)
    body = close(inside, len(types), [out])
    kwargs: dict[str, Any] = {"in_axes": [k for _, k in parts], "out_axes": out_axis}
    drawing.add(level, Node("vmap", tuple(v.expression for v, _ in parts), kwargs, (body,)))


def _remat(drawing: Drawing, level: Level) -> None:
    d = choices(drawing, level)
    a = d.value()
    inside = filled(drawing, level, [a], d.integer(1, 2))
    out = inside.values[-1]
    if out.dtype == "tuple" or out.expression["v"][0] == "input":
        raise Miss
    drawing.add(level, Node("remat", (a.expression,), {}, (close(inside, 1, [out]),)))


def _custom_vjp(drawing: Drawing, level: Level) -> None:
    d = choices(drawing, level)
    a = d.value(lambda v: v.is_float)
    inside = filled(drawing, level, [a], d.integer(1, 2))
    out = inside.values[-1]
    if not out.is_float or out.expression["v"][0] == "input":
        raise Miss
    drawing.add(level, Node("custom_vjp", (a.expression,), {}, (close(inside, 1, [out]),)))


def _map(drawing: Drawing, level: Level) -> None:
    d = choices(drawing, level)
    a = d.value(ndim=1)
    inside = filled(drawing, level, [replace(a, shape=a.shape[1:])], d.integer(1, 2))
    out = inside.values[-1]
    if out.dtype == "tuple" or out.expression["v"][0] == "input":
        raise Miss
    kwargs = {"batch_size": d.integer(2, 3)} if d.chance(0.2) else {}
    drawing.add(level, Node("map", (a.expression,), kwargs, (close(inside, 1, [out]),)))


def _scan(drawing: Drawing, level: Level) -> None:
    d = choices(drawing, level)
    xs = d.value(lambda v: v.ndim >= 1 and v.shape[0] <= 16 and v.is_number, 1)
    carry = d.number()
    inside = filled(drawing, level, [carry, replace(xs, shape=xs.shape[1:])], d.integer(1, 3))
    fit = [v for v in inside.values if v.shape == carry.shape and v.dtype == carry.dtype]
    ys = [v for v in inside.values if v.dtype != "tuple"]
    if len(fit) == 1:
        row = replace(xs, shape=xs.shape[1:])
        same = row.shape == carry.shape and row.dtype == carry.dtype
        if same:
            new = drawing.add(inside, Node("jnp.add", ({"v": ("input", 0)}, {"v": ("input", 1)})))
            fit.append(new)
    body = close(inside, 2, [fit[-1], ys[-1]])
    kwargs: dict[str, Any] = {"reverse": True} if d.chance(0.3) else {}
    if d.chance(0.15):
        kwargs["unroll"] = d.integer(2, 3)
    drawing.add(level, Node("scan", (carry.expression, xs.expression), kwargs, (body,)))


def _cond(drawing: Drawing, level: Level) -> None:
    d = choices(drawing, level)
    a = d.number()
    flags = [v for v in level.values if v.dtype == "bool" and not v.ndim]
    flag = d.choice(flags) if flags else d.like((), "bool")
    inside = filled(drawing, level, [a], d.integer(1, 2))
    fit = [v for v in inside.values[1:] if v.shape == a.shape and v.dtype == a.dtype]
    if not fit:
        raise Miss
    one, other = close(inside, 1, [fit[-1]]), Body(1, (), (0,))
    drawing.add(level, Node("cond", (flag.expression, a.expression), {}, (one, other)))


def _switch(drawing: Drawing, level: Level) -> None:
    """Two or three branches, chosen by an index that may be out of bounds. One of them returns its argument."""
    d = choices(drawing, level)
    a = d.number()
    index = [v for v in level.values if v.dtype == "int32" and not v.ndim]
    if index and d.chance(0.5):
        which = d.choice(index)
    else:
        which = d.like((), "int32", {"kind": "data", "data": [d.integer(-1, 3)]})
    branches = [Body(1, (), (0,))]
    for _ in range(d.integer(1, 2)):
        inside = filled(drawing, level, [a], d.integer(1, 2))
        fit = [v for v in inside.values[1:] if v.shape == a.shape and v.dtype == a.dtype]
        if not fit:
            raise Miss
        branches.insert(d.integer(0, 1), close(inside, 1, [fit[-1]]))
    drawing.add(level, Node("switch", (which.expression, a.expression), {}, tuple(branches)))


def _while(drawing: Drawing, level: Level) -> None:
    """A loop that ends after some turns, or earlier by a condition on the value. A rounded value has no condition."""
    d = choices(drawing, level)
    a = d.number()
    inside = filled(drawing, level, [Value(None, (), "int32"), a], d.integer(1, 2))
    fit = [v for v in inside.values[2:] if v.shape == a.shape and v.dtype == a.dtype]
    if not fit:
        raise Miss
    test = Level(level.depth + 1, [Value({"v": ("input", 0)}, a.shape, a.dtype)], [], (), level.within)
    bound = -(10**6) if drawing.rounded else d.choice([-40, -3, 0, 3])
    compared = Node("jnp.greater_equal", ({"v": ("input", 0)}, bound))
    truth = drawing.add(test, Node(d.choice(["jnp.any", "jnp.all"]), (compared,)))
    bodies = (close(test, 1, [truth]), close(inside, 2, [fit[-1]]))
    most: Any = d.integer(2, 4)
    if d.fresh and d.chance(0.3):
        most = d.like((), "int32", {"kind": "data", "data": [most]}).expression
    drawing.add(level, Node("while", (most, a.expression), {}, bodies))


def _fori(drawing: Drawing, level: Level) -> None:
    d = choices(drawing, level)
    a = d.number()
    index = Value(None, (), "int32")
    inside = filled(drawing, level, [index, a], d.integer(1, 2))
    fit = [v for v in inside.values[2:] if v.shape == a.shape and v.dtype == a.dtype]
    if not fit:
        raise Miss
    body = close(inside, 2, [fit[-1]])
    end: Any = d.integer(2, 4)
    if d.fresh and d.chance(0.3):  # not a constant, so the compiler does not know the length of the loop
        end = d.like((), "int32", {"kind": "data", "data": [end]}).expression
    drawing.add(level, Node("fori", (0, end, a.expression), {}, (body,)))


def _shard_map(drawing: Drawing, level: Level) -> None:
    d = choices(drawing, level)
    manual = [a for a in drawing.axes if d.chance(0.75)] or [d.choice(drawing.axes)]
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
    inside = filled(drawing, level, types, d.integer(1, 3), manual)
    out = inside.values[-1]
    if out.dtype == "tuple" or not out.ndim or out.expression["v"][0] == "input":
        raise Miss
    total = out.size * math.prod(n for _, n in manual)
    if total > 6000:
        raise Miss
    if not are_accepted(inside.nodes, [{a for e in entries for a in e} for entries in ins]):
        raise Miss
    entries = [[] for _ in out.shape]
    last = inside.nodes[-1]
    summed: list[str] = []
    if last.op in ("lax.psum", "lax.pmax", "lax.pmin", "lax.pmean") and d.chance(0.6):
        summed = [last.args[1]] if isinstance(last.args[1], str) else list(last.args[1])
    for name, _ in manual:
        if name not in summed:
            d.choice(entries).append(name)
    body = close(inside, len(types), [out])
    kwargs: dict[str, Any] = {"in_specs": ins, "out_specs": [entries]}
    if len(manual) < len(drawing.axes):
        kwargs["axes"] = [name for name, _ in manual]
    if d.chance(UNCHECKED):
        kwargs["check_vma"] = False
    drawing.add(level, Node("shard_map", tuple(v.expression for v in given), kwargs, (body,)))


SHARES = {
    "vmap": 0.06,
    "remat": 0.03,
    "custom_vjp": 0.015,
    "scan": 0.06,
    "cond": 0.025,
    "map": 0.025,
    "fori": 0.025,
    "while": 0.02,
    "switch": 0.02,
    "shard_map": 0.11,
}
"""The probability that an operation of a program is this form."""

FORMS: dict[str, Callable[[Drawing, Level], None]] = {
    "vmap": _vmap,
    "remat": _remat,
    "custom_vjp": _custom_vjp,
    "scan": _scan,
    "cond": _cond,
    "map": _map,
    "fori": _fori,
    "while": _while,
    "switch": _switch,
    "shard_map": _shard_map,
}
"""The function that draws each form."""
