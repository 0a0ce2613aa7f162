# SPDX-License-Identifier: Apache-2.0
"""The JAX contestant, whose ranks put in what the next rank should: real collectives of wrong values."""

from benchmarks.others import jax_gloo, operations, rank


class Wrong(jax_gloo.Jax):
    def program(self, operation, nbytes):
        length = operations.input_length(operation, nbytes, self.processes)
        return self._made(operation, operations.values(self.rank + 1, length))


if __name__ == "__main__":
    rank.serve(Wrong)
