"""A case of the table as a program that the printer takes: its spelling folded, its inputs and reference made short.

Nothing that is printed is believed: the statements that make the inputs and what is expected are run here, in NumPy,
and where they do not give the suite's own numbers to the bit, its functions are copied as they stand.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from meshmark import __version__
from meshmark.core import layout, values
from meshmark.core.calls import call, chosen
from meshmark.core.dtypes import dtype as dtype_of
from meshmark.judge.repro import contracts, printer
from meshmark.judge.repro.folding import (
    Folded,
    Known,
    fold,
    is_literal,
    literal_known,
    substituted,
    without_uint64,
)
from meshmark.judge.repro.formulas import agrees, arrangements, formula, gives
from meshmark.judge.repro.printer import CHECKS, COMMUNICATION, NUMBERS, Input, Output, Program
from meshmark.judge.repro.sources import Bundle, literal, tree_of
from meshmark.operations import contraction
from meshmark.operations.base import Argument, Result
from meshmark.operations.cases import Case, exactly

SPELLINGS = {"manual-novma": "manual", "pmap": "manual", "pjit": "auto"}
"""The modes that run another mode's spelling."""

INLINE = 32
"""The most elements of an array that is written out."""

MOST = 1 << 21
"""The most elements of a case whose script is shortened: more take too long to make and compare."""

RANDOM_BITS = """def random_bits(seed, index):
    z = (index + (seed + 1) * 0xD1B54A32D192ED03 % 2**64) * 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)"""
"""meshmark.core.values.random_bits, as NumPy 2 lets it be written."""

REAL = {contraction.odd: values.odd_rows, contraction.signs: values.plus_minus}
"""What these fills are for real dtypes."""

COUNTABLE = ("distinct", "special", "summands", "odd_rows", "odd", "plus_minus", "signs", "arranged")
"""The fills whose values may be 1, 2, 3 ... instead, where the case still fails with them."""


@dataclass(frozen=True)
class Form:
    """How a case is to be printed."""

    checks: tuple[str, ...] = CHECKS
    inputs: str = "seeded"
    """seeded: the suite's. counted: 1, 2, 3 ... zeros, where no value matters."""
    strict: bool = False
    """Whether compiled communication is read with the suite's own reader, which is long."""
    seen: tuple[str, ...] = ()
    """What a run showed, for the heading."""
    original: str = ""
    """The id of the case that this one is a smaller form of."""
    u_factor: float = 0.0
    """To what the devices round factors at default precision, where it is known."""


@dataclass
class Data:
    """The arrays of a case: what goes in and what should come out, as the program sees them."""

    inputs: list[np.ndarray]
    expected: list[np.ndarray]
    bounds: list[np.ndarray | None]


def script(case: Case, num_devices: int, seed: int = 0, form: Form = Form()) -> str:
    """The script of one case, for so many devices; ReproError where the table has what can't be printed."""
    return printer.render(read(case, num_devices, seed, form))


def read(case: Case, num_devices: int, seed: int = 0, form: Form = Form()) -> Program:
    """The case as a program."""
    return _Reader(case, num_devices, seed, form).program()


def callee(function: Any) -> Any:
    """The tree of a function of the suite, or None: it stays a call."""
    return tree_of(function) if function.__module__.split(".")[0] == "meshmark" else None


