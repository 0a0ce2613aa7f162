# SPDX-License-Identifier: Apache-2.0
"""Lies in single fields that are visible without a case; the audit of fields (tests.studies.field_audit) found them."""

from tests.lies.of_places import in_ceilings, in_timings
from tests.lies.telling import (
    GLOBAL,
    Change,
    Lie,
    Records,
    both,
    in_one_case,
    of_host,
    of_kind,
    of_versions,
    on_facts,
    on_runs,
)


def without(name: str) -> Change:
    """Timings without one of their fields."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "timing"):
            line.pop(name, None)

    return lie


def in_first(**fields: object) -> Change:
    """Other fields in one of several timings of a program."""

    def lie(conformance: Records, timed: Records) -> None:
        of_kind(timed, "timing")[0].update(fields)

    return lie


def unclosed(conformance: Records, timed: Records) -> None:
    """No line says how long its cell took."""
    for line in of_kind(timed, "timing"):
        line.pop("seconds", None)


def slower_control(conformance: Records, timed: Records) -> None:
    """A control that takes a hundred times as long, so that nothing looks slow beside it."""
    for line in of_kind(timed, "timing"):
        line["control_s"] = [s * 100 for s in reversed(line["samples_s"])]


def slower_ceilings(conformance: Records, timed: Records) -> None:
    """Ceilings without their fast samples, of which shares look better."""
    for line in of_kind(timed, "ceiling"):
        kept = sorted(line["samples_s"])[len(line["samples_s"]) // 2 :]
        line |= {"value": line["value"] * min(line["samples_s"]) / kept[0], "samples_s": kept[::-1]}


def of_a_collective(**fields: object) -> Change:
    """Another collective in timings."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "timing"):
            line["communication"] = [one | fields for one in line["communication"]]

    return lie


def judged_as_timed(conformance: Records, timed: Records) -> None:
    """A run that says that it timed, and judged."""
    of_kind(conformance, "run")[0]["selection"]["timed"] = True


def with_settings(**fields: object) -> Change:
    """Other settings of the run that times."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "run"):
            line["timing"] = line["timing"] | fields

    return lie


def without_setting(name: str) -> Change:
    """A run that times, without one of its settings."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "run"):
            line["timing"] = {k: v for k, v in line["timing"].items() if k != name}

    return lie


