"""The pytest plugin behind `pytest conformance`: options, workers, cases, records and the closing table.

The controller probes the devices in a child process and starts no backend. Workers (pytest-xdist) are on by
default: as many as there are cores on CPU, one on any other backend; `-n 0` runs in the pytest process, where
nothing contains a crash or a hang.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from meshmark.core import meshes
from meshmark.core.errors import unknown
from meshmark.core.verdicts import BAD, Line, worst
from meshmark.devices import containment, probe, topologies
from meshmark.devices.facts import Facts
from meshmark.devices.probe import DEFAULT_CPU_DEVICES, NoBackend
from meshmark.judge import compile_only
from meshmark.judge.compile_only import CompileOnly, Placed
from meshmark.levels import known_issues
from meshmark.levels.counters import CountersError
from meshmark.levels.expectations import Expectations
from meshmark.levels.known_issues import KnownIssuesError
from meshmark.operations import cases
from meshmark.operations.choosing import add_options, selected
from meshmark.operations.selection import Selection, SelectionError
from meshmark.pytest_plugin.controller import (
    Report,
    case_of,
    matches_nothing,
    message,
    record_lines,
    under_test,
)
from meshmark.pytest_plugin.rank import LAUNCHED, Together
from meshmark.pytest_plugin.stashed import (
    BY_FAMILY,
    DIRECTORY,
    DONE,
    EXPECTED,
    FACTS,
    LEFT_OUT,
    LINES,
    PLACES,
    SELECTION,
    TOGETHER,
    WATCHDOG,
    WRITER,
)
from meshmark.ranks import group as ranks
from meshmark.ranks.channel import ChannelError, Ended
from meshmark.records.files import RecordError, Writer

CHOSEN = (
    *("profile", "level", "with_", "operations", "modes", "meshes", "dtypes", "sizes", "seed", "deadline"),
    *("repeat", "record", "resume", "maxfail", "keyword", "markexpr", "file_or_dir", "collectonly"),
)
"""The options in which ranks must not differ."""

COMPILING = 120.0
"""Seconds that a case may take where it is compiled for a topology: a pod's layer takes long, and nothing waits for
a collective there."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the suite."""
    group = parser.getgroup("meshmark", "Meshmark, conformance of distributed JAX")
    add = group.addoption
    add_options(add)
    add("--seed", type=int, default=0, metavar="N", help="seed of the inputs (default 0)")
    add(
        "--num-devices",
        type=int,
        default=None,
        metavar="N",
        help="virtual CPU devices (default 8); ignored with a notice on real hardware",
    )
    add(
        "--topology",
        action="append",
        default=[],
        metavar="NAMES",
        help="compile for devices that are not there, and run nothing: v5e:2x4, v5p:4x4x4, h100:8; two slices"
        " are 2xv5e:2x4; separate several by commas",
    )
    add(
        "--layout",
        default="plain",
        metavar="NAMES",
        help="order of a topology's devices in a mesh: plain, physical (as jax.make_mesh has it), or both"
        " separated by a comma (default plain)",
    )
    add(
        "--export",
        default="",
        metavar="PLATFORMS",
        help="with --topology: also export each case for these platforms (tpu, cuda), read it back and lower it",
    )
    add(
        "--record",
        type=Path,
        default=None,
        metavar="FILE",
        help="write records (JSON lines) to this new file; without it nothing is written",
    )
    add(
        "--resume",
        type=Path,
        default=None,
        metavar="FILE",
        help="go on with the interrupted run that wrote this file, and append to it (instead of --record)",
    )
    add(
        "--deadline",
        type=float,
        default=containment.DEADLINE,
        metavar="SECONDS",
        help="a case that takes longer is a hang; stretched where the backend's first compile takes more than"
        f" {containment.BRISK:.0f} s (default {containment.DEADLINE:.0f})",
    )
    add(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="run each program N times in one compile, and record how many runs differ (default 1)",
    )
    add(
        "--known-issues",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="known issues beside the suite's own (TOML, as its known_issues.toml); may be given several times",
    )
    add(
        "--counters",
        type=Path,
        default=None,
        metavar="DIR",
        help="committed counters that go before the suite's own (files JAX-BACKEND-DEVICES.tsv)",
    )
    group = parser.getgroup("meshmark-ranks", "Meshmark over several processes (each runs this command)")
    add = group.addoption
    add(
        "--distributed",
        action="store_true",
        help="this process is one of several: JAX finds the others under srun, mpirun, Kubernetes and Cloud TPU",
    )
    add("--coordinator", default=None, metavar="HOST:PORT", help="JAX's coordinator, where it is to be named")
    add("--num-processes", type=int, default=None, metavar="N", help="how many processes there are")
    add("--process-id", type=int, default=None, metavar="I", help="which of them this is, from 0 on")
    add(
        "--control",
        default=None,
        metavar="HOST:PORT",
        help="where rank 0 listens for the suite's own channel (default: the coordinator's port + 1)",
    )
    add(
        "--join",
        type=float,
        default=ranks.JOIN,
        metavar="SECONDS",
        help=f"how long the processes have to come together (default {ranks.JOIN:.0f})",
    )