class _Reader:
    """Reads one case."""

    def __init__(self, case: Case, num_devices: int, seed: int, form: Form) -> None:
        self.case, self.num_devices, self.seed, self.form = case, num_devices, seed, form
        self.plan = case.plan
        self.cls = type(case.operation)
        self.names = self._argument_names()
        reserved = [*printer.NAMES, *self.names]
        self.bundle = Bundle(("meshmark", self.cls.__module__), reserved)
        self.elements = sum(int(np.prod(a.shape)) for a in (*self.plan.arguments, *self.plan.results))
        self.short = self.elements <= MOST

    # The whole

    def program(self) -> Program:
        """The program."""
        case, plan = self.case, self.plan
        data = self.data() if self.short and NUMBERS in self.form.checks else None
        checks = tuple(c for c in self.form.checks if c != COMMUNICATION or case.mode != "host")
        inputs, expected = self.arrays(data)
        mode = {"manual": "shard_map", "manual-novma": "shard_map", "auto": "jit"}.get(case.mode, case.mode)
        function = self.host_call() if mode == "host" else self.spelling()
        contract = (
            contracts.contract(case, self.bundle, self.form.strict) if COMMUNICATION in checks else None
        )
        forward = plan.forward or plan.results
        primals = plan.arguments[: len(plan.arguments) - len(plan.forward)]
        return Program(
            heading=tuple(self.heading()),
            mesh=printer.Mesh(
                case.mesh.shape,
                case.mesh.names,
                self.num_devices,
                tuple(case.mesh.ordinals.ravel().tolist()) if case.mesh.order else None,
                case.mode == "explicit",
            ),
            inputs=inputs,
            outputs=tuple(self.outputs(data)),
            expected=expected,
            function=function,
            imports=tuple(self.bundle.imports),
            definitions=tuple(self.bundle.parts),
            settings=('jax.config.update("jax_enable_x64", True)',)
            if "x64" in case.cell.capabilities
            else (),
            mode=mode,
            in_specs=tuple(a.spec for a in primals),
            out_specs=tuple(r.spec for r in forward),
            check_vma=case.mode != "manual-novma",
            vjp=self.pull_back() if plan.wrt else "",
            out_shardings=plan.placed,
            checks=checks,
            contract=contract,
        )

    def heading(self) -> Iterator[str]:
        """The lines of the docstring."""
        case = self.case
        about = inspect.getdoc(self.cls) or case.operation.name
        sentence = " ".join(about.split("\n\n")[0].split())
        yield from textwrap.wrap(f"{case.operation.name}, mode {case.mode}: {sentence}", printer.WIDTH)
        yield ""
        made = f"meshmark repro '{self.form.original or case.id}'" + (
            f" --seed {self.seed}" if self.seed else ""
        )
        yield f"Made by Meshmark {__version__}: {made}"
        if self.form.original and self.form.original != case.id:
            yield f"A smaller case that still fails: {case.id}"
        yield from self.form.seen

    # The function

    def _argument_names(self) -> list[str]:
        spelling = getattr(self.cls, SPELLINGS.get(self.case.mode, self.case.mode))
        names = [
            p.name
            for p in inspect.signature(spelling).parameters.values()
            if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "mesh"
        ]
        number = len(self.plan.arguments)
        if len(names) + len(self.plan.forward) == number and self.plan.wrt:
            names += [f"g{i}" if len(self.plan.forward) > 1 else "g" for i in range(len(self.plan.forward))]
        if len(names) != number or set(names) & set(printer.NAMES):
            names = [f"x{i}" for i in range(number)]
        return names

    def folded(self, function: Any, more: Mapping[str, Known] | None = None) -> Folded | None:
        """A spelling or reference for the plan's options; None where its source can't be folded."""
        definition = tree_of(function)
        if definition is None:
            return None
        options = chosen(function, self.plan.options)
        known = {k: literal_known(v) for k, v in options.items() if is_literal(v)}
        if len(known) < len(options):
            return None
        return fold(function, definition, known | dict(more or {}), callee)

    def spelling(self) -> str:
        """The function of the mode, as an expression."""
        function = getattr(self.cls, SPELLINGS.get(self.case.mode, self.case.mode))
        name = self.case.operation.name
        folded = self.folded(function)
        if folded is None:
            copied, options = self.bundle.add(function), chosen(function, self.plan.options)
            given = "".join(f", {k}={literal(v)}" for k, v in options.items())
            return f"lambda *arrays: {copied}(*arrays{given})"
        if folded.expression is not None:
            text = self.lambda_of(folded, function)
            if len(text) < printer.WIDTH - 12:
                return text
        header = f"def {name}({self.parameters(folded, function)}):\n"
        body = textwrap.indent("\n".join(map(unparse, folded.body)), "    ")
        return self.bundle.define(name, header + body, function)

    def parameters(self, folded: Folded, function: Any) -> str:
        """The parameters of a folded function as source."""
        star = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_POSITIONAL]
        return ", ".join(f"*{n}" if n in star else n for n in folded.parameters)

    def lambda_of(self, folded: Folded, function: Any) -> str:
        """A folded function of one expression as a lambda, with the script's names in it."""
        parameters = self.parameters(folded, function)
        head = f"lambda {parameters}: " if parameters else "lambda: "
        return self.bundle.resolved(head + unparse(folded.expression), function)

    def host_call(self) -> str:
        """The call of a host operation."""
        text = self.spelling()
        if text.startswith("lambda"):
            text = f"({text})"
        return f"{text}({', '.join(['mesh', *self.names])})"

    def pull_back(self) -> str:
        """The gradient as an expression of `function`: arguments and cotangents in, gradients out."""
        count = len(self.plan.arguments) - len(self.plan.forward)
        primals, seeds = self.names[:count], self.names[count:]
        wrt = [primals[i] for i in self.plan.wrt]
        of = "function" if wrt == primals else f"lambda {', '.join(wrt)}: function({', '.join(primals)})"
        seed = seeds[0] if len(seeds) == 1 else f"({', '.join(seeds)})"
        return f"lambda {', '.join(self.names)}: jax.vjp({of}, {', '.join(wrt)})[1]({seed})" + (
            "[0]" if len(wrt) == 1 else ""
        )

    # Arrays

    def data(self) -> Data:
        """The arrays, as the suite judges by them."""
        cell = self.case.cell
        given = cell.arguments(self.seed)
        if self.form.inputs == "counted":
            given = [counted(a, x) for a, x in zip(self.plan.arguments, given, strict=True)]
        expected, bounds = cell.expected(given, self.form.u_factor)
        return Data(given, [np.asarray(e) for e in expected], bounds)

    def arrays(self, data: Data | None) -> tuple[tuple[Input, ...], tuple[str, ...]]:
        """The inputs, and the statements that bind `expected`."""
        specs = [a.spec for a in self.plan.arguments]
        if self.case.mode == "pmap":
            specs = [("x",)] * len(specs)
        codes = self.inputs(data)
        expected = self.expected(data) if NUMBERS in self.form.checks else []
        if self.case.mode == "pmap":
            for name, a, code in zip(self.names, self.plan.arguments, codes, strict=True):
                code += self.stacked(name, a)
            expected = [*expected, *(self.stacked_expected() if expected else [])]
        made = (
            Input(name, tuple(w for line in code for w in printer.wrapped(line)), spec)
            for name, code, spec in zip(self.names, codes, specs, strict=True)
        )
        return tuple(made), tuple(w for line in expected for w in printer.wrapped(line))

    def inputs(self, data: Data | None) -> list[list[str]]:
        """For each argument the statements that bind its name."""
        arguments = self.plan.arguments
        if self.form.inputs == "zeros":
            return [
                [f"{n} = np.zeros({a.shape}, {dtype_code(a.dtype)})"]
                for n, a in zip(self.names, arguments, strict=True)
            ]
        if data is None:
            return [self.copied_input(i) for i in range(len(arguments))]
        written = [array_literal(x) for x in data.inputs]
        if self.form.inputs == "counted":
            written = [count_of(x) or w for w, x in zip(written, data.inputs, strict=True)]
        codes = [[f"{n} = {w}"] if w else [] for n, w in zip(self.names, written, strict=True)]
        left = [i for i, code in enumerate(codes) if not code]
        if left:
            shared = self.shared(left)
            inline = len(left) == 1 and not shared and self.one_call(left[0])
            if not inline:
                self.bundle.stand_in(values.random_bits, RANDOM_BITS)
            for i in left:
                made = shared.get(i) or self.seeded(i, inline)
                space: dict[str, Any] = {"np": np, "ml_dtypes": __import__("ml_dtypes"), "jax": None}
                try:
                    exec("\n".join([*self.bundle.parts, *made]), space)
                    good = agrees(np.asarray(space[self.names[i]]), data.inputs[i])
                except Exception:
                    good = False
                codes[i] = made if good else self.copied_input(i)
        return codes

    def fill_of(self, position: int) -> tuple[Folded | None, Any, Argument]:
        """The fill of an argument, folded for its dtype and shape."""
        a = self.plan.arguments[position]
        fill, options, shape = a.fill, dict(a.options), a.shape
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

    def one_call(self, position: int) -> bool:
        """Whether a fill draws random bits once only."""
        folded, _, _ = self.fill_of(position)
        return folded is not None and "random_bits" not in "".join(map(unparse, folded.body))

    def seeded(self, position: int, inline: bool) -> list[str]:
        """The statements that make an argument as the suite does."""
        folded, fill, a = self.fill_of(position)
        if folded is None:
            return self.copied_input(position)
        count = int(np.prod(a.shape))
        arange = f"np.arange({count}, dtype=np.uint64)"
        body = list(map(unparse, folded.body))
        text = "\n".join(body)
        stream = self.seed * 16 + position
        lines = []
        if re.search(r"\bindex\b", text):
            lines.append(f"index = {self.index_of(position, arange)}")
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
        resolved = self.bundle.resolved("def f(bits, index):\n" + textwrap.indent(text, "    "), fill)
        body = textwrap.dedent(resolved.partition("\n")[2]).splitlines()
        last = body.pop().removeprefix("return ")
        reshape = f".reshape{printer_shape(a.shape)}" if len(a.shape) != 1 else ""
        return [*lines, *body, f"{self.names[position]} = {bracketed(last)}{reshape}"]

    def index_of(self, position: int, arange: str) -> str:
        """The flat index that a fill is given: of an arranged one in the order of its groups."""
        a = self.plan.arguments[position]
        if a.fill is not contraction.arranged:
            return arange
        order = [d for group in a.options["groups"] for d in group]
        if order == sorted(order):
            return arange
        moved = tuple(a.shape[d] for d in order)
        back = tuple(order.index(d) for d in range(len(order)))
        return f"{arange}.reshape{moved}.transpose{back}.ravel()"

    def shared(self, left: Sequence[int]) -> dict[int, list[str]]:
        """The statements of those arguments of which several are made alike: by a function of the script."""
        alike: dict[str, list[int]] = {}
        for i in left:
            folded, _, _ = self.fill_of(i)
            text = "\n".join(map(unparse, folded.body)) if folded else "index"
            if not re.search(r"\bindex\b", text):
                alike.setdefault(text, []).append(i)
        made = {}
        for text, members in alike.items():
            if len(members) < 2:
                continue
            self.bundle.stand_in(values.random_bits, RANDOM_BITS)
            _, fill, _ = self.fill_of(members[0])
            body, _, last = text.rpartition("return ")
            source = (
                f"def {fill.__name__}(seed, *shape):\n"
                "    bits = random_bits(seed, np.arange(np.prod(shape), dtype=np.uint64))\n"
                + textwrap.indent(body, "    ")
                + f"    return {bracketed(last)}.reshape(shape)"
            )
            name = self.bundle.define(fill.__name__, source, fill)
            for i in members:
                shape = ", ".join(map(str, self.plan.arguments[i].shape))
                made[i] = [f"{self.names[i]} = {name}({self.seed * 16 + i}, {shape})"]
        return made

    def copied_input(self, position: int) -> list[str]:
        """An argument by the suite's own functions."""
        a = self.plan.arguments[position]
        self.bundle.stand_in(values.random_bits, RANDOM_BITS)
        fill = self.bundle.add(a.fill)
        options = "".join(
            f", {k}={self.bundle.add(v) if callable(v) else literal(v)}" for k, v in a.options.items()
        )
        count, name = int(np.prod(a.shape)), self.names[position]
        return [
            f"index = np.arange({count}, dtype=np.uint64).reshape{printer_shape(a.shape)}",
            f"bits = random_bits({self.seed * 16 + position}, index)",
            f"{name} = {fill}(bits, index, {a.shape}, np.dtype({dtype_code(a.dtype)}){options})",
        ]

    # What is expected

    def expected(self, data: Data | None) -> list[str]:
        """The statements that bind `expected`."""
        one = len(self.plan.results) == 1
        if data is not None:
            found = [self.result(data, i) for i in range(len(data.expected))]
            if all(found):
                return [f"expected = {found[0] if one else '[' + ', '.join(found) + ']'}"]
            short = self.short_reference(data, one)
            if short:
                return short
        return self.copied_reference(one)

    def result(self, data: Data, position: int) -> str:
        """One result written out, or as a formula of the only input; "" where neither is found."""
        wanted = data.expected[position]
        written = array_literal(wanted)
        if written:
            return written
        if len(data.inputs) != 1:
            return ""
        name = self.names[0]
        found = formula(name, data.inputs[0], wanted, self.positions())
        if not found and self.plan.judge != "bits" and data.inputs[0].dtype != wanted.dtype:
            wide = f"{name}.astype({dtype_code(wanted.dtype.name)})"
            found = formula("wide", data.inputs[0].astype(wanted.dtype), wanted).replace("wide", wide)
        return found

    def positions(self) -> np.ndarray | None:
        """Where each element of the result stands in the input (-1: it is zero), as the reference of the elements'
        numbers has it; None where it is not of data that moves."""
        if self.plan.judge != "bits" or len(self.plan.results) != 1:
            return None
        shape = self.plan.arguments[0].shape
        numbers = np.arange(1, int(np.prod(shape)) + 1, dtype=np.int64).reshape(shape)
        try:
            found = np.asarray(call(self.cls.reference, [numbers], self.plan.options))
        except (TypeError, ValueError, IndexError):
            return None
        inside = found.dtype == np.int64 and found.size and found.min() >= 0 and found.max() <= numbers.size
        return found - 1 if inside else None

    def short_reference(self, data: Data, one: bool) -> list[str]:
        """The folded reference on the inputs, if that gives the same numbers."""
        function = self.cls.gradient if self.plan.wrt else self.cls.reference
        folded = self.folded(function)
        if folded is None:
            return []
        if len(folded.parameters) != len(data.inputs):
            return []
        widened = []
        for name, x in zip(self.names, data.inputs, strict=True):
            wide = exactly(x.ravel()[:0], self.plan.judge).dtype
            widened.append(name if wide == x.dtype else f"{name}.astype({dtype_code(wide.name)})")
        before = len(self.bundle.parts), dict(self.bundle.imports)
        for arguments in dict.fromkeys((tuple(self.names), tuple(widened))):
            text = self.applied(folded, function, arguments)
            for cast in ("", self.cast_of_one() if one else ""):
                lines = [
                    f"expected = {bracketed(text) if cast else text}{cast}"
                    if one
                    else f"expected = {as_list(text)}"
                ]
                if self.same(lines, data, one):
                    return lines
        lines += self.cast(one)
        if self.same(lines, data, one):
            return lines
        del self.bundle.parts[before[0] :]
        self.bundle.imports = before[1]
        return []

    def applied(self, folded: Folded, function: Any, arguments: Sequence[str]) -> str:
        """A folded function of these expressions, as an expression."""
        given = dict(zip(folded.parameters, arguments, strict=True))
        expression = folded.expression
        used = (
            [n.id for n in ast.walk(expression) if isinstance(n, ast.Name)] if expression is not None else []
        )
        if expression is not None and all(used.count(p) <= 1 or g.isidentifier() for p, g in given.items()):
            text = self.bundle.resolved(f"lambda {', '.join(given)}: {unparse(expression)}", function)
            tree = ast.parse(text.partition(": ")[2], mode="eval").body
            return unparse(substituted(tree, {p: ast.parse(g, mode="eval").body for p, g in given.items()}))
        body = textwrap.indent("\n".join(map(unparse, folded.body)), "    ")
        head = f"def reference({', '.join(folded.parameters)}):\n"
        return f"{self.bundle.define('reference', head + body, function)}({', '.join(arguments)})"

    def same(self, lines: Sequence[str], data: Data, one: bool) -> bool:
        """Whether the statements give what the suite expects."""
        space: dict[str, Any] = dict(zip(self.names, data.inputs, strict=True))
        space |= {"np": np, "ml_dtypes": __import__("ml_dtypes")}
        imports = [line for line in self.bundle.imports if "jax" not in line]
        try:
            exec("\n".join([*imports, *self.bundle.parts, *lines]), space)
        except Exception:
            return False
        seen = [space["expected"]] if one else list(space["expected"])
        return len(seen) == len(data.expected) and all(
            agrees(np.asarray(s), w) for s, w in zip(seen, data.expected, strict=True)
        )

    def cast_of_one(self) -> str:
        """What gives the only result its dtype."""
        return "" if self.plan.judge == "bound" else f".astype({dtype_code(self.plan.results[0].dtype)})"

    def cast(self, one: bool) -> list[str]:
        """The statement that gives what is expected the dtypes of the results."""
        if self.plan.judge == "bound":
            return []
        kinds = [dtype_code(r.dtype) for r in self.plan.results]
        if one:
            return [f"expected = np.asarray(expected).astype({kinds[0]})"]
        if len(set(kinds)) == 1:
            return [f"expected = [np.asarray(e).astype({kinds[0]}) for e in expected]"]
        return [f"expected = [np.asarray(e).astype(t) for e, t in zip(expected, [{', '.join(kinds)}])]"]

    def copied_reference(self, one: bool) -> list[str]:
        """The suite's reference as it stands."""
        function = self.cls.gradient if self.plan.wrt else self.cls.reference
        name = self.bundle.add(function)
        options = "".join(f", {k}={literal(v)}" for k, v in chosen(function, self.plan.options).items())
        if self.plan.judge == "bits":
            arrays = ", ".join(self.names)
        else:
            exact = self.bundle.add(exactly)
            arrays = f"*[{exact}(a, {self.plan.judge!r}) for a in ({', '.join(self.names)},)]"
        text = f"{name}({arrays}{options})"
        return [f"expected = {text if one else f'list({text})'}", *self.cast(one)]

    def outputs(self, data: Data | None) -> Iterator[Output]:
        """What should come out, with its bounds."""
        sizes = self.case.mesh.sizes
        how, bounds = self.bounds(data)
        for r, bound in zip(self.plan.results, bounds, strict=True):
            axes = {a for e in r.spec for a in layout.axes_of(e)}
            kind = dtype_of(r.dtype)
            yield Output(
                dtype=dtype_code(r.dtype),
                itemsize=kind.itemsize,
                spec=("x",) if self.case.mode == "pmap" else r.spec,
                judge=self.plan.judge,
                bound=bound,
                bound_of=how,
                replicated=self.case.mode != "pmap" and any(n > 1 for a, n in sizes.items() if a not in axes),
                complex=kind.kind == "complex",
            )

    def bounds(self, data: Data | None) -> tuple[str, list[str]]:
        """(what the bounds are of, the bounds as expressions). Of each element, where the results are small; else
        the largest of each result, or the largest share of what is expected, whichever is closer."""
        if self.plan.judge != "bound" or NUMBERS not in self.form.checks:
            return "result", [""] * len(self.plan.results)
        data = data or self.data()
        own = [np.asarray(b) if b is not None else np.zeros(1) for b in data.bounds]
        if all(0 < b.size <= INLINE for b in own) and self.case.mode != "pmap":
            texts = []
            for b in own:
                shape = f".reshape{printer_shape(b.shape)}" if b.ndim != 1 else ""
                texts.append(f"np.array([{', '.join(map(up, b.ravel()))}]){shape}")
            return "element", texts
        largest = [float(b.max(initial=0.0)) for b in own]
        sizes = [np.abs(e) for e in data.expected]
        if all(size.size and size.min() > 0 for size in sizes):
            shares = [float((b / size).max()) for b, size in zip(own, sizes, strict=True)]
            if all(s * size.mean() < b for s, size, b in zip(shares, sizes, largest, strict=True)):
                return "share", list(map(up, shares))
        return "result", list(map(up, largest))

    # pmap

    def stacked(self, name: str, item: Argument | Result) -> list[str]:
        """The statement that cuts a global array into the stack of blocks that pmap takes."""
        return [f"{name} = {self.stack(name, item)}"]

    def stack(self, name: str, item: Argument | Result) -> str:
        """An expression of the stack of an array's blocks."""
        sizes = self.case.mesh.sizes
        numbers = np.arange(int(np.prod(item.shape)), dtype=np.int64).reshape(item.shape)
        wanted = np.stack(layout.split(numbers, item.spec, sizes))
        if numbers.size:
            for expression in arrangements("numbers", numbers, wanted):
                if gives(expression, "numbers", numbers, wanted):
                    return expression.replace("numbers", name)
        return (
            f"np.stack({self.bundle.add(layout.split)}({name}, {literal(item.spec)}, {literal(dict(sizes))}))"
        )

    def stacked_expected(self) -> list[str]:
        """The same of what is expected."""
        results = self.plan.results
        if len(results) == 1:
            return self.stacked("expected", results[0])
        lines = [self.stack(f"expected[{i}]", r) for i, r in enumerate(results)]
        return [f"expected = [{', '.join(lines)}]"]


