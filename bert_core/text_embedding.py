"""Embeddings of any number of texts, in their order and in bounded memory.

Shapes: N texts, T tokens, D numbers of a vector.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from bert_core.device_copies import AsyncReads
from bert_core.errors import DataError
from bert_core.examples.segments import NUM_SINGLE_SPECIALS
from bert_core.heads import BertForSentenceEmbedding
from bert_core.micro_batches import compute_in_parts, first_line
from bert_core.packed_sequences import PackedSequences
from bert_core.text.tokenization import Tokenizer

_WINDOW_TEXTS = 2048
_WINDOW_CHARACTERS = 4 << 20
_CPU_MAX_TOKENS = 2048
_GPU_MAX_TOKENS = 65_536
"""Number that makes large matrix products: a GPU is done with a few thousand sooner than the host launches them."""
logger = logging.getLogger(__name__)


class TextEmbedder:
    """Embedding of texts by a model and its tokenizer; texts of similar length are computed together, unpadded."""

    num_truncated: int = 0
    """Number of texts so far that had more tokens than the model reads; only their beginnings were embedded."""

    def __init__(
        self,
        model: BertForSentenceEmbedding,
        tokenizer: Tokenizer,
        max_tokens: int | None = None,
        autocast_dtype: torch.dtype | None = None,
    ) -> None:
        """Make an embedder that computes `max_tokens` at a time, and what the last text needs beyond.

        Where memory runs out with so many, half as many are computed at a time from there on.

        Args:
            max_tokens: 2,048 on a CPU and 65,536 on a GPU when left out.
            autocast_dtype: type that matrix products are rounded to, as `torch.autocast` does; none when left out.

        Raises: TokenizerError when the tokenizer is not the model's.
        """
        tokenizer.check_fits(model.config.vocab_size)
        self.model = model.eval()
        self.tokenizer = tokenizer
        is_on_gpu = next(model.parameters()).is_cuda
        self.max_tokens = max_tokens or (_GPU_MAX_TOKENS if is_on_gpu else _CPU_MAX_TOKENS)
        self.autocast_dtype = autocast_dtype
        longest = model.config.max_seq_length
        self.max_seq_length = min(longest, model.embedding.max_seq_length or longest)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: torch.device | str = "cpu",
        max_tokens: int | None = None,
        autocast_dtype: torch.dtype | None = None,
    ) -> Self:
        """Load an encoder's or a sentence-transformers folder. Raises: CheckpointError, TokenizerError."""
        model = BertForSentenceEmbedding.from_pretrained(folder)
        return cls(model.to(device), Tokenizer.load(folder), max_tokens, autocast_dtype)

    def save(self, folder: str | Path) -> None:
        """Write a folder that sentence-transformers loads."""
        self.tokenizer.save(folder)
        self.model.save_pretrained(folder)

    @property
    def dimension(self) -> int:
        """Length of a vector, D."""
        return self.model.vector_size

    def embed(self, texts: Sequence[str], prompt: str = "") -> NDArray[np.float32]:
        """Embed texts, a prompt before each: (N, D). Raises: DataError, naming a text without tokens by its number."""
        return self._embed(texts, 1, prompt)

    def stream(self, texts: Iterable[str], prompt: str = "") -> Iterator[NDArray[np.float32]]:
        """Yield the embedding (D,) of one text after the other; a bounded number of texts is read ahead.

        Raises: DataError, naming a text without tokens by its number from 1.
        """
        number = 1
        for window in _windows(texts):
            yield from self._embed(window, number, prompt)
            number += len(window)

    @torch.inference_mode()
    def _embed(self, texts: Sequence[str], first_number: int, prompt: str) -> NDArray[np.float32]:
        sequences = self._encode([prompt + text for text in texts], first_number)
        lengths = np.array([len(ids) for ids in sequences], np.int64)  # (N,)
        embeddings = np.empty((len(texts), self.dimension), np.float32)
        device = next(self.model.parameters()).device
        reads = AsyncReads(embeddings.__setitem__)

        def compute(parts: Sequence[NDArray[np.int64]]) -> None:
            for rows in parts:
                tokens = np.concatenate([sequences[row] for row in rows])  # (T,)
                cu_seqlens = np.concatenate([[0], lengths[rows].cumsum()])
                seqs = PackedSequences.from_numpy(tokens, np.zeros_like(tokens), cu_seqlens)
                with torch.autocast(device.type, self.autocast_dtype, enabled=self.autocast_dtype is not None):
                    vectors = self.model.packed_embeddings(seqs.to(device))
                reads.add(rows, vectors.float())

        sizes = _TextSizes(self, lengths, self.max_tokens)
        for rows in _batches(lengths, self.max_tokens):
            compute_in_parts(sizes, rows, None, compute)
        reads.finish()
        return embeddings

    def _encode(self, texts: Sequence[str], first_number: int) -> list[list[int]]:
        capacity = self.max_seq_length - NUM_SINGLE_SPECIALS
        sequences = []
        for number, ids in enumerate(self.tokenizer.encode_ids(texts), start=first_number):
            if not ids:
                raise DataError(f"text {number} has no token and cannot be embedded; leave it out")
            self.num_truncated += len(ids) > capacity
            sequences.append([self.tokenizer.cls_id, *ids[:capacity], self.tokenizer.sep_id])
        return sequences


@dataclass(frozen=True)
class _TextSizes:
    """Sizes of what an embedder computes at a time, of texts with these lengths."""

    embedder: TextEmbedder
    lengths: NDArray[np.int64]
    """(N,) tokens of each text."""
    max_tokens: int
    """Tokens by which the batches are cut; the embedder's own number falls when memory runs out."""

    def split(self, batch: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Cut rows that are computed together as long as there is memory."""
        if self.embedder.max_tokens >= self.max_tokens:
            return [batch]
        return [batch[places] for places in _batches(self.lengths[batch], self.embedder.max_tokens)]

    def halve(self, tried: Sequence[NDArray[np.int64]], step: int | None, reason: str) -> None:
        """Compute half as many tokens at a time as were tried. Raises: torch.OutOfMemoryError where it was one text."""
        largest = max(int(self.lengths[rows].sum()) for rows in tried)
        if max(map(len, tried)) == 1:
            raise torch.OutOfMemoryError(
                f"memory ran out with one text of {largest:,} tokens at a time ({first_line(reason)}); use a smaller "
                "model, or take a device with more memory"
            )
        # A text may be longer than what is computed at a time.
        self.embedder.max_tokens = max(1, min(largest, self.embedder.max_tokens) // 2)
        logger.warning(
            f"memory ran out with texts of {largest:,} tokens at a time ({first_line(reason)}); from here on "
            f"{self.embedder.max_tokens:,} at a time"
        )


def _windows(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield texts that are read ahead together: a number of texts, or fewer with a number of characters."""
    window: list[str] = []
    num_characters = 0
    for text in texts:
        window.append(text)
        num_characters += len(text)
        if len(window) == _WINDOW_TEXTS or num_characters >= _WINDOW_CHARACTERS:
            yield window
            window, num_characters = [], 0
    if window:
        yield window


def _batches(lengths: NDArray[np.int64], max_tokens: int) -> list[NDArray[np.int64]]:
    """Sort rows by length, the longest first, and cut them into batches of about `max_tokens`."""
    order = np.argsort(-lengths, kind="stable")
    full = lengths[order].cumsum() // max_tokens
    return [rows for rows in np.split(order, np.flatnonzero(np.diff(full)) + 1) if len(rows)]
