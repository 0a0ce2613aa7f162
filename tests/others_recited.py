# SPDX-License-Identifier: Apache-2.0
"""A contestant that moves no data: it knows the data of every rank, and gives the answers, with a planted fault.

The ranks communicate through files, so neither JAX nor MPI is needed, and a test of the leader takes little time.
"""

import json
import os
import time
from pathlib import Path

import numpy as np

from benchmarks.others import operations, rank
from benchmarks.others.contestants import Contestant

FAULT = "MESHMARK_OTHERS_TEST_FAULT"
PLACE = "MESHMARK_OTHERS_TEST_PLACE"


def contestant(name="recited", fault="", place=""):
    environment = {FAULT: fault, PLACE: str(place)}
    return Contestant(name, name.title(), "tests.others_recited", environment=environment)


class Program:
    def __init__(self, owner, operation, nbytes):
        self.owner, self.operation = owner, operation
        self.answer = operations.expected(operation, nbytes, owner.rank, owner.processes)
        self.output = np.empty_like(self.answer)
        self.length = operations.input_length(operation, nbytes, owner.processes)
        self.calls = 0

    def renew(self):
        pass

    def poison(self):
        self.output.fill(np.nan)

    def run(self):
        self.calls += 1
        fault, rank_ = os.environ.get(FAULT, ""), self.owner.rank
        if fault == "straggler" and rank_ == 1:
            time.sleep(0.002)
        if fault == "stale" and self.calls > 1:
            return self.output  # nothing is written any more
        self.output[:] = self.answer
        if fault == "one value" and rank_ == 1:
            self.output[-1] += 1
        if fault == "missing rank" and self.operation == "all_reduce":
            self.output -= operations.values(1, self.length)
        if fault == "swapped ranks" and self.operation != "all_reduce":
            self.output[:] = np.roll(self.answer, self.answer.size // 2)
        if fault == "later" and rank_ == 1 and self.calls > 10:
            self.output[0] = 0
        if fault == "dies" and rank_ == 1 and self.calls > 10:
            os._exit(7)
        if fault == "raises" and rank_ == 0 and self.calls > 10:
            raise ValueError("no way in /some/secret/place")
        if fault == "hangs" and self.calls > 10:
            time.sleep(1000)
        return self.output

    def read(self, output):
        return output


class Recited:
    def __init__(self):
        self.rank, self.processes = int(os.environ[rank.RANK]), int(os.environ[rank.PROCESSES])
        if place := os.environ.get(PLACE):
            Path(place, f"{os.getpid()}.json").write_text(json.dumps({"rank": self.rank}))
        if os.environ.get(FAULT) == "does not start" and self.rank == 1:
            raise RuntimeError("the door is locked")
        if os.environ.get(FAULT) == "never comes" and self.rank == 1:
            time.sleep(1000)

    def facts(self):
        return {"python": "3", "recited": "1"}

    def barrier(self):
        pass

    def program(self, operation, nbytes):
        return Program(self, operation, nbytes)

    def close(self):
        if os.environ.get(FAULT) == "does not end":
            time.sleep(1000)


if __name__ == "__main__":
    rank.serve(Recited)
