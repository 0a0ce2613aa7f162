# SPDX-License-Identifier: Apache-2.0
"""Prints a program, given as data, as a stand-alone script for a bug report.

This module does not know cases: a caller with a function, its inputs and the expected result makes a `Script` and
prints it. The script imports jax and numpy (and ml_dtypes if a dtype needs it) and prints each wrong device once. Its
exit code is 0 if all is as expected, 1 if something is wrong, and 2 if there are too few devices.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from meshmark.judge.repro.text import Entry, call, listed, literal, sharding, spelled

EXECUTE, NUMBERS, SHARDING, COMMUNICATION = "execute", "numbers", "sharding", "communication"
CHECKS = (NUMBERS, SHARDING, COMMUNICATION)
"""What a script checks; "execute" alone: that it ends without an exception."""

NAMES = (
    *(
        "mesh",
        "placed",
        "function",
        "program",
        "compiled",
        "out",
        "outs",
        "good",
        "expected",
        "bound",
        "bounds",
    ),
    *(
        "shard",
        "seen",
        "want",
        "wrong",
        "at",
        "found",
        "wanted",
        "spec",
        "typed",
        "z",
        "bits",
        "index",
        "devices",
    ),
    *("first", "replicas", "text", "kinds", "types", "limit", "over", "results", "arrays", "sent"),
    *("line", "kind", "host", "waits", "apart", "places", "key", "operations", "held"),
)
"""The names that a script assigns: no definition may take one."""


@dataclass(frozen=True)
class Mesh:
    """A mesh over the first devices, in this order (None: as they come)."""

    shape: tuple[int, ...]
    names: tuple[str, ...]
    devices: int
    """The virtual CPU devices that the script asks for."""
    order: tuple[int, ...] | None = None
    explicit: bool = False

    @property
    def size(self) -> int:
        """The number of devices in it."""
        size = 1
        for n in self.shape:
            size *= n
        return size


@dataclass(frozen=True)
class Input:
    """An argument: its name, the statements that bind it to a NumPy array, and its partition spec."""

    name: str
    code: tuple[str, ...]
    spec: tuple[Entry, ...]


@dataclass(frozen=True)
class Output:
    """A result: its dtype, its spec, and how it is judged. `judge` is "bits", "exact" or "bound", as in the case table.
    `bound` is an expression."""

    dtype: str
    itemsize: int
    spec: tuple[Entry, ...]
    judge: str = "exact"
    bound: str = ""
    bound_of: str = "result"
    """What the bound is of: "result", "element" (it is an array like the result), "share" (of what is expected)."""
    replicated: bool = False
    complex: bool = False


@dataclass(frozen=True)
class Contract:
    """What a compiled program must hold, in words, and the statements that clear `good` if it does not."""

    words: str
    code: tuple[str, ...]


@dataclass(frozen=True)
class Script:
    """The contents of a script."""

    heading: tuple[str, ...]
    """The lines of its docstring."""
    mesh: Mesh
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    expected: tuple[str, ...]
    """Statements that bind `expected`: to an array, of several results to a list."""
    function: str
    """An expression of the function; of a host call, the call."""
    after: tuple[str, ...] = ()
    """Statements behind these, which bring inputs and `expected` into the form that the program takes and gives."""
    imports: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    nans: bool = False
    """Whether results may hold NaN and infinities: a NaN equals a NaN, and an infinity the same one."""
    mode: str = "jit"
    """jit, explicit, shard_map, pmap, pjit or host."""
    in_specs: tuple[tuple[Entry, ...], ...] = ()
    """Of shard_map, where they are not those of the inputs: of a gradient, its function's."""
    out_specs: tuple[tuple[Entry, ...], ...] = ()
    check_vma: bool = True
    vjp: str = ""
    """Of a gradient: an expression of the pull-back of `function`."""
    out_shardings: bool = True
    checks: tuple[str, ...] = CHECKS
    contract: Contract | None = None
    tupled: bool = False
    """Of mode host: whether the function may give its one result in a tuple."""
    brief: bool = False
    """Without the count of devices and with what each device holds whole: for results of a few elements."""


