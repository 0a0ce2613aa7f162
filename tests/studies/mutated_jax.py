# SPDX-License-Identifier: Apache-2.0
"""Changes one thing in JAX's Python code at a time, and judges cases that execute it: which changes does no case show?

    python -m tests.studies.mutated_jax run REACH ... --output FILE [--files "_src/lax/*" ...] [--count 200]
    python -m tests.studies.mutated_jax run REACH ... --output MORE --again FILE --cases 100
    python -m tests.studies.mutated_jax tell FILE ...

REACH is a file of `python -m tests.studies.reach run`, which names the cases that execute a line. `run` draws changes
of executed lines by `--seed`, at most `--each` of one function: a comparison with another operator, a condition that
always or never holds, `and` for `or`, a number plus one, an operation for its opposite, a call without one option, two
arguments in the other order, a statement that is left out. A change is judged in a process of its own, which is forked
before JAX has a backend, by at most `--cases` cases of different operations, first the short ones. A case shows a
change by a verdict worse than without it, or by a crash or a hang.

`tell` prints the share that was shown, and each change that no case showed, with its cases. Such a change may mean the
same program (a cache, a shortcut, a text), or nobody looks there: then a case is missing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import fnmatch
import gc
import itertools
import json
import os
import random
import select
import signal
import sys
import time
import types
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax

from meshmark.judge.checks import Judge
from meshmark.operations.cases import Case, cases
from meshmark.operations.selection import Selection

from . import reach

DEVICES = 8
WORSE = ("fail", "error")
"""Verdicts of one case that show a change."""

FILES = (
    "_src/lax/*", "_src/lax/control_flow/*", "_src/interpreters/*", "_src/numpy/*", "_src/nn/*", "_src/random/*",
    "_src/ops/*", "_src/scipy/special.py", "_src/ad_checkpoint.py", "_src/api.py", "_src/api_util.py", "_src/array.py",
    "_src/callback.py", "_src/core.py", "_src/custom_batching.py", "_src/custom_derivatives.py",
    "_src/custom_partitioning.py", "_src/custom_partitioning_sharding_rule.py", "_src/dispatch.py", "_src/dtypes.py",
    "_src/indexing.py", "_src/layout.py", "_src/mesh.py", "_src/mesh_utils.py", "_src/named_sharding.py",
    "_src/op_shardings.py", "_src/partition_spec.py", "_src/pjit.py", "_src/pmap.py", "_src/shard_map.py",
    "_src/sharding.py", "_src/sharding_impls.py", "_src/stages.py", "_src/state/*", "_src/tree_util.py",
    "experimental/multihost_utils.py",
)  # fmt: skip
"""Where `run` draws changes, unless it is told: what traces, shards, differentiates, batches and lowers programs."""

OPPOSITE = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.Div: ast.Mult,
}  # fmt: skip


Functions = dict[str, list[types.FunctionType]]
"""The functions of JAX by the path of their file."""


@dataclass(frozen=True)
class Change:
    """One change: the node's place in the file, and which of the node's changes it is."""

    file: str
    function: str
    statement: ast.stmt
    """The statement of the file that holds the node."""
    node: ast.AST
    place: int
    """The node's number in the order of the file."""
    number: int

    @property
    def line(self) -> int:
        return self.node.lineno

    @property
    def key(self) -> str:
        return f"{self.file}:{self.line}:{self.place}:{self.number}"

    def words(self) -> str:
        words, new = list(variants(self.node))[self.number]
        after = "nothing" if new is None else ast.unparse(new).split("\n")[0]
        return f"{words}: {ast.unparse(self.node).splitlines()[0][:110]} -> {after[:110]}"


