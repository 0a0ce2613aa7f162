"""`meshmark test` hands everything to pytest, and finds the suite in the package."""

from types import SimpleNamespace

import pytest

from meshmark.commands.main import main
from meshmark.core.installation import PACKAGE
from meshmark.pytest_plugin.installed import pytest_load_initial_conftests

SUITE = str(PACKAGE / "conformance")
NODE = "conformance/test_collectives.py::test_collectives[psum/axes=x/auto/8/float32/4KiB]"


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--help"],
        ["--version"],
        ["--profile", "smoke", "-k", "psum and not manual", "-n", "2", "--record", "x.jsonl"],
        ["-q", "--", NODE],
        ["--json", "devices"],
    ],
)
def test_every_option_is_pytest_s(monkeypatch, tmp_path, options):
    taken = []
    monkeypatch.setattr(pytest, "main", lambda args: taken.append(args) or pytest.ExitCode.NO_TESTS_COLLECTED)
    monkeypatch.chdir(tmp_path)
    assert main(["test", *options]) == 5, "the exit code is pytest's"
    [args] = taken
    assert args[len(args) - len(options) :] == options
    own = args[: len(args) - len(options)]
    assert own[own.index("--rootdir") + 1] == str(PACKAGE)
    assert own[own.index("-o") + 1] == f"cache_dir={tmp_path / '.pytest_cache'}", "not in the package"
    assert (PACKAGE / "conformance" / "pytest.ini").samefile(own[own.index("-c") + 1])


@pytest.mark.parametrize(
    ("args", "named", "found"),
    [
        (["-q"], [], ["-q", SUITE]),
        (["-k", "conformance", NODE], [NODE], ["-k", "conformance", f"{PACKAGE}/{NODE}"]),
        (["conformance"], ["conformance"], [SUITE]),
        (
            ["conformance_of_mine/test_a.py"],
            ["conformance_of_mine/test_a.py"],
            ["conformance_of_mine/test_a.py"],
        ),
    ],
)
def test_names_of_tests_are_found_in_the_package(args, named, found):
    config = SimpleNamespace(known_args_namespace=SimpleNamespace(file_or_dir=list(named)))
    pytest_load_initial_conftests(config, args)
    assert args == found
    assert config.known_args_namespace.file_or_dir == [found[-1]], (
        "no conftest.py of the working directory is read"
    )
