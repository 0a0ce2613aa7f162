"""The command line: `meshmark`, or `python -m harness` in a bare checkout.

argparse, since a bare checkout has no more than jax, numpy, pytest and pytest-xdist. No command starts a JAX
backend: `devices` asks a child process, and the others need none. Exit codes: 0; 1 where a check said no; 2
for bad input, with one line that names it and the mend.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from meshmark import __version__
from meshmark.asv import doctor as asv_doctor
from meshmark.commands import bench as bench_command
from meshmark.commands import compare as compare_command
from meshmark.commands import growth as growth_command
from meshmark.commands import launch as launch_command
from meshmark.commands import levels as levels_command
from meshmark.commands import report as report_command
from meshmark.commands import submit as submit_command
from meshmark.commands import test as test_command
from meshmark.commands import validate as validate_command
from meshmark.commands.arguments import names, natural, path, positive, seconds
from meshmark.core import interrupts, meshes
from meshmark.core.errors import BadInput
from meshmark.core.text import printable, text_table
from meshmark.devices import advice, probe
from meshmark.devices.environment import DEFAULT_CPU_DEVICES, cpu_devices
from meshmark.judge import repro
from meshmark.judge.repro import shrink
from meshmark.operations import OPERATIONS, cases
from meshmark.operations.base import MODES, Operation
from meshmark.operations.cases import Case
from meshmark.operations.selection import CAPABILITIES, LEVELS, Selection, SelectionError
from meshmark.operations.weights import PROFILES
from meshmark.records import reading
from meshmark.records.reading import RecordError, Records
from meshmark.report import diff, tables, topology_tables
from meshmark.report.tables import TablesError

LONGEST = 2000
"""Characters of the longest complaint."""

MOST_DEVICES = 4096
"""The most devices that `repro` takes from the mesh of a case id."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code."""
    arguments = parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a locale without a character is no reason to fail
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with interrupts.terminated():
            code = arguments.run(arguments)
        sys.stdout.flush()
    except BadInput as error:
        complain(str(error))
        return 2
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        complain(f"can't write the output: {error.strerror}")
        return 2
    except KeyboardInterrupt as error:
        return interrupts.code(error)
    return code


def complain(message: str) -> None:
    """One line on stderr."""
    print(f"meshmark: {printable(message[:LONGEST])}", file=sys.stderr)


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        complain(f"{message} (see {self.prog} --help)")
        sys.exit(2)


