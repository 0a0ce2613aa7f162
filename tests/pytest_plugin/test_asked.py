# SPDX-License-Identifier: Apache-2.0
"""Only the command line can request a run that judges nothing."""

from types import SimpleNamespace

import pytest

from meshmark.pytest_plugin.plugin import _check_asked


def config(*arguments):
    return SimpleNamespace(invocation_params=SimpleNamespace(args=arguments))


@pytest.mark.parametrize("argument", ["--collect-only", "--co", "--version", "-h", "-qV", "--fixtures"])
def test_the_command_line_may_ask_to_run_nothing(argument):
    _check_asked(config("conformance", argument))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("conformance", "-q", "-n", "2"),
        (
            "-k",
            "--collect",
        ),
        ("-x",),
    ],
)
def test_a_variable_or_a_file_may_not(arguments):
    with pytest.raises(pytest.UsageError, match="asks to run nothing"):
        _check_asked(config(*arguments))
