# SPDX-License-Identifier: Apache-2.0
"""Checks a product's files as a reviewer would. docs/submitting.md lists the checks.

All claims are recomputed from the record lines: the level statement, totals, environment, cases' heads and costs. What
can't be recomputed is compared with published facts: the chip's peak, the known issues, the committed counters of
collectives. Bad content becomes complaints, each one line with the place and the correction. Bad content raises no
exception.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark.levels import must_pass as levels
from meshmark.levels import statements
from meshmark.levels.expectations import Expectations
from meshmark.levels.must_pass import LevelError
from meshmark.publish import (
    case_checks,
    challenge,
    consistent,
    contrary,
    duplicates,
    ended,
    environments,
    file_checks,
    floods,
    origin,
    own_words,
    privacy,
    stretches,
    timing_checks,
    totals,
    workload,
)
from meshmark.publish.bundles import Bundle, Room
from meshmark.publish.definition import Challenge, Manifest
from meshmark.publish.lines import as_records, entries
from meshmark.publish.review import Entry, Review
from meshmark.publish.workload import Workload
from meshmark.records.product_definition import ProductData
from meshmark.records.results import MANIFEST, PRODUCT, RECORDS

STALE = "old must-pass list"
"""How the note begins if the statement does not use the newest list."""


def check_product(
    bundle: Bundle,
    expected: Expectations | None = None,
    asked: Challenge | None = None,
    signers: Path | None = None,
    most_work: int = workload.MOST_WORK,
    beside: Sequence[duplicates.Prints] = (),
) -> Review:
    """All that is wrong with a product, and its totals and statement. expected: a vendor's known issues and counters,
    in addition to the suite's. asked: a challenge that it must answer. signers: allowed signers, one of whom must have
    signed it. most_work: bytes of answers to compute again (see publish.workload). beside: the prints of products that
    were submitted together with it."""
    expected = expected or Expectations()
    review = Review(bundle.place)
    for name, why in bundle.refused:
        review.complain(name, why)
    if not bundle.files:
        return review.close()
    manifest = file_checks.check_manifest(bundle, review)
    file_checks.check_signature(bundle, signers, review)
    product = file_checks.read_product(bundle, review)
    room = Room()
    files = {
        name: entries(bundle, name, room, review) for name in sorted(bundle.files) if RECORDS.fullmatch(name)
    }
    if not files:
        review.complain("", "no records (*.jsonl or *.jsonl.gz): submit makes them")
        return review.close()
    if flooded := list(floods.find_floods(files)):
        for text in flooded:
            review.complain("", text)
        return review.close()
    runs = file_checks.check_runs(bundle, files, product, review)
    file_checks.check_environment(bundle, files, review)
    privacy.check_privacy(bundle, files, product, room, review)
    file_checks.check_logs(bundle, files, review)
    if not runs:
        return review.close()
    facts = next(iter(runs.values()))["facts"]
    work = Workload(product.get("level", ""), asked["cases"] if asked else (), most_work)
    for name, lines in files.items():
        case_checks.check_heads(name, lines, review)
        case_checks.check_cases(name, lines, facts, expected, work, review)
        timing_checks.check_timings(name, lines, runs, product, expected, review)
        ended.check_endings(name, lines, review)
    work.compute(review)
    review.totals = totals.add_up(files)
    if manifest and manifest["totals"] != review.totals:
        differing = find_differing(manifest["totals"], review.totals)
        review.complain(
            MANIFEST,
            f"totals differ from the records in {', '.join(differing)[:80] or 'their names'}: submit again",
        )
    for name, number, text in itertools.chain(consistent.of_files(files), stretches.find_copies(files)):
        review.complain(name, text, number, "consistent")
    _statement(files, manifest, product, review)
    every = [record for lines in files.values() for _, record in lines]
    own, others = duplicates.prints_of(bundle.place, every), duplicates.published()
    places = {other.place for other in others}
    copied = duplicates.find_duplicates(own, [*others, *(one for one in beside if one.place not in places)])
    again = duplicates.find_redated(bundle, every)
    if cases := contrary.find_contrary(own, others):
        text, refused = contrary.describe_contrary(
            cases, any(n["about"] == "other" for n in product["notes"])
        )
        if refused:
            review.complain("", text)
        else:
            review.notes.append(text)
    review.prints = own if bundle.place not in places else None
    review.notes += own_words.find_other_devices(product, runs)
    answers = challenge.find_unmet_demands(asked, files) if asked else ()
    words = environments.find_chips_without_run(product, runs)
    for text in itertools.chain(answers, words, copied, again):
        review.complain("", text)
    return review.close()


def find_differing(said: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """The names whose value differs from what the records give."""
    return [name for name, value in own.items() if said.get(name) != value]


def _statement(
    files: Mapping[str, Sequence[Entry]],
    manifest: Manifest | None,
    product: ProductData,
    review: Review,
) -> None:
    """Recompute the level statement; the claimed level must be met."""
    said, claimed = manifest["statement"] if manifest else None, product.get("level", "")
    judged = [read for lines in files.values() if (read := as_records(lines)).runs]
    try:
        found = statements.statement(judged, said["list"] if said else None)
    except LevelError as error:
        review.complain("", f"no level statement: {error}")
        return
    review.statement = found
    if stale := _stale(found):
        review.notes.append(stale)
    commits = {run["facts"]["suite"]["commit"] for one in judged if one.cases for run in one.runs}
    looked_up = [one for c in commits if c and isinstance(one := origin.look_up(c), origin.Commit)]
    if found.version < (newest := min((one.lists for one in looked_up), default=0)):
        text = f"must-pass list {found.version}, and the commit that judged has list {newest}: submit again"
        review.complain(MANIFEST, text)
    review.measured = max(
        (str(run.get("started") or "")[:10] for one in judged for run in one.runs), default=""
    )
    if said and said != (own := found.to_json()):
        differing = find_differing(said, own)
        fields = ", ".join(differing)[:80] or "more fields"
        text = f"the statement differs from the records in {fields}; they say {found.text!a}: submit again"
        review.complain(MANIFEST, text)
    listed = {s.must.level for s in found.standings}
    if claimed and claimed not in listed:
        over = f" over {found.processes} processes" if found.processes > 1 else " for one process"
        choice = ", ".join(sorted(listed)) or "none"
        text = f"claims {claimed!a}, which has no must-pass list{over}: claim one that has ({choice})"
        review.complain(PRODUCT, text)
    elif claimed and claimed > found.met:
        marked = any(mark.startswith(file_checks.INCOMPLETE) for mark in product["marks"])
        for standing in found.standings:
            if standing.must.level <= claimed and not standing.complete and not marked:
                review.complain(
                    PRODUCT,
                    f"claims {claimed}, which is not met ({standing.describe()}): claim less, or run what is missing",
                )


def _stale(found: statements.Statement) -> str:
    """Which newer must-pass list exists, and whether it asks for other cases; "" if the statement has the newest."""
    newest = levels.versions()[-1]
    if found.version == newest or not found.standings:
        return ""
    differing = []
    for standing in found.standings:
        must = standing.must
        try:
            now = levels.must_pass(must.level, must.devices, newest, processes=must.processes)
        except LevelError:
            continue
        differing += [must.level] if now.sha256 != must.sha256 else []
    same = f"asks for other cases in {', '.join(differing)}" if differing else "asks for the same cases"
    return f"{STALE}: {found.version}, and the newest, {newest}, {same}"
