# SPDX-License-Identifier: Apache-2.0
"""`meshmark bisect`: the releases of JAX that show a finding of the hunt."""

from __future__ import annotations

import argparse
import json

from meshmark.commands.arguments import path, release
from meshmark.core.terminal import note, show, width
from meshmark.core.text import text_table
from meshmark.hunt import bisect, findings, reports


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument(
        "findings", nargs="+", metavar="FINDING", help="names in the store, or directories of findings"
    )
    add.add_argument(
        "--known",
        type=path,
        default=findings.DEFAULT,
        metavar="DIR",
        help="the store (default: the findings that Meshmark has)",
    )
    add.add_argument(
        "--oldest",
        type=release,
        default=bisect.OLDEST,
        metavar="RELEASE",
        help=f"from here on (default {bisect.OLDEST})",
    )
    add.add_argument("--minors", action="store_true", help="only the last release of every minor version")
    add.add_argument(
        "--environments",
        type=path,
        metavar="DIR",
        help="keep the environments here, some 500 MB each, and use them again",
    )
    add.add_argument("--write", action="store_true", help="write the outcome into the findings")


def run(arguments: argparse.Namespace) -> int:
    """Print a row for each release; returns 0 if that was possible."""
    if arguments.write:
        findings.require_directory(arguments.known)
    chosen = [findings.find_finding(name, arguments.known) for name in arguments.findings]
    named = zip(chosen, arguments.findings, strict=True)
    scripts = {f.name: reports.read_or_write_script(f, name, arguments.known) for f, name in named}
    every = bisect.list_releases(arguments.oldest)
    environments = bisect.Environments(note, arguments.environments)
    try:
        found = bisect.bisect(scripts, every, environments, not arguments.minors)
    finally:
        environments.close()
    if all(outcome == bisect.MISSING for outcomes in found.values() for outcome in outcomes.values()):
        raise bisect.BisectError(
            f"none of the releases from {arguments.oldest} on can be installed here: see the lines above"
        )
    tried = [r.version for r in every if any(r.version in outcomes for outcomes in found.values())]
    names = list(scripts)
    show(text_table(["JAX", *names], [[v, *(found[n].get(v, "") for n in names)] for v in tried], width()))
    for finding in chosen:
        if arguments.write:
            finding.releases = found[finding.name]
            reports.refresh(finding, arguments.known)
    print(json.dumps(found))
    return 0
