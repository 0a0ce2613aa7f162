# SPDX-License-Identifier: Apache-2.0
"""Functions of arrays that are cut over the devices along each dimension in turn."""
