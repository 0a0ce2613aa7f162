# SPDX-License-Identifier: Apache-2.0
"""`meshmark hunt`: random sharded programs, judged against themselves without sharding."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from meshmark.commands.arguments import devices, natural, path, positive, seconds
from meshmark.commands.options import add_ranks, of_ranks
from meshmark.core import installation
from meshmark.core.errors import BadInput
from meshmark.core.terminal import note, show, width
from meshmark.core.text import printable, text_table, wrap
from meshmark.devices import topologies
from meshmark.devices.environment import cpu_devices
from meshmark.hunt import findings, generator, logs, places, reports, yields
from meshmark.hunt.hunting import ORACLES, SHRINK_S, Hunt, table
from meshmark.hunt.oracles import RELEASE
from meshmark.hunt.versions import GENERATOR
from meshmark.hunt.workers import Answer, Settings, Slot
from meshmark.ranks import group as ranks
from meshmark.ranks.group import Coordinates
from meshmark.timing import environments

YIELDS = ("kind", "programs", "hours", "root causes", "per hour")
SHARED = 8
"""The default number of workers on one accelerator. Each worker has its own context in the device's memory."""

HEAD = ("finding", "group", "programs", "first", "operations", "minute")


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument(
        "--minutes", type=seconds, default=10.0, metavar="M", help="how long to hunt (default 10)"
    )
    add.add_argument(
        "--programs", type=positive, metavar="N", help="end after program number N, if that is sooner"
    )
    add.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the programs (default 0)")
    add.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help=f"workers at once (default: one per core; on an accelerator at most {SHARED})",
    )
    add.add_argument(
        "--record", type=path, metavar="FILE", help="write every program's outcome to this new file"
    )
    add.add_argument("--resume", type=path, metavar="FILE", help="continue the hunt that wrote this file")
    add.add_argument(
        "--replay",
        metavar="FINDING",
        help="run one finding again: its name in the store, its directory or file",
    )
    add.add_argument(
        "--known",
        type=path,
        default=findings.DEFAULT,
        metavar="DIR",
        help="the store of known findings (default: those that Meshmark has)",
    )
    add.add_argument(
        "--keep", type=path, metavar="DIR", help="write each new group of findings into this store"
    )
    add.add_argument(
        "--deadline", type=seconds, default=120.0, metavar="S", help="a program that takes longer is a hang"
    )
    add.add_argument(
        "--shrink",
        type=seconds,
        default=SHRINK_S,
        metavar="S",
        help=f"seconds to make one finding smaller (default {SHRINK_S:.0f})",
    )
    add.add_argument(
        "--oracles",
        choices=ORACLES,
        default="turns",
        help="how many oracles judge each program: automatic axes and NumPy, with another mode in turns (turns, the"
        " default), with all other modes (all), or automatic axes alone (one)",
    )
    add.add_argument(
        "--against",
        metavar="ENVIRONMENT",
        help="another release of JAX as one more oracle: it runs each unsharded program too"
        f" ({environments.FORMS.partition(', commit')[0]})",
    )
    add.add_argument(
        "--num-devices",
        type=devices,
        metavar="N",
        help="virtual CPU devices (default 8), or how many of an accelerator's (default all)",
    )
    add.add_argument(
        "--topology",
        metavar="NAME",
        help="compile for it and interpret the compiled programs; nothing runs (v5e:2x4, h100:8 ...)",
    )
    add.add_argument(
        "--yield",
        dest="yields",
        type=path,
        nargs="+",
        metavar="FILE",
        help="do not hunt: show what the hunts of these records found per hour, by kind of program",
    )
    add.add_argument(
        "--follow",
        type=path,
        nargs="+",
        metavar="FILE",
        help="draw each kind of program as often as these records' yields suggest",
    )
    add_ranks(add)


