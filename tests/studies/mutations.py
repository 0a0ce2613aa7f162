# SPDX-License-Identifier: Apache-2.0
"""Mutated records, manifests and products through every command that reads them:
`python -m tests.studies.mutations`.

Each file differs from a good one by one to three mutations of its values, its names or its bytes. A command may refuse
it in one line, or accept it. An exception is a fault of the command. The tests run a few of them, and
`tox run -e mutations` runs all.
"""

import argparse
import copy
import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from meshmark.core.errors import BadInput
from meshmark.levels import statements
from meshmark.operations import cases
from meshmark.publish import submit
from meshmark.publish.bundles import File
from meshmark.publish.validate import check_product
from meshmark.records import closing, reading, results
from meshmark.records.writing import dumps
from meshmark.report import diff, report, tables
from tests import submissions

NUMBER = 10_000

STRANGE = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**63,
        10**40,
        -0.0,
        1e308,
        float("nan"),
        "",
        "x",
        "\ud83d",
        "\x00",
        "\x1b[31m",
    ),
    *(
        [],
        {},
        [None],
        {"a": None},
        [[]],
        "<img>",
        "psum/plain/auto",
        "0.12.0.1",
        "L9",
        "9" * 500,
        1.5,
        "inf",
        "../x",
    ),
)
YAML = r"""!!bool x
!!timestamp x
!!int ''
!!float x
!!binary x
!!set {a}
&a x
*a
[
{
- x
2026-99-99
0b_
0x
.inf
~
<<: x
? [a]
|
>
%
@
`
'
1:99""".splitlines()


def base() -> list[dict]:
    """A short record file with every kind of line, of a run that closes its file."""
    case = cases.find("psum/axes=x+y/manual/2x2/float32/4KiB", submissions.DEVICES)
    of_run = {"run": submissions.RUN}
    timed = [line | of_run for line in submissions.timed()[1:6]]
    comparison = {"schema": 1, "kind": "comparison", "what": "verdict", "case": case.id} | of_run
    comparison |= {
        "verdict": "pass",
        "reason": "",
        "ratio": 1.0,
        "low": 0.9,
        "high": 1.1,
        "p": 0.5,
        "pairs": 12,
    }
    head = {k: v for k, v in submissions.judged(case)[0].items() if k not in ("check", "collectives")}
    schedule = head | {"kind": "schedule", "place": "cpu", "pairs": [], "loops": [3, None]}
    chosen = {"profile": "smoke", "operations": ["psum"], "modes": ["manual"], "timed": False}
    run = submissions.run_line(selection=chosen) | closing.CLOSES
    lines = [
        run,
        closing.make_chosen_line([case.id]) | of_run,
        *submissions.judged(case),
        *timed,
        comparison,
        schedule,
    ]
    return closed(lines)


def closed(lines: list[dict]) -> list[dict]:
    """The lines with the closing line that fits them; unchanged if the reader refuses one of them."""
    account = closing.Account()
    try:
        for line in lines:
            account.add(reading.parsed(text_of(line) + "\n"))
    except reading.RecordError:
        return lines
    return [*lines, account.end(0) | {"run": lines[0].get("run")}]


def places(value: object, place: tuple = ()) -> list[tuple]:
    """The path of every place in a value: names and numbers; of a list only the first three items."""
    found = [place] if place else []
    if isinstance(value, dict):
        return found + [p for name, inner in value.items() for p in places(inner, (*place, name))]
    if isinstance(value, list):
        return found + [p for number, inner in enumerate(value[:3]) for p in places(inner, (*place, number))]
    return found


def mutated(value: dict, draw: random.Random) -> dict:
    """A copy of a value in which one place has another value, or one name is missing or added."""
    value = copy.deepcopy(value)
    place = draw.choice(places(value))
    inner = value
    for name in place[:-1]:
        inner = inner[name]
    how = draw.randrange(5)
    if how == 0 and isinstance(inner, dict):
        del inner[place[-1]]
    elif how == 1 and isinstance(inner, dict):
        inner[draw.choice(("new", "kind", "run", "\ud83d", "seconds"))] = copy.deepcopy(draw.choice(STRANGE))
    else:
        inner[place[-1]] = copy.deepcopy(draw.choice(STRANGE))
    return value


def text_of(value: object) -> str:
    return json.dumps(value, allow_nan=True)


def bytes_of(text: str, draw: random.Random) -> bytes:
    """The text as bytes, sometimes with a byte changed, a piece doubled, or the end cut off."""
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    how = draw.randrange(12)
    at = draw.randrange(max(1, len(data)))
    if how == 0 and data:
        data[at] = draw.randrange(256)
    elif how == 1:
        data[at:at] = data[at : at + 40]
    elif how == 2:
        del data[at:]
    return bytes(data)


def records(draw: random.Random, good: list[dict]) -> bytes:
    """A mutated record file: with its old closing line, with a new one made after the change, or without one."""
    end = draw.randrange(3)
    lines = list(good) if end == 0 else list(good[:-1])
    for _ in range(draw.randint(1, 3)):
        number = draw.randrange(len(lines))
        how = draw.randrange(10)
        if how == 0:
            del lines[number]
        elif how == 1:
            lines.insert(number, draw.choice(lines))
        else:
            lines[number] = mutated(lines[number], draw)
        if not lines:
            break
    if end == 1 and lines:
        lines = closed(lines)
    return bytes_of("".join(text_of(line) + "\n" for line in lines), draw)


