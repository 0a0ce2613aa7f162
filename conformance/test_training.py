"""Conformance of training and inference."""

from meshmark.conformance.test_training import test_training

__all__ = ["test_training"]
