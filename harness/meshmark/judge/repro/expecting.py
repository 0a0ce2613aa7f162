# SPDX-License-Identifier: Apache-2.0
"""The statements that bind the expected results of a case's program, and their bounds.

Small results are written out. A larger one is a formula of the input, if one gives the reference's numbers to the bit.
Otherwise it is the reference with the case's options written in, if that gives them when it is run here, or else a copy
of the reference.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from meshmark.core import layout
from meshmark.core.calls import call, select_options
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.judge.checks import has_special_values
from meshmark.judge.repro.folding import Folded
from meshmark.judge.repro.formulas import agrees, arrangements, formula, gives
from meshmark.judge.repro.literals import (
    INLINE,
    array_literal,
    as_list,
    bracketed,
    dtype_code,
    reshaped,
    unparse,
    up,
)
from meshmark.judge.repro.printer import NUMBERS, Output
from meshmark.judge.repro.sources import literal
from meshmark.judge.repro.subject import Data, Subject
from meshmark.judge.repro.trees import substituted
from meshmark.operations.base import Argument, Result
from meshmark.operations.cases import exactly


def expected(subject: Subject, data: Data | None) -> list[str]:
    """The statements that bind `expected`."""
    one = len(subject.plan.results) == 1
    if data is not None:
        found = [result(subject, data, i) for i in range(len(data.expected))]
        if all(found):
            return [f"expected = {found[0] if one else '[' + ', '.join(found) + ']'}"]
        short = short_reference(subject, data, one)
        if short:
            return short
    return copied_reference(subject, one)


def result(subject: Subject, data: Data, position: int) -> str:
    """One result written out, or as a formula of the only input; "" if neither is possible."""
    wanted = data.expected[position]
    written = array_literal(wanted)
    if written:
        return written
    if len(data.inputs) != 1:
        return ""
    name = subject.names[0]
    found = formula(name, data.inputs[0], wanted, positions(subject))
    if not found and subject.plan.judge != "bits" and data.inputs[0].dtype != wanted.dtype:
        wide = f"{name}.astype({dtype_code(wanted.dtype.name)})"
        found = formula("wide", data.inputs[0].astype(wanted.dtype), wanted).replace("wide", wide)
    return found


def positions(subject: Subject) -> np.ndarray | None:
    """The flat position in the first input of each element of the result, -1 for a zero. The reference gives it, called
    with the numbers of the elements. None for a program that does not only move data."""
    if subject.plan.judge != "bits" or len(subject.plan.results) != 1:
        return None
    shape = subject.plan.arguments[0].shape
    numbers = np.arange(1, int(np.prod(shape)) + 1, dtype=np.int64).reshape(shape)
    try:
        found = np.asarray(call(subject.reference, [numbers], subject.plan.options))
    except (TypeError, ValueError, IndexError):
        return None
    inside = found.dtype == np.int64 and found.size and found.min() >= 0 and found.max() <= numbers.size
    return found - 1 if inside else None


def short_reference(subject: Subject, data: Data, one: bool) -> list[str]:
    """The statements that call the folded reference on the inputs; [] if they do not give the same numbers."""
    folded = subject.folded(subject.reference)
    if folded is None:
        return []
    if len(folded.parameters) != len(data.inputs):
        return []
    widened = []
    for name, x in zip(subject.names, data.inputs, strict=True):
        wide = exactly(x.ravel()[:0], subject.plan.judge).dtype
        widened.append(name if wide == x.dtype else f"{name}.astype({dtype_code(wide.name)})")
    before = subject.bundle.marked()
    for arguments in dict.fromkeys((tuple(subject.names), tuple(widened))):
        text = applied(subject, folded, arguments)
        for kind in ("", cast_of_one(subject) if one else ""):
            lines = [
                f"expected = {bracketed(text) if kind else text}{kind}"
                if one
                else f"expected = {as_list(text)}"
            ]
            if same(subject, lines, data, one):
                return lines
    lines += cast(subject, one)
    if same(subject, lines, data, one):
        return lines
    subject.bundle.back_to(before)
    return []


def applied(subject: Subject, folded: Folded, arguments: Sequence[str]) -> str:
    """An expression: the call of a folded function with these arguments, or its body with them in place."""
    given = dict(zip(folded.parameters, arguments, strict=True))
    expression = folded.expression
    used = [n.id for n in ast.walk(expression) if isinstance(n, ast.Name)] if expression is not None else []
    if expression is not None and all(used.count(p) <= 1 or g.isidentifier() for p, g in given.items()):
        text = subject.bundle.resolved(f"lambda {', '.join(given)}: {unparse(expression)}", subject.reference)
        tree = ast.parse(text.partition(": ")[2], mode="eval").body
        return unparse(substituted(tree, {p: ast.parse(g, mode="eval").body for p, g in given.items()}))
    body = textwrap.indent("\n".join(map(unparse, folded.body)), "    ")
    head = f"def reference({', '.join(folded.parameters)}):\n"
    return f"{subject.bundle.define('reference', head + body, subject.reference)}({', '.join(arguments)})"


def same(subject: Subject, lines: Sequence[str], data: Data, one: bool) -> bool:
    """Whether the statements give the suite's expected results, to the bit."""
    space: dict[str, Any] = dict(zip(subject.names, data.inputs, strict=True))
    space |= {"np": np, "ml_dtypes": ml_dtypes}
    imports = [line for line in subject.bundle.imports if "jax" not in line]
    try:
        exec("\n".join([*imports, *subject.bundle.parts, *lines]), space)
    except Exception:
        return False
    seen = [space["expected"]] if one else list(space["expected"])
    return len(seen) == len(data.expected) and all(
        agrees(np.asarray(s), w) for s, w in zip(seen, data.expected, strict=True)
    )


