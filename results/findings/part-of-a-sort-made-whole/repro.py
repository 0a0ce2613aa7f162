"""The first elements of a sharded sort, constrained to be whole on each device, fail in the verifier
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 3)  # for CPU alone
assert len(jax.devices()) >= 3, "this needs 3 devices"
mesh = Mesh(np.array(jax.devices()[:3]), ("x",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    v0 = jnp.sort(a)
    v1 = lax.slice_in_dim(v0, 0, 5, axis=1)
    return jax.lax.with_sharding_constraint(v1, NamedSharding(mesh, P()))


a = np.arange(1, 13, dtype=np.float32).reshape(2, 6)

program = jax.jit(f)
placed = jax.device_put(a, NamedSharding(mesh, P(None, "x")))
out = program(placed)
jax.block_until_ready(out)
print("no exception, as expected")
