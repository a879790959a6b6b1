"""The contract of a pretraining objective: the half with torch, which has the head and computes the loss.

The other half, in `bert_core.objectives`, says what the examples are. Both have the same name in their lists.

Shapes: B sequences, T tokens, P predicted positions, R rows that a head reads, H hidden.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class PretrainingLabels:
    """The labels of a packed batch, integers; empty where the batch has no such labels."""

    masked_positions: Tensor
    """(P,) positions whose tokens were hidden, ascending, into T"""
    masked_labels: Tensor
    """(P,) the token ids that stood there before masking; -100 at positions that only fill up the batch"""
    sentence_labels: Tensor
    """(B,) the label of each pair of segments, 0 or 1; -100 for sequences that only fill up the batch"""


@dataclass(frozen=True)
class LossSums:
    """Sums over a batch, to be added up over micro-batches and workers before anything is divided.

    Each is a float32 tensor without dimensions on the model's device, so that nothing waits for the device.
    """

    loss: Tensor
    num_correct: Tensor
    num_predictions: Tensor


class ObjectiveHead(ABC, Generic[Module]):
    """An objective's part of `BertForPreTraining`. The object holds no state: the weights are in its module."""

    module_name: ClassVar[str]
    """Attribute of `BertForPreTraining` that is the module; weights are saved under it. Objectives may share one."""

    @abstractmethod
    def build(self, config: BertConfig) -> Module | None:
        """The module, or None where a model of this configuration has none."""

    @abstractmethod
    def rows(self, bert: BertModel, seqs: PackedSequences, labels: PretrainingLabels) -> Tensor | None:
        """Tokens whose outputs the head reads, (R,) places in T; None: all of them, R = T."""

    @abstractmethod
    def loss_sums(
        self, module: Module, bert: BertModel, seqs: PackedSequences, hidden: Tensor, labels: PretrainingLabels
    ) -> LossSums:
        """Sums over a packed batch, given the encoder's output for the head's rows, `hidden` (R, H).

        `num_predictions` is what the other half's `num_predictions` says of the same batch.
        """
