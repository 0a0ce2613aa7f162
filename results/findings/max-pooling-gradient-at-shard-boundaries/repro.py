"""The gradient of max pooling with overlapping windows is wrong at shard boundaries
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


def f(a):
    return lax.reduce_window(a, -np.inf, lax.max, window_dimensions=(2,), window_strides=(1,), padding=((0, 0),))


a = np.array([1, 2, 3, 4], np.float32)
b = np.array([1, 2, 3], np.float32)
expected = np.array([0, 1, 2, 3], np.float32)

program = jax.jit(lambda a, b: jax.vjp(f, a)[1](b)[0])
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P("x"), P())])
out = program(*placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
