"""jnp.nanmean of bfloat16 counts its terms in bfloat16, on one device too
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)  # for CPU alone
assert len(jax.devices()) >= 2, "this needs 2 devices"
mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    v0 = lax.convert_element_type(a, "bfloat16")
    v1 = jnp.nanmean(v0)
    return lax.convert_element_type(v1, "float32")


a = np.arange(1, 513, dtype=np.float32).reshape(32, 16)
expected = np.array([256], np.float32).reshape(())

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