# Source text ------------------------------------------------------------------------------------------------


def unparse(node: Any) -> str:
    """Source of a tree, strings in double quotes."""
    text = ast.unparse(ast.fix_missing_locations(node))
    return re.sub(r"(?<![\w\"'])'([^'\"\\\n]*)'", r'"\1"', text)


def bracketed(text: str) -> str:
    """An expression to which a method call can be appended."""
    tree = ast.parse(text, mode="eval").body
    return text if isinstance(tree, (ast.Call, ast.Name, ast.Subscript, ast.Attribute)) else f"({text})"


def as_list(text: str) -> str:
    """An expression of a tuple as one of a list, on several lines where it is long."""
    tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.Tuple):
        return f"list({text})"
    items = [unparse(e) for e in tree.elts]
    line = f"[{', '.join(items)}]"
    return line if len(line) < printer.WIDTH - 12 else "[\n" + "".join(f"    {i},\n" for i in items) + "]"


def printer_shape(shape: Sequence[int]) -> str:
    """A shape as the arguments of reshape."""
    return f"({', '.join(map(str, shape))})"


def dtype_code(name: str) -> str:
    """A dtype as source."""
    if name == "bool":
        return "bool"
    return f"np.{name}" if hasattr(np, name) else f"ml_dtypes.{name}"


