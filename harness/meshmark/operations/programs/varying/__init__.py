# SPDX-License-Identifier: Apache-2.0
"""Functions whose result depends on what varies between devices."""
