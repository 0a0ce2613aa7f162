"""A random key whose two words are sharded over an explicit axis ends in an assertion
"""

import sys

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)  # for CPU alone
assert len(jax.devices()) >= 2, "this needs 2 devices"
mesh = Mesh(np.array(jax.devices()[:2]), ("x",), axis_types=(AxisType.Explicit,) * 1)
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    return jax.random.randint(a, (3,), 0, 9)


a = np.array([1, 2], np.uint32)

program = jax.jit(f)
placed = jax.device_put(a, NamedSharding(mesh, P("x")))
with jax.set_mesh(mesh):
    out = program(placed)
jax.block_until_ready(out)
print("no exception, as expected")