def render(script: Script) -> str:
    """The script."""
    body = [*_settings(script), *_mesh(script)]
    prepared = [line for item in script.inputs for line in item.code]
    if NUMBERS in script.checks:
        prepared += script.expected
    prepared += script.after
    run = [*_run(script), *_judgement(script)]
    definitions = "\n\n\n".join(part.strip("\n") for part in script.definitions)
    text = "\n".join([*body, *prepared, *run])
    parts = [
        '"""' + "\n".join(script.heading).replace("\\", "\\\\") + '\n"""' if script.heading else "",
        "\n".join(_imports(script, definitions + "\n" + text)),
        "\n".join(body) + (f"\n\n\n{definitions}\n" if definitions else ""),
        "\n".join(prepared),
        "\n".join(run),
    ]
    return "\n\n".join(part for part in parts if part.strip()) + "\n"


# Parts ------------------------------------------------------------------------------------------------------


def _imports(script: Script, text: str) -> Iterator[str]:
    """The imports in the usual order: the standard library first, whole modules before names from modules."""
    lines = {"import sys", "import jax", "import numpy as np", *script.imports}
    for name in ("Mesh", "NamedSharding", "AxisType"):
        if f"{name}(" in text or f"{name}." in text:
            lines.add(f"from jax.sharding import {name}")
    if " P(" in text or "(P(" in text or "=P(" in text or "[P(" in text:
        lines.add("from jax.sharding import PartitionSpec as P")
    if "ml_dtypes." in text:
        lines.add("import ml_dtypes")
    if "re." in text and ("re.findall" in text or "re.compile" in text or "re.search" in text):
        lines.add("import re")
    if "math.prod(" in text:
        lines.add("import math")
    if script.mode == "pjit":
        lines.add("from jax.experimental.pjit import pjit")
    yield from ordered(lines)


def ordered(lines: Iterable[str]) -> Iterator[str]:
    """Import lines in order; those of one module are joined."""
    groups: dict[bool, dict[str, list[str]]] = {False: {}, True: {}}
    for line in sorted(set(lines)):
        source, _, name = line.partition(" import ")
        external = line.split()[1].split(".")[0] not in sys.stdlib_module_names
        groups[external].setdefault(source if name else line, []).extend([name] if name else [])
    for external in (False, True):
        made = [
            f"{source} import {', '.join(names)}" if names else source
            for source, names in groups[external].items()
        ]
        yield from sorted(made, key=lambda line: (line.startswith("from"), line))
        if not external and made:
            yield ""


def _settings(script: Script) -> Iterator[str]:
    yield f'jax.config.update("jax_num_cpu_devices", {script.mesh.devices})  # for CPU alone'
    yield from script.settings


def _mesh(script: Script) -> Iterator[str]:
    mesh = script.mesh
    if script.brief:
        yield f'assert len(jax.devices()) >= {mesh.size}, "this needs {mesh.size} devices"'
    else:
        yield f"if len(jax.devices()) < {mesh.size}:"
        yield f'    print("this needs {mesh.size} devices", file=sys.stderr)'
        yield "    sys.exit(2)"
    devices = f"jax.devices()[:{mesh.size}]"
    if mesh.order:
        devices = f"[jax.devices()[i] for i in {list(mesh.order)}]"
    array = f"np.array({devices})" + (f".reshape{mesh.shape}" if len(mesh.shape) > 1 else "")
    kinds = [f"axis_types=(AxisType.Explicit,) * {len(mesh.names)}"] if mesh.explicit else []
    yield from call("mesh = Mesh", [array, literal(mesh.names), *kinds])
    yield 'print("jax", jax.__version__, "on", *mesh.devices.flat)'


def _run(script: Script) -> Iterator[str]:
    """The statements that bind `out` (for several results `outs`), and `compiled` if its communication is judged."""
    out = "outs" if len(script.outputs) != 1 else "out"
    leaves = ("jax.tree.leaves(", ")") if out == "outs" else ("", "")
    if script.mode == "host":
        if script.tupled:
            out, leaves = "[out]", ("jax.tree.leaves(", ")")
        yield f"{out} = {leaves[0]}{script.function}{leaves[1]}"
        return
    yield from _function(script)
    yield from _placed(script)
    given = {0: "", 1: "placed"}.get(len(script.inputs), "*placed")
    lines: list[str] = []
    callee = "program"
    if script.contract and COMMUNICATION in script.checks:
        lines.append(f"compiled = program.lower({given}).compile()")
        callee = "compiled"
    if set(script.checks) != {COMMUNICATION}:
        lines.append(f"{out} = {leaves[0]}{callee}({given}){leaves[1]}")
    if script.mode == "explicit":
        if SHARDING in script.checks:
            names = ("types = jax.tree.leaves(", ")") if out == "outs" else ("typed = ", "")
            lines.append(f"{names[0]}jax.eval_shape(program, {given}){names[1]}")
        yield "with jax.set_mesh(mesh):"
        lines = [f"    {line}" for line in lines]
    yield from lines


