"""The diagonal of matrices whose rows are sharded over one of two axes is wrong in a result that is sharded over both
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 8)  # for CPU alone
assert len(jax.devices()) >= 8, "this needs 8 devices"
mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    return jnp.linalg.diagonal(a)


a = np.arange(1, 33, dtype=np.int32).reshape(2, 4, 4)
expected = np.array([1, 6, 11, 16, 17, 22, 27, 32], np.int32).reshape(2, 4)

program = jax.jit(f, out_shardings=NamedSharding(mesh, P("x", "y")))
placed = jax.device_put(a, NamedSharding(mesh, P(None, "x")))
out = program(placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
