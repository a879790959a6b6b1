"""EuroBERT (Boizard et al. 2025): Llama's layers read in both directions, with RMSNorm, SwiGLU, fewer heads of keys.

Embeddings are not normalized, the masked-token head is a matrix without a bias, classifiers of sequences have a layer.
Of its classes in transformers none is for multiple choice or question answering, and none has dropout but that of
attention: `hidden_dropout_prob` and `classifier_dropout` are passed over there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bert_core.config_fields import ConfigFields
from bert_core.errors import ConfigError
from bert_core.families.family import GATED_LAYERS, RotaryFamily


@dataclass(frozen=True)
class _EuroBert(RotaryFamily):
    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        found = super().read(values)
        if found["classifier_pooling"] == "bos":
            found["classifier_pooling"] = "cls"
        head_size = found.get("hidden_size", 768) // found.get("num_attention_heads", 12)
        if values.get("head_dim", head_size) not in (None, head_size):
            raise ConfigError(f"head_dim is {values['head_dim']!r}; only {head_size}, a head's share, can be built")
        return found

    def write(self, config: ConfigFields) -> dict[str, Any]:
        pooling = "bos" if config.pools_one_token else config.classifier_pooling
        # The special tokens' ids of transformers lie outside of other vocabularies; a model does not read them.
        return super().write(config) | {"classifier_pooling": pooling, "bos_token_id": None, "eos_token_id": None}


_LAYER = r"layers.\1."
_ABSENT = ("embedding_norm", "use_bias", "prediction_transform", "prediction_bias")

EUROBERT = _EuroBert(
    model_type="eurobert",
    class_prefix="EuroBert",
    prefix="model.",
    weights={
        r"embeddings\.word\.": "embed_tokens.",
        r"layers\.(\d+)\.qkv\.": tuple(f"{_LAYER}self_attn.{part}_proj." for part in "qkv"),
        r"layers\.(\d+)\.attention_output\.": f"{_LAYER}self_attn.o_proj.",
        r"layers\.(\d+)\.attention_norm\.": f"{_LAYER}input_layernorm.",
        r"layers\.(\d+)\.intermediate\.": (f"{_LAYER}mlp.gate_proj.", f"{_LAYER}mlp.up_proj."),
        r"layers\.(\d+)\.output\.": f"{_LAYER}mlp.down_proj.",
        r"layers\.(\d+)\.output_norm\.": f"{_LAYER}post_attention_layernorm.",
        r"pooler\.": "/dense.",
        r"prediction\.decoder\.": "lm_head.",
    },
    fields={
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": "rms_norm_eps",
        **{name: name for name in ("num_key_value_heads", "tie_word_embeddings", "classifier_pooling")},
    },
    former_fields={"clf_pooling": "classifier_pooling"},
    fixed_fields={
        **GATED_LAYERS,
        "norm": "rms",
        "norm_placement": "pre",
        "type_vocab_size": 0,
        "pooler_activation": "gelu",
        **dict.fromkeys(_ABSENT, False),
    },
    defaults={
        "vocab_size": 128256,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 128001,
        "attention_dropout": 0.0,
        "hidden_dropout_prob": 0.0,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": False,
        "classifier_pooling": "late",
    },
    required={"attention_bias": False, "mlp_bias": False},
    tied_weights={"lm_head.weight": "model.embed_tokens.weight"},
    has_base_pooler=False,
)
