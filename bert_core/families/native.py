"""Models of choices that transformers has no class for, by the names here, so that loading them there fails loudly."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
"""What later work settled on (Portes et al. 2023, section 2; Warner et al. 2024, section 2.1), who also mask 30 %."""

FORMER_FIELDS = {
    "head_input": "layer_pooling",
    "extra_features": "num_tabular_features",
    "num_recurrent_layers": "num_lstm_layers",
    "recurrent_size": "lstm_hidden_size",
}
FORMER_VALUES = {"layer_pooling": {"mixture": "scalar_mix"}}
"""Names and values of fields before the field's own terms took their place. People have model folders that say them,
whose weights cannot be had again, so they are read for good; written are the new ones."""


@dataclass(frozen=True)
class _Native(Family):
    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        renamed = {FORMER_FIELDS.get(name, name): value for name, value in values.items()}
        for name, new_values in FORMER_VALUES.items():
            renamed |= {name: new_values.get(renamed[name], renamed[name])} if name in renamed else {}
        return super().read(renamed)


NATIVE = _Native(
    model_type="bert_core",
    class_prefix="Bert",
    prefix=ENCODER,
    weights={r"layer_pooling\.": "head_input."},  # as in the folders that were saved before the parameter was renamed
    fields={
        name: name
        for name in (
            "embedding_size",
            "num_hidden_groups",
            "position_embedding_type",
            "position_offset",
            "rotary_base",
            "feed_forward",
            "norm_placement",
            "final_norm",
            "use_bias",
            "pooler_activation",
            "answer_dropout",
            "prediction_transform",
            "sentence_head",
            "drops_before_summary",
            "tokens_drop_as_hidden",
            "zeroes_padding",
            "layer_pooling",
            "token_decoder",
            "num_lstm_layers",
            "lstm_hidden_size",
            "choices_by_labels",
            "num_tabular_features",
        )
    },
)
