# SPDX-License-Identifier: Apache-2.0
"""Tests of several processes: real ranks, started by `meshmark launch` or one by one."""
