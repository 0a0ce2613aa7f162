# SPDX-License-Identifier: Apache-2.0
"""What the kept findings show elsewhere: `python -m tests.studies.findings_elsewhere WHERE ...`.

WHERE is a topology such as v5e:2x4, or a number of processes such as 2. Each finding is replayed in its own processes,
so one that ends its process harms no other. The outcomes are written into the findings, with their reports.
"""

import argparse
import json
import subprocess
import sys
from importlib import metadata

from meshmark.devices import topologies
from meshmark.hunt import findings, reports

SECONDS = 180


def replayed(finding, where):
    """The outcome of a replay in its own processes: a word of `meshmark.hunt.reports`, or crash or hang."""
    meshmark = [sys.executable, "-m", "meshmark"]
    words = [*meshmark, "hunt", "--replay", finding.name]
    if where.isdigit():
        each = finding.data().mesh_size // int(where)
        words = [*meshmark, "launch", "-n", where, "--devices-per-process", str(each), "--", *words]
    else:
        words += ["--topology", where]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "hang"
    for line in done.stdout.splitlines():
        if (start := line.find('{"finding"')) >= 0:
            return json.loads(line[start:])["outcome"]
    print(done.stdout[-400:], done.stderr[-400:], file=sys.stderr)
    return "crash" if where.isdigit() else "unknown"


def fits(finding, where):
    """Whether the place can show the finding: compiled programs have two modes, and processes share the devices."""
    if finding.mode not in ("auto", "explicit"):
        return False
    size = finding.data().mesh_size
    return size % int(where) == 0 if where.isdigit() else True


def described(where):
    """The place with what compiled for it."""
    jax = metadata.version("jax")
    if where.isdigit():
        return f"{where} processes on CPU, JAX {jax}"
    versions = topologies.compiler(topologies.parse_topology(where))
    name = next(iter(versions))
    return f"{where}, interpreted, JAX {jax}" + (f", {name} {versions[name]}" if name == "libtpu" else "")


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.studies.findings_elsewhere", description=__doc__)
    parser.add_argument("where", nargs="+")
    parser.add_argument("--only", nargs="*", help="these findings")
    chosen = parser.parse_args()
    for where in chosen.where:
        place = described(where)
        for finding in findings.read_findings():
            if fits(finding, where) and (not chosen.only or finding.name in chosen.only):
                outcome = replayed(finding, where)
                print(f"{place}: {finding.name}: {outcome}", flush=True)
                stays = findings.read_finding(findings.DEFAULT / finding.name)
                stays.elsewhere[place] = outcome
                reports.refresh(stays, findings.DEFAULT)


if __name__ == "__main__":
    main()
