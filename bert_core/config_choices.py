"""Choices of how pretraining examples are made, which specs name as well.

In a file without numpy, as the command line reads specs at its start.
"""

from typing import Literal

SentenceObjective = Literal["next_sentence", "sentence_order", "none"]
MaskUnit = Literal["token", "word", "span"]
