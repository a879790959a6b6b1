"""Card that answers torch's questions without being there."""

from typing import Any

import pytest
import torch

from bert_core.heads import BertForSentenceEmbedding
from bert_core.packed_sequences import PackedSequences
from orchestrator.cluster import torch_devices as cards
from orchestrator.finetuning.heads import Batch, HeadModel
from orchestrator.finetuning.heads.sequence import SequenceHead

GIB = 1 << 30


def put_in_place(
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int] = (9, 0),
    free_bytes: int = 139 * GIB,
    name: str = "NVIDIA H200",
) -> None:
    """Let torch tell of a card of 139 GiB, of which this process has told nobody yet."""
    monkeypatch.setattr(cards, "_TOLD", set())
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (free_bytes, 139 * GIB))
    monkeypatch.setattr(cards, "launch_kernel", lambda: None)


def let_memory_run_out(monkeypatch: pytest.MonkeyPatch, max_windows: int, max_tokens: int) -> None:
    """Let memory hold so many windows that a head answers at a time, and so many tokens of texts that are embedded."""
    logits, embeddings = SequenceHead.logits, BertForSentenceEmbedding.packed_embeddings

    def some_logits(head: SequenceHead, model: HeadModel, batch: Batch) -> torch.Tensor:
        if len(batch.windows) > max_windows:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return logits(head, model, batch)

    def some_embeddings(model: BertForSentenceEmbedding, seqs: PackedSequences, *others: Any) -> torch.Tensor:
        if seqs.num_tokens > max_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return embeddings(model, seqs, *others)

    monkeypatch.setattr(SequenceHead, "logits", some_logits)
    monkeypatch.setattr(BertForSentenceEmbedding, "packed_embeddings", some_embeddings)
