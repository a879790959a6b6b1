"""Tokenizers, from text to ids: loading, training and running them. No torch."""
