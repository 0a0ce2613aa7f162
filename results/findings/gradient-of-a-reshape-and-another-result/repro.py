"""The pull-back of a reshape with its axes in another order than the mesh's, beside a second cotangent, ends the process
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 6)  # for CPU alone
assert len(jax.devices()) >= 6, "this needs 6 devices"
mesh = Mesh(np.array(jax.devices()[:6]).reshape(3, 2), ("x", "y"))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    v0 = jnp.reshape(a, (12,))
    v1 = jax.lax.with_sharding_constraint(v0, NamedSharding(mesh, P(("y", "x"))))
    return v1, a


a = np.arange(1, 13, dtype=np.float32).reshape(6, 2)
b = np.arange(1, 13, dtype=np.float32)
c = np.arange(1, 13, dtype=np.float32).reshape(6, 2)

program = jax.jit(lambda a, b, c: jax.vjp(f, a)[1]((b, c))[0])
placed = jax.device_put([a, b, c], [NamedSharding(mesh, s) for s in (P(), P(), P(None, "y"))])
out = program(*placed)
jax.block_until_ready(out)
print("no exception, as expected")
