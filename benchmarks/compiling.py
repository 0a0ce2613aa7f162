# SPDX-License-Identifier: Apache-2.0
"""The exact counters of the compiled programs, and the time that compiling takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks import environment, table


class Counters:
    """Counters of compiled programs, per device. The same compiler gives the same numbers, so any change is real:
    compare them with `--factor 1`. More is worse. MESHMARK_TOPOLOGY names a topology to compile for instead of the
    local devices (benchmarks.environment)."""

    params = table.counted()
    param_names = ("case",)
    timeout = 60.0

    def setup_cache(self) -> dict[str, Any]:
        """The counters of all cases, compiled in one process; for a case that has none, why not."""
        return each(table.counted(), counters)

    setup_cache.timeout = 1800.0  # type: ignore[attr-defined]

    def setup(self, cache: dict[str, Any], case_id: str) -> None:
        """Skip, or fail, for the reason that was found."""
        attach(cache[case_id])

    def track_collectives(self, cache: dict[str, Any], case_id: str) -> int:
        """Collectives in one execution."""
        return known(cache[case_id]["collectives"])

    def track_wire_bytes(self, cache: dict[str, Any], case_id: str) -> float:
        """Bytes that a device sends."""
        return known(cache[case_id]["wire_bytes"])

    def track_flops(self, cache: dict[str, Any], case_id: str) -> float:
        """Floating-point operations, as the compiler counts them."""
        return known(cache[case_id]["flops"])

    def track_temp_bytes(self, cache: dict[str, Any], case_id: str) -> int:
        """Temporary memory."""
        return known(cache[case_id]["temp_bytes"])

    track_collectives.unit = "collectives"  # type: ignore[attr-defined]
    track_wire_bytes.unit = "bytes"  # type: ignore[attr-defined]
    track_flops.unit = "flops"  # type: ignore[attr-defined]
    track_temp_bytes.unit = "bytes"  # type: ignore[attr-defined]


class Schedules:
    """Exact counters of the schedules of the programs of `meshmark weather`. More is worse. CPU programs have no
    asynchronous collectives. With MESHMARK_TOPOLOGY, TPU or GPU programs are compiled, which have them."""

    params = table.weather()
    param_names = ("case",)
    timeout = 60.0

    def setup_cache(self) -> dict[str, Any]:
        """The schedule counters of all programs, compiled in one process; for one that has none, why not."""
        return each(table.weather(), schedules)

    setup_cache.timeout = 1800.0  # type: ignore[attr-defined]

    def setup(self, cache: dict[str, Any], case_id: str) -> None:
        """Skip, or fail, for the reason that was found."""
        attach(cache[case_id])

    def track_memory_bytes(self, cache: dict[str, Any], case_id: str) -> int:
        """Memory that a device needs: arguments, outputs and temporaries."""
        return known(cache[case_id]["memory_bytes"])

    def track_collective_runs(self, cache: dict[str, Any], case_id: str) -> int:
        """Collectives in one execution."""
        return known(cache[case_id]["collective_runs"])

    def track_waiting(self, cache: dict[str, Any], case_id: str) -> int:
        """Asynchronous collectives with nothing to do between start and done."""
        return known(cache[case_id]["waiting"])

    def track_whole(self, cache: dict[str, Any], case_id: str) -> int:
        """Collectives that are not split into a start and a done, so that no work can hide them."""
        return known(cache[case_id]["whole"])

    def track_wire_bytes(self, cache: dict[str, Any], case_id: str) -> float:
        """Bytes that a device sends."""
        return known(cache[case_id]["wire_bytes"])

    def track_inserted(self, cache: dict[str, Any], case_id: str) -> int:
        """Collectives with the partitioner's mark, which texts have since JAX 0.11."""
        return known(cache[case_id]["inserted"])

    def track_decomposed(self, cache: dict[str, Any], case_id: str) -> int:
        """Permutes that became a send and a receive, and those of rings that a product was split into."""
        return known(cache[case_id]["decomposed"])

    def track_idle_copies(self, cache: dict[str, Any], case_id: str) -> int:
        """Asynchronous copies with nothing to do between start and done."""
        return known(cache[case_id]["idle_copies"])

    def track_temp_bytes(self, cache: dict[str, Any], case_id: str) -> int:
        """Temporary memory."""
        return known(cache[case_id]["temp_bytes"])

    def track_turns(self, cache: dict[str, Any], case_id: str) -> int:
        """Turns of all loops, each in one run of its computation; skipped where the text does not say one of them."""
        return known(cache[case_id]["turns"])

    def track_host_transfers(self, cache: dict[str, Any], case_id: str) -> int:
        """Kinds of transfers between host and device inside the program."""
        return known(cache[case_id]["host_transfers"])

    def track_rematerialized(self, cache: dict[str, Any], case_id: str) -> int:
        """Instructions that are computed a second time to save memory."""
        return known(cache[case_id]["rematerialized"])

    for _unit, _names in {
        "bytes": ("memory_bytes", "wire_bytes", "temp_bytes"),
        "collectives": ("collective_runs", "waiting", "whole", "inserted", "decomposed"),
        "copies": ("idle_copies",),
        "turns": ("turns",),
        "kinds of transfers": ("host_transfers",),
        "instructions": ("rematerialized",),
    }.items():
        for _name in _names:
            locals()[f"track_{_name}"].unit = _unit
    del _unit, _names, _name