def variants(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    """(what changed, the node in its place; None leaves the statement out) of each change of one node."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in OPPOSITE:
            yield "another comparison", ast.Compare(node.left, [OPPOSITE[type(op)]()], node.comparators)
        case ast.BoolOp():
            yield "and for or", ast.BoolOp(OPPOSITE[type(node.op)](), node.values)
            for place in range(len(node.values)):
                rest = node.values[:place] + node.values[place + 1 :]
                yield "one condition less", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.BinOp() if type(node.op) in OPPOSITE:
            yield "another operation", ast.BinOp(node.left, OPPOSITE[type(node.op)](), node.right)
        case ast.UnaryOp(op=ast.Not()) | ast.UnaryOp(op=ast.USub()):
            yield "without its sign", node.operand
        case ast.Constant(value=bool()):
            yield "the other truth", ast.Constant(not node.value)
        case ast.Constant(value=int()):
            yield "a number plus one", ast.Constant(node.value + 1)
        case ast.If() | ast.IfExp():
            for truth in (True, False):
                new = copy.copy(node)
                new.test = ast.Constant(truth)
                yield f"a condition that is {truth}", new
        case ast.Call():
            for place, keyword in enumerate(node.keywords):
                if keyword.arg:
                    rest = node.keywords[:place] + node.keywords[place + 1 :]
                    yield f"without {keyword.arg}=", ast.Call(node.func, node.args, rest)
            plain = not any(isinstance(one, ast.Starred | ast.Constant) for one in node.args[:2])
            kept = isinstance(node.func, ast.Name) and node.func.id in IN_ORDER
            if len(node.args) >= 2 and plain and not kept:
                swapped = [node.args[1], node.args[0], *node.args[2:]]
                yield "two arguments in the other order", ast.Call(node.func, swapped, node.keywords)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "a statement less", None


IN_ORDER = (
    "isinstance",
    "issubclass",
    "hasattr",
    "getattr",
    "setattr",
    "map",
    "filter",
    "zip",
    "partial",
    "cast",
)
"""Calls with arguments that can't be exchanged: each exchange is shown at once, and says nothing."""

SILENT = (
    "__repr__",
    "__str__",
    "__hash__",
    "pprint",
    "pretty",
    "format",
    "error",
    "check",
    "assert",
    "debug",
    "name",
)
"""Parts of names of functions that make texts or refuse calls. Refusals have rules of their own."""


def walk(tree: ast.Module) -> Iterator[tuple[int, ast.AST, str, ast.stmt]]:
    """(number, node, name of its function, statement of the file) of each node in a function that may be changed."""
    left_out = (ast.Raise, ast.Assert, ast.JoinedStr, ast.arguments)
    count = itertools.count()

    def inside(node: ast.AST, function: str, counted: bool) -> Iterator[tuple[int, ast.AST, str]]:
        number = next(count)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}" if function else node.name
        named = isinstance(node, ast.FunctionDef)
        within = (counted or named) and not isinstance(node, left_out)
        if within and not any(one in function for one in SILENT):
            yield number, node, function
        annotation = getattr(node, "returns", None) or getattr(node, "annotation", None)
        for child in ast.iter_child_nodes(node):
            decorates = named and child in node.decorator_list
            yield from inside(child, function, within and child is not annotation and not decorates)

    for statement in tree.body:
        yield from ((*one, statement) for one in inside(statement, "", False))


def draw(
    paths: Sequence[str], files: Sequence[str], count: int, each: int, seed: int
) -> list[tuple[Change, list[str]]]:
    """`count` changes of executed lines, each with the cases that pass and execute it."""
    by_line: dict[tuple[str, int], list[str]] = defaultdict(list)
    wanted = set()
    for case, lines, verdicts in judged(paths):
        if verdicts == ["pass"]:
            for name in lines:
                if any(fnmatch.fnmatch(name, one) for one in files):
                    wanted.add(name)
                    for line in lines[name]:
                        by_line[name, line].append(case)
    by_function: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for name in sorted(wanted):
        tree = ast.parse((reach.HOME / name).read_text(encoding="utf-8"))
        for place, node, function, statement in walk(tree):
            if (name, getattr(node, "lineno", 0)) in by_line:
                for number, _ in enumerate(variants(node)):
                    by_function[name, function].append(Change(name, function, statement, node, place, number))
    drawn = random.Random(seed)
    found = [one for own in by_function.values() for one in drawn.sample(own, min(each, len(own)))]
    drawn.shuffle(found)
    return [(one, affected(one, by_line)) for one in found[:count]]


