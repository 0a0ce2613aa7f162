# SPDX-License-Identifier: Apache-2.0
"""Before and after a group of processes: checkpoints that another number of processes reads, and the start and
shutdown of `jax.distributed`.

Other numbers of processes are child processes on loopback with CPU devices. Process 0 starts them without the
launcher's environment variables, and ends them by their id when their time is over. The group itself never shuts down.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.core import extras
from meshmark.core.dtypes import as_bits
from meshmark.core.installation import make_paths_absolute
from meshmark.core.meshes import MeshShape
from meshmark.core.ports import free_ports
from meshmark.operations.base import Argument, Missing, Plan, Request, Result, Variant
from meshmark.operations.placements.placement import fill_of, from_host, home, matrix, spec_labels, spec_of
from meshmark.operations.processes.global_arrays import (
    OverProcesses,
    ordinary,
    own,
    owners,
    process_report,
    process_report_result,
    raises,
)

LAUNCHERS = (
    *("SLURM_", "OMPI_", "PMI_", "PMIX_", "PRTE_", "HYDRA_", "KUBERNETES_", "JOB_", "TPU_", "CLOUD_TPU_"),
    *("JAX_COORDINATOR_", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS", "MESHMARK_"),
)
"""Prefixes of the environment variables by which a process finds its group. A child must not join the group."""

PATIENCE = 60.0
"""The time limit of children in seconds. On a busy machine importing JAX takes most of it."""

LEASH = """
import os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(9)), daemon=True).start()
"""
"""The start of a child's program. It ends the child when the process that started it ends, for whatever reason."""

SHARED = "MESHMARK_SHARED_DIR"
"""The environment variable that names a directory shared by all processes. It is needed if the directory for temporary
files is not shared."""


def children(programs, seconds=PATIENCE):
    """Run these Python programs at the same time, each in a process with one CPU device. Returns (exit code, output,
    errors) of each; the exit code is None if the child was killed at the time limit."""
    environment = make_paths_absolute({k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)})
    environment |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="meshmark-children-"))
        started = []
        for program in programs:
            files = [stack.enter_context(tempfile.TemporaryFile("w+", errors="replace")) for _ in range(2)]
            child = subprocess.Popen(
                [sys.executable, "-c", LEASH + program],
                stdin=subprocess.PIPE,
                stdout=files[0],
                stderr=files[1],
                env=environment,
                cwd=place,
            )
            stack.callback(child.communicate)  # closes the pipe and waits
            stack.callback(child.kill)  # called first; does nothing to one that has ended
            started.append((child, files))
        ended = []
        for child, files in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
            code = child.poll()
            for file in files:
                file.seek(0)
            ended.append((code, *(file.read() for file in files)))
        return ended


# Checkpoints -------------------------------------------------------------------------------------------------

KEPT: list[tempfile.TemporaryDirectory] = []
"""Directories of checkpoints. Process 0 deletes them when it ends, after the other processes have read them."""

SAVE = """
import jax, numpy as np, orbax.checkpoint as ocp
place = {place!r}
x = np.load(place + "/x.npy").view(jax.numpy.dtype({dtype!r}))
with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(place + "/saved", {{"x": x}})
"""

READ = """
import jax, numpy as np, orbax.checkpoint as ocp
place = {place!r}
one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
wanted = {{"x": jax.ShapeDtypeStruct({shape!r}, jax.numpy.dtype({dtype!r}), sharding=one)}}
with ocp.StandardCheckpointer() as checkpointer:
    x = np.asarray(checkpointer.restore(place + "/saved", wanted)["x"])
np.save(place + "/bits.npy", x.view("u" + str(x.dtype.itemsize)))
"""


def shared_directory():
    """A new directory that every process sees. Raises Missing if the processes share no directory."""
    if jax.process_index() == 0:
        KEPT.append(tempfile.TemporaryDirectory(prefix="meshmark-", dir=os.environ.get(SHARED)))
        name = KEPT[-1].name.encode()
        line = np.frombuffer(name.ljust(512, b"\0"), np.uint8)
    else:
        line = np.zeros(512, np.uint8)
    line = np.asarray(multihost_utils.broadcast_one_to_all(line))
    directory = Path(line.tobytes().rstrip(b"\0").decode())
    if not multihost_utils.process_allgather(np.array(directory.is_dir())).all():
        raise Missing(f"the processes share no directory for checkpoints: name one with {SHARED}")
    return directory


