# SPDX-License-Identifier: Apache-2.0
"""The statements that make a case's inputs: written out, counted 1, 2, 3 ..., or drawn as the suite draws them.

A short statement is used only if it gives the suite's own array to the bit. Otherwise the suite's functions are copied.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.values import odd_rows, plus_minus
from meshmark.judge.repro.folding import Folded, Known, fold, is_literal, literal_known
from meshmark.judge.repro.formulas import agrees
from meshmark.judge.repro.literals import array_literal, bracketed, count_of, dtype_code, reshaped, unparse
from meshmark.judge.repro.sources import literal, tree_of
from meshmark.judge.repro.subject import Data, Subject, callee
from meshmark.judge.repro.trees import without_uint64
from meshmark.operations.base import Argument
from meshmark.operations.functions import contraction

RANDOM_BITS = """def random_bits(seed, index):
    z = (index + (seed + 1) * 0xD1B54A32D192ED03 % 2**64) * 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)"""
"""meshmark.core.values.random_bits, as NumPy 2 lets it be written."""

REAL = {contraction.odd: odd_rows, contraction.signs: plus_minus}
"""What these fills are for real dtypes."""


def inputs(subject: Subject, data: Data | None) -> list[list[str]]:
    """For each argument the statements that bind its name."""
    arguments = subject.plan.arguments
    if subject.form.inputs == "zeros":
        return [
            [f"{n} = np.zeros({a.shape}, {dtype_code(a.dtype)})"]
            for n, a in zip(subject.names, arguments, strict=True)
        ]
    if data is None:
        return [copied_input(subject, i) for i in range(len(arguments))]
    written = [array_literal(x) for x in data.inputs]
    if subject.form.inputs == "counted":
        written = [count_of(x) or w for w, x in zip(written, data.inputs, strict=True)]
    codes = [[f"{n} = {w}"] if w else [] for n, w in zip(subject.names, written, strict=True)]
    left = [i for i, code in enumerate(codes) if not code]
    if left:
        alike = shared(subject, left)
        inline = len(left) == 1 and not alike and one_call(subject, left[0])
        if not inline:
            subject.bundle.stand_in("meshmark.core.values", "random_bits", RANDOM_BITS)
        for i in left:
            made = alike.get(i) or seeded(subject, i, inline)
            space: dict[str, Any] = {"np": np, "ml_dtypes": ml_dtypes}
            try:
                exec("\n".join([*subject.bundle.parts, *made]), space)
                good = agrees(np.asarray(space[subject.names[i]]), data.inputs[i])
            except Exception:
                good = False
            codes[i] = made if good else copied_input(subject, i)
    return codes


def fill_of(subject: Subject, position: int) -> tuple[Folded | None, Any, Argument]:
    """(the fill of an argument folded for its dtype and shape, or None; the fill itself; the argument)."""
    a = subject.plan.arguments[position]
    fill: Any = a.fill
    options, shape = dict(a.options), a.shape
    if fill is contraction.arranged:
        fill = options.pop("fill")
        shape = tuple(int(np.prod([a.shape[d] for d in g])) for g in options.pop("groups"))
    if dtype_of(a.dtype).kind != "complex":
        fill = REAL.get(fill, fill)
    definition = tree_of(fill)
    if definition is None or not all(map(is_literal, options.values())):
        return None, fill, a
    known = {k: literal_known(v) for k, v in options.items()}
    known |= {"dtype": Known(dtype_of(a.dtype).numpy, dtype_code(a.dtype)), "shape": literal_known(shape)}
    return fold(fill, without_uint64(definition), known, callee), fill, a


def one_call(subject: Subject, position: int) -> bool:
    """Whether a folded fill draws no random bits beyond those that it is given."""
    folded, _, _ = fill_of(subject, position)
    return folded is not None and "random_bits" not in "".join(map(unparse, folded.body))


def seeded(subject: Subject, position: int, inline: bool) -> list[str]:
    """The statements that make an argument from random bits with its folded fill."""
    folded, fill, a = fill_of(subject, position)
    if folded is None:
        return copied_input(subject, position)
    count = int(np.prod(a.shape))
    arange = f"np.arange({count}, dtype=np.uint64)"
    body = list(map(unparse, folded.body))
    text = "\n".join(body)
    stream = subject.seed * 16 + position
    lines = []
    if re.search(r"\bindex\b", text):
        lines.append(f"index = {index_of(subject, position, arange)}")
    if inline:
        start = (stream + 1) * 0xD1B54A32D192ED03 % 2**64
        lines += [
            f"z = ({arange} + {start:#x}) * 0x9E3779B97F4A7C15",
            "z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9",
            "z = (z ^ (z >> 27)) * 0x94D049BB133111EB",
            "bits = z ^ (z >> 31)",
        ]
    elif re.search(r"\bbits\b", text):
        flat = "index" if lines and lines[0].endswith(arange) else arange
        lines.append(f"bits = random_bits({stream}, {flat})")
    resolved = subject.bundle.resolved("def f(bits, index):\n" + textwrap.indent(text, "    "), fill)
    body = textwrap.dedent(resolved.partition("\n")[2]).splitlines()
    last = body.pop().removeprefix("return ")
    reshape = f".reshape{reshaped(a.shape)}" if len(a.shape) != 1 else ""
    return [*lines, *body, f"{subject.names[position]} = {bracketed(last)}{reshape}"]


def index_of(subject: Subject, position: int, arange: str) -> str:
    """An expression of the flat index that a fill takes. An arranged fill takes it in the order of its groups."""
    a = subject.plan.arguments[position]
    if a.fill is not contraction.arranged:
        return arange
    order = [d for group in a.options["groups"] for d in group]
    if order == sorted(order):
        return arange
    moved = tuple(a.shape[d] for d in order)
    back = tuple(order.index(d) for d in range(len(order)))
    return f"{arange}.reshape{moved}.transpose{back}.ravel()"


def shared(subject: Subject, left: Sequence[int]) -> dict[int, list[str]]:
    """The statements of the arguments that share their folded fill with another: calls of one function of the
    script."""
    alike: dict[str, list[int]] = {}
    for i in left:
        folded, _, _ = fill_of(subject, i)
        text = "\n".join(map(unparse, folded.body)) if folded else "index"
        if not re.search(r"\bindex\b", text):
            alike.setdefault(text, []).append(i)
    made = {}
    for text, members in alike.items():
        if len(members) < 2:
            continue
        subject.bundle.stand_in("meshmark.core.values", "random_bits", RANDOM_BITS)
        _, fill, _ = fill_of(subject, members[0])
        body, _, last = text.rpartition("return ")
        source = (
            f"def {fill.__name__}(seed, *shape):\n"
            "    bits = random_bits(seed, np.arange(np.prod(shape), dtype=np.uint64))\n"
            + textwrap.indent(body, "    ")
            + f"    return {bracketed(last)}.reshape(shape)"
        )
        name = subject.bundle.define(fill.__name__, source, fill)
        for i in members:
            shape = ", ".join(map(str, subject.plan.arguments[i].shape))
            made[i] = [f"{subject.names[i]} = {name}({subject.seed * 16 + i}, {shape})"]
    return made


def copied_input(subject: Subject, position: int) -> list[str]:
    """The statements that make an argument with copies of the suite's own functions."""
    a = subject.plan.arguments[position]
    subject.bundle.stand_in("meshmark.core.values", "random_bits", RANDOM_BITS)
    fill = subject.bundle.add(a.fill)
    options = "".join(
        f", {k}={subject.bundle.add(v) if callable(v) else literal(v)}" for k, v in a.options.items()
    )
    count, name = int(np.prod(a.shape)), subject.names[position]
    return [
        f"index = np.arange({count}, dtype=np.uint64).reshape{reshaped(a.shape)}",
        f"bits = random_bits({subject.seed * 16 + position}, index)",
        f"{name} = {fill}(bits, index, {a.shape}, np.dtype({dtype_code(a.dtype)}){options})",
    ]
