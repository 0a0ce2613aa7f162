"""jnp.take along the second dimension of a matrix over two mesh axes, whose result gets both axes on its first
dimension, ends libtpu's compiler. It compiles for a v5e:2x4 topology and needs jax, libtpu and no TPU.
"""

import os

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}  # nothing runs
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = topologies.get_topology_desc("v5e:2x4", "tpu").devices
mesh = Mesh(np.array(devices).reshape(2, 4), ("x", "y"))
print("jax", jax.__version__, "for", devices[0].device_kind)


def f(a):
    return jnp.take(a, np.arange(16) % 4, axis=1)


a = jax.ShapeDtypeStruct((16, 16), np.int32, sharding=NamedSharding(mesh, P("x", "y")))
jax.jit(f, out_shardings=NamedSharding(mesh, P(("x", "y")))).lower(a).compile()
print("it compiles, as expected")
