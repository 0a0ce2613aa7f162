# SPDX-License-Identifier: Apache-2.0
"""Finds the rank of this process, and joins the ranks of a run.

Coordinates are given (`--coordinator`, `--num-processes`, `--process-id`, or the variables that `meshmark launch`
sets), or JAX detects them from Slurm, Open MPI, Kubernetes or Cloud TPU. The ranks compare their releases, flags and
options before the first collective. With given coordinates they do so before JAX starts anything. With detected ones
they do so right after `jax.distributed.initialize`, since only JAX knows them.
"""

from __future__ import annotations

import hashlib
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from meshmark.core.errors import BadInput
from meshmark.core.installation import suite
from meshmark.core.text import counted
from meshmark.devices import compat, probe
from meshmark.devices.facts import Facts
from meshmark.devices.probe import FLAGS
from meshmark.devices.variables import as_c_reads
from meshmark.ranks import rollcall
from meshmark.ranks.channel import Channel, Ended, spans
from meshmark.ranks.wire import ChannelError, address
from meshmark.records.run_line import of_every_rank

JOIN = 120.0
"""Seconds in which all ranks must join."""

ENVIRONMENT = {
    "coordinator": "MESHMARK_COORDINATOR",
    "num_processes": "MESHMARK_NUM_PROCESSES",
    "process_id": "MESHMARK_PROCESS_ID",
    "control": "MESHMARK_CONTROL",
    "control_secret": "MESHMARK_CONTROL_SECRET",
}
"""The environment variables that replace the options if these are not given. `meshmark launch` sets them."""

JOBS = (
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("PMIX_NAMESPACE",),
    ("OMPI_MCA_ess_base_jobid",),
)
"""Variables that are equal in all processes of one job and differ between jobs: those of Slurm, PMIx and Open MPI 4."""

TRANSPORT = "jax_cpu_collectives_implementation"
"""The option of JAX that selects the transport of collectives between CPU processes."""


class RankError(BadInput, ValueError):
    """Coordinates that are not complete or not valid; the message is one line."""


@dataclass(frozen=True)
class Coordinates:
    """The coordinates of a rank and its run. Without a coordinator JAX detects them."""

    coordinator: str = ""
    num_processes: int = 0
    process_id: int = -1
    control: str = ""
    secret: str = ""
    """A text that distinguishes the ranks of this run from those of another run."""

    @property
    def given(self) -> bool:
        """Whether they are given, so that JAX does not detect them."""
        return bool(self.coordinator)


def coordinates(
    environ: Mapping[str, str],
    distributed: bool = False,
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    control: str | None = None,
    control_secret: str | None = None,
) -> Coordinates | None:
    """The coordinates from options and environment; None for a run of one process. RankError if some are missing, or
    the rank is out of range. ChannelError for an invalid address."""
    if coordinator is None and num_processes is None and process_id is None:
        coordinator = environ.get(ENVIRONMENT["coordinator"])
        num_processes = _read_number(environ, "num_processes")
        process_id = _read_number(environ, "process_id")
    secret = control_secret or environ.get(ENVIRONMENT["control_secret"], "") or _job(environ)
    control = control or environ.get(ENVIRONMENT["control"], "")
    if control:
        address(control)
    if coordinator is None and num_processes is None and process_id is None:
        return Coordinates(control=control, secret=secret) if distributed else None
    if coordinator is None or num_processes is None or process_id is None:
        raise RankError(
            "--coordinator, --num-processes and --process-id go together (or --distributed alone, under a launcher"
            " that JAX detects)"
        )
    address(coordinator)
    if not 1 <= num_processes <= 1 << 16:
        raise RankError(f"--num-processes {num_processes}: use a number from 1 to {1 << 16}")
    if not 0 <= process_id < num_processes:
        raise RankError(
            f"--process-id {process_id}: of {num_processes} processes they are 0 to {num_processes - 1}"
        )
    return Coordinates(coordinator, num_processes, process_id, control or next_port(coordinator), secret)


def _job(environ: Mapping[str, str]) -> str:
    """The id of the job that started this process; "" if no launcher gives one. It is not a secret. It distinguishes a
    job's ranks from those of an earlier job."""
    for names in JOBS:
        if all(environ.get(name) for name in names):
            return " ".join(f"{name}={environ[name]}" for name in names)
    return ""


def _read_number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(ENVIRONMENT[name])
    if text is not None and not text.isdecimal():
        raise RankError(f"{ENVIRONMENT[name]}={text!r}: use a number, or unset it")
    return None if text is None else int(text)


