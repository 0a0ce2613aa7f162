"""psum of bfloat16 in a shard_map that is manual over some axes only ends the process on CPU
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


def f(a):
    def body0(p0):
        w0 = lax.convert_element_type(p0, "bfloat16")
        return lax.psum(w0, "x")
    return jax.shard_map(body0, mesh=mesh, in_specs=(P("x"),), out_specs=P(), axis_names={"x"})(a)


a = np.array([1, 2, 3, 4], np.float32)

program = jax.jit(f)
placed = jax.device_put(a, NamedSharding(mesh, P("x")))
out = program(placed)
jax.block_until_ready(out)
print("no exception, as expected")
