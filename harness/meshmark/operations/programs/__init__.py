# SPDX-License-Identifier: Apache-2.0
"""One sharded program in many forms and with many options of JAX: `jit`, `shard_map`, `pmap`, contexts, callbacks,
refusals, and programs from reported issues and from the hunt. A package holds the parts of one operation, or operations
of one kind."""
