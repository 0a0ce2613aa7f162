# SPDX-License-Identifier: Apache-2.0
"""Draws the functions of `meshmark.hunt.functions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshmark.hunt.drawing import INTS, Draw, Miss, Value, kind
from meshmark.hunt.elementwise import ref
from meshmark.hunt.functions import EXACT, OPTIONS, ROUGH, ROUNDED, STEPS, Row, list_functions
from meshmark.program_data.program import Node

TYPES: dict[str, Callable[[Value], bool]] = {
    "number": lambda v: v.is_number,
    "float": lambda v: v.is_float,
    "float32": lambda v: v.dtype == "float32",
    "integer": lambda v: v.dtype in INTS,
    "boolean": lambda v: v.dtype == "bool",
    "complex": lambda v: v.dtype.startswith("complex"),
}
"""The condition of each type of operand. A domain is one of floats."""


def restrict(a: Value, domain: str) -> Any:
    """An expression in a domain of floats or integers that depends smoothly on a value."""
    if domain in ("positive", "above"):
        return Node("jnp.add", (Node("jnp.sin", (ref(a),)), 1.5 if domain == "positive" else 2.5))
    if domain == "nonzero":
        return Node("jnp.add", (Node("jnp.multiply", (ref(a), 2)), 1))
    if domain in ("unit", "small"):
        return Node("jnp.multiply", (Node("jnp.sin", (ref(a),)), 0.75 if domain == "unit" else 3))
    if domain == "fraction":
        return Node("jnp.add", (Node("jnp.multiply", (Node("jnp.sin", (ref(a),)), 0.375)), 0.5))
    if domain == "odd":
        return Node("jnp.bitwise_or", (ref(a), 1))
    if domain == "places":
        return Node("jnp.bitwise_and", (ref(a), 7))
    return ref(a)


def _second(d: Draw, a: Value, domain: str, exactly: bool) -> Any:
    """Another operand beside `a`: of its dtype, and of its shape or (unless `exactly`) of one that broadcasts to it."""
    if domain == "halves":
        return d.choice([0.5, 2.0, 3.0, -4.0]) if not exactly else _filled(a, d.choice([2, 3, -4]))
    if domain == "exponents":
        return d.integer(0, 3)
    if domain == "places" and not exactly and d.chance(0.4):
        return d.integer(0, 7)
    fit = [v for v in d.values if v.dtype == a.dtype and v.shape == a.shape]
    if not exactly and d.chance(0.5):
        fit += [
            v
            for v in d.values
            if v.dtype == a.dtype
            and v.ndim <= a.ndim
            and all(n in (1, m) for n, m in zip(reversed(v.shape), reversed(a.shape), strict=False))
        ]
    other = d.choice(fit) if d.chance(0.6) or not d.fresh else d.like(a.shape, a.dtype)
    return restrict(other, domain)


def _filled(a: Value, number: int) -> Node:
    return Node("jnp.full_like", (ref(a), number))


def draw_function(d: Draw, rows: Sequence[Row], types: Sequence[str] = ()) -> Node:
    """A function of these rows. types: those of its first operand (a domain is of floats); all types if empty."""
    by_form: dict[tuple[str, ...], list[str]] = {}
    for name, operands in list_functions(tuple(rows)):
        if not types or (operands[0] if operands[0] in TYPES else "float") in types:
            by_form.setdefault(operands, []).append(name)
    fit = {o: names for o, names in by_form.items() if any(accepts(o[0], v) for v in d.values)}
    if not fit:
        raise Miss
    operands = d.random.choices(list(fit), [len(names) for names in fit.values()])[0]
    name = d.choice(fit[operands])
    a = d.value(lambda v: accepts(operands[0], v))
    exactly = not name.startswith("jnp.")
    others = [_second(d, a, domain, exactly) for domain in operands[1:]]
    options = OPTIONS.get(name, {}).items()
    kwargs = {k: d.choice(v) for k, v in options if d.chance(0.5)}
    return Node(name, (restrict(a, operands[0]), *others), kwargs)


def accepts(domain: str, v: Value) -> bool:
    """Whether a value can be an operand of this type or domain."""
    return TYPES.get(domain, TYPES["float"])(v)


@kind("elementwise", weight=1.5)
def exact_function(d: Draw) -> Node:
    """A function that is exact for integers, and continuous."""
    return draw_function(d, EXACT, ("number", "float", "float32"))


@kind("elementwise", weight=2, continuous=False)
def step_function(d: Draw) -> Node:
    """A function that is exact for integers, and jumps, or takes integers or booleans."""
    return draw_function(d, STEPS, ("number", "float", "integer", "boolean"))


@kind("elementwise", weight=2.5, rounds=True)
def rounded_function(d: Draw) -> Node:
    """A function whose results are rounded."""
    return draw_function(d, ROUNDED, ("float",))


@kind("elementwise", weight=0.3)
def function_of_complex(d: Draw) -> Node:
    """An exact function of complex numbers, or a complex number from two floats."""
    return draw_function(d, EXACT, ("complex", "float32"))


@kind("elementwise", weight=0.2, rounds=True)
def rounded_function_of_complex(d: Draw) -> Node:
    """A function of complex numbers whose results are rounded."""
    return draw_function(d, ROUNDED, ("complex",))


@kind("elementwise", weight=0.2, rounds=True, continuous=False)
def rough_function(d: Draw) -> Node:
    """A function whose results are rounded and jump."""
    return draw_function(d, ROUGH, ("float", "complex"))


@kind("elementwise", weight=0.3, rounds=True)
def integer_power(d: Draw) -> Node:
    """A power with a constant exponent, a polynomial, or a polygamma function."""
    a = d.floating()
    which = d.choice(["lax.integer_pow", "jnp.power", "lax.polynomial", "lax.polygamma", "jnp.float_power"])
    if which == "lax.polygamma":
        return Node(which, (d.choice([1.0, 2.0]), restrict(a, "positive")))
    if which == "lax.polynomial":
        return Node(which, (restrict(a, "small"), [1.0, -2.0, 3.0]))
    return Node(which, (restrict(a, "positive") if which == "jnp.float_power" else ref(a), d.integer(2, 3)))


@kind("elementwise", weight=0.5, continuous=False)
def selected_elements(d: Draw) -> Node:
    """Elements of two or three values, chosen by conditions or by an index."""
    a = d.number(0)
    others = [ref(d.like(a.shape, a.dtype)) for _ in range(2)]
    test = Node("jnp.greater", (ref(a), d.integer(-1, 2)))
    which = d.choice(["lax.select", "lax.select_n", "jnp.select", "jnp.choose", "jnp.piecewise", "jnp.place"])
    if which == "lax.select":
        return Node(which, (test, ref(a), others[0]))
    if which == "lax.select_n":
        index = Node("lax.convert_element_type", (test, "int32")) if d.chance(0.5) else test
        return Node(which, (index, ref(a), others[0]))
    if which == "jnp.select":
        later = Node("jnp.less", (ref(a), d.integer(-2, 0)))
        return Node(which, ([test, later], [ref(a), others[0]], d.choice([0, 7])))
    if which == "jnp.choose":
        fill = {"kind": "ints", "low": 0, "high": 2, "seed": d.integer(0, 999)}
        index = ref(d.like(a.shape, "int32", fill))
        return Node(which, (index, [ref(a), *others]), {"mode": d.choice(["clip", "wrap"])})
    if which == "jnp.piecewise":
        return Node(which, (ref(a), [test], [{"name": "jnp.negative"}, {"name": "jnp.square"}]))
    return Node(which, (ref(a), test, Node("jnp.ravel", (others[0],))), {"inplace": False})


@kind("elementwise", weight=0.4, continuous=False)
def bounded(d: Draw) -> Node:
    """lax.clamp, jnp.clip with one bound, or a lower precision."""
    a = d.floating()
    if d.chance(0.4):
        return Node("lax.clamp", (float(d.integer(-3, 0)), ref(a), float(d.integer(1, 3))))
    if d.chance(0.5):
        return Node("jnp.clip", (ref(a),), {d.choice(["min", "max"]): d.integer(-2, 2)})
    return Node("lax.reduce_precision", (ref(a), d.choice([5, 8]), d.choice([3, 7, 10])))
