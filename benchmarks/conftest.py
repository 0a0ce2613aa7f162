# SPDX-License-Identifier: Apache-2.0
"""Options, cases and machine information of `pytest benchmarks`: the timed case table under pytest-benchmark.

Everything runs in the pytest process, one case after another. A case that crashes or hangs is not contained, and the
modes of a cell are not timed in turns. `meshmark bench` does both. Each benchmark calls a program that was compiled
ahead of time and whose values were verified in this process. A wrong program fails its test and is not timed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

from meshmark.core.privacy import redact
from meshmark.core.verdicts import BAD, Line, worst
from meshmark.devices import environment, probe
from meshmark.devices.facts import Facts
from meshmark.levels import known_issues
from meshmark.operations.cases import Case
from meshmark.operations.choosing import add_options, selected
from meshmark.operations.selection import SelectionError

if TYPE_CHECKING:  # it imports JAX, and the number of devices must be known before that
    from meshmark.timing.measure import Prepared

FACTS = pytest.StashKey[Facts]()
CASES = pytest.StashKey[dict[str, Case]]()
LEFT_OUT = pytest.StashKey[list[str]]()
UNTIMED = pytest.StashKey[dict[str, str]]()
"""The verdict of each case that was not timed."""

COMPARABLE = ("backend", "device_kind", "num_devices", "num_processes")
"""The facts that must be equal in two compared runs."""

SETTINGS = ("flags", "surroundings")
"""The facts that say under which settings a run was timed. They must be equal too."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """The options that choose from the timed table: those of the conformance suite, with its profiles replaced."""
    if pluginmanager.hasplugin("meshmark.pytest_plugin.plugin"):
        return  # refused in pytest_cmdline_main
    pluginmanager.set_blocked(
        "meshmark.pytest_plugin.plugin"
    )  # the same if the two are loaded in the other order
    group = parser.getgroup("meshmark", "Meshmark, benchmarks of distributed JAX")
    add = group.addoption
    add_options(add, timed=True)
    add("--seed", type=int, default=0, metavar="N", help="seed of the inputs (default 0)")
    add(
        "--num-devices",
        type=int,
        default=None,
        metavar="N",
        help="virtual CPU devices (default 8); ignored with a notice on real hardware",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Check the options, start JAX in this process and choose the cases."""
    if config.option.help or config.option.version or config.option.showfixtures or config.option.markers:
        return
    if not config.pluginmanager.is_blocked("meshmark.pytest_plugin.plugin") or any(
        "conformance" in os.path.dirname(str(name)).split(os.sep)[-1:]
        for name, plugin in config.pluginmanager.list_name_plugin()
        if plugin and str(name).endswith("conftest.py")
    ):
        raise pytest.UsageError("conformance and benchmarks have different options: run pytest once for each")
    if not config.pluginmanager.hasplugin("benchmark"):
        raise pytest.UsageError(
            "pytest benchmarks needs pytest-benchmark 5.1 or later: pip install 'pytest-benchmark>=5.1'"
            " (and no `-p no:benchmark`)"
        )
    spread = getattr(config.option, "numprocesses", None) or getattr(config.option, "tx", None)
    if spread or getattr(config.option, "dist", "no") != "no":
        raise pytest.UsageError(
            "benchmarks are timed in one process, because workers would compete for the cores: leave out -n"
            " and --dist, or use -n 0 (`meshmark bench` times in child processes)"
        )
    if (clock := str(config.getoption("benchmark_timer"))) != "time.perf_counter":
        raise pytest.UsageError(
            f"--benchmark-timer {clock}: JAX computes in other threads, so only time.perf_counter measures a call:"
            " leave the option out"
        )
    wanted, seed = config.getoption("num_devices"), config.getoption("seed")
    if wanted is not None and not 1 <= wanted <= 4096:
        raise pytest.UsageError(f"--num-devices {wanted}: use a number from 1 to 4096")
    if not 0 <= seed <= 2**31:
        raise pytest.UsageError(f"--seed {seed}: use a number from 0 to {2**31}")
    config.option.benchmark_disable_gc = True  # as timing.measure does
    try:
        facts = config.stash[FACTS] = _start(wanted, "x64" in config.getoption("with_"))
        selection = selected(vars(config.option), facts.num_devices, timed=True)
        from meshmark.timing import bench, timer

        if why := timer.doubts():
            raise pytest.UsageError(why)

        todo, config.stash[LEFT_OUT] = bench.select_cells(selection, facts)
    except SelectionError as error:
        raise pytest.UsageError(str(error)) from None
    found = [cell.case(mode) for cell, modes in todo for mode in modes]
    config.stash[CASES] = {case.id: case for case in found}
    config.stash[UNTIMED] = {}


