# SPDX-License-Identifier: Apache-2.0
"""One sharded program in many forms and with many options of JAX."""
