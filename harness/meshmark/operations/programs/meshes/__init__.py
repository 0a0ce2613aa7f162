# SPDX-License-Identifier: Apache-2.0
"""Programs over two meshes, and callables under one mesh after another."""
