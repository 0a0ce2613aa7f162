"""A scatter or gather whose index vectors are sharded along their own dimension fails in the compiler
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 4)  # for CPU alone
assert len(jax.devices()) >= 4, "this needs 4 devices"
mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b, c):
    return lax.scatter_max(a, b, c, lax.ScatterDimensionNumbers(update_window_dims=(1, 2), inserted_window_dims=(), scatter_dims_to_operand_dims=(0, 1)))


a = np.array([1, 2], np.float32).reshape(2, 1)
b = np.array([1, 2, 3, 4], np.int32).reshape(2, 2)
c = np.array([1, 2], np.float32).reshape(2, 1, 1)

program = jax.jit(f)
placed = jax.device_put([a, b, c], [NamedSharding(mesh, s) for s in (P("y"), P(None, "y"), P())])
out = program(*placed)
jax.block_until_ready(out)
print("no exception, as expected")
