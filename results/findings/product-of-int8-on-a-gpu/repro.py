"""A product of two int8 matrices is doubled on a GPU
One gpu device is wrong, a CPU is right: run it there.
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 1)  # for CPU alone
assert len(jax.devices()) >= 1, "this needs 1 devices"
mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a, b):
    return lax.dot_general(a, b, (((0,), (0,)), ((), ())), preferred_element_type="int32")


a = np.array([1, 2, 3, 4], np.int8).reshape(2, 2)
b = np.array([1, 2, 3, 4], np.int8).reshape(2, 2)
expected = np.array([10, 14, 14, 20], np.int32).reshape(2, 2)

program = jax.jit(f)
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P(), P())])
out = program(*placed)
good = True
for shard in out.addressable_shards:
    seen, want = np.asarray(shard.data), expected[shard.index]
    if not np.array_equal(seen, want):
        print(shard.device, "expected", want.tolist(), "seen", seen.tolist())
        good = False
sys.exit(not good)
