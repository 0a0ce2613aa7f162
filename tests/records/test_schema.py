# SPDX-License-Identifier: Apache-2.0
"""The definition of records: the published JSON Schema and the reader's checks follow from it, and it lists every field
that is written."""

import copy
import gzip
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from meshmark.devices.facts import Facts
from meshmark.operations import base
from meshmark.records import closing, definition, reading, schema
from meshmark.records.definition import KINDS, LINES
from meshmark.records.fields import entries
from meshmark.records.reading import RecordError, parsed
from meshmark.records.run_definition import RunFacts
from meshmark.records.shared import CADENCES, MODES
from meshmark.records.writing import dumps
from meshmark.timing import timer
from tests.checkout import ROOT
from tests.submissions import judged, merged_line, run_line, timed

WHOLE = Draft202012Validator(schema.made())


def names(line):
    """The fields of a kind of line."""
    return {entry.name for entry in entries(line)}


def test_the_published_schema_is_what_the_definition_gives():
    assert schema.FILE.read_text(encoding="utf-8") == schema.read_schema(), (
        "run `python -m meshmark.records.schema`"
    )


def test_a_changed_definition_changes_the_schema(monkeypatch):
    class CeilingLine(definition.CeilingLine):
        more: int

    monkeypatch.setitem(LINES, "ceiling", CeilingLine)
    assert schema.read_schema() != schema.FILE.read_text(encoding="utf-8")
    assert "more" in schema.made()["$defs"]["ceiling"]["required"]


def properties(node, where=""):
    """(its place, the schema of a field) of all fields below this node."""
    if isinstance(node, dict):
        for name, field in node.get("properties", {}).items() if "if" not in where else ():
            yield f"{where}.{name}", field
        for key, value in node.items():
            yield from properties(value, f"{where}.{key}")
    elif isinstance(node, list):
        for value in node:
            yield from properties(value, where)


def test_every_field_has_a_description():
    definitions = schema.made()["$defs"]
    packages = {f"facts.properties.versions.{name}" for name in ("jax", "jaxlib", "numpy", "python")}
    fields = dict(properties(definitions))
    assert len(fields) > 150
    lacking = {
        where.removeprefix(".") for where, field in fields.items() if not described(field, definitions)
    }
    assert lacking == packages | {f"{kind}.kind" for kind in KINDS}
    assert all(definitions[kind]["description"] for kind in KINDS)


def described(field, definitions):
    """Whether a field, or what it refers to, has a description."""
    if "description" in field:
        return True
    return "$ref" in field and "description" in definitions[field["$ref"].rpartition("/")[2]]


def test_lists_that_stand_elsewhere_too_agree():
    assert MODES == base.MODES
    assert set(CADENCES) == set(timer.CADENCES)
    assert names(RunFacts) - {"others"} == set(Facts.__dataclass_fields__) | {"virtual"}


# Limits -----------------------------------------------------------------------------------------------------

CASE = "psum/axes=x+y/manual/2x2/float32/4KiB"


@pytest.fixture(scope="module")
def lines():
    """A good line of each kind."""
    from meshmark.operations import cases

    run, ceiling, _, _, timing, *_ = timed()
    conformance = next(line for line in judged(cases.find(CASE, 4)) if line["check"] == "numbers")
    comparison = {"schema": 1, "kind": "comparison", "run": run["run"], "what": "verdict", "case": CASE}
    comparison |= {"verdict": "slower", "reason": "", "ratio": 1.2, "pairs": 20}
    head = {
        k: v
        for k, v in conformance.items()
        if k not in ("check", "kind", "error", "bound", "bits", "seconds")
    }
    schedule = head | {"kind": "schedule", "place": "cpu", "pairs": [], "loops": [3, None], "exposed_s": None}
    of_run = {"run": run["run"]}
    chosen = closing.make_chosen_line([CASE]) | of_run
    account = closing.Account()
    account.add(run | closing.CLOSES)
    end = account.end(0) | of_run
    found = [run | closing.CLOSES, conformance, timing, ceiling, comparison, schedule, chosen, end]
    assert [line["kind"] for line in found] == list(KINDS)
    return {line["kind"]: line for line in found}


