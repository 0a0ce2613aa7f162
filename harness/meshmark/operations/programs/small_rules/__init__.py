# SPDX-License-Identifier: Apache-2.0
"""Small rules of JAX, many in one case."""
