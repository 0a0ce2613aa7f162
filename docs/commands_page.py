# SPDX-License-Identifier: Apache-2.0
"""Makes the page of commands from their parsers."""

import argparse
import re
from collections.abc import Iterator

from docs import package

INTRODUCTION = """# Commands

This page is made from the parsers of the commands: it says what `meshmark COMMAND --help` says.

Exit codes: 0 where all went well; 1 where a check said no; 2 for bad input, with one line that names the input and the
mend; 130 after Ctrl-C (SIGINT) and 143 after SIGTERM. `meshmark test` has pytest's exit codes: 0; 1 for a failure; 2
after an interruption; 4 for bad usage.
"""

TEST = """## meshmark test

Run the conformance suite. It takes pytest's options (`-k`, `-x`, `-q`, `-n 2`, `--collect-only`, `--junit-xml` ...) and
the following ones. `python -m pytest conformance` takes the same in a checkout.
"""


def cell(text: str) -> str:
    """Text escaped for one cell of a Markdown table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").strip()


def option(action: argparse.Action) -> str:
    """An option or argument as it is typed: `-n N`, `--num-processes N`."""
    metavar = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    metavar = " ".join(metavar) if isinstance(metavar, tuple) else metavar
    if not action.option_strings:
        many = {"+": " ...", "*": " ..."}.get(str(action.nargs), "")
        return f"`{metavar}{many}`"
    value = "" if action.nargs == 0 else f" {metavar}"
    return ", ".join(f"`{name}{value}`" for name in action.option_strings)


def explained(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help of an option, with its placeholders filled in."""
    if not action.help:
        return ""
    return parser._get_formatter()._expand_help(action)


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The tables of a parser's options, one per group that has any."""
    for group in parser._action_groups:
        listed = [
            action
            for action in group._group_actions
            if action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)
        ]
        if not listed:
            continue
        if group.title not in ("positional arguments", "options"):
            yield f"{group.title}:\n"
        yield "| option | meaning |\n|---|---|"
        yield from (f"| {option(a)} | {cell(explained(parser, a))} |" for a in listed)
        yield ""


def page() -> str:
    """The Markdown of the page."""
    top = package.commands()
    parts = [INTRODUCTION, TEST, *options(package.test_options())]
    subparsers = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    for name, parser in subparsers.choices.items():
        if name == "test":  # described above, with the options that it passes to pytest
            continue
        parts += [f"## meshmark {name}\n", (parser.description or "").strip() + "\n"]
        usage = re.sub(r"\s+", " ", parser.format_usage().removeprefix("usage:")).strip()
        parts += [f"```text\n{usage}\n```\n", *options(parser)]
    return "\n".join(parts) + "\n"