def through_readers(data: bytes, directory: Path) -> None:
    """Pass a record file to the code of the commands that read one. They may refuse it in one line."""
    path = directory / "r.jsonl"
    path.write_bytes(data)
    steps: list[Callable[[], object]] = [
        lambda: statements.statement([reading.read_records(path)]),
        lambda: tables.make_tables([reading.read_records(path)], tables.FORMATS),
        lambda: report.page_data.build(report.find_records([path]).sources),
        lambda: diff.compare_verdicts(reading.read_records(path).cases, reading.read_records(path).cases),
        lambda: submit.bundled([path], submissions.WANTED),
        lambda: check_product(submissions.Bundle("0.12.0.1", "cpu-4", {"r.jsonl": File("r.jsonl", data)})),
    ]
    for step in steps:
        try:
            step()
        except (BadInput, submit.BundleRefused) as error:
            assert "\n" not in str(error)


def manifests(draw: random.Random, made: submissions.Bundle) -> submissions.Bundle:
    """A bundle with a mutated product.yaml, manifest.json or environment.json."""
    name = draw.choice(("product.yaml", "product.yaml", "manifest.json", "environment.json"))
    if name == "product.yaml":
        lines = made.files[name].data.decode().splitlines()
        for _ in range(draw.randint(1, 3)):
            number = draw.randrange(len(lines))
            key = lines[number].split(":")[0]
            lines[number] = draw.choice((f"{key}: {draw.choice(YAML)}", draw.choice(YAML), lines[number] * 2))
        return submissions.replaced(made, name, bytes_of("\n".join(lines) + "\n", draw))
    found = json.loads(made.files[name].data)
    for _ in range(draw.randint(1, 3)):
        found = mutated(found, draw) if places(found) else found
    return submissions.replaced(made, name, bytes_of(text_of(found), draw))


def through_reviewer(made: submissions.Bundle) -> None:
    """Pass a bundle to the reviewer, and its product.yaml to the reader of published results."""
    check_product(made)
    try:
        results.parse_product(made.files["product.yaml"].data, "product.yaml")
    except BadInput as error:
        assert "\n" not in str(error)


PUBLISHED = ("0.12.0.1", "cpu-8-virtual"), ("0.12.0.1", "cpu-2x4-virtual")
"""The published products whose lines are mutated: cases and times of one process and of two."""

SELDOM = 4
"""One of so many mutations is of a published product too."""

EACH = 1
"""The lines of each kind, check, mode, cadence and verdict that are kept of a published file."""


def published(release: str, name: str) -> submissions.Bundle:
    """A few lines of every kind of a published product. Lines of `base` fail before the rules that compare a line with
    the table and with its run; these lines reach them."""
    directory = Path(__file__).parents[2] / "results" / release / name
    files = {path.name: File(path.name, path.read_bytes()) for path in sorted(directory.iterdir())}
    made = submissions.Bundle(release, f"{name}-mutated", files)
    for file in [file for file in files if file.endswith(".jsonl.gz")]:
        seen, kept = Counter[tuple](), []
        for line in submissions.lines_of(made, file):
            shape = tuple(line.get(field) for field in ("kind", "check", "mode", "cadence", "verdict"))
            seen[shape] += 1
            if line["kind"] == "run" or seen[shape] <= EACH:
                kept.append(line)
        made = submissions.with_lines(made, file, kept)
    return made


def products(draw: random.Random, good: submissions.Bundle) -> submissions.Bundle:
    """A part of a published product in which one place of one to three lines is mutated, spelled as `submit` spells."""
    file = draw.choice([name for name in good.files if name.endswith(".jsonl.gz")])
    lines = submissions.lines_of(good, file)
    for _ in range(draw.randint(1, 3)):
        number = draw.randrange(len(lines))
        lines[number] = mutated(lines[number], draw)
    try:
        return submissions.with_lines(good, file, lines)
    except UnicodeEncodeError:  # half a character: no file can hold it
        return good


def run(number: int, seed: int = 0) -> list[str]:
    """Read `number` mutated records, manifests and published products, and return every exception with its place."""
    draw, faults = random.Random(seed), list[str]()
    good = base()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        path = directory / "good.jsonl"
        path.write_text("".join(dumps(line) + "\n" for line in good))
        made = submit.bundled([path], submit.Wanted("cpu-4", "tests", level=""))
        parts = [published(*one) for one in PUBLISHED]
        for index in range(number):
            steps: list[tuple[str, Callable[[], object]]] = [
                ("record", lambda: through_readers(records(draw, good), directory)),
                ("manifest", lambda: through_reviewer(manifests(draw, made))),
            ]
            if index % SELDOM == 0:  # such a review takes ten times as long
                steps.append(("product", lambda: check_product(products(draw, draw.choice(parts)))))
            for what, step in steps:
                try:
                    step()
                except Exception as error:
                    frame = traceback.extract_tb(error.__traceback__)[-1]
                    text = f"{what}: {type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
                    faults.append(f"{text}: {ascii(str(error))[:100]} (number {index})")
    return faults


def main() -> int:
    add = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add.add_argument("--number", type=int, default=NUMBER, help="mutated records, and as many manifests")
    add.add_argument("--seed", type=int, default=0)
    arguments = add.parse_args()
    start = time.perf_counter()
    faults = run(arguments.number, arguments.seed)
    for text, times in Counter(fault.split(" (number")[0] for fault in faults).most_common(40):
        print(f"{times:5} {text}")
    print(
        f"{arguments.number} mutated record files and manifests, and one product for {SELDOM}: {len(faults)}"
        f" exceptions, {time.perf_counter() - start:.0f} s"
    )
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
