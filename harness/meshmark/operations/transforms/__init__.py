# SPDX-License-Identifier: Apache-2.0
"""Transformations around and inside sharded functions: derivatives, `vmap`, rematerialization, loops."""
