"""ModernBERT (Warner et al. 2024), and models of its class: Ettin, mmBERT, ModernGBERT.

Local attention in all layers but every third, with a rotary base of its own; no biases; the first layer has no
LayerNorm in front of its attention; every head begins with the masked-token head's layer. Dropout is transformers'
where it is 0, as in all that were published: there it lies inside the feed-forward network, here behind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bert_core.config_fields import ConfigFields
from bert_core.errors import ConfigError
from bert_core.families.family import Family

_EQUAL = {"embedding_dropout": "mlp_dropout", "classifier_activation": "hidden_activation"}
"""Names in config.json of what is one field here."""
_SPECIAL_IDS = ("bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id")
"""Ids that a model does not read; what transformers puts in their place lies outside of other vocabularies."""
_ROTARY_BASES = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
_GLOBAL_EVERY = "global_attn_every_n_layers"


@dataclass(frozen=True)
class _ModernBert(Family):
    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = {**self.defaults, **values}
        for name in self.defaults.keys() - {"pad_token_id"}:
            if values[name] is None:
                raise ConfigError(f"{name} is None; transformers' ModernBERT has a value there")
        for name, other in _EQUAL.items():
            if name in values and values[name] != values[other]:
                raise ConfigError(f"{name} is {values[name]!r}; only that of {other}, {values[other]!r}, can be built")
        if values.get("classifier_pooling", "cls") not in ("cls", "mean"):
            raise ConfigError(f"classifier_pooling is {values['classifier_pooling']!r}; there are 'cls' and 'mean'")
        return super().read(values | _rotary_bases(values) | _global_every(values))

    def write(self, config: ConfigFields) -> dict[str, Any]:
        written = super().write(config)
        return written | {name: written[other] for name, other in _EQUAL.items()} | dict.fromkeys(_SPECIAL_IDS)


def _rotary_bases(values: Mapping[str, Any]) -> dict[str, float]:
    """The bases by their names of before transformers 5, which has an object for each kind of layer."""
    found: dict[str, float] = {}
    for kind, parameters in (values.get("rope_parameters") or {}).items():
        if kind not in _ROTARY_BASES or not parameters or parameters.get("rope_type", "default") != "default":
            raise ConfigError(f"rope_parameters has {parameters!r} for {kind}; only rope_type 'default' can be built")
        if "rope_theta" in parameters:
            found[_ROTARY_BASES[kind]] = parameters["rope_theta"]
    return found


def _global_every(values: Mapping[str, Any]) -> dict[str, int]:
    """The distance of the global layers, of which transformers 5 has a list of all layers' kinds."""
    kinds, num_layers = values.get("layer_types"), values["num_hidden_layers"]
    if kinds is None:
        return {}
    for distance in (values[_GLOBAL_EVERY] or 1, *range(1, len(kinds) + 1)) if len(kinds) >= num_layers else ():
        if kinds == ["sliding_attention" if place % distance else "full_attention" for place in range(len(kinds))]:
            return {_GLOBAL_EVERY: distance}
    raise ConfigError(f"layer_types is {kinds!r}; only every n-th layer, from the first, can have full_attention")


_LAYER = r"layers.\1."

MODERNBERT = _ModernBert(
    model_type="modernbert",
    class_prefix="ModernBert",
    prefix="model.",
    weights={
        r"embeddings\.word\.": "embeddings.tok_embeddings.",
        r"layers\.(\d+)\.qkv\.": f"{_LAYER}attn.Wqkv.",
        r"layers\.(\d+)\.attention_output\.": f"{_LAYER}attn.Wo.",
        r"layers\.(\d+)\.attention_norm\.": f"{_LAYER}attn_norm.",
        r"layers\.(\d+)\.intermediate\.": f"{_LAYER}mlp.Wi.",
        r"layers\.(\d+)\.output\.": f"{_LAYER}mlp.Wo.",
        r"layers\.(\d+)\.output_norm\.": f"{_LAYER}mlp_norm.",
        r"norm\.": "final_norm.",
        r"(pooler|prediction\.transform)\.": "/head.dense.",
        r"(pooler_norm|prediction\.norm)\.": "/head.norm.",
        r"prediction\.bias$": "decoder.bias",
        r"qa_outputs\.": "classifier.",
    },
    fields={
        "hidden_act": "hidden_activation",
        "hidden_dropout_prob": "mlp_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": "norm_eps",
        "local_window": "local_attention",
        "global_every": _GLOBAL_EVERY,
        "rotary_base": "global_rope_theta",
        "local_rotary_base": "local_rope_theta",
        "classifier_pooling": "classifier_pooling",
    },
    fixed_fields={
        "position_embedding_type": "rotary",
        "norm_placement": "pre",
        "first_norm": False,
        "feed_forward": "gated",
        "use_bias": False,
        "depth_scaled_init": True,
        "type_vocab_size": 0,
        "pooler_activation": "hidden_act",
        "sentence_head": False,
    },
    defaults={
        "vocab_size": 50368,
        "intermediate_size": 1152,
        "num_hidden_layers": 22,
        "hidden_activation": "gelu",
        "max_position_embeddings": 8192,
        "norm_eps": 1e-5,
        "pad_token_id": 50283,
        "attention_dropout": 0.0,
        "mlp_dropout": 0.0,
        "classifier_dropout": 0.0,
        "local_attention": 128,
        _GLOBAL_EVERY: 3,
        "global_rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
    },
    required={
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
        "rope_scaling": None,
    },
    tied_weights={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    has_base_pooler=False,
    has_head_layer=True,
)