LIES: dict[str, Lie] = {
    "arguments that are smaller than the plan's": Lie(
        in_timings(argument_bytes=8), "`argument_bytes` is 8, and the plan has"
    ),
    "results of another size": Lie(
        in_timings(output_bytes=10**9), "`output_bytes` is 1000000000, and the plan"
    ),
    "one program with two numbers of operations": Lie(
        in_first(flops=12.0), "`flops` is not that of the same program in line"
    ),
    "one program that needs memory once": Lie(
        in_first(temp_bytes=12), "`temp_bytes` is not that of the same program in line"
    ),
    "timings without their collectives": Lie(without("communication"), "passes without `communication`"),
    "timings of programs that nobody compiled": Lie(without("compile_s"), "passes without `compile_s`"),
    "timings that give a reason": Lie(in_timings(reason="wrong"), "passes, and gives a reason, 'wrong'"),
    "timings that pass by another check": Lie(in_timings(check="replicas"), "passes by its check replicas"),
    "timings that tell of gathers": Lie(in_timings(told=["x"]), "with `told`, which a timing does not have"),
    "a side of a comparison in a run that compares nothing": Lie(
        in_timings(environment="A"), "is one side of a comparison, and its run is not"
    ),
    "cells that nobody closed": Lie(unclosed, "the cell of psum is not closed by a line"),
    "cells that took no time": Lie(in_timings(seconds=0.03), "its cell took 0.03 s, and its samples"),
    "a control that is another program": Lie(slower_control, "the same program, takes 1.* times as long"),
    "a collective that HLO does not have": Lie(of_a_collective(kind="all-love"), "has a 'all-love' over"),
    "a collective over more devices than there are": Lie(
        of_a_collective(groups="2x4"), "has a all-reduce over 2x4 of 4 devices"
    ),
    "a ceiling in another unit": Lie(in_ceilings(unit="B/s"), "largest matmul: is in B/s"),
    "ceilings without their fast samples": Lie(slower_ceilings, "25 samples of .* s: sampling stops at"),
    "copies of narrow numbers": Lie(in_ceilings(dtype="bfloat16"), "is of bfloat16, and float32 is copied"),
    "a sealed line": Lie(in_ceilings(so_far="0" * 16), "not as the run wrote|which no published line has"),
    "a check without its operations": Lie(
        lambda conformance, timed: of_kind(conformance, "conformance", check="communication")[0].pop("flops"),  # type: ignore[arg-type, return-value]
        "passes its communication check without `flops`",
    ),
    "more excess than there is": Lie(
        in_one_case("communication", GLOBAL, excess_bytes=1e9), "and 1e.09 B more than it must"
    ),
    "cases that were not run, on devices": Lie(
        in_one_case("execute", GLOBAL, verdict="not_run", reason="later"), "was not run, and the run is on"
    ),
    "a commit that only a comparison names": Lie(
        on_runs(commit="0" * 40), "`commit` of a run that is not one side"
    ),
    "cases that were named one by one": Lie(
        on_runs(selection={"profile": "standard", "timed": False, "cases": ["a"]}),
        "`selection.cases` of a run that is not one side",
    ),
    "a selection of topologies": Lie(
        on_runs(selection={"profile": "standard", "timed": False, "topology": ["v5e:2x4"]}),
        "`selection.topology` of a run on devices",
    ),
    "facts of other places": Lie(
        on_facts(others=[{}]), "a run over several topologies makes no statement|`others` of a run"
    ),
    "a run that judges, of timed cases": Lie(judged_as_timed, "judges cases, and its selection is of timed"),
    "settings of timing in a run that judges": Lie(
        on_runs(timing={"cadences": ["isolated"]}), "`timing` is that of a run that judges cases"
    ),
    "a group of ranks in one process": Lie(on_runs(group="0" * 12), "`group` of a run of one process"),
    "an architecture of one's own": Lie(of_host(machine="pdp11"), "a host of architecture 'pdp11'"),
    "GPUs of a Mac": Lie(
        both(on_facts(backend="gpu", device_kind="NVIDIA H100", virtual=False), of_host(system="Darwin")),
        "backend gpu on Darwin",
    ),
    "JAX without ml_dtypes": Lie(
        lambda conformance, timed: (
            [of_versions()(conformance, timed)]  # type: ignore[arg-type, return-value]
            and [
                line["facts"]["versions"].pop("ml_dtypes", None)
                for line in of_kind([*conformance, *timed], "run")
            ]
        ),
        "`versions` is without ml_dtypes",
    ),
    "a capability that no probe found": Lie(
        both(
            on_facts(capabilities={"x64": "lacks: x"}),
            on_runs(selection={"profile": "standard", "timed": False, "present": ["x64"]}),
        ),
        "`selection.present` has x64, and its capabilities say lacks",
    ),
    "times of cases that the selection does not give": Lie(
        on_runs(selection={"profile": "quick", "timed": True, "operations": ["matmul"]}),
        "is not what the selection of its run gives",
    ),
    "a run that sampled on behind its time": Lie(
        with_settings(seconds=0.005), "took .* s of the .* s that the run gives, and another one was taken"
    ),
    "a run that gave no time": Lie(with_settings(seconds=0.0), "times cases for 0.0 s"),
    "a cadence twice": Lie(with_settings(cadences=["isolated", "isolated"]), "`timing.cadences` is"),
    "more samples at least than at most": Lie(with_settings(least=2000), "takes 2000 samples at least"),
    "pairs of a run that compares nothing": Lie(
        with_settings(pairs=[6]), "`timing.pairs` of a run that is no"
    ),
    "settings without the number of samples": Lie(without_setting("most"), "`timing.most` is missing"),
    "a side of a comparison that nobody made": Lie(
        on_runs(environment="A"), "its file compares nothing|which judges no cases"
    ),
    "scratch memory that no library asks for": Lie(
        in_timings(workspace_bytes=0), "`workspace_bytes` is 0, of .* on cpu"
    ),
    "a check with scratch memory": Lie(
        in_one_case("communication", workspace_bytes=None), "`workspace_bytes` is None"
    ),
    "wrong runs of a program that ran once": Lie(
        in_one_case("numbers", wrong_runs=0), "has `wrong_runs`, and its program ran once"
    ),
    "the same told twice": Lie(
        in_one_case("communication", GLOBAL, told=["the compiler says: x"] * 2), "tells the same twice"
    ),
    "times of devices without their devices": Lie(
        in_timings(cadence="device"), "`per_device_s` has 0 devices of 4"
    ),
    "timings without a precision": Lie(without("precision"), "precision 'None' of a case at"),
    "a host without cores": Lie(
        lambda conformance, timed: [  # type: ignore[arg-type, return-value]
            line["facts"].update(host={"system": "Linux", "machine": "x86_64"})
            for line in of_kind([*conformance, *timed], "run")
        ],
        "`host.cores` is missing",
    ),
    "capabilities that were found without a probe": Lie(
        on_runs(selection={"profile": "standard", "timed": False, "present": ["x64"]}),
        "`selection.present` has x64, and its capabilities say None",
    ),
    "cases of a dtype that the run did not choose": Lie(
        on_runs(selection={"profile": "standard", "timed": False, "dtypes": ["int8"]}),
        "the run chose dtypes int8",
    ),
    "cases of a size that the run did not choose": Lie(
        on_runs(selection={"profile": "standard", "timed": False, "sizes": ["64KiB"]}),
        "the run chose sizes 64KiB",
    ),
    "a third GPU beside the first": Lie(
        on_facts(
            backend="gpu",
            device_kind="NVIDIA H100",
            virtual=False,
            devices=[{"id": i, "process": 0, "coords": []} for i in (0, 2, 3, 4)],
        ),
        "GPUs of one process with the ids",
    ),
}
