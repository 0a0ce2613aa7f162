# SPDX-License-Identifier: Apache-2.0
"""Checks the files of a product beside their lines: manifest, signature, product.yaml, run lines, environment, logs."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from meshmark.core.escaping import field as field_of
from meshmark.core.machines import comparable
from meshmark.publish import (
    against_table,
    bundles,
    consistent,
    environments,
    field_checks,
    logs,
    origin,
    signatures,
    totals,
)
from meshmark.publish.bundles import Bundle
from meshmark.publish.definition import FileEntry, Manifest
from meshmark.publish.review import AS_WRITTEN, Entry, Review
from meshmark.records import results, run_line
from meshmark.records.checking import check_of
from meshmark.records.product_definition import ProductData
from meshmark.records.results import ENVIRONMENT, MANIFEST, PRODUCT, RECORDS, ResultError
from meshmark.records.run_definition import RunLine

DIRTY = "dirty suite"
"""How the mark begins that concedes a suite with changes and lets the product through."""

INCOMPLETE = "level not met"
"""How the mark begins that concedes a level that is not met and lets the product through."""


_CHECK = check_of(Manifest)


def check_manifest(bundle: Bundle, review: Review) -> Manifest | None:
    """The manifest, with its hashes checked; None if there is none, or if it lacks the form of a manifest."""
    file = bundle.files.get(MANIFEST)
    if file is None:
        review.complain(MANIFEST, "missing: `meshmark submit` makes it")
        return None
    try:
        found = bundles.loads(file.data.decode("utf-8"))
    except (ValueError, RecursionError):
        review.complain(MANIFEST, "no manifest: `meshmark submit` makes it")
        return None
    if isinstance(found, dict) and found.get("schema") != 1:
        review.complain(MANIFEST, "schema is not 1: use the suite that made it")
    elif told := _CHECK(found):
        review.complain(MANIFEST, f"no manifest, because it {told}: submit again")
    else:
        manifest = cast(Manifest, found)
        for text in _strange_names(manifest):
            review.complain(MANIFEST, f"{text}: submit again")
        _check_files(bundle, manifest["files"], review)
        return manifest
    return None


def _strange_names(manifest: Manifest) -> Iterator[str]:
    """What `meshmark submit` does not write."""
    if not re.fullmatch(r"meshmark \d{1,4}(\.\w{1,20}){0,5}", manifest["made_by"]):
        yield f"`made_by` is {manifest['made_by'][:60]!a}, which submit does not write"
    strange = manifest.keys() - Manifest.__annotations__.keys()
    for entry in manifest["files"].values():
        strange |= entry.keys() - FileEntry.__annotations__.keys()
    if strange:
        yield f"{min(strange)[:40]!a} is not a name that submit writes"


def _check_files(bundle: Bundle, listed: Mapping[str, FileEntry], review: Review) -> None:
    """Check that the manifest has the hash of every file, and that every file is there."""
    for name in sorted(set(listed) - set(bundle.files)):
        review.complain(MANIFEST, f"names {name[:60]!a}, which is missing: submit again")
    for name, own in sorted(bundle.files.items()):
        if name in (MANIFEST, signatures.FILE):
            continue
        if name not in listed:
            review.complain(name, "not in the manifest: take it out, or submit again")
        elif (own.sha256, len(own.data)) != (listed[name]["sha256"], listed[name]["bytes"]):
            review.complain(
                name, "SHA-256 or size is not the manifest's, so it was changed after submit: submit again"
            )
        if name not in (PRODUCT, ENVIRONMENT) and not (RECORDS.fullmatch(name) or logs.NAME.fullmatch(name)):
            review.complain(name, "not a file of a submission: take it out")


def check_signature(bundle: Bundle, signers: Path | None, review: Review) -> None:
    """Check the signature of the manifest if there is one or one is required."""
    manifest, own = bundle.files.get(MANIFEST), bundle.files.get(signatures.FILE)
    if manifest is None or (own is None and signers is None):
        return
    told, wrong = signatures.look(manifest.data, own.data if own else None, signers)
    review.notes += [told] if told else []
    if wrong:
        review.complain(signatures.FILE, wrong)


def read_product(bundle: Bundle, review: Review) -> ProductData:
    """product.yaml. If it can't be used, one that says nothing."""
    nothing: ProductData = {"name": "", "by": "", "command": "", "notes": [], "marks": []}
    file = bundle.files.get(PRODUCT)
    if file is None:
        review.complain(PRODUCT, "missing: it says who and what, see docs/submitting.md")
        return nothing
    try:
        found = results.parse_product(file.data, PRODUCT)
    except ResultError as error:
        review.complain(PRODUCT, str(error).removeprefix(f"{PRODUCT}: "))
        return nothing
    if found["name"] != bundle.name:
        review.complain(PRODUCT, f"`name` is {found['name']!a} in directory {bundle.name!a}: make them one")
    for mark in found["marks"]:
        if not mark.startswith((DIRTY, INCOMPLETE)):  # every page would show praise as if it were a finding
            told = f"the mark {mark[:60]!a} admits no defect"
            review.complain(PRODUCT, f"{told}: a mark is what `submit --mark` writes, write a note instead")
    review.notes += [f"marked: {mark}" for mark in found["marks"]]
    review.notes += [f"note about {note['about']}: {note['text']}" for note in found["notes"]]
    return found