def next_port(coordinator: str) -> str:
    """The default HOST:PORT of the channel: the coordinator's port + 1, or - 1 if the coordinator has port 65535 (as
    JAX chooses for one in 4,096 Slurm jobs)."""
    host, port = address(coordinator)
    port += 1 if port < 65535 else -1
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def introduction(options: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that must be equal on all ranks: releases, flags, the suite's commit and sources, and the options."""
    own = suite()
    return {
        "JAX release": _versions(),
        "flags": {k: v for k, v in sorted(as_c_reads().items()) if k.startswith(FLAGS) and of_every_rank(k)},
        "suite commit": f"{own['commit'] or 'unknown'}{'' if own['clean'] in (True, None) else ' with changes'}",
        "suite sources": own["digest"],
        "options": dict(options),
    }


def _versions() -> str:
    found = []
    for name in ("jax", "jaxlib"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} unknown")
    return ", ".join(found)


@dataclass
class Group:
    """The group of ranks, as this rank has it."""

    rank: int
    size: int
    channel: Channel
    detected: bool
    """Whether JAX found the coordinates itself."""
    left: bool = field(default=False)

    def alike(self, what: str, value: Any) -> None:
        """Check that all ranks have the same value; ChannelError, on every rank, if they differ."""
        _, values = self.channel.exchange(what, value, JOIN)
        if differences := spans(values):
            raise ChannelError(f"the ranks differ in {what}: {differences}")

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """The context in which this rank chooses cases and opens files. If it fails, this rank leaves and the others
        get the reason. ChannelError if another rank fails."""
        try:
            yield
        except Ended as ended:
            self.leave(ended.ending.reason)
            raise ChannelError(ended.ending.reason) from None
        except KeyboardInterrupt:
            self.leave("interrupted")
            raise
        except BadInput as error:
            self.leave(f"could not begin: {error}")
            raise

    def leave(self, why: str = "") -> None:
        """Shut JAX's cluster down and close the channel. With a reason, only the channel is closed, and the others end
        too."""
        if self.left:
            return
        self.left = True
        if not why:
            import jax

            jax.distributed.shutdown()
        self.channel.close(why)


def join(found: Coordinates, options: Mapping[str, Any], seconds: float = JOIN, **channel: Any) -> Group:
    """Join the other ranks, in JAX and in the channel.

    ChannelError if they do not come within `seconds`, differ in what must be equal on all ranks (see `introduction`),
    one of them ends, or JAX's cluster does not start. channel: arguments of Channel.
    """
    try:
        group = _joined(found, options, seconds, **channel)
        rollcall.join(group.rank, group.size)
        return group
    except Ended as ended:
        raise ChannelError(ended.ending.reason) from None


def _joined(found: Coordinates, options: Mapping[str, Any], seconds: float, **channel: Any) -> Group:
    if found.given:
        group = Group(
            found.process_id,
            found.num_processes,
            Channel(
                found.control, found.process_id, found.num_processes, seconds, secret=found.secret, **channel
            ),
            False,
        )
        _compare(group, options)
        _start(group, found, seconds)
        return group
    _initialize(found, seconds)
    import jax

    rank, size = jax.process_index(), jax.process_count()
    control = found.control or _control()
    group = Group(rank, size, Channel(control, rank, size, seconds, secret=found.secret, **channel), True)
    _compare(group, options)
    return group


def _compare(group: Group, options: Mapping[str, Any]) -> None:
    for what, value in introduction(options).items():
        group.alike(what, value)


def _start(group: Group, found: Coordinates, seconds: float) -> None:
    """Start JAX's cluster with the given coordinates. If one rank can't, all ranks get the reason."""
    try:
        if found.process_id == 0:
            _must_be_free(found.coordinator)
        _initialize(found, seconds)
    except ChannelError as error:
        group.channel.close(f"could not start JAX's cluster: {error}")
        raise
    group.alike("state of JAX's cluster", "started")


def _must_be_free(coordinator: str) -> None:
    """ChannelError if another program listens on this port, because jaxlib 0.12.0 then dies of a segmentation fault."""
    _, port = address(coordinator)
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # connections that just ended do not count
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ChannelError(
                f"rank 0 can't start JAX's coordinator at {coordinator} ({error.strerror}): name a free port with"
                " --coordinator HOST:PORT on every rank"
            ) from None


def _initialize(found: Coordinates, seconds: float) -> None:
    import jax

    options: dict[str, Any] = {"initialization_timeout": max(1, int(seconds))}
    if found.given:
        options |= {
            "coordinator_address": found.coordinator,
            "num_processes": found.num_processes,
            "process_id": found.process_id,
            "cluster_detection_method": "deactivate",
        }
    try:
        jax.distributed.initialize(**options)
    except Exception as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        if found.given:
            raise ChannelError(
                f"jax.distributed.initialize at {found.coordinator}: {first[:300]} (can this host reach it?)"
            ) from None
        raise ChannelError(
            f"JAX detected no cluster ({first[:300]}): start this under srun, mpirun, Kubernetes or Cloud TPU, or name"
            " --coordinator HOST:PORT --num-processes N --process-id I"
        ) from None


def _control() -> str:
    """The channel's address if JAX detected the coordinator; RankError if JAX does not give the coordinator."""
    coordinator = compat.coordinator_address()
    if not coordinator:
        raise RankError("this JAX does not tell its coordinator: name --control HOST:PORT, on rank 0's host")
    return next_port(coordinator)


def read_facts(group: Group) -> Facts:
    """The facts of this rank; ChannelError if the processes have different numbers of devices."""
    import jax

    found = probe.facts()
    counts = Counter(device["process"] for device in found.devices)
    if len(counts) != group.size or len(set(counts.values())) > 1:
        numbers = [counts.get(rank, 0) for rank in range(group.size)]
        raise ChannelError(f"the processes have {numbers} devices: give each the same number")
    own: dict[str, Any] = {"devices": found.num_devices // group.size, "detected": group.detected}
    if found.backend == "cpu":
        own["transport"] = str(getattr(jax.config, TRANSPORT))
    return replace(found, group=own)


def describe(facts: Facts) -> str:
    """One line about the group, for the header of the output."""
    own = facts.group
    over = f", collectives over {own['transport']}" if "transport" in own else ""
    how = "detected by JAX" if own["detected"] else "given"
    return f"{facts.num_processes} processes of {counted(own['devices'], 'device')}, coordinates {how}{over}"


def in_order(found: Iterable[Any]) -> tuple[Any, ...]:
    """Devices ordered by process and id, as in meshmark.operations.base.Request."""
    return tuple(sorted(found, key=lambda device: (device.process_index, device.id)))


def digest_names(names: Iterable[str]) -> str:
    """The number of names and a digest of them in their order, as a text."""
    listed = list(names)
    return f"{len(listed)} ({hashlib.blake2b(chr(10).join(listed).encode(), digest_size=6).hexdigest()})"