def run(arguments: argparse.Namespace) -> int:
    """Hunt, or replay one finding; returns 1 if a finding is new, or if the replayed one still occurs."""
    if arguments.record and arguments.resume:
        raise BadInput("--record and --resume name one file each: --resume appends to the file that it names")
    if arguments.replay and (
        given := [f"--{n}" for n in ("record", "resume", "keep") if getattr(arguments, n)]
    ):
        raise BadInput(
            f"{', '.join(given)}: a replay of one finding writes nothing; leave it out, or --replay"
        )
    if arguments.yields:
        return show_yields(arguments.yields, arguments.known)
    if rank := ranks.coordinates(os.environ, **of_ranks(arguments)):
        return over_ranks(arguments, rank)
    with tempfile.TemporaryDirectory(prefix="meshmark-hunt-") as directory:
        against = _find_other_release(arguments, Path(directory))
        return replay(arguments, against) if arguments.replay else hunt_here(arguments, against)


def hunt_here(arguments: argparse.Namespace, against: environments.Environment | None) -> int:
    """Hunt in this process; returns 1 if a finding is new."""
    settings, meshes = _place(arguments, arguments.topology)
    settings = replace(settings, against=against)
    hunt = Hunt(arguments.seed, settings, _weights(arguments), meshes, arguments.shrink, arguments.oracles)
    hunt.known = _read_known(arguments.known, note)
    if arguments.keep:
        findings.prepare_store(arguments.keep)
    hunt.resume(_open(hunt, arguments, 0 if settings.topology else settings.devices))
    try:
        hunt.run(arguments.minutes, _workers(arguments.workers, settings.backend), note, arguments.programs)
    finally:  # an interruption must not lose findings
        if hunt.around is not None:  # the first worker has started, and may judge
            show_summary(hunt)
        if hunt.out:
            hunt.out.close()
        if arguments.keep:
            keep(hunt, settings, arguments.keep)
    return hunt.exit_code


ALONE = ("keep", "topology", "workers", "against")
"""The options that only a hunt in one process can have."""

ALIKE = (
    "minutes",
    "programs",
    "seed",
    "record",
    "resume",
    "deadline",
    "shrink",
    "known",
    "follow",
    "oracles",
    "replay",
)
"""The options that must be equal on all ranks."""


def over_ranks(arguments: argparse.Namespace, found: Coordinates) -> int:
    """Hunt as one rank of several that judge each program together; returns 1 if a finding is new."""
    from meshmark.hunt.rank_hunt import RankHunt

    if given := [f"--{name}" for name in ALONE if getattr(arguments, name)]:
        raise BadInput(f"{', '.join(given)}: works only in one process: start it without a launcher")
    hunt = Hunt(
        arguments.seed,
        Settings(arguments.deadline),
        _weights(arguments),
        shrink_s=arguments.shrink,
        oracles=arguments.oracles,
    )
    hunt.known = _read_known(arguments.known, lambda said: None)
    alike = {name: str(getattr(arguments, name)) for name in ALIKE}
    rank = RankHunt(hunt, found, alike, arguments.num_devices, arguments.join)
    hunt.settings = replace(hunt.settings, ranks=rank.group.size)
    if arguments.replay:
        with rank.group.beginning():
            finding = findings.find_finding(arguments.replay, arguments.known)
            rank.require_devices(finding)
        answer = rank.replay(finding)
        if not rank.first:
            return int(bool(answer.differences))
        print(f"{finding.mode}, over {rank.group.size} processes: {_describe_answer(answer)}")
        return _show_outcome(finding, reports.outcome_of(answer))
    if rank.first:
        _read_known(arguments.known, note)
    with rank.group.beginning():
        lines = _open(hunt, arguments, rank.devices) if rank.first else []
        rank.resume(lines)

    def report(ended: Hunt) -> None:
        show_summary(ended)
        sys.stdout.flush()

    rank.run(arguments.minutes, arguments.programs, report)
    if hunt.out:
        hunt.out.close()
    return hunt.exit_code


def show_yields(files: Sequence[Path], store: Path) -> int:
    """Print how much the hunts found per hour, by kind of program. Each finding in the store counts as one root
    cause."""
    found = yields.read_yields(files, findings.known_groups(findings.read_findings(store)))
    meaning = (
        "one program has several kinds, so the rows overlap; per hour of a processor, with the 95 % interval"
    )
    show(text_table(YIELDS, [*yields.tabulate(found)], width()), ["", meaning])
    return 0