def _function(script: Script) -> Iterator[str]:
    name = script.function
    if script.mode == "shard_map":
        single = len(script.out_specs) == 1
        in_specs = [spelled(s) for s in script.in_specs]
        out_specs = [spelled(s) for s in script.out_specs]
        parts = [
            name,
            "mesh=mesh",
            "in_specs=" + (in_specs[0] if len(in_specs) == 1 else listed(in_specs)),
            "out_specs=" + (out_specs[0] if single else listed(out_specs)),
        ]
        parts += [] if script.check_vma else ["check_vma=False"]
        yield from call("function = jax.shard_map", parts)
        name = "function"
    if script.vjp:
        if not name.isidentifier():
            yield f"function = {name}"
            name = "function"
        name = script.vjp.replace("function", name)
    shardings = [sharding(o.spec) for o in script.outputs]
    outs = []
    if script.mode in ("jit", "pjit") and script.out_shardings:
        outs = [f"out_shardings={shardings[0] if len(shardings) == 1 else listed(shardings)}"]
    if script.mode == "pmap":
        yield from call("program = jax.pmap", [name, 'axis_name="x"', "devices=list(mesh.devices.flat)"])
    elif script.mode == "pjit":
        ins = [sharding(i.spec) for i in script.inputs]
        yield from call("program = pjit", [name, f"in_shardings={listed(ins)}", *outs])
    else:
        yield from call("program = jax.jit", [name, *outs])


def _placed(script: Script) -> Iterator[str]:
    items = script.inputs
    if len(items) == 1:
        yield from call("placed = jax.device_put", [items[0].name, sharding(items[0].spec)])
    elif items:
        arrays, specs = ", ".join(item.name for item in items), listed([spelled(item.spec) for item in items])
        yield from call(
            "placed = jax.device_put", [f"[{arrays}]", f"[NamedSharding(mesh, s) for s in {specs}]"]
        )


def _briefly(script: Script) -> Iterator[str]:
    """The statements that compare small results and print whole shards."""
    several = len(script.outputs) != 1
    out, expected, indent = ("out", "expected", "") if not several else ("x", "want_all", "    ")
    yield "good = True"
    if several:
        yield "for x, want_all in zip(outs, expected):"
    yield f"{indent}for shard in {out}.addressable_shards:"
    yield f"{indent}    seen, want = np.asarray(shard.data), {expected}[shard.index]"
    exact = all(o.judge != "bound" for o in script.outputs)
    nans = ", equal_nan=True" if script.nans else ""
    alike = (
        f"np.array_equal(seen, want{nans})"
        if exact
        else f"np.allclose(seen, want, 0, {script.outputs[0].bound})"
    )
    yield f"{indent}    if not {alike}:"
    yield f'{indent}        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())'
    yield f"{indent}        good = False"
    yield "sys.exit(not good)"


def _judgement(script: Script) -> Iterator[str]:
    """The statements that compare, print and exit."""
    outputs = script.outputs
    if script.brief and NUMBERS in script.checks:
        yield from _briefly(script)
        return
    several = len(outputs) != 1
    compare = {NUMBERS, SHARDING} & set(script.checks)
    contract = list(script.contract.code) if script.contract and COMMUNICATION in script.checks else []
    if not outputs or not compare:
        first = next((n for n, line in enumerate(contract) if line.startswith("good &= ")), None)
        if first is not None:
            contract[first] = contract[first].replace("good &= ", "good = ")
        if not contract:
            yield f"jax.block_until_ready({'outs' if several else 'out'})"
            yield 'print("no exception, as expected")'
            return
    elif not several:
        o = outputs[0]
        shown = f"len(out.addressable_shards) == {script.mesh.size}"
        alike = f"out.shape == expected.shape and out.dtype == {o.dtype} and "
        yield f"good = {alike if NUMBERS in script.checks else ''}{shown}"
        yield from _bound(script)
        yield from _one(script, o, "expected", "bound", "")
    else:
        yield f"good = len(outs) == {len(outputs)}"
        yield from _bound(script)
        specs = listed([spelled(o.spec) for o in outputs])
        zipped = ["outs", "expected"] if NUMBERS in script.checks else ["outs"]
        names = ["out", "want_all"] if NUMBERS in script.checks else ["out"]
        bounded = any(o.bound for o in outputs) and NUMBERS in script.checks
        if bounded:
            zipped.append("bounds")
            names.append("bound")
        if SHARDING in script.checks:
            zipped.append(specs)
            names.append("spec")
        if script.mode == "explicit" and SHARDING in script.checks:
            zipped.append("types")
            names.append("typed")
        kind = outputs[0].dtype
        if NUMBERS in script.checks and len({o.dtype for o in outputs}) > 1:
            kind = "kind"
            zipped.append(listed([o.dtype for o in outputs]))
            names.append(kind)
        yield from call(f"for {', '.join(names)} in zip", zipped, end=":")
        yield f"    good &= len(out.addressable_shards) == {script.mesh.size}"
        if NUMBERS in script.checks:
            yield f"    good &= out.shape == want_all.shape and out.dtype == {kind}"
        yield from _one(script, outputs[0], "want_all", "bound", "    ")
    yield from contract
    told = 'f"DIFFERENT: {out.dtype}{out.shape} in {len(out.addressable_shards)} shards"'
    yield f'print("as expected" if good else {told if compare and not several else chr(34) + "DIFFERENT" + chr(34)})'
    yield "sys.exit(not good)"