def changed(line, place, value):
    """The line with another value at this place; `...` takes it out."""
    line = copy.deepcopy(line)
    *path, name = place.split(".")
    at = line
    for part in path:
        at = at[int(part) if isinstance(at, list) else part]
    if value is ...:
        del at[name]
    else:
        at[int(name) if isinstance(at, list) else name] = value
    return line


STACK = ["module:function:1"]
LIMITS = {
    # a value at the limit is taken, one beyond it is not
    ("run", "table"): (1, 0),
    ("run", "run"): ("0123456789ab", "0123456789AB"),
    ("run", "seed"): (0, -1),
    ("run", "facts.num_devices"): (1 << 20, (1 << 20) + 1),
    ("run", "facts.backend"): ("x" * 60, "x" * 61),
    ("run", "facts.versions.ml_dtypes"): ("0.5", 5),
    ("run", "facts.flags.JAX_X"): ("x" * 4000, "x" * 4001),
    ("run", "facts.devices"): ([{"id": 0, "process": 0}] * 1024, [{"id": 0, "process": 0}] * 1025),
    ("run", "facts.devices.0.process"): (0, -1),
    ("run", "facts.host.cores"): (None, "many"),
    ("run", "facts.suite.digest"): ("0123456789abcdef", "0123456789abcde"),
    ("run", "facts.suite.clean"): (None, "yes"),
    ("run", "facts.group"): ({}, {"hosts": ["a"]}),
    ("run", "facts.host.name"): (..., "n7"),
    ("run", "facts.suite.path"): (..., "x"),
    ("run", "rank"): (0, -1),
    ("run", "ranks"): (1, 0),
    ("run", "started"): ("2026-11-20T10:00:00Z", "2026-11-20 10:00"),
    ("run", "selection.processes"): (2, "two"),
    ("run", "timing.least"): (2.5, -1),
    ("conformance", "case"): (CASE + "@v5e:2x4", CASE.replace("/manual", "")),
    ("conformance", "mode"): ("pmap", "magic"),
    ("conformance", "check"): ("export", "vibes"),
    ("conformance", "verdict"): ("hang", "excellent"),
    ("conformance", "level"): ("L4", "L10"),
    ("conformance", "reason"): ("x" * 10_000, "x" * 10_001),
    ("conformance", "error"): ("inf", "-infinity"),
    ("conformance", "flops"): (None, "many"),
    ("conformance", "ranks"): ({"0": "fail"}, {}),
    ("conformance", "ranks.x"): (..., "pass"),
    ("conformance", "stacks"): ([STACK], [[1]]),
    ("conformance", "collectives"): (
        [{"kind": "all-reduce", "bytes": 4, "groups": "1x4", "trips": None}],
        [{"kind": "all-reduce", "bytes": 4, "groups": "1x4"}],
    ),
    ("timing", "samples_s"): ([1e-9], [0]),
    ("timing", "samples_by_rank"): ([[1], [2]], [[1]]),
    ("timing", "rounds_s"): ([0, 0.1], [0]),
    ("timing", "control_calls"): (1, 0),
    ("run", "timing.counts"): ("samples", "clock"),
    ("timing", "skew"): ({"median_s": 0, "slowest": [1]}, {"median_s": 0}),
    ("timing", "cost.nbytes"): (0, -1),
    ("timing", "cadence"): ("device", "now"),
    ("timing", "verified"): (False, 0),
    ("timing", "devices"): (1, 0),
    ("timing", "per_device_s"): ({"cpu 0": 0.1}, {"cpu 0": 0}),
    ("ceiling", "name"): ("largest matmul", "ping"),
    ("ceiling", "unit"): ("FLOP/s", "km/h"),
    ("ceiling", "value"): (1e-9, 0),
    ("comparison", "p"): ("nan", "small"),
    ("comparison", "pairs"): (0, -1),
    ("comparison", "what"): ("process", 3),
    ("schedule", "collectives"): ({"all-reduce": 2}, {"all-reduce": -1}),
    ("schedule", "pairs"): ([{"kind": "send", "trips": None, "synchronous": True}], [{"kind": "send"}]),
    ("schedule", "loops"): ([7, None], ["7"]),
    ("schedule", "place"): ("v5e:2x4", 8),
    ("run", "closes"): (True, False),
    ("chosen", "digest"): ("0" * 16, "0" * 15),
    ("end", "exit_code"): (255, 256),
    ("end", "verdicts.pass"): (1, 0),
    ("end", "ended"): ("2026-11-20T10:00:00Z", "now"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "place"), LIMITS, ids=[".".join(key) for key in LIMITS])
