# SPDX-License-Identifier: Apache-2.0
"""Mutated files through the commands that read files: `python -m tests.studies.mutated_inputs`.

Each command line gets one mutated file among good ones. It may take the file, or refuse it in a line: an exception that
leaves the command is a fault of the command. `tests.studies.mutations` does the same for what is published.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gzip
import io
import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from meshmark.commands import hunt as hunt_command
from meshmark.commands import main as cli
from meshmark.core.errors import BadInput
from meshmark.hunt import generator, logs
from meshmark.hunt.hunting import Hunt
from meshmark.hunt.program import to_json
from meshmark.hunt.workers import Settings
from meshmark.interpreter import reader
from meshmark.interpreter.faults import Refused
from meshmark.publish import challenge
from meshmark.records.reading import RecordError
from meshmark.records.writing import Writer, dumps
from meshmark.report import live
from tests import submissions
from tests.checkout import ROOT
from tests.studies.mutations import base, bytes_of, mutated, text_of

NUMBER = 200
"""Mutated files of each kind."""

ISSUES = """[[issue]]
cases = ["all_to_all/*/int8/*"]
modes = ["manual"]
checks = ["execute"]
verdicts = ["error"]
symptom = "UNIMPLEMENTED"
jax = ">=0.12"
backends = ["my_platform"]
link = "https://example.org/issues/1"
why = "all_to_all of int8 is not implemented"
expires = "0.14"
"""
TOML = (
    "= ",
    "[",
    '"""',
    "1979-05-27",
    "inf",
    "true",
    "[[]]",
    "{}",
    "'",
    '["*"]',
    "0x",
    '">=x"',
    '"("',
    "[1]",
)


@dataclass(frozen=True)
class Reader:
    """A kind of file, and what reads it."""

    name: str
    good: Callable[[], bytes]
    steps: Callable[[Path, Path], Sequence[Callable[[], object]]]
    """What takes (the mutated file, a directory to write to)."""
    file: str = "input.jsonl"
    spoil: Callable[[bytes, random.Random], bytes] | None = None
    """How it is mutated; None: as lines of JSON."""


def command(*words: object) -> Callable[[], object]:
    """One command line in this process, its output thrown away."""

    def run() -> None:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = cli.main([str(word) for word in words])
            except SystemExit as error:
                code = error.code
        assert code in (0, 1, 2), f"exit code {code}"
        assert "Traceback" not in said.getvalue()

    return run


def spoilt_lines(data: bytes, draw: random.Random) -> bytes:
    """Lines of JSON with one to three mutations."""
    lines = [json.loads(line) for line in data.splitlines()]
    for _ in range(draw.randint(1, 3)):
        number = draw.randrange(len(lines))
        how = draw.randrange(10)
        if how == 0 and len(lines) > 1:
            del lines[number]
        elif how == 1:
            lines.insert(number, copy.deepcopy(draw.choice(lines)))
        elif isinstance(lines[number], dict) and lines[number]:
            lines[number] = mutated(lines[number], draw)
    if draw.randrange(20) == 0:
        return b"[" * 100_000 + b"\n"
    return bytes_of("".join(text_of(line) + "\n" for line in lines), draw)


def spoilt_object(data: bytes, draw: random.Random) -> bytes:
    """One object of JSON with one to three mutations."""
    found = json.loads(data)
    for _ in range(draw.randint(1, 3)):
        found = mutated(found, draw) if found else found
    return b"[" * 100_000 if draw.randrange(20) == 0 else bytes_of(text_of(found), draw)


def spoilt_text(data: bytes, draw: random.Random) -> bytes:
    """A text with other pieces in one to three places."""
    lines = data.decode().splitlines()
    for _ in range(draw.randint(1, 3)):
        number = draw.randrange(len(lines))
        words = lines[number].split(" ")
        at = draw.randrange(len(words))
        other = draw.choice(
            (*TOML, "", "x", words[-1] * 2, "9" * 400, "-1", "{{0,1}}", "f32[", "%", ")", "\x00")
        )
        words[at] = other
        lines[number] = " ".join(words)
    return bytes_of("\n".join(lines) + "\n", draw)


