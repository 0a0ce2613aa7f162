# SPDX-License-Identifier: Apache-2.0
"""Lies about a run: its commit, release, devices and flags; and runs that were published before."""

import random

from tests.lies.telling import (
    Change,
    Lie,
    Records,
    both,
    change_runs,
    of_host,
    of_kind,
    on_facts,
    on_runs,
    suite,
)
from tests.submissions import DEVICES, facts, run_line, sampled

OF_A_COMMIT = "d" * 40
"""A commit whose package has a version, and a version of the case table."""


def judged_again(**other: object) -> Change:
    """A failing case that is judged again by another run."""

    def lie(conformance: Records, timed: Records) -> None:
        name = conformance[1]["case"]
        again = [line | {"run": "b" * 12} for line in conformance if line.get("case") == name]
        conformance[:] = [line for line in conformance if line.get("case") != name]
        conformance += [run_line("b" * 12, **other), *again]

    return lie


def renamed(new_runs: bool = False, factor: float = 1.0) -> Change:
    """Published records under a new name; with other ids, and with all times scaled."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in (*conformance, *timed):
            if new_runs:
                line["run"] = line["run"][::-1]
            if factor != 1 and "samples_s" in line and line["kind"] == "timing":
                line["samples_s"] = [float(f"{s * factor:.7g}") for s in line["samples_s"]]
            if factor != 1 and "seconds" in line:
                line["seconds"] = round(line["seconds"] * factor, 6)

    return lie


def times_exchanged(conformance: Records, timed: Records) -> None:
    """The verdicts that were published, with the times of other cases; and no timing."""
    renamed(new_runs=True)(conformance, timed)
    ends = [line for line in of_kind(conformance, "conformance") if "seconds" in line]
    seconds = [line["seconds"] for line in ends]
    for line, moved in zip(ends, [*seconds[1:], seconds[0]], strict=True):
        line["seconds"] = moved
    for line in of_kind(timed, "timing"):
        line["samples_s"] = sampled(f"{line['case']} of another machine {line['cadence']}")


def in_another_order(conformance: Records, timed: Records) -> None:
    """The samples that were published, in another order: nothing rises and falls as it did."""
    renamed(new_runs=True)(conformance, timed)
    for line in of_kind(conformance, "conformance"):
        if "seconds" in line:
            line["seconds"] = round(line["seconds"] * 1.01, 6)
    for line in of_kind(timed, "timing"):
        random.Random(line["case"]).shuffle(line["samples_s"])


def two_machines(conformance: Records, timed: Records) -> None:
    """The times of a larger machine."""
    change_runs(timed, lambda facts: {"host": {"system": "Linux", "machine": "aarch64", "cores": 96}})


def twice_the_devices(conformance: Records, timed: Records) -> None:
    """Four devices more than there were."""
    every = [{"id": i, "process": 0, "coords": []} for i in range(2 * DEVICES)]
    for lines in (conformance, timed):
        change_runs(lines, lambda facts: {"num_devices": 2 * DEVICES, "devices": every})


def two_run_lines(conformance: Records, timed: Records) -> None:
    """Two run lines of one run."""
    conformance.insert(1, run_line(started="2026-11-20T11:00:00Z"))


def half_elsewhere(conformance: Records, timed: Records) -> None:
    """Half of the cases from a run of another release."""
    versions = facts()["versions"] | {"jax": "0.11.2", "jaxlib": "0.11.2"}
    conformance.insert(1, run_line("c" * 12, facts=facts(versions=versions)))
    names = [line["case"] for line in of_kind(conformance, "conformance")]
    for line in of_kind(conformance, "conformance"):
        if line["case"] in names[: len(names) // 2]:
            line["run"] = "c" * 12


LIES: dict[str, Lie] = {
    "a nonexistent commit": Lie(
        on_facts(**suite(commit="f" * 40)), "is not one of the project's main branch"
    ),
    "a package that is not the commit's": Lie(
        on_facts(**suite(commit="e" * 40, digest="0" * 16)), "the package that ran"
    ),
    "a run dated 2020": Lie(on_runs(started="2020-03-01T00:00:00Z"), "no time at which the suite could run"),
    "a run before its commit": Lie(
        on_facts(**suite(commit="e" * 40, digest="1" * 16)), "its commit was made later"
    ),
    "a jaxlib that JAX does not run with": Lie(
        on_facts(versions=facts()["versions"] | {"jaxlib": "0.4.30"}), "jaxlib 0.4.30 with jax 0.12.0.1"
    ),
    "TPUs without a place": Lie(
        on_facts(backend="tpu", device_kind="TPU v5 lite", virtual=False), "at one place of the torus"
    ),
    "one device four times": Lie(
        on_facts(devices=[{"id": 0, "process": 0, "coords": []}] * DEVICES), "two devices have one id"
    ),
    "somebody else's records under a new name": Lie(
        renamed(), "is in the published 0.12.0.1/cpu-4", name="mine"
    ),
    "the same with other ids": Lie(
        renamed(new_runs=True), "took the same time, to the microsecond", name="mine"
    ),
    "the same with all times scaled": Lie(
        renamed(True, 1.02), "rise and fall as those of the published", name="mine"
    ),
    "a failing case judged again under other flags": Lie(
        judged_again(facts=facts(flags={"XLA_FLAGS": "--xla_x"})), "the runs differ in flags"
    ),
    "a failing case judged again alone": Lie(
        judged_again(selection={"profile": "standard", "operations": ["put_get"]}),
        "claims L0, which is not met",
    ),
    "times of another machine": Lie(two_machines, "runs of 2 machines"),
    "more devices than there were": Lie(twice_the_devices, "claims L0, which is not met"),
    "an old table, with fewer checks": Lie(
        both(on_facts(**suite(commit=OF_A_COMMIT)), on_runs(table=1)),
        "`table` is 1, and its commit has version",
    ),
    "another version of the suite": Lie(
        on_facts(**suite(commit=OF_A_COMMIT, version="0.0.9")), "suite version '0.0.9', and its commit has"
    ),
    "a run of the day after tomorrow": Lie(
        on_runs(started="2099-01-01T00:00:00Z"), "no time at which the suite could run"
    ),
    "a JAX that this Python does not run": Lie(
        on_facts(versions=facts()["versions"] | {"python": "3.11.7"}), "JAX 0.12.0.1 on Python 3.11.7"
    ),
    "a chip's name on a CPU": Lie(
        on_facts(device_kind="TPU v6 lite"), "devices of kind 'TPU v6 lite' on backend 'cpu'"
    ),
    "published verdicts, the times of cases exchanged": Lie(
        times_exchanged, "times of cases are those of the published 0.12.0.1/cpu-4, under other", name="mine"
    ),
    "a published run, its samples in another order": Lie(
        in_another_order, "have the samples of the published 0.12.0.1/cpu-4, in another order", name="mine"
    ),
    "two run lines of one run": Lie(two_run_lines, "has two run lines"),
    "half of the cases from another release": Lie(half_elsewhere, "the runs differ in jax"),
    "cases of another selection": Lie(
        on_runs(selection={"profile": "smoke", "levels": ["L0"]}), "the run chose levels L0"
    ),
    "virtual devices that no flag makes": Lie(on_facts(flags={}), "no flag that makes them"),
    "virtual devices called real": Lie(on_facts(virtual=False), "`virtual` is not what the backend says"),
    "a backend's name on CPU devices": Lie(on_facts(backend="tpu"), "`virtual` is not what the backend says"),
    "a compile-only run as one of devices": Lie(on_facts(topology="v5e:2x4"), "compile-only"),
    "one process called two": Lie(on_facts(num_processes=2), "2 processes"),
    "each program repeated 100 times": Lie(
        lambda conformance, timed: on_runs(repeat=100)(conformance, []), "and the run repeats each 100 times"
    ),
    "a capability of which nothing was judged": Lie(
        on_facts(capabilities={"ragged": "has"}), "has the capability ragged, and judged nothing of it"
    ),
    "timed with fast arithmetic": Lie(
        lambda conformance, timed: on_facts(
            flags=facts()["flags"] | {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}
        )([], timed),
        "the runs differ in departures",
    ),
    "timed under another Python": Lie(
        lambda conformance, timed: on_facts(versions=facts()["versions"] | {"python": "3.13.0"})([], timed),
        "the runs differ in versions.python",
    ),
    "devices below zero": Lie(
        on_facts(devices=[{"id": -1 - i, "process": 0, "coords": []} for i in range(DEVICES)]),
        "an id below 0",
    ),
    "flags that make other devices": Lie(
        on_facts(flags={"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}), "and its flags make 8"
    ),
    "more usable cores than there are": Lie(of_host(usable=96), "of which a process may use 96"),
    "flags that are in a file": Lie(on_facts(flags={"XLA_FLAGS": "<path>"}), "the name of a file"),
    "a host without a core": Lie(of_host(cores=0), "a host of 0 cores"),
    "a group of one process": Lie(on_facts(group={"devices": 2}), "`group` is not of 1 processes"),
    "a capability that nobody knows": Lie(
        on_facts(capabilities={"telepathy": "lacks: patience"}), "of a capability 'telepathy', which no probe"
    ),
    "an answer that no probe gives": Lie(on_facts(capabilities={"ragged": "maybe"}), "says 'maybe' of"),
    "functions of NumPy that are not NumPy's": Lie(
        on_facts(surroundings={"numpy.allclose": "replaced by a function of sitecustomize.py"}),
        "what is not JAX's or NumPy's own .numpy.allclose.",
    ),
    "a file of JAX that somebody changed": Lie(
        on_facts(surroundings={"jax/_src/api.py": "not as installed: it was changed after its installation"}),
        "what is not JAX's or NumPy's own .jax/_src/api.py.",
    ),
    "another operating system": Lie(of_host(system="Plan 9"), "'Plan 9', on which JAX does not run"),
}
