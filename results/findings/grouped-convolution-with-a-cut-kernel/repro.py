"""A grouped convolution whose input features are sharded is refused for a kernel that was cut
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


def f(a, b):
    return lax.conv_general_dilated(a, b, window_strides=(2,), padding="SAME", feature_group_count=4)


a = np.arange(1, 17, dtype=np.float32).reshape(1, 8, 2)
b = np.arange(1, 17, dtype=np.float32).reshape(4, 2, 2)

program = jax.jit(f)
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P(None, "y"), P())])
out = program(*placed)
jax.block_until_ready(out)
print("no exception, as expected")
