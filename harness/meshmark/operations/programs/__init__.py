# SPDX-License-Identifier: Apache-2.0
"""One sharded program in the forms and with the options that JAX has: `jit`, `shard_map`, `pmap`, contexts, callbacks,
refusals, and what people reported or the hunt found."""
