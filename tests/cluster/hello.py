# SPDX-License-Identifier: Apache-2.0
"""The least that a launcher must provide: JAX finds the other processes by itself, and a sum goes over all of them.

Every rank prints one line. It ends with 0 only if `jax.distributed.initialize()` without arguments made one group of as
many processes as the first argument (if given), and if a psum over all devices has the right value on each.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.cluster import over_mpi


def main(expected: int | None) -> int:
    jax.distributed.initialize()
    count = jax.device_count()
    mesh = Mesh(np.array(jax.devices()), ("x",))
    rows = NamedSharding(mesh, PartitionSpec("x"))
    full = np.arange(4 * count, dtype=np.float32).reshape(count, 4)
    x = jax.make_array_from_callback(full.shape, rows, lambda index: full[index])

    def summed(part):
        return jax.lax.psum(part, "x")

    program = jax.jit(
        jax.shard_map(summed, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec(None))
    )
    wanted = full.sum(axis=0, keepdims=True)
    parts = [np.asarray(shard.data) for shard in jnp.asarray(program(x)).addressable_shards]
    right = len(parts) == jax.local_device_count() and all(np.array_equal(part, wanted) for part in parts)
    complete = expected in (None, jax.process_count())
    sys.stdout.write(  # at once, newline included: the lines of all ranks come out of one pipe
        f"rank {jax.process_index()} of {jax.process_count()}: {jax.local_device_count()} of {count} devices, "
        f"psum {'right' if right else f'wrong: {parts}'}\n"
    )
    sys.stdout.flush()
    jax.distributed.shutdown()
    return 0 if right and complete else 1


if __name__ == "__main__":
    over_mpi.CODE[0] = main(int(sys.argv[1]) if len(sys.argv) > 1 else None)
    sys.exit(over_mpi.CODE[0])
