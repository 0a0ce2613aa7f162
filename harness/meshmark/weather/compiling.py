# SPDX-License-Identifier: Apache-2.0
"""Compiles the programs of the weather in an environment, in one child process per place."""

from __future__ import annotations

import contextlib
import gzip
import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark.core.errors import BadInput
from meshmark.devices import environment, topologies
from meshmark.operations.versions import TABLE_VERSION
from meshmark.records.shared import SCHEMA
from meshmark.records.writing import dumps
from meshmark.timing.environments import Environment
from meshmark.weather.programs import CPU, MARK

DEADLINE = 300
"""Seconds after which the compilation of one program counts as a hang."""

MOST_DEATHS = 10
"""The number of times that the child of one place may die. After one more death the environment is given up."""


class WeatherError(BadInput, RuntimeError):
    """The programs of an environment can't be compiled, or a history can't be made; the message is one line."""


def compile_all_programs(
    where: Environment, places: Sequence[str], started: str, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The record lines of all programs in one environment: one run line per place, followed by one line per program."""
    lines: list[dict[str, Any]] = []
    for place in places:
        run = uuid.uuid4().hex[:12]
        found = list(_of_place(where, place, say))
        facts = found.pop(0)["facts"]
        head = {"schema": SCHEMA, "kind": "run", "run": run, "facts": facts, "table": TABLE_VERSION}
        lines += [head | {"started": started}, *({**line, "run": run} for line in found)]
        say(f"{where.name}: {place}: {len(found)} programs")
    return lines


def _of_place(where: Environment, place: str, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The facts, then the line of each program. If the child dies, its current program fails and a new child
    continues."""
    done: list[str] = []
    told = False
    for deaths in range(MOST_DEATHS + 1):
        at: Mapping[str, Any] | None = None
        code = 0
        for message in _child(where, {"place": place, "done": done, "deadline": DEADLINE}):
            if "problem" in message:
                raise WeatherError(f"{where.name}: {message['problem']}")
            if "code" in message:
                code = message["code"]
            elif "at" in message:
                at = message
                done.append(message["id"])
                say(f"{where.name}: {message['id']}")
            elif "line" in message:
                at = None
                yield message["line"]
            elif not told:
                told = True
                yield message
        if code == 0:
            return
        if at is None:
            raise WeatherError(
                f"{where.name}: the child that compiles for {place} dies (exit code {code}): run"
                f" {where.python} -m meshmark.weather.programs"
            )
        verdict = "crash" if code < 0 else "hang"
        reason = f"the compiler ended the process (signal {-code})" if code < 0 else f"past {DEADLINE} s"
        yield {**at["at"], "verdict": verdict, "reason": reason}
        if deaths == MOST_DEATHS:
            raise WeatherError(f"{where.name}: the compiler for {place} died {MOST_DEATHS + 1} times")


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


def name_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """The name of the file for an environment's lines, made from the releases of JAX and of the topologies'
    compilers."""
    parts: dict[str, None] = {}
    for line in lines:
        if line["kind"] == "run":
            parts[line["facts"]["versions"]["jax"]] = None
            parts |= {f"{wheel}{version}": None for wheel, version in line["facts"]["compiler"].items()}
    return "-".join(parts) + ".jsonl.gz"


def write_weather_lines(lines: Sequence[Mapping[str, Any]], directory: Path) -> Path:
    """Write an environment's lines into the directory, compressed by gzip, and give the path. Equal lines give equal
    bytes. WeatherError if it fails."""
    path = directory / name_of(lines)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            packed.write("".join(dumps(line) + "\n" for line in lines).encode())
    except OSError as error:
        raise WeatherError(f"can't write {path}: {error.strerror}") from None
    return path


def now() -> str:
    """The current time in UTC, in the form of run lines."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
