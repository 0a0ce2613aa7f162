# SPDX-License-Identifier: Apache-2.0
"""How the report scales: 100,000 records into tables and page, and the page in a browser.

    python -m tests.studies.scale [--records 100000] [--keep DIR] [--no-browser]

The records are invented, in the shape and mixture of real ones: conformance runs of the standard profile on eight
devices (five lines per case; one case in fifty does not pass, with a reason of its own), and a fifth of all lines are
timings, of 40 samples each. Making them is not timed. The study measures `meshmark report` as a process of its own
(seconds, largest resident memory), the size of the page, and in five fresh browsers the first view (the median) and ten
filters (the slowest). For a filter the text is in the box without its last key, and that key is pressed. It ends when
the browser has shown the next frame, by its own record of the key (Event Timing, in steps of 8 ms), and when the page's
thread has painted that frame. On a busy machine these times include waiting for a processor. So the processor time of
the page's thread is counted too, in the filter and in the drawing that follows below it. The exit code is 1 if a figure
exceeds its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

LIMITS = {
    "seconds": 10.0,
    "resident GiB": 1.0,
    "page MB": 10.0,
    "first view s": 1.0,
    "all drawn s": 5.0,
    "filter ms": 100.0,
    "filter CPU ms": 200.0,
}
TIMED_SHARE = 5
"""One line in so many is a timing."""
SAMPLES = 40


def make(directory: Path, number: int) -> int:
    """Write record files with `number` lines, at most, into the directory, and give the number of lines."""
    from meshmark.operations import cases
    from meshmark.operations.record_lines import case_head
    from meshmark.operations.selection import Selection
    from meshmark.records.shared import SCHEMA

    rng = random.Random(1)
    chosen = list(cases.cases(Selection(), 8))
    heads = [case_head(case, 0, "conformance") for case in chosen]
    written = 0
    for release in range(99):
        left = number - number // TIMED_SHARE - written
        if left <= 0:
            break
        lines = [_run(f"0.{90 - release}.0", release)]
        for head in heads:
            if len(lines) + 5 > left:
                break
            lines += _judged(head, rng)
        if len(lines) == 1:
            break
        written += _write(directory / f"conformance-{release}.jsonl", lines)
    timed = [
        h
        for h in heads
        if h["mode"] in ("auto", "explicit", "manual")
        and h["operation"] in ("psum", "all_gather", "matmul", "ppermute")
    ]
    for release in range(99):
        left = number - written
        if left <= 1:
            break
        lines = [_run(f"0.{90 - release}.0", 100 + release)]
        sizes = [f"{2**k}KiB" for k in range(0, 13)]
        for head in timed:
            for k, size in enumerate(sizes):
                for cadence in ("isolated", "stream"):
                    if len(lines) < min(left, 7000):
                        lines.append(_timing(head, size, 2**k * 1024, cadence, rng))
        written += _write(directory / f"timing-{release}.jsonl", lines)
    assert SCHEMA == 1
    return written


def _run(release: str, number: int) -> dict[str, object]:
    facts = {
        "versions": {"jax": release, "jaxlib": release},
        "backend": "cpu", "device_kind": "cpu", "num_devices": 8, "virtual": True, "flags": {}, "topology": "",
        "suite": {"version": "0", "commit": "0" * 40, "clean": True},
    }  # fmt: skip
    return {
        "schema": 1,
        "kind": "run",
        "run": f"{number:012x}",
        "facts": facts,
        "selection": {"profile": "standard"},
    }


def _judged(head: dict[str, object], rng: random.Random) -> list[dict[str, object]]:
    bad = rng.random() < 0.02
    collectives = [{"kind": "all-gather", "bytes": rng.randrange(1, 9) * 1024, "groups": "1x8", "trips": 1}]
    wire = float(collectives[0]["bytes"] * 7 // 8)  # type: ignore[operator]
    lines = [
        {
            "check": "communication",
            "collectives": collectives,
            "wire_bytes": wire,
            "excess_bytes": wire / 2 * (rng.random() < 0.1),
        },
        {"check": "execute"},
        {
            "check": "numbers",
            "error": rng.random() * 1e-6,
            "bound": 1e-5,
            "bits": f"{rng.getrandbits(64):016x}",
        },
        {"check": "replicas"},
        {"check": "sharding", "seconds": round(rng.random(), 6)},
    ]
    for line in lines:
        line |= {"verdict": "pass", "reason": ""}
    if bad:
        text = f"{rng.randrange(4096)} of 4096 elements differ: expected {rng.random()}, seen {rng.random()} "
        lines[2] |= {"verdict": rng.choice(["fail", "known", "error"]), "reason": (text * 4)[:300]}
    return [head | line for line in lines]


def _timing(
    head: dict[str, object], size: str, nbytes: int, cadence: str, rng: random.Random
) -> dict[str, object]:
    name = "/".join([*str(head["case"]).split("/")[:5], size])
    base = 1e-4 + nbytes / 1e10
    return head | {
        "kind": "timing", "case": name, "size_bytes": nbytes, "cadence": cadence, "process": 0, "verified": True,
        "verdict": "pass", "check": "execute", "reason": "", "devices": 8, "precision": "", "calls": 1,
        "cost": {"flops": 0, "nbytes": nbytes, "factor": 0.875}, "compile_s": 0.01, "lower_s": 0.01, "collectives": 1,
        "communication": [{"kind": "all-gather", "bytes": nbytes, "groups": "1x8", "trips": 1}], "wire_bytes": nbytes,
        "temp_bytes": 0, "samples_s": [base * (1 + 0.1 * rng.random()) for _ in range(SAMPLES)],
    }  # fmt: skip


def _write(path: Path, lines: list[dict[str, object]]) -> int:
    run = lines[0]["run"]
    path.write_text("".join(json.dumps(line | {"run": run}, separators=(",", ":")) + "\n" for line in lines))
    return len(lines)


def reported(records: Path, output: Path) -> tuple[float, float]:
    """(seconds, largest resident GiB) of `meshmark report` as a process of its own."""
    start = time.perf_counter()
    process = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "harness", "report", str(records), "--output", str(output)],
        os.environ,
    )
    _, status, used = os.wait4(process, 0)
    seconds = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status):
        raise SystemExit("report failed")
    print(
        f"{used.ru_utime + used.ru_stime:.1f} s of processor time in {seconds:.1f} s; load {os.getloadavg()[0]:.1f}"
    )
    return seconds, used.ru_maxrss / 2**20


WORDS = (
    *("psum", "elements differ", "matmul 2x4", "auto", "zzz", "bfloat16", "expected", "", "scatter", "x=1"),
)
BROWSERS = 5
OPENED = """() => { window.keys_ = []; window.painted_ = 0;
new PerformanceObserver((list) => { for (const e of list.getEntries()) keys_.push(e.duration); })
  .observe({ type: "event", durationThreshold: 16 });
document.getElementById("f-q").addEventListener("keydown", () => { const t = performance.now(); painted_ = 0;
  requestAnimationFrame(() => setTimeout(() => { painted_ = performance.now() - t; })); }, true); }"""
"""Note what each key takes: by the browser's record until its frame is shown, and until the page has painted it."""
TYPE = """(start) => { const q = document.getElementById("f-q"); keys_.length = 0; painted_ = 0;
q.focus({ preventScroll: true }); q.value = start; q.setSelectionRange(start.length, start.length); }"""
PAINTED = (
    "() => new Promise((r) => { const wait = () => painted_ ? r(painted_) : setTimeout(wait, 1); wait(); })"
)


