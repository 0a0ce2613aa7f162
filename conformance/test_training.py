# SPDX-License-Identifier: Apache-2.0
"""Conformance of training and inference."""

from meshmark.conformance.test_training import test_training

__all__ = ["test_training"]