def _read_known(store: Path, tell: Callable[[str], None]) -> Mapping[str, str]:
    """The known groups of this release of JAX; a warning, by `tell`, if the store has no finding."""
    every = findings.read_findings(store)
    if not every:
        tell(findings.describe_empty(store))
    return findings.known_groups(every, _jax_version())


def _weights(arguments: argparse.Namespace) -> dict[str, float]:
    known = findings.known_groups(findings.read_findings(arguments.known))
    return yields.derive_weights(yields.read_yields(arguments.follow, known)) if arguments.follow else {}


def _place(arguments: argparse.Namespace, name: str | None) -> tuple[Settings, Sequence[Sequence[int]]]:
    """(how workers run on the local devices or for a topology, the meshes to draw from)."""
    if not name:
        settings = places.adapt_to_device_count(arguments.num_devices, Settings(arguments.deadline))
        return settings, places.list_meshes(settings)
    if arguments.num_devices:
        raise BadInput(
            "--num-devices and --topology: a topology has its own number of devices, name one of them"
        )
    topology = topologies.parse_topology(name)
    topologies.compiler(topology)
    variables = {**topologies.ENVIRONMENT, **cpu_devices(1)}
    return (
        Settings(arguments.deadline, variables, topology=topology.name),
        generator.meshes_over(topology.num_devices),
    )


def _find_other_release(arguments: argparse.Namespace, directory: Path) -> environments.Environment | None:
    """The environment of --against; None without it. `directory` may take files for as long as the hunt runs."""
    if not arguments.against:
        return None
    if arguments.topology or arguments.oracles == "one":
        raise BadInput(
            "--against compares what runs on a device: leave out --topology, and --oracles one, or --against"
        )
    if arguments.against.startswith("commit:"):
        raise BadInput(f"--against {arguments.against}: name a release of JAX, not a commit of Meshmark")
    return environments.resolve(arguments.against, sys.executable, directory, note)


def _workers(number: int | None, backend: str) -> int:
    """How many workers judge at once. Only one process can use a TPU."""
    if backend == "tpu":
        return 1
    cores = os.cpu_count() or 1
    return number or (cores if backend == "cpu" else min(cores, SHARED))


def _open(hunt: Hunt, arguments: argparse.Namespace, devices: int) -> list[logs.Line]:
    """Open the record, and return the lines that it already has."""
    lines: list[logs.Line] = []
    settings = hunt.settings
    head = logs.make_head(
        hunt.seed,
        settings.topology,
        devices,
        settings.ranks,
        hunt.weights,
        settings.backend,
        hunt.oracles,
        settings.against.name if settings.against else "",
    )
    try:
        if arguments.resume:
            lines, size = logs.read_log(arguments.resume, head)
            os.truncate(arguments.resume, size)
            hunt.out = open(arguments.resume, "a", encoding="utf-8")  # noqa: SIM115 - closed by run
            hunt.write(logs.mark_resumption())
        elif arguments.record:
            hunt.out = open(arguments.record, "x", encoding="utf-8")  # noqa: SIM115 - closed by run
            hunt.write(logs.stamp(head))
    except FileExistsError:
        raise BadInput(
            f"{arguments.record} is there already: name a new file, or go on with --resume"
        ) from None
    except OSError as error:
        raise BadInput(f"can't write {arguments.record or arguments.resume}: {error.strerror}") from None
    return lines


def _jax_version() -> str:
    from importlib.metadata import version

    return version("jax")


def show_summary(hunt: Hunt) -> None:
    """Print the table and the sums. Without a terminal each finding is one line, for the log of a nightly job."""
    if sys.stdout.isatty():
        show(summary_lines(hunt, width()))
    else:
        print("\n".join(map(printable, summary_lines(hunt))))


def summary_lines(hunt: Hunt, width: int | None = None) -> list[str]:
    """The table and the sums of a hunt, in lines of at most so many characters (None: no limit)."""
    rows = table(hunt)
    lines = text_table(HEAD, rows, width) if rows else ["no findings"]
    for group in hunt.groups.values():
        if group.cures and not group.known:
            said = f"{group.key} goes away with: {'; '.join(group.cures)}"
            lines += wrap(said, width) if width else [said]
    minutes = (time.monotonic() - hunt.start) / 60
    before = f" ({hunt.before} of them before)" if hunt.before else ""
    lines += [
        "",
        f"{hunt.judged} programs{before} in {minutes:.1f} minutes: {hunt.judging_s:.0f} s judging, of these"
        f" {hunt.waiting_s:.0f} s waiting for a worker; {hunt.shrinking_s:.0f} s shrinking;"
        f" {hunt.invalid} could not be judged",
        *not_run(hunt),
        *places.describe_surroundings(hunt.around or {}),
        f"{len(hunt.groups)} groups of findings, {sum(not g.known for g in hunt.groups.values())} new",
    ]
    return lines


