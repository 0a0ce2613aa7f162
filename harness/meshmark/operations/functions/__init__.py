# SPDX-License-Identifier: Apache-2.0
"""Functions of whole arrays: contractions, windows, indices, orders, shapes, random numbers, and groups of functions.

One program computes all functions of a group.
"""
