"""The pytest plugin behind `pytest conformance`: options, workers, cases, records and the closing table.

The controller probes the devices in a child process and starts no backend. Workers (pytest-xdist) are on by
default: as many as there are cores on CPU, one on any other backend; `-n 0` runs in the pytest process, where
nothing contains a crash or a hang.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from harness import cases, compile_only, containment, counters, devices, known, meshes, summary, topologies
from harness.cases import Selection, SelectionError
from harness.compile_only import CompileOnly, Placed, split_id
from harness.devices import Facts, NoBackend
from harness.records import Judged, RecordError, Writer, case_lines
from harness.verdicts import BAD, Line, worst

FACTS = pytest.StashKey[Facts]()
PLACES = pytest.StashKey[list[Facts]]()
"""The facts of every place where cases are judged: the devices that are there, or each topology and layout."""
LEFT_OUT = pytest.StashKey[list[tuple[str, str, int]]]()
"""(place, why, how many cases) of what compile-only runs leave out."""
SELECTION = pytest.StashKey[Selection]()
BY_FAMILY = pytest.StashKey[dict[str, list[Placed]]]()
LINES = pytest.StashKey[str]()
WRITER = pytest.StashKey[Writer]()
DONE = pytest.StashKey[dict[str, Judged]]()
DIRECTORY = pytest.StashKey[Path]()
WATCHDOG = pytest.StashKey[containment.Watchdog | None]()


COMPILING = 120.0
"""Seconds that a case may take where it is compiled for a topology: a pod's layer takes long, and nothing waits for
a collective there."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the suite."""
    group = parser.getgroup("meshmark", "Meshmark, conformance of distributed JAX")
    add = group.addoption
    add(
        "--profile", default="standard", help="how much: " + ", ".join(cases.PROFILES) + " (default standard)"
    )
    add("--level", default="", metavar="L0,L1,...", help="only these levels: " + ", ".join(cases.LEVELS))
    add(
        "--with",
        dest="with_",
        default="",
        metavar="NAMES",
        help="optional capabilities: " + "; ".join(f"{k}: {v}" for k, v in cases.CAPABILITIES.items()),
    )
    for name, example in (
        ("operations", "psum,matmul"),
        ("modes", "auto,manual"),
        ("meshes", "2x4,8"),
        ("dtypes", "float32,int8"),
        ("sizes", "4KiB"),
    ):
        add(f"--{name}", default="", metavar="NAMES", help=f"only these {name}, such as {example}")
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


def _names(config: pytest.Config, option: str) -> tuple[str, ...]:
    return tuple(filter(None, (n.strip() for n in config.getoption(option).split(","))))


def _selection(config: pytest.Config, num_devices: int) -> Selection:
    return Selection(
        profile=config.getoption("profile"),
        levels=_names(config, "level"),
        capabilities=_names(config, "with_"),
        operations=_names(config, "operations"),
        modes=_names(config, "modes"),
        meshes=_names(config, "meshes"),
        dtypes=_names(config, "dtypes"),
        sizes=_names(config, "sizes"),
    ).checked(num_devices)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """In the controller, before the workers: probe, check the options, choose the workers."""
    asks = config.option.help or config.option.version or config.option.showfixtures or config.option.markers
    if asks or hasattr(config, "workerinput"):
        return
    wanted = config.getoption("num_devices")
    if wanted is not None and not 1 <= wanted <= 4096:
        raise pytest.UsageError(f"--num-devices {wanted}: use a number from 1 to 4096")
    for option, least, most in (("seed", 0, 2**31), ("repeat", 1, 10**6), ("deadline", 0.1, 86400)):
        if not least <= config.getoption(option) <= most:
            value = config.getoption(option)
            raise pytest.UsageError(f"--{option} {value}: use a number from {least} to {most}")
    devices.ask_for_cpu_devices(wanted)
    if "x64" in _names(config, "with_"):
        os.environ["JAX_ENABLE_X64"] = "1"
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


