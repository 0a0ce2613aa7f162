# SPDX-License-Identifier: Apache-2.0
"""What one process of a contestant does: it waits, asleep, until the leader commands it, and answers.

Commands and answers are lines of JSON over a Unix socket whose path is in the environment. A thread reads them, so that
the process waits in neither a collective nor a loop, and so that it ends when the leader is gone.

    {"do": "check", operation, nbytes}                      -> {"wrong": null or words}
    {"do": "time", operation, nbytes, samples, warm_ups}    -> {"samples_s", "starts_s", "wrong", ...}
    {"do": "rest"}                                          -> {}, for the times of the processor alone
    {"do": "end"}                                           -> nothing; the process ends

Every answer has `cpu_s`, the processor time of this process so far with all its threads, and `idle_s` and
`idle_cpu_s`: how long it waited for this command, and what processor time it took meanwhile.

A sample: the contestant's own barrier, the clock, the operation until its output can be read, the clock. The clock is
CLOCK_MONOTONIC, which the processes of one machine share, so that the starts of the ranks can be compared.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import queue
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any, Protocol

from benchmarks.others import operations
from benchmarks.others.operations import Array

SOCKET = "MESHMARK_OTHERS_SOCKET"
RANK, PROCESSES, MEETING = "MESHMARK_OTHERS_RANK", "MESHMARK_OTHERS_PROCESSES", "MESHMARK_OTHERS_MEETING"
"""Environment variables for a process that the leader starts itself: its rank, the number of ranks, and the host:port
where rank 0 waits for them."""


class Program(Protocol):
    """One operation at one size, ready to run on this rank; its buffers are reused."""

    def renew(self) -> None:
        """Restore the input before every call if a call overwrites it; not timed."""

    def poison(self) -> None:
        """Overwrite the output of earlier calls, so that it can't pass for a new one; not timed."""

    def run(self) -> Any:
        """The call that is timed; returns the output when it can be read."""

    def read(self, output: Any) -> Array:
        """The output as float32 [S / 4]."""


class Transport(Protocol):
    """The interface of a contestant on one rank."""

    rank: int
    processes: int

    def facts(self) -> Mapping[str, Any]:
        """Versions and settings, read in this process."""

    def barrier(self) -> None:
        """Return when every rank has called this."""

    def program(self, operation: str, nbytes: int) -> Program:
        """Prepare an operation: fill its buffers with operations.values, and compile it if there is a compiler."""

    def close(self) -> None:
        """Leave the group in order."""


class Channel:
    """The connection to the leader. Its reader thread ends this process when the leader is gone."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="leader", daemon=True).start()

    def _read(self) -> None:
        try:
            with self._socket.makefile("r", encoding="utf-8") as lines:
                for line in lines:
                    self._commands.put(json.loads(line))
        except OSError:
            pass
        os._exit(1)

    def receive(self) -> dict[str, Any]:
        """The next command; blocks until one arrives."""
        return self._commands.get()

    def send(self, answer: Mapping[str, Any]) -> None:
        """Answer the leader."""
        self._socket.sendall(json.dumps(answer).encode() + b"\n")


@dataclass
class Rank:
    """Carries out commands of the leader."""

    transport: Transport
    _made: dict[tuple[str, int], tuple[Program, Array]] = field(default_factory=dict)

    def obey(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a command other than "end"."""
        if command["do"] == "rest":
            return {}
        program, want = self._program(command["operation"], command["nbytes"])
        if command["do"] == "check":
            return {"wrong": self._wrong(program, want)}
        return self._timed(program, command["samples"], command["warm_ups"]) | {
            "wrong": self._wrong(program, want)
        }

    def _program(self, operation: str, nbytes: int) -> tuple[Program, Array]:
        key = (operation, nbytes)
        if key not in self._made:
            transport = self.transport
            want = operations.expected(operation, nbytes, transport.rank, transport.processes)
            self._made[key] = transport.program(operation, nbytes), want
        return self._made[key]

    def _wrong(self, program: Program, want: Array) -> str | None:
        """Call once over a poisoned output, and return what is wrong with the result."""
        program.renew()
        program.poison()
        self.transport.barrier()
        return operations.difference(program.read(program.run()), want)

    def _timed(self, program: Program, samples: int, warm_ups: int) -> dict[str, Any]:
        barrier, renew, run = self.transport.barrier, program.renew, program.run
        took, starts = [], []
        gc.disable()
        try:
            for number in range(warm_ups + samples):
                renew()
                barrier()
                start = perf_counter()
                output = run()
                stop = perf_counter()
                del output  # freeing it is not timed
                if number >= warm_ups:
                    took.append(stop - start)
                    starts.append(start)
        finally:
            gc.enable()
        return {"samples_s": took, "starts_s": starts}


def serve(start: Callable[[], Transport]) -> None:
    """Connect, start the contestant, carry out commands until the end, and end the process."""
    channel = Channel(os.environ[SOCKET])
    try:
        transport = start()
        channel.send({"rank": transport.rank, "pid": os.getpid(), "facts": dict(transport.facts())})
        rank = Rank(transport)
        while True:
            since, spent = perf_counter(), process_time()
            command = channel.receive()
            idle = {"idle_s": perf_counter() - since, "idle_cpu_s": process_time() - spent}
            if command["do"] == "end":
                break
            channel.send(rank.obey(command) | idle | {"cpu_s": process_time()})
        transport.close()
    except BaseException as error:  # the leader must learn of any error
        traceback.print_exc()
        sys.stderr.flush()
        with contextlib.suppress(OSError):
            channel.send({"error": f"{type(error).__name__}: {error}"})
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of a runtime that shuts down must not set the exit code
