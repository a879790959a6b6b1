"""Sentence embedding: one vector for each text.

Shapes: B sequences, S length of a padded row, T tokens, H hidden.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch.nn.functional as F
from torch import Tensor

from bert_core.checkpoints.manifest import write_manifest
from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.checkpoints.sentence_transformers import (
    SentenceEmbeddingConfig,
    read_sentence_embedding,
    write_sentence_embedding,
)
from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.config import CONFIG_FILE, BertConfig
from bert_core.model import BertModel, pool_tokens
from bert_core.packed_sequences import PackedSequences


@dataclass(frozen=True)
class SentenceEmbeddingOutput:
    """Output of BertForSentenceEmbedding."""

    sentence_embedding: Tensor
    """Vector of each text, (B, H) float32."""


class BertForSentenceEmbedding(PretrainedModel):
    """BERT that makes one vector of a text by pooling its tokens' outputs (Reimers and Gurevych 2019, section 3).

    The pooling learns nothing. Saved, it is an encoder's folder that sentence-transformers can load too.
    """

    def __init__(
        self, config: BertConfig, seed: int | None = 0, embedding: SentenceEmbeddingConfig | None = None
    ) -> None:
        super().__init__(config, seed)
        self.embedding = embedding or SentenceEmbeddingConfig()

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=False)

    def packed_embeddings(self, seqs: PackedSequences, hidden: Tensor | None = None) -> Tensor:
        """Vector of each text, (B, H) float32; from the encoder's output, (T, H), where it was run already."""
        if self.embedding.pooling == "cls":
            first = seqs.first_tokens
            pooled = (self.bert.encode(seqs, first) if hidden is None else hidden.index_select(0, first)).float()
        else:
            hidden = self.bert.encode(seqs) if hidden is None else hidden
            pooled = pool_tokens(hidden, seqs.cu_seqlens, self.embedding.pooling)
        pooled = pooled[:, : self.embedding.truncate_dim]
        return F.normalize(pooled, dim=-1) if self.embedding.normalize else pooled

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> SentenceEmbeddingOutput:
        seqs = self.bert.pack(input_ids, attention_mask, token_type_ids)
        return SentenceEmbeddingOutput(self.packed_embeddings(seqs))

    @classmethod
    def from_pretrained(cls, folder: str | Path, *arguments: Any, **options: Any) -> Self:
        """Load the model of an encoder's or a sentence-transformers folder. Raises: CheckpointError."""
        model = super().from_pretrained(folder, *arguments, **options)
        model.embedding = read_sentence_embedding(Path(folder))
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        """Write an encoder's files and those of sentence-transformers, which loads the folder with a tokenizer in it.

        There is no pooler in it: transformers reports that as missing, and no embedding uses it.
        The manifest over all of them comes last; the pooling comes first, so that a folder whose writing broke off
        is never taken for an encoder with the default one.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        names = write_sentence_embedding(folder, self.embedding, self.config.hidden_size)
        self.bert.save_pretrained(folder)
        write_manifest(folder, [CONFIG_FILE, WEIGHTS_FILE, *names])
