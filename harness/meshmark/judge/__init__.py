# SPDX-License-Identifier: Apache-2.0
"""Judging one case: its program, its inputs, its checks, and a script that repeats it."""
