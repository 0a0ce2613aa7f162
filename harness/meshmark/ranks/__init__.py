# SPDX-License-Identifier: Apache-2.0
"""Runs of several processes: they join, communicate over a channel, agree, time together, and merge their files."""
