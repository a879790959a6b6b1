"""MPNet (Song et al. 2020): RoBERTa's shape without token types, and learned biases of attention by distance.

transformers counts positions behind a padding token of id 1, and distances in 32 buckets, whatever config.json says.
"""

from dataclasses import replace

from bert_core.families.bert import EMBEDDINGS
from bert_core.families.roberta import ROBERTA

_LAYER = r"encoder.layer.\1."
_ATTENTION = f"{_LAYER}attention.attn."

MPNET = replace(
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
    architectures={"BertForPreTraining": "MPNetForMaskedLM"},
    for_new_models=False,  # a vocabulary of one's own pads with another id
)
