"""The pytest plugin behind `pytest conformance`: options, workers, cases, records and the closing table.

The controller probes the devices in a child process and starts no backend. Workers (pytest-xdist) are on by
default: as many as there are cores on CPU, one on any other backend; `-n 0` runs in the pytest process.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import cases, devices, known, summary
from harness.cases import Case, Selection, SelectionError
from harness.devices import Facts, NoBackend
from harness.records import Judged, RecordError, Writer, case_lines
from harness.verdicts import BAD, Line, worst

FACTS = pytest.StashKey[Facts]()
SELECTION = pytest.StashKey[Selection]()
BY_FAMILY = pytest.StashKey[dict[str, list[Case]]]()
LINES = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the suite."""
    group = parser.getgroup("meshmark", "Meshmark, conformance of distributed JAX")
    add = group.addoption
    add("--profile", default="standard", help="how much: " + ", ".join(cases.PROFILES) + " (default standard)")
    add("--level", default="", metavar="L0,L1,...", help="only these levels: " + ", ".join(cases.LEVELS))
    add("--with", dest="with_", default="", metavar="NAMES",
        help="optional capabilities: " + "; ".join(f"{k}: {v}" for k, v in cases.CAPABILITIES.items()))
    for name, example in (("operations", "psum,matmul"), ("modes", "auto,manual"), ("meshes", "2x4,8"),
                          ("dtypes", "float32,int8"), ("sizes", "4KiB")):
        add(f"--{name}", default="", metavar="NAMES", help=f"only these {name}, such as {example}")
    add("--seed", type=int, default=0, metavar="N", help="seed of the inputs (default 0)")
    add("--num-devices", type=int, default=None, metavar="N",
        help="virtual CPU devices (default 8); ignored with a notice on real hardware")
    add("--record", type=Path, default=None, metavar="FILE",
        help="write records (JSON lines) to this new file; without it nothing is written")


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
    if wanted is not None and wanted < 1:
        raise pytest.UsageError(f"--num-devices {wanted}: use a number from 1 on")
    if config.getoption("seed") < 0:
        raise pytest.UsageError(f"--seed {config.getoption('seed')}: use a number from 0 on")
    devices.ask_for_cpu_devices(wanted)
    if "x64" in _names(config, "with_"):
        os.environ["JAX_ENABLE_X64"] = "1"
    try:
        facts = devices.probe()
        config.stash[SELECTION] = _selection(config, facts.num_devices)
    except (SelectionError, NoBackend) as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[FACTS] = facts
    _check_record(config.getoption("record"))
    if getattr(config.option, "numprocesses", 0) is None and not (config.option.collectonly or config.option.usepdb):
        config.option.numprocesses = (os.cpu_count() or 1) if facts.virtual else 1


def _check_record(path: Path | None) -> None:
    if path is None:
        return
    if path.exists():
        raise pytest.UsageError(f"--record {path} exists: records are never overwritten, name another file")
    if not path.absolute().parent.is_dir():
        raise pytest.UsageError(f"--record {path}: there is no directory {path.absolute().parent}")


