# SPDX-License-Identifier: Apache-2.0
"""Reads from a run line what identifies a run: processes, devices, topology, environment, and version of the case
table.

Runs over one process and over several differ, also with equally many devices: they have other cases, another level and
other times. All code that names or distinguishes runs uses this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshmark.core.escaping import plain
from meshmark.records.run_definition import RunFacts

OF_ONE_RANK = (
    "JAX_PROCESS_",
    "JAX_COORDINATOR_",
    "JAX_LOCAL_",
    "JAX_PARTITION_INDEX",
    "JAX_SLICE_INDEX",
    "JAX_NUM_PROCESSES",
)
"""Prefixes of JAX's variables that differ from rank to rank, and from start to start, by their nature."""

SETTINGS = ("selection", "seed", "repeat", "timing", "table")
"""The fields, beside the environment, that are equal in all run lines of one run; a line without `table` means 1."""

COMPILER_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
"""The variables with options of the compiler."""

CHANGE_NUMBERS = (
    *("LD_AUDIT", "LD_PRELOAD", "GLIBC_TUNABLES", "NVIDIA_TF32_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE"),
    *("DNNL_DEFAULT_FPMATH_MODE", "NPY_DISABLE_CPU_FEATURES", "NPY_PROMOTION_STATE"),
)
"""The variables by which libraries compute otherwise, or others are loaded before them: a clock too may be another."""


def of_every_rank(name: str) -> bool:
    """Whether a variable must be the same on all ranks of a run: it changes programs or numbers."""
    plain = name.startswith(("JAX_", "XLA_")) and not name.startswith(OF_ONE_RANK)
    return plain or name in COMPILER_FLAGS or name in CHANGE_NUMBERS


MAKE_DEVICES = "--xla_force_host_platform_device_count"
"""The option that makes virtual devices, and changes no number."""

FACTS = (
    *("backend", "device_kind", "num_devices", "num_processes", "virtual", "topology", "layout"),
    *("group", "compiler", "versions", "host"),
)


def environment_fields(run: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are equal in all run lines of one environment: devices, versions of packages, flags,
    surroundings, host, and the suite's version, commit, clean state and digest. Fields that a run line lacks are None,
    or empty."""
    facts = run.get("facts") or {}
    suite, flags = facts.get("suite") or {}, facts.get("flags")
    kept = {k: v for k, v in flags.items() if not k.startswith(OF_ONE_RANK)} if flags else {}
    return {
        **{name: facts.get(name) for name in FACTS},
        "flags": kept,
        "surroundings": facts.get("surroundings") or {},
        **{f"suite {name}": suite.get(name) for name in ("version", "commit", "clean", "digest")},
    }


def departures(facts: Mapping[str, Any]) -> list[str]:
    """The differences from JAX's defaults that may change the numbers or programs of a run: settings, replaced
    functions, flags of the compiler, and variables of libraries. Escaped texts such as `jax_default_matmul_precision =
    float32`."""
    own, flags = facts.get("surroundings") or {}, facts.get("flags") or {}
    found = [f"{plain(name)} = {plain(value)}" for name, value in sorted(own.items())]
    for name in COMPILER_FLAGS:
        given = [one for one in str(flags.get(name, "")).split() if not one.startswith(MAKE_DEVICES)]
        found += [f"{name} = {plain(' '.join(given))[:200]}"] if given else []
    return found + [f"{n} = {plain(flags[n])[:200]}" for n in CHANGE_NUMBERS if str(flags.get(n, "")).strip()]


def settings(run: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, beside the environment, that are equal in all run lines of one run."""
    return {name: run.get(name, 1 if name == "table" else None) for name in SETTINGS}


def spell_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first field of `one` that differs in `other`, and both values: "flags ('...' and '...')"; "" for none. For a
    field that is an object, the name includes the entry: "versions.python"."""
    for name, was in one.items():
        now = other.get(name)
        if was == now:
            continue
        if isinstance(was, dict) and isinstance(now, dict):
            inner = next(k for k in (*was, *now) if was.get(k) != now.get(k))
            name, was, now = f"{name}.{inner}", was.get(inner), now.get(inner)
        return f"{plain(name)} ({str(was)[:100]!a} and {str(now)[:100]!a})"
    return ""


def processes(facts: RunFacts) -> int:
    """The number of processes over which the programs of a run ran. 1 if nothing ran (a topology's processes are its
    hosts), or if the facts have no number."""
    number = facts.get("num_processes")
    return number if type(number) is int and number > 1 and not facts.get("topology") else 1


def table_version(run: Mapping[str, Any]) -> Any:
    """The version of the case table that made the run's cases; 1 for a run line that names none."""
    return run.get("table", 1)


def place_of(facts: Mapping[str, Any]) -> str:
    """The topology and its layout in the form of case ids (v5e:2x4, v5e:2x4-physical); "" for real devices."""
    topology, layout = str(facts.get("topology") or ""), str(facts.get("layout", "plain"))
    return topology if not topology or layout == "plain" else f"{topology}-{layout}"


def devices_per_process(facts: RunFacts) -> int:
    """The number of devices per process; 0 if the processes can't have equally many."""
    number, over = facts.get("num_devices"), processes(facts)
    return number // over if type(number) is int and number % over == 0 else 0


def device_count(facts: RunFacts) -> str:
    """The number of devices as escaped text: 8, or over several processes 2 processes × 4."""
    over = processes(facts)
    if over == 1:
        return plain(facts.get("num_devices"))
    return f"{over} processes × {devices_per_process(facts) or plain(facts.get('num_devices'))}"


def single_rank(run: Mapping[str, Any]) -> str:
    """ "rank 0 alone" if one rank of several wrote the run line alone; else ""."""
    return f"rank {plain(run['rank'])} alone" if "rank" in run else ""