def _names(config: pytest.Config, option: str) -> tuple[str, ...]:
    return tuple(filter(None, (n.strip() for n in config.getoption(option).split(","))))


def _selection(config: pytest.Config, num_devices: int) -> Selection:
    processes = config.stash[TOGETHER].group.size if TOGETHER in config.stash else 1
    return selected(vars(config.option), num_devices, processes=processes)


def _expected(config: pytest.Config) -> Expectations:
    return Expectations(config.getoption("known_issues"), config.getoption("counters"))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """In the controller, before the workers: probe, check the options, choose the workers."""
    asks = config.option.help or config.option.version or config.option.showfixtures or config.option.markers
    if asks or hasattr(config, "workerinput"):
        return
    wanted = config.getoption("num_devices")
    if wanted is not None and not 1 <= wanted <= 4096:
        raise pytest.UsageError(f"--num-devices {wanted}: use a number from 1 to 4096")
    limits = (("seed", 0, 2**31), ("repeat", 1, 10**6), ("deadline", 0.1, 86400), ("join", 1, 86400))
    for option, least, most in limits:
        if not least <= config.getoption(option) <= most:
            value = config.getoption(option)
            raise pytest.UsageError(f"--{option} {value}: use a number from {least} to {most}")
    try:
        config.stash[EXPECTED] = _expected(config)
    except (KnownIssuesError, CountersError) as error:
        raise pytest.UsageError(str(error)) from None
    try:
        named = ("distributed", "coordinator", "num_processes", "process_id", "control")
        coordinates = ranks.coordinates(os.environ, **{name: config.getoption(name) for name in named})
    except (ranks.RankError, ChannelError) as error:
        raise pytest.UsageError(str(error)) from None
    probe.ask_for_cpu_devices(wanted, probe.CPU_DEVICES_A_PROCESS if coordinates else DEFAULT_CPU_DEVICES)
    if "x64" in config.getoption("with_"):
        os.environ["JAX_ENABLE_X64"] = "1"
    if coordinates:
        _come_together(config, coordinates)
        return
    try:
        config.stash[PLACES] = _places(config)
        config.stash[FACTS] = facts = config.stash[PLACES][0]
        for place in config.stash[PLACES]:
            config.stash[SELECTION] = _selection(config, place.num_devices)
            cases.not_empty(config.stash[SELECTION], place.num_devices)
    except (SelectionError, NoBackend, topologies.TopologyError) as error:
        raise pytest.UsageError(str(error)) from None
    _choose(config)
    if facts.topology and not any(config.stash[BY_FAMILY].values()):
        reasons = "; ".join(f"{number} {why}" for _, why, number in config.stash[LEFT_OUT])
        raise pytest.UsageError(f"no case can be compiled for {facts.place}: {reasons}")
    config.stash[DONE] = {}
    try:
        _open_records(config)
    except RecordError as error:
        raise pytest.UsageError(str(error)) from None
    if getattr(config.option, "numprocesses", 0) is None and not (
        config.option.collectonly or config.option.usepdb
    ):
        config.option.numprocesses = (os.cpu_count() or 1) if facts.virtual or facts.topology else 1
    if getattr(config.option, "numprocesses", 0):
        # Workers keep their own standard error, so pytest's capture must leave file descriptor 2 alone there
        # (they read the command line and this variable, not the controller's options), and a case that
        # crashes must not use up the restarts of the others.
        os.environ["PYTEST_ADDOPTS"] = os.environ.get("PYTEST_ADDOPTS", "") + " --capture=no"
        if config.option.maxworkerrestart is None:
            config.option.maxworkerrestart = str(10**9)


