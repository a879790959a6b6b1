"""FlauBERT (Le et al. 2020), in XLM's layout: no token types, no pooler; the large model normalizes first (pre-norm).

The masked-token head is the output matrix alone. Question answering is the simple head, a linear layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bert_core.config_fields import ConfigFields
from bert_core.families.family import Family


@dataclass(frozen=True)
class _Flaubert(Family):
    def derived_fields(self, found: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            **self.fixed_fields,
            "intermediate_size": 4 * found["hidden_size"],
            "hidden_act": "gelu" if values["gelu_activation"] else "relu",
            "norm_placement": "pre" if values["pre_norm"] else "post",
        }

    def write(self, config: ConfigFields) -> dict[str, Any]:
        return {
            **super().write(config),
            "gelu_activation": config.hidden_act == "gelu",
            "pre_norm": config.norm_placement == "pre",
        }


FLAUBERT = _Flaubert(
    model_type="flaubert",
    class_prefix="Flaubert",
    prefix="transformer.",
    weights={
        r"embeddings\.word\.": "embeddings.",
        r"embeddings\.position\.": "position_embeddings.",
        r"embeddings\.norm\.": "layer_norm_emb.",
        r"layers\.(\d+)\.qkv\.": tuple(rf"attentions.\1.{part}_lin." for part in "qkv"),
        r"layers\.(\d+)\.attention_output\.": r"attentions.\1.out_lin.",
        r"layers\.(\d+)\.attention_norm\.": r"layer_norm1.\1.",
        r"layers\.(\d+)\.intermediate\.": r"ffns.\1.lin1.",
        r"layers\.(\d+)\.output\.": r"ffns.\1.lin2.",
        r"layers\.(\d+)\.output_norm\.": r"layer_norm2.\1.",
        r"prediction\.bias$": "pred_layer.proj.bias",
    },
    head_weights={
        "BertForSequenceClassification": {r"classifier\.": "sequence_summary.summary."},
        "BertForMultipleChoice": {r"choice_projection\.": "sequence_summary.summary.", r"classifier\.": "logits_proj."},
    },
    fields={
        "hidden_size": "emb_dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout": "summary_first_dropout",
        "initializer_range": "init_std",
    },
    former_fields={"n_words": "vocab_size", "pad_index": "pad_token_id"},
    fixed_fields={
        "type_vocab_size": 0,
        "intermediate_size": None,
        "hidden_act": None,
        "final_norm": False,
        "pooler_activation": None,
        "prediction_transform": False,
        "sentence_head": False,
    },
    defaults={
        "vocab_size": 30145,
        "emb_dim": 2048,
        "n_heads": 16,
        "n_layers": 12,
        "pad_token_id": 2,
        "summary_first_dropout": 0.1,
        "gelu_activation": True,
        "pre_norm": False,
    },
    required={
        "asm": False,
        "causal": False,
        "n_langs": 1,
        "summary_type": "first",
        "summary_activation": None,
        "summary_use_proj": True,
        "summary_proj_to_labels": True,
    },
    tied_weights={"pred_layer.proj.weight": "transformer.embeddings.weight"},
    architectures={
        "BertForMaskedLM": "FlaubertWithLMHeadModel",
        "BertForQuestionAnswering": "FlaubertForQuestionAnsweringSimple",
    },
    has_base_pooler=False,
    token_dropout_from_hidden=True,
    choice_projection=True,
    zero_padding=True,
)
