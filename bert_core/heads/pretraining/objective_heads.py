"""The heads of the pretraining objectives: one file for each head."""

from collections.abc import Mapping
from typing import Any

from bert_core.heads.pretraining.base import ObjectiveHead
from bert_core.heads.pretraining.left_to_right import LeftToRightHead
from bert_core.heads.pretraining.masked_lm import MaskedLMHead
from bert_core.heads.pretraining.sentence_pairs import SentencePairHead
from bert_core.heads.pretraining.span_boundary import SpanBoundaryHead

OBJECTIVE_HEADS: Mapping[str, ObjectiveHead[Any]] = {
    "masked_lm": MaskedLMHead(),
    "span_boundary": SpanBoundaryHead(),
    "next_sentence": SentencePairHead(),
    "sentence_order": SentencePairHead(),
    "left_to_right": LeftToRightHead(),
}
"""Heads by the names of `bert_core.objectives.OBJECTIVES`.

Losses are computed in this order, and their gradients added up in the reverse of it: another order would change the
last bits of a run that is resumed.
"""
