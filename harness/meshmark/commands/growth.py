# SPDX-License-Identifier: Apache-2.0
"""`meshmark growth`: compiles operations for few to many chips, and compares the growth of their cost with theory."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark.commands.arguments import path
from meshmark.core import files, interrupts, privacy
from meshmark.core.errors import unknown
from meshmark.core.progress import Steps
from meshmark.devices import topologies
from meshmark.devices.environment import of_child
from meshmark.growth import curves as growth
from meshmark.growth import documents as growth_report
from meshmark.growth import lines as growth_lines
from meshmark.growth.curves import MARK, GrowthError
from meshmark.operations.versions import TABLE_VERSION
from meshmark.records import reading, shared
from meshmark.records.reading import RecordError
from meshmark.records.writing import Writer

DEADLINE = 300
"""Seconds after which the compilation of one program counts as a hang."""

MOST_DEATHS = 5
"""How often a topology's child may die before its remaining programs are skipped."""


def add_arguments(to: argparse.ArgumentParser) -> None:
    """The arguments of `meshmark growth`.

    None of them is from meshmark.operations.choosing, whose options choose cells of the case table: a growth series is
    one variant of an operation at sizes and meshes that the table does not have.
    """
    to.add_argument(
        "topologies",
        nargs="*",
        metavar="TOPOLOGY",
        help=f"chips ({', '.join(growth.FAMILIES)}: 4 to 256 or 8,192 of them) or topologies such as v5p:4x4x4",
    )
    to.add_argument(
        "--operations",
        metavar="NAMES",
        help="what to follow: operations, separated by commas, or with the variant that a series is about, as in"
        " mlp/batch=x,model=y;psum (separated by semicolons here, because a variant has commas)"
        f" (default {', '.join(growth.OPERATIONS_BY_DEFAULT)})",
    )
    to.add_argument("--modes", metavar="NAMES", help="of auto,explicit,manual (default all)")
    to.add_argument("--scaling", metavar="NAMES", help="of strong,weak (default both)")
    to.add_argument("--dtype", default="float32", metavar="NAME", help="dtype (default float32)")
    to.add_argument(
        "--layout",
        default="physical",
        choices=topologies.LAYOUTS,
        help="the devices as JAX lays a mesh out on the chips where it can, or as listed (default physical)",
    )
    to.add_argument("--record", type=path, metavar="FILE", help="write the growth records there")
    to.add_argument(
        "--from", dest="read", nargs="+", type=path, metavar="FILE", help="read records, compile nothing"
    )
    to.add_argument("--output", type=path, metavar="DIR", help="write growth.md and plots (SVG) there")


def run(arguments: argparse.Namespace) -> int:
    """Compile or read, then print or write the growth; GrowthError, TopologyError or RecordError for bad input."""
    if arguments.read:
        if arguments.topologies or arguments.record:
            raise GrowthError("--from compiles nothing: leave out the topologies and --record")
        lines, runs = read_growth_lines(arguments.read)
    else:
        lines, runs = compile_programs(arguments)
    every = growth.group_lines(lines)
    if not every:
        raise GrowthError("no program compiled: see the verdicts in the records")
    if arguments.output:
        for made in growth_report.write_growth_pages(every, lines, runs, arguments.output):
            print(f"wrote {made}")
    else:
        print(growth_report.write_markdown(every, lines, runs), end="")
    bad = [line for line in lines if line["verdict"] != "pass"]
    return 1 if bad else 0


def _names(text: str | None, known: Sequence[str], what: str) -> list[str]:
    chosen = [name.strip() for name in (text or ",".join(known)).split(",") if name.strip()]
    for name in chosen:
        if name not in known:
            raise GrowthError(unknown(what, name, known))
    return chosen


def plans(arguments: argparse.Namespace) -> dict[topologies.Topology, list[dict[str, Any]]]:
    """The programs to compile, by topology, in the form that `meshmark.growth.programs` takes."""
    if not arguments.topologies:
        raise GrowthError(f"name chips or topologies, such as v5p or v5e:2x4: {', '.join(growth.FAMILIES)}")
    names = [name for given in arguments.topologies for name in growth.family(given)]
    every = topologies.parse_all(names)
    operations = arguments.operations
    separator = ";" if operations and set(operations) & set("/;") else ","
    wanted = operations.split(separator) if operations else list(growth.OPERATIONS_BY_DEFAULT)
    modes = _names(arguments.modes, growth.MODES, "mode")
    scalings = _names(arguments.scaling, growth.SCALINGS, "scaling")
    found: dict[topologies.Topology, list[dict[str, Any]]] = {t: [] for t in every}
    for chip in {t.chip: None for t in every}:
        by_mesh = {growth.mesh_of(t): t for t in every if t.chip == chip}
        _distinct([t for t in every if t.chip == chip], by_mesh)
        for name in wanted:
            for scaling in scalings:
                for cell in growth.series(name.strip(), by_mesh, scaling, arguments.dtype):
                    topology = by_mesh[cell.request.mesh]
                    found[topology] += _entries(cell, scaling, modes)
    return found


