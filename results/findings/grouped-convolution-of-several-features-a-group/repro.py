"""A grouped convolution whose groups have several features is wrong where features are sharded over one axis
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)  # for CPU alone
assert len(jax.devices()) >= 2, "this needs 2 devices"
mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b):
    return lax.conv_general_dilated(a, b, window_strides=(1,), padding="VALID", dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=2)


a = np.array([1, 2, 3, 4], np.float32).reshape(1, 1, 4)
b = np.arange(1, 9, dtype=np.float32).reshape(1, 2, 4)
expected = np.array([11, 14, 37, 44], np.float32).reshape(1, 1, 4)

program = jax.jit(f)
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P(None, None, "x"), P())])
out = program(*placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
