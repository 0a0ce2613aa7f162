"""Rows written to later places of their own array are read after they are overwritten, without any sharding
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 1)  # for CPU alone
assert len(jax.devices()) >= 1, "this needs 1 devices"
mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    v0 = lax.cumsum(a)
    v1 = lax.slice(v0, (0,), (4,))
    return v0.at[1:].set(v1)


a = np.arange(1, 6, dtype=np.float32)
expected = np.array([1, 1, 3, 6, 10], np.float32)

program = jax.jit(f)
placed = jax.device_put(a, NamedSharding(mesh, P()))
out = program(placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
