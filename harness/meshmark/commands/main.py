# SPDX-License-Identifier: Apache-2.0
"""The command line: `meshmark`, or `python -m harness` in a bare checkout.

It uses argparse, because a bare checkout has only jax, numpy, pytest and pytest-xdist. A command is a module of this
room with `add_arguments` and `run`. Only the called command is imported: `diff`, `merge` and `asv-doctor` work without
JAX. No command starts a JAX backend here: `devices` asks a child process, and the others need none. Exit codes: 0 for
success; 1 if a check failed; 2 for bad input, with one line that names the input and the correction.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from meshmark.core import installation, interrupts, saying, steady
from meshmark.core.errors import BadInput, not_installed, unknown
from meshmark.core.terminal import note

COMMANDS = {
    "test": "run the conformance suite; takes every option of pytest",
    "devices": "show what JAX sees, the meshes in use, and advice on placement",
    "list": "list the case table, or the part that the options choose",
    "tables": "make Markdown and CSV tables of records",
    "hunt": "judge random programs, sharded against unsharded",
    "bisect": "find the releases of JAX that show a finding of the hunt",
    "explain": "explain a compiled program step by step, without the hardware",
    "repro": "print a stand-alone script of one case for a bug report",
    "diff": "show the verdicts that changed between two record files",
    "bench": "time collectives, matmuls and layers, mode beside mode",
    "compare": "time two environments, commits or record files in pairs",
    "growth": "compile for few to many devices, and show what grows how fast",
    "weather": "compile with several releases: what each one changed, exactly",
    "asv-doctor": "find known pitfalls in benchmarks and configurations of asv",
    "report": "make the page, Markdown, CSV and LaTeX of records, or check them",
    "serve": "serve the page of a running test, only for this machine",
    "levels": "state the level that records meet; keep the must-pass lists",
    "counters": "make the committed counters from the records of a run",
    "challenge": "draw a seed and cases, to prove that a run was made afterwards",
    "submit": "make a bundle from records, to be published",
    "validate": "check a bundle, or results/, as a reviewer would",
    "launch": "run one command as several ranks on this machine",
    "merge": "merge the records of several ranks into one file",
}
"""The commands and their purposes. Each command's module has its name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    steady.standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a locale that lacks a character must not break a command
        sys.stdout.reconfigure(errors="backslashreplace")
    named = next((word for word in words if not word.startswith("-")), None)
    try:
        if named is not None and named not in COMMANDS:
            raise BadInput(unknown("command", named, COMMANDS, "meshmark --help"))
        arguments = _parsed(parser(named or ""), words)
        with interrupts.end_on_sigterm():
            code: int = arguments.run(arguments)
        sys.stdout.flush()
    except BadInput as error:
        note(str(error))
        return 2
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        if (mend := not_installed(error)) is None:
            raise
        note(mend)
        return 2
    except ImportError as error:
        if str(error.name).startswith("meshmark"):
            raise
        why = (str(error).strip().splitlines() or ["no reason"])[-1]
        note(f"a package can't be loaded ({why[:200]}): give more memory (`ulimit -v`), or install it again")
        return 2
    except OSError as error:
        mend = ""
        what = f"can't use {error.filename}" if error.filename else "can't write the output"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            what, mend = "can't open another file", "; allow more of them (`ulimit -n 1024`)"
        note(f"{what}: {error.strerror}{mend}")
        return 2
    except MemoryError as error:
        note(
            f"there is not enough memory: {saying.first_line(error)[:200] or 'no more'}: take something smaller"
        )
        return 2
    except KeyboardInterrupt as error:
        return interrupts.code(error)
    return code


class Parser(argparse.ArgumentParser):
    """A parser that complains in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        note(f"{message} (see {self.prog} --help)")
        sys.exit(2)


def parser(named: str | None = None) -> Parser:
    """The parser of the command line.

    named: the command whose arguments are added; "" for no command. None adds those of all commands, as the documents
    need.
    """
    top = Parser(prog="meshmark", description="Conformance and benchmark suite for distributed JAX.")
    top.add_argument("--version", action=_Version)
    top.set_defaults(run=_help, parser=top)
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    for name, text in COMMANDS.items():
        made = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if named in (None, name):
            command = importlib.import_module(f"meshmark.commands.{name.replace('-', '_')}")
            command.add_arguments(made)
            made.set_defaults(run=command.run, parser=made)
    return top


class _Version(argparse.Action):
    """Prints the version when it is asked for: git needs a moment to say whether a checkout is clean."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(
            option_strings, dest, nargs=0, help="print the version, the commit and the release of JAX"
        )

    def __call__(self, *_: object) -> NoReturn:
        """Print, and end with exit code 0."""
        print(installation.describe_version())
        sys.exit(0)


def _help(arguments: argparse.Namespace) -> int:
    arguments.parser.print_help()
    return 0


def _parsed(top: Parser, words: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments; BadInput for an unknown option, with the nearest known one."""
    arguments, rest = top.parse_known_args(words)
    if rest:
        own: Parser = getattr(arguments, "parser", top)
        options = re.findall(r"--[\w-]+", own.format_help())
        if rest[0].startswith("-"):
            raise BadInput(
                unknown("option", rest[0].split("=")[0], dict.fromkeys(options), f"{own.prog} --help")
            )
        raise BadInput(f"{rest[0][:80]!a} is not expected here (see `{own.prog} --help`)")
    return arguments
