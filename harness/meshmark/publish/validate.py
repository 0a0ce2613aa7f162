# SPDX-License-Identifier: Apache-2.0
"""Checks a product's files as a reviewer would. docs/submitting.md lists the checks.

All claims are recomputed from the record lines: the level statement, totals, environment, cases' heads and costs. What
can't be recomputed is compared with published facts: the chip's peak, the known issues, the committed counters of
collectives. Bad content becomes complaints, each one line with the place and the correction. Bad content raises no
exception.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark.core.escaping import field as field_of
from meshmark.core.verdicts import worst
from meshmark.levels import counters, known_issues, statements
from meshmark.levels import must_pass as levels
from meshmark.levels.expectations import Expectations
from meshmark.levels.must_pass import LevelError
from meshmark.operations.cases import Case
from meshmark.publish import (
    against_contract,
    against_table,
    bundles,
    challenge,
    consistent,
    duplicates,
    ended,
    environments,
    field_checks,
    logs,
    origin,
    physics,
    plausible,
    privacy,
    sampling,
    signatures,
    workload,
)
from meshmark.publish.against_table import Lookup
from meshmark.publish.bundles import Bundle, Room
from meshmark.publish.lines import as_records, entries
from meshmark.publish.review import AS_WRITTEN, Entry, Review
from meshmark.publish.workload import Answered, Workload
from meshmark.records import results, run_line
from meshmark.records.results import ENVIRONMENT, MANIFEST, PRODUCT, RECORDS, ResultError

STALE = "old must-pass list"
"""How the note begins if the statement does not use the newest list."""

MADE, OF_A_FILE = {"schema", "made_by", "files", "totals", "statement"}, {"sha256", "bytes"}
"""What a manifest holds, and what it holds of each file."""

DIRTY, INCOMPLETE = "dirty suite", "level not met"
"""How the marks begin that concede a fault and let the product through."""


def check_product(
    bundle: Bundle,
    expected: Expectations | None = None,
    asked: Mapping[str, Any] | None = None,
    signers: Path | None = None,
    most_work: int = workload.MOST_WORK,
) -> Review:
    """All that is wrong with a product, and its totals and statement. expected: a vendor's known issues and counters,
    in addition to the suite's. asked: a challenge that it must answer. signers: allowed signers, one of whom must have
    signed it. most_work: bytes of answers to compute again (see publish.workload)."""
    expected = expected or Expectations()
    review = Review(bundle.place)
    for name, why in bundle.refused:
        review.complain(name, why)
    if not bundle.files:
        return review.close()
    manifest = _manifest(bundle, review)
    _signature(bundle, signers, review)
    product = _product(bundle, review)
    room = Room()
    files = {
        name: entries(bundle, name, room, review) for name in sorted(bundle.files) if RECORDS.fullmatch(name)
    }
    if not files:
        review.complain("", "no records (*.jsonl or *.jsonl.gz): submit makes them")
        return review.close()
    runs = _runs(bundle, files, product, review)
    _environment(bundle, files, review)
    privacy.check_privacy(bundle, files, product, room, review)
    _logs(bundle, files, review)
    if not runs:
        return review.close()
    facts = next(iter(runs.values()))["facts"]
    work = Workload(product.get("level", ""), asked["cases"] if asked else (), most_work)
    for name, lines in files.items():
        _heads(name, lines, review)
        _judged(name, lines, facts, expected, work, review)
        _timed(name, lines, runs, product, expected, review)
        ended.check_endings(name, lines, review)
    work.compute(review)
    review.totals = totals(files)
    said = manifest.get("totals")
    if manifest and said != review.totals:
        differing = [
            k for k in review.totals if not isinstance(said, dict) or said.get(k) != review.totals[k]
        ]
        review.complain(
            MANIFEST,
            f"totals differ from the records in {', '.join(differing)[:80] or 'their names'}: submit again",
        )
    for name, number, text in consistent.of_files(files):
        review.complain(name, text, number, "consistent")
    _statement(files, manifest, product, review)
    own = duplicates.prints_of(bundle.place, (record for lines in files.values() for _, record in lines))
    answers = challenge.find_unmet_demands(asked, files) if asked else ()
    words = environments.of_words(product, runs)
    for text in itertools.chain(answers, words, duplicates.find_duplicates(own, duplicates.published())):
        review.complain("", text)
    return review.close()


# Files ------------------------------------------------------------------------------------------------------


def _manifest(bundle: Bundle, review: Review) -> dict[str, Any]:
    """The manifest, with its hashes checked; {} if there is none."""
    file = bundle.files.get(MANIFEST)
    if file is None:
        review.complain(MANIFEST, "missing: `meshmark submit` makes it")
        return {}
    try:
        found = bundles.loads(file.data.decode("utf-8"))
        listed = {str(k): (v["sha256"], v["bytes"]) for k, v in found["files"].items()}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        review.complain(MANIFEST, "no manifest: `meshmark submit` makes it")
        return {}
    if found.get("schema") != 1:
        review.complain(MANIFEST, "schema is not 1: use the suite that made it")
    strange = [*set(found) - MADE, *(n for v in found["files"].values() for n in v if n not in OF_A_FILE)]
    if strange:
        review.complain(MANIFEST, f"{min(strange)[:40]!a} is not a name that submit writes: submit again")
    for name in sorted(set(listed) - set(bundle.files)):
        review.complain(MANIFEST, f"names {name[:60]!a}, which is missing: submit again")
    for name, own in sorted(bundle.files.items()):
        if name in (MANIFEST, signatures.FILE):
            continue
        if name not in listed:
            review.complain(name, "not in the manifest: take it out, or submit again")
        elif (own.sha256, len(own.data)) != listed[name]:
            review.complain(
                name, "SHA-256 or size is not the manifest's, so it was changed after submit: submit again"
            )
        if name not in (PRODUCT, ENVIRONMENT) and not (RECORDS.fullmatch(name) or logs.NAME.fullmatch(name)):
            review.complain(name, "not a file of a submission: take it out")
    return dict(found)


def _signature(bundle: Bundle, signers: Path | None, review: Review) -> None:
    """Check the signature of the manifest if there is one or one is required."""
    manifest, own = bundle.files.get(MANIFEST), bundle.files.get(signatures.FILE)
    if manifest is None or (own is None and signers is None):
        return
    told, wrong = signatures.look(manifest.data, own.data if own else None, signers)
    review.notes += [told] if told else []
    if wrong:
        review.complain(signatures.FILE, wrong)


def _product(bundle: Bundle, review: Review) -> dict[str, Any]:
    """product.yaml, with notes and marks; {} if it can't be used."""
    file = bundle.files.get(PRODUCT)
    if file is None:
        review.complain(PRODUCT, "missing: it says who and what, see docs/submitting.md")
        return {"notes": [], "marks": []}
    try:
        found = results.parse_product(file.data, PRODUCT)
    except ResultError as error:
        review.complain(PRODUCT, str(error).removeprefix(f"{PRODUCT}: "))
        return {"notes": [], "marks": []}
    if found["name"] != bundle.name:
        review.complain(PRODUCT, f"`name` is {found['name']!a} in directory {bundle.name!a}: make them one")
    review.notes += [f"marked: {mark}" for mark in found["marks"]]
    review.notes += [f"note about {note['about']}: {note['text']}" for note in found["notes"]]
    return found


