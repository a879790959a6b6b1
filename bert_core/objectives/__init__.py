"""The pretraining objectives: one file for each, without torch. Their heads are in `bert_core.heads.pretraining`."""

from collections.abc import Collection, Mapping

from bert_core.config import BertConfig
from bert_core.objectives.base import Objective, SentenceObjective, TokenObjective
from bert_core.objectives.masked_lm import LeftToRight, MaskedLM, SpanBoundary
from bert_core.objectives.next_sentence import NextSentence, SentenceOrder
from bert_core.objectives.replaced_tokens import Generator, ReplacedTokens

OBJECTIVES: Mapping[str, Objective] = {
    objective.name: objective
    for objective in (
        MaskedLM(),
        NextSentence(),
        SentenceOrder(),
        SpanBoundary(),
        LeftToRight(),
        Generator(),
        ReplacedTokens(),
    )
}
"""All objectives by name. Weights are drawn and losses added up in this order: a new one goes to the end."""

TOKEN_OBJECTIVES: Mapping[str, TokenObjective] = {
    name: objective for name, objective in OBJECTIVES.items() if isinstance(objective, TokenObjective)
}
"""The objectives of which a run has exactly one."""

SENTENCE_OBJECTIVES: Mapping[str, SentenceObjective] = {
    name: objective for name, objective in OBJECTIVES.items() if isinstance(objective, SentenceObjective)
}
"""The objectives of which a run has at most one."""

NO_SENTENCE_OBJECTIVE = "none"
"""Name in specs for single sequences, about which nothing is asked."""


def active_objectives(chosen: Collection[str], config: BertConfig) -> tuple[str, ...]:
    """Names of the objectives of a run, given those that its spec chose and its model's configuration."""
    return tuple(name for name, objective in OBJECTIVES.items() if objective.is_active(chosen, config))
