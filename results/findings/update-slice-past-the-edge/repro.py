"""dynamic_update_slice with a start that has to be clamped is dropped along a sharded dimension
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)  # for CPU alone
assert len(jax.devices()) >= 2, "this needs 2 devices"
mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b):
    return lax.dynamic_update_slice(a, b, (2,))


a = np.array([1, 2], np.float32)
b = np.array([1], np.float32)
expected = np.array([1, 1], np.float32)

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
