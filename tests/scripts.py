# SPDX-License-Identifier: Apache-2.0
"""Runs scripts that use only JAX, each in a process of its own, without the second that an import of JAX takes.

One interpreter, in which the suite can't be imported, imports JAX and starts no backend. Each script runs in a fork of
it, which ends with the script.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_SERVER = """
import json, os, runpy, sys, traceback, warnings
import jax, jax.numpy, numpy
for line in sys.stdin:
    asked = json.loads(line)
    with warnings.catch_warnings(action="ignore"):  # JAX warns of a fork: it has no threads before its backend starts
        child = os.fork()
    if child == 0:
        os.chdir(asked["directory"])
        os.environ.update(asked["environment"])
        for number, path in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        code = 0
        try:
            option, name, *arguments = asked["command"]
            sys.argv = [name, *arguments]
            (runpy.run_module if option == "-m" else runpy.run_path)(name, run_name="__main__")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
            if code == 1 and ended.code != 1:
                print(ended.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Scripts:
    """Runs scripts; `with` ends the interpreter that they are forks of.

    environment: of the interpreter, by default that of this process without what speaks of Python and of JAX's devices.
    isolated: whether Python finds its own libraries alone (python -I).
    """

    def __init__(self, environment: Mapping[str, str] | None = None, isolated: bool = True) -> None:
        own = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_NUM", "PYTHON"))}
        self._server = subprocess.Popen(
            [sys.executable, *(["-I"] if isolated else []), "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=own if environment is None else dict(environment),
        )

    def __enter__(self) -> Scripts:
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.communicate()

    def run(self, text: str, directory: Path) -> subprocess.CompletedProcess[str]:
        """Run a script in a directory: its exit code and what it printed."""
        (directory / "case.py").write_text(text)
        return self.started(["", "case.py"], directory)

    def started(
        self, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ["", FILE, ARGUMENT...] or ["-m", MODULE, ARGUMENT...] in a directory, with more of an environment, of
        which what Python or JAX reads as it starts comes too late."""
        out, err = directory / "case.out", directory / "case.err"
        asked = {"out": str(out), "err": str(err), "directory": str(directory)}
        question = {**asked, "command": list(command), "environment": dict(environment or {})}
        assert self._server.stdin and self._server.stdout
        print(json.dumps(question), file=self._server.stdin, flush=True)
        code = int(self._server.stdout.readline())
        return subprocess.CompletedProcess(list(command), code, out.read_text(), err.read_text())