def test_a_limit_of_the_definition_is_checked(lines, kind, place):
    good, bad = LIMITS[kind, place]
    line = copy.deepcopy(lines[kind])
    if "." in place and "ranks" in place:
        line["ranks"] = {"0": "fail"}
    if good is not ...:
        assert not list(WHOLE.iter_errors(changed(line, place, good)))
    assert not WHOLE.is_valid(changed(line, place, bad))


def test_a_required_field_is_required_and_another_is_not(lines):
    for kind, line in lines.items():
        assert WHOLE.is_valid(line)
        for entry in entries(LINES[kind]):
            if entry.name in line:
                assert WHOLE.is_valid(changed(line, entry.name, ...)) is not entry.required, entry.name


def test_a_known_line_names_what_it_was(lines):
    known = lines["conformance"] | {"verdict": "known", "was": "fail", "link": "https://example.org"}
    assert WHOLE.is_valid(known)
    assert not any(WHOLE.is_valid(changed(known, name, ...)) for name in ("was", "link"))


# The reader -------------------------------------------------------------------------------------------------

VALUES = (None, True, -1, 0, 1.5, "", "x", "pass", "numbers", [], [1], [0], ["x"], {}, {"0": "pass"})


def test_the_reader_takes_what_the_schema_takes_and_refuses_what_the_code_relies_on(lines):
    """Any field of a line replaced by another value: a line that the schema accepts is read, one that the reader
    refuses is refused for that field, and a field that is left out is missed where the code relies on it."""
    refused = 0
    for kind in ("run", "conformance", "timing", "ceiling", "schedule"):
        for name in lines[kind]:
            for value in (..., *VALUES):
                line = changed(lines[kind], name, value)
                try:
                    parsed(dumps(line) + "\n")
                except RecordError as error:
                    refused += 1
                    assert not WHOLE.is_valid(line), (kind, name, value)
                    if value is ...:
                        assert name in (*definition.RELIED_ON[kind], "schema", "kind"), (kind, name)
                    assert f"`{name}`" in str(error) or name == "schema"
    assert refused > 500


def test_the_reader_relies_on_required_fields_only():
    for kind in ("run", "conformance", "timing", "ceiling", "schedule"):
        required = {entry.name for entry in entries(LINES[kind]) if entry.required}
        assert set(definition.RELIED_ON[kind]) <= required
    assert set(reading.CHECKED) == set(definition.RELIED_ON)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            {"what": "process", "environment": "A", "process": "0", "seconds": 1.0},
            "`process` must be a whole",
        ),
        ({"what": "process", "environment": "A", "process": 0}, "`seconds` must be a number"),
        ({"what": "verdict", "case": "a", "verdict": "slower"}, "`reason` must be text"),
    ],
)
def test_the_two_shapes_of_a_comparison_line(line, message):
    with pytest.raises(RecordError, match=message):
        parsed(dumps({"schema": 1, "kind": "comparison", "run": "r"} | line) + "\n")


# What is published ------------------------------------------------------------------------------------------


def published():
    """Every published record file of these kinds of line."""
    found = [
        *(ROOT / "results").glob("*/*/*.jsonl.gz"),
        *(ROOT / "results" / "compile-only").glob("*/*.jsonl"),
        *(ROOT / "results" / "weather").glob("*.jsonl.gz"),
    ]
    assert len(found) > 10
    return found


@pytest.mark.parametrize("path", published(), ids=lambda path: "/".join(path.parts[-3:]))
def test_published_records_have_no_field_that_the_definition_lacks(path: Path):
    known = {kind: names(line) for kind, line in LINES.items()}
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            record = json.loads(text)
            assert not set(record) - known[record["kind"]], f"{path}:{number}"


def test_a_merged_line_fits():
    assert WHOLE.is_valid(merged_line(2, 8)) and WHOLE.is_valid(run_line())
