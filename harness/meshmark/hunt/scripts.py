# SPDX-License-Identifier: Apache-2.0
"""Writes a program as a stand-alone script, with the printer of `meshmark repro`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshmark.judge.repro import printer
from meshmark.judge.repro.literals import INLINE, array_literal, count_of, dtype_code
from meshmark.judge.repro.text import Entry, literal, spelled, wrapped
from meshmark.program_data.program import Body, Node, Program
from meshmark.program_data.values import make_inputs

LETTERS = "abcdehijkmnopqrsuvwyz"
"""The names of inputs. f, g, l, t and x are left out: f and g are names of functions."""


def write_script(
    program: Program,
    mode: str,
    heading: Sequence[str],
    expected: Sequence[np.ndarray],
    numbers: bool = True,
) -> str:
    """The text of the script. Its exit code is 1 if the program is wrong, 0 if all is right.

    mode: the mode in which it is wrong. numbers: whether its numbers are wrong; else it does not run."""
    return printer.render(
        printer.Script(
            heading=tuple(heading),
            mesh=printer.Mesh(
                tuple(size for _, size in program.axes),
                tuple(name for name, _ in program.axes),
                program.mesh_size,
                explicit=mode == "explicit",
            ),
            inputs=tuple(
                printer.Input(name, tuple(_input_code(name, x)), _entries(i.spec))
                for name, x, i in zip(_names(program), make_inputs(program), program.inputs, strict=True)
            ),
            outputs=tuple(
                printer.Output(
                    dtype_code(e.dtype.name),
                    e.dtype.itemsize,
                    _entries(spec) if spec is not None else (),
                    "exact" if _exact(expected) else "bound",
                    "" if _exact(expected) else "1e-3",
                )
                for e, spec in zip(expected, _out_specs(program, len(expected)), strict=True)
            ),
            expected=tuple(_expected(program, expected)),
            function=_function(program),
            imports=tuple(_imports(program)),
            definitions=("\n".join(_definition(program)),),
            mode="explicit" if mode == "explicit" else "jit",
            out_shardings=not program.transform.kind and all(s is not None for s in program.out_specs),
            checks=(printer.NUMBERS,) if numbers else (printer.EXECUTE,),
            brief=True,
            nans=program.special,
            settings=('jax.config.update("jax_enable_x64", True)',) if program.x64 else (),
        )
    )


def _out_specs(program: Program, number: int) -> list[Any]:
    return [None] * number if program.transform.kind else list(program.out_specs)


def _exact(expected: Sequence[np.ndarray]) -> bool:
    def whole(e: np.ndarray) -> bool:
        wide = e.astype(float)
        return bool(((wide == np.round(wide)) | ~np.isfinite(wide)).all())

    return all(e.dtype.kind not in "fV" or whole(e) for e in expected)


def _names(program: Program) -> list[str]:
    return list(LETTERS[: len(program.inputs)])


def _entries(spec: Any) -> tuple[Entry, ...]:
    return tuple(None if not e else e[0] if len(e) == 1 else tuple(e) for e in spec)


def _imports(program: Program) -> list[str]:
    text = "\n".join(_definition(program))
    found = []
    if "jnp." in text:
        found.append("import jax.numpy as jnp")
    if " lax." in text or "(lax." in text:
        found.append("from jax import lax")
    return found


def _input_code(name: str, x: np.ndarray) -> list[str]:
    text = count_of(x) if x.size > 4 else ""
    text = text or array_literal(x)
    if not text:
        kind = dtype_code(x.dtype.name)
        data = x.astype(float).ravel() if x.dtype.kind in "fV" else x.ravel()
        items = ", ".join(_spell_number(v) for v in data.tolist())
        text = f"np.array([{items}], {kind}).reshape({', '.join(map(str, x.shape))})"
    return wrapped(f"{name} = {text}")


def _spell_number(value: Any) -> str:
    special = {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}.get(str(value))
    if special or str(value) == "-0.0":
        return special or "-0.0"
    return str(int(value)) if float(value).is_integer() else repr(value)


def _expected(program: Program, expected: Sequence[np.ndarray]) -> list[str]:
    if all(e.size <= INLINE and array_literal(e) for e in expected) and not any(
        n.op == "constrain" for n in program.nodes
    ):
        items = [array_literal(e) for e in expected]
        return wrapped(f"expected = {items[0]}") if len(items) == 1 else [f"expected = [{', '.join(items)}]"]
    text = ", ".join(
        array_literal(e) or f"np.array({e.tolist()}, {dtype_code(e.dtype.name)})" for e in expected
    )
    return wrapped(f"expected = {text}" if len(expected) == 1 else f"expected = [{text}]")


def _function(program: Program) -> str:
    """The source of the whole function, including its transform, as an expression."""
    kind, names = program.transform.kind, _names(program)
    if not kind:
        return "f"
    own, extra = names[: program.given], names[program.given :]
    chosen = [own[i] for i in program.transform.wrt]
    inner = f"lambda {', '.join(chosen)}: f({', '.join(own)})" if chosen != own else "f"
    if kind == "vjp":
        cotangents = extra[0] if len(extra) == 1 else f"({', '.join(extra)})"
        first = "[0]" if len(chosen) == 1 else ""
        return f"lambda {', '.join(names)}: jax.vjp({inner}, {', '.join(chosen)})[1]({cotangents}){first}"
    both = f"jax.jvp({inner}, ({', '.join(chosen)},), ({', '.join(extra)},))"
    return f"lambda {', '.join(names)}: jax.tree.leaves({both})"


def _definition(program: Program) -> list[str]:
    names = [*_names(program)[: program.given], *(f"v{k}" for k in range(len(program.nodes)))]
    lines = [f"def f({', '.join(names[: program.given])}):"]
    lines += _lines(program.nodes, names, program.given, [], "    ", "")
    return _returned(lines, [names[o] for o in program.outputs])


def _lines(
    nodes: Sequence[Node], names: list[str], first: int, outer: list[str], indent: str, prefix: str
) -> list[str]:
    lines = []
    for k, node in enumerate(nodes):
        functions = []
        for b, body in enumerate(node.bodies):
            name = f"{prefix}body{k}{'abc'[b] if len(node.bodies) > 1 else ''}"
            lines += [indent + line for line in _body(body, name, names)]
            if node.op == "custom_vjp":
                lines += [
                    f"{indent}{name}_ = jax.custom_vjp({name})",
                    f"{indent}{name}_.defvjp(lambda *p: jax.vjp({name}, *p), lambda pull, c: pull(c))",
                ]
                name += "_"
            functions.append(name)
        lines.append(f"{indent}{names[first + k]} = {_call(node, names, outer, functions)}")
    return lines


def _body(body: Body, name: str, outer: list[str]) -> list[str]:
    own = [*(f"p{k}" for k in range(body.parameters)), *(f"w{k}" for k in range(len(body.nodes)))]
    lines = [
        f"def {name}({', '.join(own[: body.parameters])}):",
        *_lines(body.nodes, own, body.parameters, outer, "    ", name),
    ]
    return _returned(lines, [own[o] for o in body.outputs])


def _returned(lines: list[str], results: list[str]) -> list[str]:
    """The lines of a function with its return. A single result that the last line binds is returned there."""
    bound = f"    {results[0]} = "
    if len(results) == 1 and lines[-1].startswith(bound):
        return [*lines[:-1], "    return " + lines[-1].removeprefix(bound)]
    return [*lines, f"    return {', '.join(results)}"]


def _call(node: Node, names: list[str], outer: list[str], functions: list[str]) -> str:
    """One operation as source."""

    def said(expression: Any) -> str:
        return _said(expression, names, outer)

    args = list(map(said, node.args))
    kwargs = [f"{k}={said(v)}" for k, v in node.kwargs.items()]
    op = node.op
    if op == "item":
        return f"{args[0]}[{node.args[1]}]"
    if op == "constrain":
        spec = spelled(_entries(node.args[1]))
        place = spec if node.kwargs.get("inside") else f"NamedSharding(mesh, {spec})"
        return f"jax.lax.with_sharding_constraint({args[0]}, {place})"
    if op == "getitem":
        return f"{args[0]}[{_index(node.args[1], said)}]"
    if op.startswith("at."):
        return f"{args[0]}.at[{_index(node.args[1], said)}].{op[3:]}({', '.join([*args[2:], *kwargs])})"
    if op in ("vmap", "remat"):
        call = "jax.vmap" if op == "vmap" else "jax.checkpoint"
        return f"{call}({', '.join([functions[0], *kwargs])})({', '.join(args)})"
    if op == "custom_vjp":
        return f"{functions[0]}({', '.join(args)})"
    if op in ("scan", "map"):
        return f"lax.{op}({', '.join([functions[0], *args, *kwargs])})"
    if op == "cond":
        return f"lax.cond({', '.join([args[0], *functions, *args[1:]])})"
    if op == "switch":
        return f"lax.switch({', '.join([args[0], '[' + ', '.join(functions) + ']', *args[1:]])})"
    if op == "while":
        test, turn = functions
        more = f"lambda c: (c[0] < {args[0]}) & {test}(c[1])"
        return f"lax.while_loop({more}, lambda c: (c[0] + 1, {turn}(*c)), (0, {args[1]}))[1]"
    if op == "fori":
        return f"lax.fori_loop({', '.join([*args[:2], functions[0], args[2]])})"
    if op == "shard_map":
        ins = ", ".join(spelled(_entries(s)) for s in node.kwargs["in_specs"])
        outs = [spelled(_entries(s)) for s in node.kwargs["out_specs"]]
        parts = [
            functions[0],
            "mesh=mesh",
            f"in_specs=({ins},)",
            f"out_specs={outs[0] if len(outs) == 1 else '(' + ', '.join(outs) + ')'}",
        ]
        if "axes" in node.kwargs:
            parts.append("axis_names={" + ", ".join(map(literal, node.kwargs["axes"])) + "}")
        if not node.kwargs.get("check_vma", True):
            parts.append("check_vma=False")
        return f"jax.shard_map({', '.join(parts)})({', '.join(args)})"
    return f"{_qualified_name(op)}({', '.join([*args, *kwargs])})"


def _qualified_name(name: str) -> str:
    return f"jax.{name}" if name.startswith("nn.") else name


def _index(expression: Any, said: Any) -> str:
    if isinstance(expression, (list, tuple)):
        return ", ".join(map(said, expression))
    return str(said(expression))


def _said(expression: Any, names: list[str], outer: list[str]) -> str:
    if isinstance(expression, dict):
        if "v" in expression:
            return names[expression["v"]]
        if "outer" in expression:
            return outer[expression["outer"]]
        if "name" in expression:
            return _qualified_name(expression["name"])
        if "float" in expression:
            return {"-inf": "-np.inf", "inf": "np.inf", "nan": "np.nan"}[expression["float"]]
        if "slice" in expression:
            start, stop, step = expression["slice"]
            text = f"{'' if start is None else start}:{'' if stop is None else stop}"
            return text if step is None else f"{text}:{step}"
        kwargs = ", ".join(f"{k}={_said(v, names, outer)}" for k, v in expression.get("kwargs", {}).items())
        return f"{_qualified_name(expression['call'])}({kwargs})"
    if isinstance(expression, (list, tuple)):
        inside = ", ".join(_said(e, names, outer) for e in expression)
        return f"({inside}{',' if len(expression) == 1 else ''})"
    return literal(expression)