def _places(config: pytest.Config) -> list[Facts]:
    """Probe what there is, or the topologies that were asked for; raises what a wrong choice raises."""
    wanted = topologies.parse_all(config.getoption("topology"))
    layouts = tuple(dict.fromkeys(_names(config, "layout"))) or ("plain",)
    exports = _names(config, "export")
    for name, valid in ((layouts, topologies.LAYOUTS), (exports, compile_only.EXPORTS)):
        for one in name:
            if one not in valid:
                option = "--layout" if name is layouts else "--export"
                raise SelectionError(f"{option} {one}: choose from {', '.join(valid)}")
    if exports and find_spec("flatbuffers") is None:
        raise SelectionError(
            "--export needs the package flatbuffers, with which jax.export writes: pip install flatbuffers"
        )
    if not wanted:
        given = "--layout" if layouts != ("plain",) else "--export" if exports else ""
        if given or config.getoption("topology"):
            raise SelectionError(f"{given or '--topology'} takes a topology: --topology v5e:2x4")
        return [devices.probe()]
    found = []
    for topology in wanted:
        number = topology.num_devices
        shapes = [*meshes.weighted(number), *map(meshes.parse, _selection(config, number).meshes)]
        found += [devices.probe_topology(topology, layout, shapes) for layout in layouts]
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
    if config.option.collectonly or not (record or resume):
        return
    facts, selection = config.stash[FACTS], config.stash[SELECTION]
    others = [place.to_json() for place in config.stash[PLACES][1:]]
    options = {"topology": config.getoption("topology"), "export": _names(config, "export")}
    if facts.topology:
        options["layout"] = _names(config, "layout")
    run = {
        "facts": facts.to_json() | ({"others": others} if others else {}),
        "selection": selection.described() | {k: v for k, v in options.items() if v not in ((), [])},
        "seed": config.getoption("seed"),
        "repeat": config.getoption("repeat"),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    if record:
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
        config.stash[DONE] = dict.fromkeys(data["done"])  # type: ignore[misc]
        config.stash[DIRECTORY] = Path(data["directory"])
        containment.belong_to(data["controller"])
        stream = containment.own_stderr(config.stash[DIRECTORY], config.workerinput["workerid"])  # type: ignore[attr-defined]
        config.stash[WATCHDOG] = containment.Watchdog(config.getoption("deadline"), stream)
    elif FACTS in config.stash and not config.option.collectonly:
        try:
            config.stash[DIRECTORY] = Path(tempfile.mkdtemp(prefix="meshmark-"))
        except OSError as error:
            raise pytest.UsageError(f"no temporary directory: {error.strerror} (see TMPDIR)") from None
        config.pluginmanager.register(Report(config), "meshmark-report")


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
    return [f"meshmark: {line}" for line in _under_test(config)]


def _under_test(config: pytest.Config) -> list[str]:
    """The environment, what was chosen, and what can't be had here."""
    facts, selection = config.stash.get(FACTS, None), config.stash.get(SELECTION, None)
    if facts is None or selection is None:
        return []
    shapes = {
        placed.case.mesh.label: None for family in config.stash[BY_FAMILY].values() for placed in family
    }
    chosen = f"profile {selection.profile}, seed {config.getoption('seed')}, meshes {' '.join(shapes)}"
    lines = [*(line for place in config.stash[PLACES] for line in place.describe()), chosen]
    if facts.topology:
        lines += [f"{where}: {number} cases {why}" for where, why, number in config.stash[LEFT_OUT]]
        return lines
    missing = [n for n in (3, 6) if n >= facts.num_devices]
    if missing:
        lines.append(
            f"{facts.num_devices} devices: meshes of more, and the sub-meshes of the first"
            f" {' and '.join(map(str, missing))} devices, are outside of what is counted"
        )
    if config.getoption("num_devices") and not facts.virtual:
        lines.append(f"--num-devices is ignored on backend {facts.backend}")
    if not getattr(config.option, "numprocesses", 0) and not config.option.collectonly:
        lines.append("no workers: nothing contains a case that crashes or hangs")
    return lines


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


def case_of(nodeid: str) -> str:
    """The case id in a node id."""
    return nodeid.partition("[")[2].removesuffix("]")


@pytest.fixture(scope="session")
def judge_case(pytestconfig: pytest.Config) -> Callable[[Placed], list[Line]]:
    """Runs one case in this process and gives its lines, known issues applied."""
    if pytestconfig.stash[FACTS].topology:
        return _compiles(pytestconfig)
    import jax

    from harness.checks import Judge

    facts, watchdog = pytestconfig.stash[FACTS], pytestconfig.stash[WATCHDOG]
    if not watchdog:  # with -n 0 JAX was imported before the environment said this
        jax.config.update("jax_num_cpu_devices", int(os.environ["JAX_NUM_CPU_DEVICES"]))
        jax.config.update("jax_enable_x64", os.environ.get("JAX_ENABLE_X64", "0").lower() in ("1", "true"))
    with watchdog.over(containment.START) if watchdog else nullcontext():
        devices_here, compiling = tuple(jax.devices()), containment.first_compile()
    if watchdog:
        watchdog.seconds = containment.stretched(watchdog.seconds, compiling)
    judge = Judge(
        devices_here,
        pytestconfig.getoption("seed"),
        pytestconfig.getoption("repeat"),
        counters.load(facts.jax, facts.backend, facts.num_devices),
    )
    issues = known.load(facts.jax, facts.backend)

    def run(placed: Placed) -> list[Line]:
        with watchdog.over() if watchdog else nullcontext():
            lines = judge.run(placed.case)
        known.apply(issues, placed.id, lines)
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
        committed = counters.load(*counters.identity(facts.to_json()))
        judges[facts.place] = CompileOnly(topology, facts.layout, committed, _names(config, "export"))
        issues[facts.place] = known.load(facts.jax, facts.backend, topology=facts.topology)
    if watchdog and watchdog.seconds == containment.DEADLINE:
        watchdog.seconds = COMPILING

    def run(placed: Placed) -> list[Line]:
        with watchdog.over() if watchdog else nullcontext():
            lines = judges[placed.facts.place].run(placed.case)
        known.apply(issues[placed.facts.place], placed.case.id, lines)
        return lines

    return run


@pytest.fixture
def verdict(
    request: pytest.FixtureRequest, judge_case: Callable[[Placed], list[Line]]
) -> Callable[[Placed], None]:
    """Judges a case and ends the test with its verdict."""

    def assert_verdict(case: Placed) -> None:
        start = time.perf_counter()
        lines = judge_case(case)
        seconds = time.perf_counter() - start
        seed = request.config.getoption("seed")
        request.node.stash[LINES] = json.dumps(_records(case, lines, seed, seconds))
        found = worst(line.verdict for line in lines)
        if found == "pass":
            return
        if found in BAD:
            pytest.fail(_message(case, lines, seed), pytrace=False)
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


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker: tell the controller how large it has grown."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["resident"] = containment.largest_resident_bytes()


class Report:
    """In the controller: writes records as cases finish, makes verdicts of dead workers, closes with the table."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.facts = config.stash[FACTS]
        done: dict[str, Judged] = config.stash[DONE]
        self.cases = dict(done)
        self.writer: Writer | None = config.stash.get(WRITER, None)
        self.resident = 0
        self.idle_deaths = 0
        self.started: dict[str, float] = {}
        self._terminate = signal.signal(signal.SIGTERM, _interrupt)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the session."""
        self.session = session

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note when a case starts: one that kills its worker can't tell how long it took."""
        self.started[nodeid] = time.perf_counter()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep and write what a finished case brought; pytest-xdist does not count a crash for -x."""
        lines = vars(report).pop("meshmark", None)
        if lines is not None:
            self.take(json.loads(lines))
        if self.session.shouldfail and report.when == "???":
            self.end_workers()
            raise self.session.Failed(self.session.shouldfail)

    def take(self, records: list[dict[str, Any]]) -> None:
        """Keep the records of one case, and write them; a full disk ends the run, and what is written is kept."""
        self.idle_deaths = 0
        if self.writer:
            try:
                self.writer.write(records)
            except OSError as error:
                path, self.writer = self.writer.path, None
                pytest.exit(
                    f"can't write records to {path}: {os.strerror(error.errno or 0)}; what is written is kept:"
                    f" make room and go on with --resume {path}",
                    returncode=pytest.ExitCode.INTERRUPTED,
                )
        self.cases[records[0]["case"]] = Judged(records[0]["case"], records)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """pytest-xdist: a worker died while it ran this item."""
        worker = report.node.gateway.id
        line, raw = containment.post_mortem(self.config.stash[DIRECTORY], worker)
        own, place = split_id(case_of(crashitem))
        facts = next(facts for facts in self.config.stash[PLACES] if facts.place == place)
        case = Placed(cases.find(own, facts.num_devices), facts)
        known.apply(known.load(facts.jax, facts.backend, topology=facts.topology), own, [line])
        report.longrepr = _message(case, [line], self.config.getoption("seed"))
        if line.verdict == "known":
            report.outcome, report.wasxfail = "skipped", line.reason
        seconds = time.perf_counter() - self.started.get(crashitem, time.perf_counter())
        self.take(_records(case, [line], self.config.getoption("seed"), seconds))
        if self.writer:
            beside = f"{self.writer.path}.stderr"
            with suppress(OSError), open(beside, "a", encoding="utf-8", errors="replace") as file:
                file.write(f"== {case.id}\n{raw}\n")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """pytest-xdist: a worker ended. Workers that die without a case would be started again for ever."""
        self.resident = max(self.resident, getattr(node, "workeroutput", {}).get("resident", 0))
        if error:
            self.idle_deaths += 1
            if self.idle_deaths > 3:
                _, raw = containment.post_mortem(self.config.stash[DIRECTORY], node.gateway.id)
                last = ((raw.strip() or str(error)).splitlines() or ["no message"])[-1]
                pytest.exit(
                    f"workers die before they run a case: {last}", returncode=pytest.ExitCode.INTERNAL_ERROR
                )

    def pytest_keyboard_interrupt(self) -> None:
        """The run is interrupted, also by a full disk: what the workers are at is of no use any more."""
        self.end_workers()

    def end_workers(self) -> None:
        """End them at once, whatever they do."""
        containment.end_workers(self.config.stash[DIRECTORY])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A resumed run ends with the exit code of an uninterrupted one."""
        well = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if session.exitstatus in well and self.config.stash[DONE]:
            bad = any(judged.verdict in BAD for judged in self.cases.values())
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if bad else pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The closing table."""
        if not self.cases:
            return
        write = terminalreporter.write_line
        terminalreporter.section("meshmark")
        for line in (*_under_test(self.config), ""):
            write(line)
        places: dict[str, dict[str, Judged]] = {}
        for case, judged in self.cases.items():
            places.setdefault(split_id(case)[1], {})[case] = judged
        for place, found in places.items():
            if len(places) > 1:
                write(f"-- {place}")
            for line in summary.closing(found):
                write(line)
            if len(places) > 1:
                write("")
        if len(places) > 1:
            write(f"together {summary.counts(self.cases)}")
        if self.resident:
            write(f"largest worker: {self.resident / 1e6:.0f} MB resident")
        whole = self.config.stash[SELECTION] == Selection("full")
        for issue in known.load(self.facts.jax, self.facts.backend, topology=self.facts.topology):
            if whole and not any(issue.covers(split_id(case)[0]) for case in self.cases):
                write(f"warning: known issue {issue.link} matches no case: mend its pattern")
        path = self.config.getoption("record") or self.config.getoption("resume")
        if path:
            write(f"records: {path}")

    def pytest_unconfigure(self) -> None:
        """Close the file and clear the workers' directory."""
        signal.signal(signal.SIGTERM, self._terminate)
        if self.writer:
            self.writer.close()
        shutil.rmtree(self.config.stash[DIRECTORY], ignore_errors=True)


def _interrupt(number: int, frame: object) -> None:
    """SIGTERM ends a run as Ctrl-C does: the workers are ended and the table is shown."""
    raise KeyboardInterrupt(f"signal {signal.Signals(number).name}")


def _records(placed: Placed, lines: list[Line], seed: int, seconds: float) -> list[dict[str, Any]]:
    """The record lines of a judged case; on a topology with its place in the case id and in `topology`."""
    records = case_lines(placed.case, lines, seed, seconds)
    if placed.facts.topology:
        for record in records:
            record |= {"case": placed.id, "topology": placed.facts.topology, "layout": placed.facts.layout}
    return records


def _message(placed: Placed, lines: list[Line], seed: int) -> str:
    """What a failure says: the case, each reason, and the command that repeats it."""
    bad = [line for line in lines if line.verdict not in ("pass", "not_run")]
    reasons = [f"{line.check}: {line.verdict}: {line.reason}" for line in bad]
    case, request = placed.case, placed.case.cell.request
    again = f"a script that repeats it: python -m harness repro '{case.id}'" + (
        f" --seed {seed}" if seed else ""
    )
    if placed.facts.topology:
        again = (
            f"compile it again: python -m pytest conformance -n 0 --topology {placed.facts.topology}"
            f" --layout {placed.facts.layout} --profile full --operations {case.operation.name}"
            f" --modes {case.mode} --meshes {request.mesh.label} --dtypes {request.dtype} --sizes {request.size}"
        )
    return "\n".join([placed.id, *reasons, again])
