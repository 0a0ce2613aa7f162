"""A product of two int8 matrices whose contracted dimension is short. On a GPU it is doubled."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

print("jax", jax.__version__, jax.devices()[0].device_kind)


def product(x):
    small = (31 * (x % 8) - 100).astype(jnp.int8)
    return lax.dot_general(small, small, (((0,), (0,)), ((), ())), preferred_element_type=jnp.int32)


numbers = np.random.default_rng(0).permutation(66).reshape(11, 6)
expected = (31 * (numbers % 8) - 100).T @ (31 * (numbers % 8) - 100)
seen = jax.jit(product)(numbers.astype(np.float32))
assert np.array_equal(seen, expected), f"expected\n{expected}, seen\n{seen}"
print("right")
