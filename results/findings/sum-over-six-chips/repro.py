"""A sum over six of eight v5e chips ends libtpu's compiler. It compiles for a v5e:2x4 topology and needs jax, libtpu and
no TPU.
"""

import os

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}  # nothing runs
import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = topologies.get_topology_desc("v5e:2x4", "tpu").devices[:6]
mesh = Mesh(np.array(devices), ("x",))
print("jax", jax.__version__, "for", devices[0].device_kind)
a = jax.ShapeDtypeStruct((48, 128), np.float32, sharding=NamedSharding(mesh, P("x")))
jax.jit(lambda a: a.sum(axis=0)).lower(a).compile()
print("it compiles, as expected")
