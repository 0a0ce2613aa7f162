# SPDX-License-Identifier: Apache-2.0
"""Compiles the programs of the weather in an environment, in one child process per place, and records them.

Each line is written as soon as its program is compiled, to a plain file. The file is packed when all programs are
done. So an interrupted run keeps what it has, and the same command goes on with it.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark.core.errors import BadInput
from meshmark.core.progress import Steps
from meshmark.devices import environment, topologies
from meshmark.operations.versions import TABLE_VERSION
from meshmark.records import run_line
from meshmark.records.reading import Records, read_records
from meshmark.records.writing import Writer
from meshmark.timing.environments import Environment
from meshmark.weather.programs import CPU, MARK

DEADLINE = 300
"""Seconds after which the compilation of one program counts as a hang."""

MOST_DEATHS = 10
"""The number of times that the child of one place may die. After one more death the environment is given up."""

PACKED = ".gz"
"""The end of the name of a file whose programs are all done."""

Tell = Callable[[str], None]
"""Takes a line for the user."""


class WeatherError(BadInput, RuntimeError):
    """The programs of an environment can't be compiled, or a history can't be made; the message is one line."""


def record_programs(where: Environment, places: Sequence[str], directory: Path, tell: Tell) -> Path:
    """Compile all programs in one environment and record them in the directory; the path of the packed file.

    The file has one run line per place, each followed by one line per program. A plain file that an interrupted run of
    the same environment and places left in the directory is continued, and a packed one is complete: nothing is
    compiled. WeatherError or RecordError if it fails, or if the file is of another run.
    """
    found = [_facts_of(where, place) for place in places]
    heads = [
        {
            "facts": one["facts"],
            "table": TABLE_VERSION,
            "selection": {"topology": list(places)},
            "started": now(),
        }
        for one in found
    ]
    path = directory / name_of([head["facts"] for head in heads])
    packed = path.with_name(path.name + PACKED)
    if packed.exists():
        _same(packed, read_records(packed), heads)
        tell(f"{where.name}: {packed} is complete")
        return packed
    _make(directory)
    writer, done = _opened(path, heads, places)
    number = sum(map(len, done.values()))
    if number:
        tell(f"{where.name}: goes on with {path}, which has {number} programs")
    of_place = writer
    try:
        for place, head, total in zip(places, heads, [one["programs"] for one in found], strict=True):
            if len(done[place]) == total:
                continue
            if place != places[0]:
                of_place = writer.beside(head)
            steps = Steps(f"{where.name}: {place}", total, len(done[place]))
            for line in _of_place(where, place, done[place]):
                of_place.write([line])
                steps.step(line["case"])
    except KeyboardInterrupt:
        tell(f"what is compiled is in {path}: the same command goes on with it")
        raise
    finally:
        writer.close()
    _pack(path, packed)
    return packed


def _opened(
    path: Path, heads: Sequence[Mapping[str, Any]], places: Sequence[str]
) -> tuple[Writer, dict[str, list[str]]]:
    """(the writer of the plain file, the case ids that it has, by place). WeatherError or RecordError if the file is of
    another run."""
    done: dict[str, list[str]] = {place: [] for place in places}
    if not path.exists():
        return Writer.create(path, heads[0]), done
    _same(path, read_records(path), heads)
    writer, before = Writer.going_on(path, heads[0])
    if not before.schedules:
        writer.close()
        path.unlink()
        return Writer.create(path, heads[0]), done
    for line in before.schedules:
        done[line["place"]].append(line["case"].partition("@")[0])
    return writer, done


def _same(path: Path, before: Records, heads: Sequence[Mapping[str, Any]]) -> None:
    """Raise WeatherError if a file is not of these runs: one of another environment, other places or another table."""
    own = {head["facts"].get("topology") or CPU: head for head in heads}
    for run in before.runs:
        here = own.get(run["facts"].get("topology") or CPU, heads[0])
        for of in (run_line.settings, run_line.environment_fields):
            if change := run_line.spell_difference(of(run), of(here)):
                raise WeatherError(
                    f"{path} differs from this run in {change}: remove it, or name another --record"
                )


def _facts_of(where: Environment, place: str) -> dict[str, Any]:
    """The facts of a place in an environment, and the number of its programs."""
    told: dict[str, Any] = {}
    for message in _messages(where, {"place": place, "done": [], "deadline": DEADLINE, "compile": False}):
        told |= message
    if "facts" not in told:
        raise _died(where, place, told["code"])
    return told


def _of_place(where: Environment, place: str, finished: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The line of each program that is not finished. If the child dies, its current program fails and a new child
    continues."""
    done = list(finished)
    for deaths in range(MOST_DEATHS + 1):
        at: Mapping[str, Any] | None = None
        code = 0
        for message in _messages(
            where, {"place": place, "done": done, "deadline": DEADLINE, "compile": True}
        ):
            if "code" in message:
                code = message["code"]
            elif "at" in message:
                at = message
                done.append(message["id"])
            elif "line" in message:
                at = None
                yield message["line"]
        if code == 0:
            return
        if at is None:
            raise _died(where, place, code)
        verdict = "crash" if code < 0 else "hang"
        reason = f"the compiler ended the process (signal {-code})" if code < 0 else f"past {DEADLINE} s"
        yield {**at["at"], "verdict": verdict, "reason": reason}
        if deaths == MOST_DEATHS:
            raise WeatherError(f"{where.name}: the compiler for {place} died {MOST_DEATHS + 1} times")


def _died(where: Environment, place: str, code: int) -> WeatherError:
    return WeatherError(
        f"{where.name}: the child that compiles for {place} dies (exit code {code}): run"
        f" {where.python} -m meshmark.weather.programs"
    )


def _messages(where: Environment, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages of a child. WeatherError if one of them is a problem."""
    for message in _child(where, job):
        if "problem" in message:
            raise WeatherError(f"{where.name}: {message['problem']}")
        yield message


def _child(where: Environment, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    variables = {environment.CPU_DEVICES: str(environment.DEFAULT_CPU_DEVICES), "JAX_PLATFORMS": "cpu"}
    if job["place"] != CPU:
        variables |= topologies.ENVIRONMENT
    child = subprocess.Popen(
        [where.python, "-m", "meshmark.weather.programs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment.of_child(variables, where.path),
    )
    assert child.stdin and child.stdout
    try:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(job))
            child.stdin.close()
        for text in child.stdout:
            if text.startswith(MARK) and text.endswith("\n"):
                yield json.loads(text.removeprefix(MARK))
        yield {"code": child.wait()}
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def name_of(facts: Sequence[Mapping[str, Any]]) -> str:
    """The name of the plain file of an environment, from the facts of its places: the releases of JAX and of the
    topologies' compilers."""
    parts: dict[str, None] = {}
    for one in facts:
        parts[one["versions"]["jax"]] = None
        parts |= {f"{wheel}{version}": None for wheel, version in (one.get("compiler") or {}).items()}
    return "-".join(parts) + ".jsonl"


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WeatherError(f"can't write to {directory}: {error.strerror}") from None


def _pack(path: Path, packed: Path) -> None:
    """Pack a plain file by gzip, and remove it. Equal files give equal bytes."""
    making = packed.with_name(f".{packed.name}.making")
    try:
        with open(making, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as made:
            made.write(path.read_bytes())
        os.replace(making, packed)
        path.unlink()
    except OSError as error:
        raise WeatherError(f"can't write {packed}: {error.strerror}") from None


def now() -> str:
    """The current time in UTC, in the form of run lines."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