def not_run(hunt: Hunt) -> list[str]:
    """For a hunt over ranks: their number. For a topology: that its numbers are interpreted, and which are not."""
    if hunt.settings.ranks > 1:
        return [f"each judged by {hunt.settings.ranks} processes together"]
    left = ", ".join(f"{name[:60]} ({number})" for name, number in hunt.not_run.most_common())
    if not hunt.settings.topology:
        on = f"on {hunt.settings.devices} of {hunt.settings.backend}"
        return [f"{on}; not run: {left}"] if left else []
    said = f"compiled for {hunt.settings.topology} and interpreted, nothing ran"
    return [said + (f"; not run, since the interpreter does not know: {left}" if left else "")]


def keep(hunt: Hunt, settings: Settings, store: Path) -> None:
    """Write the new groups as findings, named by their keys. Existing findings in the store are unchanged."""
    there = findings.known_groups(findings.read_findings(store))
    with Slot(settings) as slot:
        for group in hunt.groups.values():
            if group.known or group.key in there:
                continue
            found = {
                "jax": _jax_version(),
                "seed": hunt.seed,
                "number": group.numbers[0],
                "minute": group.minute,
                "generator": f"version {GENERATOR} of the generator",
                "suite": installation.suite(),
            }
            if settings.backend != "cpu":
                found["backend"] = settings.backend
            assert group.program and group.difference
            finding = reports.finding_of(group.key, group.program, group.difference, slot, found)
            finding.name = findings.choose_free_name(finding.name, store)
            finding.workarounds = group.cures
            reports.refresh(finding, store)
            note(f"kept {store / finding.name}")


def replay(arguments: argparse.Namespace, against: environments.Environment | None) -> int:
    """Judge one finding in every mode; returns 1 if it still occurs. A finding of a topology is compiled for that
    topology, unless the options name another one. against: the other release of JAX, which a finding of one needs."""
    finding = findings.find_finding(arguments.replay, arguments.known)
    name = arguments.topology or ("" if arguments.num_devices else finding.topology)
    settings, _ = _place(arguments, name)
    settings = replace(settings, against=against)
    marked = f", interpreted for {settings.topology}" if settings.topology else ""
    outcome = ""
    with Slot(settings) as slot:
        for line in places.describe_surroundings(places.require_compilation(slot.around())):
            note(line)
        modes = ("auto", "explicit") if settings.topology else ("auto", "explicit", "eager")
        for mode in dict.fromkeys((*modes, finding.mode, *([RELEASE] if against else []))):
            answer = slot.judge(finding.data(), (mode,))
            print(f"{mode}{marked}: {_describe_answer(answer, interpreted=bool(settings.topology))}")
            if mode == finding.mode:
                outcome = reports.outcome_of(answer)
    return _show_outcome(finding, outcome)


def _describe_answer(answer: Answer, *, interpreted: bool = False) -> str:
    """A few words on what a replay in one mode gave. interpreted: whether it was for a topology."""
    if answer.differences:
        last = answer.differences[-1]
        return f"{last['kind']}: {last['text'].splitlines()[0][:300]}"
    if answer.not_run:
        unknown = "the interpreter does not know " if interpreted else ""
        return f"not run: {unknown}{answer.not_run[0]}"
    return f"can't be judged: {answer.invalid}" if answer.invalid else "right"


def _show_outcome(finding: findings.Finding, outcome: str) -> int:
    """Print the outcome in the finding's own mode; returns 1 if the finding still occurs."""
    there = outcome in reports.OUTCOMES.values()
    print(json.dumps({"finding": finding.name, "there": there, "outcome": outcome}))
    return int(there)
