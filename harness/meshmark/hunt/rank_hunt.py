# SPDX-License-Identifier: Apache-2.0
"""A hunt as one rank of several: all ranks draw the same programs, and judge each one together.

Each rank computes the right results itself, on its own first device, and compares the shards that it can address. A
program runs only if all ranks have compiled it. There are no workers here: a program that ends a rank, or exceeds its
deadline, ends the hunt on all ranks. The record of rank 0 names that program, and --resume continues after it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import jax
import numpy as np

from meshmark.core import interrupts
from meshmark.core.errors import BadInput
from meshmark.core.terminal import note
from meshmark.devices import environment
from meshmark.devices.containment import START
from meshmark.hunt import accelerators, generator, oracles, places
from meshmark.hunt.differences import DifferenceData
from meshmark.hunt.findings import Finding
from meshmark.hunt.hunting import Hunt
from meshmark.hunt.logs import Line
from meshmark.hunt.oracles import Invalid, NotRun
from meshmark.hunt.workers import Answer
from meshmark.program_data.building import permute_devices
from meshmark.program_data.program import Program, from_json, to_json
from meshmark.ranks import endings, rollcall
from meshmark.ranks import group as ranks
from meshmark.ranks.channel import Ended, Ending
from meshmark.ranks.consensus import Consensus, Settled
from meshmark.ranks.group import Coordinates, Group
from meshmark.ranks.wire import ChannelError


@dataclass
class Lockstep:
    """Judges programs on all ranks at once. It replaces the slot of workers that a hunt of one process has."""

    consensus: Consensus
    deadline: float
    now: float = field(default_factory=time.monotonic)

    def clock(self) -> float:
        """Seconds by rank 0's clock after the last program. All ranks have this value, so they take equal decisions."""
        return self.now

    def judge(self, job: Any, modes: tuple[str, ...] = ("auto",)) -> Answer:
        """The merged answer of all ranks for one program. ChannelError or Ended if the hunt can't continue."""
        start = time.perf_counter()
        program, families = (job, {}) if isinstance(job, Program) else self.drawn(job)
        with self.consensus.on(f"program {program.name}", self.deadline):
            left: list[str] = []
            said: dict[str, Any] = {"differences": [], "invalid": ""}
            try:
                found = oracles.judge(program, modes, self._run, left)
                said["differences"] = [d.to_json() for d in found]
            except Invalid as error:
                said["invalid"] = str(error)
            every = self.consensus.gather(said | {"not_run": left, "clock": time.monotonic()})
        self.now = every[0]["clock"]
        return Answer(
            merge_differences(every),
            next(filter(None, (one["invalid"] for one in every)), ""),
            sorted({name for one in every for name in one["not_run"]}),
            to_json(program),
            families,
            seconds=time.perf_counter() - start,
        )

    @staticmethod
    def drawn(job: Any) -> tuple[Program, dict[str, str]]:
        """(the program of a job, the family or form of each operation; {} if the job has the program's data)."""
        if "draw" in job:
            seed, number = job["draw"]
            return generator.draw_with_families(
                seed, number, job.get("weights"), job.get("meshes", ()), accelerators.list_inexact()
            )
        return from_json(job["program"]), {}

    def _run(self, program: Program, mode: str) -> Sequence[Any]:
        """The results of a program over the devices of all ranks; NotRun if another rank could not compile it."""
        devices: Sequence[Any] = ranks.in_order(jax.devices())
        if mode == "permuted":
            devices = permute_devices(devices[: program.mesh_size])
        mesh, places = oracles.place_inputs(program, mode, devices)
        with jax.enable_x64(program.x64):
            # Over several processes device_put of a host array with a NaN reports a false mismatch.
            given = [
                jax.make_array_from_callback(x.shape, place, np.asarray(x).__getitem__)
                for x, place in zip(oracles.make_inputs(program), places, strict=True)
            ]
            return list(oracles.apply_jit(program, mode, mesh, lambda f: self._executed(f, given, mode)))

    def _executed(self, function: Any, given: Sequence[Any], mode: str) -> Any:
        try:
            compiled = function.lower(*given).compile()
        except Exception as error:
            self._first_failure(mode, type(error).__name__)
            raise
        if reason := self._first_failure(mode, ""):
            raise NotRun(f"another rank did not come to run it: {reason}")
        return jax.block_until_ready(compiled(*given))

    def _first_failure(self, mode: str, own: str) -> str:
        def first(values: list[Any]) -> str:
            return next((f"rank {rank}: {value}" for rank, value in enumerate(values) if value), "")

        try:
            decided: str = self.consensus.agree(f"compiled in mode {mode}", own, first)
            return decided
        except Settled as error:
            return str(error)


def merge_differences(every: Sequence[Mapping[str, Any]]) -> list[DifferenceData]:
    """The differences of the first rank that has any, with "rank N: " before their text; [] if no rank has one.

    every: the answers by rank, {"differences": [...], ...}."""
    for rank, said in enumerate(every):
        if said["differences"]:
            return [d | {"text": f"rank {rank}: {d['text']}"} for d in said["differences"]]
    return []


