"""NomicBERT (Nussbaum et al. 2024): nomic-bert-2048, nomic-embed-text v1 and v1.5; not v2, whose layers are experts.

BERT with rotary positions, a gated feed-forward network (SwiGLU) and matrices without biases, behind which the norms
keep theirs. Weights have the names that they were published under, which transformers writes, too. A sequence ends
at the trained positions: behind them the published code stretches angles by the length of the sequence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bert_core.errors import ConfigError
from bert_core.families.family import GATED_LAYERS, RotaryFamily

_ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu"}
_BIASES = ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias")
_VARIANTS = ("prenorm", "parallel_block", "causal", "norm_mlp", "rotary_emb_interleaved")


@dataclass(frozen=True)
class _NomicBert(RotaryFamily):
    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        if (activation := values.get("activation_function", "swiglu")) not in _ACTIVATIONS:
            raise ConfigError(f"activation_function is {activation!r}; use one of {', '.join(_ACTIVATIONS)}")
        return super().read({"hidden_act": _ACTIVATIONS[activation], **values})


_LAYER = r"encoder.layers.\1."

NOMIC_BERT = _NomicBert(
    model_type="nomic_bert",
    class_prefix="NomicBert",
    prefix="nomic_bert.",
    former_prefix="bert.",
    weights={
        r"embeddings\.(word|token_type)\.": r"embeddings.\1_embeddings.",
        r"embeddings\.norm\.": "emb_ln.",
        r"layers\.(\d+)\.qkv\.": f"{_LAYER}attn.Wqkv.",
        r"layers\.(\d+)\.attention_output\.": f"{_LAYER}attn.out_proj.",
        r"layers\.(\d+)\.attention_norm\.": f"{_LAYER}norm1.",
        r"layers\.(\d+)\.intermediate\.": (f"{_LAYER}mlp.fc12.", f"{_LAYER}mlp.fc11."),
        r"layers\.(\d+)\.output\.": f"{_LAYER}mlp.fc2.",
        r"layers\.(\d+)\.output_norm\.": f"{_LAYER}norm2.",
        r"pooler\.": "pooler.dense.",
        r"prediction\.transform\.": "cls.predictions.transform.dense.",
        r"prediction\.norm\.": "cls.predictions.transform.layer_norm.",
        r"prediction\.bias$": "cls.predictions.bias",
    },
    former_fields={
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_inner": "intermediate_size",
        "resid_pdrop": "hidden_dropout_prob",
        "attn_pdrop": "attention_probs_dropout_prob",
        "layer_norm_epsilon": "layer_norm_eps",
        "max_trained_positions": "max_position_embeddings",
        "rotary_emb_base": "rope_theta",
    },
    fixed_fields={**GATED_LAYERS, "use_bias": False, "norm_bias": True},
    defaults={
        "vocab_size": 30528,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 2048,
        "rope_theta": 1000.0,
    },
    required={"rotary_emb_fraction": 1.0, "rotary_emb_scale_base": None} | dict.fromkeys(_BIASES + _VARIANTS, False),
    tied_weights={
        "cls.predictions.decoder.weight": "nomic_bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    absent_biases={
        "cls.predictions.transform.dense.bias": "cls.predictions.transform.dense.weight",
        "cls.predictions.bias": "nomic_bert.embeddings.word_embeddings.weight",
    },
    has_base_pooler=False,
)
