"""Device whose memory runs out, without being there."""

import pytest
import torch

from bert_core.heads import BertForSentenceEmbedding
from bert_core.packed_sequences import PackedSequences
from orchestrator.finetuning.heads import Batch, HeadModel
from orchestrator.finetuning.heads.sequence import SequenceHead


def let_memory_run_out(monkeypatch: pytest.MonkeyPatch, max_windows: int, max_tokens: int) -> None:
    """Let memory hold so many windows that a head answers at a time, and so many tokens of texts that are embedded."""
    logits, embeddings = SequenceHead.logits, BertForSentenceEmbedding.packed_embeddings

    def some_logits(head: SequenceHead, model: HeadModel, batch: Batch) -> torch.Tensor:
        if len(batch.windows) > max_windows:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return logits(head, model, batch)

    def some_embeddings(model: BertForSentenceEmbedding, seqs: PackedSequences) -> torch.Tensor:
        if seqs.num_tokens > max_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return embeddings(model, seqs)

    monkeypatch.setattr(SequenceHead, "logits", some_logits)
    monkeypatch.setattr(BertForSentenceEmbedding, "packed_embeddings", some_embeddings)
