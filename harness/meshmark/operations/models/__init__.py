# SPDX-License-Identifier: Apache-2.0
"""Layers and whole programs with their usual shardings: attention, decoder, training, decoding, experts, pipelines,
optimizers."""
