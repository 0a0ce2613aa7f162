# SPDX-License-Identifier: Apache-2.0
"""Checks that the facts of a run fit together: devices, backend and versions as JAX gives them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from meshmark.devices import chip_names, chips, installed, surroundings, variables
from meshmark.publish.review import AS_WRITTEN
from meshmark.records import run_line
from meshmark.records.product_definition import ProductData
from meshmark.records.run_definition import RunFacts, RunLine, Versions

OLDEST_PYTHON = {"0.10": Version("3.11"), "0.11": Version("3.12")}
"""The oldest Python version that each JAX release needs, from that release on."""

NEEDED = {
    "0.10": {"numpy": Version("2.0"), "ml_dtypes": Version("0.5")},
    "0.11": {"numpy": Version("2.1"), "ml_dtypes": Version("0.5")},
    "0.12": {"numpy": Version("2.2"), "ml_dtypes": Version("0.5")},
}
"""The oldest package versions that each JAX release needs, from that release on, as its package metadata says."""

OLDEST_JAXLIB = {
    "0.10.2": Version("0.10.1"),
    "0.11.2": Version("0.11.2"),
    "0.12.0.1": Version("0.11.2"),
}
"""The oldest jaxlib that these releases accept, as their package metadata says. For other releases, only the first two
version numbers must agree."""

PLATFORMS = {"cpu": "cpu", "tpu": "tpu", "gpu": "gpu", "cuda": "gpu", "rocm": "gpu"}
"""The backend of each platform that JAX_PLATFORMS can name; other plugins have other names."""

SETTINGS = {
    "JAX_ENABLE_X64": ("", "0", "false", "f", "no", "n", "off"),
    "JAX_DISABLE_JIT": ("", "0", "false", "f", "no", "n", "off"),
    "JAX_DEFAULT_MATMUL_PRECISION": ("", "none", "default"),
    "JAX_NUMPY_DTYPE_PROMOTION": ("", "standard"),
    "JAX_DEFAULT_PRNG_IMPL": ("", "threefry2x32"),
}
"""The environment variables that change numbers, each with the values that change nothing."""

SHOWN = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""The variables that limit which GPUs a process sees."""

SYSTEMS = ("Linux", "Darwin", "Windows")
"""The systems that JAX is built for, as Python names them."""


def _makes_devices(flag: tuple[str, Any]) -> bool:
    """Whether a flag can have made virtual devices."""
    return flag[0] == "JAX_NUM_CPU_DEVICES" or "xla_force_host_platform_device_count" in str(flag[1])


def _asked(flags: Mapping[str, Any]) -> int | None:
    """How many CPU devices the flags ask for; None if they do not give a number."""
    said = str(flags.get("JAX_NUM_CPU_DEVICES", ""))
    found = re.findall(r"xla_force_host_platform_device_count=(\d{1,6})\b", str(flags.get("XLA_FLAGS", "")))
    if re.fullmatch(r"\d{1,6}", said):
        return int(said)
    return int(found[-1]) if found else None


def foreign(facts: RunFacts) -> list[str]:
    """What in a run is not original JAX or NumPy: replaced functions, and files that differ from the installed ones."""
    around = facts.get("surroundings") or {}
    return [
        name for name, value in around.items() if value.startswith((surroundings.PATCHED, installed.ALTERED))
    ]


