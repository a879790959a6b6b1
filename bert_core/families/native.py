"""Models of choices that transformers has no class for: a `model_type` of our own, so that loading them there fails.

Every field of a configuration can be said, under BertConfig's own name.
"""

from dataclasses import fields
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
"""Choices of "modern" models, as later work settled on them; it masks 30 % as well (Portes et al. 2023, section 2;
Warner et al. 2024, section 2.1)."""

# Weights keep the names that they always had in files.
_WEIGHTS = {r"lstm\.": "recurrent.", r"layer_pooling\.": "head_input.", r"choice_projection\.": "summary."}


NATIVE = Family(
    model_type="bert_core",
    class_prefix="Bert",
    prefix=ENCODER,
    weights=_WEIGHTS,
    fields={item.name: item.name for item in fields(ConfigFields) if item.name not in ("id2label", "model_type")},
    for_new_models=False,  # it fixes no choice; "modern" is the name of one set of choices
)
