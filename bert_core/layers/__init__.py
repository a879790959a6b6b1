"""Layers beside the encoder's own: pooling of its layers, and what stands between it and a classifier of tokens."""
