"""NeoBERT (Le Breton et al. 2025), as its authors' code on the hub has it: RMSNorm, SwiGLU, rotary positions.

A file's `intermediate_size` is that of two matrices with as many weights as SwiGLU's three. Queries, keys and values
are one weight, head by head, and rotary positions turn neighboring numbers. Its classes are for masked tokens and for
classifying sequences; none has dropout of hidden states or attention weights. transformers itself has no class of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_core.config_fields import ConfigFields
from bert_core.families.eurobert import EUROBERT
from bert_core.families.family import Family


@dataclass(frozen=True)
class _NeoBert(Family):
    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        found = super().read(values)
        width = int(2 * found.get("intermediate_size", 3072) / 3)
        return found | {"intermediate_size": -(-width // 8) * 8}

    def write(self, config: ConfigFields) -> dict[str, Any]:
        return super().write(config) | {"intermediate_size": config.intermediate_size * 3 // 2}

    def qkv_order(self, num_heads: int, num_rows: int) -> Sequence[int]:
        size = num_rows // (3 * num_heads)
        plain = range(size)
        turned = [place // 2 + place % 2 * (size // 2) for place in plain]  # a pair lies half a head apart here
        return [
            (part * num_heads + head) * size + place
            for head in range(num_heads)
            for part, places in enumerate((turned, turned, plain))
            for place in places
        ]


_LAYER = r"transformer_encoder.\1."

NEOBERT = _NeoBert(
    model_type="neobert",
    class_prefix="NeoBERT",
    prefix="model.",
    weights={
        r"embeddings\.word\.": "encoder.",
        r"layers\.(\d+)\.qkv\.": f"{_LAYER}qkv.",
        r"layers\.(\d+)\.attention_output\.": f"{_LAYER}wo.",
        r"layers\.(\d+)\.attention_norm\.": f"{_LAYER}attention_norm.",
        r"layers\.(\d+)\.intermediate\.": f"{_LAYER}ffn.w12.",
        r"layers\.(\d+)\.output\.": f"{_LAYER}ffn.w3.",
        r"layers\.(\d+)\.output_norm\.": f"{_LAYER}ffn_norm.",
        r"norm\.": "layer_norm.",
        r"pooler\.": "/dense.",
        r"prediction\.decoder\.": "decoder.",
        r"prediction\.bias$": "decoder.bias",
    },
    fields={"layer_norm_eps": "norm_eps", "max_position_embeddings": "max_length"},
    fixed_fields={
        **EUROBERT.fixed_fields,
        "hidden_act": "silu",
        "pooler_activation": "tanh",
        "prediction_bias": True,
        "tie_word_embeddings": False,
    },
    defaults={
        "num_hidden_layers": 28,
        "max_length": 1024,
        "norm_eps": 1e-6,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": 0.1,
    },
    architectures={"BertModel": "NeoBERT", "BertForMaskedLM": "NeoBERTLMHead"},
    has_base_pooler=False,
    dropout_before_pooler=True,
)
