# SPDX-License-Identifier: Apache-2.0
"""The collectives of `jax.lax`: over every choice of mesh axes, of every dtype, and their gradients."""
