"""Texts as vectors, by the encoder of a model folder.

Shapes: N texts, H hidden.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import torch
from numpy.typing import NDArray

from bert_core.checkpoints.sentence_transformers import read_sentence_embedding
from bert_core.config import BertConfig
from bert_core.constants import AskedPrecision
from bert_core.errors import DataError
from bert_core.text_embedding import TextEmbedder
from orchestrator.base.errors import InputError
from orchestrator.cluster.torch_devices import choose_device, computes_in_bf16
from orchestrator.storage import local_copy
from orchestrator.storage.model_folder import weights_digest


def load_embedder(
    folder: str, device: str = "cpu", precision: AskedPrecision = "fp32", dimensions: int | None = None
) -> TextEmbedder:
    """The encoder of a model folder, with the pooling that the folder names, else the mean of a text's tokens.

    Raises: CheckpointError, TokenizerError; InputError where a vector has fewer numbers than the `dimensions` to keep.
    """
    size = embedding_size(folder, dimensions)
    chosen = choose_device(device, precision=precision)
    dtype = torch.bfloat16 if computes_in_bf16(chosen, precision) else None
    embedder = TextEmbedder.load(local_copy(folder), chosen, autocast_dtype=dtype)
    if dimensions is not None:
        embedder.model.embedding = replace(embedder.model.embedding, truncate_dim=size)
    return embedder


def embedding_size(folder: str, dimensions: int | None = None, prompt_name: str | None = None) -> int:
    """Numbers of a vector of a folder's encoder, or `dimensions` of them.

    Raises: CheckpointError; InputError for more of them than there are, ConfigError for a prompt that is not there.
    """
    local = local_copy(folder)
    embedding, hidden_size = read_sentence_embedding(local), BertConfig.from_pretrained(local).hidden_size
    size = replace(embedding, truncate_dim=None).vector_size(hidden_size)
    if dimensions is not None and dimensions > size:
        raise InputError(f"--dimensions {dimensions}: a vector of {folder} has {size} numbers; name fewer")
    embedding.prompt(prompt_name)
    return dimensions or embedding.vector_size(hidden_size)


def embedder_fingerprint(embedder: TextEmbedder, folder: str) -> str:
    """SHA-256 of all that decides a document's vector: weights, arithmetic, tokenizer, pooling, length, prompt."""
    model, own = embedder.model, embedder.model.embedding
    encoder = [weights_digest(folder), model.config.to_dict()]
    rules = {"pooling": own.pooling, "normalize": own.normalize, "max_seq_length": own.max_seq_length}
    new = [rule for rule in (own.document_prompt, own.truncate_dim, [*map(asdict, own.dense)]) if rule]
    new += [own.similarity_fn_name] * (own.similarity_fn_name != "cosine")
    values = [*encoder, embedder.tokenizer.fingerprint, rules, embedder.max_seq_length, *new]
    if embedder.autocast_dtype is not None:  # fp32 keeps the fingerprint of the indexes that there are
        values.append(str(embedder.autocast_dtype))
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def embed_texts(
    embedder: TextEmbedder, texts: Sequence[str], numbers: Sequence[int], unit: str = "line", prompt: str = ""
) -> NDArray[np.float32]:
    """Vectors of texts, (N, H). Raises: InputError, naming the number of the first text without any token."""
    try:
        return embedder.embed(texts, prompt)
    except DataError:
        empty = [number for number, ids in zip(numbers, embedder.tokenizer.encode_ids(texts), strict=True) if not ids]
        raise InputError(f"{unit} {empty[0]}: the text has no token; leave it out") from None
