"""The gradient of a cumulative maximum with one element on each device raises an internal error
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
    return lax.cummax(a)


a = np.array([1, 2, 3], np.float32)
b = np.array([1, 2, 3], np.float32)

program = jax.jit(lambda a, b: jax.vjp(f, a)[1](b)[0])
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P("x"), P())])
out = program(*placed)
jax.block_until_ready(out)
print("no exception, as expected")
