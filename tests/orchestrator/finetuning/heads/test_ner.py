"""The head for entities, with a CRF and without. Alone: pytest tests/orchestrator/finetuning/heads/test_ner.py"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bert_core.heads import token_classification
from bert_core.heads.token_classification import LinearChainCrf, log_partitions
from bert_core.text.tokenization import Tokenizer
from orchestrator.specs import RecipeSpec
from orchestrator.tasks.types.conll import NerExample
from tests.orchestrator.finetuning.heads.prepared import (
    CONFIG,
    Prepared,
    assert_losses_wait_for_nothing,
    prepare,
)

TAGS = ("O", "B-PER", "I-PER")
PATHS = ([0, 1, 2], [1, 0])
"""The tags of both sentences."""
IS_WORD = [False, True, True, True, False, False, True, True, False]
"""Of `[CLS] the anna bruno [SEP] [CLS] clara road [SEP]`, a piece for each word."""


@pytest.fixture
def prepared(tokenizer: Tokenizer) -> Prepared:
    examples = [
        NerExample("0", ("the", "anna", "bruno"), ("O", "B-PER", "I-PER")),
        NerExample("1", ("clara", "road"), ("B-PER", "O")),
    ]
    return prepare("ner", TAGS, examples, tokenizer)


def test_a_batch_has_its_lengths_on_the_host_for_an_lstm(prepared: Prepared) -> None:
    assert prepared.batch.seqs.host_lengths.tolist() == [5, 4]


def test_loss_of_a_crf_is_a_words_share_of_the_paths_log_likelihood(prepared: Prepared) -> None:
    model, logits = _model_with_crf(prepared), prepared.logits(9, 3)
    words = logits[torch.tensor(IS_WORD)].split([3, 2])
    with torch.no_grad():
        lost = sum(_lost(model.crf, emissions, path) for emissions, path in zip(words, PATHS, strict=True))
        found = prepared.head.loss(model, logits, prepared.batch)
    assert float(found) == pytest.approx(lost / 5, abs=1e-5)
    assert_losses_wait_for_nothing(prepared, model, (9, 3))


def test_weights_of_tags_are_no_part_of_a_crfs_loss(prepared: Prepared) -> None:
    """Parts of a batch add up to its loss."""
    model, labels = _model_with_crf(prepared), prepared.batch.host_targets
    prepared.head.prepare_loss(model, prepared.features, RecipeSpec(class_weights="balanced"))
    assert prepared.head.count_labels(model, labels[:5]) == len(PATHS[0])


def test_a_crf_goes_from_word_to_word_and_not_over_all_tokens(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = []

    def measured(emissions: Tensor, mask: Tensor, *scores: Tensor) -> Tensor:
        widths.append(emissions.shape[1])
        return log_partitions(emissions, mask, *scores)

    monkeypatch.setattr(token_classification, "log_partitions", measured)
    prepared.head.loss(_model_with_crf(prepared), prepared.logits(9, 3), prepared.batch)
    assert widths == [max(map(len, PATHS))]


def test_outputs_of_a_crf_are_the_best_paths_on_words(prepared: Prepared) -> None:
    model, logits = _model_with_crf(prepared), prepared.logits(9, 3)
    tags = prepared.head.outputs(model, prepared.features, logits.numpy())
    best: list[int] = []
    with torch.no_grad():
        for emissions in logits[torch.tensor(IS_WORD)].split([3, 2]):
            paths = product(range(3), repeat=len(emissions))
            best += max((_score(model.crf, emissions, path), path) for path in paths)[1]
    assert tags[IS_WORD].tolist() == best
    assert (tags[~np.array(IS_WORD)] == -100).all()


@pytest.mark.parametrize("texts", [["the anna", ""], [""]])
def test_a_sentence_without_words_has_no_tags(tokenizer: Tokenizer, texts: list[str]) -> None:
    examples = [NerExample("0", tuple(text.split())) for text in texts]
    empty = prepare("ner", TAGS, examples, tokenizer)
    model = _model_with_crf(empty)
    logits = empty.logits(len(empty.features.input_ids), 3).numpy()
    tags = empty.head.outputs(model, empty.features, logits)
    assert np.count_nonzero(tags != -100) == sum(len(example.words) for example in examples)


def test_outputs_without_a_crf_are_the_logits(prepared: Prepared) -> None:
    logits = prepared.logits(9, 3).numpy()
    assert prepared.head.outputs(prepared.model(), prepared.features, logits) is logits


def test_a_student_starts_with_its_teachers_transitions(prepared: Prepared) -> None:
    student, teacher = prepared.model(token_decoder="crf"), _model_with_crf(prepared)
    assert not torch.equal(student.crf.transitions, teacher.crf.transitions)
    prepared.head.follow_teacher(student, teacher, None, RecipeSpec())
    assert all(
        torch.equal(own, theirs) for own, theirs in zip(student.crf.parameters(), teacher.crf.parameters(), strict=True)
    )


def test_all_tokens_are_read_where_an_lstm_goes_over_them(prepared: Prepared) -> None:
    assert prepared.head.tokens_read(replace(CONFIG, num_lstm_layers=1), prepared.features) is None


def _model_with_crf(prepared: Prepared) -> Any:
    model = prepared.model(token_decoder="crf")
    with torch.no_grad():
        for parameter in model.crf.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(2))
    return model


def _score(crf: LinearChainCrf, emissions: Tensor, path: Sequence[int]) -> float:
    """Sum of a path's emissions, transitions, start and end; none where `I-PER` follows no tag of a person."""
    if any(tag == 2 and before == 0 for before, tag in pairwise((0, *path))):
        return -math.inf
    parts = [emissions[range(len(path)), path].sum(), crf.start[path[0]], crf.end[path[-1]]]
    return float(sum(parts) + sum(crf.transitions[before, tag] for before, tag in pairwise(path)))


def _lost(crf: LinearChainCrf, emissions: Tensor, path: Sequence[int]) -> float:
    """The negative log-likelihood of a path among all."""
    scores = [_score(crf, emissions, other) for other in product(range(3), repeat=len(path))]
    return math.log(sum(math.exp(score) for score in scores)) - _score(crf, emissions, path)
