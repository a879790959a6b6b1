"""Families with one rotary base, in each spelling that config.json has for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bert_core.config_fields import ConfigFields
from bert_core.errors import ConfigError
from bert_core.families.family import Family

GATED_LAYERS = {"position_embedding_type": "rotary", "feed_forward": "gated", "sentence_head": False}
"""Fields of BertConfig that all of them fix."""


@dataclass(frozen=True)
class RotaryFamily(Family):
    """A family whose config.json has `rope_parameters`, or before transformers 5 `rope_theta` and `rope_scaling`."""

    def derived_fields(self, found: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add base and divisor of the positions; "ntk" is that of https://kexue.fm/archives/9706, equation 6.

        Raises: ConfigError for a scaling that follows the length of a sequence.
        """
        scaling, parameters = (values.get(name) or {} for name in ("rope_scaling", "rope_parameters"))
        rope = {"rope_theta": values["rope_theta"], **scaling, **parameters}
        kind, base, factor = rope.get("rope_type", rope.get("type", "default")), rope["rope_theta"], 1.0
        if kind == "linear":
            factor = rope["factor"]
        elif kind == "ntk" and rope.get("mixed_b") is None:
            shape = ("hidden_size", "num_attention_heads")
            width, num_heads = (found.get(name, getattr(ConfigFields, name)) for name in shape)
            base, factor = base * rope["factor"], rope["factor"] ** (2 * num_heads / width)
        elif kind != "default":
            raise ConfigError(
                f"rope_scaling is {rope!r}; only default, linear and ntk without mixed_b can be built here"
            )
        return {**self.fixed_fields, "rotary_base": base, "rotary_scaling_factor": factor}

    def write(self, config: ConfigFields) -> dict[str, Any]:
        rope = {"rope_type": "default", "rope_theta": config.rotary_base}
        if config.rotary_scaling_factor != 1.0:
            rope |= {"rope_type": "linear", "factor": config.rotary_scaling_factor}
        return {**super().write(config), "rope_parameters": rope}
