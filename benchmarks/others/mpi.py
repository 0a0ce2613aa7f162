# SPDX-License-Identifier: Apache-2.0
"""MPI through mpi4py: the buffer forms of its collectives, on NumPy arrays. Outputs are allocated once.

Settings of the MPI library select the transport (contestants.py). A rank waits for the leader outside MPI, because MPI
libraries busy-wait.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.others import operations, rank
from benchmarks.others.operations import Array


class Program:
    """An operation from one array into another."""

    def __init__(self, call: Any, source: Array, output: Array) -> None:
        self._source, self._output, self._call = source, output, call

    def renew(self) -> None:
        """Does nothing: the input is not overwritten."""

    def poison(self) -> None:
        """Forget the output."""
        self._output.fill(np.nan)

    def run(self) -> Array:
        """Call; it returns when the output can be read."""
        self._call(self._source, self._output)
        return self._output

    def read(self, output: Array) -> Array:
        """The output itself."""
        return output


class Mpi:
    """One process of an MPI group."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi, self._world = MPI, MPI.COMM_WORLD
        self.rank, self.processes = self._world.Get_rank(), self._world.Get_size()

    def facts(self) -> Mapping[str, Any]:
        """Versions."""
        import mpi4py

        library = " ".join(self._mpi.Get_library_version().replace("\0", " ").split())
        return {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "mpi4py": mpi4py.__version__,
            "mpi": library.partition(",")[0][:60],
        }

    def barrier(self) -> None:
        """MPI_Barrier."""
        self._world.Barrier()

    def program(self, operation: str, nbytes: int) -> rank.Program:
        """Fill the buffers."""
        calls = {
            "all_reduce": self._world.Allreduce,
            "all_gather": self._world.Allgather,
            "all_to_all": self._world.Alltoall,
        }
        length = operations.input_length(operation, nbytes, self.processes)
        output = np.empty(operations.output_length(nbytes), np.float32)
        return Program(calls[operation], operations.values(self.rank, length), output)

    def close(self) -> None:
        """MPI_Finalize."""
        self._mpi.Finalize()


if __name__ == "__main__":
    rank.serve(Mpi)
