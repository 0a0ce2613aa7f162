"""A polynomial with constant coefficients is refused inside shard_map
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)  # for CPU alone
assert len(jax.devices()) >= 2, "this needs 2 devices"
mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    def body0(p0):
        return jnp.sinc(p0)
    return jax.shard_map(body0, mesh=mesh, in_specs=(P("x"),), out_specs=P("x"))(a)


a = np.array([1, 2], np.float32)

program = jax.jit(f)
placed = jax.device_put(a, NamedSharding(mesh, P()))
out = program(placed)
jax.block_until_ready(out)
print("no exception, as expected")
