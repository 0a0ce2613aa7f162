# SPDX-License-Identifier: Apache-2.0
"""What agreeing costs: seconds per case of everything that several ranks add to one, without the case itself.

    python -m tests.studies.agreeing [--processes 2,4] [--cases 2000]

It starts real ranks on loopback. For each case it does what pytest_plugin.rank does around a case: the marker file, and
with ranks.consensus the exchange of compiled collectives, the exchange of check lines (as large as real ones), and the
merge of all ranks' lines. It prints the median and the quantiles over all cases of the slowest rank. The exit code is 1
above LIMIT.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter

LIMIT = 0.005
"""Seconds a case, in the median."""

COLLECTIVES = [{"kind": "all-reduce", "bytes": 4096, "groups": "1x8", "trips": 1}] * 3
COUNTERS = {"wire_bytes": 7168, "flops": 1024.0, "temp_bytes": 32768, "bytes_accessed": 65536.0}
NUMBERS = {"error": 0.0, "bound": 0.0, "bits": "0123456789abcdef"}
DATA = {"communication": {"collectives": COLLECTIVES} | COUNTERS, "execute": {}, "numbers": NUMBERS}


def rank(cases: int) -> None:
    """Run one rank. Rank 0 prints the seconds per case of the slowest rank as JSON."""
    import os
    from types import SimpleNamespace

    from meshmark.core.verdicts import Line
    from meshmark.ranks import group as ranks
    from meshmark.ranks.channel import Channel
    from meshmark.ranks.consensus import Consensus
    from meshmark.ranks.handover import Marker

    found = ranks.coordinates(os.environ)
    assert found is not None
    taken = []
    with tempfile.TemporaryDirectory() as directory:
        channel = Channel(found.control, found.process_id, found.num_processes, 60.0)
        marker = Marker(Path(directory) / "at")
        consensus = Consensus(channel, 2)
        lines = [Line(check, data=data) for check, data in (DATA | {"replicas": {}, "sharding": {}}).items()]
        for number in range(cases):
            start = perf_counter()
            name = f"psum/axes=x+y/manual/2x4/float32/{number}KiB"
            marker.set(name)
            with consensus.on(name, 20.0):
                assert not consensus.compare_programs(SimpleNamespace(id=name), COLLECTIVES)
                assert len(consensus.settle(lines)) == len(lines)
            marker.clear()
            taken.append(perf_counter() - start)
        every = channel.exchange("taken", taken)[1]
        marker.remove()
        channel.close()
    if found.process_id == 0:
        print("slowest " + json.dumps([max(each) for each in zip(*every, strict=True)]))


def main(arguments: list[str] | None = None) -> int:
    """Measure with each number of processes, and print one line per number; 1 if a median is above LIMIT."""
    import io

    from meshmark.ranks.launch import Launcher

    add = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add.add_argument("--processes", default="2,4")
    add.add_argument("--cases", type=int, default=2000)
    options = add.parse_args(arguments)
    worst = 0.0
    for size in map(int, options.processes.split(",")):
        output = io.BytesIO()
        code = Launcher(
            [sys.executable, "-m", "tests.studies.agreeing", f"--rank={options.cases}"], size, 1
        ).run(output)
        told = output.getvalue().decode()
        if code:
            print(told)
            return code
        taken = sorted(json.loads(told.split("slowest ")[1].splitlines()[0]))
        middle, low, high = (taken[int(q * (len(taken) - 1))] for q in (0.5, 0.05, 0.95))
        worst = max(worst, middle)
        print(
            f"{size} processes: {1e3 * middle:.2f} ms per case in the median of {len(taken)}"
            f" (5 % {1e3 * low:.2f}, 95 % {1e3 * high:.2f}, slowest {1e3 * taken[-1]:.2f})"
        )
    return int(worst > LIMIT)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("--rank="):
        rank(int(sys.argv[1].partition("=")[2]))
    else:
        sys.exit(main())
