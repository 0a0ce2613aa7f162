"""A minimum or maximum over devices loses a NaN on CPU: scatters, segments and reductions
"""

import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)  # for CPU alone
assert len(jax.devices()) >= 2, "this needs 2 devices"
mesh = Mesh(np.array(jax.devices()[:2]), ("y",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b, c):
    return a.at[b].min(c)


a = np.array([np.inf, 3.0, np.nan], np.float32).reshape(3, 1)
b = np.array([1, 2], np.int32)
c = np.array([1], np.float32).reshape(1, 1)
expected = np.array([np.inf, 1.0, np.nan], np.float32).reshape(3, 1)

program = jax.jit(f)
placed = jax.device_put([a, b, c], [NamedSharding(mesh, s) for s in (P(), P("y"), P())])
out = program(*placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want, equal_nan=True):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
