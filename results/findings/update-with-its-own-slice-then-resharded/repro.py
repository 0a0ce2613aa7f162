"""An array that is updated by its own rows, and then gets another sharding, is wrong
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 4)  # for CPU alone
assert len(jax.devices()) >= 4, "this needs 4 devices"
mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    v0 = lax.slice(a, (0, 0), (2, 3))
    v1 = a.at[:, 1:].set(v0)
    return jax.lax.with_sharding_constraint(v1, NamedSharding(mesh, P("x", "y")))


a = np.arange(1, 9, dtype=np.float32).reshape(2, 4)
expected = np.array([1, 1, 2, 3, 5, 5, 6, 7], np.float32).reshape(2, 4)

program = jax.jit(f)
placed = jax.device_put(a, NamedSharding(mesh, P(None, ("x", "y"))))
out = program(placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
