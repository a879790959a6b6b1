"""The network that a spec describes; no torch, so that a plan can look at it."""

from bert_core.config import BertConfig
from orchestrator.specs import ModelSpec


def build_config(model: ModelSpec, vocab_size: int, pad_token_id: int = 0) -> BertConfig:
    """The model's shape for a vocabulary. Raises: ConfigError when its numbers cannot be a model."""
    size = BertConfig.from_size(model.size)
    hidden_size = model.hidden_size or size.hidden_size
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=model.num_hidden_layers or size.num_hidden_layers,
        num_attention_heads=model.num_attention_heads or max(1, hidden_size // 64),
        intermediate_size=model.intermediate_size or 4 * hidden_size,
        max_position_embeddings=model.max_position_embeddings,
        hidden_dropout_prob=model.hidden_dropout_prob,
        attention_probs_dropout_prob=model.attention_probs_dropout_prob,
        initializer_range=model.initializer_range,
        pad_token_id=pad_token_id,
    )
