# SPDX-License-Identifier: Apache-2.0
"""The false-green table: each way to lose a verdict on its way, and what came of it.

    python -m tests.trouble.false_green [--only TEXT,...] [--write docs/false-green.md]

Every way is a real run of the suite that makes trouble. It must not end with exit code 0, and it must name the case.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from meshmark.records import reading
from meshmark.records.reading import RecordError
from tests.trouble.runs import Run

DEADLINE = "6"
PLUGINS = ("saboteur", "forger", "intruder", "stranger")
ALONE, WORKER = ("-n", "0"), ("-n", "1")


@dataclass(frozen=True)
class Way:
    """One way to lose a verdict."""

    name: str
    """What happens, in words."""
    trouble: str
    """The operation that makes the trouble; `slow0` where the trouble is around it."""
    verdict: str
    """Of the struck case in the records; none: it has no record, and the run says so."""
    run: tuple[str, ...] = WORKER
    saboteur: str = ""
    code: int = 1
    """0 where an option of the command line asks for fewer cases, which the end of the run must say."""
    file_limit: int | None = None
    """Bytes beyond which no file can be written."""
    ci: bool = False
    """Whether `pytest tests` runs it; the others are in `tox run -e false-green`."""
    environment: dict[str, str] = field(default_factory=dict)
    record: Callable[[Path], object] | None = None
    """Puts something in the place of the records."""
    runner: tuple[str, ...] = ()
    """The options of Python that name a program which runs pytest."""
    says: str = ""
    """What the run must say where no case is to blame; else it names the case."""

    @property
    def workers(self) -> str:
        """Whether the run has workers, in a word."""
        alone = (
            self.run[:2] == ALONE
            or "no:xdist" in self.run
            or "PYTEST_XDIST_AUTO_NUM_WORKERS" in self.environment
        )
        return "none" if alone else "one"

    @property
    def case(self) -> str:
        """The struck case."""
        return f"{self.trouble}/plain/manual/2x4/float32/4KiB"


def told(trouble: str, name: str, verdict: str = "error", **more) -> Way:
    """The case itself says something, or leaves in some way."""
    return Way(name, trouble, verdict, **more)


def sabotaged(how: str, verdict: str = "none", run: tuple[str, ...] = WORKER, **more) -> Way:
    """Something around the case goes wrong."""
    return Way(how, "slow0", verdict, run, saboteur=how, environment={"MESHMARK_PAUSE": "0"}, **more)


def struck_wrong(how: str, verdict: str = "fail", **more) -> Way:
    """The case itself is wrong, and something around it would hide that."""
    return Way(how, "hides_its_shards", verdict, saboteur=how, **more)


def set_around(name: str, verdict: str = "fail", **environment: str) -> Way:
    """The case itself is wrong, and a variable of the environment would hide that."""
    return Way(name, "hides_its_shards", verdict, environment=environment)


def optional(name: str, *options: str, verdict: str = "fail", **more) -> Way:
    """The case itself is wrong, and an option of pytest would hide that."""
    return Way(name, "hides_its_shards", verdict, options, **more)


def placed(name: str, put: Callable[[Path], object], **more) -> Way:
    """The case itself is wrong, and its records have no place."""
    return Way(name, "hides_its_shards", "none", record=put, code=4, says="exists", **more)


COUNTS = "takes away what counts the verdicts"
EARLY = "the run ended before its session did"
STRUCK = "hides_its_shards/plain/manual/2x4/float32/4KiB"
TEST = "tests/trouble/test_trouble.py::test_trouble"
TOLD: dict[str, Any] = {
    "verdict": "none",
    "code": 0,
    "says": f"1 cases were deselected, by an option or a plugin, such as {STRUCK}",
}
UNBEGUN = "pytest ended before its session began"

WAYS = (
    told("surrogate", "an exception with a lone surrogate"),
    told("nul", "an exception with a NUL and with escapes for the terminal"),
    told("long_line", "an exception of 16 MB"),
    told("unspeakable", "an exception whose str() raises"),
    told("unspeakable_and_gone", "an exception whose str() raises SystemExit"),
    told("unspeakable_warning", "a warning and a log line with a lone surrogate, and an error"),
    told("system_exit", "SystemExit(0)", ci=True, run=ALONE),
    told("system_exit", "SystemExit(0) in a worker"),
    told("keyboard_interrupt", "KeyboardInterrupt of the case's own"),
    told("generator_exit", "GeneratorExit"),
    told("skips", "pytest.skip inside of the case"),
    told("expects_failure", "pytest.xfail inside of the case"),
    told("exits_pytest", "pytest.exit with code 0 inside of the case"),
    told("recursion", "a recursion without an end"),
    told("memory", "MemoryError"),
    told("much_memory", "an array larger than all memory"),
    told("leaves_well", "os._exit(0)", "crash"),
    told("leaves_well", "os._exit(0), without workers", "crash", run=ALONE, ci=True),
    told("becomes_another_program", "exec of a program that ends with 0", "crash"),
    told(
        "becomes_another_program", "exec of a program that ends with 0, without workers", "crash", run=ALONE
    ),
    told("killed", "SIGKILL, without workers", "crash", run=ALONE),
    told("segmentation_fault", "a segmentation fault, without workers", "crash", run=ALONE),
    told("forks_and_dies", "a forked child holds the pipes of its dead parent", "crash"),
    told("forks_and_dies", "a forked child outlives its dead parent, without workers", "crash", run=ALONE),
    told("closes_every_file", "every file descriptor is closed", "crash"),
    told("cancels_the_timer", "the timer of the watchdog is cancelled", "hang", ci=True),
    told("cancels_the_timer", "the timer of the watchdog is cancelled, without workers", "hang", run=ALONE),
    told("blocks_every_signal", "the timer is cancelled and every signal blocked", "hang"),
    told("stops", "the worker is stopped (SIGSTOP)", "hang"),
    told("stops", "the process is stopped (SIGSTOP), without workers", "hang", run=ALONE),
    told("hides_its_shards", "an output shows no shard", "fail"),
    sabotaged("internal error in the worker", code=3),
    sabotaged("internal error in the controller", code=3),
    sabotaged("a report that can't be written", code=3),
    sabotaged("a report without its records", ci=True),
    sabotaged("a report without its records", run=ALONE),
    sabotaged("a report that is never sent"),
    sabotaged("the worker dies after judging", "crash"),
    sabotaged("the worker dies after its report", "crash"),
    sabotaged("a conftest.py skips the case"),
    sabotaged("a fixture fails", "error"),
    sabotaged("seven of eight devices", "error"),
    sabotaged("a conftest.py takes the case away", ci=True),
    sabotaged("a conftest.py takes the case away", run=ALONE),
    sabotaged("a conftest.py makes NumPy find everything equal", "error"),
    sabotaged("a plugin changes a setting of JAX", "error"),
    sabotaged("a plugin sets a flag that Python does not show", "error"),
    sabotaged("a plugin replaces a function of JAX", "error"),
    sabotaged("a plugin replaces what compares numbers", "error", ci=True),
    sabotaged("a plugin runs the failed case again, and it passes", "error"),
    sabotaged("a plugin runs the failed case again, and it passes", "error", run=ALONE),
    Way(
        "a plugin calls the failure a pass",
        "hides_its_shards",
        "fail",
        saboteur="a plugin calls the failure a pass",
    ),
    Way(
        "a plugin makes the exit code 0 at the end of the session",
        "hides_its_shards",
        "fail",
        saboteur="the session says that all is well",
    ),
    Way(
        "an output shows no shard, and Python runs without assertions",
        "hides_its_shards",
        "fail",
        environment={"PYTHONOPTIMIZE": "2"},
    ),
    told("blinds_the_judge", "a case makes NumPy find everything equal, for those behind it", "pass"),
    sabotaged("the clock goes backwards", "error"),
    struck_wrong("pytest.fail does nothing"),
    struck_wrong("a hook at the session's end leaves with SystemExit(0)", ci=True),
    struck_wrong("a hook at the session's end ends pytest with code 0"),
    struck_wrong("the records are removed", "none"),
    struck_wrong("the records are replaced by others", "none"),
    sabotaged("a report is written over the records", says="does not hold what this run wrote"),
    struck_wrong("the controller leaves with code 0", "none", says=EARLY, ci=True),
    struck_wrong("the controller leaves with code 0 at its end"),
    struck_wrong("a handler at the exit of Python leaves with code 0"),
    struck_wrong("pytest.exit with code 0 as pytest is configured", "none", says=UNBEGUN),
    struck_wrong("pytest.exit with code 0 as the session starts", "none", says=UNBEGUN, ci=True),
    struck_wrong("pytest.exit with code 0 behind the collection"),
    struck_wrong("pytest.exit with code 0 at a report", "none"),
    struck_wrong("a plugin expects the failure"),
    struck_wrong("a plugin expects the failure, and does not run the case", "none"),
    struck_wrong("a plugin forgets what was chosen", "none", code=3),
    struck_wrong("a plugin calls no test", "none"),
    struck_wrong("a plugin runs no test", "none"),
    struck_wrong("a worker writes passes over failures", "pass", ci=True),
    struck_wrong("the controller takes passes for failures", "pass"),
    struck_wrong("the list of bad verdicts is emptied", "none", code=3, says="unknown verdict"),
    struck_wrong("the checks of a case find nothing", "error"),
    struck_wrong("digests are all the same"),
    set_around("JAX_DISABLE_JIT is set", "error", JAX_DISABLE_JIT="1"),
    set_around("PYTEST_XDIST_WORKER is set", PYTEST_XDIST_WORKER="gw0"),
    set_around("another language, place and time", LC_ALL="tr_TR.UTF-8", TZ="Pacific/Kiritimati"),
    sabotaged("a plugin replaces a method of arrays", "error"),
    sabotaged("a plugin wraps a function of NumPy", "error"),
    sabotaged("a plugin replaces a method of the judge", "error"),
    set_around("PYTHONINSPECT is set", PYTHONINSPECT="1"),
    Way(
        "a variable asks to collect only",
        "hides_its_shards",
        "none",
        code=4,
        environment={"PYTEST_ADDOPTS": "--collect-only"},
        says="asks to run nothing",
    ),
    set_around("warnings are errors", PYTHONWARNINGS="error"),
    struck_wrong("a plugin shows failures as passes"),
    struck_wrong("a plugin takes the controller away", "none"),
    struck_wrong("a plugin takes the count away"),
    struck_wrong("a plugin takes what prints away"),
    struck_wrong(
        "a plugin takes the suite's plugin away in the worker", "none", says="without the suite's plugin"
    ),
    sabotaged("a library rounds up", "error"),
    sabotaged("a library flushes subnormal numbers", "error"),
    sabotaged("no file can be opened any more", code=3, says="Too many open files"),
    Way("-p no:terminal", "hides_its_shards", "fail", (*WORKER, "-p", "no:terminal")),
    Way("--no-summary", "hides_its_shards", "fail", (*WORKER, "--no-summary")),
    Way("--tb no -r N", "hides_its_shards", "fail", (*WORKER, "--tb", "no", "-r", "N")),
    set_around("TMPDIR is a file, and HOME is missing", TMPDIR="/etc/passwd", HOME="/nonexistent"),
    Way("-x", "hides_its_shards", "fail", (*WORKER, "-x"), code=2),
    Way("--dist each", "hides_its_shards", "fail", ("-n", "2", "--dist", "each")),
    Way("--setup-only", "slow0", "none", (*WORKER, "--setup-only"), environment={"MESHMARK_PAUSE": "0"}),
    Way(
        "a full disk under the records",
        "slow0",
        "none",
        code=2,
        file_limit=5000,
        environment={"MESHMARK_PAUSE": "0"},
    ),
    *map(
        struck_wrong,
        (
            "a plugin gives the test another name",
            "a plugin gives the test the name of another",
            "a plugin calls the test in a thread",
            "a plugin swallows what the test raises",
            "a plugin counts no failure",
            "SIGCHLD is ignored",
            "every signal is blocked from the start",
            "the clock jumps a year",
        ),
    ),
    *(
        struck_wrong(how, "none", code=4, says="registered for forks", run=run)
        for how in ("a handler for forks ends the guard", "a handler ends whoever is about to fork")
        for run in (WORKER, ALONE)
    ),
    struck_wrong("a plugin gives the test the case of another", "none"),
    struck_wrong("a plugin calls another test function", "none"),
    struck_wrong("a plugin takes the fixtures away", "error"),
    struck_wrong("a plugin asks for nothing that fails", code=2),
    struck_wrong("the standard output of the controller is closed", says="can't write the output"),
    struck_wrong("the working directory goes away", environment={"TMPDIR": "/tmp"}),
    struck_wrong("a plugin asks to collect only, once the options were checked", "none"),
    struck_wrong("a plugin asks to collect only, once the options were checked", "none", run=ALONE),
    struck_wrong("a plugin asks for the plan of the set-up, once the options were checked", "none"),
    struck_wrong("SIGCHLD is ignored", run=ALONE),
    struck_wrong("every signal is blocked from the start", run=ALONE),
    set_around(
        "PYTEST_PLUGINS loads a plugin that calls the failure a pass",
        PYTEST_PLUGINS="tests.trouble.saboteur",
        MESHMARK_SABOTEUR="a plugin calls the failure a pass",
    ),
    set_around(
        "PYTHONDEVMODE, PYTHONMALLOC and PYTHONASYNCIODEBUG are set", PYTHONDEVMODE="1", PYTHONMALLOC="debug"
    ),
    set_around("output in ASCII, and strict", PYTHONIOENCODING="ascii:strict", LC_ALL="C", PYTHONUTF8="0"),
    optional(
        "PYTEST_XDIST_AUTO_NUM_WORKERS=0, and -n auto",
        "-n",
        "auto",
        environment={"PYTEST_XDIST_AUTO_NUM_WORKERS": "0"},
    ),
    *(optional(f"--dist {how}", "-n", "2", "--dist", how) for how in ("loadgroup", "loadscope", "worksteal")),
    optional("--dist no", *WORKER, "--dist", "no"),
    optional("--tx popen", "--tx", "popen", "--dist", "load"),
    optional("-p no:xdist", "-p", "no:xdist"),
    *(
        optional(f"-p no:{name}", *WORKER, "-p", f"no:{name}", verdict="none", code=4, says=COUNTS)
        for name in ("meshmark-controller", "meshmark-count")
    ),
    optional("--pdb without a terminal", *ALONE, "--pdb"),
    optional("--import-mode append", *WORKER, "--import-mode", "append"),
    optional("-o xfail_strict=false --runxfail", *WORKER, "-o", "xfail_strict=false", "--runxfail"),
    optional("--deselect: reported, not a failure", *WORKER, "--deselect", f"{TEST}[{STRUCK}]", **TOLD),
    optional("-k: reported, not a failure", *WORKER, "-k", "not manual", **TOLD),
    *(
        optional(
            "cProfile runs pytest, and ends with 0 itself", *run, runner=("-m", "cProfile", "-o", os.devnull)
        )
        for run in (WORKER, ALONE)
    ),
    placed("the records are a named pipe", os.mkfifo),
    placed("the records are a directory", Path.mkdir),
    placed("the records are a link to nowhere", lambda path: path.symlink_to("nowhere/records.jsonl")),
    placed("the records are a link to /dev/null", lambda path: path.symlink_to("/dev/null")),
    Way(
        "the process leaves with exit code 0 after a failure, without workers",
        "surrogate",
        "error",
        ALONE,
        saboteur="the process leaves with exit code 0",
    ),
)
"""Every way. Those of ranks, of launchers and of real full disks are in tests/ranks/faults.py."""


@dataclass
class Seen:
    """What came of it."""

    code: int
    output: str
    verdict: str
    seconds: float
    left: bool


def observed(way: Way, directory: Path) -> Seen:
    """Run it."""
    path = directory / "records.jsonl"
    environment = dict(way.environment)
    if "MESHMARK_PAUSE" not in environment:
        environment["MESHMARK_TROUBLE"] = way.trouble
    options = ["--meshes", "2x4", "--deadline", DEADLINE, "--record", path, *way.run]
    if "MESHMARK_PAUSE" in environment:
        options += ["--operations", way.trouble]
    if way.record:
        way.record(path)
    if way.saboteur:
        options += [word for name in PLUGINS for word in ("-p", f"tests.trouble.{name}")]
        environment["MESHMARK_SABOTEUR"] = way.saboteur
    with Run(*options, file_limit=way.file_limit, runner=way.runner, **environment) as run:
        run.finish()
        left = not run.gone(20)
    verdict = "none"
    with suppress(RecordError):
        if judged := reading.read_records(path).cases.get(way.case):
            verdict = judged.verdict
    return Seen(run.code, run.output, verdict, run.seconds, left)


def wrong(way: Way, seen: Seen) -> list[str]:
    """What is not as it must be; [] where all is."""
    found = []
    if seen.code != way.code or (not seen.code and not way.says):
        found.append(f"exit code {seen.code}, not {way.code}")
    if seen.verdict != way.verdict:
        found.append(f"verdict {seen.verdict}, not {way.verdict}")
    if (way.says or way.case) not in "".join(seen.output.split("\n")):
        found.append(f"nothing says {way.says!r}" if way.says else "the case is not named")
    if "\x1b[2J" in seen.output or "\0" in seen.output:
        found.append("an escape or a NUL reaches the terminal")
    if seen.left:
        found.append("a process is left")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the table; 1 where a way led to a false green."""
    parser = argparse.ArgumentParser(prog="python -m tests.trouble.false_green", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT,...", help="ways whose names hold one of these")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there")
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="so many ways at once (default 1)"
    )
    chosen = parser.parse_args(arguments)
    wanted = [text for text in chosen.only.split(",") if text]
    rows, bad = [], 0
    ways = [way for way in WAYS if not wanted or any(text in way.name for text in wanted)]
    with ThreadPoolExecutor(chosen.at_once) as pool:
        outcomes = list(pool.map(_outcome, ways))
    for way, seen in zip(ways, outcomes, strict=True):
        if seen is None:
            print(f"WRONG   {way.name}: it does not end", flush=True)
            bad += 1
            continue
        problems = wrong(way, seen)
        bad += bool(problems)
        print(
            f"{'WRONG  ' if problems else 'ok     '} {way.name}: exit code {seen.code}, {seen.verdict},"
            f" {seen.seconds:.1f} s",
            flush=True,
        )
        for one in problems:
            print(f"        {one}")
        if problems:
            print(seen.output, flush=True)
        rows.append((way.name, way.workers, seen.verdict, str(seen.code), f"{seen.seconds:.1f}"))
    if chosen.write and not bad:
        chosen.write.write_text(page(rows), encoding="utf-8")
    print(f"{len(rows)} ways, {bad} of them came to another end than they must")
    return 1 if bad else 0


