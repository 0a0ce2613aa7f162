# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that causes a fault on one rank in one case: `-p tests.ranks.sabotage`, set by MESHMARK_SABOTAGE.

The variable is JSON: `rank` (a number, or "all"), `case` (a part of the case id), `mark` (a file to which the time of
each fault is appended, in seconds of the monotonic clock), `when` and `how`. `when` is one of
    start       while pytest starts, before the ranks come together
    session     while pytest starts its session, after that
    cluster     instead of starting JAX's cluster, after that
    between     between the case before and this one
    compile     instead of compiling the case's program
    before, inside, after   the call of the compiled program
and `how`
    kill        SIGKILL to itself. With `when` inside, half a second after it has entered the collective, for which the
                other ranks come a second late.
    exit        os._exit(7)
    python      never returns, in Python code
    native      never returns, in C code that holds the GIL
    stop        SIGSTOP to itself: the process is there, and does nothing
    skip        does not enter the program, and gives back zeros
    late        sleeps `seconds`, and goes on
    raise       raises RuntimeError
    program     compiles another program: its collectives twice
    wrong       changes one element of its own output
    terminate   SIGTERM to itself
    interrupt   SIGINT to itself
    leave       os._exit(0)
    system exit raises SystemExit(0)
    spawn       starts a program in a session of its own, and sleeps
`cancelled`: first cancel the timer of the watchdog in the process.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import jax
import numpy as np
import pytest

from meshmark.devices import surroundings
from meshmark.judge.programs import Program
from meshmark.pytest_plugin.trials import case_of

PLAN: dict[str, Any] = json.loads(os.environ.get("MESHMARK_SABOTAGE", "{}"))


def _own() -> int:
    """The rank of this process, before anything knows it: the option, or the variable of its launcher."""
    if "--process-id" in sys.argv:
        return int(sys.argv[sys.argv.index("--process-id") + 1])
    names = ("MESHMARK_PROCESS_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
    return int(next((os.environ[n] for n in names if n in os.environ), "0"))


OWN = _own()

# What strikes here stands in the place of methods of the judge, and a run that looks for that judges nothing.
surroundings.judge_replaced = lambda *rooms: iter(())
MINE = bool(PLAN) and PLAN["rank"] in (OWN, "all")
"""Whether this rank is the one that goes wrong."""


def _struck(case_id: str) -> bool:
    return bool(PLAN) and PLAN["case"] in case_id


def _note() -> None:
    """Append the moment to the file that the plan names."""
    if "mark" in PLAN:
        with open(PLAN["mark"], "a", encoding="utf-8") as file:
            file.write(f"{time.monotonic()}\n")


def _strike() -> None:
    _note()
    how = PLAN["how"]
    if PLAN.get("cancelled"):
        faulthandler.cancel_dump_traceback_later()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "exit":
        os._exit(7)
    elif how == "python":
        while True:
            pass
    elif how == "native":
        ctypes.PyDLL(None).sleep(3600)  # PyDLL keeps the GIL
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "late":
        time.sleep(PLAN["seconds"])
    elif how == "raise":
        raise RuntimeError("sabotaged")
    elif how == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)
    elif how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    elif how == "leave":
        os._exit(0)
    elif how == "system exit":
        raise SystemExit(0)
    elif how == "spawn":
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        time.sleep(600)


class Sabotaged:
    """A compiled program whose call goes wrong on one rank."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __call__(self, *inputs: Any) -> Any:
        if PLAN["when"] == "inside":
            if MINE:
                threading.Timer(0.5, _strike).start()
            else:
                time.sleep(1.0)
        if MINE and PLAN["when"] == "before":
            _strike()
        if MINE and PLAN["how"] == "skip":
            return _zeros(self._compiled)
        outputs = self._compiled(*inputs)
        if MINE and PLAN["when"] == "after":
            jax.block_until_ready(outputs)
            _strike()
        if MINE and PLAN["how"] == "wrong":
            outputs = jax.tree.map(_changed, outputs)
        return outputs


def _zeros(compiled: Any) -> Any:
    """What a program would give back, of zeros, without running it."""

    def zeros(info: Any, sharding: Any) -> jax.Array:
        return jax.make_array_from_callback(
            info.shape, sharding, lambda index: np.zeros(info.shape, info.dtype)[index]
        )

    return jax.tree.map(zeros, compiled.out_info, compiled.output_shardings)


def _changed(array: jax.Array) -> jax.Array:
    """The array with its first addressable shard's first element changed."""
    blocks = [shard.data for shard in array.addressable_shards]
    first = np.array(blocks[0])
    first[(0,) * array.ndim] += 1
    blocks[0] = jax.device_put(first, array.addressable_shards[0].device)
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, blocks)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Strike before the suite has begun the case."""
    if MINE and PLAN["when"] == "between" and _struck(case_of(item.nodeid)):
        _strike()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart() -> None:
    """Put the sabotage in."""
    if not PLAN:
        return
    if MINE and PLAN["when"] == "session":
        _strike()
    compile_ = Program.compile

    def compiled(self: Program) -> Any:
        if not _struck(self.case.id):
            return compile_(self)
        if PLAN["when"] == "compile" and MINE:
            _strike()
        if PLAN["how"] == "program" and MINE:
            return _twice(self, compile_)
        return Sabotaged(compile_(self))

    Program.compile = compiled  # type: ignore[method-assign]


def _twice(program: Program, compile_: Any) -> Any:
    """The program with its collectives twice."""
    function = Program.function

    def twice(self: Program) -> Any:
        inner = function(self)
        return lambda *arrays: jax.tree.map(lambda a, b: a + b, inner(*arrays), inner(*map(_shifted, arrays)))

    Program.function = twice  # type: ignore[method-assign]
    try:
        return compile_(program)
    finally:
        Program.function = function  # type: ignore[method-assign]


def _shifted(array: Any) -> Any:
    """Another value, so that the compiler does not make one collective of two."""
    return array + array


if MINE and PLAN["when"] == "start":
    _strike()
if MINE and PLAN["when"] == "cluster":
    jax.distributed.initialize = lambda *arguments, **options: _strike()
