"""A batch of psum_scatter(tiled=False) takes another dimension as the batch
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
    def body0(p0):
        def body0body0(p0):
            return lax.psum_scatter(p0, "x", scatter_dimension=0, tiled=False)
        return jax.shard_map(body0body0, mesh=mesh, in_specs=(P(None, "x"),), out_specs=P("x"))(p0)
    return jax.vmap(body0, in_axes=(1,))(a)


a = np.arange(1, 17, dtype=np.float32).reshape(2, 2, 2, 2)
expected = np.array([4, 6, 20, 22, 12, 14, 28, 30], np.float32).reshape(2, 2, 2)

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
