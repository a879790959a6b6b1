"""The loop: its weights, its end, repeats, a lost loss. Alone: pytest tests/orchestrator/finetuning/test_training.py"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from bert_core.text.tokenization import Tokenizer
from orchestrator.finetuning.heads import Batch, HeadModel
from orchestrator.finetuning.training import DivergedError, Evaluation, Loss, fine_tune
from orchestrator.specs import RecipeSpec
from orchestrator.tasks.text_examples import TextExample
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.heads.prepared import Prepared, prepare

pytestmark = pytest.mark.training

RECIPE = RecipeSpec(learning_rate=1e-2, batch_size=4, epochs=4.0, max_seq_length=16)
"""Four epochs of two steps, an evaluation after each epoch."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    tokenizer: Tokenizer = tiny_tasks.load_tokenizer(tmp_path_factory.mktemp("words"))
    examples = [TextExample(str(n), ("good", "bad")[n % 2], label=("yes", "no")[n % 2]) for n in range(8)]
    return prepare("classification", ("no", "yes"), examples, tokenizer)


class Training:
    """A training whose evaluations give scores that are known beforehand."""

    def __init__(self, prepared: Prepared, scores: Sequence[float], loss: Loss | None = None, **changes: Any) -> None:
        self.model = prepared.model()
        self.evaluations: list[Evaluation[str]] = []
        self.weights: list[dict[str, Tensor]] = []
        """The weights at each evaluation."""
        self._scores: Iterator[float] = iter(scores)
        recipe = RECIPE.model_copy(update=changes)
        self.best: Evaluation[str] = fine_tune(self.model, prepared.features, recipe, self._evaluate, self._take, loss)

    def _evaluate(self) -> tuple[float, str]:
        self.weights.append({name: tensor.clone() for name, tensor in self.model.state_dict().items()})
        return next(self._scores), f"evaluation {len(self.weights)}"

    def _take(self, evaluation: Evaluation[str], best_score: float) -> None:
        self.evaluations.append(evaluation)


def assert_weights_are(model: HeadModel, weights: dict[str, Tensor]) -> None:
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(("scores", "best"), [((0.1, 0.9, 0.2, 0.3), 2), ((0.5, 0.5, 0.5, 0.5), 1)])
def test_a_training_ends_with_the_first_of_the_best_weights(
    prepared: Prepared, scores: tuple[float, ...], best: int
) -> None:
    training = Training(prepared, scores)
    assert [evaluation.step for evaluation in training.evaluations] == [2, 4, 6, 8]
    assert [evaluation.is_last for evaluation in training.evaluations] == [False, False, False, True]
    assert training.best.number == best
    assert training.best.scored == f"evaluation {best}"
    assert_weights_are(training.model, training.weights[best - 1])


def test_a_training_stops_when_patience_is_out(prepared: Prepared) -> None:
    training = Training(prepared, (0.2, 0.5, 0.4, 0.3), patience=2, epochs=8.0)
    assert [evaluation.step for evaluation in training.evaluations] == [2, 4, 6, 8]
    assert training.evaluations[-1].is_last
    assert training.best.number == 2


def test_a_training_repeats_bit_by_bit(prepared: Prepared) -> None:
    first, second = (Training(prepared, (0.1, 0.2, 0.3, 0.4), dropout=0.1) for _ in range(2))
    assert_weights_are(second.model, first.weights[-1])
    assert [some.train_loss for some in first.evaluations] == [some.train_loss for some in second.evaluations]


def test_a_loss_of_its_own_is_made_smaller(prepared: Prepared) -> None:
    def loss(model: HeadModel, batch: Batch) -> Tensor:
        return model.classifier.bias.square().sum()  # type: ignore[union-attr]

    training = Training(prepared, (0.1, 0.2, 0.3, 0.4), loss)
    assert {some.train_loss for some in training.evaluations} == {0.0}  # biases begin at 0


def test_a_loss_that_is_no_number_ends_the_training(prepared: Prepared) -> None:
    with pytest.raises(DivergedError, match="the loss became nan by step 2; lower learning_rate"):
        Training(prepared, (), lambda model, batch: model.classifier.bias.sum() * math.nan)  # type: ignore[union-attr]
