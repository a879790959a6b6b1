"""The contract that all pretraining objectives keep, in both halves.

Alone: pytest tests/bert_core/objectives/test_contract.py
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import torch
from torch import nn

from bert_core.config import BertConfig
from bert_core.examples.packing import PackedBatch
from bert_core.heads import BertForPreTraining
from bert_core.heads.pretraining import OBJECTIVE_HEADS, PretrainingLabels
from bert_core.heads.replaced_tokens import GeneratorAndDiscriminator
from bert_core.objectives import (
    NO_SENTENCE_OBJECTIVE,
    OBJECTIVES,
    SENTENCE_OBJECTIVES,
    TOKEN_OBJECTIVES,
    active_objectives,
    build_packed_batch,
)
from bert_core.objectives.base import PERPLEXITY
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.packed_examples import MASKING
from tests.bert_core.reference import scattered, small_config
from tests.bert_core.small_documents import BERT, all_examples, documents

CONFIG = small_config(vocab_size=50_000, max_position_embeddings=64, span_boundary_objective=True)
ALL = pytest.mark.parametrize("name", OBJECTIVES)
HEADS = {name: head.module_name for name, head in OBJECTIVE_HEADS.items()} | {
    "generator": "prediction",
    "replaced_tokens": "discriminator.discriminator_predictions",
}
"""Head of each objective in its model."""


def token_objective_beside(name: str) -> str:
    """The token objective of a run that has the objective."""
    return name if name in TOKEN_OBJECTIVES else "replaced_tokens" if name == "generator" else "masked_lm"


def batch_of(name: str, only: np.ndarray) -> PackedBatch:
    """Examples of a run that has the objective."""
    docs = documents()
    sentence = name if name in SENTENCE_OBJECTIVES else NO_SENTENCE_OBJECTIVE
    _, segments = all_examples(docs, 48, sentence, only=only)
    options = {"layout": BERT, "seed": 1, "epoch": 0, "example": only, "token_objective": token_objective_beside(name)}
    return build_packed_batch(docs, segments, MASKING, **options)


def inputs_of(batch: PackedBatch) -> tuple[PackedSequences, PretrainingLabels]:
    arrays = (batch.masked_positions, batch.masked_labels, batch.sentence_labels, batch.draws)
    seqs = PackedSequences.from_numpy(batch.input_ids, batch.token_type_ids, batch.cu_seqlens)
    return seqs, PretrainingLabels(*(torch.from_numpy(array.astype("int64")) for array in arrays))


@pytest.fixture(scope="module")
def models() -> Mapping[str, BertForPreTraining]:
    """A model for each objective."""
    made = [scattered(cls.from_config(CONFIG)).eval() for cls in (BertForPreTraining, GeneratorAndDiscriminator)]
    return {name: made[name not in OBJECTIVE_HEADS] for name in OBJECTIVES}


@pytest.fixture
def model(models: Mapping[str, BertForPreTraining], name: str) -> BertForPreTraining:
    return models[name]


def test_both_halves_have_the_same_objectives() -> None:
    assert HEADS.keys() == OBJECTIVES.keys()
    assert all(objective.name == name for name, objective in OBJECTIVES.items())


def test_measurements_of_two_objectives_never_share_a_name() -> None:
    names = [name for objective in OBJECTIVES.values() for name in objective.curve_names]
    assert len(set(names)) == len(names)


@ALL
def test_an_objective_that_is_chosen_is_active(name: str) -> None:
    chosen = {name, token_objective_beside(name)}
    assert name in active_objectives(chosen, CONFIG)
    assert not active_objectives((), CONFIG)


@ALL
def test_sums_count_what_the_batch_says_it_predicts(name: str, model: BertForPreTraining) -> None:
    batch = batch_of(name, np.arange(12))
    sums = model.packed_loss_sums(*inputs_of(batch), [name])
    assert sums.keys() == {name}
    assert float(sums[name].num_predictions) == OBJECTIVES[name].num_predictions(batch) > 0
    assert 0 <= float(sums[name].num_correct) <= float(sums[name].num_predictions)
    assert all(value.shape == () and value.dtype == torch.float32 for value in vars(sums[name]).values())


@ALL
@pytest.mark.heavy
def test_sums_of_parts_add_up_to_those_of_the_batch(name: str, model: BertForPreTraining) -> None:
    batch = batch_of(name, np.arange(12))
    whole = model.packed_loss_sums(*inputs_of(batch), [name])[name]
    parts = [model.packed_loss_sums(*inputs_of(part), [name])[name] for part in batch.split(5)]
    assert len(parts) == 3
    for value in ("loss", "num_correct", "num_predictions"):
        added = torch.stack([getattr(part, value) for part in parts]).sum()
        torch.testing.assert_close(added, getattr(whole, value), rtol=1e-4, atol=1e-4)


@ALL
def test_the_loss_reaches_the_encoder_and_the_head(name: str, model: BertForPreTraining) -> None:
    sums = model.packed_loss_sums(*inputs_of(batch_of(name, np.arange(4))), [name])
    head = model.get_submodule(HEADS[name])
    parameters = [model.bert.embeddings.word.weight, *head.parameters()]
    gradients = torch.autograd.grad(sums[name].loss, parameters)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert sum(bool(gradient.any()) for gradient in gradients) >= 2


@ALL
def test_an_example_depends_on_its_own_number_alone(name: str) -> None:
    numbers = np.array([3, 11, 20])
    alone = [batch_of(name, numbers[row : row + 1]) for row in range(3)]
    together = batch_of(name, numbers).split(1)
    for own, theirs in zip(alone, together, strict=True):
        for field in PackedBatch.__dataclass_fields__:
            assert (getattr(own, field) == getattr(theirs, field)).all()


@ALL
def test_metrics_are_means_by_their_names(name: str) -> None:
    objective = OBJECTIVES[name]
    metrics = objective.metrics(loss=20.0, num_correct=2.0, num_predictions=8.0, num_tokens=60.0)
    assert metrics[objective.loss_name] == 2.5
    assert metrics.get(objective.accuracy_name) == (0.25 if objective.has_accuracy else None)
    assert metrics.keys() - {PERPLEXITY} == set(objective.curve_names)
    assert (PERPLEXITY in metrics) == (name in ("masked_lm", "left_to_right")), "of the vocabulary, by the model itself"
    assert metrics.get("replaced_share") == (0.1 if name == "generator" else None)


def families() -> Iterator[BertConfig]:
    for family in ("bert", "roberta", "albert", "modern"):
        yield BertConfig.from_shape(1, 128, family, vocab_size=60)


@pytest.mark.parametrize("config", list(families()), ids=lambda config: config.model_type)
def test_a_model_has_the_heads_of_its_configuration(config: BertConfig) -> None:
    model = BertForPreTraining(config, seed=None)
    for head in OBJECTIVE_HEADS.values():
        module = getattr(model, head.module_name)
        assert (module is None) == (head.build(config) is None)
        assert module is None or isinstance(module, nn.Module)
