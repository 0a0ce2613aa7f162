"""The result of a shard_map without elements lies whole on each TPU, where out_specs asks for parts, and a pmap's program
gives another shape than its sharding says. It compiles for a v5e:2x4 topology and needs jax, libtpu and no TPU.
"""

import os
import sys

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}  # nothing runs
import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = topologies.get_topology_desc("v5e:2x4", "tpu").devices
mesh = Mesh(np.array(devices), ("x",))
print("jax", jax.__version__, "for", devices[0].device_kind)
parts = NamedSharding(mesh, P("x"))
f = jax.jit(jax.shard_map(lambda b: b + 1, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
a = jax.ShapeDtypeStruct((8, 0), np.float32, sharding=parts)
seen = f.lower(a).compile().output_shardings
print("shard_map: expected", parts.spec, "seen", seen.spec)
made = jax.pmap(lambda b: b + 1, devices=devices).lower(jax.ShapeDtypeStruct((8, 1, 0), np.float32)).compile()
head = made.as_text().partition("entry_computation_layout=")[2][:50]
print("pmap: its sharding says", made.output_shardings.shard_shape((8, 1, 0)), "and its program", head)
sys.exit(not seen.is_equivalent_to(parts, 2) or "f32[8,1,0]" in head)
