"""A product over three contracted dimensions that its operands shard differently lacks a sum over devices
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 4)  # for CPU alone
assert len(jax.devices()) >= 4, "this needs 4 devices"
mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b):
    return jnp.einsum("abc,abc->", a, b)


a = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2)
b = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2)
expected = np.array([204], np.float32).reshape(())

program = jax.jit(f)
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P("y", None, "x"), P("y", "x"))])
out = program(*placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
