# SPDX-License-Identifier: Apache-2.0
"""The cost of compiled programs from 4 to 8,192 devices. Programs are only compiled."""
