# SPDX-License-Identifier: Apache-2.0
"""Draws random sharded programs, judges them, and shrinks, groups and stores the findings."""