def _outcome(way: Way) -> Seen | None:
    """What came of it; None where it does not end."""
    with tempfile.TemporaryDirectory(prefix="meshmark-ways-") as directory:
        try:
            return observed(way, Path(directory))
        except subprocess.TimeoutExpired:
            return None


def page(rows: Sequence[tuple[str, ...]]) -> str:
    """The page of the table."""
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"""# No false green

Made by `python -m tests.trouble.false_green --write docs/false-green.md` (jax {version("jax")}, Python
{sys.version.split()[0]}, {os.cpu_count()} cores, {len(rows)} ways).

A verdict can be lost on its way from the case to the exit code. Each row is a real run of three cases, one of which is
struck. The command checks that the exit code is not 0, that the run names the struck case, that its verdict in the
records is the one in the table, that no escape sequence of a case reaches the terminal, and that no process is left.
Two rows end with 0: an option of the command line asks for fewer cases, and the end of the run names what is missing.

- *Workers*: one worker of pytest-xdist, or none (`-n 0`), where a guard outside watches the process.
- *Verdict*: that of the struck case in the records. None: the case has no record, and the run says so by its name.
- *Exit code*: 1, a bad verdict or a missing one. 2, ended early, by a full disk or by `-x`. 3, an internal error.
  4, a run that refuses to begin.
- *Seconds*: of the whole run, with the start of pytest, of JAX and of new workers.

| way | workers | verdict | exit code | seconds |
|---|---|---|---:|---:|
{table}

## What stands behind this

- **What a case says is made safe** when it becomes a line of a verdict: printable, of bounded length, in JSON types.
  What a worker sends goes through one place, where text that UTF-8 lacks is escaped.
- **The controller counts.** At the end it compares the cases that pytest collected with those that have a verdict. A
  missing one is named, and the exit code is not 0, whatever else went wrong. An internal error is never exit code 0.
- **The exit code follows the verdicts**, and not what pytest or its plugins count: a failure that a plugin calls a
  pass, or that passes when it is run again, stays one. The worst of what a case got counts. Another plugin that leaves
  before the session's end was counted does not change that. One that calls os._exit doesn't either: the run is a forked
  child of a guard, which answers for the exit code (on Linux, where pytest was started as a program, by cProfile too).
- **What failed is named**, also where pytest names nothing: without a terminal, without a summary, or where a plugin
  shows the failure as a pass.
- **What was judged is what counts.** Each process keeps a digest of what it judged. What comes to the controller is
  held against it: a plugin on the way that changes a verdict is told.
- **Nothing goes away without a word.** What pytest collected, or the suite's directory holds, and what is neither run
  nor deselected by an option, has no verdict. The end of a run says how many were deselected, by an option or a plugin,
  and its head names the options of `PYTEST_ADDOPTS`.
- **The run says which files an option leaves out.** `--lf` and `--ignore` collect less, and pytest calls no hook for
  it. Their cases count as deselected. The head of a run names the options of a configuration file too.
- **Readers name what no verdict shows.** `diff` ends with 2 where no case is in both files, and says where they are of
  one run, of other devices or settings, or in the wrong order. `levels` and `diff` name a file whose run ended with
  exit code 1 and no bad verdict, and `levels` what is red beside its lists. `merge` refuses ranks that chose
  different cases.
- **The judge is judged first, and last.** In each process it must tell planted wrong answers from right ones before its
  first case and after its last.
- **What is written can be read**: a line that no reader would take is an error of its case.
- **The records hold what the run wrote**: at its end the file is read again and compared by digest, with what it held
  before.
- **A known issue fits one failure**: check, verdict, mode, symptom and, where a pattern is not enough, the relation of
  the numbers in it. A symptom that fits anything is refused. `tests/levels/test_specific.py` holds other failures of
  the same cases beside every entry.
- **Everything that a case raises is its own**: SystemExit, KeyboardInterrupt, pytest's own outcomes. Only a signal that
  came from outside ends the run.
- **Three watchdogs.** A timer in the worker keeps the stacks. The controller reads from a file until when each worker
  may be silent, and ends one that is late. Without workers, and on each rank, the guard ends the run when it is late,
  and writes its verdict.
- **What a case starts ends with its verdict**, children of children too. What a dead worker has left is ended by the
  controller.
- **Shards are counted**: one on each device of the mesh that the process owns. A device that is missing is an error.

## Options of pytest, and a full TMPDIR

Runs by hand (JAX 0.12.0.1, three cases, one of which fails); none ended with exit code 0.

| way | workers | exit code |
|---|---|---:|
| `PYTEST_ADDOPTS="--sw --sw-skip"` | none | 2 |
| `PYTEST_ADDOPTS="--ff --maxfail=1"` | one | 2 |
| `--runxfail --maxfail=1` | none | 1 |
| `--setup-plan` | none | 1 |
| `-p no:session` | none | 1 |
| `-p no:skipping -p no:unraisableexception -p no:faulthandler -p no:warnings` | none | 1 |
| `-p no:python`: nothing is collected | none | 5 |
| `-p no:runner`, `-p no:main`, `-p no:fixtures`: refused | none | 4 |
| `-m "not family"`: nothing is left | none | 5 |
| TMPDIR is a tmpfs of 16 KiB, and full | one | 1 |
| TMPDIR is a tmpfs of 16 KiB, and full | none | 1 |
"""


if __name__ == "__main__":
    raise SystemExit(main())