def find_impossible_facts(facts: RunFacts, marked: bool = False) -> Iterator[str]:
    """Yields what is impossible in the facts, one line each with the correction. marked: product.yaml concedes
    changes."""
    if not marked and (strange := foreign(facts)):
        told = f"ran with what is not JAX's or NumPy's own ({', '.join(strange)[:80]})"
        yield f"{told}: run without it, or submit with --mark"
    devices, kind, backend = facts["devices"], facts["device_kind"], facts["backend"]
    if len({device["id"] for device in devices}) < len(devices):
        yield f"two devices have one id: {AS_WRITTEN}"
    if any(device["id"] < 0 for device in devices):
        yield f"a device has an id below 0: {AS_WRITTEN}"
    cores = (facts.get("host") or {}).get("cores")
    if cores is not None and not (type(cores) is int and cores > 0):
        yield f"a host of {str(cores)[:20]} cores: {AS_WRITTEN}"
    usable, quota = ((facts.get("host") or {}).get(name) for name in ("usable", "quota"))
    if type(usable) is int and type(cores) is int and not 0 < usable <= cores:
        yield f"a host of {cores} cores, of which a process may use {str(usable)[:20]}: {AS_WRITTEN}"
    if quota is not None and not (isinstance(quota, (int, float)) and quota > 0):
        yield f"a host that grants the time of {str(quota)[:20]} cores: {AS_WRITTEN}"
    system = (facts.get("host") or {}).get("system")
    if system is not None and system not in SYSTEMS:
        yield f"a host with {str(system)[:40]!a}, on which JAX does not run: {AS_WRITTEN}"
    if not kind.isascii():
        yield f"devices of kind {kind[:40]!a}, with letters that no driver writes: {AS_WRITTEN}"
    elif (near := chips.spelled_otherwise(kind)) or " ".join(kind.split()) != kind:
        yield f"devices of kind {kind[:40]!a}, which no driver writes so{f' ({near})' if near else ''}: {AS_WRITTEN}"
    if (kind == "cpu") is not (backend == "cpu"):
        yield f"devices of kind {kind[:40]!a} on backend {backend[:20]!a}: {AS_WRITTEN}"
    each = facts["num_devices"] // max(1, facts["num_processes"])
    if facts.get("virtual") and each > 1 and not any(map(_makes_devices, facts["flags"].items())):
        yield f"{each} CPU devices of one process, and no flag that makes them: {AS_WRITTEN}"
    asked = _asked(facts["flags"])
    if facts.get("virtual") and asked not in (None, each):
        yield f"{each} CPU devices of one process, and its flags make {asked}: {AS_WRITTEN}"
    yield from _of_cpus(facts)
    yield from _of_variables(facts)
    chip = chips.chip_of(kind)
    if chip is not None and chip.network == "torus":
        coordinates = [tuple(device.get("coords") or ()) for device in devices]
        most = coordinates.count(max(coordinates, key=coordinates.count))
        if () in coordinates or most > chip.devices_per_chip:
            yield f"{most} devices of {chip.name} at one place of the torus, or without a place: {AS_WRITTEN}"
    yield from _of_versions(facts["versions"])


SAID: tuple[Literal["name", "title", "hardware"], ...] = ("name", "title", "hardware")
"""The texts of product.yaml that say what the product is. Every page has them as headings, or beside the devices."""


_SOLD_AS = [
    name.lower()
    for chip in chips.CHIPS.values()
    for name in chip.sold_as
    if name.isascii() and name.isalnum()
]

_COUNTED = re.compile(
    rf"(?<![a-z0-9])(cpu|gpu|tpu|{'|'.join([*chips.CHIPS, *_SOLD_AS])})-(\d{{1,6}}(?:x\d{{1,6}})*)(?![a-z0-9])"
)
"""Matches the kind and the number of devices in a product's name: v5e-8, or v5e-2x4 over two processes."""


KINDS_OF_DEVICES = {"cpu", "gpu", "tpu"}
"""The kinds of devices that a product's name can say, and the backends that JAX names so."""


def _find_other_numbers(product: ProductData, runs: Mapping[str, RunLine]) -> Iterator[str]:
    """Yields where the product's name says another number or kind of devices than its records have. Makers of TPUs
    count two cores for a device."""
    facts = next(iter(runs.values()))["facts"]
    number, over = facts["num_devices"], run_line.processes(facts)
    for match in _COUNTED.finditer(product["name"]):
        said = [int(part) for part in match[2].split("x")]
        right = math.prod(said) in ((number, 2 * number) if facts["backend"] == "tpu" else (number,))
        if not right or (match[1] == "cpu" and len(said) > 1 and said[0] != over):
            there = (
                f"{number} devices over {over} processes" if over > 1 else f"{number} devices of one process"
            )
            yield f"`name` says {match[0]}, and the records are of {there}: name what ran"
        elif facts["backend"] in KINDS_OF_DEVICES and match[1] in KINDS_OF_DEVICES - {facts["backend"]}:
            there = f"{number} devices on backend {facts['backend']}"
            yield f"`name` says {match[0]}, and the records are of {there}: name what ran"


def find_chips_without_run(product: ProductData, runs: Mapping[str, RunLine]) -> Iterator[str]:
    """Yields a chip that the words of product.yaml name and that no run has. It does not check topologies, on which
    nothing ran, or words that name no known chip."""
    if any(run["facts"].get("topology") for run in runs.values()):
        return
    yield from _find_other_numbers(product, runs)
    kinds = {str(run["facts"]["device_kind"]) for run in runs.values()}
    there = {chip.name for kind in kinds if (chip := chips.chip_of(kind))}.union(
        *map(chip_names.named_in, kinds)
    )
    kind = next(iter(runs.values()))["facts"]["device_kind"]
    for what in SAID:
        said = product.get(what, "")
        others = chip_names.others_in(said) if kinds == {"cpu"} else set()
        if named := (chip_names.named_in(said) - there) | others:
            told = f"`{what}` names {', '.join(sorted(named))}"
            yield f"{told}, and the records are of {kind[:40]!a}: name what ran"


