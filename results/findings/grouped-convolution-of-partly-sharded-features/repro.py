"""A grouped convolution with the kernel sharded over more axes than the input features mixes up the groups
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
    return lax.conv_general_dilated(a, b, window_strides=(1,), padding=((0, 1),), feature_group_count=2)


a = np.array([1, 2], np.float32).reshape(1, 2, 1)
b = np.array([1, 2, 3, 4], np.float32).reshape(4, 1, 1)
expected = np.array([1, 0, 2, 0, 6, 0, 8, 0], np.float32).reshape(1, 4, 2)

program = jax.jit(f)
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P(None, "x"), P(("x", "y")))])
out = program(*placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