def up(number: float) -> str:
    """A bound with few digits, rounded up."""
    if number == 0 or not np.isfinite(number):
        return repr(float(number))
    text = f"{number:.3g}"
    return text if float(text) >= number else f"{number * 1.005:.3g}"


def array_literal(array: np.ndarray) -> str:
    """A small array written out; "" where it is large, or where writing it would lose a bit."""
    if array.size > INLINE or not array.size:
        return f"np.zeros({array.shape}, {dtype_code(array.dtype.name)})" if not array.size else ""
    flat = array.ravel()
    if array.size > 4 and (flat == flat[0]).all() and array.dtype.kind in "iub":
        return f"np.full({array.shape}, {flat[0]}, {dtype_code(array.dtype.name)})"
    if array.dtype.kind in "iub":
        items = list(map(str, flat.tolist()))
    elif array.dtype.kind == "c":
        items = [repr(complex(v)) for v in flat]
    else:
        items = [str(v) for v in flat]
    items = [{"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}.get(i, i) for i in items]
    shape = "" if array.ndim == 1 else f".reshape{printer_shape(array.shape)}"
    text = f"np.array([{', '.join(items)}], {dtype_code(array.dtype.name)}){shape}"
    try:
        seen = eval(text, {"np": np, "ml_dtypes": __import__("ml_dtypes")})
    except Exception:
        return ""
    return text if agrees(seen, array) else ""


def counted(argument: Argument, given: np.ndarray) -> np.ndarray:
    """1, 2, 3 ... in the place of values that only have to be distinct; the given values where they are needed."""
    kind = dtype_of(argument.dtype)
    fits = given.size < 2**kind.digits and kind.kind in ("float", "int", "uint")
    if argument.fill.__name__ not in COUNTABLE or not fits:
        return given
    return np.arange(1, given.size + 1).astype(kind.numpy).reshape(given.shape)


def count_of(array: np.ndarray) -> str:
    """The expression of such an array; "" for any other."""
    kind = dtype_code(array.dtype.name)
    shape = "" if array.ndim == 1 else f".reshape{printer_shape(array.shape)}"
    text = f"np.arange(1, {array.size + 1}, dtype={kind}){shape}"
    if array.dtype.kind == "V":
        text = f"np.arange(1, {array.size + 1}).astype({kind}){shape}"
    if array.dtype.kind not in "fiuV":
        return ""
    return text if agrees(eval(text, {"np": np, "ml_dtypes": __import__("ml_dtypes")}), array) else ""


def exact_when_counted(case: Case) -> bool:
    """Whether every intermediate result is exact in any order of computing where the inputs are 1, 2, 3 ...: judged
    generously, by the reference of the absolute values times the number of devices."""
    plan = case.plan
    if plan.judge != "exact":
        return plan.judge == "bits"
    given = case.cell.arguments(0)
    inputs = [counted(a, x) for a, x in zip(plan.arguments, given, strict=True)]
    largest = 2.0 ** min(dtype_of(r.dtype).digits for r in (*plan.results, *plan.arguments))
    function = type(case.operation).gradient if plan.wrt else type(case.operation).reference
    found = call(function, [np.abs(exactly(x, "exact")) for x in inputs], plan.options)
    results = found if isinstance(found, (tuple, list)) else [found]
    return all(np.all(np.abs(np.asarray(r)) * case.mesh.size <= largest) for r in results)
