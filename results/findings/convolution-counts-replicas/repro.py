"""A convolution whose input and kernel are sharded along the same spatial dimension is multiplied by the size of the other mesh axes
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
    return lax.conv_general_dilated(a, b, window_strides=(1,), padding="VALID", dimension_numbers=("NHC", "HIO", "NHC"))


a = np.array([1, 2, 3, 4], np.float32).reshape(1, 4, 1)
b = np.array([1, 2], np.float32).reshape(2, 1, 1)
expected = np.array([5, 8, 11], np.float32).reshape(1, 3, 1)

program = jax.jit(f)
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P(None, "y"), P("y"))])
out = program(*placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
