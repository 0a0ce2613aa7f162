# SPDX-License-Identifier: Apache-2.0
"""The JAX contestant with wrong inputs: each rank uses those of the next rank, so the values of its collectives are
wrong."""

from benchmarks.others import jax_gloo, operations, rank


class Wrong(jax_gloo.Jax):
    def program(self, operation, nbytes):
        length = operations.input_length(operation, nbytes, self.processes)
        return self._made(operation, operations.values(self.rank + 1, length))


if __name__ == "__main__":
    rank.serve(Wrong)
