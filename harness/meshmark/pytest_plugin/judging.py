# SPDX-License-Identifier: Apache-2.0
"""The fixtures that judge a case in this process and end its test with the verdict."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest

from meshmark.core import saying
from meshmark.core.verdicts import BAD, Line, worst
from meshmark.devices import (
    containment,
    environment,
    installed,
    offspring,
    probe,
    surroundings,
    topologies,
)
from meshmark.devices.facts import Facts
from meshmark.devices.frozen import Frozen
from meshmark.levels import known_issues
from meshmark.pytest_plugin import counting
from meshmark.pytest_plugin.controller import message, record_lines
from meshmark.pytest_plugin.options import names_of
from meshmark.pytest_plugin.stashed import (
    CASE_RECORDS,
    EXPECTED,
    FACTS,
    ITEM,
    PLACES,
    RANK,
    WATCHDOG,
    WORKERS,
)
from meshmark.pytest_plugin.trials import Trial
from meshmark.ranks import group as ranks

COMPILING = 120.0
"""Seconds that a case may take when it is compiled for a topology. A layer of a pod compiles for long, and no
collective waits for it."""


@pytest.fixture(scope="session")
def judge_case(pytestconfig: pytest.Config) -> Iterator[Callable[[Trial], list[Line]]]:
    """Runs one case in this process and gives its lines, known issues applied."""
    if pytestconfig.stash[FACTS].topology:
        yield _compiles(pytestconfig)
        return
    import jax

    from meshmark.judge.checks import Judge
    from meshmark.judge.self_test import prove

    facts, watchdog = pytestconfig.stash[FACTS], pytestconfig.stash[WATCHDOG]
    settle()
    rank = pytestconfig.stash.get(RANK, None)
    if not rank and WORKERS not in pytestconfig.stash:  # -n 0
        environment.configure_jax()
    with watchdog.over(containment.START) if watchdog else nullcontext():
        devices_here, compiling = tuple(jax.devices()), containment.first_compile()
    if len(set(devices_here)) != facts.num_devices:
        raise RuntimeError(f"JAX shows {len(set(devices_here))} devices here, and showed {facts.num_devices}")
    if watchdog:
        watchdog.seconds = containment.stretched(watchdog.seconds, compiling)
    if rank:
        devices_here = ranks.in_order(devices_here)
        rank.agree_deadline(containment.stretched(pytestconfig.getoption("deadline"), compiling))
    elif watchdog:  # ranks wait for each other during one deadline
        jax.monitoring.register_event_duration_secs_listener(after_compiling(watchdog.go_on))
    unchanged(facts)
    prove()  # only after the devices exist: starting a backend earlier would use the first device only
    judge = Judge(
        devices_here,
        pytestconfig.getoption("seed"),
        pytestconfig.getoption("repeat"),
        pytestconfig.stash[EXPECTED].committed(facts.to_json()),
        rank.consensus.compare_programs if rank else None,
        earlier=pytestconfig.stash[EXPECTED].earlier(facts.to_json()),
    )
    issues = pytestconfig.stash[EXPECTED].issues(facts.to_json())
    frozen = Frozen()

    def run(trial: Trial) -> list[Line]:
        replaced = frozen.changed()
        with watchdog.over() if watchdog else offspring.ended_after():
            lines = judge.run(trial.case)
        known_issues.apply(issues, trial.id, lines)
        if replaced or (replaced := frozen.changed()):
            lines.append(Line("execute", "error", f"{replaced} was replaced while the case was judged"))
        return lines

    yield run
    prove()  # a case may have changed what the judge uses
    unchanged(facts)


COMPILED = "/jax/core/compile/backend_compile_duration"
"""The event that JAX reports after each compilation."""


def after_compiling(act: Callable[[], None]) -> Callable[..., None]:
    """A listener of JAX's events that acts after each compilation."""

    def listen(event: str, duration: float, **_: str | int) -> None:
        if event == COMPILED:
            act()

    return listen


OF_COMPILERS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32")
"""The variables that compilers read whenever a backend starts, also those set after the run line was made."""


