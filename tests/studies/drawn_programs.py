# SPDX-License-Identifier: Apache-2.0
"""Draws and chooses the programs of the operation `drawn_programs`, and judges them on the installed JAX:

    python -m tests.studies.drawn_programs draw --seed 1 --programs 2500 --to pool.jsonl
    python -m tests.studies.drawn_programs choose pool.jsonl --count 480 --to chosen.jsonl
    python -m tests.studies.drawn_programs judge chosen.jsonl --to verdicts.jsonl     # once with each release
    python -m tests.studies.drawn_programs append chosen.jsonl verdicts-*.jsonl

A program is a candidate if its operations are exact and all have definitions. `choose` takes the candidate with the
most that no earlier one has: an operation, or an operation together with a dtype, an option, a form around it, a
derivative, or a way to run. `judge` runs each program in a child process, so a crash loses only this program. `append`
adds those that are right with every verdict file to the data, and lists the others: each of them shows a bug of JAX, or
a fault of Meshmark, and has to be explained.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

WAYS = {"auto": 0.5, "explicit": 0.15, "eager": 0.1, "permuted": 0.12, "donated": 0.13}
"""The share of programs for each way to run."""

MANUAL, TURNED = 0.12, 0.1
"""The shares that are written inside of a shard_map, and over a mesh with the axis sizes rotated."""

MESHES = ((2, 4), (8,), (2, 2, 2), (4, 2))
"""All meshes have eight devices."""

DTYPES = ("float32", "int32", "uint8", "int8", "int16", "uint16", "uint32", "bfloat16", "float16", "bool")
"""The dtypes of the inputs of a program of one kind of operation."""

TIED = 0.33
"""The share of their inputs that have at most three different numbers."""

AROUND = {"": 0.66, "vmap": 0.12, "shard_map": 0.14, "scan": 0.04, "cond": 0.04}
"""The share of programs of one kind of operation that have this form around it."""

MOST = 400
"""The most numbers in the stored results of a program with a derivative."""


def draw_one(seed: int, number: int) -> Any:
    """A program of one kind of operation, in turns through all kinds: alone, or inside of a form."""
    from meshmark.hunt import forms
    from meshmark.hunt.drawing import KINDS, Miss
    from meshmark.hunt.generator import Drawing
    from meshmark.hunt.levels import Level

    kind = [*KINDS.values()][number % len(KINDS)]

    class One(Drawing):
        """The state that draws programs of one kind."""

        def kind(self, manual: bool) -> Any:
            return kind

        def fresh(self, shape: Any, dtype: str, fill: Any = None) -> Any:
            # Few different numbers, so that there are ties, in a third of the inputs.
            if fill is None and not self.special and self.random.random() < TIED:
                low = 0 if dtype in ("uint8", "uint16", "uint32", "bool") else -1
                fill = {"kind": "ints", "low": low, "high": 1, "seed": self.random.randint(0, 999)}
            return super().fresh(shape, dtype, fill)

        def drawn(self) -> Any:
            # NaN and infinities times zero are NaN, and compilers may leave such a product out.
            self.special = self.special and kind.family not in ("window", "dot", "algebra", "layer", "edge")
            level = Level(0, self.values, self.nodes, ())
            dtypes = [*DTYPES, *("float32", "int32") * 3]
            for _ in range(self.random.choice([1, 1, 2])):
                self.fresh(self.shape(), self.random.choice(dtypes))
            form = self.random.choices(list(AROUND), list(AROUND.values()))[0]
            form = "shard_map" if kind.family == "collective" else form
            if form:
                forms.add(self, level, form)
            else:
                self.step(level)
            return self.finish(level)

    shares = forms.SHARES.copy()
    forms.SHARES.update(dict.fromkeys(shares, 0.0))  # no form but the one around
    try:
        for attempt in range(60):
            drawing = One(seed, number * 64 + attempt, None, MESHES)
            try:
                return drawing.program()
            except Miss:
                continue
    finally:
        forms.SHARES.update(shares)
    return None


def draw(seed: int, number: int, one: bool = False) -> dict[str, Any] | str:
    """A candidate as data, or the reason why this program is none. one: it has one kind of operation."""
    from meshmark.hunt import generator, oracles
    from meshmark.hunt.spellings import Inapplicable, spell_manually, turn_mesh
    from meshmark.program_data.program import Transform

    own = random.Random(f"{seed}/{number}/way")
    program = draw_one(seed, number) if one else generator.draw(seed, number, meshes=MESHES)
    if program is None:
        return "nothing fits"
    way = own.choices(list(WAYS), list(WAYS.values()))[0]
    try:
        if own.random() < MANUAL:
            program = spell_manually(program)
        elif own.random() < TURNED:
            program = turn_mesh(program)
    except Inapplicable:
        pass
    if oracles.rounds(program):
        return "it rounds"
    made = describe(program, way)
    if isinstance(made, str) and program.transform.kind:  # the function alone may have a definition
        alone = replace(program, inputs=program.inputs[: program.given], transform=Transform())
        made = describe(alone, way)
    return made


def describe(program: Any, way: str) -> dict[str, Any] | str:
    """A program with what defines its results, as data, or the reason why it has no definition."""
    import jax
    import numpy as np

    from meshmark.program_data import definitions, slopes
    from meshmark.program_data.building import find_dtypes
    from meshmark.program_data.program import to_json
    from meshmark.program_data.references import Undefined

    made: dict[str, Any] = {"way": way}
    try:
        with np.errstate(all="ignore"):
            made["dtypes"] = find_dtypes(program)
            if program.transform.kind:
                right = slopes.compute_derivatives(program, made["dtypes"])
                kinds = derivative_dtypes(program, made["dtypes"])
                if sum(r.size for r in right) > MOST:
                    return "too many numbers"
                # Derivatives of exact programs are short numbers; the rest is the rounding of the differences.
                made["right"] = [
                    {"dtype": kind, "shape": list(r.shape), "data": [round(float(v), 6) for v in r.ravel()]}
                    for r, kind in zip(right, kinds, strict=True)
                ]
                largest = max((float(np.abs(r).max(initial=0)) for r in right), default=0.0)
            else:
                found = definitions.compute_results(program, made["dtypes"])
                largest = max(
                    (float(np.abs(r[np.isfinite(r)]).max(initial=0)) for r in found if r.dtype.kind == "f"),
                    default=0.0,
                )
        if largest >= 2**20:
            return "too large"
    except (Undefined, OverflowError) as error:
        return f"undefined: {error}"
    except jax.errors.JAXTypeError as error:
        return type(error).__name__
    return {"program": to_json(program), **made}


def derivative_dtypes(program: Any, dtypes: Any) -> list[str]:
    """The dtypes of the results of a program with a derivative."""
    kinds = [i.dtype for i in program.inputs[: program.given]]
    nodes = iter(dtypes)
    for node in program.nodes:
        kinds.append(next(nodes))
        for _ in range(sum(1 for _ in inner(node))):
            next(nodes)
    results = [kinds[o] for o in program.outputs]
    wrt = [kinds[i] for i in program.transform.wrt]
    return [*results, *results] if program.transform.kind == "jvp" else wrt


def inner(node: Any) -> Iterator[Any]:
    """The operations inside of the bodies of one."""
    from meshmark.program_data.program import walk_nodes

    for body in node.bodies:
        yield from walk_nodes(body.nodes)


def features(data: dict[str, Any]) -> set[tuple[str, ...]]:
    """What a program has: operations, and operations together with something else."""
    found: set[tuple[str, ...]] = set()
    kinds = iter(data["dtypes"])
    transform = data["program"].get("transform", {}).get("kind", "")

    def walk(nodes: Any, around: str) -> None:
        for node in nodes:
            op, dtype = node["op"], next(kinds)
            found.add((op,))
            found.add((op, "dtype", str(dtype)))
            found.add((op, "inside", around))
            found.add((op, "transform", transform))
            found.add((op, "way", data["way"]))
            for key, value in node.get("kwargs", {}).items():
                found.add((op, key, str(value)[:20]))
            for k, value in enumerate(node["args"]):
                if isinstance(value, (int, bool, str)):
                    found.add((op, f"argument {k}", str(value)))
                elif isinstance(value, dict) and "name" in value:
                    found.add((op, "function", value["name"]))
            for body in node.get("bodies", ()):
                walk(body["nodes"], op)

    walk(data["program"]["nodes"], "")
    return found


def choose(lines: list[str], count: int, have: list[str]) -> list[str]:
    """The lines that add the most features to those of `have`, in the order of their choice."""
    counted: collections.Counter[tuple[str, ...]] = collections.Counter()
    for line in have:
        counted.update(features(json.loads(line)))
    left = [(line, features(data), len(data["dtypes"])) for line in lines for data in [json.loads(line)]]
    chosen = []
    while left and len(chosen) < count:
        scores = [
            sum((4.0 if len(f) == 1 else 1.0) * 0.25 ** counted[f] for f in own) / (3 + nodes)
            for _, own, nodes in left
        ]
        best = scores.index(max(scores))
        line, own, _ = left.pop(best)
        counted.update(own)
        chosen.append(line)
    return chosen


def judge_here(path: Path, start: int, to: Path) -> None:
    """Judge the programs from number `start` on in this process."""
    import jax

    from meshmark.operations.programs import drawn

    with to.open("a") as out:
        for number, line in enumerate(path.read_text().splitlines()):
            if number < start:
                continue
            out.write(json.dumps({"number": number, "begins": True}) + "\n")
            out.flush()
            began = time.perf_counter()
            try:
                drawn.judge([line], jax.devices())
                said = ""
            except RuntimeError as error:
                said = str(error)
            jax.clear_caches()
            row = {"number": number, "jax": version("jax"), "said": said, "s": time.perf_counter() - began}
            out.write(json.dumps(row) + "\n")
            out.flush()


def judge(path: Path, to: Path) -> None:
    """Judge every program of a file. A process that ends is replaced by one that starts behind the last program."""
    start, count = 0, len(path.read_text().splitlines())
    to.unlink(missing_ok=True)
    while start < count:
        code = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.studies.drawn_programs",
                "here",
                path,
                "--start",
                str(start),
                "--to",
                to,
            ],
            stderr=subprocess.DEVNULL,
            timeout=3600,
        ).returncode
        rows = [json.loads(line) for line in to.read_text().splitlines()]
        if not code:
            break
        start = rows[-1]["number"] + 1
        with to.open("a") as out:
            row = {
                "number": start - 1,
                "jax": version("jax"),
                "said": f"the process ended with {code}",
                "s": 0,
            }
            out.write(json.dumps(row) + "\n")
    for row in map(json.loads, to.read_text().splitlines()):
        if row.get("said"):
            print(row["number"], row["said"])


def append(path: Path, verdicts: list[Path], store: Any) -> None:
    """Add the programs that are right in every file to a store, in whole batches."""
    lines = path.read_text().splitlines()
    good = set(range(len(lines)))
    for verdict in verdicts:
        rows = [row for row in map(json.loads, verdict.read_text().splitlines()) if "said" in row]
        good &= {row["number"] for row in rows if not row["said"]}
    kept = [lines[k] for k in sorted(good)][: len(good) // store.batch * store.batch]
    # What has one mesh is compiled as one.
    kept.sort(key=lambda line: json.loads(line)["program"]["mesh"])
    with store.path.open("a", encoding="utf-8") as out:
        out.writelines(line + "\n" for line in kept)
    print(f"{len(kept)} of {len(lines)} programs added to {store.path.name}")


def find_store(one: bool) -> Any:
    """The store of programs of one kind of operation each, or of several."""
    from meshmark.operations.programs import drawn

    return drawn.OPERATIONS if one else drawn.PROGRAMS


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("draw", "choose", "judge", "here", "append"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--one",
        action="store_true",
        help="programs of one kind of operation each, in the store `drawn_operations`",
    )
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--to", type=Path)
    args = parser.parse_intermixed_args()
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if args.action == "draw":
        reasons: collections.Counter[str] = collections.Counter()
        with args.to.open("w") as out:
            for number in range(args.first, args.first + args.programs):
                made = draw(args.seed, number, args.one)
                if isinstance(made, str):
                    reasons[made] += 1
                else:
                    out.write(json.dumps(made, separators=(",", ":")) + "\n")
                    out.flush()
        print(sum(reasons.values()), reasons.most_common(40))
    elif args.action == "choose":
        lines = [line for file in args.files for line in file.read_text().splitlines()]
        have = [*find_store(args.one).lines]
        args.to.write_text("".join(line + "\n" for line in choose(lines, args.count, have)))
    elif args.action == "here":
        judge_here(args.files[0], args.start, args.to)
    elif args.action == "judge":
        judge(args.files[0], args.to)
    else:
        append(args.files[0], args.files[1:], find_store(args.one))


if __name__ == "__main__":
    main()
