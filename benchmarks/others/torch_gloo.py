# SPDX-License-Identifier: Apache-2.0
"""torch.distributed with gloo on CPU tensors. Outputs are allocated once; all_reduce works in place, as in torch."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.others import operations, rank
from benchmarks.others.operations import Array


class InPlace:
    """all_reduce: one buffer is input and output, so it is filled again before every call, untimed."""

    def __init__(self, source: Any) -> None:
        import torch.distributed as dist

        self._source, self._buffer, self._call = source, source.clone(), dist.all_reduce

    def renew(self) -> None:
        """Write the input into the buffer again."""
        self._buffer.copy_(self._source)

    def poison(self) -> None:
        """Does nothing: the input overwrites the previous output."""

    def run(self) -> Any:
        """Call; it returns when the buffer can be read."""
        self._call(self._buffer)
        return self._buffer

    def read(self, output: Any) -> Array:
        """The same memory."""
        found: Array = output.numpy()
        return found


class Apart:
    """An operation with separate input and output buffers."""

    def __init__(self, call: Any, source: Any, output: Any) -> None:
        self._source, self._output, self._call = source, output, call

    def renew(self) -> None:
        """Does nothing: the input is not overwritten."""

    def poison(self) -> None:
        """Forget the output."""
        self._output.fill_(float("nan"))

    def run(self) -> Any:
        """Call; it returns when the output can be read."""
        self._call(self._output, self._source)
        return self._output

    def read(self, output: Any) -> Array:
        """The same memory."""
        found: Array = output.numpy()
        return found


class Torch:
    """One process of the torch group."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self.rank, self.processes = int(os.environ[rank.RANK]), int(os.environ[rank.PROCESSES])
        torch.set_num_threads(1)
        torch.set_num_interop_threads(1)
        where = f"tcp://{os.environ[rank.MEETING]}"
        dist.init_process_group("gloo", init_method=where, rank=self.rank, world_size=self.processes)
        self._torch, self._dist = torch, dist

    def facts(self) -> Mapping[str, Any]:
        """Versions and threads."""
        return {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": str(self._torch.__version__),
            "threads": self._torch.get_num_threads(),
        }

    def barrier(self) -> None:
        """torch.distributed.barrier."""
        self._dist.barrier()

    def program(self, operation: str, nbytes: int) -> rank.Program:
        """Fill the buffers."""
        length = operations.input_length(operation, nbytes, self.processes)
        source = self._torch.from_numpy(operations.values(self.rank, length))
        if operation == "all_reduce":
            return InPlace(source)
        # 2.13 has this name for what older releases know as all_gather_into_tensor, and warns of the old one.
        gather = getattr(self._dist, "all_gather_single", None) or self._dist.all_gather_into_tensor
        calls = {
            "all_gather": gather,
            "all_to_all": self._dist.all_to_all_single,
        }
        return Apart(calls[operation], source, self._torch.empty(operations.output_length(nbytes)))

    def close(self) -> None:
        """Leave the group."""
        self._dist.destroy_process_group()


if __name__ == "__main__":
    rank.serve(Torch)
