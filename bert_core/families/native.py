"""Models that transformers has no class for, under a `model_type` of our own, so that loading them there fails.

Every field of a configuration can be said, under BertConfig's own name.
"""

from dataclasses import dataclass, fields
from typing import Any

from bert_core.config_fields import ConfigFields
from bert_core.families.family import ENCODER, Family

MODERN: dict[str, Any] = {
    "position_embedding_type": "rotary",
    "norm_placement": "pre",
    "feed_forward": "gated",
    "use_bias": False,
    "type_vocab_size": 0,
    "sentence_head": False,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.1,
}
"""Choices of "modern" models, on which later work agrees (Portes et al. 2023, section 2; Warner et al. 2024, 2.1).

Everything else is BERT's: normalized embeddings, LayerNorm, GELU, initial weights that do not depend on the depth, an
epsilon of 1e-12. How much is masked, 30 % in both of these papers, is no choice of a model."""


@dataclass(frozen=True)
class _Native(Family):
    def write(self, config: ConfigFields) -> dict[str, Any]:
        own = None if config.model_type == self.model_type else config.model_type
        return {**super().write(config), "head_family": config.head_family or own}


NATIVE = _Native(
    model_type="bert_core",
    class_prefix="Bert",
    prefix=ENCODER,
    weights={},
    fields={item.name: item.name for item in fields(ConfigFields) if item.name not in ("id2label", "model_type")},
    for_new_models=False,  # it fixes no choice; "modern" is the name of one set of choices
)
