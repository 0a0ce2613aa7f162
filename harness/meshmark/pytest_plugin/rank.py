"""One rank of `pytest conformance` over several processes: verdicts agreed, endings in order, files merged.

Every rank judges the same cases in the same order in its own pytest process. Of each program the ranks compare what it
compiled to before they run it, and of each case what they found, over the channel of ranks.channel. FILE.rankK holds
what rank K found; FILE.rankK.at names the case that it is in, so that a run whose ranks all died knows of what.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from meshmark.core import interrupts
from meshmark.core.privacy import redact
from meshmark.core.verdicts import BAD, Line, worst
from meshmark.devices import containment
from meshmark.judge.compile_only import Placed
from meshmark.levels import known_issues
from meshmark.levels.counters import spelled
from meshmark.operations import cases
from meshmark.operations.cases import Case
from meshmark.operations.record_lines import case_lines
from meshmark.pytest_plugin.stashed import DONE, EXPECTED, FACTS, REPORT, WRITER
from meshmark.ranks import merge
from meshmark.ranks.agreement import agreed
from meshmark.ranks.channel import ChannelError, Ended, Ending
from meshmark.ranks.group import Group
from meshmark.records.files import Judged, Writer

BACKUP = 15.0
"""Seconds past its deadline after which a rank that holds the GIL, and so can't tell the others, is ended."""

LAUNCHED = "MESHMARK_LAUNCH"
"""The directory through which `meshmark launch` and its ranks know of each other."""

ENDED = "MESHMARK_ENDED"
"""How the ranks of the group before this one ended, as JSON: set where `meshmark launch` goes on after it."""


