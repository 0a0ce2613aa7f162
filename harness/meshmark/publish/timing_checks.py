# SPDX-License-Identifier: Apache-2.0
"""Checks the timing, ceiling and comparison lines of a product: plausible, and with the cost of the table."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from meshmark.levels.expectations import Expectations
from meshmark.publish import (
    against_table,
    consistent,
    excuses,
    field_checks,
    physics,
    plausible,
    sampling,
    untimed,
)
from meshmark.publish.against_table import Lookup
from meshmark.publish.review import AS_WRITTEN, Entry, Review, TimingEntry
from meshmark.records import run_line
from meshmark.records.definition import CeilingLine
from meshmark.records.product_definition import ProductData
from meshmark.records.run_definition import RunFacts, RunLine


def check_timings(
    name: str, lines: Sequence[Entry], runs: Mapping[str, RunLine], product: ProductData,
    expected: Expectations, review: Review,
) -> None:  # fmt: skip
    """Check the timing, ceiling and comparison lines: plausible, and with the cost of the table."""
    explained, time_explained = (
        any(n["about"] == what for n in product["notes"]) for what in ("peak", "timing")
    )
    of_timings = [(n, r) for n, r in lines if r["kind"] == "timing"]
    _excused(name, of_timings, runs, expected, review)
    sampled = field_checks.with_controls(of_timings)
    found_in_all = (
        *(sampling.of_file(of_timings, runs, time_explained), consistent.of_timings(of_timings, runs)),
        *(sampling.of_orders(sampled), consistent.of_samples(sampled), field_checks.of_others(lines, runs)),
        against_table.untimed_modes(of_timings, runs),
        untimed.find_untimed(lines),
    )
    for number, text in itertools.chain.from_iterable(found_in_all):
        review.complain(name, text, number, "sampling")
    ceilings: dict[str, list[CeilingLine]] = {}
    for _, record in lines:
        if record["kind"] == "ceiling":
            ceilings.setdefault(record["run"], []).append(record)
    lookups: dict[tuple[int, int], Lookup] = {}
    for number, record in lines:
        run = runs[record["run"]]
        facts: RunFacts = run["facts"]
        found: list[str] = []
        if record["kind"] == "timing":
            on = facts["num_devices"], run_line.processes(facts)
            if on not in lookups:
                lookups[on] = Lookup(facts, True, {r["operation"] for _, r in of_timings})
            case = lookups[on].get(record["case"])
            if against_table.agrees(name, number, record, case, run, review) and case is not None:
                found += against_table.wrong_costs(record, case, run)
                found += physics.find_impossible_times(record, case, facts, ceilings.get(record["run"], ()))
                found += field_checks.of_timed_program(record, case, run)
                if record["verdict"] == "unsupported":
                    found += filter(None, [excuses.not_unsupported(record, case.cell.capabilities)])
            found += field_checks.of_timing(record, run)
            found += plausible.find_timing_faults(record, facts, explained)
            found += filter(
                None, [physics.exceeds_memory(record, facts) if record["verdict"] == "pass" else ""]
            )
        elif record["kind"] == "ceiling":
            found += plausible.find_ceiling_faults(record, facts, explained)
            found += physics.find_impossible_ceilings(record, facts)
        elif record["kind"] == "comparison":
            found += [*consistent.of_comparison(record), *field_checks.of_comparison(record, run)]
        for text in found:
            label = record.get("case") or record.get("name") or record["kind"]
            review.complain(name, f"{label}: {text}", number, "timing")


def _excused(
    name: str, lines: Sequence[TimingEntry], runs: Mapping[str, RunLine], expected: Expectations,
    review: Review,
) -> None:  # fmt: skip
    """Check the timing lines without samples whose verdict is not a failure: nobody sees that such a mode is slow."""
    for number, record in lines:
        own, verdict = record["case"], record["verdict"]
        if verdict == "not_run":
            text = f"{own} is timed with verdict not_run, which only a compile-only run gives: {AS_WRITTEN}"
            review.complain(name, text, number, "excused")
        elif verdict == "unsupported":
            review.notes.append(
                f"unsupported, so not timed: {own} ({name}:{number}): {record['reason'][:80]!a}"
            )
        elif verdict == "known":
            try:
                issues = expected.issues(runs[record["run"]]["facts"])
            except ValueError:
                continue  # another rule reports the release
            if not excuses.is_listed(record, issues):
                text = f"{own} is known by {str(record.get('link'))[:80]!a}, {excuses.UNLISTED}"
                review.complain(name, text, number, "known")
