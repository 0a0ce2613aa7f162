"""A gather inside a shard_map over one of three mesh axes ends the compiler
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 8)  # for CPU alone
assert len(jax.devices()) >= 8, "this needs 8 devices"
mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 2, 2), ("x", "y", "z"))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b):
    def body0(p0, p1):
        return jnp.take(p0, p1, axis=0)
    return jax.shard_map(body0, mesh=mesh, in_specs=(P(None, "x"), P(),), out_specs=P(None, "x"), axis_names={"x"})(a, b)


a = np.array([1, 2, 3, 4], np.float32).reshape(2, 2)
b = np.array([1, 0], np.int32)

program = jax.jit(f)
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P("y"), P("y"))])
out = program(*placed)
jax.block_until_ready(out)
print("no exception, as expected")
