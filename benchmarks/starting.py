# SPDX-License-Identifier: Apache-2.0
"""The cost of a fresh process: the time to its first result, and its memory."""

from __future__ import annotations

from benchmarks import environment, table


class First:
    """From importing JAX to the first result of a program, in a new process."""

    params = table.few()
    param_names = ("case",)
    number = 1
    repeat = (3, 5, 30.0)
    rounds = 1
    warmup_time = 0.0
    timeout = 300.0

    def setup(self, case_id: str) -> None:
        """Skip where this commit or machine can't, fail where the label lies."""
        environment.prepared(case_id)

    def timeraw_first_result(self, case_id: str) -> str:
        """Cold start: imports, backend, trace, compile, one call (the interpreter's own start is not in it)."""
        return environment.first_result(case_id)


class Memory:
    """Peak memory of a process that imports JAX, compiles a program and calls it once."""

    params = table.few()
    param_names = ("case",)
    timeout = 300.0

    def setup(self, case_id: str) -> None:
        """Skip where this commit or machine can't, fail where the label lies."""
        environment.case(case_id)
        environment.devices()

    def peakmem_first_result(self, case_id: str) -> None:
        """The same work as the cold start, in this process."""
        exec(environment.first_result(case_id), {})