def by_one_process(directory, program, name):
    """Process 0 runs a program in a child; every process waits until it is done. Raises RuntimeError with the last line
    of the child's errors if the child fails, TimeoutError if it is not done in time."""
    done = directory / f"{name}.done"
    if jax.process_index() == 0:
        [(code, _, errors)] = children([program])
        words = (errors.strip().splitlines() or [f"exit code {code}"])[-1]
        half = directory / f"{name}.half"
        half.write_text("" if code == 0 else f"a child that should {name} ended with {code}: {words}")
        half.rename(done)
    deadline = time.monotonic() + PATIENCE + 10.0
    while not done.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"process 0 never reported that a child had finished to {name}")
        time.sleep(0.02)
    if done.read_text():
        raise RuntimeError(done.read_text())


class OrbaxCheckpoint(OverProcesses):
    """An Orbax checkpoint that is the same bit for bit after restoring. The group saves it and restores it in another
    sharding; or the group saves it and one process restores it; or one process saves it and the group restores it."""

    name = "orbax_checkpoint"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int32")

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        first = home(mesh)
        for label in spec_labels(mesh) if ordinary(mesh) else ():
            if label != first:
                weight = 0 if label == ".".join(reversed(first.split("."))) else 2
                yield Variant.of(weight, "checkpoint", saved="group", restored="group", to=label)
        if ordinary(mesh):
            yield Variant.of(1, "checkpoint", saved="group", restored="one", to=first)
            yield Variant.of(1, "checkpoint", saved="one", restored="group", to=first)

    def plan(self, request: Request) -> Plan:
        variant, source = request.variant, spec_of(home(request.mesh))
        target = spec_of(variant["to"])
        x = Argument(matrix(request), request.dtype, source, fill_of(request))
        options = {
            "in_spec": source,
            "out_spec": target,
            "saver": variant["saved"],
            "reader": variant["restored"],
        }
        seen = None if variant["restored"] == "one" else target
        return Plan((x,), (Result(x.shape, x.dtype, seen or ()),), options, judge="bits")

    @staticmethod
    def host(mesh, x, *, in_spec, out_spec, saver, reader):
        if importlib.util.find_spec("orbax") is None or importlib.util.find_spec("orbax.checkpoint") is None:
            raise Missing("orbax-checkpoint is not installed: " + extras.command("checkpoint"))
        import orbax.checkpoint as ocp

        directory = shared_directory()
        words = {"place": str(directory), "shape": x.shape, "dtype": x.dtype.name}
        if saver == "one":
            if jax.process_index() == 0:
                np.save(directory / "x.npy", as_bits(x))
            by_one_process(directory, SAVE.format(**words), "save")
        else:
            with ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(directory / "saved", {"x": from_host(mesh, x, in_spec)})
        if reader == "one":
            by_one_process(directory, READ.format(**words), "read")
            return own(mesh, np.load(directory / "bits.npy").view(x.dtype))
        wanted = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, P(*out_spec)))
        with ocp.StandardCheckpointer() as checkpointer:
            return checkpointer.restore(directory / "saved", {"x": wanted})["x"]

    @staticmethod
    def reference(x):
        return x


# Start and shutdown ------------------------------------------------------------------------------------------

RESTART = """
import jax, numpy as np
from jax.experimental import multihost_utils
seen = []
for start, port in enumerate({ports!r}):
    jax.distributed.initialize("127.0.0.1:%d" % port, 2, {process}, initialization_timeout=30)
    seen.append(int(jax.distributed.is_initialized()))
    if start or {computes}:
        seen.append(int(multihost_utils.process_allgather(np.int32({process} + 7)).sum()))
    jax.distributed.shutdown()
    seen.append(int(jax.distributed.is_initialized()))
    if {computes}:
        import jax.extend.backend
        jax.extend.backend.clear_backends()
print("seen", *seen)
"""

START = """
import jax
{before}
jax.distributed.initialize({arguments})
print("seen", jax.process_count())
"""

