"""lax.scaled_dot does not compile for more than one GPU. It compiles for two H100s and needs jax[cuda13] and no GPU.
"""

import os

os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "CUDA_VISIBLE_DEVICES": "-1"}  # nothing runs
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

H100 = """gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 core_count: 132
  shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448 registers_per_block_limit: 65536
  registers_per_core_limit: 65536 threads_per_core_limit: 2048 l2_cache_size: 52428800 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  clock_rate_ghz: 1.98 memory_bandwidth: 3350000000000 device_memory_size: 80000000000
  driver_version: "13.0.0" runtime_version: "13.0.0" compile_time_toolkit_version: "13.0.0"
  cuda_compute_capability { major: 9 }
} platform_name: "CUDA" dnn_version_info { major: 9 minor: 12 }"""
devices = topologies.get_topology_desc("", "cuda", target_config=H100, topology="1x1x2").devices
mesh = Mesh(np.array(devices), ("x",))
print("jax", jax.__version__)


def f(a, b, c, d):
    return lax.scaled_dot(a, b, lhs_scale=c, rhs_scale=d, preferred_element_type=jnp.float32)


shapes = (((4, 4), P("x")), ((4, 2), P()), ((4, 2), P("x")), ((2, 2), P()))
made = (jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=NamedSharding(mesh, p)) for s, p in shapes)
jax.jit(f).lower(*made).compile()
print("it compiles, as expected")