def _start(num_devices: int | None, x64: bool) -> Facts:
    """Start JAX's backend here, as pytest-benchmark times in this process."""
    environment.set_here(environment.cpu_devices(num_devices) | ({environment.X64: "1"} if x64 else {}))
    try:
        import jax

        environment.configure_jax()
        jax.config.update("jax_enable_compilation_cache", False)  # compile time is a result
        return probe.facts()
    except (ImportError, RuntimeError, ValueError) as error:
        last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise pytest.UsageError(
            f"JAX found no device: {last} (JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')!r},"
            f" JAX_NUM_CPU_DEVICES={os.environ['JAX_NUM_CPU_DEVICES']!r})"
        ) from None


def pytest_report_header(config: pytest.Config) -> list[str]:
    """The environment under test, and the limits of this way of timing."""
    if FACTS not in config.stash:
        return []
    facts, chosen = config.stash[FACTS], config.stash[CASES]
    meshes = dict.fromkeys(case.mesh.label for case in chosen.values())
    lines = [
        *facts.describe(),
        f"profile {config.getoption('profile')}, seed {config.getoption('seed')}, {len(chosen)} cases,"
        f" meshes {' '.join(meshes)}",
        *(f"left out: {why}" for why in config.stash[LEFT_OUT]),
        "one process without containment: a case that crashes or hangs ends this run (`meshmark bench` contains it)",
        "modes are timed one after the other, the garbage collector off (`meshmark bench` times them in turns)",
    ]
    if config.getoption("num_devices") and not facts.virtual:
        lines.append(f"--num-devices is ignored on backend {facts.backend}")
    return [f"meshmark: {line}" for line in lines]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per case. The parameter is the case id, because it goes into the JSON."""
    if "case_id" in metafunc.fixturenames:
        chosen: dict[str, Case] = metafunc.config.stash[CASES]
        metafunc.parametrize("case_id", [*chosen])


@dataclass
class Bench:
    """Prepares cases on the devices of this process, and keeps their verdicts."""

    config: pytest.Config

    def __post_init__(self) -> None:
        import jax

        from meshmark.judge.checks import Judge

        facts = self.config.stash[FACTS]
        self.devices = tuple(jax.devices())
        self.judge = Judge(self.devices, self.config.getoption("seed"))
        self.issues = known_issues.load(facts.jax, facts.backend)
        self.prepared = 0

    def prepare(self, case_id: str) -> Prepared:
        """The case, compiled, verified and warmed up. Ends the test with the case's verdict if it must not be timed."""
        from meshmark.judge.checks import clear_sometimes
        from meshmark.timing.measure import Wrong, prepare

        self.prepared += 1
        clear_sometimes(self.prepared)
        case = self.config.stash[CASES][case_id]
        try:
            made = prepare(case, self.devices, judge=self.judge)
        except Wrong as wrong:
            self._refuse(case, wrong.lines or [Line("execute", "error", str(wrong))])
        known_issues.apply(self.issues, case.id, made.lines)
        until = perf_counter() + 0.1  # both sets of inputs, at least
        for number in range(10):
            made.run()
            if number and perf_counter() > until:
                break
        return made

    def _refuse(self, case: Case, lines: list[Line]) -> None:
        """End the test of a case that must not be timed."""
        known_issues.apply(self.issues, case.id, lines)
        found = worst(line.verdict for line in lines if line.check != "communication")
        told = next(line for line in lines if line.verdict == found)
        self.config.stash[UNTIMED][case.id] = found
        if found in BAD:
            again = f"judge it again: meshmark repro '{case.id}'"
            pytest.fail(
                f"{told.reason} ({told.check}: {found})\n{case.id}\nnot timed. {again}", pytrace=False
            )
        (pytest.xfail if found == "known" else pytest.skip)(f"not timed: {told.reason}")


@pytest.fixture(scope="session")
def bench(pytestconfig: pytest.Config) -> Bench:
    """Prepares the cases of this session."""
    return Bench(pytestconfig)


@pytest.fixture
def timed(bench: Bench, benchmark: Any) -> Callable[[str], None]:
    """Times one case by its id."""

    def run(case_id: str) -> None:
        made = bench.prepare(case_id)
        benchmark.group = made.case.cell.id
        benchmark(made.run)
        benchmark.extra_info.update(_extra(made, benchmark, bench.config))

    return run


