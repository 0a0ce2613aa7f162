"""Two cumulative functions of one sharded array in one program: one of them is wrong
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
    v0 = lax.cumsum(a)
    v1 = lax.cumprod(a)
    return v0, v1


a = np.array([1, 2], np.int32)
expected = [np.array([1, 3], np.int32), np.array([1, 2], np.int32)]

program = jax.jit(f)
placed = jax.device_put(a, NamedSharding(mesh, P("x")))
outs = jax.tree.leaves(program(placed))
good = True
for x, want_all in zip(outs, expected):
    for shard in x.addressable_shards:
        seen, want = np.asarray(shard.data), want_all[shard.index]
        if not np.array_equal(seen, want):
            print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
            good = False
sys.exit(not good)
