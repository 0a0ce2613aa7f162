"""A convolution with fewer batch groups than shards of its kernel is wrong on all devices but the first
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
    return lax.conv_general_dilated(a, b, window_strides=(1,), padding="VALID", batch_group_count=2)


a = np.arange(1, 9, dtype=np.float32).reshape(2, 4, 1)
b = np.arange(1, 17, dtype=np.float32).reshape(4, 4, 1)
expected = np.array([30, 70, 278, 382], np.float32).reshape(1, 4, 1)

program = jax.jit(f)
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P(None, "x"), P("x"))])
out = program(*placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
