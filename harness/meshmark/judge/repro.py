"""One case as one stand-alone script that needs only jax and numpy: what a bug report wants.

The script is made from the table itself. The spelling, the reference, the input values and the comparison are
the suite's own functions: their source is copied together with whatever they use, recursively, less type
annotations, so that no second copy can drift from what was judged. The last part of this module is what every
script runs; it is ordinary code here, and text there. Nothing here starts a JAX backend.
"""

from __future__ import annotations

import ast
import inspect
import re
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import jax
import numpy as np

from meshmark import __version__
from meshmark.core.calls import chosen
from meshmark.core.dtypes import as_bits
from meshmark.core.errors import BadInput
from meshmark.core.layout import indices, normal, split
from meshmark.core.values import flat_index, random_bits, whole
from meshmark.judge.programs import pulled_back
from meshmark.operations.cases import Case, exactly

SPELLINGS = {"manual-novma": "manual", "pmap": "manual", "pjit": "auto"}
"""The modes that run another mode's spelling."""


VARIABLES = (
    *(
        "mesh",
        "order",
        "sizes",
        "inputs",
        "in_specs",
        "out_specs",
        "forward_specs",
        "exact",
        "expected",
        "bounds",
    ),
    *("function", "types", "program", "shardings", "placed", "compiled", "outputs", "good"),
    *("i", "output", "want", "bound", "spec", "parts"),
)
"""The names that the last part of a script assigns."""


STAND_INS = (("meshmark.core.bounds", "Bounded"),)
"""What is not copied, but replaced by what this module has of the same name."""


class ReproError(BadInput, ValueError):
    """A case that can't be printed as a script; the message is one line."""


# Copying source ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A module's source: its lines, the statement that binds each global, the functions by first line."""

    lines: list[str]
    globals: dict[str, ast.stmt]
    functions: dict[int, list[Any]]


@cache
def source(module: ModuleType) -> Source:
    """Read a module's source."""
    text = inspect.getsource(module)
    tree = ast.parse(text)
    functions: dict[int, list[Any]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            functions.setdefault(_first_line(node), []).append(node)
    found = {name: statement for statement in tree.body for name in _bound_names(statement)}
    return Source(text.splitlines(keepends=True), found, functions)


def _first_line(node: Any) -> int:
    """The line in which a definition starts, decorators included."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


Edit = tuple[tuple[int, int], tuple[int, int], str]
"""Replace what stands between two (line, column) positions of the ast."""


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text with these edits, which do not overlap."""
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    places = [(starts[a - 1] + b, starts[c - 1] + d, new) for (a, b), (c, d), new in edits]
    for start, end, new in sorted(places, reverse=True):
        data = data[:start] + new.encode() + data[end:]
    return data.decode()


def _start(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: Any) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset


@cache
def unannotated(text: str) -> str:
    """The source of one statement without the annotations of functions and variables; those in the body of a
    class stay, since dataclasses read them."""
    tree = ast.parse(text)
    fields = {id(n) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for n in c.body}
    edits: list[Edit] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and id(node) not in fields and node.value is not None:
            edits.append((_end(node.target), _end(node.annotation), ""))
        elif isinstance(node, ast.FunctionDef):
            edits.append((_start(node), _signature_end(text, node), _signature(node)))
    return edited(text, edits)


def _signature(node: ast.FunctionDef) -> str:
    a = node.args
    for argument in (*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))):
        argument.annotation = None
    return f"def {node.name}({ast.unparse(a)})"


def _signature_end(text: str, node: ast.FunctionDef) -> tuple[int, int]:
    if node.returns is not None:
        return _end(node.returns)
    inside = [_end(n) for n in ast.walk(node.args) if hasattr(n, "end_lineno")]
    line, column = max(inside, default=(node.lineno, node.col_offset + len(f"def {node.name}(".encode())))
    lines = text.encode().splitlines()
    while b")" not in lines[line - 1][column:]:
        line, column = line + 1, 0
    return line, lines[line - 1].index(b")", column) + 1


