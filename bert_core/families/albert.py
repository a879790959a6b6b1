"""ALBERT (Lan et al. 2020): narrow embeddings, layers that share their weights, sentence order as the pairs' task."""

from bert_core.families.bert import EMBEDDINGS
from bert_core.families.family import Family

_LAYER = r"encoder.albert_layer_groups.\1.albert_layers.0."

ALBERT = Family(
    model_type="albert",
    class_prefix="Albert",
    prefix="albert.",
    weights={
        **EMBEDDINGS,
        r"embeddings\.projection\.": "encoder.embedding_hidden_mapping_in.",
        r"layers\.(\d+)\.qkv\.": tuple(f"{_LAYER}attention.{part}." for part in ("query", "key", "value")),
        r"layers\.(\d+)\.attention_output\.": f"{_LAYER}attention.dense.",
        r"layers\.(\d+)\.attention_norm\.": f"{_LAYER}attention.LayerNorm.",
        r"layers\.(\d+)\.intermediate\.": f"{_LAYER}ffn.",
        r"layers\.(\d+)\.output\.": f"{_LAYER}ffn_output.",
        r"layers\.(\d+)\.output_norm\.": f"{_LAYER}full_layer_layer_norm.",
        r"prediction\.transform\.": "predictions.dense.",
        r"prediction\.norm\.": "predictions.LayerNorm.",
        r"prediction\.bias$": "predictions.bias",
        r"next_sentence\.": "sop_classifier.classifier.",
    },
    fields={
        "classifier_dropout": "classifier_dropout_prob",
        "embedding_size": "embedding_size",
        "num_hidden_groups": "num_hidden_groups",
    },
    defaults={
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_hidden_groups": 1,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout_prob": 0.1,
    },
    required={"inner_group_num": 1},
    tied_weights={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
)
