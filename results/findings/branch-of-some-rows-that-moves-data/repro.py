"""A branch that only some rows of devices take ends the process on CPU where it moves data over other axes
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 4)  # for CPU alone
assert len(jax.devices()) >= 4, "this needs 4 devices"
mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b):
    def body0(p0, p1):
        w0 = p0[0]
        def body0body1a(p0):
            return jnp.roll(p0, 1, axis=1)
        def body0body1b(p0):
            return p0
        return lax.cond(w0, body0body1a, body0body1b, p1)
    return jax.shard_map(body0, mesh=mesh, in_specs=(P("x"), P("x"),), out_specs=P("x"), axis_names={"x"}, check_vma=False)(a, b)


a = np.array([0, 1], np.int32)
b = np.arange(1, 9, dtype=np.float32).reshape(2, 4)

program = jax.jit(f)
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P(), P(None, "y"))])
out = program(*placed)
jax.block_until_ready(out)
print("no exception, as expected")
