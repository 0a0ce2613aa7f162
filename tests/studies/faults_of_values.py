# SPDX-License-Identifier: Apache-2.0
"""Faults that special values show: NaN, infinities, the largest numbers, and ties."""
