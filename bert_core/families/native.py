"""Models of choices that transformers has no class for: a `model_type` of our own, so that loading them there fails.

Every field of a configuration can be said, under BertConfig's own name.
"""

from collections.abc import Mapping
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
"""Choices of "modern" models, as later work settled on them; it masks 30 % as well (Portes et al. 2023, section 2;
Warner et al. 2024, section 2.1)."""

# Names of fields that folders were saved with before the field's own terms took their place. Such a folder cannot be
# had again without training, so they are read for good, as is "mixture", the former name of layer_pooling "scalar_mix".
# Folders are written with the new ones.
_FORMER_FIELDS = {
    "answer_dropout": "qa_dropout",
    "choices_by_labels": "choice_projection",
    "drops_before_summary": "dropout_before_pooler",
    "extra_features": "num_tabular_features",
    "head_input": "layer_pooling",
    "num_recurrent_layers": "num_lstm_layers",
    "recurrent_size": "lstm_hidden_size",
    "tokens_drop_as_hidden": "token_dropout_from_hidden",
    "zeroes_padding": "zero_padding",
}
# Weights, in contrast, keep the names that they always had in files.
_WEIGHTS = {r"lstm\.": "recurrent.", r"layer_pooling\.": "head_input.", r"choice_projection\.": "summary."}


@dataclass(frozen=True)
class _Native(Family):
    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        found = super().read({_FORMER_FIELDS.get(name, name): value for name, value in values.items()})
        return found | ({"layer_pooling": "scalar_mix"} if found.get("layer_pooling") == "mixture" else {})


NATIVE = _Native(
    model_type="bert_core",
    class_prefix="Bert",
    prefix=ENCODER,
    weights=_WEIGHTS,
    fields={item.name: item.name for item in fields(ConfigFields) if item.name not in ("id2label", "model_type")},
    for_new_models=False,  # it fixes no choice; "modern" is the name of one set of choices
)