def affected(change: Change, by_line: dict[tuple[str, int], list[str]]) -> list[str]:
    """The cases that may notice a change. Of an `if` that always or never holds these are the cases that go the other
    way today, as far as the lines tell; without such a case, all that come to it."""
    names, node = by_line[change.file, change.line], change.node
    if not isinstance(node, ast.If) or node.body[0].lineno == node.lineno:
        return names
    inside = set(by_line.get((change.file, node.body[0].lineno), ()))
    holds = change.number == 0
    return [name for name in names if (name in inside) != holds] or names


def judged(paths: Sequence[str]) -> Iterator[tuple[str, dict[str, list[int]], list[str]]]:
    """(case id, lines by file, verdicts) of the files of `reach`."""
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for text in file:
                line = json.loads(text)
                if "lines" in line:
                    yield line["case"], line["lines"], line["verdicts"]


def changed_statement(change: Change) -> ast.Module:
    """The statement of the file with the change. It is changed where it is: in a process of its own."""
    new = list(variants(change.node))[change.number][1] or ast.Pass()

    class Put(ast.NodeTransformer):
        def visit(self, at: ast.AST) -> Any:
            return ast.copy_location(new, at) if at is change.node else self.generic_visit(at)

    return ast.fix_missing_locations(ast.Module([Put().visit(change.statement)], []))


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code objects of functions inside a code object, in order."""
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield one
            yield from codes(one)


def functions_by_file() -> Functions:
    """The functions of JAX that there are, by the path of their file."""
    found: Functions = defaultdict(list)
    for one in gc.get_objects():
        if isinstance(one, types.FunctionType):
            found[one.__code__.co_filename].append(one)
    return found


def put(change: Change, functions: Functions) -> int:
    """Change the functions that there are; returns their number."""
    path = str(reach.HOME / change.file)
    new = {
        (code.co_qualname, code.co_firstlineno): code
        for code in codes(compile(changed_statement(change), path, "exec", annotations.compiler_flag))
    }
    count = 0
    for one in functions[path]:
        code = new.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
        if code is not None and code != one.__code__ and code.co_freevars == one.__code__.co_freevars:
            one.__code__ = code
            count += 1
    return count


def choose(names: Sequence[str], table: dict[str, Case], most: int, seed: int) -> list[str]:
    """At most `most` cases of different operations, or of different small rules."""
    names = [name for name in names if name in table]
    random.Random(seed).shuffle(names)
    by_operation: dict[str, list[str]] = defaultdict(list)
    for name in names:
        by_operation[name.split("/")[0]].append(name)
    found = []
    while len(found) < most and by_operation:
        for operation in list(by_operation):
            found.append(by_operation[operation].pop())
            if not by_operation[operation]:
                del by_operation[operation]
    return found[:most]


def child(change: Change, functions: Functions, chosen: Sequence[Case], pipe: int) -> None:
    """Judge the cases with the change, and write a JSON line for each until one shows it."""
    with os.fdopen(pipe, "w") as out:
        if not put(change, functions):
            out.write(json.dumps({"not put in": True}) + "\n")
            return
        try:
            judge = Judge(tuple(jax.devices()))
        except Exception as error:
            out.write(json.dumps({"case": "devices", "shown": f"error: {error}"[:200]}) + "\n")
            return
        for case in chosen:
            out.write(json.dumps({"case": case.id}) + "\n")
            out.flush()
            bad = [line for line in judge.run(case) if line.verdict in WORSE]
            if bad:
                said = f"{bad[0].check}: {bad[0].verdict}: {bad[0].reason}"[:200]
                out.write(json.dumps({"case": case.id, "shown": said}) + "\n")
                return
            out.write(json.dumps({"case": case.id, "held": True}) + "\n")


def judge_change(
    change: Change, functions: Functions, chosen: Sequence[Case], seconds: float
) -> dict[str, Any]:
    """What the cases say of a change: "shown" with the case and its words, or the cases that held."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            child(change, functions, chosen, writing)
        finally:
            os._exit(0)
    os.close(writing)
    text, end, hangs = b"", time.monotonic() + seconds, False
    while (left := end - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
        if not (part := os.read(reading, 1 << 16)):
            break
        text += part
    else:
        hangs = True
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os.close(reading)
    os.waitpid(pid, 0)
    lines = [json.loads(one) for one in text.decode().splitlines()]
    held = [one["case"] for one in lines if one.get("held")]
    if any("not put in" in one for one in lines):
        return {"skipped": "no function has it"}
    if shown := next((one for one in lines if "shown" in one), None):
        return {"case": shown["case"], "shown": shown["shown"], "held": len(held)}
    if len(held) < len(chosen):
        last = lines[-1]["case"] if lines else "devices"
        return {"case": last, "shown": "hang" if hangs else "crash", "held": len(held)}
    return {"held": len(held), "cases": held}


def run(arguments: argparse.Namespace) -> None:
    """Draw changes and judge them; write a JSON line for each."""
    table = {case.id: case for case in cases(Selection("standard"), DEVICES)}
    drawn = draw(arguments.reach, arguments.files or FILES, arguments.count, arguments.each, arguments.seed)
    part, of = map(int, arguments.part.split("/"))
    functions = functions_by_file()
    output = Path(arguments.output)
    done = {line["place"] for line in read(arguments.output)} if output.exists() else set()
    again = {
        line["place"]: line["cases"] for path in arguments.again for line in read(path) if "cases" in line
    }
    with output.open("a", encoding="utf-8") as file:
        for number, (change, names) in enumerate(drawn[part - 1 :: of], 1):
            if change.key in done or (arguments.again and change.key not in again):
                continue
            others = [name for name in names if name not in again.get(change.key, ())]
            chosen = choose(others, table, arguments.cases, arguments.seed)
            if not chosen:
                continue
            begun = time.monotonic()
            outcome = judge_change(change, functions, [table[name] for name in chosen], arguments.seconds)
            line = {
                "place": change.key,
                "function": change.function,
                "of": len(names),
                "change": change.words(),
            }
            file.write(json.dumps(line | outcome | {"seconds": round(time.monotonic() - begun, 1)}) + "\n")
            file.flush()
            print(f"\r{number} of {len(drawn)} {change.key[:80]:80}", end="", file=sys.stderr)


def read(path: str) -> list[dict[str, Any]]:
    """The lines that `run` wrote."""
    return [json.loads(text) for text in Path(path).read_text(encoding="utf-8").splitlines()]


def tell(arguments: argparse.Namespace) -> None:
    """Print the share of changes that were shown, by file, and each that was not. A later file that judged a change
    again has the last word."""
    last = {line["place"]: line for path in arguments.files for line in read(path)}
    lines = [line for line in last.values() if "skipped" not in line]
    by_file: dict[str, list[bool]] = defaultdict(list)
    for line in lines:
        by_file[line["place"].split(":")[0]].append("shown" in line)
    for name, shown in sorted(by_file.items()):
        print(f"{sum(shown):4} of {len(shown):4} shown  {name}")
    print(f"{sum('shown' in line for line in lines):4} of {len(lines):4} shown")
    for line in sorted(lines, key=lambda one: one["place"]):
        if "shown" not in line:
            place = ":".join(line["place"].split(":")[:2])
            print(f"\n{place} {line['function']}\n  {line['change']}\n  {line['held']} of {line['of']} cases")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run", help="draw changes and judge them")
    one.add_argument("reach", nargs="+", help="files of tests.studies.reach")
    one.add_argument("--output", required=True, help="the file to write")
    one.add_argument("--files", nargs="*", default=[], help="files of JAX below its folder, with * and ?")
    one.add_argument("--count", type=int, default=200, help="the number of changes")
    one.add_argument("--each", type=int, default=1, help="the most changes of one function")
    one.add_argument("--cases", type=int, default=10, help="the most cases for a change")
    one.add_argument("--seconds", type=float, default=120, help="the time for a change")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--part", default="1/1", help="which part of the changes, such as 1/2")
    one.add_argument(
        "--again", nargs="*", default=[], help="files of `run`: more cases for what no case showed there"
    )
    one.set_defaults(do=run)
    one = commands.add_parser("tell", help="the changes that no case showed")
    one.add_argument("files", nargs="+")
    one.set_defaults(do=tell)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
