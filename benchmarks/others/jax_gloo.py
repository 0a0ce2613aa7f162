# SPDX-License-Identifier: Apache-2.0
"""JAX across processes on its CPU backend, which uses gloo for collectives, with one device per process.

Each program is `jax.shard_map` of one `jax.lax` collective, compiled ahead of time, with its input on the device. JAX
arrays are immutable, so every call allocates its output. Nothing is donated.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.others import operations, rank
from benchmarks.others.operations import Array


class Program:
    """A compiled program and its input."""

    def __init__(self, compiled: Any, inputs: Any) -> None:
        import jax

        self._call, self._inputs, self._block = compiled, inputs, jax.block_until_ready

    def renew(self) -> None:
        """Does nothing: inputs are never overwritten."""

    def poison(self) -> None:
        """Does nothing: every output is a new array."""

    def run(self) -> Any:
        """Call the program and wait for its result."""
        return self._block(self._call(self._inputs))

    def read(self, output: Any) -> Array:
        """The shard of this process as a NumPy array."""
        [shard] = output.addressable_shards
        return np.asarray(shard.data)


class Jax:
    """One process of the JAX group."""

    def __init__(self) -> None:
        import jax

        self.rank, self.processes = int(os.environ[rank.RANK]), int(os.environ[rank.PROCESSES])
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.config.update("jax_enable_compilation_cache", False)
        jax.distributed.initialize(os.environ[rank.MEETING], self.processes, self.rank)
        devices = sorted(jax.devices(), key=lambda d: d.process_index)
        if [d.process_index for d in devices] != list(range(self.processes)):
            raise RuntimeError(f"one device a process is needed, not {devices}")
        self._mesh = jax.sharding.Mesh(np.array(devices), ("p",))
        self._meet = self._made("all_reduce", operations.values(self.rank, 1))

    def _made(self, operation: str, values: Array) -> Program:
        """The program over buffers of this many values per process."""
        import jax
        from jax import lax

        body = {
            "all_reduce": lambda x: lax.psum(x, "p"),
            "all_gather": lambda x: lax.all_gather(x, "p", tiled=True),
            "all_to_all": lambda x: lax.all_to_all(x, "p", split_axis=0, concat_axis=0, tiled=True),
        }[operation]
        spec = jax.P("p")
        inputs = jax.make_array_from_process_local_data(
            jax.sharding.NamedSharding(self._mesh, spec), values, (values.size * self.processes,)
        )
        function = jax.shard_map(body, mesh=self._mesh, in_specs=spec, out_specs=spec)
        return Program(jax.jit(function).lower(inputs).compile(), inputs)

    def facts(self) -> Mapping[str, Any]:
        """Versions."""
        import jax
        import jaxlib

        return {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "collectives": jax.config.jax_cpu_collectives_implementation,
        }

    def barrier(self) -> None:
        """A psum of one float32 per process, compiled ahead of time. Waits for its result."""
        self._meet.run()

    def program(self, operation: str, nbytes: int) -> rank.Program:
        """Compile it."""
        length = operations.input_length(operation, nbytes, self.processes)
        return self._made(operation, operations.values(self.rank, length))

    def close(self) -> None:
        """Leave the group."""
        import jax

        jax.distributed.shutdown()


if __name__ == "__main__":
    rank.serve(Jax)
