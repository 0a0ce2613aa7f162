"""lax.pad of an array that is not sharded is dropped where its result is sharded
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


def f(a):
    return lax.pad(a, 0.0, ((-1, 1, 0),))


a = np.array([1, 2, 3, 4], np.float32)
expected = np.array([2, 3, 4, 0], np.float32)

program = jax.jit(f, out_shardings=NamedSharding(mesh, P("x")))
placed = jax.device_put(a, NamedSharding(mesh, P()))
out = program(placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
