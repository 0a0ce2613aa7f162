# SPDX-License-Identifier: Apache-2.0
"""Timing cases: measuring, children, ceilings, tables, and comparing two environments."""