def _runs(
    bundle: Bundle, files: Mapping[str, Sequence[Entry]], product: Mapping[str, Any], review: Review
) -> dict[str, dict[str, Any]]:
    """The run lines by id, with their suite, release and devices checked."""
    runs: dict[str, dict[str, Any]] = {}
    commits = set()
    for name, lines in files.items():
        for number, run in lines:
            if run["kind"] != "run":
                continue
            if run["run"] in runs:
                review.complain(name, f"run {run['run']} has two run lines: {AS_WRITTEN}", number)
            runs[run["run"]] = run
            facts, suite = run["facts"], run["facts"]["suite"]
            if facts["versions"]["jax"] != bundle.release:
                jax = facts["versions"]["jax"]
                review.complain(
                    name, f"JAX {jax[:40]!a} in the directory of {bundle.release}: move it", number
                )
            if facts["virtual"] is not (facts["backend"] == "cpu"):
                review.complain(
                    name, "`virtual` is not what the backend says: submit the file as it was written", number
                )
            if facts.get("topology"):
                review.complain(name, "a compile-only run: it belongs in results/compile-only", number)
            if len(facts["devices"]) != min(facts["num_devices"], 1024):
                review.complain(
                    name,
                    "num_devices is not the number of devices: submit the file as it was written",
                    number,
                )
            if why := against_table.version_problem(run):
                review.complain(name, why, number)
            marked = any(mark.startswith(DIRTY) for mark in product["marks"])
            wrong = environments.find_impossible_facts(facts, marked)
            for text in itertools.chain(_processes(run), wrong, origin.find_impossible_origin(run, marked)):
                review.complain(name, text, number)
            commit = suite["commit"]
            named = isinstance(commit, str) and re.fullmatch(r"[0-9a-f]{40}", commit) is not None
            if not marked and (not named or suite["clean"] is not True):
                what = "has changes" if named else "names no commit"
                review.complain(
                    name, f"the suite {what}: run it from a clean checkout, or submit with --mark", number
                )
            if named:
                commits.add(commit)
    if not runs:
        review.complain("", "no run line in any file: submit whole files")
    hosts = {str(sorted((run["facts"].get("host") or {}).items())) for run in runs.values()}
    if len(hosts) > 1:
        review.complain(
            "", f"runs of {len(hosts)} machines ({' and '.join(sorted(hosts))[:200]}): submit one"
        )
    if differing := field_checks.differing(runs):
        review.complain("", f"the runs differ in {differing}: submit runs of one environment")
    looked_up = [origin.look_up(commit) for commit in sorted(commits)[:5]]
    review.notes += [unknown for unknown in looked_up if isinstance(unknown, str)]
    return runs


