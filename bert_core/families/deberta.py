"""DeBERTa-v3 and mDeBERTa (He et al. 2023), and v2 (He et al. 2021): vectors of distances in place of positions.

Of the two masked-token heads that transformers has, equal but for their names, both are read and the new one is written
(`legacy: false`); v3's own head, replaced-token detection, is passed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bert_core.config_fields import ConfigFields
from bert_core.errors import ConfigError
from bert_core.families.bert import EMBEDDINGS, LAYERS
from bert_core.families.family import Family

_COUNTS = ("position_buckets", "max_relative_positions")
"""Counts that are −1 in config.json where there is none."""
_SAME_NAMES = (
    *_COUNTS,
    "conv_kernel_size",
    "conv_act",
    "share_att_key",
    "norm_rel_ebd",
    "pos_att_type",
    "pooler_dropout",
)


@dataclass(frozen=True)
class _Deberta(Family):
    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = {**self.defaults, **values}
        width, terms = values["hidden_size"], values["pos_att_type"] or []
        only = {"embedding_size": width, "pooler_hidden_size": width}
        only["attention_head_size"] = width // values["num_attention_heads"]
        for name, size in only.items():
            if values.get(name, size) != size:
                raise ConfigError(f"{name} is {values[name]!r}; only {size} can be built beside hidden_size {width}")
        terms = terms.lower().split("|") if isinstance(terms, str) else terms
        absent = dict.fromkeys(name for name in _COUNTS if (values[name] or 0) < 1)
        return super().read({**values, **absent, "pos_att_type": "|".join(sorted(term.strip() for term in terms))})

    def write(self, config: ConfigFields) -> dict[str, Any]:
        written = super().write(config)
        return {**written, **self.required, **{name: written[name] or -1 for name in _COUNTS}, "legacy": False}


_SELF = r"encoder.layer.\1.attention.self."
_HEAD = "lm_predictions.lm_head."

DEBERTA = _Deberta(
    model_type="deberta-v2",
    class_prefix="DebertaV2",
    prefix="deberta.",
    weights={
        **EMBEDDINGS,
        **LAYERS,
        r"convolution\.matrices\.": "encoder.conv.conv.",
        r"convolution\.norm\.": "encoder.conv.LayerNorm.",
        r"embeddings\.distances\.": "encoder.rel_embeddings.",
        r"embeddings\.distance_norm\.": "encoder.LayerNorm.",
        r"layers\.(\d+)\.qkv\.": tuple(f"{_SELF}{part}_proj." for part in ("query", "key", "value")),
        r"layers\.(\d+)\.distances\.keys\.": f"{_SELF}pos_key_proj.",
        r"layers\.(\d+)\.distances\.queries\.": f"{_SELF}pos_query_proj.",
        r"pooler\.": "/pooler.dense.",
        r"prediction\.transform\.": f"{_HEAD}dense.",
        r"prediction\.norm\.": f"{_HEAD}LayerNorm.",
        r"prediction\.bias$": f"{_HEAD}bias",
    },
    fields={
        "classifier_dropout": "cls_dropout",
        "pooler_activation": "pooler_hidden_act",
        **{name: name for name in _SAME_NAMES},
    },
    fixed_fields={"position_embedding_type": "disentangled", "sentence_head": False},
    defaults={
        "vocab_size": 128100,
        "hidden_size": 1536,
        "num_hidden_layers": 24,
        "num_attention_heads": 24,
        "intermediate_size": 6144,
        "type_vocab_size": 0,
        "layer_norm_eps": 1e-7,
        "relative_attention": False,
        "position_biased_input": True,
        "max_relative_positions": -1,
        "position_buckets": -1,
        "share_att_key": False,
        "norm_rel_ebd": "none",
        "pos_att_type": None,
        "pooler_hidden_act": "gelu",
        "conv_kernel_size": 0,
        "conv_groups": 1,
        "conv_act": "tanh",
    },
    new_model={
        "relative_attention": True,
        "position_biased_input": False,
        "position_buckets": 256,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "pos_att_type": "c2p|p2c",
    },
    required={"relative_attention": True, "position_biased_input": False, "conv_groups": 1},
    tied_weights={
        "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": f"{_HEAD}bias",
        "cls.predictions.bias": f"{_HEAD}bias",
        **{
            f"cls.predictions.transform.{part}.{kind}": f"{_HEAD}{part}.{kind}"
            for part in ("dense", "LayerNorm")
            for kind in ("weight", "bias")
        },
    },
    has_base_pooler=False,
    token_dropout_from_hidden=True,
)
