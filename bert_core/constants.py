"""Numbers that several parts agree on."""

IGNORE_INDEX = -100
"""Label of a position that no loss counts, as in PyTorch's cross entropy and in Hugging Face models."""
