"""Input of the encoder: vectors of tokens, of positions and of segments (Devlin et al. 2018, section 3).

Shapes: T tokens, E embedding size, H hidden.
"""

from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.kernels.dropout import Dropout
from bert_core.kernels.linear import Linear
from bert_core.layers.layer_norm import LayerNorm
from bert_core.packed_sequences import PackedSequences


class Embeddings(nn.Module):
    """Sum of word, position and segment embeddings, normalized and, where they are narrow, widened."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.embedding_size or config.hidden_size
        self.position_offset = config.position_offset
        self.word = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.position = None
        if config.position_embedding_type == "absolute":
            row_of_padding = config.position_offset - 1 if config.position_offset else None
            self.position = nn.Embedding(config.max_position_embeddings, width, padding_idx=row_of_padding)
        self.token_type = nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        self.norm = LayerNorm(width, eps=config.layer_norm_eps, bias=config.use_bias)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.projection = None if config.embedding_size is None else Linear(width, config.hidden_size)

    def forward(self, seqs: PackedSequences) -> Tensor:
        """Embed each token: (T,) → (T, H)."""
        words: Tensor = self.word(seqs.input_ids)  # (T, E)
        positions = None if self.position is None else self.position(seqs.position_ids + self.position_offset)
        token_types = None if self.token_type is None else self.token_type(seqs.token_type_ids)
        return self.combine(words, positions, token_types)

    def combine(self, words: Tensor, positions: Tensor | None, token_types: Tensor | None) -> Tensor:
        """Input of the first layer from the vectors that were looked up: (T, E) each → (T, H)."""
        x: Tensor = words if positions is None else words + positions
        if token_types is not None:
            x = x + token_types
        x = self.dropout(self.norm(x))
        return x if self.projection is None else self.projection(x)  # (T, H)
