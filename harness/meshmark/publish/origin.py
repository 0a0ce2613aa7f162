# SPDX-License-Identifier: Apache-2.0
"""Checks where a run comes from: its commit is on the main branch, its package is the commit's, and its date is later.

The git history of the reviewer's checkout answers all of this. A commit that exists only in a pull request is not
accepted. An installed package has no history, so there this module checks nothing. Variables of git
(GIT_DIR and others) and replaced objects (`git replace`) do not count: they lead to another history.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from meshmark.core.installation import CHECKOUT, digest_package
from meshmark.publish.review import AS_WRITTEN
from meshmark.records import run_line
from meshmark.records.results import RECORDS
from meshmark.records.run_definition import RunLine

MAIN = ("refs/remotes/origin/main", "refs/remotes/upstream/main", "refs/heads/main")
"""The refs to look for the project's commits, in this order; the first one that exists is used. What is checked out is
none of them: it may be the branch of a submission."""

PACKAGE, EARLIER = "harness/meshmark", "harness"
"""The directory of the package, and its former directory from before the name meshmark."""

VERSION = ("__init__.py", r'^__version__ = "([^"]+)"')
TABLE = ("operations/versions.py", r"^TABLE_VERSION = (\d+)")
CLOSES = ("records/closing.py", r"^CLOSES = (.+)")
AROUND = ("devices/surroundings.py", r"^def (around)\(")
COUNTS = ("timing/measure.py", r"^COUNTS = (.+)")
COUNTS_OVER = ("ranks/rank_timing.py", r"^COUNTS = (.+)")
"""Files of the package and patterns: the package version, the table version, whether runs close their records, whether
they record what differs from original JAX, and whether the time of samples alone ends their sampling: in one process,
and over several."""

NO_MAIN = "no main branch is known here (git fetch origin main:refs/remotes/origin/main)"

LISTS = "levels/data/must_pass"
"""The directory of the package with a directory for each version of the must-pass lists."""

FIRST = 1793491200
"""The earliest possible start of a run, in Unix seconds: 2026-11-01, before the suite's first commit."""

SLACK = 86400
"""Seconds by which two clocks may differ."""


@dataclass(frozen=True)
class Commit:
    """What the history says about one commit."""

    time: int
    """The commit time in Unix seconds."""
    digest: str
    """The digest of its package (core.installation.digest_package); "" if the commit has no package of today's name."""
    version: str = ""
    """The version of its package; "" if it names none."""
    table: int = 0
    """The version of its case table; 0 if it names none."""
    closes: bool = False
    """Whether its runs end their records with a closing line (meshmark.records.closing)."""
    tells: bool = False
    """Whether its runs record what differs from original JAX (meshmark.devices.surroundings)."""
    counts: bool = False
    """Whether the time of samples alone ends the sampling of its runs in one process (meshmark.timing.measure)."""
    counts_over: bool = False
    """The same over several processes (meshmark.ranks.rank_timing)."""
    lists: int = 0
    """The newest version of the must-pass lists that its package has; 0 if that is not known."""


def find_impossible_origin(run: RunLine, marked: bool) -> Iterator[str]:
    """Yields what is impossible in the origin of a run. marked: the product concedes changes to the suite."""
    suite, started = run["facts"]["suite"], parse_started(run.get("started"))
    if started is None or not FIRST <= started < time.time() + SLACK:
        yield f"`started` is missing, or no time at which the suite could run: {AS_WRITTEN}"
    if not re.fullmatch(r"[0-9a-f]{40}", suite["commit"] or ""):
        return  # another rule reports a suite without a commit
    found = look_up(suite["commit"])
    if isinstance(found, str):
        return  # there is no history to check against
    if found is None:
        branch = f"the project's main branch{_named()}"
        yield f"suite commit {suite['commit']} is not one of {branch}: run a published commit"
        return
    if started is not None and started < found.time - SLACK:
        yield f"`started` is {run['started']}, and its commit was made later: {AS_WRITTEN}"
    if found.version and suite["version"] != found.version:
        yield f"suite version {suite['version'][:40]!a}, and its commit has {found.version}: {AS_WRITTEN}"
    if found.table and run_line.table_version(run) != found.table:
        yield (
            f"`table` is {run_line.table_version(run)}, and its commit has version {found.table} of the case table:"
            f" {AS_WRITTEN}"
        )
    if found.closes and not run.get("closes"):
        yield f"`closes` is missing, and the commit closes its records: {AS_WRITTEN}"
    if found.tells and run["facts"].get("surroundings") is None:
        yield f"`surroundings` is missing, and the commit tells of settings and functions: {AS_WRITTEN}"
    timing = None if "environment" in run else run.get("timing")
    one = run_line.processes(run["facts"]) == 1
    if (found.counts if one else found.counts_over) and timing is not None and "counts" not in timing:
        yield f"`timing.counts` is missing, and the commit ends sampling by the time of samples: {AS_WRITTEN}"
    if not found.digest and "digest" in suite:
        yield f"the package has digest {suite['digest']}, and the commit has none of its name: {AS_WRITTEN}"
    if found.digest and suite.get("digest") != found.digest and not marked:
        yield (
            f"the package that ran ({suite.get('digest', 'no digest')}) is not that of its commit ({found.digest}): run"
            " it from a clean checkout, or submit with --mark"
        )


