# SPDX-License-Identifier: Apache-2.0
"""Sharded programs as data: their JSON and values, the JAX function of each, and its definition in NumPy."""
