"""psum_scatter over two axes, where the axis that joins two slices is the inner one of the scattered order, ends libtpu's
compiler. It compiles for two v5e:2x2 slices and needs jax, libtpu and no TPU.
"""

import os

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}  # nothing runs
import jax
import numpy as np
from jax import lax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = topologies.get_topology_desc("v5e:2x2", "tpu", num_slices=2).devices
mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))  # the slices are x = 0, 1 and x = 2, 3
print("jax", jax.__version__, "for", devices[0].device_kind)


def f(b):
    return lax.psum_scatter(b, ("y", "x"), scatter_dimension=0, tiled=True)


a = jax.ShapeDtypeStruct((512, 128), np.float32, sharding=NamedSharding(mesh, P(("x", "y"))))
jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P(("x", "y")), out_specs=P(("y", "x")))).lower(a).compile()
print("it compiles, as expected")
