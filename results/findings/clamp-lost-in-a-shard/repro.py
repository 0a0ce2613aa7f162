"""Two updates at the edge of a sharded array: an element beside a shard boundary is wrong, on JAX 0.10.2 and 0.11.2
"""

import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)  # for CPU alone
assert len(jax.devices()) >= 2, "this needs 2 devices"
mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b):
    v0 = a.at[1:].set(b)
    return v0.at[:1].set(0)


a = np.array([1, 2, 3, 4], np.float32)
b = np.array([6], np.float32)
expected = np.array([0, 6, 6, 6], np.float32)

program = jax.jit(f)
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P("x"), P())])
out = program(*placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
