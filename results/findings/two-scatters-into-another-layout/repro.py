"""Two scatters, the first with updates sharded over both axes along one dimension, end the process
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 6)  # for CPU alone
assert len(jax.devices()) >= 6, "this needs 6 devices"
mesh = Mesh(np.array(jax.devices()[:6]).reshape(3, 2), ("x", "y"))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b, c, d, e):
    v0 = lax.scatter_add(a, b, c, lax.ScatterDimensionNumbers(update_window_dims=(1, 2), inserted_window_dims=(), scatter_dims_to_operand_dims=(0,)))
    return lax.scatter_add(v0, d, e, lax.ScatterDimensionNumbers(update_window_dims=(0, 1), inserted_window_dims=(), scatter_dims_to_operand_dims=(0,)))


a = np.arange(1, 13, dtype=np.float32).reshape(6, 2)
b = np.array([1], np.int32).reshape(1, 1)
c = np.arange(1, 7, dtype=np.float32).reshape(1, 6, 1)
d = np.array([1], np.int32).reshape(1, 1)
e = np.array([1], np.float32).reshape(1, 1, 1)

program = jax.jit(f, out_shardings=NamedSharding(mesh, P("x", "y")))
placed = jax.device_put(
    [a, b, c, d, e], [NamedSharding(mesh, s) for s in (P(), P(), P(None, ("y", "x")), P(), P())]
)
out = program(*placed)
jax.block_until_ready(out)
print("no exception, as expected")
