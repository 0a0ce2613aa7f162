# SPDX-License-Identifier: Apache-2.0
"""A hunt is resumed after an interruption: nothing is judged twice, nothing is lost, and kept files are complete."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import ClassVar

import pytest

from meshmark.commands.main import main
from meshmark.core import installation
from meshmark.core.installation import SOURCE
from meshmark.hunt import findings, hunting, logs
from meshmark.hunt.generator import draw
from meshmark.hunt.versions import GENERATOR
from meshmark.hunt.workers import Answer
from meshmark.program_data.program import from_json, to_json
from tests.hunt.stubs import StubSlot
from tests.interrupts import interruptible
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.e2e

SEED = 21
"""Two of its programs crash, and so share a group without being made smaller twice."""
NUMBER = 12
FAULTS = {"lax.pad": "values", "jnp.reshape": "values", "jnp.roll": "crash"}
"""Operations that these workers get wrong."""


class Slot(StubSlot):
    """Stands for a worker process: judges by the operations of a program alone."""

    judged: ClassVar[Counter] = Counter()
    die_at: ClassVar[int | None] = None

    def judge(self, job, modes=("auto",)):
        if isinstance(job, dict) and "program" in job:
            job = from_json(job["program"])
        drawn = isinstance(job, dict)
        if drawn:
            seed, number = job["draw"]
            if number == Slot.die_at:
                raise KeyboardInterrupt
            Slot.judged[number] += 1
            job = draw(seed, number)
        wrong = [op for op in FAULTS if op in job.operations]
        return Answer([difference(op) for op in wrong], program=to_json(job) if drawn else None, seconds=1.0)


def difference(op):
    kind = "crash" if FAULTS[op] == "crash" else "numbers"
    return {"mode": "auto", "kind": kind, "what": f"{op} fails", "text": f"{op} fails", "data": {}}


@pytest.fixture
def hunted(monkeypatch, tmp_path, capsys):
    """Runs the command with such workers; gives its exit code, output, and how often each program was judged."""
    monkeypatch.setattr(hunting, "Slot", Slot)
    monkeypatch.setattr("meshmark.commands.hunt.Slot", Slot)

    def run(*words, die_at=None, seed=SEED):
        Slot.judged, Slot.die_at = Counter(), die_at
        asked = ["--seed", str(seed), "--programs", str(NUMBER), "--workers", "1", "--shrink", "5"]
        code = main(["hunt", *asked, "--known", str(tmp_path / "none"), *map(str, words)])
        said = capsys.readouterr()
        return code, said.out + said.err, dict(Slot.judged)

    return run


@pytest.fixture
def whole(hunted, tmp_path):
    """The record of a hunt that nothing interrupted."""
    file = tmp_path / "whole.jsonl"
    assert hunted("--record", file)[0] == 1
    return file


def outcome(file):
    """What a record says of each program, without times."""
    lines = [line for line in map(json.loads, file.read_text().splitlines()[1:]) if "resumed" not in line]
    kept = ("invalid", "ops", "differences", "group", "shrunk")
    return {line["n"]: {k: line[k] for k in kept if k in line} for line in lines}


def test_the_rest_alone_is_judged_and_the_end_is_the_same(hunted, whole, tmp_path):
    """Cut off after any line, in the middle of one, or after the head."""
    text = whole.read_bytes()
    ends = [i + 1 for i, byte in enumerate(text) if byte == 10]
    table = hunted("--resume", whole)
    assert table[2] == {} and f"{NUMBER} programs ({NUMBER} of them before)" in table[1]
    for cut in (ends[0], ends[4], ends[4] + 9, ends[9] - 1):
        file = tmp_path / "cut.jsonl"
        file.write_bytes(text[:cut])
        there = set(outcome_of_whole_lines(text[:cut]))
        code, said, judged = hunted("--resume", file)
        assert code == 1 and set(judged) == set(range(NUMBER)) - there and set(judged.values()) <= {1}
        assert outcome(file) == outcome(whole)
        assert rows(said) == rows(table[1])


def test_a_record_and_a_kept_finding_name_the_commit(hunted, whole, tmp_path):
    """The head has it, and a line before the programs of each resumed hunt, which may run another commit."""
    head = json.loads(whole.read_text().splitlines()[0])
    assert head["suite"] == installation.suite() and head["generator"] == GENERATOR
    hunted("--resume", whole, "--keep", tmp_path / "store")
    assert json.loads(whole.read_text().splitlines()[-1])["suite"] == installation.suite()
    for finding in findings.read_findings(tmp_path / "store"):
        assert finding.found["suite"] == installation.suite()
        assert finding.found["generator"] == f"version {GENERATOR} of the generator"


def test_each_finding_is_one_line_of_a_log(hunted):
    """A nightly job has no terminal, and its log is searched by line."""
    _, said, _ = hunted()
    rows = [line for line in said.splitlines() if line.startswith("new ")]
    assert rows and all("numbers: " in row or "crash: " in row for row in rows)
    assert f"{len(rows)} groups of findings, {len(rows)} new" in said


def test_a_hunt_says_how_far_it_has_come(hunted, monkeypatch):
    monkeypatch.setattr(hunting, "PROGRESS_S", 0.0)
    monkeypatch.setattr(hunting.Hunt, "write", lambda hunt, line: time.sleep(0.1))
    assert re.search(
        r"meshmark: \d+ programs in \d+\.\d minutes, \d+ groups of findings, \d+ new", hunted()[1]
    )


def outcome_of_whole_lines(data):
    return [json.loads(line)["n"] for line in data[: data.rfind(b"\n") + 1].splitlines()[1:]]


def rows(said):
    """The table of findings without minutes."""
    return sorted(line.rsplit(None, 1)[0] for line in said.splitlines() if line.startswith("new"))


def test_a_group_whose_smallest_program_was_not_written_is_found_again(hunted, whole, tmp_path):
    """Another worker may have written a program of the group before."""
    lines = whole.read_text().splitlines(keepends=True)
    named = [json.loads(line) for line in lines[1:]]
    group = next(line["group"] for line in named if "group" in line and "shrunk" not in line)
    gone = [d.get("group") == group and "shrunk" in d for d in named]
    left = [lines[0], *(text for text, lost in zip(lines[1:], gone, strict=True) if not lost)]
    file = tmp_path / "left.jsonl"
    file.write_text("".join(left))
    code, said, judged = hunted("--resume", file)
    members = {line["n"] for line in named if line.get("group") == group}
    assert code == 1 and set(judged) == members and group in said
    # What it had before stands there twice, and is taken once.
    again = hunted("--resume", file)
    assert again[2] == {} and f"{NUMBER} programs ({NUMBER} of them before)" in again[1]


def test_an_interruption_tells_and_keeps_what_was_found(hunted, whole, tmp_path):
    file, store = tmp_path / "cut.jsonl", tmp_path / "store"
    assert hunted("--record", file, "--keep", store, die_at=8)[0] == 130
    assert list(outcome(file)) == list(range(8)) and len(findings.read_findings(store)) >= 1
    code, _, judged = hunted("--resume", file, "--keep", store)
    assert code == 1 and sorted(judged) == list(range(8, NUMBER)) and outcome(file) == outcome(whole)
    groups = [g for f in findings.read_findings(store) for g in f.groups]
    assert sorted(groups) == sorted({line["group"] for line in outcome(whole).values() if "group" in line})


def test_kept_findings_are_whole_known_afterwards_and_never_written_over(hunted, tmp_path):
    store = tmp_path / "store"
    assert hunted("--keep", store)[0] == 1
    kept = findings.read_findings(store)
    for finding in kept:
        assert finding.data() and finding.found["seed"] == SEED
        compile((store / finding.name / "repro.py").read_text(), finding.name, "exec")
        assert finding.title in (store / finding.name / "report.md").read_text()
    by_hand = kept[0].to_json() | {"title": "A better title"}
    (store / kept[0].name / "finding.json").write_text(json.dumps(by_hand))
    code, said, _ = hunted("--keep", store, "--known", store)
    assert code == 0 and "new" not in [line.split()[0] for line in said.splitlines() if line.split()]
    assert findings.read_finding(store / kept[0].name).title == "A better title"
    hunted("--keep", store)  # not known there, and in the store all the same
    assert findings.read_finding(store / kept[0].name).title == "A better title" and len(
        findings.read_findings(store)
    ) == len(kept)


@pytest.mark.parametrize("place", ["file", "file/below", "broken", "/proc/nowhere"])
def test_a_store_that_can_not_be_written_is_refused_before_the_hunt(hunted, tmp_path, place):
    (tmp_path / "file").write_text("no store")
    (tmp_path / "broken" / "one").mkdir(parents=True)
    (tmp_path / "broken" / "one" / "finding.json").write_text("{")
    record = tmp_path / "record.jsonl"
    code, said, judged = hunted("--keep", tmp_path / place, "--record", record)
    assert code == 2 and "Traceback" not in said and not judged and not record.exists(), said


@pytest.mark.parametrize("option", ["--keep", "--record", "--resume"])
def test_a_replay_writes_nothing(hunted, tmp_path, option):
    code, said, _ = hunted("--replay", "reshard-onto-one-dimension", option, tmp_path / "x")
    assert code == 2 and f"{option}: a replay of one finding writes nothing" in said


def test_two_groups_of_one_name_are_two_findings(tmp_path):
    (tmp_path / "numbers-lax-pad").mkdir()
    assert findings.choose_free_name("numbers-lax-pad", tmp_path) == "numbers-lax-pad-2"


OTHERS = {
    "seed": ({"seed": 3}, f"is of seed 3 and not {SEED}: go on with --seed 3"),
    "release": ({"jax": "0.1.2"}, "is of jax 0.1.2 and not .*: go on with JAX 0.1.2, or hunt anew"),
    "table": ({"vocabulary": "0123"}, "is of vocabulary 0123 and not .*: go on with the generator"),
    "generator": ({"generator": 99}, "is of generator 99"),
    "topology": ({"topology": "v5e:2x4"}, "go on with --topology v5e:2x4"),
    "oracles": ({"oracles": "all"}, "is of oracles all and not turns: go on with --oracles all"),
    "devices": ({"devices": 4}, "go on with --num-devices 4"),
    "older": ({"vocabulary": None}, "is of vocabulary none"),
    "other records": ({"hunt": None}, "not a record of a hunt"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_file_of_another_hunt_is_one_line(what, tmp_path, capsys):
    change, said = OTHERS[what]
    file = tmp_path / "h.jsonl"
    text = json.dumps(logs.make_head(SEED, "", 8) | change) + "\n"
    file.write_text(text)
    assert main(["hunt", "--seed", str(SEED), "--resume", str(file), "--programs", "1"]) == 2
    error = capsys.readouterr().err
    assert re.search(said, error) and len(error.splitlines()) == 1 and file.read_text() == text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"n": "1"}, "`n`, which must be a whole number"),
        ({"n": 1, "s": "long"}, "`s`, which must be a number"),
        ({"n": 1, "differences": [{}]}, "`differences`, which has an item that must have 'mode'"),
        ({"n": 1, "shrunk": {"format": 1}}, "`shrunk`, which must have 'mesh'"),
        ({"n": 1, "group": 2}, "`group`, which must be text"),
        ({"n": 1, "not_run": [3]}, "`not_run`, which has an item that must be text"),
    ],
)
def test_a_line_that_no_hunt_writes_names_its_field(line, said, tmp_path, capsys):
    file = tmp_path / "h.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in (logs.make_head(SEED, "", 8), line)))
    assert main(["hunt", "--seed", str(SEED), "--resume", str(file), "--programs", "1"]) == 2
    error = capsys.readouterr().err
    assert f"(line 2 has {said}" in error and len(error.splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[1]\n", "hello\n", json.dumps(logs.make_head(SEED, "", 8)) + "\nhello\n"]
)
def test_what_is_no_record_is_one_line(text, tmp_path, capsys):
    file = tmp_path / "h.jsonl"
    file.write_text(text)
    assert main(["hunt", "--seed", str(SEED), "--resume", str(file), "--programs", "1"]) == 2
    error = capsys.readouterr().err
    assert "is not a record of a hunt" in error and len(error.splitlines()) == 1
    assert main(["hunt", "--resume", str(tmp_path / "nowhere")]) == 2


def test_a_hunt_that_is_interrupted_for_real_goes_on(tmp_path):
    """Processes as a user has them: SIGINT in a hunt that has long to go, then --resume for two programs more."""
    file = tmp_path / "hunt.jsonl"
    words = [sys.executable, "-m", "meshmark", "hunt", "--seed", "3", "--workers", "1", "--programs"]
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu"}
    command = interruptible([*words, "100000", "--record", str(file)])
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as child:
        until(lambda: file.exists() and len(file.read_bytes().splitlines()) >= 2)
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130 and b"could not be judged" in said, said
    before = list(outcome(file))
    more = len(before) + 2
    again = [*words, str(more), "--resume", str(file)]
    ended = subprocess.run(again, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0 and f"({len(before)} of them before)" in ended.stdout, ended
    assert sorted(outcome(file)) == list(range(more)) and len(file.read_text().splitlines()) == more + 2
