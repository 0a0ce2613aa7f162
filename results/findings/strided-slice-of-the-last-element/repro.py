"""A strided slice from the last element of a sharded dimension fails in the compiler
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 3)  # for CPU alone
assert len(jax.devices()) >= 3, "this needs 3 devices"
mesh = Mesh(np.array(jax.devices()[:3]), ("x",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    return lax.slice(a, (5,), (6,), (3,))


a = np.arange(1, 7, dtype=np.float32)

program = jax.jit(f)
placed = jax.device_put(a, NamedSharding(mesh, P("x")))
out = program(placed)
jax.block_until_ready(out)
print("no exception, as expected")
