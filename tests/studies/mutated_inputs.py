# SPDX-License-Identifier: Apache-2.0
"""Mutated files through the commands that read files: `python -m tests.studies.mutated_inputs`.

Each command line gets one mutated file among good ones. It may accept the file, or refuse it in one line. An exception
that leaves the command is a fault of the command. `tests.studies.mutations` does the same for published files.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from xml.etree import ElementTree

from meshmark.commands import hunt as hunt_command
from meshmark.commands import main as cli
from meshmark.core.errors import BadInput
from meshmark.core.hlo_types import Refused
from meshmark.devices import environment
from meshmark.devices.compat import whole_text
from meshmark.hunt import bisect, generator, logs
from meshmark.hunt.hunting import Hunt
from meshmark.hunt.workers import Settings
from meshmark.interpreter import reader
from meshmark.judge import explaining
from meshmark.judge.programs import Program
from meshmark.operations import cases
from meshmark.program_data.program import to_json
from meshmark.publish import badges, challenge
from meshmark.publish.review import Review
from meshmark.records.reading import RecordError
from meshmark.records.writing import Writer, dumps
from meshmark.report import live
from tests import submissions
from tests.checkout import ROOT
from tests.studies.mutations import base, text_of
from tests.studies.spoiling import spoilt_lines, spoilt_object, spoilt_text

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


@dataclass(frozen=True)
class Reader:
    """A kind of file, and the steps that read it."""

    name: str
    good: Callable[[], bytes]
    steps: Callable[[Path, Path], Sequence[Callable[[], object]]]
    """What takes (the mutated file, a directory to write to)."""
    file: str = "input.jsonl"
    spoil: Callable[[bytes, random.Random], bytes] | None = None
    """How it is mutated; None: as lines of JSON."""


def command(*words: object) -> Callable[[], object]:
    """One command line in this process, with its output discarded. It fails for an exit code above 2, for a traceback,
    and for a refusal without a line."""

    def run() -> None:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = cli.main([str(word) for word in words])
            except SystemExit as error:
                code = error.code
        assert code in (0, 1, 2), f"exit code {code}"
        assert "Traceback" not in said.getvalue()
        assert code != 2 or "meshmark: " in said.getvalue(), "refused without a word"

    return run


def packed(path: Path, number: int) -> list[Any]:
    """The first lines of a packed file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line, _ in zip(file, range(number), strict=False)]


def as_lines(records: Sequence[Any]) -> bytes:
    """Records as the bytes of a file."""
    return "".join(dumps(record) + "\n" for record in records).encode()


def of_rank() -> bytes:
    """The record file of rank 0 of two ranks."""
    lines = submissions.over(2, 4, "psum")[:20]
    lines[0] = {k: v for k, v in lines[0].items() if k != "ranks"} | {"rank": 0}
    return as_lines(lines)