def _extra(made: Prepared, benchmark: Any, config: pytest.Config) -> dict[str, Any]:
    """The extra fields of a benchmark: the verdict, rates from the median, compile time and counters."""
    from meshmark.timing import figures
    from meshmark.timing.rooflines import Rooflines

    case, facts = made.case, config.stash[FACTS]
    bad = [line for line in made.lines if line.verdict != "pass"]
    samples = [] if benchmark.disabled else list(benchmark.stats.stats.data)
    cost, request = case.plan.cost, case.cell.request
    record = {
        "case": case.id,
        "mesh": request.mesh.label,
        "samples_s": samples,
        "dtype": request.dtype,
        "precision": case.plan.precision,
        "devices": case.mesh.size,
        "cost": {"flops": cost.flops, "nbytes": cost.nbytes, "factor": cost.factor},
        **made.counters,
    }
    found = figures.figures_of(record, Rooflines.of(facts.to_json(), ()))
    interval = [found.get("low_s", math.nan), found.get("high_s", math.nan)]
    scaled = {
        name: None if found.get(key) is None else found[key] / unit
        for name, key, unit in (
            ("algbw_GB_per_s", "algbw", 1e9),
            ("busbw_GB_per_s", "busbw", 1e9),
            ("TFLOP_per_s", "flops_per_s", 1e12),
            ("share_of_peak", "share", 1),
        )
    }
    return {
        "case": case.id,
        "cadence": "isolated",
        "virtual": facts.virtual,
        "verdict": worst(line.verdict for line in made.lines),
        "reason": redact("; ".join(f"{line.check}: {line.reason}" for line in bad)),
        **scaled,
        "peak": found.get("share_of", ""),
        # Of the samples of this one process, from six on: another process's median lies outside more often than inside.
        "samples_interval_s": interval if all(map(math.isfinite, interval)) else None,
        "lower_s": made.lower_s,
        "compile_s": made.compile_s,
        **made.counters,
    }


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Add devices, versions and flags, and remove fields that name this machine or differ between runs."""
    machine_info["node"] = "<host>"
    cpu = machine_info.get("cpu") or {}
    for name in [n for n in cpu if n.startswith("hz_actual")]:
        del cpu[name]  # the current clock rate would make any two runs differ
    if FACTS in config.stash:
        facts = config.stash[FACTS].to_json()
        machine_info["meshmark"] = {
            name: facts[name] for name in ("versions", *COMPARABLE, *SETTINGS, "virtual", "devices", "host")
        }
    for name, value in machine_info.items():
        if isinstance(value, str):
            machine_info[name] = redact(value) if value != "<host>" else value


def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Add the commit and the cases that were not timed, which pytest-benchmark drops."""
    if FACTS in config.stash:
        untimed: dict[str, str] = config.stash[UNTIMED]
        output_json["meshmark"] = {"suite": config.stash[FACTS].suite, "not_timed": {**untimed}}


def pytest_benchmark_compare_machine_info(
    machine_info: dict[str, Any], compared_benchmark: dict[str, Any]
) -> None:
    """Refuse a comparison with other devices, or of virtual with real ones."""
    here, there = machine_info.get("meshmark"), compared_benchmark["machine_info"].get("meshmark")
    if here and there and any(here[name] != there[name] for name in COMPARABLE):
        texts = [f"{m['num_devices']} {m['device_kind']} devices ({m['backend']}" for m in (there, here)]
        texts = [
            text + f", {m['num_processes']} process{'es' * (m['num_processes'] > 1)})"
            for text, m in zip(texts, (there, here), strict=True)
        ]
        raise pytest.UsageError(
            f"--benchmark-compare: the saved run timed {texts[0]} and this one has {texts[1]}: compare runs of the"
            " same devices (see --num-devices)"
        )
    for name in SETTINGS:
        before, now = ((m or {}).get(name) or {} for m in (there, here))
        if unlike := sorted(key for key in {*before, *now} if before.get(key) != now.get(key)):
            key = unlike[0]
            raise pytest.UsageError(
                f"--benchmark-compare: {key} was {before.get(key, 'not set')} in the saved run and is"
                f" {now.get(key, 'not set')} here: compare runs with the same settings"
            )


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Iterator[None]:
    """After pytest-benchmark's table, list the cases that were not timed and so are in neither table nor JSON."""
    yield
    untimed = config.stash.get(UNTIMED, {})
    if untimed:
        terminalreporter.section("meshmark")
        terminalreporter.write_line(
            f"{len(untimed)} cases were not timed, and are missing from the table and from saved JSON:"
        )
        for case_id, verdict in untimed.items():
            terminalreporter.write_line(f"  {case_id}: {verdict}")
