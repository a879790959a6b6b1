"""ELECTRA (Clark et al. 2020): discriminators to fine-tune, and generators, which are masked-token models.

Narrow embeddings are widened where their width differs; classifiers of sequences have a GELU layer. The masked-token
head is the generator's, `BertForReplacedTokenDetection` the discriminator with its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bert_core.config_fields import ConfigFields
from bert_core.families.bert import EMBEDDINGS, LAYERS
from bert_core.families.family import Family


@dataclass(frozen=True)
class _Electra(Family):
    def derived_fields(self, found: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
        width = values["embedding_size"]
        return {**self.fixed_fields, "embedding_size": None if width == values["hidden_size"] else width}

    def write(self, config: ConfigFields) -> dict[str, Any]:
        width = config.embedding_size or config.hidden_size
        dropout = {"summary_last_dropout": config.head_dropout_prob}  # multiple choice has that of a classifier here
        return {**super().write(config), **dropout, "embedding_size": width}


ELECTRA = _Electra(
    model_type="electra",
    class_prefix="Electra",
    prefix="electra.",
    weights={
        r"embeddings\.projection\.": "embeddings_project.",
        **EMBEDDINGS,
        **LAYERS,
        r"prediction\.transform\.": "generator_predictions.dense.",
        r"prediction\.norm\.": "generator_predictions.LayerNorm.",
        r"prediction\.bias$": "generator_lm_head.bias",
    },
    head_weights={
        "BertForSequenceClassification": {r"pooler\.": "/classifier.dense.", r"classifier\.": "classifier.out_proj."},
        "BertForMultipleChoice": {r"pooler\.": "/sequence_summary.summary."},
    },
    fields={"embedding_size": "embedding_size"},
    fixed_fields={"pooler_activation": "gelu", "sentence_head": False},
    defaults={"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    required={
        "hidden_act": "gelu",  # the heads have it, whatever config.json says
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
    },
    tied_weights={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    architectures={"BertForReplacedTokenDetection": "ElectraForPreTraining"},
    has_base_pooler=False,
    dropout_before_pooler=True,
)
