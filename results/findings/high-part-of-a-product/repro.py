"""lax.mulhi does not compile for more than one device
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)  # for CPU alone
assert len(jax.devices()) >= 2, "this needs 2 devices"
mesh = Mesh(np.array(jax.devices()[:2]), ("y",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    return lax.mulhi(a, a)


a = np.array([1], np.int32).reshape(())

program = jax.jit(f)
placed = jax.device_put(a, NamedSharding(mesh, P()))
out = program(placed)
jax.block_until_ready(out)
print("no exception, as expected")