def _come_together(config: pytest.Config, coordinates: ranks.Coordinates) -> None:
    """This process is one rank of several: join the others, and choose the same cases as they."""
    if getattr(config.option, "numprocesses", None) is not None or getattr(config.option, "tx", None):
        raise pytest.UsageError("-n starts workers of one machine: leave it out, each rank is one process")
    if config.getoption("topology"):
        raise pytest.UsageError("--topology compiles in one process: leave out --distributed")
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture:  # what a rank says when it dies must reach the launcher
        capture.stop_global_capturing()
        config.pluginmanager.unregister(capture)
    together = Together()
    together.config = config
    chosen = {name: str(config.getoption(name)) for name in CHOSEN} | config.stash[EXPECTED].described
    _set_up_jax()
    try:
        together.group = ranks.join(coordinates, chosen, config.getoption("join"), ended=together.give_up)
    except (ChannelError, ranks.RankError) as error:
        raise pytest.UsageError(str(error)) from None
    except Ended as ended:
        raise pytest.UsageError(ended.ending.reason) from None
    try:
        facts = ranks.facts(together.group)
        config.stash[TOGETHER] = together
        config.stash[PLACES], config.stash[FACTS] = [facts], facts
        config.stash[SELECTION] = _selection(config, facts.num_devices)
        cases.not_empty(config.stash[SELECTION], facts.num_devices)
        _choose(config)
        together.group.alike("cases", ranks.digest(p.id for f in config.stash[BY_FAMILY].values() for p in f))
        config.stash[DONE] = {}
        _open_records(config)
    except (SelectionError, RecordError, ChannelError, NoBackend) as error:
        together.group.leave(f"could not begin: {error}")
        raise pytest.UsageError(str(error)) from None
    except Ended as ended:
        together.group.leave(ended.ending.reason)
        raise pytest.UsageError(ended.ending.reason) from None
    if together.group.rank:  # rank 0 speaks for all
        config.pluginmanager.set_blocked("terminalreporter")


def _set_up_jax() -> None:
    """JAX was imported before the environment said this."""
    import jax

    jax.config.update("jax_num_cpu_devices", int(os.environ["JAX_NUM_CPU_DEVICES"]))
    jax.config.update("jax_enable_x64", os.environ.get("JAX_ENABLE_X64", "0").lower() in ("1", "true"))


def _places(config: pytest.Config) -> list[Facts]:
    """Probe what there is, or the topologies that were asked for; raises what a wrong choice raises."""
    wanted = topologies.parse_all(config.getoption("topology"))
    layouts = tuple(dict.fromkeys(_names(config, "layout"))) or ("plain",)
    exports = _names(config, "export")
    for name, valid in ((layouts, topologies.LAYOUTS), (exports, compile_only.EXPORTS)):
        for one in name:
            if one not in valid:
                option = "--layout" if name is layouts else "--export"
                raise SelectionError(unknown(option, one, valid))
    if exports and find_spec("flatbuffers") is None:
        raise SelectionError(
            "--export needs the package flatbuffers, with which jax.export writes: pip install flatbuffers"
        )
    if not wanted:
        given = "--layout" if layouts != ("plain",) else "--export" if exports else ""
        if given or config.getoption("topology"):
            raise SelectionError(f"{given or '--topology'} takes a topology: --topology v5e:2x4")
        return [probe.probe()]
    found = []
    for topology in wanted:
        number = topology.num_devices
        shapes = [*meshes.weighted(number), *map(meshes.parse, _selection(config, number).meshes)]
        found += [probe.probe_topology(topology, layout, shapes) for layout in layouts]
    return found


def _choose(config: pytest.Config) -> None:
    """The cases of every place, by family, and what is left out."""
    stash = config.stash
    stash[BY_FAMILY], stash[LEFT_OUT] = {}, []
    for facts in stash[PLACES]:
        taken, left_out = compile_only.chosen(_selection(config, facts.num_devices), facts)
        stash[LEFT_OUT] += [(facts.place, why, number) for why, number in left_out.items()]
        for placed in taken:
            stash[BY_FAMILY].setdefault(placed.case.operation.family, []).append(placed)


