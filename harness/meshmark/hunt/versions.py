# SPDX-License-Identifier: Apache-2.0
"""The version of the generator: raised whenever the same seed and number give another program."""

GENERATOR = 1