def _of_cpus(facts: RunFacts) -> Iterator[str]:
    """Yields what is impossible in CPU devices. JAX numbers those of one process from 0 and gives them no
    coordinates."""
    if facts["backend"] != "cpu" or facts.get("topology"):
        return
    ids = [device["id"] for device in facts["devices"]]
    if ids != sorted(ids) or (facts["num_processes"] == 1 and ids != list(range(len(ids)))):
        yield f"CPU devices with the ids {str(ids)[:60]}, which JAX does not give: {AS_WRITTEN}"
    if any(device.get("coords") for device in facts["devices"]):
        yield f"a CPU device with a place: {AS_WRITTEN}"


def _of_variables(facts: RunFacts) -> Iterator[str]:
    """Yields where the environment variables of a run contradict its facts."""
    flags, backend, around = facts["flags"], facts["backend"], facts.get("surroundings")
    named = [name.strip() for name in str(flags.get("JAX_PLATFORMS", "")).lower().split(",") if name.strip()]
    if named and all(n in PLATFORMS for n in named) and backend not in {PLATFORMS[n] for n in named}:
        yield f"backend {backend[:20]!a} under JAX_PLATFORMS={','.join(named)}: {AS_WRITTEN}"
    for name in SHOWN if backend == "gpu" and facts["num_processes"] == 1 else ():
        if name in flags and (seen := len(str(flags[name]).split(","))) < facts["num_devices"]:
            yield f"{facts['num_devices']} GPUs, and {name} shows {seen}: {AS_WRITTEN}"
    xla = str(flags.get(variables.FILE_OF_FLAGS, "")).lstrip(variables.BLANKS)
    if xla and not xla.startswith("-"):
        yield f"XLA_FLAGS is {xla[:40]!a}, the name of a file: set the flags themselves, and run again"
    for name in run_line.COMPILER_FLAGS:
        if variables.ELSEWHERE.search(str(flags.get(name, ""))):
            yield f"{name} takes flags from elsewhere: set the flags themselves, and run again"
    told = SETTINGS if around is None else around
    for name, plain in SETTINGS.items():
        if str(flags.get(name, "")).lower() not in plain and not {name, name.lower()} & set(told):
            value = str(flags[name])[:40]
            yield f"{name}={value!a}, and its settings are without {name.lower()}: {AS_WRITTEN}"
    if not facts.get("topology"):
        for name in (name for name in ("compiler", "no_layout") if facts.get(name)):
            yield f"`{name}` of a run on devices, which only a compile-only run has: {AS_WRITTEN}"
        if facts.get("layout", "plain") != "plain":
            yield f"layout {str(facts['layout'])[:20]!a} of a run on devices: {AS_WRITTEN}"


def _of_versions(said: Versions) -> Iterator[str]:
    """Yields packages that do not run together."""
    versions = {name: str(version) for name, version in said.items()}
    try:
        jax, jaxlib, python = (Version(versions[name]) for name in ("jax", "jaxlib", "python"))
        others = {name: Version(versions[name]) for name in ("numpy", "ml_dtypes") if name in versions}
    except InvalidVersion:
        yield f"a version of jax, jaxlib, numpy, ml_dtypes or python is not a version number: {AS_WRITTEN}"
        return
    if str(jax) != versions["jax"]:  # the release is a directory, and pages would show it as a further one
        yield f"JAX {versions['jax'][:40]!a}, which is spelled {jax}: {AS_WRITTEN}"
    oldest_jaxlib = OLDEST_JAXLIB.get(str(jax), Version(".".join(map(str, jax.release[:2]))))
    if not oldest_jaxlib <= jaxlib or Version(jaxlib.base_version) > Version(jax.base_version):
        yield f"jaxlib {jaxlib} with jax {jax}: JAX does not run with it, {AS_WRITTEN}"
    needed = next((own for release, own in reversed(NEEDED.items()) if jax >= Version(release)), {})
    for name, least in needed.items():
        if name in others and others[name] < least:
            yield f"{name} {others[name]} with jax {jax}, which asks for {least}: {AS_WRITTEN}"
    if len(python.release) != 3 or python.major != 3:
        yield f"Python {python}, which is not a release of Python 3: {AS_WRITTEN}"
    oldest = [least for release, least in OLDEST_PYTHON.items() if jax >= Version(release)]
    if not oldest or python < oldest[-1]:
        yield f"JAX {jax} on Python {python}, on which it does not run: {AS_WRITTEN}"