def _global_names(table: symtable.SymbolTable) -> set[str]:
    outermost = table.get_type() == "module"
    found = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (outermost or s.is_global())}
    return found.union(*map(_global_names, table.get_children()))


def _local_names(table: symtable.SymbolTable) -> set[str]:
    inside = table.get_type() != "module"
    found = {s.get_name() for s in table.get_symbols() if inside and s.is_local()}
    return found.union(*map(_local_names, table.get_children()))


@cache
def _analysed(text: str) -> tuple[ast.Module, set[str], set[str]]:
    """(tree, the globals that it uses, all names that are local somewhere in it); not to be changed."""
    table = symtable.symtable(text, "script", "exec")
    return ast.parse(text), _global_names(table), _local_names(table)


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module binds there."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name


class Bundle:
    """Definitions in the order in which a script needs them, and the imports that they use.

    Functions of the suite (and of the package that a case's operation is from) are copied; of everything else
    the import is.
    """

    def __init__(self, packages: Sequence[str] = ("meshmark",)) -> None:
        """Copy from these packages, import from all others."""
        self.packages = {p.split(".")[0] for p in packages}
        self.imports: dict[str, None] = {}
        self.parts: list[str] = []
        self._names: dict[Any, str] = {}
        own: tuple[Any, ...] = (
            argument,
            check,
            typed,
            check_type,
            show_collectives,
            exactly,
            indices,
            split,
            pulled_back,
        )
        self._reserved = dict.fromkeys(VARIABLES) | {f.__name__: (f.__module__, f.__name__) for f in own}

    def add(self, function: Callable[..., Any]) -> str:
        """Copy a function with all that it uses; gives its name in the script.

        ReproError where it uses what has no source here.
        """
        if not isinstance(function, FunctionType):
            raise ReproError(f"{function!r} is no plain function: write it as one in the table")
        module = sys.modules[function.__module__]
        if vars(module).get(function.__qualname__) is function:
            return self._global(module, function.__name__)
        cells = function.__closure__ or ()
        closure = dict(zip(function.__code__.co_freevars, (c.cell_contents for c in cells), strict=True))
        key = (function.__code__, *map(id, closure.values()))
        if key in self._names:
            return self._names[key]
        label = function.__name__.strip("<>")
        name = self._claim(key, label if label != "lambda" else "its", function.__qualname__.split(".")[-2])
        self._copy(_definition(module, function, name), name, label, module, closure)
        return name

    def note(self, text: str) -> None:
        """Add a comment of its own."""
        self.parts.append(f"# {text}")

    def _claim(self, key: Any, name: str, prefix: str) -> str:
        taken = self._names.values()
        while name in taken or self._reserved.get(name, key) != key:
            name = f"{prefix.strip('<>')}_{name}"
        self._names[key] = name
        return name

    def _ours(self, module: str | None) -> bool:
        return (module or "").split(".")[0] in self.packages

    def _global(self, module: ModuleType, name: str) -> str:
        """The script's name of a module's global, which is copied or imported unless it was before."""
        found = source(module)
        statement = found.globals.get(name)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            return self._import(statement, name)
        key = (module.__name__, name)
        if key in self._names:
            return self._names[key]
        if statement is None:
            raise ReproError(f"{module.__name__}.{name} is bound by no statement of its module")
        claimed = self._claim(key, name, module.__name__.rpartition(".")[2])
        lines = found.lines[_first_line(statement) - 1 : statement.end_lineno]
        self._copy("".join(lines), claimed, name, module, {})
        return claimed

    def _import(self, statement: ast.Import | ast.ImportFrom, name: str) -> str:
        alias = next(a for a in statement.names if (a.asname or a.name).split(".")[0] == name)
        if isinstance(statement, ast.ImportFrom) and self._ours(statement.module):
            stand_in = (statement.module, alias.name) in STAND_INS
            return self._global(sys.modules[__name__ if stand_in else statement.module or ""], alias.name)
        source = f"from {statement.module} " if isinstance(statement, ast.ImportFrom) else ""
        line = f"{source}import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
        if line not in self.imports:
            self.imports[line] = None
            if self._claim(line, name, "") != name:
                raise ReproError(f"the name of `{line}` is taken by another definition")
        return name

    def _copy(self, text: str, name: str, old: str, module: ModuleType, closure: Mapping[str, Any]) -> None:
        """Append a definition, after what it uses, with the names that these have in the script."""
        text = unannotated(textwrap.dedent(text))
        tree, globals_, shadowed = _analysed(text)
        edits: list[Edit] = []
        # `values.distinct` or `AllToAll.auto`: a function of ours, by way of its module or class
        dotted = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                holder = {**vars(module), **closure}.get(node.value.id)
                if self._holds(holder) and isinstance(getattr(holder, node.attr, None), FunctionType):
                    dotted[id(node.value)] = node
        for node in dotted.values():
            holder = {**vars(module), **closure}[node.value.id]  # type: ignore[attr-defined]
            edits.append((_start(node), _end(node), self.add(getattr(holder, node.attr))))
        plain = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in dotted]
        for used in sorted(globals_ & {n.id for n in plain}):
            if used in closure:
                new = self._closed_over(used, closure[used])
            elif used == old:
                new = name
            elif used in vars(module):
                new = self._global(module, used)
            else:
                continue  # of Python itself
            if new != used:
                if used in shadowed:
                    raise ReproError(f"{old} of {module.__name__} uses {used} as a local name too")
                edits += [(_start(n), _end(n), new) for n in plain if n.id == used]
        head = tree.body[0]
        if isinstance(head, (ast.FunctionDef, ast.ClassDef)) and head.name != name:
            keyword = len("def " if isinstance(head, ast.FunctionDef) else "class ")
            start = (head.lineno, keyword)
            edits.append((start, (head.lineno, keyword + len(head.name.encode())), name))
        self.parts.append(edited(text, edits).strip())

    def _holds(self, holder: Any) -> bool:
        if isinstance(holder, ModuleType):
            return self._ours(holder.__name__)
        return isinstance(holder, type) and self._ours(holder.__module__)

    def _closed_over(self, name: str, value: Any) -> str:
        if isinstance(value, FunctionType) and self._ours(value.__module__):
            return self.add(value)
        key = (name, repr(value))
        if key not in self._names:
            self.parts.append(f"{self._claim(key, name, 'its')} = {literal(value)}")
        return self._names[key]


