"""Labeled tasks: files to examples, examples to token arrays, a model's outputs to predictions and scores.

What differs between kinds of tasks is in `types`, an object for each.
"""
