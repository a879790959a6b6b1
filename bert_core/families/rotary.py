"""Families with one rotary base, in each spelling that config.json has for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bert_core.config_fields import ConfigFields
from bert_core.errors import ConfigError
from bert_core.families.family import Family


@dataclass(frozen=True)
class RotaryFamily(Family):
    """A family whose config.json has `rope_parameters`, or before transformers 5 `rope_theta` and `rope_scaling`."""

    def derived_fields(self, found: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
        base, factor = _read_rope(
            {"rope_theta": values["rope_theta"]}
            | (values.get("rope_scaling") or {})
            | (values.get("rope_parameters") or {}),
            found.get("hidden_size", ConfigFields.hidden_size)
            // found.get("num_attention_heads", ConfigFields.num_attention_heads),
        )
        return {**self.fixed_fields, "rotary_base": base, "rotary_scaling_factor": factor}

    def write(self, config: ConfigFields) -> dict[str, Any]:
        rope = {"rope_type": "default", "rope_theta": config.rotary_base}
        if config.rotary_scaling_factor != 1.0:
            rope |= {"rope_type": "linear", "factor": config.rotary_scaling_factor}
        return {**super().write(config), "rope_parameters": rope}


def _read_rope(rope: Mapping[str, Any], head_size: int) -> tuple[float, float]:
    """Base and divisor of the positions. Raises: ConfigError for a scaling that follows a sequence's length.

    "ntk" is that of https://kexue.fm/archives/9706, equation 6, as the code that GTE was published with has it.
    """
    kind, base = rope.get("rope_type", rope.get("type", "default")), rope["rope_theta"]
    if kind == "default":
        return base, 1.0
    if kind == "linear":
        return base, rope["factor"]
    if kind == "ntk" and rope.get("mixed_b") is None:
        return base * rope["factor"], rope["factor"] ** (2 / head_size)
    raise ConfigError(f"rope_scaling is {dict(rope)!r}; only default, linear and ntk without mixed_b can be built here")