# Arguments --------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = Parser(prog="meshmark", description="Conformance and benchmark suite for distributed JAX.")
    top.add_argument("--version", action="version", version=f"meshmark {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        made.set_defaults(run=run)
        return made

    add = command("test", test_command.run, "the conformance suite; takes every option of pytest")
    test_command.add_arguments(add)

    add = command("devices", show_devices, "what JAX sees, the meshes that are used, advice on placement")
    add.add_argument("--num-devices", type=positive, metavar="N", help="virtual CPU devices (default 8)")
    add.add_argument("--json", action="store_true", help="the same as JSON")

    add = command("list", list_table, "the case table, or the part of it that the options choose")
    add_selection(add)
    add.add_argument(
        "--num-devices",
        type=positive,
        metavar="N",
        default=DEFAULT_CPU_DEVICES,
        help=f"devices to list the table for (default {DEFAULT_CPU_DEVICES}; none is asked)",
    )
    add.add_argument(
        "--num-processes",
        type=positive,
        metavar="N",
        default=1,
        help="processes that share the devices (default 1; several have operations and a mesh of their own)",
    )
    shape = add.add_mutually_exclusive_group()
    shape.add_argument("--cases", action="store_true", help="a case id a line")
    shape.add_argument("--why", action="store_true", help="why an operation has no spelling in a mode")
    add.add_argument("--json", action="store_true", help="the same as JSON")

    add = command("tables", make_tables, "records in, Markdown and CSV out")
    add.add_argument("records", nargs="+", type=path, metavar="RECORDS", help="what --record wrote")
    add.add_argument(
        "--output", type=path, metavar="DIR", help="write files there instead of to the terminal"
    )
    add.add_argument(
        "--format",
        type=formats,
        metavar="FORMATS",
        help="md, csv or md,csv (default: md in the terminal, else both)",
    )

    add = command("repro", print_script, "a stand-alone script of one case, fit for a bug report")
    add.add_argument(
        "case", metavar="CASE", help="a case id, as failures and `meshmark list --cases` print it"
    )
    add.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the inputs (default 0)")
    add.add_argument(
        "--num-devices",
        type=positive,
        metavar="N",
        help="devices of the run (default 8, or what the mesh needs)",
    )
    add.add_argument(
        "--no-run",
        action="store_true",
        help="run nothing: print the whole case, with the inputs of the suite",
    )
    add.add_argument(
        "--seconds",
        type=seconds,
        default=shrink.SECONDS,
        metavar="S",
        help=f"seconds to look for a smaller case that still fails here (default {shrink.SECONDS:.0f})",
    )

    add = command("diff", show_diff, "verdicts that changed between two record files")
    add.add_argument("old", type=path, metavar="OLD", help="the records before")
    add.add_argument("new", type=path, metavar="NEW", help="the records after")
    add.add_argument(
        "--compiled",
        action="store_true",
        help="compare what the programs compiled to instead: collectives, bytes, flops and memory, exactly",
    )

    add = command("bench", bench_command.run, "time collectives, matmuls and layers, the modes side by side")
    bench_command.add_arguments(add)

    add = command("compare", compare_command.run, "two environments, commits or record files: what is slower")
    compare_command.add_arguments(add)

    add = command(
        "growth", growth_command.run, "what grows how fast with the number of devices, compiled only"
    )
    growth_command.add_arguments(add)

    add = command("asv-doctor", asv_doctor.run, "known pitfalls in benchmarks and configurations of asv")
    asv_doctor.add_arguments(add)

    add = command("report", report_command.run, "records in; page, Markdown, CSV and LaTeX out, or checked")
    report_command.add_arguments(add)

    add = command(
        "levels", levels_command.run, "the level statement of records, and the frozen must-pass lists"
    )
    levels_command.add_arguments(add)

    add = command("submit", submit_command.run, "records in, a bundle out that can be published")
    submit_command.add_arguments(add)

    add = command("validate", validate_command.run, "a bundle, or results/, checked as a reviewer would")
    validate_command.add_arguments(add)

    add = command(
        "launch", launch_command.launch, "several processes of one command on this machine, as ranks"
    )
    launch_command.add_launch_arguments(add)

    add = command("merge", launch_command.merge_files, "the records of several ranks in, one file out")
    launch_command.add_merge_arguments(add)
    return top


def add_selection(to: argparse.ArgumentParser) -> None:
    """The options of `pytest conformance` that choose from the table."""
    to.add_argument(
        "--profile", default="standard", help=f"how much: {', '.join(PROFILES)} (default standard)"
    )
    for option, what, examples in (
        ("level", "these levels", LEVELS),
        ("with", "with these optional capabilities", CAPABILITIES),
        ("operations", "these operations", ("psum", "matmul")),
        ("modes", "these modes", MODES),
        ("meshes", "these meshes", ("2x4", "8")),
        ("dtypes", "these dtypes", ("float32", "int8")),
        ("sizes", "these sizes", ("4KiB",)),
    ):
        only = "" if option == "with" else "only "
        text = f"{only}{what}, such as {','.join(examples)}"
        to.add_argument(
            f"--{option}", dest=f"chosen_{option}", type=names, default=(), metavar="NAMES", help=text
        )


def formats(text: str) -> tuple[str, ...]:
    """The formats of a comma-separated list."""
    chosen = names(text)
    if not chosen or set(chosen) - set(tables.FORMATS):
        raise argparse.ArgumentTypeError(f"unknown format {text!r}: choose from {', '.join(tables.FORMATS)}")
    return chosen


# devices ----------------------------------------------------------------------------------------------------


def show_devices(arguments: argparse.Namespace) -> int:
    """What JAX sees, which meshes will be used, and which to use for what."""
    facts = probe.probe(cpu_devices(arguments.num_devices))
    if arguments.num_devices and not facts.virtual:
        complain(f"note: --num-devices is ignored on backend {facts.backend}")
    advised, used = advice.advise(facts), meshes_used(facts.num_devices)
    if arguments.json:
        shown = [vars(a) for a in advised]
        show_json({"facts": facts.to_json(), "meshes": used, "advice": shown, "notes": advice.notes(facts)})
        return 0
    show(facts.describe())
    show(["", "Devices"], text_table(["id", "process", "coordinates"], _device_rows(facts.devices)))
    show(["", "Meshes that a profile uses"], (f"  {p:9} {' '.join(labels)}" for p, labels in used.items()))
    show(["", "Which mesh for which parallelism (rules of thumb)"])
    for a in advised:
        show([f"  {a.parallelism}: {a.mesh}", f"      {a.why}"])
    show(["", "Notes"], (f"  {note}" for note in advice.notes(facts)))
    return 0


def meshes_used(num_devices: int) -> dict[str, list[str]]:
    """The meshes that each profile uses at most, by label."""
    weights = meshes.weighted(num_devices)
    return {
        profile: [m.label for m, weight in weights.items() if weight <= limit]
        for profile, limit in PROFILES.items()
    }


def _device_rows(listed: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    for d in listed:
        yield [str(d["id"]), str(d["process"]), ",".join(map(str, d["coords"])) or "-"]


# list -------------------------------------------------------------------------------------------------------


def list_table(arguments: argparse.Namespace) -> int:
    """The chosen part of the case table."""
    selection = Selection(
        profile=arguments.profile,
        levels=arguments.chosen_level,
        capabilities=arguments.chosen_with,
        operations=arguments.chosen_operations,
        modes=arguments.chosen_modes,
        meshes=arguments.chosen_meshes,
        dtypes=arguments.chosen_dtypes,
        sizes=arguments.chosen_sizes,
        processes=arguments.num_processes,
    ).checked(arguments.num_devices)
    if arguments.num_devices % arguments.num_processes:
        raise SelectionError(
            f"{arguments.num_devices} devices are no equal share for {arguments.num_processes} processes:"
            " name another --num-devices"
        )
    chosen = cases.cases(selection, arguments.num_devices)
    if arguments.why:
        reasons = list(absences(selection, arguments.num_devices))
        header = ["operation", "mode", "reason", "where"]
        show_json([dict(zip(header, r, strict=True)) for r in reasons]) if arguments.json else show(
            left_table(header, reasons)
        )
    elif arguments.cases:
        show_json([_case(case) for case in chosen]) if arguments.json else show(case.id for case in chosen)
    else:
        rows = operations(chosen)
        show_json(rows) if arguments.json else show(_operation_table(rows))
    return 0


def operations(chosen: Iterable[Case]) -> list[dict[str, Any]]:
    """A row for each operation of these cases: what it is, and what of it is chosen."""
    rows: dict[str, dict[str, Any]] = {}
    for case in chosen:
        o, r = case.operation, case.cell.request
        row = rows.setdefault(
            o.name,
            {"operation": o.name, "family": o.family, "levels": {}, "modes": {}, "dtypes": {}, "meshes": {}}
            | {"cases": 0, "description": description(o)},
        )
        row["cases"] += 1
        chosen_here = {"levels": case.level, "modes": case.mode, "dtypes": r.dtype, "meshes": r.mesh.label}
        for name, value in chosen_here.items():
            row[name][value] = None
    return [{k: list(v) if isinstance(v, dict) else v for k, v in row.items()} for row in rows.values()]


def description(operation: Operation) -> str:
    """The first sentence or line of the operation's docstring."""
    lines = (type(operation).__doc__ or "").strip().split("\n\n")[0]
    return " ".join(lines.split())


def _operation_table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    header = ["operation", "family", "levels", "modes", "dtypes", "cases", "description"]
    shown = [[" ".join(v) if isinstance(v := r[h], list) else str(v) for h in header] for r in rows]
    for cells in shown:
        cells[-1] = textwrap.shorten(cells[-1], 80, placeholder=" ...")
    yield from left_table(header, shown)
    yield f"{len(rows)} operations, {sum(r['cases'] for r in rows)} cases"


def _case(case: Case) -> dict[str, Any]:
    r = case.cell.request
    return {
        "case": case.id,
        "operation": case.operation.name,
        "variant": r.variant.label,
        "mode": case.mode,
        "mesh": r.mesh.label,
        "dtype": r.dtype,
        "size": r.size,
        "level": case.level,
    }


def absences(selection: Selection, num_devices: int) -> Iterator[list[str]]:
    """[operation, mode, reason, where] for what has no spelling; where: all, or of how many variants."""
    shapes = [*map(meshes.parse, selection.meshes)] or list(meshes.weighted(num_devices, selection.processes))
    for operation in OPERATIONS.values():
        if selection.operations and operation.name not in selection.operations:
            continue
        places = [(variant, mesh) for mesh in shapes for variant in operation.variants(mesh)]
        for mode in selection.modes or MODES:
            found: dict[str, list[str]] = {}
            for variant, mesh in places:
                reason = operation.absent(mode, variant, mesh)
                if reason is not None:
                    found.setdefault(reason, []).append(f"{variant.label} on {mesh.label}")
            for reason, where in found.items():
                some = f"{len(where)} of {len(places)}, such as {where[0]}"
                yield [operation.name, mode, reason, "everywhere" if len(where) == len(places) else some]


# tables -----------------------------------------------------------------------------------------------------


def make_tables(arguments: argparse.Namespace) -> int:
    """Markdown and CSV of record files; 2 where a part of them could not be used, after doing the rest."""
    chosen = arguments.format or (tables.FORMATS if arguments.output else ("md",))
    if arguments.output is None and len(chosen) > 1:
        raise TablesError("several formats go to files: add --output DIR, or name one format")
    files, code = read_all(arguments.records)
    if not files:
        return 2
    texts = tables.make_tables(files, chosen)
    if arguments.output is None:
        print(texts[chosen[0]], end="")
    else:
        show(f"wrote {file}" for file in tables.write(texts, arguments.output))
    return code


def read_all(paths: Iterable[Path]) -> tuple[list[Records], int]:
    """The record files that can be read, and 2 where there was any problem, each told in one line; else 0."""
    files, code = [], 0
    for file in paths:
        try:
            found = reading.read(file)
        except RecordError as error:
            complain(str(error))
            code = 2
            continue
        cut = [case for case, judged in found.cases.items() if not judged.finished]
        for case in cut:
            del found.cases[case]
        if cut:
            complain(f"{file}: {len(cut)} cases without their last line are left out, such as {cut[0]}")
        for problem in found.problems:
            complain(problem)
        if cut or found.problems:
            code = 2
        files.append(found)
    return files, code


# repro ------------------------------------------------------------------------------------------------------


def print_script(arguments: argparse.Namespace) -> int:
    """The script of one case: where it fails here, of the smallest form that still fails."""
    number = arguments.num_devices or _needed(arguments.case)
    case = cases.find(arguments.case, number)
    if arguments.no_run:
        text = repro.script(case, number, arguments.seed)
    else:
        text = shrink.shrunk(case, number, arguments.seed, arguments.seconds, complain)
    print(text, end="")
    return 0


def _needed(case_id: str) -> int:
    """The devices for a case id: the default, or more where its mesh has more."""
    try:
        size = meshes.parse(case_id.split("/")[3]).size
    except (IndexError, ValueError):
        return DEFAULT_CPU_DEVICES
    return max(DEFAULT_CPU_DEVICES, size) if size <= MOST_DEVICES else DEFAULT_CPU_DEVICES


# diff -------------------------------------------------------------------------------------------------------


def show_diff(arguments: argparse.Namespace) -> int:
    """Verdicts that changed; 1 on a new failure, 2 where a file could not be used wholly. With --compiled what
    compiled otherwise, which is no failure."""
    files, code = read_all([arguments.old, arguments.new])
    if len(files) < 2:
        return 2
    show(diff.processes(*files))
    if arguments.compiled:
        show(topology_tables.report(*topology_tables.differences(*files), *files))
        return code
    found = diff.compare(files[0].cases, files[1].cases)
    show(diff.report(found))
    return code or int(bool(found.failures))


# Printing ---------------------------------------------------------------------------------------------------


def show(*parts: Iterable[str]) -> None:
    """Print lines."""
    for part in parts:
        for line in part:
            print(line)


def show_json(value: Any) -> None:
    """Print JSON for people and programs."""
    print(json.dumps(value, indent=2, allow_nan=False))


def left_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table with every column to the left; the last one is not padded."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for line in (header, ["-" * w for w in widths], *rows):
        yield "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