def settle() -> None:
    """Make sure that this process compiles every program itself, because a disk cache may hold other programs. Existing
    objects, such as the tests of all cases, live until the end, so the garbage collector need not scan them."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # JAX looks for a cache once, and a plugin may have compiled before
    gc.freeze()


def unchanged(facts: Facts) -> None:
    """RuntimeError if the settings, releases or compiler flags of this process differ from the run line, or if
    functions of NumPy, JAX or the judge were replaced, or if code in C reads other flags than Python. A conftest.py, a
    plugin or a case can do this, and no reader of the records would know."""
    import jax
    import jaxlib

    for name, version in (("jax", jax.__version__), ("jaxlib", jaxlib.__version__)):
        if facts.versions.get(name, version) != version:
            raise RuntimeError(
                f"this process has {name} {version}, and the run line {facts.versions[name]}: use one Python"
            )
    if why := probe.hidden_flags():
        raise RuntimeError(f"this process has flags that Python does not show: {why}")
    flags = {n: v for n, v in probe.flags_here().items() if n.startswith(OF_COMPILERS)}
    recorded = {n: v for n, v in facts.flags.items() if n.startswith(OF_COMPILERS)}
    if differing := [n for n in (*flags, *recorded) if flags.get(n) != recorded.get(n)]:
        raise RuntimeError(
            f"this process is not as the run line says: {differing[0]} is {flags.get(differing[0], 'not set')}, and was"
            f" {recorded.get(differing[0], 'not set')}; set it before the run"
        )
    here = surroundings.unusual_settings()
    told = {n: v for n, v in facts.surroundings.items() if not v.startswith(installed.ALTERED)}
    differing = [n for n in (*here, *told) if here.get(n) != told.get(n)]
    if jax.config.values["jax_enable_compilation_cache"]:
        differing.append("jax_enable_compilation_cache")
        here["jax_enable_compilation_cache"] = "True"
    if differing:
        name = differing[0]
        raise RuntimeError(
            f"this process is not as the run line says (see conftest.py and plugins): {name} is"
            f" {here.get(name, 'the default')}, and was {told.get(name, 'the default')}"
        )
    if replaced := next(surroundings.judge_replaced(), None):
        raise RuntimeError(f"the judge of this process is not to be trusted: {': '.join(replaced)}")


def _compiles(config: pytest.Config) -> Callable[[Trial], list[Line]]:
    """As `judge_case`, for topologies: compiles one case, and runs nothing."""
    from meshmark.judge.compile_only import CompileOnly  # with the interpreter, which no other run needs

    places, watchdog = config.stash[PLACES], config.stash[WATCHDOG]
    topologies.prepare_environment(*(facts.topology for facts in places))
    environment.configure_jax()
    settle()
    unchanged(places[0])
    judges, issues = {}, {}
    for facts in places:
        topology = topologies.parse_topology(facts.topology)
        with watchdog.over(containment.START) if watchdog else nullcontext():
            topologies.devices(topology)
        committed = config.stash[EXPECTED].committed(facts.to_json())
        judges[facts.place] = CompileOnly(
            topology,
            facts.layout,
            committed,
            names_of(config, "export"),
            config.getoption("seed"),
            earlier=config.stash[EXPECTED].earlier(facts.to_json()),
        )
        issues[facts.place] = config.stash[EXPECTED].issues(facts.to_json())
    if watchdog and watchdog.seconds == containment.DEADLINE:
        watchdog.seconds = COMPILING

    def run(trial: Trial) -> list[Line]:
        with watchdog.over() if watchdog else offspring.ended_after():
            lines = judges[trial.facts.place].run(trial.case)
        known_issues.apply(issues[trial.facts.place], trial.case.id, lines)
        return lines

    return run


@pytest.fixture(scope="session")
def verdict(
    pytestconfig: pytest.Config, judge_case: Callable[[Trial], list[Line]]
) -> Callable[[Trial], None]:
    """Judges a case and ends the test with its verdict. The fixture is session-wide: pytest takes as long to make one
    per case as the judge takes to compare the numbers of a case."""
    seed = pytestconfig.getoption("seed")

    def assert_verdict(trial: Trial) -> None:
        start = time.perf_counter()
        rank = pytestconfig.stash.get(RANK, None)
        own, lines = rank.judge(trial, judge_case) if rank else (None, judge_case(trial))
        seconds = time.perf_counter() - start
        records = [record_lines(trial, found, seed, seconds) for found in (own, lines) if found is not None]
        text = json.dumps(records)
        pytestconfig.stash[ITEM].stash[CASE_RECORDS] = text
        counting.note_judged(pytestconfig, trial.id, text)
        found = worst(line.verdict for line in lines)
        if found == "pass":
            return
        if found in BAD:
            pytest.fail(message(trial, lines, seed), pytrace=False)
        reason = next(line.reason for line in lines if line.verdict == found)
        (pytest.xfail if found == "known" else pytest.skip)(reason)

    return assert_verdict


def unjudged(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Write the verdict of a case that could not be judged because of an error of the suite. Ranks skip this: they
    agree on a verdict, or the run ends."""
    trial = getattr(item, "callspec", None) and item.callspec.params.get("case")  # type: ignore[attr-defined]
    if not isinstance(trial, Trial) or RANK in item.config.stash or call.excinfo is None:
        return
    error = call.excinfo.value
    line = Line(
        "execute", "error", f"it could not be judged: {type(error).__name__}: {saying.first_line(error)}"
    )
    lines = record_lines(trial, [line], item.config.getoption("seed"), call.duration)
    text = json.dumps([lines])
    item.stash[CASE_RECORDS] = text
    counting.note_judged(item.config, trial.id, text)