def _definition(module: ModuleType, function: FunctionType, name: str) -> str:
    """The source of a static, nested or nameless function, without decorators."""
    found = source(module)
    here = found.functions.get(function.__code__.co_firstlineno, [])
    nodes = [n for n in here if getattr(n, "name", "<lambda>") == function.__name__]
    if len(nodes) != 1:
        where = f"{module.__name__}.{function.__qualname__}"
        raise ReproError(f"{where} is not found alone in its line: is its file as it was imported?")
    node = nodes[0]
    if isinstance(node, ast.Lambda):
        return f"{name} = {ast.get_source_segment(''.join(found.lines), node)}\n"
    return "".join(found.lines[node.lineno - 1 : node.end_lineno])


def literal(value: Any) -> str:
    """Python source of a value of plain types; ReproError for any other."""
    text = repr(value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if isinstance(value, float):
            return f'float("{value}")'
        raise ReproError(f"{text} is no literal: options of the table must be") from None
    return text


# Writing the script -----------------------------------------------------------------------------------------


def script(case: Case, num_devices: int, seed: int = 0) -> str:
    """The script of one case, for so many devices; ReproError where the table has what can't be printed."""
    plan, cls = case.plan, type(case.operation)
    mode = SPELLINGS.get(case.mode, case.mode)
    bundle = Bundle(("meshmark", cls.__module__))
    bundle.note(f"The operation, mode {case.mode}.")
    spelling: Callable[..., Any] = getattr(cls, mode)
    judged: Callable[..., Any] = cls.gradient if plan.wrt else cls.reference
    spelled = bundle.add(spelling)
    if plan.wrt:
        bundle.add(pulled_back)
    bundle.note("The same in NumPy.")
    reference = bundle.add(judged)
    bundle.note("The inputs: pure functions of the seed and the index.")
    inputs = list(_inputs(case, seed, bundle))
    run: list[Callable[..., Any]] = [argument, exactly, check, indices, *_extras(case)]
    for function in run:
        bundle.add(function)
    body = [
        *_mesh(case, num_devices),
        *inputs,
        *_expected(case, _call(reference, "*exact", judged, plan.options), seed),
        *(_host if case.mode == "host" else _program)(case, spelled, spelling),
        *_comparison(case),
    ]
    bound = {line.split()[-1] for line in bundle.imports}
    for line in _imports(case, "\n".join(body)):
        if line.split()[-1] not in bound:
            bundle.imports[line] = None
    return "\n".join(
        [
            *_heading(case, seed),
            *_import_block(bundle.imports),
            *_settings(case, num_devices),
            "\n\n\n".join(["", *bundle.parts]).strip("\n"),
            "\n",
            "# The case.",
            *body,
            "",
        ]
    )


def _external(line: str) -> bool:
    return line.split()[1].split(".")[0] not in sys.stdlib_module_names


def _extras(case: Case) -> list[Callable[..., Any]]:
    """The functions of the last part that not every script needs."""
    own: dict[str, list[Callable[..., Any]]] = {
        "host": [],
        "pmap": [split, show_collectives],
        "explicit": [typed, check_type, show_collectives],
    }
    return own.get(case.mode, [show_collectives])


def _imports(case: Case, body: str) -> Iterator[str]:
    """What the last part of a script imports."""
    yield from ("import sys", "import jax", "import numpy as np", "from jax.sharding import AxisType")
    yield "from jax.sharding import Mesh"
    if "NamedSharding(" in body:
        yield "from jax.sharding import NamedSharding"
    if "P(*" in body:
        yield "from jax.sharding import PartitionSpec as P"
    if "ml_dtypes." in body:
        yield "import ml_dtypes"
    if case.mode == "pjit":
        yield "from jax.experimental.pjit import pjit"


def _import_block(lines: Iterable[str]) -> Iterator[str]:
    """Imports in the usual order: the standard library first, whole modules before names from modules."""
    groups: dict[bool, list[str]] = {False: [], True: []}
    names: dict[str, list[str]] = {}
    for line in sorted(lines):
        source, _, name = line.partition(" import ")
        if name and " as " not in name:
            names.setdefault(source, []).append(name)
            line = f"{source} import {', '.join(names[source])}"
            earlier = f"{source} import {', '.join(names[source][:-1])}"
            groups[_external(line)] = [other for other in groups[_external(line)] if other != earlier]
        groups[_external(line)].append(line)
    for external in (False, True):
        yield from sorted(groups[external], key=lambda line: (line.startswith("from"), line))
        yield ""


def _heading(case: Case, seed: int) -> Iterator[str]:
    judge = {
        "bits": "equal to the bit",
        "exact": "equal as numbers, every intermediate result being exact",
        "bound": "within an error bound",
    }[case.plan.judge]
    yield f'"""{case.id}'
    yield ""
    description = inspect.getdoc(type(case.operation)) or case.operation.name
    yield textwrap.fill(description, 100).replace("\\", "\\\\")
    yield ""
    yield f"One case of Meshmark {__version__}, a conformance suite for distributed JAX, on its own: it"
    yield "needs jax and numpy, prints what is expected and what is seen, and exits 1 where they differ."
    yield f"Every device's shard must be {judge}. Made by:"
    yield f"    meshmark repro '{case.id}'" + (f" --seed {seed}" if seed else "")
    yield '"""'
    yield ""


def _settings(case: Case, num_devices: int) -> Iterator[str]:
    yield f'jax.config.update("jax_num_cpu_devices", {num_devices})  # says nothing to other backends'
    if "x64" in case.cell.capabilities:
        yield 'jax.config.update("jax_enable_x64", True)'
    yield "\n"


def _mesh(case: Case, num_devices: int) -> Iterator[str]:
    mesh = case.mesh
    kind = "Explicit" if case.mode == "explicit" else "Auto"
    yield 'print("jax", jax.__version__, "jaxlib", jax.lib.__version__, "numpy", np.__version__)'
    yield 'print("python", sys.version)'
    yield f"if len(jax.devices()) < {mesh.size}:"
    yield f'    print("this case needs {mesh.size} devices", file=sys.stderr)'
    yield "    sys.exit(2)"
    chosen_ = f"jax.devices()[:{mesh.size}]"
    if mesh.order:
        yield f"order = {mesh.ordinals.ravel().tolist()}"
        chosen_ = "[jax.devices()[i] for i in order]"
    axes = f"{literal(mesh.names)}, axis_types=(AxisType.{kind},) * {len(mesh.names)}"
    yield f"mesh = Mesh(np.array({chosen_}).reshape{literal(mesh.shape)}, {axes})"
    yield f"sizes = {literal(dict(mesh.sizes))}"
    yield 'print(jax.default_backend(), "devices:", mesh.devices.tolist())'
    yield ""


def _dtype(name: str) -> str:
    return f'np.dtype("{name}")' if name in np.sctypeDict else f"np.dtype(ml_dtypes.{name})"


def _listed(name: str, items: Sequence[str]) -> Iterator[str]:
    yield f"{name} = ["
    yield from (f"    {item}," for item in items)
    yield "]"


def _inputs(case: Case, seed: int, bundle: Bundle) -> Iterator[str]:
    made = []
    for position, a in enumerate(case.plan.arguments):
        fill = bundle.add(a.fill)
        call = f"argument({seed}, {position}, {literal(a.shape)}, {_dtype(a.dtype)}, {fill}"
        for name, value in a.options.items():
            call += f", {name}={bundle.add(value) if isinstance(value, FunctionType) else literal(value)}"
        made.append(call + ")")
    yield from _listed("inputs", made)
    yield from _listed("in_specs", [literal(a.spec) for a in case.plan.arguments])
    yield from _listed("out_specs", [literal(r.spec) for r in case.plan.results])
    if case.plan.forward:
        yield "# the last inputs are the cotangents of the results of the undifferentiated operation"
        yield from _listed("forward_specs", [literal(r.spec) for r in case.plan.forward])
    yield ""


def _call(
    name: str, arrays: str, function: Callable[..., Any], options: Mapping[str, Any], indent: str = ""
) -> str:
    """A call with those options that the function names, on several lines where it is long."""
    parts = [arrays, *(f"{k}={literal(v)}" for k, v in chosen(function, options).items())]
    line = f"{name}({', '.join(parts)})"
    return (
        line
        if len(line) < 90
        else f"{name}(\n{indent}    " + f",\n{indent}    ".join(parts) + f",\n{indent})"
    )


def _expected(case: Case, call: str, seed: int) -> Iterator[str]:
    """`call` is the call of the reference."""
    plan = case.plan
    yield f'exact = [exactly(a, "{plan.judge}") for a in inputs]'
    yield f"expected = {call}"
    yield "expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]"
    bounds: list[float | None] = [None] * len(plan.results)
    if plan.judge == "bound":
        found = case.cell.expected(case.cell.arguments(seed))[1]
        bounds = [None if b is None else float(np.max(b, initial=0.0)) for b in found]
        yield "# The suite bounds each element by an error analysis of the reference. This is the largest"
        yield "# bound of each result: an error above it is wrong, one below may still exceed its element's."
        if plan.precision == "default":
            yield "# It does not allow for devices that round factors at default precision (bfloat16, TF32)."
    else:
        dtypes = ", ".join(_dtype(r.dtype) for r in plan.results)
        yield f"expected = [np.asarray(e).astype(d) for e, d in zip(expected, [{dtypes}], strict=True)]"
    yield f"bounds = [{', '.join(map(literal, bounds))}]"
    if case.mode == "pmap":
        yield "# pmap sees the blocks of all devices stacked along a first dimension"
        yield "expected = [np.stack(split(e, s, sizes)) for e, s in zip(expected, out_specs, strict=True)]"
        yield "inputs = [np.stack(split(a, s, sizes)) for a, s in zip(inputs, in_specs, strict=True)]"
        yield 'in_specs, out_specs = [("x",)] * len(in_specs), [("x",)] * len(out_specs)'
    yield ""


def _host(case: Case, spelled: str, spelling: Callable[..., Any]) -> Iterator[str]:
    yield f"outputs = jax.tree.leaves({_call(spelled, 'mesh, *inputs', spelling, case.plan.options)})"
    yield "jax.block_until_ready(outputs)"


def _program(case: Case, spelled: str, spelling: Callable[..., Any]) -> Iterator[str]:
    plan = case.plan
    yield ""
    yield "def function(*arrays):"
    yield f"    return {_call(spelled, '*arrays', spelling, plan.options, '    ')}"
    yield ""
    yield ""
    yield f'function.__name__ = "{case.operation.name}"'
    several = len(plan.forward or plan.results) > 1
    if case.mode in ("manual", "manual-novma"):
        inputs = f"in_specs[:{len(plan.arguments) - len(plan.forward)}]" if plan.forward else "in_specs"
        specs = "forward_specs" if plan.forward else "out_specs"
        yield "function = jax.shard_map("
        yield "    function,"
        yield "    mesh=mesh,"
        yield f"    in_specs=tuple(P(*s) for s in {inputs}),"
        yield "    out_specs=" + (f"tuple(P(*s) for s in {specs})," if several else f"P(*{specs}[0]),")
        yield f"    check_vma={case.mode == 'manual'},"
        yield ")"
    if plan.wrt:
        yield f"function = pulled_back(function, {literal(tuple(plan.wrt))}, {len(plan.forward)})"
    yield "shardings = [NamedSharding(mesh, P(*s)) for s in in_specs]"
    outs = "tuple(NamedSharding(mesh, P(*s)) for s in out_specs)"
    if len(plan.results) == 1:
        outs = "NamedSharding(mesh, P(*out_specs[0]))"
    yield {
        "auto": f"program = jax.jit(function, out_shardings={outs})",
        "explicit": "types = []\nprogram = jax.jit(typed(function, types))",
        "pmap": 'program = jax.pmap(function, axis_name="x", devices=list(mesh.devices.flat))',
        "pjit": f"program = pjit(function, in_shardings=tuple(shardings), out_shardings={outs})",
    }.get(case.mode if plan.placed else "", "program = jax.jit(function)")
    yield "placed = [jax.device_put(a, s) for a, s in zip(inputs, shardings, strict=True)]"
    indent = ""
    if case.mode == "explicit":
        yield "with jax.set_mesh(mesh):"
        indent = "    "
    yield f"{indent}compiled = program.lower(*placed).compile()"
    yield f"{indent}outputs = jax.tree.leaves(jax.block_until_ready(compiled(*placed)))"
    yield f'print("expected communication:", {literal(contract(case))})'
    yield "show_collectives(compiled.as_text())"


def contract(case: Case) -> str:
    """The communication that the case's mode owes, in words."""
    plan = case.plan
    if case.mode in ("auto", "explicit", "pjit"):
        if not plan.connect:
            return "none that is needed"
        return f"any that connects the mesh positions {list(map(list, plan.connect))}"
    if plan.traffic is None:
        return "what the transformation makes of it"
    spelled = [f"{t.kind} of {t.nbytes} B a device over {list(map(list, t.groups))}" for t in plan.traffic]
    return ", ".join(spelled) or "none"


def _comparison(case: Case) -> Iterator[str]:
    yield ""
    yield "good = len(outputs) == len(expected)"
    yield "if not good:"
    yield '    print(f"{len(outputs)} results instead of {len(expected)}")'
    yield "for i, (output, want, bound, spec) in enumerate(zip(outputs, expected, bounds, out_specs)):"
    yield "    parts = dict(zip(mesh.devices.flat, indices(want.shape, spec, sizes)))"
    dtypes = [r.dtype for r in case.plan.results]
    kinds = f'"{dtypes[0]}"' if len(set(dtypes)) == 1 else f"{literal(dtypes)}[i]"
    yield f'    good &= check(f"result {{i}}", output, want, {kinds}, parts, "{case.plan.judge}", bound)'
    if case.mode == "explicit":
        yield "    good &= check_type(types[i], spec, sizes)"
    yield 'print("as expected" if good else "DIFFERENT")'
    yield "sys.exit(not good)"


# What every script runs -------------------------------------------------------------------------------------


class Bounded:
    """Stands for the suite's arrays that carry error bounds: there are none here."""


def argument(
    seed: int,
    position: int,
    shape: tuple[int, ...],
    dtype: np.dtype,
    fill: Callable[..., np.ndarray],
    /,
    **options: Any,
) -> np.ndarray:
    """The values of one input."""
    index = flat_index(shape, whole(shape))
    return fill(random_bits(seed * 16 + position, index), index, shape, dtype, **options)


def check(
    name: str,
    output: Any,
    expected: np.ndarray,
    dtype: str,
    parts: Mapping[Any, tuple[slice, ...]],
    judge: str,
    bound: float | None,
) -> bool:
    """Compare every device's shard with its part of what is expected, and print both."""
    print(f"{name}: {output.dtype}{list(output.shape)}, {output.sharding}")
    if output.shape != expected.shape or output.dtype.name != dtype:
        print(f"  expected {dtype}{list(expected.shape)}")
        return False
    good, largest = True, 0.0
    replicas: dict[str, np.ndarray] = {}
    for shard in output.addressable_shards:
        index = tuple(slice(*i.indices(n)[:2]) for i, n in zip(shard.index, output.shape, strict=True))
        seen = np.asarray(shard.data)
        if parts.get(shard.device) != index:
            print(f"  {shard.device} holds {index} instead of {parts.get(shard.device)}")
            good = False
        if not np.array_equal(as_bits(seen), as_bits(replicas.setdefault(str(index), seen))):
            print(f"  {shard.device} holds another replica of {index} than an earlier device")
            good = False
        wide = np.complex128 if seen.dtype.kind == "c" else np.float64
        with np.errstate(all="ignore"):
            error = np.abs(seen.astype(wide) - expected[index].astype(wide))
        if judge == "bits":
            words = 2 if seen.dtype.kind == "c" else 1
            wrong = (as_bits(seen) != as_bits(expected[index])).reshape(*seen.shape, words).any(axis=-1)
        else:
            wrong = seen != expected[index] if bound is None else ~(error <= bound)
        largest = max(largest, error.max(initial=0.0))
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0].tolist())
            print(f"  {shard.device}: {wrong.sum()} of {seen.size} elements of {index} differ, first {at}:")
            print(f"    expected {expected[index][at]}, seen {seen[at]}")
            good = False
    first = output.addressable_shards[0].data
    print("  expected:", expected[parts.get(output.addressable_shards[0].device, ())].ravel()[:4], "...")
    print("  seen:    ", np.asarray(first).ravel()[:4], "...")
    print(f"  largest error {largest}" + ("" if bound is None else f", bound {bound}"))
    return good


def typed(function: Callable[..., Any], types: list[Any]) -> Callable[..., Any]:
    """The function, which leaves the types of its results at trace time in `types`."""

    def traced(*arrays: Any) -> Any:
        results = function(*arrays)
        types[:] = map(jax.typeof, jax.tree.leaves(results))
        return results

    return traced


def check_type(seen: Any, spec: Sequence[Any], sizes: Mapping[str, int]) -> bool:
    """Compare the sharding in a type with the expected spec."""
    good = normal(tuple(seen.sharding.spec), sizes, seen.ndim) == normal(spec, sizes, seen.ndim)
    print(f"  typed {seen} while tracing" + ("" if good else f", expected {spec}"))
    return good


def show_collectives(text: str) -> None:
    """Print the collectives of a compiled program."""
    kinds = "all-|reduce-scatter|ragged-all-to-all|collective-"
    found = re.findall(rf"\S+ = .*? (?:{kinds})[\w-]*\(.*", text)
    print("compiled communication:", *[f.partition(", metadata=")[0] for f in found] or ["none"], sep="\n  ")
