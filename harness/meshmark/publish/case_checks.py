# SPDX-License-Identifier: Apache-2.0
"""Checks the conformance lines of a product: complete, consistent, and with answers that can be computed again."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meshmark.core.verdicts import worst
from meshmark.levels import counters, known_issues
from meshmark.levels.expectations import Expectations
from meshmark.operations.cases import Case
from meshmark.publish import (
    against_contract,
    against_table,
    consistent,
    excuses,
    field_checks,
    physics,
    plausible,
)
from meshmark.publish.against_table import Lookup
from meshmark.publish.review import AS_WRITTEN, CaseEntry, Entry, Review
from meshmark.publish.workload import Answered, Workload
from meshmark.records import run_line
from meshmark.records.definition import ConformanceLine
from meshmark.records.run_definition import RunFacts, RunLine


def check_heads(name: str, lines: Sequence[Entry], review: Review) -> None:
    """Check that the case id agrees with the fields that repeat it."""
    for number, record in lines:
        if record["kind"] != "conformance" and record["kind"] != "timing":
            continue
        operation, variant, mode, mesh, dtype, _ = record["case"].partition("@")[0].split("/")
        parts = {"operation": operation, "variant": variant, "mode": mode, "mesh": mesh, "dtype": dtype}
        for part, value in parts.items():
            if (said := str(record.get(part))) != value:
                text = f"{part} {said[:40]!a} is not that of case {record['case']}: {AS_WRITTEN}"
                review.complain(name, text, number, "head")


def check_cases(
    name: str, lines: Sequence[Entry], facts: RunFacts, expected: Expectations, work: Workload,
    review: Review,
) -> None:  # fmt: skip
    """Check the conformance lines: complete, consistent, with skips and known issues only where they are allowed."""
    if not (conformance := [(n, r) for n, r in lines if r["kind"] == "conformance"]):
        return
    jax, processes = facts["versions"]["jax"], run_line.processes(facts)
    try:
        issues = expected.issues(facts)
    except ValueError:
        review.complain(name, f"JAX {jax[:40]!a} is not a release: {AS_WRITTEN}")
        return
    committed = expected.committed(facts)
    lookup = Lookup(facts, False, {r["operation"] for _, r in conformance})
    runs = {r["run"]: r for _, r in lines if r["kind"] == "run"}
    for number, record in lines:
        if record["kind"] == "run" and processes > 1 and record.get("ranks") != processes:
            why = "does not hold what all of them found: submit the merged file (`meshmark merge FILE`)"
            review.complain(name, f"a run over {processes} processes that {why}", number)
    by_case: dict[tuple[str, str], list[CaseEntry]] = {}
    passing = dict[str, set[str]]()
    for number, record in conformance:
        if record["seed"] != runs[record["run"]].get("seed", 0):
            text = f"{record['case']} is of seed {record['seed']}, and its run of another: {AS_WRITTEN}"
            review.complain(name, text, number, "seed")
        by_case.setdefault((record["run"], record["case"]), []).append((number, record))
        held = committed
        if record["case"] in committed and not against_table.compiles_as_today(
            lookup.get(record["case"]), runs[record["run"]]
        ):
            held = {}
        _one_check(name, number, record, issues, held, facts, review)
        _by_rank(name, number, record, processes, review)
    for (run, own), found in by_case.items():
        shown = _check_whole(name, found, lookup.get(own), runs[run], issues, work, review)
        if shown is not None:
            passing.setdefault(run, set()).update(shown)
    for number, text in field_checks.of_runs(lines, {own for _, own in by_case}, passing):
        review.complain(name, text, number, "run")
    own_runs = (consistent.of_time(conformance, runs), consistent.of_selection(conformance, runs))
    for number, text in itertools.chain(consistent.of_cases(conformance), *own_runs):
        review.complain(name, text, number, "consistent")
    took = [found[-1][1]["seconds"] for found in by_case.values() if "seconds" in found[-1][1]]
    if len(took) >= plausible.ALIKE and len(set(took)) < len(took) // 4:
        review.complain(name, f"{len(took)} cases took {len(set(took))} different times: {AS_WRITTEN}")


def _check_whole(
    name: str, found: Sequence[CaseEntry], case: Case | None, run: RunLine,
    issues: Sequence[known_issues.Issue], work: Workload, review: Review,
) -> Iterable[str] | None:  # fmt: skip
    """Check all lines of one case in one run. Gives the optional capabilities that the case uses if it is a case of the
    table and passes, and None otherwise."""
    first, record = found[0]
    own, tallied = record["case"], Counter(r["check"] for _, r in found)
    if twice := [c for c, times in tallied.items() if times > 1]:
        review.complain(name, f"{own} has check {twice[0]} twice in one run: {AS_WRITTEN}", first, "twice")
    if sum("seconds" in r for _, r in found) != 1 or "seconds" not in found[-1][1]:
        text = f"{own} is not closed by a line with `seconds`: go on with the run (--resume)"
        review.complain(name, text, first, "open")
    if not against_table.agrees(name, first, record, case, run, review) or case is None:
        return None
    for number, line in found:
        if line["verdict"] == "unsupported" and (
            why := excuses.not_unsupported(line, case.cell.capabilities)
        ):
            review.complain(name, f"{own} {why}: {AS_WRITTEN}", number, "unsupported")
    if against_table.compiles_as_today(case, run):
        _recompute(name, found, case, run["facts"], work, review)
        field_checks.check_case(name, found, case, run, issues, review)
    if any(r["verdict"] == "unsupported" for _, r in found) and not case.cell.capabilities:
        review.notes.append(f"unsupported where nothing is optional: {own} ({name}:{first})")
    if any(r["verdict"] != "pass" for _, r in found):
        return None
    needed = {"execute", "gradient" if case.plan.wrt else "numbers", "replicas", "sharding"}
    needed |= set() if case.mode == "host" else {"communication"}
    if lacking := sorted(needed - set(tallied)):
        text = f"{own} passes without its check {', '.join(lacking)}: {AS_WRITTEN}"
        review.complain(name, text, first, "lacking")
    return case.cell.capabilities


def _recompute(
    name: str, found: Sequence[CaseEntry], case: Case, facts: RunFacts, work: Workload, review: Review
) -> None:
    """Check the passing lines of a case against the contract, and add those of numbers to the answers that are computed
    again."""
    for number, record in found:
        if record["verdict"] != "pass":
            continue
        if record["check"] in ("numbers", "gradient"):
            if _is_quantity(record.get("error")) and _is_quantity(record.get("bound")):
                work.add(Answered(name, number, case, record, facts))
        elif record["check"] == "communication":
            for text in against_contract.find_impossible_traffic(case, record, facts):
                review.complain(name, f"{case.id}: {text}: {AS_WRITTEN}", number, "recomputed communication")


def _one_check(
    name: str, number: int, record: ConformanceLine, issues: Sequence[known_issues.Issue],
    committed: Mapping[str, str], facts: RunFacts, review: Review,
) -> None:  # fmt: skip
    own, verdict, link = record["case"], record["verdict"], record.get("link")
    if verdict == "known" and not excuses.is_listed(record, issues):
        review.complain(name, f"{own} is known by {str(link)[:80]!a}, {excuses.UNLISTED}", number, "known")
    error, bound = record.get("error"), record.get("bound")
    if verdict == "pass" and record["check"] in ("numbers", "gradient"):
        if not (_is_quantity(error) and _is_quantity(bound) and _within(error, bound)):  # type: ignore[arg-type]
            text = f"{own} passes with error {error} and bound {bound}: {AS_WRITTEN}"
            review.complain(name, text, number, "error and bound")
        elif not isinstance(record.get("bits"), str):
            review.complain(name, f"{own} passes without `bits`: {AS_WRITTEN}", number, "bits")
    if verdict == "pass" and (large := physics.exceeds_memory(record, facts)):
        review.complain(name, f"{own}: {large}: {AS_WRITTEN}", number, "memory")
    if verdict == "pass" and record["check"] == "communication" and own in committed:
        spelled = counters.format_collectives(record.get("collectives", []))
        if spelled != committed[own]:
            was = committed[own][:80]
            text = (
                f"{own} passes with {spelled[:80]!a}, and the committed counters have {was!a}: {AS_WRITTEN}"
            )
            review.complain(name, text, number, "counters")


def _by_rank(name: str, number: int, record: ConformanceLine, processes: int, review: Review) -> None:
    """Check the verdicts by rank: the ranks exist, and the worst one is the verdict."""
    verdicts = record.get("ranks", {})
    ended = record.get("ended_rank", 0)
    strange = [rank for rank in (*map(int, verdicts), ended) if not 0 <= rank < processes]
    if strange:
        text = f"{record['case']} is of rank {strange[0]} of {processes}: {AS_WRITTEN}"
        review.complain(name, text, number, "ranks")
    elif verdicts and worst(verdicts.values()) != record["verdict"]:
        text = (
            f"{record['case']} is {record['verdict']}, and its ranks {worst(verdicts.values())}: {AS_WRITTEN}"
        )
        review.complain(name, text, number, "ranks")


def _within(error: float, bound: float) -> bool:
    """Whether the judge passes this error: by the judge's quotient (judge.checks.difference), which may round to 1."""
    return error <= bound or (bound > 0 and error / bound <= 1)


def _is_quantity(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0