def files_before(place: str) -> dict[str, bytes]:
    """The record files that the main branch has of a product, by name; {} without a history or such a product."""
    if CHECKOUT is None:
        return {}
    try:
        main = main_ref()
        if main is None:
            return {}
        listed = (_git("ls-tree", "--name-only", f"{main}:results/{place}") or b"").decode(errors="replace")
        found = {name: _git("show", f"{main}:results/{place}/{name}") for name in listed.splitlines()}
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {name: data for name, data in found.items() if data is not None and RECORDS.fullmatch(name)}


def main_ref() -> str | None:
    """The ref that counts as the main branch; None if the checkout has none. Raises what `_git` raises."""
    return next((ref for ref in MAIN if _git("rev-parse", "--verify", "--quiet", ref) is not None), None)


def _named() -> str:
    """The main branch in brackets, for a message; "" if there is none."""
    ref = main_ref() if CHECKOUT else None
    return f" ({ref.removeprefix('refs/').removeprefix('remotes/').removeprefix('heads/')})" if ref else ""


def describe_reviewer() -> list[str]:
    """What a reviewer should know about this suite: the main branch that it asks, and whether it is the main branch's
    own. Nothing for an installed package; a note about each product says that its commit could not be looked up."""
    if CHECKOUT is None:
        return []
    try:
        ref = main_ref()
        if ref is None:
            return [f"{NO_MAIN}: no commit of a suite can be looked up"]
        commit = (_git("rev-parse", "--short=12", ref) or b"?").decode().strip()
        told = [f"commits of the suite are looked up in {ref} ({commit})"]
        if (own := digest_package()) != (its := _digest(ref)):
            told.append(
                f"this suite (package {own}) is not that of the main branch ({its or 'none'}): another suite may accept"
                " what it refuses, so a reviewer validates with a checkout of the main branch"
            )
        return told
    except (OSError, subprocess.TimeoutExpired):
        return []


def parse_started(text: Any) -> float | None:
    """The Unix seconds of a run's `started`; None if the text is not a time."""
    try:
        return float(calendar_seconds(time.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return None


def calendar_seconds(moment: time.struct_time) -> int:
    """Unix seconds of a time in UTC."""
    import calendar

    return calendar.timegm(moment)


@cache
def look_up(commit: str) -> Commit | str | None:
    """A commit of the main branch; None if the branch does not have it; a text with the reason if there is no
    history."""
    return _ask(commit)


def _ask(commit: str) -> Commit | str | None:
    if CHECKOUT is None:
        return f"suite commit {commit} could not be looked up: validate in a checkout of the suite to look for it"
    try:
        main = main_ref()
        if main is None:
            return f"suite commit {commit} could not be looked up: {NO_MAIN}"
        if _git("merge-base", "--is-ancestor", commit, main) is None:
            shallow = _git("rev-parse", "--is-shallow-repository") == b"true\n"
            cut = f"suite commit {commit} could not be looked up: the checkout is shallow (git fetch --unshallow)"
            return cut if shallow else None
        made = _git("show", "--no-patch", "--format=%ct", commit)
        version, table = (
            _said(commit, *place) or _said(commit, *place, package=EARLIER) for place in (VERSION, TABLE)
        )
        closes, tells, counts, over = (
            bool(_said(commit, *place)) for place in (CLOSES, AROUND, COUNTS, COUNTS_OVER)
        )
        at, number = (
            int(made or b"0"),
            int(table or 1),
        )  # before the versions of the table there was the first one
        lists = _lists(commit)
        return Commit(at, _digest(commit), version, number, closes, tells, counts, over, lists)
    except (OSError, subprocess.TimeoutExpired):
        return f"suite commit {commit} could not be looked up: git is not at hand"


def _said(commit: str, name: str, pattern: str, package: str = PACKAGE) -> str:
    """What the pattern finds in a file of the package at a commit; "" if the file or the line is missing."""
    text = (_git("show", f"{commit}:{package}/{name}") or b"").decode(errors="replace")
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else ""


def _lists(commit: str) -> int:
    """The newest version of the must-pass lists at a commit; 0 if it has none."""
    listed = (_git("ls-tree", "--name-only", commit, f"{PACKAGE}/{LISTS}/") or b"").decode(errors="replace")
    return max(map(int, re.findall(r"/v(\d{1,4})$", listed, re.MULTILINE)), default=0)


def _digest(commit: str) -> str:
    """The digest of the package's files at a commit, as core.installation.digest_package computes it for a checkout."""
    listed = _git("ls-tree", "-r", "-z", commit, PACKAGE)
    entries = [line.split(b"\t", 1) for line in (listed or b"").split(b"\0") if line]
    files = sorted(
        (PurePosixPath(name.decode()).relative_to(PACKAGE), head.split()[2]) for head, name in entries
    )
    if not files:
        return ""
    found = hashlib.sha256()
    contents = _git("cat-file", "--batch", given=b"".join(blob + b"\n" for _, blob in files)) or b""
    for name, _ in files:
        head, _, contents = contents.partition(b"\n")
        size = int(head.split()[2])
        found.update(name.as_posix().encode() + b"\0" + contents[:size] + b"\0")
        contents = contents[size + 1 :]
    return found.hexdigest()[:16]


def _git(*arguments: str, given: bytes | None = None) -> bytes | None:
    """The output of git in this checkout; None if git fails."""
    command = ["git", "--no-replace-objects", "-C", str(CHECKOUT), *arguments]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(command, capture_output=True, input=given, timeout=60, env=plain)
    return done.stdout if done.returncode == 0 else None
