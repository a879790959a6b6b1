"""DistilBERT (Sanh et al. 2019): no token types, no pooler, no next sentence; classifiers have a ReLU layer."""

from bert_core.families.bert import EMBEDDINGS
from bert_core.families.family import Family

_LAYER = r"transformer.layer.\1."
_SUMMARY = {r"pooler\.": "/pre_classifier."}

DISTILBERT = Family(
    model_type="distilbert",
    class_prefix="DistilBert",
    prefix="distilbert.",
    weights={
        **EMBEDDINGS,
        r"layers\.(\d+)\.qkv\.": tuple(f"{_LAYER}attention.{part}_lin." for part in "qkv"),
        r"layers\.(\d+)\.attention_output\.": f"{_LAYER}attention.out_lin.",
        r"layers\.(\d+)\.attention_norm\.": f"{_LAYER}sa_layer_norm.",
        r"layers\.(\d+)\.intermediate\.": f"{_LAYER}ffn.lin1.",
        r"layers\.(\d+)\.output\.": f"{_LAYER}ffn.lin2.",
        r"layers\.(\d+)\.output_norm\.": f"{_LAYER}output_layer_norm.",
        r"prediction\.transform\.": "vocab_transform.",
        r"prediction\.norm\.": "vocab_layer_norm.",
        r"prediction\.bias$": "vocab_projector.bias",
    },
    head_weights={"BertForSequenceClassification": _SUMMARY, "BertForMultipleChoice": _SUMMARY},
    fields={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
        "qa_dropout": "qa_dropout",
    },
    fixed_fields={
        "type_vocab_size": 0,
        "layer_norm_eps": 1e-12,
        "pooler_activation": "relu",
        "sentence_head": False,
    },
    defaults={"n_layers": 6, "seq_classif_dropout": 0.2, "qa_dropout": 0.1},
    tied_weights={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    has_base_pooler=False,
    token_dropout_from_hidden=True,
)
