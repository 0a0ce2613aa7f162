"""A Fourier transform whose operand is sharded and whose result is whole is an internal error on CPU
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
    return jnp.fft.fft(a)


a = np.array([1, 2, 3, 4], np.float32).reshape(2, 2)

program = jax.jit(f, out_shardings=NamedSharding(mesh, P()))
placed = jax.device_put(a, NamedSharding(mesh, P(None, "x")))
out = program(placed)
jax.block_until_ready(out)
print("no exception, as expected")
