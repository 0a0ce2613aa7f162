# SPDX-License-Identifier: Apache-2.0
"""Turns a case of the table into a program for the printer, with a folded function and short inputs and references.

The statements that make the inputs and the expected values are run here, in NumPy, before they are printed. If they do
not give the suite's own numbers to the bit, the suite's functions are copied.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from meshmark import __version__
from meshmark.core.calls import select_options
from meshmark.judge.repro import contracts, expecting, inputs, printer
from meshmark.judge.repro.folding import Folded
from meshmark.judge.repro.literals import unparse
from meshmark.judge.repro.printer import COMMUNICATION, NUMBERS, Input, Script
from meshmark.judge.repro.sources import literal
from meshmark.judge.repro.subject import Data, Form, Subject
from meshmark.judge.repro.text import WIDTH, wrapped
from meshmark.operations.cases import Case

WHOLE = Form()
"""A case as it is, with all checks."""


def script(case: Case, num_devices: int, seed: int = 0, form: Form = WHOLE) -> str:
    """The script of one case for `num_devices` devices; ReproError if it can't be printed."""
    return printer.render(read_case(case, num_devices, seed, form))


def read_case(case: Case, num_devices: int, seed: int = 0, form: Form = WHOLE) -> Script:
    """The case as a program."""
    return program(Subject(case, num_devices, seed, form))


def program(subject: Subject) -> Script:
    """The program of a subject."""
    case, plan = subject.case, subject.plan
    data = subject.data() if subject.short and NUMBERS in subject.form.checks else None
    checks = tuple(c for c in subject.form.checks if c != COMMUNICATION or case.mode != "host")
    given, expected, after = arrays(subject, data)
    mode = {"manual": "shard_map", "manual-novma": "shard_map", "auto": "jit"}.get(case.mode, case.mode)
    function = host_call(subject) if mode == "host" else spelling(subject)
    contract = (
        contracts.contract(case, subject.bundle, subject.form.reader) if COMMUNICATION in checks else None
    )
    forward = plan.forward or plan.results
    primals = plan.arguments[: len(plan.arguments) - len(plan.forward)]
    return Script(
        heading=tuple(heading(subject)),
        mesh=printer.Mesh(
            case.mesh.shape,
            case.mesh.names,
            subject.num_devices,
            tuple(case.mesh.ordinals.ravel().tolist()) if case.mesh.order else None,
            case.mode == "explicit",
        ),
        inputs=given,
        outputs=tuple(expecting.outputs(subject, data)),
        expected=expected,
        after=after,
        function=function,
        imports=tuple(subject.bundle.imports),
        definitions=tuple(subject.bundle.parts),
        settings=('jax.config.update("jax_enable_x64", True)',) if "x64" in case.cell.capabilities else (),
        nans=expecting.expects_nans(subject, data),
        mode=mode,
        in_specs=tuple(a.spec for a in primals),
        out_specs=tuple(r.spec for r in forward),
        check_vma=case.mode != "manual-novma",
        vjp=pull_back(subject) if plan.wrt else "",
        out_shardings=plan.placed,
        checks=checks,
        contract=contract,
        tupled=mode == "host" and len(plan.results) == 1 and expecting.gives_a_tuple(subject),
    )


def heading(subject: Subject) -> Iterator[str]:
    """The lines of the script's docstring."""
    case = subject.case
    sentence = case.operation.describe(case.cell.request.variant)
    yield from textwrap.wrap(f"{case.operation.name}, mode {case.mode}: {sentence}", WIDTH)
    yield ""
    made = f"meshmark repro '{subject.form.original or case.id}'" + (
        f" --seed {subject.seed}" if subject.seed else ""
    )
    yield f"Made by Meshmark {__version__}: {made}"
    if subject.form.original and subject.form.original != case.id:
        yield f"A smaller case that still fails: {case.id}"
    yield from subject.form.seen


def spelling(subject: Subject) -> str:
    """The function of the case's mode, as an expression."""
    function, name = subject.function, subject.case.operation.name
    folded = subject.folded(function)
    if folded is None:
        copied, options = subject.bundle.add(function), select_options(function, subject.plan.options)
        given = "".join(f", {k}={literal(v)}" for k, v in options.items())
        return f"lambda *arrays: {copied}(*arrays{given})"
    if folded.expression is not None:
        text = lambda_of(subject, folded, function)
        if len(text) < WIDTH - 12:
            return text
    header = f"def {name}({subject.parameters(folded, function)}):\n"
    body = textwrap.indent("\n".join(map(unparse, folded.body)), "    ")
    return subject.bundle.define(name, header + body, function)


def lambda_of(subject: Subject, folded: Folded, function: Any) -> str:
    """A folded function of one expression as a lambda, with the script's names in it."""
    parameters = subject.parameters(folded, function)
    head = f"lambda {parameters}: " if parameters else "lambda: "
    return subject.bundle.resolved(head + unparse(folded.expression), function)


def host_call(subject: Subject) -> str:
    """The call of a host operation."""
    text = spelling(subject)
    if text.startswith("lambda"):
        text = f"({text})"
    return f"{text}({', '.join(['mesh', *subject.names])})"


def pull_back(subject: Subject) -> str:
    """The gradient as an expression of `function`. It takes the arguments and cotangents and gives the gradients."""
    count = len(subject.plan.arguments) - len(subject.plan.forward)
    primals, seeds = subject.names[:count], subject.names[count:]
    wrt = [primals[i] for i in subject.plan.wrt]
    of = "function" if wrt == primals else f"lambda {', '.join(wrt)}: function({', '.join(primals)})"
    seed = seeds[0] if len(seeds) == 1 else f"({', '.join(seeds)})"
    return f"lambda {', '.join(subject.names)}: jax.vjp({of}, {', '.join(wrt)})[1]({seed})" + (
        "[0]" if len(wrt) == 1 else ""
    )


def arrays(subject: Subject, data: Data | None) -> tuple[tuple[Input, ...], tuple[str, ...], tuple[str, ...]]:
    """The inputs, the statements that bind `expected`, and those that stack the blocks of both for pmap."""
    arguments = subject.plan.arguments
    codes = inputs.inputs(subject, data)
    expected = expecting.expected(subject, data) if NUMBERS in subject.form.checks else []
    after: list[str] = []
    specs = [a.spec for a in arguments]
    if subject.case.mode == "pmap":
        specs = [("x",)] * len(specs)
        for name, a in zip(subject.names, arguments, strict=True):
            after += expecting.stacked(subject, name, a)
        after += expecting.stacked_expected(subject) if expected else []
    made = (
        Input(name, _wrapped(code), spec)
        for name, code, spec in zip(subject.names, codes, specs, strict=True)
    )
    return tuple(made), _wrapped(expected), tuple(after)


def _wrapped(lines: list[str]) -> tuple[str, ...]:
    return tuple(part for line in lines for part in wrapped(line))
