"""A head with a batch of examples, random logits for it, and what holds for every head."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.text.tokenization import Tokenizer
from orchestrator.finetuning.batches import make_batch
from orchestrator.finetuning.heads import HEADS, Batch, HeadTraining
from orchestrator.specs.task import Head
from orchestrator.tasks.features import Features
from tests.orchestrator.tasks.definitions import features_of
from tests.synchronizations import counted_synchronizations

CONFIG = BertConfig(
    vocab_size=300, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
).with_dropout(0.0)


@dataclass(frozen=True)
class Prepared:
    """A head, the features of some examples, and all of their windows as one batch."""

    head: HeadTraining[Any, Any]
    labels: Sequence[str]
    features: Features[Any]

    @property
    def batch(self) -> Batch:
        return make_batch(self.features, np.arange(self.features.num_windows), torch.device("cpu"))

    def model(self, **changes: Any) -> Any:
        """A model of random weights; `changes` are fields of its configuration."""
        config = self.head.with_labels(replace(CONFIG, **changes), self.labels)
        return self.head.model_type.from_config(config, seed=1).eval()

    def logits(self, *shape: int, seed: int = 0) -> Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def prepare(
    head: Head, labels: Sequence[str], examples: Sequence[Any], tokenizer: Tokenizer, **options: Any
) -> Prepared:
    """The head with examples; `options` are those of `features_of`, where windows of 16 tokens are usual."""
    return Prepared(
        HEADS[head], labels, features_of(head, labels, examples, tokenizer, **{"max_seq_length": 16, **options})
    )


def assert_losses_wait_for_nothing(prepared: Prepared, model: Any, shape: Sequence[int]) -> None:
    """Neither the loss of labels nor that of a teacher's logits would hold up the host of a GPU."""
    batch, logits = prepared.batch, prepared.logits(*shape).requires_grad_()
    with counted_synchronizations() as waits:
        prepared.head.loss(model, logits, batch).backward()  # type: ignore[no-untyped-call]
        prepared.head.soft_loss(logits, prepared.logits(*shape, seed=1), batch, 2.0).backward()
    assert waits == []
