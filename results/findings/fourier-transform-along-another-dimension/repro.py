"""A Fourier transform along the first of three dimensions, from one sharding into another, is an internal error
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
    v0 = jnp.fft.fft(a, axis=0)
    return jax.lax.with_sharding_constraint(v0, NamedSharding(mesh, P("x")))


a = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2)

program = jax.jit(f)
placed = jax.device_put(a, NamedSharding(mesh, P(None, "x")))
out = program(placed)
jax.block_until_ready(out)
print("no exception, as expected")