class RankHunt:
    """A hunt of this process as one rank, from joining the group to leaving it."""

    def __init__(
        self,
        hunt: Hunt,
        found: Coordinates,
        alike: dict[str, str],
        num_devices: int | None,
        join: float,
    ) -> None:
        """Join the group.

        alike: the options that must be equal on all ranks. num_devices: the number of virtual devices per process.
        Raises ChannelError and RankError as meshmark.ranks.group.join."""
        self.hunt = hunt
        self.consensus: Consensus | None = None
        self._signal: signal.Signals | None = None
        self._report: Callable[[Hunt], None] = lambda _: None
        environment.set_here(environment.cpu_devices(num_devices, environment.CPU_DEVICES_A_PROCESS))
        environment.configure_jax()
        self.group: Group = ranks.join(found, alike, join, ended=self._end)
        self.consensus = Consensus(self.group.channel, os.dup(2))
        with self.group.beginning():
            facts = ranks.read_facts(self.group)
            self.devices = facts.num_devices
            hunt.around = places.require_compilation(facts.surroundings)
        hunt.meshes = generator.meshes_over(self.devices)

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which prints and writes for all ranks."""
        return self.group.rank == 0

    def resume(self, lines: Sequence[Line]) -> None:
        """Take over the lines of rank 0's record, on every rank; other ranks' `lines` are empty. A program that began
        and has no outcome ended its hunt. It counts as a crash and is not judged again."""
        shared = self.group.channel.exchange("the record so far", list(lines), ranks.JOIN)[1][0]
        done = {line["n"] for line in shared if "begins" not in line}
        ended = [line for line in shared if "begins" in line and line["n"] not in done]
        for line in ended:
            written = describe_end(line)
            self.hunt.write(written)
            shared.append(written)
        self.hunt.resume([line for line in shared if "begins" not in line])

    def run(self, minutes: float, programs: int | None, report: Callable[[Hunt], None]) -> None:
        """Hunt together for `minutes`, or until `programs` programs are judged. Ends the process if a rank is gone.

        report: prints the findings on rank 0."""
        self._report = report
        self._together(lambda slot: self._hunt(slot, minutes, programs))
        if self.first:
            report(self.hunt)
        self.group.leave()
        rollcall.report_exit_code(self.group.rank, self.hunt.exit_code)

    def require_devices(self, finding: Finding) -> None:
        """BadInput if the finding's program does not use all devices of the group: a rank without any of them can't
        run it."""
        if (needed := finding.data().mesh_size) != self.devices:
            raise BadInput(
                f"the finding {finding.name} needs {needed} devices, and the {self.group.size} processes have"
                f" {self.devices}: --num-devices N gives each process N"
            )

    def replay(self, finding: Finding) -> Answer:
        """Judge the program of a finding together, in its mode. Ends the process if a rank is gone."""
        answers: list[Answer] = []
        self._together(lambda slot: answers.append(slot.judge(finding.data(), (finding.mode,))))
        self.group.leave()
        rollcall.report_exit_code(self.group.rank, int(bool(answers[0].differences)))
        return answers[0]

    def _together(self, work: Callable[[Lockstep], None]) -> None:
        """Do the work with the other ranks. Ends the process if a rank is gone, or at a signal."""
        assert self.consensus
        interrupts.listen(self._signalled)
        endings.abort_late()
        try:
            slot = Lockstep(self.consensus, self.hunt.settings.deadline)
            with self.group.channel.during("start", START):
                jax.block_until_ready(jax.numpy.zeros(1))
                slot.now = self.group.channel.exchange("clock", slot.now)[1][0]
            work(slot)
        except KeyboardInterrupt as error:
            self._stop("interrupted", interrupts.code(error))
        except OSError as error:
            self._stop(f"can't go on: {error.strerror or error}", 2)
        except ChannelError as error:
            self._stop(str(error), 1)
        except Ended as ended:
            self._end(ended.ending)

    def _hunt(self, slot: Lockstep, minutes: float, programs: int | None) -> None:
        end, number = slot.clock() + 60 * minutes, 0
        while slot.clock() < end and (programs is None or number < programs):
            if number not in self.hunt.done:
                if self.first:
                    drawn = {"draw": [self.hunt.seed, number], "weights": self.hunt.weights}
                    program, _ = slot.drawn(drawn | {"meshes": self.hunt.meshes})
                    self.hunt.write({"begins": True, "n": number, "program": to_json(program)})
                self.hunt.one(slot, number, note if self.first else lambda _: None, lambda: False)
            number += 1

    # Ending -------------------------------------------------------------------------------------------------

    def _signalled(self, number: signal.Signals) -> None:
        self._signal = number
        self.group.channel.interrupt(number.name)

    def _stop(self, why: str, code: int) -> NoReturn:
        self.group.channel.interrupt(why)
        self.group.channel.close()
        self._end(Ending("", why), code)

    def _end(self, ending: Ending, code: int = 1) -> NoReturn:
        """Print the reason, and end the process at once. JAX would wait for minutes for a rank that is gone."""
        try:
            if self.consensus is None:
                note(ending.reason)
            else:
                with self.consensus.end(ending) as first:
                    if first:
                        at = f"{self.consensus.matter}: {ending.verdict}: " if ending.verdict else ""
                        note(f"rank {self.group.rank}: {at}{endings.describe_ending(ending)}")
                        if self.first:
                            self._report(self.hunt)
        finally:
            os._exit(128 + self._signal if self._signal else code)


def describe_end(line: Line) -> Line:
    """The record's line for a program that ended its hunt: a crash, not shrunk."""
    difference: DifferenceData = {
        "mode": "",
        "kind": "crash",
        "what": "it ended a rank, or passed its deadline",
        "text": f"program {line['n']} ended the hunt: it has no outcome",
        "data": {},
    }
    return {
        "n": line["n"],
        "s": 0.0,
        "differences": [difference],
        "program": line["program"],
        "group": f"crash: {difference['what']}",
        "shrunk": line["program"],
        "shrunk_difference": difference,
        "tried": 0,
        "shrink_s": 0.0,
        "minute": 0.0,
    }
