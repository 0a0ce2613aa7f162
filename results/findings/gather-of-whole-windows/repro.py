"""A gather whose window is the whole sharded dimension fails in the compiler
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 8)  # for CPU alone
assert len(jax.devices()) >= 8, "this needs 8 devices"
mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b):
    return lax.gather(b, a, lax.GatherDimensionNumbers(offset_dims=(0, 2, 3), collapsed_slice_dims=(), start_index_map=(0,)), (4, 4, 1))


a = np.array([1, 2], np.int32).reshape(2, 1)
b = np.arange(1, 17, dtype=np.float32).reshape(4, 4, 1)

program = jax.jit(f, out_shardings=NamedSharding(mesh, P(None, None, "y")))
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P("x"), P("x"))])
out = program(*placed)
jax.block_until_ready(out)
print("no exception, as expected")