def merged(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """Merge the mutated file of rank 0 with a good one of rank 1, and with a copy of itself as rank 1."""
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
    """Resume a run with the mutated file."""

    def resume() -> None:
        try:
            Writer.resume(path, base()[0])[0].close()
        except RecordError as error:
            assert "\n" not in str(error)

    return (resume,)


HEAD = logs.make_head(3, "", 4)


def hunted() -> bytes:
    """The record of a hunt: right programs, one that was not run in a mode, and a wrong one."""
    program = to_json(generator.draw(3, 2))
    difference = {"mode": "auto", "kind": "numbers", "what": "x", "text": "wrong", "data": {}}
    found = {"n": 2, "s": 0.5, "differences": [difference], "program": program, "group": "numbers x"}
    shrunk = {"shrunk": program, "shrink_s": 1.0, "shrunk_difference": difference, "tried": 3, "minute": 0.1}
    return as_lines(
        [logs.stamp(HEAD), {"n": 0, "s": 0.1}, {"n": 1, "s": 0.2, "not_run": ["y"]}, found | shrunk]
    )


def hunts_on(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """Resume a hunt with the mutated record."""

    def resume() -> None:
        hunt = Hunt(3, Settings())
        chosen = SimpleNamespace(resume=path, record=None)
        try:
            hunt.resume(hunt_command._open(hunt, chosen, 4))
            hunt_command.summary_lines(hunt)
        except BadInput as error:
            assert "\n" not in str(error)
        finally:
            if hunt.out:
                hunt.out.close()

    return (resume,)


def of_findings(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """Read a store with the mutated finding."""
    from meshmark.hunt import findings

    store = directory / "store"
    (store / "one").mkdir(parents=True, exist_ok=True)
    (store / "one" / "finding.json").write_bytes(path.read_bytes())

    def read() -> None:
        try:
            for found in findings.read_findings(store):
                found.data()
            findings.known_groups(findings.read_findings(store))
        except BadInput as error:
            assert "\n" not in str(error)

    return (read,)


def of_records(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """The commands that read records."""
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
    """Steps that name the mutated file in an option of `meshmark validate`."""

    def steps(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
        product = directory / "0.12.0.1" / "cpu-4"
        product.mkdir(parents=True, exist_ok=True)
        (product / "a.jsonl").write_bytes(as_lines(base()))
        named = path.parent if option == "--counters" else path
        return (command("validate", option, named, product),)

    return steps


@contextlib.contextmanager
def replaced(*others: tuple[object, str, object]) -> Iterator[None]:
    """Replace attributes in this context, such as functions that start processes or use the network."""
    with contextlib.ExitStack() as stack:
        for where, name, value in others:
            stack.enter_context(mock.patch.object(where, name, value))
        yield


def within(run: Callable[[], object], *others: tuple[object, str, object]) -> Callable[[], object]:
    """One step with replaced attributes."""

    def step() -> None:
        with replaced(*others):
            run()

    return step


PRODUCT = ("--product", "cpu-4", "--by", "Somebody", "--level", "none", "--mark")


def submitted(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """Submit the mutated file as records."""
    return (command("submit", path, *PRODUCT, "--output", directory / "out"),)


def logged(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """Submit good records with the mutated file as a log."""
    good = directory / "good.jsonl"
    good.write_bytes(as_lines(base()))
    return (command("submit", good, *PRODUCT, "--output", directory / "out", "--log", path),)


LOG = """$ meshmark test --record run.jsonl
meshmark: 4 virtual cpu devices, JAX 0.12.0.1
\x1b[32mpsum        pass\x1b[0m
L0: 2 of 2 pass
2 cases: 2 pass
records: run.jsonl
"""


def badge_of(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """Draw a badge with the mutated words of a statement. It must be a valid SVG in its directory."""

    def draw() -> None:
        try:
            words = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            return
        given = {k: v for k, v in words.items() if isinstance(v, str)} if isinstance(words, dict) else {}
        found = SimpleNamespace(
            **{"met": "L1", "jax": "0.12.0.1", "device_kind": "cpu", "topology": "", "interpreted_up_to": ""}
            | given,
            **{"virtual": False, "devices": 4, "processes": 1},
        )
        review = Review(given.get("place", "x"), measured=given.get("measured", ""))
        review.statement = found
        for file in badges.write_badges([review], directory / "badges"):
            assert file.resolve().parent == (directory / "badges").resolve()
            ElementTree.parse(file)

    return (draw,)


def badges_written(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """Write the badge of a product with the mutated product.yaml."""
    product = directory / "0.12.0.1" / "cpu-4"
    product.mkdir(parents=True, exist_ok=True)
    (product / "a.jsonl").write_bytes(as_lines(base()))
    (product / "product.yaml").write_bytes(path.read_bytes())
    return (command("validate", "--badges", directory / "badges", product),)


CASE = "psum/axes=x+y/manual/2x4/float32/4KiB"
IDS = (
    *(
        CASE,
        "all_gather/axes=x,dim=0,tiled/auto/2x4/bfloat16/4KiB",
        "device_put/from=-.-,to=-.-/host/2x2/float32/4KiB",
    ),
    "matmul/rows=x,inner=y,check=rounded,precision=highest/manual/2x4/float32/n64",
)
OPTIONS = "--num-devices 8 --seed 0"


def words_of(text: str) -> list[str]:
    """The words of a mutated text that a command line can hold: those without a NUL."""
    return [word for word in text.split() if "\0" not in word] or [""]


def named(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """Pass the mutated words of each line to the commands that take a case."""
    child = SimpleNamespace(stdout="", stderr="", returncode=0)
    steps: list[Callable[[], object]] = []
    for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        words = words_of(line)
        steps.append(command("repro", "--no-run", *words))
        explaining_it = command("explain", *(word.replace("num-devices", "devices") for word in words))
        steps.append(within(explaining_it, (subprocess, "run", lambda *arguments, **options: child)))
    return steps


def found_again(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """Replay and bisect the mutated finding."""
    place = directory / "a-finding"
    place.mkdir(exist_ok=True)
    (place / "finding.json").write_bytes(path.read_bytes())
    (place / "repro.py").write_text("raise SystemExit(1)\n", encoding="utf-8")

    class Judging:
        """A worker that judges nothing: the studies of the hunt judge mutated programs."""

        def __init__(self, settings: object) -> None:
            self.settings = settings

        def __enter__(self) -> Judging:
            return self

        def __exit__(self, *exception: object) -> None:
            return None

        def around(self) -> dict[str, str]:
            return {}

        def judge(self, program: object, modes: Sequence[str]) -> SimpleNamespace:
            to_json(program)  # type: ignore[arg-type]
            return SimpleNamespace(invalid="", not_run=[], differences=[])

    return (
        within(command("hunt", "--replay", path), (hunt_command, "Slot", Judging)),
        within(command("hunt", "--replay", place), (hunt_command, "Slot", Judging)),
        bisected(place),
    )


def bisected(*words: object) -> Callable[[], object]:
    """`meshmark bisect` over two releases, without installing them."""
    every = [bisect.Release("0.11.2", "2026-01-01"), bisect.Release("0.12.0", "2026-06-01")]
    return within(
        command("bisect", *words),
        (bisect, "list_releases", lambda oldest: every),
        (bisect.Environments, "python", lambda self, release: sys.executable),
        (bisect, "run_script", lambda python, script: f"exit code {len(script)}"),
    )


def scripted(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """Bisect a finding with the mutated script, and with a word of it as the oldest release."""
    place = directory / "a-finding"
    place.mkdir(exist_ok=True)
    (place / "finding.json").write_bytes((ROOT / FINDING).read_bytes())
    (place / "repro.py").write_bytes(path.read_bytes())
    return (
        bisected(place),
        bisected(place, "--oldest", words_of(path.read_text(errors="surrogateescape"))[0]),
    )


def compiled() -> bytes:
    """The compiled text of the case."""
    import jax

    program = Program(cases.find(CASE, 8), tuple(jax.devices()))
    lowered = program.lower()
    with program.context():
        return whole_text(lowered.compile()).encode()


def explained(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """Read the mutated text, and explain it as the compiled text of a case."""

    def run() -> None:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = explaining.main([CASE, "--text", str(path)])
        text = said.getvalue()
        assert code == 0 or (code == 2 and text.startswith(f"meshmark: {path} can't be explained")), (
            code,
            text,
        )

    return (*interpreted(path, directory), run)


def interpreted(path: Path, directory: Path) -> Sequence[Callable[[], object]]:
    """Read the mutated text with the interpreter's reader."""

    def read() -> None:
        with contextlib.suppress(Refused, BadInput):
            reader.parse_module(path.read_text(encoding="utf-8", errors="replace"))

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
        lambda: challenge.spell_challenge(
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
        compiled,
        explained,
        "text.txt",
        spoilt_text,
    ),
    Reader("records that are submitted", lambda: as_lines(base()), submitted),
    Reader("a log that is attached", LOG.encode, logged, "run.txt", spoilt_text),
    Reader(
        "allowed signers", lambda: b"a@b ssh-ed25519 AAAA\n" * 3, reviewed("--allowed-signers"), "signers", spoilt_text
    ),
    Reader(
        "the words of a badge",
        lambda: text_of(
            {"place": "0.12.0.1/cpu-4", "met": "L1", "jax": "0.12.0.1", "device_kind": "TPU v5 lite",
             "topology": "", "measured": "2026-11-20"}
        ).encode(),
        badge_of,
        "words.json",
        spoilt_object,
    ),
    Reader(
        "product.yaml of a badge",
        lambda: b"name: cpu-4\nby: Somebody\ncommand: meshmark test\nlevel: L0\nnotes: []\n",
        badges_written,
        "product.yaml",
        spoilt_text,
    ),
    Reader("a case id", lambda: "".join(f"{i} {OPTIONS}\n" for i in IDS).encode(), named, "case.txt", spoilt_text),
    Reader(
        "a finding that is replayed and bisected",
        lambda: (ROOT / FINDING).read_bytes(),
        found_again,
        "finding.json",
        spoilt_object,
    ),
    Reader(
        "a script that is bisected",
        lambda: b"0.4.30 = 1\nraise SystemExit(0)\n",
        scripted,
        "repro.py",
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
    """Read `number` mutated files of each kind, and return every exception with its place."""
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
    environment.set_here(environment.cpu_devices(8))
    environment.configure_jax()
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