def _bound(script: Script) -> Iterator[str]:
    if NUMBERS not in script.checks or not any(o.bound for o in script.outputs):
        return
    if len(script.outputs) == 1:
        yield f"bound = {script.outputs[0].bound}"
    else:
        yield f"bounds = {listed([o.bound for o in script.outputs], square=True)}"


def _one(script: Script, o: Output, expected: str, bound: str, indent: str) -> Iterator[str]:
    """The statements that compare `out` device by device."""
    lines: list[str] = []
    if SHARDING in script.checks:
        wanted, have, deep = "NamedSharding(mesh, spec)" if indent else sharding(o.spec), "out.sharding", ""
        if script.mode == "explicit":
            lines.append("for have in (out.sharding, NamedSharding(mesh, typed.sharding.spec)):")
            have, deep = "have", "    "
        lines += call(f"{deep}if not {have}.is_equivalent_to", [wanted, "out.ndim"], end=":")
        lines += [
            f'{deep}    print("sharding:", {have}, "instead of", {"spec" if indent else spelled(o.spec)})',
            f"{deep}    good = False",
        ]
    if NUMBERS in script.checks:
        replicas = any(p.replicated and p.judge == "bound" for p in script.outputs)
        alike = len({p.itemsize for p in script.outputs}) == 1
        lines += _shards(o, expected, bound, replicas, alike, script.nans)
    yield from (indent + line for line in lines)


def _shards(o: Output, expected: str, bound: str, replicas: bool, alike: bool, nans: bool) -> Iterator[str]:
    """The statements that compare every device's shard and print each wrong device once."""
    if replicas:
        yield "replicas = {}"
    yield "for shard in out.addressable_shards:"
    wide = ".astype(complex)" if o.complex else ".astype(float)"
    seen = "np.asarray(shard.data)"
    yield f"    seen, want = {seen}, {expected}[shard.index]"
    if o.judge == "bits" and o.complex and o.itemsize > 8:
        yield "    wrong = (seen.real.view('u8') != want.real.view('u8')) | (seen.imag != want.imag)"
    elif o.judge == "bits":
        bits = f'"u{o.itemsize}"' if alike else 'f"u{seen.itemsize}"'
        yield f"    wrong = seen.view({bits}) != want.view({bits})"
    elif o.judge == "exact":
        yield "    wrong = seen != want"
    else:
        part = {"element": f"{bound}[shard.index]", "share": f"{bound} * abs(want)"}.get(o.bound_of, bound)
        yield f"    wrong = ~(abs(seen{wide} - want) <= {part})"
    if nans and o.judge == "bound":
        yield "    wrong &= seen != want  # the difference of equal infinities is NaN"
    if nans and o.judge != "bits":
        yield "    wrong &= (seen == seen) | (want == want)  # NaN is right where NaN is expected"
    if replicas:
        yield "    first = replicas.setdefault(str(shard.index), seen)"
        yield "    wrong |= first.tobytes() != seen.tobytes()"
    yield "    if wrong.any():"
    yield "        at, good = tuple(np.argwhere(wrong)[0].tolist()), False"
    told = "{shard.device}: {wrong.sum()} of {wrong.size} wrong, first at {at}: expected {want[at]}, seen {seen[at]}"
    yield f'        print(f"{told}")'
