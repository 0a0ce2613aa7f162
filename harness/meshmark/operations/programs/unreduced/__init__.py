# SPDX-License-Identifier: Apache-2.0
"""Unreduced and reduced arrays."""