def each(case_ids: Iterable[str], found_of: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """The counters of each case, or the reason why it has none."""
    found: dict[str, Any] = {}
    for case_id in case_ids:
        try:
            found[case_id] = found_of(case_id)
        except NotImplementedError as error:
            found[case_id] = {"skip": str(error)}
        except environment.Mislabelled:
            raise
        except Exception as error:  # one program that does not compile must not fail the others
            found[case_id] = {"error": f"{type(error).__name__}: {error}"}
    return found


def attach(counted: dict[str, Any]) -> None:
    """Skip or fail for the reason in `counted`, if it has one."""
    if "skip" in counted:
        raise NotImplementedError(counted["skip"])
    if "error" in counted:
        raise RuntimeError(counted["error"])


def known(value: Any) -> Any:
    """The counter; raises asv's skip if the backend does not give it."""
    if value is None:
        from asv_runner.benchmarks.mark import SkipNotImplemented

        raise SkipNotImplemented("the backend gives no such counter")
    return value


def counters(case_id: str) -> dict[str, Any]:
    """The tracked counters of one case; NotImplementedError if the commit has no such case."""
    compile_only = environment.module("compile_only", "counters")
    devices = environment.compile_only_devices()
    data = compile_only.counters(environment.case(case_id), devices)
    return {
        "collectives": sum(c["trips"] or 1 for c in data["collectives"]),
        **{name: data[name] for name in ("wire_bytes", "flops", "temp_bytes")},
    }


SCHEDULED = (
    *("memory_bytes", "temp_bytes", "collective_runs", "wire_bytes"),
    *("inserted", "decomposed", "idle_copies", "rematerialized"),
)
"""The tracked counters that a record of a schedule has under the same name."""


def schedules(case_id: str) -> dict[str, Any]:
    """The tracked schedule counters of one case; NotImplementedError if the commit reads no schedules."""
    scheduling = environment.module("scheduling", "counters")
    devices = environment.compile_only_devices()
    case = environment.case(case_id)
    compiled = environment.module("programs", "Program").Program(case, devices).compile()
    data = scheduling.counters(case, compiled)
    return {
        "waiting": sum(pair["synchronous"] for pair in data["pairs"]),
        "whole": sum(data["collectives"].values()) - sum("bytes" in pair for pair in data["pairs"]),
        "turns": None if None in data["loops"] else sum(data["loops"]),
        "host_transfers": len(data["host"]),
        **{name: data[name] for name in SCHEDULED},
    }


class Compile:
    """Seconds to trace, lower and compile a program, without the persistent cache."""

    params = table.few()
    param_names = ("case",)
    number = 1
    repeat = (5, 10, 10.0)
    rounds = 1
    warmup_time = 0.0
    timeout = 300.0

    def setup(self, case_id: str) -> None:
        """Attach the case, or skip."""
        self.case = environment.case(case_id)
        self.devices = environment.devices()

    def time_compile(self, case_id: str) -> None:
        """One new program, compiled."""
        environment.module("programs", "Program").Program(self.case, self.devices).compile()