def cast_of_one(subject: Subject) -> str:
    """The call of `astype` that gives the only result its dtype; "" for results that are judged by a bound."""
    return "" if subject.plan.judge == "bound" else f".astype({dtype_code(subject.plan.results[0].dtype)})"


def cast(subject: Subject, one: bool) -> list[str]:
    """The statement that converts the expected results to the dtypes of the results; [] if a bound judges them."""
    if subject.plan.judge == "bound":
        return []
    kinds = [dtype_code(r.dtype) for r in subject.plan.results]
    if one:
        return [f"expected = np.asarray(expected).astype({kinds[0]})"]
    if len(set(kinds)) == 1:
        return [f"expected = [np.asarray(e).astype({kinds[0]}) for e in expected]"]
    return [f"expected = [np.asarray(e).astype(t) for e, t in zip(expected, [{', '.join(kinds)}])]"]


def copied_reference(subject: Subject, one: bool) -> list[str]:
    """The statements that call a copy of the suite's reference."""
    name = subject.bundle.add(subject.reference)
    options = "".join(
        f", {k}={literal(v)}" for k, v in select_options(subject.reference, subject.plan.options).items()
    )
    if subject.plan.judge == "bits":
        arrays = ", ".join(subject.names)
    else:
        exact = subject.bundle.add(exactly)
        arrays = f"*[{exact}(a, {subject.plan.judge!r}) for a in ({', '.join(subject.names)},)]"
    text = f"{name}({arrays}{options})"
    bound = "[expected]" if one and gives_a_tuple(subject) else "expected"
    return [f"{bound} = {text if one else f'list({text})'}", *cast(subject, one)]


def gives_a_tuple(subject: Subject) -> bool:
    """Whether the reference of a case with one result gives it in a tuple, as some gradients do."""
    plan = subject.plan
    arrays = [exactly(a, plan.judge) for a in subject.case.cell.arguments(subject.seed)]
    with np.errstate(all="ignore"):
        return isinstance(call(subject.reference, arrays, plan.options), (tuple, list))


