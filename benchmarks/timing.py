# SPDX-License-Identifier: Apache-2.0
"""Seconds of one isolated call of what the conformance suite verifies."""

from __future__ import annotations

from benchmarks import environment, table


class Isolated:
    """Calls of a program compiled ahead of time and verified in this very process, each blocked on.

    asv runs setup before every call, so it only attaches what was prepared once; a sample is one call, and there
    are many. rounds: two processes, interleaved among the benchmarks and commits.
    """

    params = table.timed()
    param_names = ("case",)
    number = 1
    repeat = (10, 200, 1.0)
    rounds = 2
    warmup_time = 0.1
    timeout = 300.0

    def setup(self, case_id: str) -> None:
        """Attach the prepared case, or skip."""
        self.run = environment.prepared(case_id).run

    def time_call(self, case_id: str) -> None:
        """One call."""
        self.run()