def pytest_configure(config: pytest.Config) -> None:
    """Markers; in a worker, take the facts over; in the controller, start the report."""
    config.addinivalue_line("markers", "family(name): the family of operations that a conformance test runs")
    data = getattr(config, "workerinput", {}).get("meshmark")
    if data is not None:
        config.stash[FACTS] = Facts.from_json(json.loads(data))
        config.stash[SELECTION] = _selection(config, config.stash[FACTS].num_devices)
    elif FACTS in config.stash and not config.option.collectonly:
        try:
            config.pluginmanager.register(Report(config), "meshmark-report")
        except RecordError as error:
            raise pytest.UsageError(f"--record: {error}") from None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist: hand the facts to a worker."""
    node.workerinput["meshmark"] = json.dumps(node.config.stash[FACTS].to_json())


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What is under test."""
    facts, selection = config.stash.get(FACTS, None), config.stash.get(SELECTION, None)
    if facts is None or selection is None:
        return []
    lines = ["meshmark: " + line for line in facts.describe()]
    shapes = {cell.request.mesh.label: None for cell, _ in cases.cells(selection, facts.num_devices)}
    lines.append(f"meshmark: profile {selection.profile}, seed {config.getoption('seed')}, meshes {' '.join(shapes)}")
    missing = [n for n in (3, 6) if n >= facts.num_devices]
    if missing:
        lines.append(
            f"meshmark: {facts.num_devices} devices: meshes of more, and the sub-meshes of the first"
            f" {' and '.join(map(str, missing))} devices, are outside of what is counted"
        )
    if config.getoption("num_devices") and not facts.virtual:
        lines.append(f"meshmark: --num-devices is ignored on backend {facts.backend}")
    return lines


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A conformance test takes the cases of its family."""
    marker = metafunc.definition.get_closest_marker("family")
    if marker is None or "case" not in metafunc.fixturenames:
        return
    stash = metafunc.config.stash
    if BY_FAMILY not in stash:
        stash[BY_FAMILY] = {}
        for case in cases.cases(stash[SELECTION], stash[FACTS].num_devices):
            stash[BY_FAMILY].setdefault(case.operation.family, []).append(case)
    chosen = stash[BY_FAMILY].get(marker.args[0], [])
    metafunc.parametrize("case", chosen, ids=[case.id for case in chosen])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop the placeholder of a family of which nothing was chosen."""
    items[:] = [i for i in items if not (i.get_closest_marker("family") and "NOTSET" in i.name)]


@pytest.fixture(scope="session")
def judge_case(pytestconfig: pytest.Config) -> Callable[[Case], list[Line]]:
    """Runs one case in this process and gives its lines, known issues applied."""
    import jax

    from harness.checks import Judge

    facts = pytestconfig.stash[FACTS]
    judge = Judge(tuple(jax.devices()), pytestconfig.getoption("seed"))
    issues = known.load(facts.jax, facts.backend)

    def run(case: Case) -> list[Line]:
        lines = judge.run(case)
        known.apply(issues, case.id, lines)
        return lines

    return run


@pytest.fixture
def verdict(request: pytest.FixtureRequest, judge_case: Callable[[Case], list[Line]]) -> Callable[[Case], None]:
    """Judges a case and ends the test with its verdict."""

    def assert_verdict(case: Case) -> None:
        start = time.perf_counter()
        lines = judge_case(case)
        seconds = time.perf_counter() - start
        seed = request.config.getoption("seed")
        request.node.stash[LINES] = json.dumps(case_lines(case, lines, seed, seconds))
        found = worst(line.verdict for line in lines)
        if found == "pass":
            return
        reasons = [f"{line.check}: {line.verdict}: {line.reason}" for line in lines if line.verdict != "pass"]
        if found in BAD:
            again = f"a script that repeats it: python -m harness repro '{case.id}'"
            pytest.fail("\n".join([case.id, *reasons, again]), pytrace=False)
        (pytest.xfail if found == "known" else pytest.skip)(reasons[0])

    return assert_verdict


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Send the record lines of a case along with its report."""
    report: Any = yield
    if report.when == "call" and LINES in item.stash:
        report.meshmark = item.stash[LINES]
    return report


class Report:
    """In the controller: writes records as cases finish, and closes with the table."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.facts = config.stash[FACTS]
        self.cases: dict[str, Judged] = {}
        self.writer: Writer | None = None
        path = config.getoption("record")
        if path is not None:
            selection = config.stash[SELECTION]
            self.writer = Writer(path, {
                "facts": self.facts.to_json(),
                "selection": {k: v for k, v in vars(selection).items() if v not in ((), None)},
                "seed": config.getoption("seed"),
                "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            })

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep and write what a finished case brought."""
        lines = getattr(report, "meshmark", None)
        if lines is None:
            return
        records = json.loads(lines)
        self.cases[records[0]["case"]] = Judged(records[0]["case"], records)
        if self.writer:
            self.writer.write(records)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The closing table."""
        if not self.cases:
            return
        write = terminalreporter.write_line
        terminalreporter.section("meshmark")
        for line in summary.closing(self.cases):
            write(line)
        for issue in known.load(self.facts.jax, self.facts.backend):
            if self.config.stash[SELECTION] == Selection("full") and not any(map(issue.covers, self.cases)):
                write(f"warning: known issue {issue.link} matches no case: mend its pattern")
        if self.writer:
            write(f"records: {self.config.getoption('record')}")

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        if self.writer:
            self.writer.close()