def outputs(subject: Subject, data: Data | None) -> Iterator[Output]:
    """The description of each result, with its bound."""
    sizes = subject.case.mesh.sizes
    how, limits = bounds(subject, data)
    for r, bound in zip(subject.plan.results, limits, strict=True):
        axes = {a for e in r.spec for a in layout.axes_of(e)}
        kind = dtype_of(r.dtype)
        yield Output(
            dtype=dtype_code(r.dtype),
            itemsize=kind.itemsize,
            spec=("x",) if subject.case.mode == "pmap" else r.spec,
            judge=subject.plan.judge,
            bound=bound,
            bound_of=how,
            replicated=subject.case.mode != "pmap" and any(n > 1 for a, n in sizes.items() if a not in axes),
            complex=kind.kind == "complex",
        )


def expects_nans(subject: Subject, data: Data | None) -> bool:
    """Whether a result may hold NaN or infinities, which no difference tells from other values."""
    if data is None:
        return has_special_values(subject.case.cell)
    return any(e.dtype.kind not in "biu" and not np.isfinite(e).all() for e in data.expected)


def bounds(subject: Subject, data: Data | None) -> tuple[str, list[str]]:
    """(`Output.bound_of`, the bounds as expressions). Small results have a bound per element. Larger ones have their
    largest bound, or the largest bound relative to the expected value, whichever is closer."""
    if subject.plan.judge != "bound" or NUMBERS not in subject.form.checks:
        return "result", [""] * len(subject.plan.results)
    data = data or subject.data()
    own = [np.asarray(b) if b is not None else np.zeros(1) for b in data.bounds]
    if not all(np.isfinite(b).all() for b in own):  # special values: theirs are compared without a bound
        return "result", [up(float(b[np.isfinite(b)].max(initial=0.0))) for b in own]
    if all(0 < b.size <= INLINE for b in own) and subject.case.mode != "pmap":
        texts = []
        for b in own:
            shape = f".reshape{reshaped(b.shape)}" if b.ndim != 1 else ""
            texts.append(f"np.array([{', '.join(map(up, b.ravel()))}]){shape}")
        return "element", texts
    largest = [float(b.max(initial=0.0)) for b in own]
    sizes = [np.abs(e) for e in data.expected]
    if all(size.size and size.min() > 0 for size in sizes):
        shares = [float((b / size).max()) for b, size in zip(own, sizes, strict=True)]
        if all(s * size.mean() < b for s, size, b in zip(shares, sizes, largest, strict=True)):
            return "share", list(map(up, shares))
    return "result", list(map(up, largest))


# Stacks of blocks, for pmap ----------------------------------------------------------------------------------


def stacked(subject: Subject, name: str, item: Argument | Result) -> list[str]:
    """The statement that turns a global array into the stack of blocks that pmap takes."""
    return [f"{name} = {stack(subject, name, item)}"]


def stack(subject: Subject, name: str, item: Argument | Result) -> str:
    """An expression of the stack of an array's blocks."""
    sizes = subject.case.mesh.sizes
    numbers = np.arange(int(np.prod(item.shape)), dtype=np.int64).reshape(item.shape)
    wanted = np.stack(layout.split(numbers, item.spec, sizes))
    if numbers.size:
        for expression in arrangements("numbers", numbers, wanted):
            if gives(expression, "numbers", numbers, wanted):
                return expression.replace("numbers", name)
    return (
        f"np.stack({subject.bundle.add(layout.split)}({name}, {literal(item.spec)}, {literal(dict(sizes))}))"
    )


def stacked_expected(subject: Subject) -> list[str]:
    """The statement that does the same with the expected results."""
    results = subject.plan.results
    if len(results) == 1:
        return stacked(subject, "expected", results[0])
    lines = [stack(subject, f"expected[{i}]", r) for i, r in enumerate(results)]
    return [f"expected = [{', '.join(lines)}]"]
