"""The gradient of a sort along a dimension whose shards are uneven ends the process
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
    v0 = lax.slice(a, (1, 0), (4, 2))
    return lax.sort(v0, dimension=0)


a = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
b = np.arange(1, 7, dtype=np.float32).reshape(3, 2)

program = jax.jit(lambda a, b: jax.vjp(f, a)[1](b)[0])
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P("x"), P())])
out = program(*placed)
jax.block_until_ready(out)
print("no exception, as expected")