WRONG = {
    "process_id": ('"127.0.0.1:{port}", 2, 2, initialization_timeout=2', ""),
    "num_processes": ('"127.0.0.1:{port}", 0, 0, initialization_timeout=2', ""),
    "no_coordinator": ("None, 2, 1, initialization_timeout=2", ""),
    "no_port": ('"127.0.0.1", 2, 1, initialization_timeout=2', ""),
    "type": ('"127.0.0.1:{port}", 2, "one", initialization_timeout=2', ""),
    "nobody_listens": ('"127.0.0.1:{port}", 2, 1, initialization_timeout=2', ""),
    "taken_port": ('"127.0.0.1:{taken}", 1, 0, initialization_timeout=2', ""),
    "after_computing": ('"127.0.0.1:{port}", 1, 0', "jax.numpy.zeros(3) + 1"),
}
"""Wrong ways to start: the arguments of `initialize`, and a statement that runs before it."""

TRIED = {"taken_port": 3}
"""The number of children for ways to start that fail in more than one manner. The worst outcome counts."""

NOT_ASKED = -1
"""The result of the processes that start no children."""


def outcome(code, output):
    """How a child with a wrong start ended. 0: it continued. 1: with an error (an exception, or the abort by which
    JAX's coordination service ends a process). 2: it crashed. 3: it did not end in time."""
    if code is None:
        return 3
    if code == 0 or "seen" in output:
        return 0
    return 1 if code > 0 or code == -signal.SIGABRT else 2


class DistributedInitialize(OverProcesses):
    """`jax.distributed.initialize`: in a running group (RuntimeError, and the group still works), again after
    `shutdown` in children, and with wrong arguments in children (an error in bounded time)."""

    name = "distributed_initialize"

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if ordinary(mesh):
            yield Variant.of(0, again="up")
            yield Variant.of(1, again="before_computing")
            yield Variant.of(1, again="after_computing")
            for name in WRONG:
                yield Variant.of(2, wrong=name)

    def plan(self, request: Request) -> Plan:
        variant = request.variant
        options = {
            "again": variant.get("again", ""),
            "wrong": variant.get("wrong", ""),
            "owners": owners(request),
            "count": request.processes,
        }
        return Plan((), (process_report_result(request.mesh, 6),), options, judge="exact")

    @staticmethod
    def host(mesh, *, again, wrong, count):
        process = jax.process_index()
        row = [NOT_ASKED] * 6
        if again == "up":
            refused = raises(RuntimeError, lambda: jax.distributed.initialize("127.0.0.1:1", count, process))
            works = multihost_utils.process_allgather(np.int32(process)).tolist() == list(range(count))
            row = [refused, jax.distributed.is_initialized(), works, jax.process_count(), 0, 0]
        elif process == 0 and again:
            ports, computes = (free_ports(1)[0], free_ports(1)[0]), again == "after_computing"
            programs = [RESTART.format(ports=ports, process=i, computes=computes) for i in range(2)]
            ended = children(programs)
            for code, _, errors in ended:
                if code != 0:
                    words = (errors.strip().splitlines() or ["nothing"])[-1]
                    raise RuntimeError(
                        f"a child that starts, ends and starts again ended with {code}: {words}"
                    )
            said = [[int(n) for n in output.split("seen")[1].split()] for _, output, _ in ended]
            row = [len(said), said[0] == said[1], *said[0][:2], *said[0][-2:]]
        elif process == 0:
            arguments, before = WRONG[wrong]
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                taken.listen()
                ports = {"port": free_ports(1)[0], "taken": taken.getsockname()[1]}
                program = START.format(arguments=arguments.format(**ports), before=before)
                ended = children([program] * TRIED.get(wrong, 1))
            outcomes = [outcome(code, output) for code, output, _ in ended]
            row = [0 if 0 in outcomes else max(outcomes), 0, 0, 0, 0, 0]
        return process_report(mesh, row)

    @staticmethod
    def reference(*, again, wrong, owners, count):
        if again == "up":
            return np.array([[1, 1, 1, count, 0, 0]] * len(owners))
        asked = [1, 0, 0, 0, 0, 0]
        if again == "before_computing":
            asked = [2, 1, 1, 0, 15, 0]  # up, down, up, the sum of 7 and 8, down
        if again == "after_computing":
            asked = [2, 1, 1, 15, 15, 0]
        return np.array([asked if owner == 0 else [-1] * 6 for owner in owners])
