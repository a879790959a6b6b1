"""GTE (Zhang et al. 2024, mGTE): gte-multilingual, gte-en-v1.5 and arctic-embed v2 of medium size.

BERT with rotary positions and a gated feed-forward network, whose first matrix has no bias. A folder whose
`model_type` is "new", as the first ones were published, is read and saved as "gte", which transformers knows by itself.
Dropout is transformers' where it is 0: it has one more inside the feed-forward network.
"""

from bert_core.families.bert import EMBEDDINGS
from bert_core.families.family import GATED_LAYERS, RotaryFamily

_LAYER = r"encoder.layer.\1."

GTE = RotaryFamily(
    model_type="gte",
    class_prefix="Gte",
    prefix="gte.",
    former_prefix="new.",
    weights={
        **EMBEDDINGS,
        r"layers\.(\d+)\.qkv\.": f"{_LAYER}attention.qkv_proj.",
        r"layers\.(\d+)\.attention_output\.": f"{_LAYER}attention.o_proj.",
        r"layers\.(\d+)\.attention_norm\.": f"{_LAYER}attn_ln.",
        r"layers\.(\d+)\.intermediate\.": f"{_LAYER}mlp.up_gate_proj.",
        r"layers\.(\d+)\.output\.": f"{_LAYER}mlp.down_proj.",
        r"layers\.(\d+)\.output_norm\.": f"{_LAYER}mlp_ln.",
        r"pooler\.": "pooler.dense.",
        r"prediction\.transform\.": "lm_head.dense.",
        r"prediction\.norm\.": "lm_head.norm.",
        r"prediction\.bias$": "lm_head.decoder.bias",
    },
    fixed_fields={**GATED_LAYERS, "intermediate_bias": False},
    defaults={
        "vocab_size": 250048,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 8192,
        "type_vocab_size": 1,
        "pad_token_id": 1,
        "rope_theta": 160_000.0,
    },
    required={
        "hidden_act": "gelu",  # the masked-token head has it, whatever config.json says
        "position_embedding_type": "rope",
        "layer_norm_type": "layer_norm",
        "logn_attention_scale": False,
        "pack_qkv": True,
    },
    tied_weights={"lm_head.decoder.weight": "gte.embeddings.word_embeddings.weight"},
    has_base_pooler=False,
    gate_comes_second=True,
)
