"""Moving two mesh axes onto one dimension ends the process where neither size divides the other
"""

import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 6)  # for CPU alone
assert len(jax.devices()) >= 6, "this needs 6 devices"
mesh = Mesh(np.array(jax.devices()[:6]).reshape(2, 3), ("x", "y"))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    return a


a = np.arange(1, 37, dtype=np.float32).reshape(6, 6)

program = jax.jit(f, out_shardings=NamedSharding(mesh, P(None, ("x", "y"))))
placed = jax.device_put(a, NamedSharding(mesh, P("x", "y")))
out = program(placed)
jax.block_until_ready(out)
print("no exception, as expected")