def packed(path: Path, number: int) -> list[Any]:
    """The first lines of a packed file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line, _ in zip(file, range(number), strict=False)]


def as_lines(records: Sequence[Any]) -> bytes:
    """Records as a file."""
    return "".join(dumps(record) + "\n" for record in records).encode()


def of_rank() -> bytes:
    """The file of rank 0 of two."""
    lines = submissions.over(2, 4, "psum")[:20]
    lines[0] = {k: v for k, v in lines[0].items() if k != "ranks"} | {"rank": 0}
    return as_lines(lines)


def merged(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """The mutated file of rank 0 beside a good one of rank 1, and beside itself."""
    good = [json.loads(line) for line in of_rank().splitlines()]
    good[0]["rank"] = 1
    for name in ("a", "b"):
        (directory / f"{name}.rank0").write_bytes(path.read_bytes())
    (directory / "a.rank1").write_bytes(as_lines(good))
    (directory / "b.rank1").write_bytes(path.read_bytes().replace(b'"rank":0', b'"rank":1'))
    return (
        command("merge", directory / "a"),
        command("merge", directory / "b"),
    )


def goes_on(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """A run that goes on with the mutated file."""

    def resume() -> None:
        try:
            Writer.resume(path, base()[0])[0].close()
        except RecordError as error:
            assert "\n" not in str(error)

    return (resume,)


HEAD = logs.head(3, "", 4)


def hunted() -> bytes:
    """The record of a hunt: programs that were right, and one that was not."""
    program = to_json(generator.draw(3, 2))
    difference = {"mode": "auto", "kind": "numbers", "what": "x", "text": "wrong", "data": {}}
    found = {"n": 2, "s": 0.5, "differences": [difference], "program": program, "group": "numbers x"}
    shrunk = {"shrunk": program, "shrink_s": 1.0, "shrunk_difference": difference, "tried": 3, "minute": 0.1}
    return as_lines(
        [logs.started(HEAD), {"n": 0, "s": 0.1}, {"n": 1, "s": 0.2, "not_run": ["y"]}, found | shrunk]
    )


def hunts_on(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """A hunt that goes on with the mutated record."""

    def resume() -> None:
        hunt = Hunt(3, Settings())
        chosen = SimpleNamespace(resume=path, record=None)
        try:
            hunt.resume(hunt_command._open(hunt, chosen, 4))
            hunt_command.told(hunt)
        except BadInput as error:
            assert "\n" not in str(error)
        finally:
            if hunt.out:
                hunt.out.close()

    return (resume,)


def of_findings(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """The mutated finding in a store."""
    from meshmark.hunt import findings

    store = directory / "store"
    (store / "one").mkdir(parents=True, exist_ok=True)
    (store / "one" / "finding.json").write_bytes(path.read_bytes())

    def read() -> None:
        try:
            for found in findings.every(store):
                found.data()
            findings.known_groups(findings.every(store))
        except BadInput as error:
            assert "\n" not in str(error)

    return (read,)


def of_records(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """What reads records."""
    good = directory / "good.jsonl"
    good.write_bytes(as_lines(base()))

    def served() -> None:
        with contextlib.suppress(BadInput):
            live.Live([path], 5).pages()

    return (
        command("levels", path),
        command("levels", good, path, "--json"),
        command("tables", path),
        command("diff", good, path),
        command("diff", "--compiled", path, good),
        command("compare", good, path),
        command("compare", path, good, "--anyway", "--json"),
        command("counters", path, "--output", directory / "counters"),
        command("weather", "--from", path),
        command("growth", "--from", path),
        served,
    )


def reviewed(option: str) -> Callable[[Path, Path], Sequence[Callable[[], object]]]:
    """The mutated file as an option of the reviewer."""

    def steps(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
        product = directory / "0.12.0.1" / "cpu-4"
        product.mkdir(parents=True, exist_ok=True)
        (product / "a.jsonl").write_bytes(as_lines(base()))
        named = path.parent if option == "--counters" else path
        return (command("validate", option, named, product),)

    return steps


def interpreted(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """What `meshmark explain --text` reads."""

    def read() -> None:
        with contextlib.suppress(Refused, BadInput):
            reader.read(path.read_text(encoding="utf-8", errors="replace"))

    return (read,)


WEATHER = "results/weather/0.12.0.1-libtpu0.0.50.1.jsonl.gz"
FINDING = "results/findings/associative-scan-after-a-maximum/finding.json"
GROWTH = "results/compile-only/0.12.0.1/growth/h100.jsonl"

READERS = (
    Reader("records", lambda: as_lines(base()), of_records),
    Reader("the file of a rank", of_rank, merged),
    Reader("a run that goes on", lambda: as_lines(base()), goes_on),
    Reader("the record of a hunt", hunted, hunts_on),
    Reader("a finding", lambda: (ROOT / FINDING).read_bytes(), of_findings, spoil=spoilt_object),
    Reader(
        "schedules",
        lambda: as_lines(packed(ROOT / WEATHER, 6)),
        lambda path, directory: (command("weather", "--from", path), command("tables", path)),
    ),
    Reader(
        "growth",
        lambda: b"".join((ROOT / GROWTH).read_bytes().splitlines(keepends=True)[:5]),
        lambda path, directory: (command("growth", "--from", path),),
    ),
    Reader(
        "known issues", ISSUES.encode, reviewed("--known-issues"), "known.toml", spoilt_text
    ),
    Reader(
        "counters",
        (3 * "psum/a/manual/8/float32/4KiB\t1 all-reduce 4096B 1x8\n").encode,
        reviewed("--counters"),
        "0.12.0.1-cpu-4.tsv",
        spoilt_text,
    ),
    Reader(
        "a challenge",
        lambda: challenge.text(
            {
                "schema": 1, "kind": "challenge", "seed": 5, "devices": 4, "processes": 1,
                "issued": "2026-11-20T10:00:00Z", "cases": ["psum/axes=x+y/manual/2x2/float32/4KiB"],
            }
        ).encode(),
        reviewed("--challenge"),
        "c.json",
        spoilt_object,
    ),
    Reader(
        "a compiled text",
        lambda: next((ROOT / "tests" / "interpreter" / "texts").glob("*.hlo")).read_bytes(),
        interpreted,
        "text.txt",
        spoilt_text,
    ),
    Reader(
        "a configuration of asv",
        lambda: (ROOT / "asv.conf.json").read_bytes(),
        lambda path, directory: (command("asv-doctor", path),),
        "asv.conf.json",
        spoilt_text,
    ),
)  # fmt: skip


def run(number: int, seed: int = 0, only: str = "") -> list[str]:
    """So many of each; every exception, with its place."""
    faults = list[str]()
    for kind in READERS:
        if only not in kind.name:
            continue
        draw, good = random.Random(f"{seed} {kind.name}"), kind.good()
        for index in range(number):
            with tempfile.TemporaryDirectory() as name:
                directory = Path(name)
                own = directory / "in"
                own.mkdir()
                path = own / kind.file
                path.write_bytes((kind.spoil or spoilt_lines)(good, draw))
                for which, step in enumerate(kind.steps(path, directory)):
                    try:
                        step()
                    except Exception as error:
                        frame = traceback.extract_tb(error.__traceback__)[-1]
                        text = f"{kind.name}, step {which}: {type(error).__name__} at"
                        text += f" {Path(frame.filename).name}:{frame.lineno}"
                        faults.append(f"{text}: {ascii(str(error))[:100]} (number {index})")
    return faults


def main() -> int:
    add = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add.add_argument("--number", type=int, default=NUMBER, help="mutated files of each kind")
    add.add_argument("--seed", type=int, default=0)
    add.add_argument("--only", default="", help="kinds whose names hold this")
    arguments = add.parse_args()
    start = time.perf_counter()
    faults = run(arguments.number, arguments.seed, arguments.only)
    for text, times in Counter(fault.split(" (number")[0] for fault in faults).most_common(40):
        print(f"{times:5} {text}")
    print(
        f"{arguments.number} mutated files of each of {len(READERS)} kinds: {len(faults)} exceptions,"
        f" {time.perf_counter() - start:.0f} s"
    )
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
