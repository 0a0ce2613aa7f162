# SPDX-License-Identifier: Apache-2.0
"""Operations on whole arrays: contractions, windows, indexing, sorting, shapes, random numbers, and function groups.

One program computes all functions of a group.
"""