def check_runs(
    bundle: Bundle, files: Mapping[str, Sequence[Entry]], product: ProductData, review: Review
) -> dict[str, RunLine]:
    """The run lines by id, with their suite, release and devices checked."""
    runs: dict[str, RunLine] = {}
    commits = set[str]()
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
                review.complain(name, f"`virtual` is not what the backend says: {AS_WRITTEN}", number)
            if facts.get("topology"):
                review.complain(name, "a compile-only run: it belongs in results/compile-only", number)
            if len(facts["devices"]) != min(facts["num_devices"], 1024):
                review.complain(
                    name,
                    f"num_devices is not the number of devices: {AS_WRITTEN}",
                    number,
                )
            if why := against_table.version_problem(run):
                review.complain(name, why, number)
            marked = any(mark.startswith(DIRTY) for mark in product["marks"])
            wrong = environments.find_impossible_facts(facts, marked)
            for text in itertools.chain(_processes(run), wrong, origin.find_impossible_origin(run, marked)):
                review.complain(name, text, number)
            commit = suite["commit"]
            named = commit is not None and re.fullmatch(r"[0-9a-f]{40}", commit) is not None
            if not marked and (not named or suite["clean"] is not True):
                what = "has changes" if named else "names no commit"
                review.complain(
                    name, f"the suite {what}: run it from a clean checkout, or submit with --mark", number
                )
            if commit is not None and named:
                commits.add(commit)
    if not runs:
        review.complain("", "no run line in any file: submit whole files")
    said = comparable([run["facts"].get("host") or {} for run in runs.values()])
    hosts = {str(sorted(host.items())) for host in said}
    if len(hosts) > 1:
        review.complain(
            "", f"runs of {len(hosts)} machines ({' and '.join(sorted(hosts))[:200]}): submit one"
        )
    if differing := field_checks.differing(runs):
        review.complain("", f"the runs differ in {differing}: submit runs of one environment")
    review.notes += describe_seeds(runs)
    looked_up = [origin.look_up(commit) for commit in sorted(commits)[:5]]
    review.notes += [unknown for unknown in looked_up if isinstance(unknown, str)]
    return runs


def describe_seeds(runs: Mapping[str, RunLine]) -> list[str]:
    """A note about runs with another seed than 0. A rounded or random case can pass with one seed and fail with the
    next, so whoever tries many can choose."""
    other = sorted({seed for run in runs.values() if (seed := run.get("seed", 0))})
    if not other:
        return []
    named = ", ".join(map(str, other[:5])) + (" ..." if len(other) > 5 else "")
    return [f"the inputs are of seed {named}, and runs have seed 0 unless somebody chooses another: ask why"]


def _processes(run: RunLine) -> Iterator[str]:
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


def check_environment(bundle: Bundle, files: Mapping[str, Sequence[Entry]], review: Review) -> None:
    """Check that environment.json says what the run lines say."""
    file = bundle.files.get(ENVIRONMENT)
    try:
        if file is None or bundles.loads(file.data.decode("utf-8")) != environment_content(files):
            what = "missing" if file is None else "not what the run lines say"
            review.complain(ENVIRONMENT, f"{what}: submit again")
    except (ValueError, RecursionError):
        review.complain(ENVIRONMENT, "not strict JSON: submit again")


def check_logs(bundle: Bundle, files: Mapping[str, Sequence[Entry]], review: Review) -> None:
    """Check that each log belongs to one of the runs, by the counts that a run prints at its end."""
    counted = [one for lines in files.values() if (one := totals.count_cases(lines))["cases"]]
    for name in sorted(filter(logs.NAME.fullmatch, bundle.files)):
        if why := consistent.of_log(logs.read_closing_counts(bundle.files[name]), counted):
            review.complain(name, why)
