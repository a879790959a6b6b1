"""Configuration of the network that a spec describes, without torch."""

from bert_core.config import BertConfig, shape_of
from orchestrator.specs import ModelSpec


def build_config(model: ModelSpec, vocab_size: int, pad_token_id: int = 0) -> BertConfig:
    """Configuration of a spec's model for a vocabulary. Raises: ConfigError when its numbers cannot be a model."""
    num_hidden_layers, hidden_size = shape_of(model.size)
    asked = {
        "num_attention_heads": model.num_attention_heads,
        "intermediate_size": model.intermediate_size,
        "hidden_dropout_prob": model.hidden_dropout_prob,
        "attention_probs_dropout_prob": model.attention_probs_dropout_prob,
        "initializer_range": model.initializer_range,
        "span_boundary_objective": model.span_boundary_objective,
        "pad_token_id": pad_token_id,
        "vocab_size": vocab_size,
    }
    changes = {name: value for name, value in asked.items() if value is not None}
    depth, width = model.num_hidden_layers or num_hidden_layers, model.hidden_size or hidden_size
    offset = BertConfig.from_shape(depth, width, model.family, **changes).position_offset
    longest = model.max_position_embeddings + offset
    return BertConfig.from_shape(depth, width, model.family, max_position_embeddings=longest, **changes)