@dataclass
class Browsed:
    """The times of fresh browsers: seconds to the first view and until all is drawn; milliseconds of each filter from
    the key to its frame, and of processor time of the page's thread in it and in the drawing that follows."""

    shown: list[float] = field(default_factory=list)
    drawn: list[float] = field(default_factory=list)
    filters: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    """Processor time of the page's thread until the first view."""


def browsed(page: Path) -> Browsed:
    """Open the page in BROWSERS fresh browsers, one after the other, and time it."""
    from tests.browser.chromium import browser

    found = Browsed()
    for _ in range(BROWSERS):
        with browser() as open_:
            tab = open_.new_page(viewport={"width": 1280, "height": 900})
            session = tab.context.new_cdp_session(tab)
            session.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
            session.send("Performance.enable")

            def spent(session: Any = session) -> float:
                metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
                return float(metrics["TaskDuration"])

            start = time.perf_counter()
            tab.goto(page.as_uri(), wait_until="commit")
            tab.wait_for_selector("html[data-shown=yes]", state="attached")
            tab.evaluate("() => new Promise((r) => requestAnimationFrame(() => setTimeout(r)))")
            found.shown.append(time.perf_counter() - start)
            found.first.append(spent())
            tab.wait_for_selector("html[data-ready=yes]", state="attached")
            found.drawn.append(time.perf_counter() - start)
            tab.evaluate("document.getElementById('matrix').scrollIntoView({ behavior: 'instant' })")
            tab.wait_for_timeout(500)
            tab.evaluate(OPENED)
            for word in WORDS:
                tab.evaluate(TYPE, word[:-1] if word else "x")
                before = spent()
                tab.keyboard.press(word[-1] if word else "Backspace")
                painted = tab.evaluate(PAINTED)
                tab.wait_for_timeout(600)
                found.filters.append(max([painted, *tab.evaluate("keys_")]))
                found.processor.append(1000 * (spent() - before))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--no-browser", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = (arguments.keep or Path(scratch)).absolute()
        records, output = directory / "records", directory / "report"
        records.mkdir(parents=True, exist_ok=True)
        number = make(records, arguments.records)
        seconds, resident = reported(records, output)
        page = output / "index.html"
        found = {"seconds": seconds, "resident GiB": resident, "page MB": page.stat().st_size / 1e6}
        if not arguments.no_browser:
            seen = browsed(page)
            found["first view s"], found["all drawn s"] = median(seen.shown), median(seen.drawn)
            found["filter ms"], found["filter CPU ms"] = max(seen.filters), max(seen.processor)
            print(
                f"{len(seen.filters)} filters in {BROWSERS} browsers: median {median(seen.filters):.0f} ms,"
                f" {median(seen.processor):.0f} ms of processor time; first view {max(seen.shown):.2f} s at most,"
                f" {median(seen.first):.2f} s of processor time; load {os.getloadavg()[0]:.1f}"
            )
    print(f"{number} records")
    for name, value in found.items():
        print(f"{name:14} {value:8.2f}  (limit {LIMITS[name]:g})")
    return int(any(value > LIMITS[name] for name, value in found.items()))


if __name__ == "__main__":
    sys.exit(main())