def _distinct(every: Sequence[topologies.Topology], kept: Mapping[Any, topologies.Topology]) -> None:
    """GrowthError if two topologies of a chip have the same number of devices: a series has one point per number."""
    numbers = [t.num_devices for t in every]
    for t in every:
        if numbers.count(t.num_devices) > 1 or t not in kept.values():
            raise GrowthError(f"topology {t}: another one has {t.num_devices} devices too; name one of them")


def _entries(cell: growth.Cell, scaling: str, modes: Iterable[str]) -> Iterator[dict[str, Any]]:
    r = cell.request
    for mode in modes:
        if cell.operation.absent(mode, r.variant, r.mesh) is None:
            yield {
                "operation": cell.operation.name,
                "variant": r.variant.label,
                "mode": mode,
                "mesh": r.mesh.label,
                "dtype": r.dtype,
                "size": r.size,
                "case": cell.case(mode).id,
                "scaling": scaling,
                "whole_bytes": growth.whole_bytes(cell.plan),
                "part_bytes": growth.part_bytes(cell.plan.arguments, r.mesh),
            }


def compile_programs(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(growth lines, run lines) of the requested programs; each is written to --record as it arrives."""
    programs = plans(arguments)
    for topology in programs:
        topologies.compiler(topology)
    writer: Writer | None = None
    lines: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    try:
        for topology, entries in programs.items():
            steps = Steps(str(topology), len(entries))
            for message in children(topology, entries, arguments.layout):
                if "facts" in message:
                    if not runs:
                        interrupts.warn()
                    if not runs or runs[-1]["facts"]["versions"] != message["facts"]["versions"]:
                        line = {"schema": shared.SCHEMA, "kind": "run", "facts": message["facts"]}
                        line["table"] = TABLE_VERSION
                        line |= {"topologies": [t.name for t in programs], "layout": arguments.layout}
                        runs.append(line)
                        if arguments.record:
                            writer = writer or Writer.create(
                                arguments.record, {k: line[k] for k in list(line)[2:]}
                            )
                    continue
                lines.append(message)
                steps.step(message["case"])
                if writer:
                    writer.write([message])
    finally:
        if writer:
            writer.close()
    return lines, runs


def children(
    topology: topologies.Topology, entries: Sequence[dict[str, Any]], layout: str
) -> Iterator[dict[str, Any]]:
    """The facts and the growth lines of one topology. If a child dies, only its current program is lost."""
    head = {
        "schema": shared.SCHEMA,
        "kind": "growth",
        "topology": topology.name,
        "chip": topology.chip,
        "chips": topology.num_chips,
        "devices": topology.num_devices,
    }
    left = list(entries)
    deaths = 0
    while left:
        at = False
        code = 0
        for message in _child(topology, left, layout):
            if "problem" in message:
                raise topologies.TopologyError(message["problem"])
            if "code" in message:
                code = message["code"]
            elif "facts" in message:
                yield message
            elif "at" in message:
                at = True
            else:
                message.pop("done")
                yield head | left.pop(0) | {"reason": ""} | message
                at = False
        if not left:
            return
        deaths += 1
        verdict = "crash" if code < 0 else "hang"
        reason = f"the compiler ended the process (signal {-code})" if code < 0 else f"past {DEADLINE} s"
        if not at or deaths > MOST_DEATHS:
            raise GrowthError(
                f"{topology}: the child that compiles dies (exit code {code}): run python -m meshmark.growth.programs"
            )
        yield head | left.pop(0) | {"verdict": verdict, "reason": reason}


def _child(
    topology: topologies.Topology, entries: Sequence[dict[str, Any]], layout: str
) -> Iterator[dict[str, Any]]:
    job = {"topology": topology.name, "programs": list(entries), "layout": layout, "deadline": DEADLINE}
    child = subprocess.Popen(
        [sys.executable, "-m", "meshmark.growth.programs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=of_child(),
    )
    assert child.stdin and child.stdout
    try:
        try:
            child.stdin.write(json.dumps(job))
            child.stdin.close()
        except BrokenPipeError:
            pass
        for text in child.stdout:
            if text.startswith(MARK) and text.endswith("\n"):
                message = json.loads(text.removeprefix(MARK))
                if "reason" in message:
                    message["reason"] = privacy.redact(message["reason"])
                yield message
        yield {"code": child.wait()}
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def read_growth_lines(paths: Iterable[Path]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(growth lines, run lines) of record files; RecordError if a file can't be read or has no such lines."""
    lines: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for file in paths:
        try:
            texts = files.read_text(file, errors="replace").splitlines()
        except OSError as error:
            raise RecordError(f"can't read {file}: {os.strerror(error.errno or 0)}") from None
        before = len(lines)
        for number, text in enumerate(texts, 1):
            try:
                record = json.loads(text)
                kind = record["kind"]
            except (ValueError, TypeError, KeyError, RecursionError):
                raise RecordError(f"{file}:{number} is not a record: make the file again") from None
            if kind == "growth" and (why := growth_lines.problem(record)):
                raise RecordError(f"{file}:{number} is not a growth record: it {why}")
            if kind == "growth":
                lines.append(record)
            elif kind == "run" and not reading.CHECKED["run"]["facts"](record.get("facts")):
                runs.append(record)
        if len(lines) == before:
            raise RecordError(f"{file} holds no growth: name a file that `meshmark growth --record` wrote")
    return lines, runs
