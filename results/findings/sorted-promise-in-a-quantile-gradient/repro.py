"""The scatter in the gradient of jnp.quantile promises sorted indices in what libtpu compiles for v5p. It compiles for a
v5p:2x2x2 topology and needs jax, libtpu and no TPU.
"""

import os
import sys

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}  # nothing runs
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

name = sys.argv[1] if len(sys.argv) > 1 else "v5p:2x2x2"
devices = topologies.get_topology_desc(name, "tpu").devices
mesh = Mesh(np.array(devices).reshape(2, 4), ("x", "y"))
print("jax", jax.__version__, "for", devices[0].device_kind)


def f(a):
    return jnp.quantile(a, jnp.array([0.25, 0.5]), axis=1).sum()


a = jax.ShapeDtypeStruct((16, 8), np.float32, sharding=NamedSharding(mesh, P("x")))
lowered = jax.jit(jax.grad(f)).lower(a)
asked = [line for line in lowered.as_text().splitlines() if "stablehlo.scatter" in line]
made = [line for line in lowered.compile().as_text().splitlines() if " scatter(" in line]
for line in asked + made:
    print("indices_are_sorted =", "indices_are_sorted = true" in line or "indices_are_sorted=true" in line, line.strip()[:100])
sys.exit(any("indices_are_sorted=true" in line for line in made))
