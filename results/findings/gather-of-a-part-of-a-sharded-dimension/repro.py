"""lax.gather of a part of a sharded dimension raises a bare AssertionError under explicit axes
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)  # for CPU alone
assert len(jax.devices()) >= 2, "this needs 2 devices"
mesh = Mesh(np.array(jax.devices()[:2]), ("x",), axis_types=(AxisType.Explicit,) * 1)
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b):
    return lax.gather(a, b, lax.GatherDimensionNumbers(offset_dims=(1, 2), collapsed_slice_dims=(), start_index_map=(0,)), (1, 1))


a = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
b = np.array([1, 2], np.int32).reshape(2, 1)

program = jax.jit(f)
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P(None, "x"), P())])
with jax.set_mesh(mesh):
    out = program(*placed)
jax.block_until_ready(out)
print("no exception, as expected")
