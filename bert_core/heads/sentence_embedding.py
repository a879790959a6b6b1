"""Sentence embedding: one vector for each text.

Shapes: B sequences, S length of a padded row, T tokens, H hidden, D numbers of a vector: H unless Dense layers or a
truncation change it.
"""

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.checkpoints.manifest import atomic_write, write_manifest
from bert_core.checkpoints.pretrained import PretrainedModel, read_weights
from bert_core.checkpoints.sentence_transformers import (
    DenseConfig,
    SentenceEmbeddingConfig,
    dense_folders,
    read_sentence_embedding,
    write_sentence_embedding,
)
from bert_core.checkpoints.tensor_files import save_tensors
from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.config import CONFIG_FILE, BertConfig
from bert_core.errors import CheckpointError
from bert_core.kernels.linear import Linear
from bert_core.model import BertModel, pool_tokens
from bert_core.packed_sequences import PackedSequences


@dataclass(frozen=True)
class SentenceEmbeddingOutput:
    sentence_embedding: Tensor
    """Vector of each text, (B, D) float32."""


def _dense_layer(config: DenseConfig) -> nn.Sequential:
    """Layer behind the pooling, (B, in) → (B, out), whose parameters have sentence-transformers' names."""
    linear = Linear(config.in_features, config.out_features, bias=config.bias)
    activation = getattr(nn, config.activation_function.rpartition(".")[2])()
    return nn.Sequential(OrderedDict(linear=linear, activation=activation))


def load_dense(folder: Path, embedding: SentenceEmbeddingConfig, hidden_size: int) -> nn.ModuleList:
    """Load a folder's Dense layers, behind an encoder of a width.

    Raises: CheckpointError, naming the file that is missing, broken or does not fit the layer before.
    """
    layers, width = nn.ModuleList(), hidden_size
    for config, place in zip(embedding.dense, dense_folders(folder) if embedding.dense else (), strict=True):
        if config.in_features != width:
            raise CheckpointError(f"{place}: in_features is {config.in_features} where a vector has {width} numbers")
        width = config.out_features
        weights, path = read_weights(place)
        with torch.device("meta"):
            layer = _dense_layer(config)
        try:
            layer.load_state_dict({name: weight.float() for name, weight in weights.items()}, assign=True)
        except RuntimeError as error:
            raise CheckpointError(f"{path} is not as config.json beside it says ({error}); fetch it anew") from None
        layers.append(layer)
    return layers


class BertForSentenceEmbedding(PretrainedModel):
    """BERT that makes one vector of a text by pooling its tokens' outputs (Reimers and Gurevych 2019, section 3).

    The pooling learns nothing, Dense layers behind it do. Saved, it is a folder that sentence-transformers loads too.
    """

    def __init__(
        self, config: BertConfig, seed: int | None = 0, embedding: SentenceEmbeddingConfig | None = None
    ) -> None:
        self.embedding = embedding or SentenceEmbeddingConfig()
        super().__init__(config, seed)

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=False)
        self.dense = nn.ModuleList(map(_dense_layer, self.embedding.dense))

    @property
    def vector_size(self) -> int:
        """Numbers of a vector, D."""
        return self.embedding.vector_size(self.config.hidden_size)

    def packed_embeddings(self, seqs: PackedSequences, hidden: Tensor | None = None) -> Tensor:
        """Vector of each text, (B, D) float32; from the encoder's output, (T, H), where it was run already.

        A truncated vector is scaled to length 1 after it is cut, where vectors are scaled (Kusupati et al. 2022);
        sentence-transformers leaves it shorter.
        """
        if self.embedding.pooling == "cls":
            first = self.bert.pooled_tokens(seqs)  # with causal attention the last, which alone has seen the text
            pooled = (self.bert.encode(seqs, first) if hidden is None else hidden.index_select(0, first)).float()
        else:
            hidden = self.bert.encode(seqs) if hidden is None else hidden
            pooled = pool_tokens(hidden, seqs.cu_seqlens, self.embedding.pooling)
        for layer in self.dense:
            pooled = layer(pooled)
        pooled = pooled.float()[:, : self.embedding.truncate_dim]
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
        model.dense = load_dense(Path(folder), model.embedding, model.config.hidden_size)
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
        for layer, place in zip(self.dense, dense_folders(folder), strict=True):
            weights = {name: weight.detach().cpu().contiguous() for name, weight in layer.state_dict().items()}
            atomic_write(place / WEIGHTS_FILE, partial(save_tensors, weights))
            names.append(str((place / WEIGHTS_FILE).relative_to(folder)))
        self.bert.save_pretrained(folder)
        write_manifest(folder, [CONFIG_FILE, WEIGHTS_FILE, *names])
