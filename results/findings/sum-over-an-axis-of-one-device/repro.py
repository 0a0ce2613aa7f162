"""psum over an axis of one device in a shard_map over that axis alone is an internal error
"""

import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)  # for CPU alone
assert len(jax.devices()) >= 2, "this needs 2 devices"
mesh = Mesh(np.array(jax.devices()[:2]).reshape(1, 2), ("x", "y"))
print("jax", jax.__version__, "on", *mesh.devices.flat)


def f(a):
    def body0(p0):
        return lax.psum(p0, "x")
    return jax.shard_map(body0, mesh=mesh, in_specs=(P("x"),), out_specs=P(), axis_names={"x"})(a)


a = np.array([1, 2], np.float32)

program = jax.jit(f)
placed = jax.device_put(a, NamedSharding(mesh, P("y")))
out = program(placed)
jax.block_until_ready(out)
print("no exception, as expected")
