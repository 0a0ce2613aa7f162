# SPDX-License-Identifier: Apache-2.0
"""Challenges: makes a random seed and choice of cases, and checks whether a run answers them.

The digests of exact cases depend on the seed, so nobody can compute them before the challenge is named. A correct
answer proves only this: the NumPy reference gives the same digests as a device.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from meshmark.core import files
from meshmark.core.errors import BadInput
from meshmark.operations import cases
from meshmark.operations.cases import Case
from meshmark.operations.selection import Selection, SelectionError
from meshmark.publish import against_table, bundles, consistent, origin, recomputed
from meshmark.publish.definition import Challenge
from meshmark.publish.review import Entry
from meshmark.records import run_line
from meshmark.records.checking import check_of
from meshmark.records.run_definition import RunLine

LARGEST_SEED = 2**31 - 1
LONGEST = 1 << 20
"""The most bytes of a challenge file."""


_CHECK = check_of(Challenge)


class ChallengeError(BadInput, ValueError):
    """A file that is not a challenge; the message is one line."""


def make(devices: int, number: int, processes: int = 1) -> Challenge:
    """A challenge of `number` cases on `devices` devices: the seed and the choice are random."""
    seed = 1 + secrets.randbelow(LARGEST_SEED)
    draw = random.Random(secrets.randbits(128))
    found = [c for c in cases.cases(Selection(processes=processes), devices) if c.plan.judge != "bound"]
    draw.shuffle(found)
    chosen: list[str] = []
    for case in found:
        if len(chosen) == number:
            break
        if _depends(case, seed):
            chosen.append(case.id)
    return {
        "schema": 1,
        "kind": "challenge",
        "seed": seed,
        "devices": devices,
        "processes": processes,
        "issued": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cases": chosen,
    }


def _depends(case: Case, seed: int) -> bool:
    """Whether a right answer has only one digest, which another seed would change."""
    try:
        one, other = (recomputed.answer(case.cell, s, 0.0).expected for s in (seed, 0))
        same = recomputed.digest_results(case, one) == recomputed.digest_results(case, other)
    except (ValueError, TypeError, IndexError, KeyError, ArithmeticError):
        return False
    special = case.cell.request.variant.get("fill") is not None
    return not same and not special and recomputed.determined(case, one)


def read_challenge(path: Path) -> Challenge:
    """The contents of a challenge file; ChallengeError if it is not one."""
    try:
        with files.opened(path) as file:
            found = bundles.loads(file.read(LONGEST).decode())
    except OSError as error:
        raise ChallengeError(f"can't read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ChallengeError(f"{path} is not a challenge: name what `meshmark challenge` wrote") from None
    told = _CHECK(found) or (
        "" if origin.parse_started(found["issued"]) is not None else "has `issued`, which is not a time"
    )
    if told:
        raise ChallengeError(
            f"{path} is not a challenge, because it {told}: name what `meshmark challenge` wrote"
        )
    return cast(Challenge, found)


def spell_challenge(challenge: Challenge) -> str:
    """A challenge as the text of its file."""
    return json.dumps(challenge, indent=1) + "\n"


def spell_command(challenge: Challenge) -> list[str]:
    """The command that answers a challenge, as a list of words."""
    chosen = [word for name in challenge["cases"] for word in ("--case", name)]
    return ["meshmark", "test", "--seed", str(challenge["seed"]), *chosen, "--record", "challenge.jsonl"]


def _uncomputed(challenge: Challenge, run: RunLine) -> Iterator[str]:
    """Yields a case whose answer in this run is not computed again, because its program was another one in the run's
    version of the case table. Without this rule, an old commit would answer such a case with anything."""
    facts = run["facts"]
    for name in challenge["cases"]:
        try:
            case = cases.find(name, facts["num_devices"], run_line.processes(facts))
        except (SelectionError, ValueError):
            continue  # another rule reports a case that has no answer
        if not against_table.compiles_as_today(case, run):
            version = run_line.table_version(run)
            told = f"run {run['run']} is of version {version} of the case table, in which {name} was another program"
            yield f"the challenge: {told}: run it with a newer commit"
            return


def find_unmet_demands(challenge: Challenge, files: Mapping[str, Sequence[Entry]]) -> Iterator[str]:
    """Yields why these records do not answer the challenge. publish.recomputed checks the digests of every record
    against its seed."""
    runs = {
        record["run"]: record
        for lines in files.values()
        for _, record in lines
        if record["kind"] == "run" and record.get("seed") == challenge["seed"]
    }
    if not runs:
        first = " ".join(spell_command(challenge)[:4])
        yield f"the challenge: no run has its seed {challenge['seed']}: run {first} ..."
        return
    issued = origin.parse_started(challenge["issued"]) or 0.0
    for run in runs.values():
        if other := consistent.answers(run, challenge):
            yield f"the challenge: {other}"
        if (origin.parse_started(run.get("started")) or 0.0) < issued - origin.SLACK:
            yield f"the challenge: run {run['run']} began before it was issued, {challenge['issued']}"
    for run in runs.values():
        yield from _uncomputed(challenge, run)
    passed = {
        record["case"]
        for lines in files.values()
        for _, record in lines
        if record["kind"] == "conformance" and record["run"] in runs and record["verdict"] == "pass"
        if record["check"] in ("numbers", "gradient") and "bits" in record
    }
    if lacking := [name for name in challenge["cases"] if name not in passed]:
        of = len(challenge["cases"])
        yield f"the challenge: {len(lacking)} of its {of} cases have no answer, such as {lacking[0]}"
