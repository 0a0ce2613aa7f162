# SPDX-License-Identifier: Apache-2.0
"""Finds the lines of JAX that no case executes: a fault there can't be seen.

    python -m tests.studies.reach run --output FILE [--each 6] [--part 1/2] [--only NAME ...]
    python -m tests.studies.reach lines FILE ... [--module jax._src.shard_map ...]
    python -m tests.studies.reach cases FILE ... --at jax/_src/shard_map.py:812

`run` judges cases, and notes which lines of JAX each of them executes. Of an operation at most `--each` cases count,
spread over its modes and meshes. `lines` prints the functions with lines that no case executed, most lines first.
`cases` names the cases that execute a line. A line that is executed is not yet judged: tests.studies.spoilt_rules and
the catalogue of faults ask for that. Python 3.12 or newer, since it needs `sys.monitoring`.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import inspect
import json
import os
import sys
import types
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax

from meshmark.judge.checks import Judge
from meshmark.operations.cases import Case, cases
from meshmark.operations.selection import Selection

HOME = Path(jax.__file__).resolve().parent
TOOL = 4
"""The id of this tool for `sys.monitoring`, which has six."""

LEFT_OUT = (
    "_src/pallas/",
    "experimental/pallas/",
    "_src/test_",
    "experimental/jax2tf/",
    "experimental/mosaic/",
)
"""Parts of JAX that Meshmark does not judge."""


class Watched:
    """The lines of JAX that are executed."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()

    def __enter__(self) -> Watched:
        monitoring = sys.monitoring
        monitoring.use_tool_id(TOOL, "reach")
        monitoring.register_callback(TOOL, monitoring.events.LINE, self._note)
        monitoring.set_events(TOOL, monitoring.events.LINE)
        return self

    def __exit__(self, *_: object) -> None:
        sys.monitoring.set_events(TOOL, 0)
        sys.monitoring.register_callback(TOOL, sys.monitoring.events.LINE, None)
        sys.monitoring.free_tool_id(TOOL)

    def take(self) -> list[tuple[str, int]]:
        """The lines since the last call; each is noted again from now on."""
        found, self.lines = sorted(self.lines), set()
        sys.monitoring.restart_events()
        return found

    def _note(self, code: types.CodeType, line: int) -> object:
        if code.co_filename.startswith(str(HOME)):
            self.lines.add((code.co_filename[len(str(HOME)) + 1 :], line))
        return sys.monitoring.DISABLE


def spread(each: int, only: Sequence[str]) -> list[Case]:
    """At most `each` cases of an operation, in steps over all of its cases. An operation whose cases are programs of
    their own (host programs) has all of them."""
    by_operation: dict[str, list[Case]] = defaultdict(list)
    for case in cases(Selection("standard"), len(jax.devices())):
        name = case.id.split("/")[0]
        if not only or any(fnmatch.fnmatch(text, one) for one in only for text in (name, case.id)):
            by_operation[name].append(case)
    found = []
    for own in by_operation.values():
        rules = all("form=" in case.id for case in own)
        step = 1 if rules else max(1, len(own) / each)
        found += [own[int(place * step)] for place in range(int(len(own) / step))]
    return found


def run(arguments: argparse.Namespace) -> None:
    """Judge, and write a JSON line before each case and one after it: its id, its verdicts, and its lines by file.

    A case that ends the process is skipped when the command runs again.
    """
    judge = Judge(tuple(jax.devices()))
    part, of = map(int, arguments.part.split("/"))
    output = Path(arguments.output)
    begun = {json.loads(text)["case"] for text in output.open(encoding="utf-8")} if output.exists() else set()
    chosen = [case for case in spread(arguments.each, arguments.only)[part - 1 :: of] if case.id not in begun]
    with Watched() as watched, output.open("a", encoding="utf-8") as file:
        for number, case in enumerate(chosen, 1):
            file.write(json.dumps({"case": case.id}) + "\n")
            file.flush()
            jax.clear_caches()  # a rule whose result is kept is not executed again
            watched.take()
            lines = judge.run(case)
            by_file = defaultdict(list)
            for name, line in watched.take():
                by_file[name].append(line)
            verdicts = sorted({line.verdict for line in lines})
            file.write(json.dumps({"case": case.id, "verdicts": verdicts, "lines": by_file}) + "\n")
            file.flush()
            print(f"\r{number} of {len(chosen)} {case.id[:90]:90}", end="", file=sys.stderr)


def read(paths: Sequence[str]) -> Iterator[tuple[str, dict[str, list[int]]]]:
    """(case id, lines by file) of the files that `run` wrote."""
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for text in file:
                line = json.loads(text)
                if "lines" in line:
                    yield line["case"], line["lines"]


def functions(path: Path) -> Iterator[tuple[str, int, set[int]]]:
    """(qualified name, first line, lines that can be executed) of each function of a file, without its first line."""
    waiting = [compile(path.read_text(encoding="utf-8"), str(path), "exec")]
    while waiting:
        code = waiting.pop()
        waiting += [one for one in code.co_consts if inspect.iscode(one)]
        if code.co_flags & inspect.CO_NEWLOCALS and code.co_flags & inspect.CO_OPTIMIZED:
            lines = {line for _, _, line in code.co_lines() if line and line != code.co_firstlineno}
            yield code.co_qualname, code.co_firstlineno, lines


def unreached(paths: Sequence[str], modules: Sequence[str]) -> list[tuple[str, str, int, list[int]]]:
    """(file, function, number of its lines, lines that no case executed), most of them first."""
    seen = defaultdict(set)
    for _, lines in read(paths):
        for name, numbers in lines.items():
            seen[name].update(numbers)
    wanted = [_file_of(module) for module in modules] or [
        name for name in seen if not name.startswith(LEFT_OUT)
    ]
    found = []
    for name in wanted:
        for function, _, lines in functions(HOME / name):
            if missing := sorted(lines - seen[name]):
                found.append((name, function, len(lines), missing))
    return sorted(found, key=lambda one: -len(one[3]))


def _file_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise SystemExit(f"no module {module}: name one of JAX, such as jax._src.shard_map")
    return str(Path(spec.origin).resolve().relative_to(HOME))


def tell(arguments: argparse.Namespace) -> None:
    """Print the functions with lines that no case executed."""
    for name, function, of, missing in unreached(arguments.files, arguments.module):
        print(f"{len(missing):4} of {of:4}  {name}:{function}  {','.join(map(str, missing))[:160]}")


def name_cases(arguments: argparse.Namespace) -> None:
    """Print the cases that execute a line."""
    name, _, line = arguments.at.rpartition(":")
    name = name.removeprefix("jax/")
    for case, lines in read(arguments.files):
        if int(line) in lines.get(name, ()):
            print(case)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run", help="judge cases and note their lines")
    one.add_argument("--output", required=True, help="the file to write")
    one.add_argument("--each", type=int, default=6, help="the most cases of an operation")
    one.add_argument("--part", default="1/1", help="which part of the cases, such as 1/2")
    one.add_argument("--only", nargs="*", default=[], help="operations or case ids, with * and ?")
    one.set_defaults(do=run)
    one = commands.add_parser("lines", help="the functions with lines that no case executed")
    one.add_argument("files", nargs="+")
    one.add_argument("--module", nargs="*", default=[], help="modules of JAX; all without it")
    one.set_defaults(do=tell)
    one = commands.add_parser("cases", help="the cases that execute a line")
    one.add_argument("files", nargs="+")
    one.add_argument("--at", required=True, metavar="FILE:LINE")
    one.set_defaults(do=name_cases)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
