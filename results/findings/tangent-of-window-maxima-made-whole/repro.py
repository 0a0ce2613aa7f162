"""The tangent of window maxima ends the process where it is sharded and the result is whole
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
    v0 = lax.reduce_window(a, -np.inf, lax.max, window_dimensions=(1, 1))
    return jax.lax.with_sharding_constraint(v0, NamedSharding(mesh, P()))


a = np.array([1, 2, 3, 4], np.float32).reshape(2, 2)
b = np.array([1, 2, 3, 4], np.float32).reshape(2, 2)

program = jax.jit(lambda a, b: jax.tree.leaves(jax.jvp(f, (a,), (b,))))
placed = jax.device_put([a, b], [NamedSharding(mesh, s) for s in (P(), P("x"))])
outs = jax.tree.leaves(program(*placed))
jax.block_until_ready(outs)
print("no exception, as expected")