class Marker:
    """A small file that names the case which a rank is in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def read(self) -> dict[str, Any]:
        """The case, and how often it was begun; {} outside of one."""
        try:
            found = json.loads(os.pread(self._file, 1 << 16, 0) or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def set(self, case: str, times: int = 1) -> None:
        """Name a case."""
        data = json.dumps({"case": case, "times": times}).encode()
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, data, 0)

    def clear(self) -> None:
        """In no case."""
        os.ftruncate(self._file, 0)

    def remove(self) -> None:
        """Nothing is left to go on with."""
        with suppress(OSError):
            os.close(self._file)
            self.path.unlink()


class Together:
    """What a rank does beside judging cases; a plugin of pytest."""

    def __init__(self) -> None:
        self.group: Group
        self.config: pytest.Config
        self.marker: Marker | None = None
        self.path: Path | None = None
        """FILE, without its rank."""
        self.deadline = containment.DEADLINE
        self.ending: Ending | None = None
        self.notes: list[str] = []
        self._case: Placed | None = None
        self._suspect: dict[str, int] = {}
        """Cases that an earlier group may have died of, and how often they were begun."""
        self._writing = threading.Lock()
        self._stderr = os.dup(2)

    def described(self) -> list[str]:
        """What the header says of the group."""
        found = self.config.stash[FACTS].group
        over = f", collectives over {found['transport']}" if "transport" in found else ""
        how = "detected by JAX" if found["detected"] else "given"
        return [f"{self.group.size} processes of {found['devices']} devices, coordinates {how}{over}"]

    # Beginning ----------------------------------------------------------------------------------------------

    def own(self, path: Path) -> Path:
        """FILE.rankK."""
        return path.with_name(f"{path.name}.rank{self.group.rank}")

    def open_records(self, path: Path, resume: bool, run: dict[str, Any]) -> None:
        """Open FILE.rankK, and take over what any rank has finished before; RecordError as records.files has it."""
        self.path = path
        own, stash = self.own(path), self.config.stash
        run = run | {"rank": self.group.rank}
        exist = self.group.channel.exchange("records", own.exists())[1]
        before: Mapping[str, Judged] = {}
        if resume and own.exists():
            stash[WRITER], before = Writer.resume(own, run)
        elif resume and not any(exist):
            merge.nothing_to_go_on(path)
        else:
            if not resume:
                merge.must_not_exist(path)
            stash[WRITER] = Writer.create(own, run)
        self.marker = Marker(own.with_name(f"{own.name}.at"))
        if directory := os.environ.get(LAUNCHED):
            told = {"at": str(self.marker.path), "record": str(own)}
            (Path(directory) / f"rank{self.group.rank}.json").write_text(json.dumps(told))
        if resume:
            self._take_over(before)
        else:
            self.marker.clear()

    def _take_over(self, before: Mapping[str, Judged]) -> None:
        """What any rank has finished is finished, with the worst verdict; a case that all died of is judged now."""
        assert self.marker
        own = {name: [one.verdict, one.reason if one.verdict in BAD else ""] for name, one in before.items()}
        _, everywhere = self.group.channel.exchange("finished", own)
        stash = self.config.stash
        number, processes = stash[FACTS].num_devices, self.group.size
        done = dict(before)
        for rank, finished in enumerate(everywhere):
            for name, (verdict, reason) in finished.items():
                if name not in done or worst((done[name].verdict, verdict)) != done[name].verdict:
                    line = Line("execute", verdict, f"rank {rank}: {reason}" if reason else "")
                    done[name] = _judged(cases.find(name, number, processes), line)
        _, markers = self.group.channel.exchange("markers", self.marker.read())
        ended = os.environ.get(ENDED, "")
        for found in markers:
            name = found.get("case", "")
            if not name or name in done:
                continue
            if not ended and found.get("times", 1) < 2:  # it may have been killed from outside: once more
                self._suspect[name] = found.get("times", 1)
                continue
            how = _endings(ended) if ended else "in two runs, one after the other"
            line = Line("execute", "crash", f"the ranks ended in this case: {how}")
            case = cases.find(name, number, processes)
            self._known(case, [line])
            stash[WRITER].write(case_lines(case, [line], self.config.getoption("seed"), 0.0))
            done[name] = _judged(case, line)
        self.marker.clear()
        stash[DONE] = done

    def listen_to_signals(self) -> None:
        """Tell the others at once when this rank is told to end, also while the main thread waits in a collective."""
        interrupts.listen(lambda number: self.group.channel.interrupt(number.name))
        abort_late()

    # Judging ------------------------------------------------------------------------------------------------

    def agree_deadline(self, seconds: float) -> None:
        """The deadline of all ranks is that of the slowest."""
        self.deadline = max(self.group.channel.exchange("deadline", seconds)[1])

    def meeting(self, case: Case, collectives: Sequence[Mapping[str, Any]]) -> str:
        """Why this program must not be run: what another rank has compiled it to, or ""."""
        mine = spelled(collectives)
        whats, values = self.group.channel.exchange(f"compiled {case.id}", mine)
        told = []
        for rank, (what, value) in enumerate(zip(whats, values, strict=True)):
            if what.startswith("verdict "):
                bad = next((v for v in value if v["verdict"] != "pass"), {"verdict": "?", "reason": ""})
                told.append(f"rank {rank} did not come to run it ({bad['verdict']}: {bad['reason']})")
            elif value != mine:
                told.append(f"rank {rank} compiled other collectives ({value} instead of {mine})")
        return "not run: " + "; ".join(told) if told else ""

    def judge(self, placed: Placed, run: Callable[[Placed], list[Line]]) -> tuple[list[Line], list[Line]]:
        """(what this rank found, what all found) of one case; ends the session where that can't come about."""
        if self.marker:
            self.marker.set(placed.id, self._suspect.get(placed.id, 0) + 1)
        self._case = placed
        faulthandler.dump_traceback_later(self.deadline + BACKUP, exit=True, file=self._stderr)
        try:
            with self.group.channel.during(placed.id, self.deadline):
                lines = run(placed)
                found = [
                    {"check": x.check, "verdict": x.verdict, "reason": redact(x.reason)} | x.data
                    for x in lines
                ]
                wanted = f"verdict {placed.id}"
                while True:
                    whats, values = self.group.channel.exchange(wanted, found)
                    if all(what == wanted for what in whats):
                        break
                    if not all(what in (wanted, f"compiled {placed.id}") for what in whats):
                        raise ChannelError(f"the ranks are at different cases: {', '.join(whats)}")
        except Ended as error:
            self._end(error.ending)
            pytest.exit(self.told(error.ending), returncode=self.code(error.ending))
        except ChannelError as error:
            pytest.exit(str(error), returncode=pytest.ExitCode.INTERNAL_ERROR)
        finally:
            faulthandler.cancel_dump_traceback_later()
        self._case = None
        if self.marker:
            self.marker.clear()
        both = agreed(dict(enumerate(values)))
        return lines, [Line(x.pop("check"), x.pop("verdict"), x.pop("reason"), x) for x in both]

    # Ending -------------------------------------------------------------------------------------------------

    def code(self, ending: Ending) -> int:
        """The exit code of a run that ended so."""
        lost = bool(ending.verdict) or "ended_rank" in ending.data
        return int(pytest.ExitCode.TESTS_FAILED if lost else pytest.ExitCode.INTERRUPTED)

    def told(self, ending: Ending) -> str:
        """What the user reads."""
        where = f"{self._case.id}: {ending.verdict}: " if self._case and ending.verdict else ""
        again = f"; go on with --resume {self.path}" if self.path and LAUNCHED not in os.environ else ""
        return f"{where}{'; '.join([ending.reason, *_said(ending)])}{again}"

    def give_up(self, ending: Ending) -> None:
        """In the channel's thread: the main thread does not come back; write what is known, and leave."""
        try:
            self._end(ending)
            group = getattr(self, "group", None)  # there is none yet while the ranks come together
            who = f"rank {group.rank}: " if group else ""
            os.write(self._stderr, f"\nmeshmark: {who}{self.told(ending)}\n".encode())
        finally:
            os._exit(self.code(ending) if hasattr(self, "group") else int(pytest.ExitCode.USAGE_ERROR))

    def _end(self, ending: Ending) -> None:
        """Write the verdict of the case that this run ended in, once."""
        with self._writing:
            if self.ending is not None:
                return
            self.ending = ending
            if ending.verdict and self._case:
                self._blame(self._case, ending)
            if self.marker:
                self.marker.clear()
            directory = os.environ.get(LAUNCHED)
            begun = hasattr(self, "group")
            if directory and begun and (ending.verdict or "ended_rank" in ending.data):
                with suppress(OSError):
                    (Path(directory) / "again").touch()

    def _blame(self, placed: Placed, ending: Ending) -> None:
        data = {k: v for k, v in ending.data.items() if k != "said"}
        line = Line("execute", ending.verdict, "; ".join([ending.reason, *_said(ending)]), data)
        self._known(placed.case, [line])
        records = case_lines(placed.case, [line], self.config.getoption("seed"), 0.0)
        if report := self.config.stash.get(REPORT, None):
            report.take(records)

    def _known(self, case: Case, lines: list[Line]) -> None:
        facts = self.config.stash[FACTS]
        known_issues.apply(self.config.stash[EXPECTED].issues(facts.to_json()), case.id, lines)

    def interrupted(self) -> None:
        """This rank's session ends before its time: the others can't go on without it."""
        if self.ending is None:
            self.group.channel.interrupt("its session was interrupted")
            self._end(Ending("", "interrupted"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """All ranks have come to the end: merge their files where they can be seen from rank 0."""
        if session.exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR):
            self.interrupted()
        elif self.ending is None:
            try:
                self.group.channel.exchange("end", None, self.deadline + BACKUP)
            except (Ended, ChannelError) as error:
                self.ending = getattr(error, "ending", Ending("", str(error)))
                self.notes.append(str(error))
        if writer := self.config.stash.get(WRITER, None):
            writer.close()
        if self.ending is None and self.path:
            self._merge(self.path)
        self._status = int(session.exitstatus)

    def _merge(self, path: Path) -> None:
        if self.marker:
            self.marker.remove()
        self.group.channel.exchange("written", None)
        if self.group.rank == 0:
            missing = [p for p in merge.rank_files(path, self.group.size) if not p.exists()]
            if missing:
                self.notes.append(
                    f"{missing[0]} is not here: bring the files together and run `meshmark merge {path}`"
                )
            else:
                merge.write(path, merge.merged(path, self.group.size))

    def pytest_unconfigure(self) -> None:
        """Leave the group: in order, or at once where a rank is gone, for whom JAX would wait for minutes."""
        signal.set_wakeup_fd(-1)
        if self.ending is None:
            self.group.leave()
            return
        sys.stdout.flush()
        sys.stderr.flush()
        if self.group.rank:  # whose terminal reporter is silent
            os.write(self._stderr, f"meshmark: rank {self.group.rank}: {self.told(self.ending)}\n".encode())
        os._exit(self._status or self.code(self.ending))


def _said(ending: Ending) -> list[str]:
    """What ranks had already found of the case that others did not come out of."""
    return [
        f"rank {rank} had ended it with {line['verdict']}: {line['reason']}"
        for rank, lines in ending.data.get("said", {}).items()
        for line in lines
        if isinstance(line, dict) and line["verdict"] != "pass"
    ]


def abort_late() -> None:
    """Let abort() wait for six seconds, stacks first.

    JAX aborts a process whose coordinator, rank 0, is gone. The channel hears of the same loss in that moment, and
    needs the time to write down the verdict and to leave. sleep(3) as the handler of SIGABRT gets the signal's number
    as its seconds, and may be called from a signal handler (POSIX.1-2017, 2.4.3); faulthandler calls the handler
    that was there before it once it has shown the stacks.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    enabled = faulthandler.is_enabled()
    faulthandler.disable()
    libc.signal(signal.SIGABRT, ctypes.cast(libc.sleep, ctypes.c_void_p))
    if enabled:
        faulthandler.enable(os.dup(2))


def _judged(case: Case, line: Line) -> Judged:
    return Judged(case.id, case_lines(case, [line], 0, 0.0))


def _endings(text: str) -> str:
    try:
        return ", ".join(f"rank {rank} by {how}" for rank, how in json.loads(text).items())
    except (ValueError, AttributeError):
        return "killed"
