# SPDX-License-Identifier: Apache-2.0
"""Reading and writing record files, and what a line of them holds. Needs no JAX and no operations."""
