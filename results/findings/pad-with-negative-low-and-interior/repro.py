"""lax.pad with negative low padding and interior padding along a sharded dimension ends the process
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)  # for CPU alone
assert len(jax.devices()) >= 2, "this needs 2 devices"
mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    return lax.pad(a, 0.0, ((-1, -1, 1),))


a = np.array([1, 2], np.float32)

program = jax.jit(f)
placed = jax.device_put(a, NamedSharding(mesh, P("x")))
out = program(placed)
jax.block_until_ready(out)
print("no exception, as expected")