def _processes(run: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is impossible in a run line about its processes, or covers only some of them."""
    facts = run["facts"]
    number, over = facts["num_processes"], run_line.processes(facts)
    if alone := run_line.single_rank(run):
        yield f"records of {alone}: submit the merged file, FILE and not FILE.rank0 (`meshmark merge FILE`)"
    if facts.get("topology"):
        return
    counted = Counter(device["process"] for device in facts["devices"])
    there = sorted(counted) == list(range(len(counted))) and len(counted) == number
    if len(facts["devices"]) == facts["num_devices"] and not (there and len(set(counted.values())) == 1):
        yield f"num_processes is {number}, and the processes do not share the devices equally: {AS_WRITTEN}"
    group = facts.get("group") or {}
    if group.get("devices") != (run_line.devices_per_process(facts) if group or over > 1 else None):
        yield f"`group` is not of {number} processes of {facts['num_devices']} devices: {AS_WRITTEN}"
    for what, said in (
        ("processes", field_of(run.get("selection"), "processes")),
        ("ranks", run.get("ranks")),
    ):
        if said is not None and said != over:
            yield f"`{what}` is {said}, and num_processes {number}: {AS_WRITTEN}"


def environment_content(files: Mapping[str, Sequence[Entry]]) -> dict[str, Any]:
    """The content of environment.json: each file's runs as their run lines describe them."""
    return {
        "schema": 1,
        "runs": [
            {"file": name} | {k: v for k, v in run.items() if k not in ("schema", "kind")}
            for name, lines in sorted(files.items())
            for _, run in lines
            if run["kind"] == "run"
        ],
    }


def _environment(bundle: Bundle, files: Mapping[str, Sequence[Entry]], review: Review) -> None:
    file = bundle.files.get(ENVIRONMENT)
    try:
        if file is None or bundles.loads(file.data.decode("utf-8")) != environment_content(files):
            what = "missing" if file is None else "not what the run lines say"
            review.complain(ENVIRONMENT, f"{what}: submit again")
    except (ValueError, RecursionError):
        review.complain(ENVIRONMENT, "not strict JSON: submit again")


def _logs(bundle: Bundle, files: Mapping[str, Sequence[Entry]], review: Review) -> None:
    """Check that each log belongs to one of the runs, by the counts that a run prints at its end."""
    counted = [one for lines in files.values() if (one := counts(lines))["cases"]]
    for name in sorted(filter(logs.NAME.fullmatch, bundle.files)):
        if why := consistent.of_log(logs.read_closing_counts(bundle.files[name]), counted):
            review.complain(name, why)


# Cases ------------------------------------------------------------------------------------------------------


def _heads(name: str, lines: Sequence[Entry], review: Review) -> None:
    """Check that the case id agrees with the fields that repeat it."""
    for number, record in lines:
        if record["kind"] not in ("conformance", "timing"):
            continue
        operation, variant, mode, mesh, dtype, _ = record["case"].partition("@")[0].split("/")
        parts = {"operation": operation, "variant": variant, "mode": mode, "mesh": mesh, "dtype": dtype}
        for part, value in parts.items():
            if record[part] != value:
                text = f"{part} {record[part][:40]!a} is not that of case {record['case']}: {AS_WRITTEN}"
                review.complain(name, text, number, "head")


def _judged(
    name: str, lines: Sequence[Entry], facts: Mapping[str, Any], expected: Expectations, work: Workload,
    review: Review,
) -> None:  # fmt: skip
    """Check the conformance lines: complete, consistent, with skips and known issues only where they are allowed."""
    if not (conformance := [(n, r) for n, r in lines if r["kind"] == "conformance"]):
        return
    jax, processes = facts["versions"]["jax"], run_line.processes(facts)
    try:
        issues = expected.issues(facts)
    except ValueError:
        review.complain(name, f"JAX {jax[:40]!a} is not a release: submit the file as it was written")
        return
    committed = expected.committed(facts)
    lookup = Lookup(facts, False, {r["operation"] for _, r in conformance})
    runs = {r["run"]: r for _, r in lines if r["kind"] == "run"}
    for number, record in lines:
        if record["kind"] == "run" and processes > 1 and record.get("ranks") != processes:
            why = "does not hold what all of them found: submit the merged file (`meshmark merge FILE`)"
            review.complain(name, f"a run over {processes} processes that {why}", number)
    by_case: dict[tuple[str, str], list[Entry]] = {}
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
        _one_check(name, number, record, issues, held, review)
        _by_rank(name, number, record, processes, review)
    for (run, own), found in by_case.items():
        first = found[0][0]
        tallied = Counter(r["check"] for _, r in found)
        if twice := [c for c, times in tallied.items() if times > 1]:
            review.complain(
                name,
                f"{own} has check {twice[0]} twice in one run: submit the file as it was written",
                first,
                "twice",
            )
        if sum("seconds" in r for _, r in found) != 1 or "seconds" not in found[-1][1]:
            review.complain(
                name,
                f"{own} is not closed by a line with `seconds`: go on with the run (--resume)",
                first,
                "open",
            )
        case = lookup.get(own)
        if not against_table.agrees(name, first, found[0][1], case, runs[run], review) or case is None:
            continue
        if against_table.compiles_as_today(case, runs[run]):
            _recompute(name, found, case, runs[run]["facts"], work, review)
            field_checks.check_case(name, found, case, runs[run], issues, review)
        if all(r["verdict"] == "pass" for _, r in found):
            passing.setdefault(run, set()).update(case.cell.capabilities)
            needed = {"execute", "gradient" if case.plan.wrt else "numbers", "replicas", "sharding"}
            needed |= set() if case.mode == "host" else {"communication"}
            if lacking := sorted(needed - set(tallied)):
                review.complain(
                    name,
                    f"{own} passes without its check {', '.join(lacking)}: submit the file as it was written",
                    first,
                    "lacking",
                )
        if any(r["verdict"] == "unsupported" for _, r in found) and not case.cell.capabilities:
            review.notes.append(f"unsupported where nothing is optional: {own} ({name}:{first})")
    for number, text in field_checks.of_runs(lines, {own for _, own in by_case}, passing):
        review.complain(name, text, number, "run")
    own_runs = (consistent.of_time(conformance, runs), consistent.of_selection(conformance, runs))
    for number, text in itertools.chain(consistent.of_cases(conformance), *own_runs):
        review.complain(name, text, number, "consistent")
    took = [found[-1][1]["seconds"] for found in by_case.values() if "seconds" in found[-1][1]]
    if len(took) >= plausible.ALIKE and len(set(took)) < len(took) // 4:
        review.complain(name, f"{len(took)} cases took {len(set(took))} different times: {AS_WRITTEN}")


def _recompute(
    name: str, found: Sequence[Entry], case: Case, facts: Mapping[str, Any], work: Workload, review: Review
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
    name: str, number: int, record: Mapping[str, Any], issues: Sequence[known_issues.Issue],
    committed: Mapping[str, str], review: Review,
) -> None:  # fmt: skip
    own, verdict, link = record["case"], record["verdict"], record.get("link")
    if verdict == "known" and not _is_listed(record, issues):
        review.complain(name, f"{own} is known by {str(link)[:80]!a}, {UNLISTED}", number, "known")
    error, bound = record.get("error"), record.get("bound")
    if verdict == "pass" and record["check"] in ("numbers", "gradient"):
        if not (_is_quantity(error) and _is_quantity(bound) and _within(error, bound)):  # type: ignore[arg-type]
            text = f"{own} passes with error {error} and bound {bound}: submit the file as it was written"
            review.complain(name, text, number, "error and bound")
        elif not isinstance(record.get("bits"), str):
            review.complain(
                name, f"{own} passes without `bits`: submit the file as it was written", number, "bits"
            )
    if verdict == "pass" and record["check"] == "communication" and own in committed:
        spelled = counters.format_collectives(record.get("collectives", []))
        if spelled != committed[own]:
            was = committed[own][:80]
            text = (
                f"{own} passes with {spelled[:80]!a}, and the committed counters have {was!a}: {AS_WRITTEN}"
            )
            review.complain(name, text, number, "counters")


UNLISTED = (
    "which the suite's known_issues.toml does not list for it: list it there, name a file that does (--known-issues),"
    " or let it fail"
)


def _is_listed(record: Mapping[str, Any], issues: Sequence[known_issues.Issue]) -> bool:
    """Whether one of the issues is the one that the line names, and explains its failure."""
    failure = record.get("check"), record.get("was"), record["reason"], record.get("stderr")
    return any(
        record.get("link") in (i.link, *i.earlier) and i.covers(record["case"]) and i.explains(*failure)
        for i in issues
    )


def _excused(
    name: str, lines: Sequence[Entry], runs: Mapping[str, Mapping[str, Any]], expected: Expectations,
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
            if not _is_listed(record, issues):
                text = f"{own} is known by {str(record.get('link'))[:80]!a}, {UNLISTED}"
                review.complain(name, text, number, "known")


def _by_rank(name: str, number: int, record: Mapping[str, Any], processes: int, review: Review) -> None:
    """Check the verdicts by rank: the ranks exist, and the worst one is the verdict."""
    verdicts = record.get("ranks", {})
    ended = record.get("ended_rank", 0)
    strange = [rank for rank in (*verdicts, ended) if not 0 <= int(rank) < processes]
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


# Timings ----------------------------------------------------------------------------------------------------


def _timed(
    name: str, lines: Sequence[Entry], runs: Mapping[str, Mapping[str, Any]], product: Mapping[str, Any],
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
    )
    for number, text in itertools.chain.from_iterable(found_in_all):
        review.complain(name, text, number, "sampling")
    ceilings: dict[str, list[dict[str, Any]]] = {}
    for _, record in lines:
        if record["kind"] == "ceiling":
            ceilings.setdefault(record["run"], []).append(record)
    lookups: dict[tuple[int, int], Lookup] = {}
    for number, record in lines:
        kind, run = record["kind"], runs[record["run"]]
        facts: Mapping[str, Any] = run["facts"]
        found: list[str] = []
        if kind == "timing":
            on = facts["num_devices"], run_line.processes(facts)
            if on not in lookups:
                lookups[on] = Lookup(facts, True, {r["operation"] for _, r in of_timings})
            case = lookups[on].get(record["case"])
            if against_table.agrees(name, number, record, case, run, review) and case is not None:
                found += against_table.wrong_costs(record, case, run)
                found += physics.find_impossible_times(record, case, facts, ceilings.get(record["run"], ()))
                found += field_checks.of_timed_program(record, case, run)
            found += field_checks.of_timing(record, run)
            found += plausible.find_timing_faults(record, facts, explained)
        elif kind == "ceiling":
            found += plausible.find_ceiling_faults(record, facts, explained)
            found += physics.find_impossible_ceilings(record, facts)
        elif kind == "comparison":
            found += [*consistent.of_comparison(record), *field_checks.of_comparison(record, run)]
        for text in found:
            label = record.get("case") or record.get("name") or kind
            review.complain(name, f"{label}: {text}", number, "timing")


# What it amounts to -----------------------------------------------------------------------------------------


def counts(lines: Sequence[Entry]) -> Counter[str]:
    """The number of a file's cases with each verdict, and the number of all `cases`."""
    judged = as_records(lines).cases.values()
    return Counter({"cases": len(judged)}) + Counter(one.verdict for one in judged)


def totals(files: Mapping[str, Sequence[Entry]]) -> dict[str, Any]:
    """The totals of the records: lines, cases with their verdicts (the worst one if several files judge a case), and
    timings with their samples."""
    merged = as_records([entry for lines in files.values() for entry in lines])
    verdicts = Counter(judged.verdict for judged in merged.cases.values())
    return {
        "lines": sum(map(len, files.values())),
        "runs": len(merged.runs),
        "cases": len(merged.cases),
        "verdicts": dict(sorted(verdicts.items())),
        "timings": len(merged.timings),
        "samples": sum(len(r["samples_s"]) for r in merged.timings),
        "ceilings": len(merged.ceilings),
        "comparisons": len(merged.comparisons),
    }


def _statement(
    files: Mapping[str, Sequence[Entry]],
    manifest: Mapping[str, Any],
    product: Mapping[str, Any],
    review: Review,
) -> None:
    """Recompute the level statement; the claimed level must be met."""
    said, claimed = manifest.get("statement"), product.get("level", "")
    version = said.get("list") if isinstance(said, dict) else None
    judged = [read for lines in files.values() if (read := as_records(lines)).runs]
    try:
        found = statements.statement(judged, version if type(version) is int else None)
    except LevelError as error:
        review.complain("", f"no level statement: {error}")
        return
    review.statement = found
    if stale := _stale(found):
        review.notes.append(stale)
    review.measured = max(
        (str(run.get("started") or "")[:10] for one in judged for run in one.runs), default=""
    )
    if manifest and said != found.to_json():
        own = found.to_json()
        differing = [k for k in own if not isinstance(said, dict) or said.get(k) != own[k]]
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
        marked = any(mark.startswith(INCOMPLETE) for mark in product["marks"])
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
