"""A grouped convolution of sharded features is refused: its group count becomes zero
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 4)  # for CPU alone
assert len(jax.devices()) >= 4, "this needs 4 devices"
mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b):
    return lax.conv_general_dilated(a, b, window_strides=(1,), padding=((0, 0),), feature_group_count=2)


a = np.arange(1, 25, dtype=np.float32).reshape(1, 8, 3)
b = np.arange(1, 65, dtype=np.float32).reshape(8, 4, 2)

program = jax.jit(f, out_shardings=NamedSharding(mesh, P(None, "x")))
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P(None, "x"), P(None, "x"))])
out = program(*placed)
jax.block_until_ready(out)
print("no exception, as expected")
