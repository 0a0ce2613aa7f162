# SPDX-License-Identifier: Apache-2.0
"""A malformed -k or -m is refused at the start, in one line that names it."""

from types import SimpleNamespace

import pytest

from meshmark.commands.main import main
from meshmark.pytest_plugin import expressions
from tests.checkout import ROOT


def config(keyword="", markexpr=""):
    return SimpleNamespace(option=SimpleNamespace(keyword=keyword, markexpr=markexpr))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "psum",
        "psum and not (x+y or z)",
        "psum/axes",
        "not(psum)",
        "psum or(pmax)",
        "[2x4]",
        "float32-4KiB",
    ],
)
def test_an_expression_is_taken(text):
    expressions.check_expressions(config(keyword=text))
    expressions.check_expressions(config(markexpr=text))


@pytest.mark.parametrize("option", ["-k", "-m"])
@pytest.mark.parametrize(
    "text",
    [
        "group=series/ or psum",
        "psum or",
        "or",
        "(psum",
        "psum)",
        "psum pmax",
        "a,b",
        "axes=x",
        "'psum",
        "\x1b[2J;",
    ],
)
def test_what_is_none_is_named_with_a_mend(option, text):
    given = config(keyword=text) if option == "-k" else config(markexpr=text)
    with pytest.raises(pytest.UsageError) as refused:
        expressions.check_expressions(given)
    told = str(refused.value)
    assert told.startswith(f"{option} {text!a} is not an expression: ") and "by and, or, not" in told
    assert "\n" not in told and "\x1b" not in told


def test_a_call_is_for_markers_alone():
    """pytest refuses it when it applies -k to a case, which is in a worker."""
    expressions.check_expressions(config(markexpr="family(name='layers')"))
    with pytest.raises(pytest.UsageError, match=r"family\(...\) is a call, which only -m takes"):
        expressions.check_expressions(config(keyword="psum and family(name='layers')"))


@pytest.mark.parametrize("option", ["-k", "-m"])
@pytest.mark.parametrize("command", ["checkout", "meshmark test"])
def test_a_run_ends_before_it_starts_anything(option, command, capfd, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("meshmark.devices.probe.probe", lambda *_: 1 / 0)
    monkeypatch.setattr("meshmark.judge.capabilities.probe_facts", lambda *_: 1 / 0)
    arguments = ["--profile", "smoke", "-n", "2", "-p", "no:cacheprovider", option, "group=series/ or psum"]
    in_checkout = command == "checkout"
    code = pytest.main(["conformance", *arguments]) if in_checkout else main(["test", *arguments])
    assert code == pytest.ExitCode.USAGE_ERROR
    seen = capfd.readouterr()
    told = [line for line in (seen.out + seen.err).splitlines() if line.strip()]
    assert len(told) == 1 and told[0].startswith(
        f"ERROR: {option} 'group=series/ or psum' is not an expression"
    )
