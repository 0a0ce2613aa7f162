"""A grouped convolution of partly sharded features ends the process in free()
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


def f(a, b):
    return lax.conv_general_dilated(a, b, window_strides=(1,), padding="VALID", feature_group_count=2)


a = np.array([1, 2, 3, 4], np.float32).reshape(1, 2, 2)
b = np.array([1, 2], np.float32).reshape(2, 1, 1)

program = jax.jit(f)
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P(None, "x"), P("x"))])
out = program(*placed)
jax.block_until_ready(out)
print("no exception, as expected")
