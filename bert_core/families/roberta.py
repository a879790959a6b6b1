"""RoBERTa (Liu et al. 2019), and the models of its shape: CamemBERT, XLM-RoBERTa; PhoBERT goes by RoBERTa's own name.

Learned positions begin behind the padding token's id, there is no next sentence, and a classifier of sequences has a
hidden layer of its own in place of the pooler. MPNet (Song et al. 2020) has no token types, but learned biases of
attention by distance.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bert_core.families.bert import EMBEDDINGS, LAYERS
from bert_core.families.family import Family


@dataclass(frozen=True)
class _Roberta(Family):
    def derived_fields(self, found: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**self.fixed_fields, "position_offset": found.get("pad_token_id", 1) + 1}


ROBERTA = _Roberta(
    model_type="roberta",
    class_prefix="Roberta",
    prefix="roberta.",
    weights={
        **EMBEDDINGS,
        **LAYERS,
        r"pooler\.": "pooler.dense.",
        r"prediction\.transform\.": "lm_head.dense.",
        r"prediction\.norm\.": "lm_head.layer_norm.",
        r"prediction\.bias$": "lm_head.bias",
    },
    head_weights={
        "BertForSequenceClassification": {r"pooler\.": "/classifier.dense.", r"classifier\.": "classifier.out_proj."}
    },
    fixed_fields={"sentence_head": False},
    defaults={"vocab_size": 50265, "pad_token_id": 1},
    required={"hidden_act": "gelu"},  # the masked-token head has it, whatever config.json says
    tied_weights={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    dropout_before_pooler=True,
)

CAMEMBERT = replace(
    ROBERTA,
    model_type="camembert",
    class_prefix="Camembert",
    for_new_models=False,  # its models have RoBERTa's shape
)

XLM_ROBERTA = replace(
    ROBERTA,
    model_type="xlm-roberta",
    class_prefix="XLMRoberta",
    for_new_models=False,
)

_LAYER = r"encoder.layer.\1."
_ATTENTION = f"{_LAYER}attention.attn."

MPNET = replace(  # transformers pads by id 1 and has 32 buckets of distances, whatever config.json says
    ROBERTA,
    model_type="mpnet",
    class_prefix="MPNet",
    prefix="mpnet.",
    weights={
        r"embeddings\.relative_bias\.": "encoder.relative_attention_bias.",
        **EMBEDDINGS,
        r"layers\.(\d+)\.qkv\.": tuple(f"{_ATTENTION}{part}." for part in "qkv"),
        r"layers\.(\d+)\.attention_output\.": f"{_ATTENTION}o.",
        r"layers\.(\d+)\.attention_norm\.": f"{_LAYER}attention.LayerNorm.",
        r"layers\.(\d+)\.intermediate\.": f"{_LAYER}intermediate.dense.",
        r"layers\.(\d+)\.output\.": f"{_LAYER}output.dense.",
        r"layers\.(\d+)\.output_norm\.": f"{_LAYER}output.LayerNorm.",
        r"pooler\.": "pooler.dense.",
        r"prediction\.transform\.": "lm_head.dense.",
        r"prediction\.norm\.": "lm_head.layer_norm.",
        r"prediction\.bias$": "lm_head.bias",
    },
    fixed_fields={"sentence_head": False, "type_vocab_size": 0, "relative_attention_num_buckets": 32},
    defaults={"vocab_size": 30527, "pad_token_id": 1},
    required={"hidden_act": "gelu", "pad_token_id": 1, "relative_attention_num_buckets": 32},
    tied_weights={
        "lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    for_new_models=False,  # a vocabulary of one's own pads with another id
)
