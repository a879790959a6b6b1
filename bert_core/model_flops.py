"""Floating-point operations (FLOPs) of a training step that the model itself asks for, from its configuration.

A matrix takes 2 for each weight and vector in the forward pass and 4 in the backward pass (Kaplan et al. 2020, section
2.1). Counted are the encoder's matrices and those of the head over the vocabulary, for the vectors that they are given:
packed sequences have no padding, and logits are made for predicted positions alone. Left out is what is small: the
products of queries with keys and of weights with values (a share of S / 6H, with sequences of S tokens and a hidden
size of H: 3 % of BERT base at 128 tokens, 11 % at 512), heads over pairs and spans, norms, activations.

Behind its attention the last layer runs for tokens alone that a head reads (`BertModel.encode`): a token costs
`count_flops_per_read_token` less where none does.
"""

from bert_core.config import BertConfig

_PER_WEIGHT = 6


def count_flops_per_token(config: BertConfig) -> int:
    """FLOPs that the encoder's matrices take for a token, forward and backward."""
    hidden = config.hidden_size
    matrices = 3 if config.feed_forward == "gated" else 2
    layer = 4 * hidden * hidden + matrices * hidden * config.intermediate_size
    widening = (config.embedding_size or 0) * hidden
    return _PER_WEIGHT * (config.num_hidden_layers * layer + widening)


def count_flops_per_read_token(config: BertConfig) -> int:
    """Part of a token's FLOPs that the last layer takes only where a head reads its output, forward and backward."""
    matrices = 3 if config.feed_forward == "gated" else 2
    return _PER_WEIGHT * config.hidden_size * (config.hidden_size + matrices * config.intermediate_size)


def count_flops_per_prediction(config: BertConfig) -> int:
    """FLOPs that the head over the vocabulary takes for a predicted position, forward and backward."""
    width = config.embedding_size or config.hidden_size
    transform = config.hidden_size * width if config.prediction_transform else 0
    return _PER_WEIGHT * (transform + width * config.vocab_size)
