# SPDX-License-Identifier: Apache-2.0
"""Layers and whole programs as people shard them: attention, decoder, training, decoding, experts, pipelines,
optimizers."""
