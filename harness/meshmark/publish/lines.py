# SPDX-License-Identifier: Apache-2.0
"""The lines of a submitted record file, each checked against the published JSON Schema."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from meshmark.core import extras
from meshmark.publish import bundles
from meshmark.publish.bundles import Bundle, BundleError, Room
from meshmark.publish.review import Entry, Review
from meshmark.records import fields, reading, schema, writing
from meshmark.records.definition import KINDS, LINES, AnyLine
from meshmark.records.reading import RecordError, Records
from meshmark.records.run_definition import RunFacts

LONGEST_TIME, SHORTEST_TIME = 1e9, 1e-15
"""Seconds: about 30 years, and a time in which light does not cross a molecule. Sums and ratios of the times between
them are finite, so no check of samples fails by them."""

SERIES = ("samples_s", "control_s", "rounds_s", "control_rounds_s", "launch_skew_s", "wire_s")
"""The fields that hold lists of times."""

DURATIONS = ("seconds", "lower_s", "compile_s", "interpret_s")
"""The fields that hold one time."""


def time_problem(record: Mapping[str, Any]) -> str:
    """Why a time of a line that follows the schema is none; "" if each can be one."""
    times = {name: _numbers(record.get(name)) for name in (*SERIES, *DURATIONS, "per_device_s")}
    ranks, timing = record.get("samples_by_rank"), record.get("timing")
    if isinstance(ranks, list):
        times |= {f"samples_by_rank.{rank}": _numbers(own) for rank, own in enumerate(ranks)}
    if isinstance(timing, dict):
        times["timing.seconds"] = _numbers(timing.get("seconds"))
    for name, values in times.items():
        least, most = min(values, default=0), max(values, default=0)
        if least == 0:  # a first round begins at 0
            least = min((value for value in values if value), default=SHORTEST_TIME)
        if most > LONGEST_TIME or least < SHORTEST_TIME:
            # A whole number of JSON may be too large for a float.
            shown = max(-1e308, min(1e308, most if most > LONGEST_TIME else least))
            return f"`{name}` has a time of {shown:.3g} s, which no clock gives"
    return ""


def _numbers(value: object) -> list[float]:
    """The numbers of a field, which may be of another kind of line: the schema says nothing about it then."""
    every = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return [one for one in every if isinstance(one, (int, float)) and not isinstance(one, bool)]


def spelling_problem(data: bytes, record: Mapping[str, Any]) -> str:
    """Why a line could be read as another one, or not at all; "" if every reader takes the same record from it.

    `submit` writes each line anew, so other spaces, ends of line, escapes or numbers are not its own. A carriage return
    ends a line for some readers: they would find records inside of this one that nobody checked."""
    if data != (writing.dumps(record) + "\n").encode():
        return "not spelled as `submit` writes lines"
    try:
        reading.parsed(data.decode())
    except RecordError as error:
        return f"not read by the report ({str(error)[:120]})"
    return ""


@cache
def listed_fields(definition: type) -> frozenset[str]:
    """The names of the fields that the record definition gives to a kind of line, or to its facts."""
    return frozenset(entry.name for entry in fields.entries(definition))


def find_unlisted(record: Mapping[str, Any]) -> str:
    """The first field of a line, or of a run's facts, that no definition lists; "" if there is none. Nobody checks such
    a field, so it could say anything, such as other hardware."""
    found = [name for name in record if name not in listed_fields(LINES[record["kind"]])]
    found += [name for name in record.get("facts", ()) if name not in listed_fields(RunFacts)]
    return found[0] if found else ""


def entries(bundle: Bundle, name: str, room: Room, review: Review, submitted: bool = True) -> list[Entry]:
    """The lines of a record file that follow the schema; each other line becomes a complaint. submitted: whether
    `submit` wrote the file, so that its spelling is known."""
    found: list[Entry] = []
    declared: set[str] = set()
    for number, record, data in bundles.read_spelled(bundle.files[name], room):
        if isinstance(record, str):
            review.complain(name, record, number, "not a record")
            continue
        if why := schema_problem(record):
            review.complain(
                name, f"{why}: make the file again, or use the suite that wrote it", number, "schema"
            )
            continue
        if why := time_problem(record):
            review.complain(name, f"{why}: make the file again", number, "time")
            continue
        if submitted and (why := spelling_problem(data, record)):
            review.complain(name, f"{why}: submit again", number, "spelling")
            continue
        if submitted and (field := find_unlisted(record)):
            text = f"the field {field[:40]!a} is in no definition of records: submit files as the suite wrote them"
            review.complain(name, text, number, "unlisted")
        if record["kind"] == "run":
            declared.add(record["run"])
        elif record["run"] not in declared:
            review.complain(
                name, f"run {record['run']} has no run line above: submit whole files", number, "run"
            )
            continue
        found.append((number, cast(AnyLine, record)))  # the schema holds
    return found


@cache
def _validators() -> dict[str, Any]:
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import extend
    except ImportError:
        raise BundleError(
            f"records are checked with jsonschema, which is not installed: {extras.command('submit')}"
        ) from None
    published = json.loads(schema.FILE.read_text(encoding="utf-8"))
    definitions = published["$defs"]
    # JSON Schema takes 1.0 for an integer. The suite never writes it so, and Python does not count with it.
    whole = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    strict = extend(Draft202012Validator, type_checker=whole)
    return {k: strict({"$ref": f"#/$defs/{k}", "$defs": definitions}) for k in KINDS}


def _innermost(error: Any) -> Any:
    """The most specific error: if a value fits none of several types, why it does not fit the nearest one."""
    from jsonschema.exceptions import best_match

    return best_match([error])


_FITTING: set[bytes] = set()
"""Digests of records that follow the schema. `submit` checks its input and then its output, so it asks the schema only
once for each line."""

_MOST_FITTING = 1 << 17
"""The most digests to keep: at most 20 MB of memory."""


def schema_problem(record: Mapping[str, Any]) -> str:
    """Why a record does not follow the published JSON Schema; "" if it does."""
    kind = record.get("kind")
    if not isinstance(kind, str) or kind not in _validators():
        return f"not a record: `kind` must be one of {', '.join(KINDS)}"
    # repr separates what the schema separates, such as 1, 1.0 and True, and is faster than JSON.
    digest = hashlib.sha256(repr(record).encode("utf-8", "surrogatepass")).digest()
    if digest in _FITTING:
        return ""
    error = next(_validators()[kind].iter_errors(record), None)
    if error is None:
        if len(_FITTING) >= _MOST_FITTING:
            _FITTING.clear()
        _FITTING.add(digest)
        return ""
    error = _innermost(error)
    where = ".".join(str(part)[:30] for part in error.absolute_path) or kind
    return f"schema: {where[:80]}: {str(error.message)[:120]}"


def as_records(lines: Sequence[Entry]) -> Records:
    """Checked lines as meshmark.records.reading reads them."""
    found = Records()
    for _, record in lines:
        found.add(record)
    return found
