"""The contract of a pretraining objective: the half that runs in data tasks, without torch.

An objective is one object in two files. This half says which segments and labels an example has, how many predictions
a batch makes, and what its measurements are called. The other half, in `bert_core.heads.pretraining`, has the head and
computes the loss; both have the same name in their lists. Objects hold no state.

A run has one `TokenObjective`, at most one `SentenceObjective`, and every other objective that says `is_active`. The
loss of a run is the sum of the means of its objectives' losses, each times its `weight`.

Shapes: T tokens, P predicted positions, n examples.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bert_core.config import BertConfig
from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import ExampleRequest, LaidOut, Segments
from bert_core.masking import MaskingConfig

PERPLEXITY = "perplexity"
"""Name of the measurement exp(mean loss), which every token objective has."""
_LARGEST_EXPONENT = 700.0
"""exp of a number that is not much larger is more than a float holds."""


class Objective(ABC):
    """Something that a model is trained to predict."""

    name: ClassVar[str]
    """Name in specs and in the lists of objectives."""
    summary: ClassVar[str]
    """Clause in the documentation of specs that says what is predicted."""
    metric_prefix: ClassVar[str]
    """Beginning of the measurements' names: `mlm` for `mlm_loss` and `mlm_accuracy`."""
    has_accuracy: ClassVar[bool] = True
    """Whether right predictions are counted, and reported on progress lines beside the loss."""
    weight: ClassVar[float] = 1.0
    """Factor of the mean loss in the loss of the run."""

    @property
    def loss_name(self) -> str:
        return f"{self.metric_prefix}_loss"

    @property
    def accuracy_name(self) -> str:
        return f"{self.metric_prefix}_accuracy"

    @property
    def curve_names(self) -> tuple[str, ...]:
        """Names of the measurements that get a panel in a picture of the run."""
        return (self.loss_name, self.accuracy_name) if self.has_accuracy else (self.loss_name,)

    def is_active(self, chosen: Collection[str], config: BertConfig) -> bool:
        """Whether a run has the objective, given the names that its spec chose and its model's configuration."""
        return self.name in chosen

    @abstractmethod
    def num_predictions(self, batch: PackedBatch) -> int:
        """Predictions that the objective makes in a batch; its loss is divided by their number over all workers."""

    def metrics(self, loss: float, num_correct: float, num_predictions: float, num_tokens: float) -> dict[str, float]:
        """Measurements by name, from sums over any number of batches; `num_predictions` is above 0."""
        metrics = {self.loss_name: loss / num_predictions}
        if self.has_accuracy:
            metrics[self.accuracy_name] = num_correct / num_predictions
        return metrics


@dataclass(frozen=True)
class HiddenTokens:
    """Tokens as the model reads them, and those that it predicts."""

    input_ids: NDArray[np.int32]  # (T,)
    positions: NDArray[np.int32]  # (P,) ascending, into T
    labels: NDArray[np.int32]  # (P,) the tokens that belong there
    draws: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))  # `PackedBatch.draws`


class TokenObjective(Objective):
    """An objective that decides how tokens are hidden; its predictions are tokens of the vocabulary. A run has one."""

    is_causal: ClassVar[bool] = False
    """Whether a token must not see those behind it: the model then has `BertConfig.causal_attention`."""
    against_pairs: ClassVar[str] = ""
    """Reason why a run has no `SentenceObjective` beside it, as a clause; empty where it may have one."""
    spec_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields of a pretraining spec, as dotted names, that are made for this objective; others refuse a value there."""

    @abstractmethod
    def hide_tokens(
        self, laid: LaidOut, masking: MaskingConfig, *, seed: int, epoch: int, example: NDArray[np.int64]
    ) -> HiddenTokens:
        """Hide what the model must not see of `laid`, whose arrays may be changed.

        What becomes of an example depends on the seed, the epoch and its own number in `example` (n,) alone. An
        objective whose labels follow from the tokens themselves hides nothing and gives no positions (P = 0).
        """

    def guessing_loss(self, vocab_size: int) -> float:
        """Loss of a run whose predictions are guessed."""
        return math.log(vocab_size)

    def metrics(self, loss: float, num_correct: float, num_predictions: float, num_tokens: float) -> dict[str, float]:
        """Loss and accuracy, and the perplexity."""
        metrics = super().metrics(loss, num_correct, num_predictions, num_tokens)
        metrics[PERPLEXITY] = math.exp(min(metrics[self.loss_name], _LARGEST_EXPONENT))
        return metrics


class SentenceObjective(Objective):
    """A question with two answers about a pair of segments. A run has one, or single sequences and none.

    The model needs the head for pairs of segments (`BertConfig.sentence_head`).
    """

    answers: ClassVar[tuple[str, str]]
    """Meanings of the labels 0 and 1 for A and B, as clauses."""
    min_document_tokens: ClassVar[int] = 1
    """Tokens that a document needs to give an example."""
    min_document_sentences: ClassVar[int] = 1
    """Sentences that some document needs, for the answers to differ."""
    min_window_documents: ClassVar[int] = 1
    """Documents that have to be at hand when an example is made."""

    @abstractmethod
    def cut_pairs(self, request: ExampleRequest, short_seq_prob: float) -> Segments:
        """Two segments and a label, 0 or 1, for each requested example.

        The request's section is the document that segment A is cut from, and it has `min_document_tokens`. Counters 3
        and up of the request's keys are free to use.

        Raises: DataError when there are fewer than `min_window_documents`.
        """

    def num_predictions(self, batch: PackedBatch) -> int:
        """The batch's sequences: there is one question about each pair."""
        return batch.num_sequences