def _open_records(config: pytest.Config) -> None:
    """Open the file of --record or --resume before anything runs."""
    record, resume = config.getoption("record"), config.getoption("resume")
    if record and resume:
        raise RecordError(
            "--record and --resume name one file each: --resume appends to the file that it names"
        )
    together = config.stash.get(TOGETHER, None)
    if together and not (record or resume) and LAUNCHED in os.environ:
        record = Path(os.environ[LAUNCHED]) / "records.jsonl"  # to go on with, should a case end the ranks
    if config.option.collectonly or not (record or resume):
        return
    facts, selection = config.stash[FACTS], config.stash[SELECTION]
    others = [place.to_json() for place in config.stash[PLACES][1:]]
    options = {"topology": config.getoption("topology"), "export": _names(config, "export")}
    if facts.topology:
        options["layout"] = _names(config, "layout")
    run = {
        "facts": facts.to_json() | ({"others": others} if others else {}),
        "selection": selection.described()
        | {k: v for k, v in options.items() if v not in ((), [])}
        | config.stash[EXPECTED].described,
        "seed": config.getoption("seed"),
        "repeat": config.getoption("repeat"),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    if together:
        again = LAUNCHED in os.environ and "MESHMARK_ENDED" in os.environ
        together.open_records(record or resume, bool(resume) or again, run)
    elif record:
        config.stash[WRITER] = Writer.create(record, run)
    else:
        config.stash[WRITER], config.stash[DONE] = Writer.resume(resume, run)


def pytest_configure(config: pytest.Config) -> None:
    """Markers; in a worker, take the facts over; in the controller, start the report."""
    config.addinivalue_line("markers", "family(name): the family of operations that a conformance test runs")
    handed = getattr(config, "workerinput", {}).get("meshmark")
    config.stash[WATCHDOG] = None
    if handed is not None:
        data = json.loads(handed)
        config.stash[PLACES] = list(map(Facts.from_json, data["places"]))
        config.stash[FACTS] = config.stash[PLACES][0]
        config.stash[SELECTION] = _selection(config, config.stash[FACTS].num_devices)
        _choose(config)
        config.stash[EXPECTED] = _expected(config)
        config.stash[DONE] = dict.fromkeys(data["done"])  # type: ignore[misc]
        config.stash[DIRECTORY] = Path(data["directory"])
        containment.belong_to(data["controller"])
        stream = containment.own_stderr(config.stash[DIRECTORY], config.workerinput["workerid"])  # type: ignore[attr-defined]
        config.stash[WATCHDOG] = containment.Watchdog(config.getoption("deadline"), stream)
    elif FACTS in config.stash and not config.option.collectonly:
        if getattr(config.option, "numprocesses", 0):
            try:
                config.stash[DIRECTORY] = Path(tempfile.mkdtemp(prefix="meshmark-"))
            except OSError as error:
                raise pytest.UsageError(f"no temporary directory: {error.strerror} (see TMPDIR)") from None
        config.pluginmanager.register(Report(config), "meshmark-report")
        if TOGETHER in config.stash:
            config.stash[TOGETHER].listen_to_signals()
            config.pluginmanager.register(config.stash[TOGETHER], "meshmark-together")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist: hand the facts to a worker."""
    stash = node.config.stash
    node.workerinput["meshmark"] = json.dumps(
        {
            "places": [facts.to_json() for facts in stash[PLACES]],
            "done": list(stash[DONE]),
            "directory": str(stash[DIRECTORY]),
            "controller": os.getpid(),
        }
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What is under test."""
    return [f"meshmark: {line}" for line in under_test(config)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A conformance test takes the cases of its family."""
    marker = metafunc.definition.get_closest_marker("family")
    if marker is None or "case" not in metafunc.fixturenames:
        return
    chosen = metafunc.config.stash[BY_FAMILY].get(marker.args[0], [])
    metafunc.parametrize("case", chosen, ids=[case.id for case in chosen])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop the placeholder of a family of which nothing was chosen, and what a resumed run has done."""
    items[:] = [i for i in items if not (i.get_closest_marker("family") and "NOTSET" in i.name)]
    done = config.stash.get(DONE, {})
    if done:
        finished = {id(i) for i in items if case_of(i.nodeid) in done}
        config.hook.pytest_deselected(items=[i for i in items if id(i) in finished])
        items[:] = [i for i in items if id(i) not in finished]


@pytest.fixture(scope="session")
def judge_case(pytestconfig: pytest.Config) -> Callable[[Placed], list[Line]]:
    """Runs one case in this process and gives its lines, known issues applied."""
    if pytestconfig.stash[FACTS].topology:
        return _compiles(pytestconfig)
    import jax

    from meshmark.judge.checks import Judge

    facts, watchdog = pytestconfig.stash[FACTS], pytestconfig.stash[WATCHDOG]
    together = pytestconfig.stash.get(TOGETHER, None)
    if not watchdog and not together:  # -n 0
        _set_up_jax()
    with watchdog.over(containment.START) if watchdog else nullcontext():
        devices_here, compiling = tuple(jax.devices()), containment.first_compile()
    if watchdog:
        watchdog.seconds = containment.stretched(watchdog.seconds, compiling)
    if together:
        devices_here = ranks.in_order(devices_here)
        together.agree_deadline(containment.stretched(pytestconfig.getoption("deadline"), compiling))
    judge = Judge(
        devices_here,
        pytestconfig.getoption("seed"),
        pytestconfig.getoption("repeat"),
        pytestconfig.stash[EXPECTED].committed(facts.to_json()),
        together.meeting if together else None,
    )
    issues = pytestconfig.stash[EXPECTED].issues(facts.to_json())

    def run(placed: Placed) -> list[Line]:
        with watchdog.over() if watchdog else nullcontext():
            lines = judge.run(placed.case)
        known_issues.apply(issues, placed.id, lines)
        return lines

    return run


def _compiles(config: pytest.Config) -> Callable[[Placed], list[Line]]:
    """The same for topologies: compiles one case, and runs nothing."""
    import jax

    places, watchdog = config.stash[PLACES], config.stash[WATCHDOG]
    topologies.prepare_environment(*(facts.topology for facts in places))
    jax.config.update("jax_enable_x64", os.environ.get("JAX_ENABLE_X64", "0").lower() in ("1", "true"))
    judges, issues = {}, {}
    for facts in places:
        topology = topologies.parse(facts.topology)
        with watchdog.over(containment.START) if watchdog else nullcontext():
            topologies.devices(topology)
        committed = config.stash[EXPECTED].committed(facts.to_json())
        judges[facts.place] = CompileOnly(topology, facts.layout, committed, _names(config, "export"))
        issues[facts.place] = config.stash[EXPECTED].issues(facts.to_json())
    if watchdog and watchdog.seconds == containment.DEADLINE:
        watchdog.seconds = COMPILING

    def run(placed: Placed) -> list[Line]:
        with watchdog.over() if watchdog else nullcontext():
            lines = judges[placed.facts.place].run(placed.case)
        known_issues.apply(issues[placed.facts.place], placed.case.id, lines)
        return lines

    return run


@pytest.fixture
def verdict(
    request: pytest.FixtureRequest, judge_case: Callable[[Placed], list[Line]]
) -> Callable[[Placed], None]:
    """Judges a case and ends the test with its verdict."""

    def assert_verdict(case: Placed) -> None:
        start = time.perf_counter()
        together = request.config.stash.get(TOGETHER, None)
        own, lines = together.judge(case, judge_case) if together else (None, judge_case(case))
        seconds = time.perf_counter() - start
        seed = request.config.getoption("seed")
        records = [record_lines(case, found, seed, seconds) for found in (own, lines) if found is not None]
        request.node.stash[LINES] = json.dumps(records)
        found = worst(line.verdict for line in lines)
        if found == "pass":
            return
        if found in BAD:
            pytest.fail(message(case, lines, seed), pytrace=False)
        reason = next(line.reason for line in lines if line.verdict == found)
        (pytest.xfail if found == "known" else pytest.skip)(reason)

    return assert_verdict


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Send the record lines of a case along with its report."""
    report: Any = yield
    if report.when == "call" and LINES in item.stash:
        report.meshmark = item.stash[LINES]
        del item.stash[LINES]
    return report


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Say why no test was left."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and (why := matches_nothing(config)):
        terminalreporter.write_line(f"meshmark: {why}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of pytest-xdist: tell the controller how large it has grown."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["resident"] = containment.largest_resident_bytes()
