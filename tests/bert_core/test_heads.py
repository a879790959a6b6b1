"""The heads, against transformers: logits, losses, gradients. Run alone: pytest tests/bert_core/test_heads.py"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.errors import ConfigError, DataError
from bert_core.families import FAMILIES
from bert_core.heads import (
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bert_core.heads.pretraining import PretrainingLabels
from bert_core.heads.sentence_selection import BertForSentenceSelection
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import (
    assert_equal_gradients,
    learned_losses,
    ragged_batch,
    reference_of,
    scattered,
    small_config,
)

CONFIG = small_config().with_labels(["a", "b", "c"])
LENGTHS = st.lists(st.integers(2, 12), min_size=1, max_size=5)
SEEDS = st.integers(0, 1000)


def assert_same(model: PretrainedModel, batch: dict[str, Tensor]) -> None:
    """Loss, logits and gradients agree with the model of the same name in transformers."""
    reference = reference_of(model)
    ours, theirs = model(**batch), reference(**batch)
    torch.testing.assert_close(ours.loss, theirs.loss, atol=1e-5, rtol=1e-5)
    real = batch["attention_mask"].bool()
    for name, tensor in vars(ours).items():
        if tensor is not None and name != "loss":
            logits, expected = (t[real] if t.dim() == 3 else t for t in (tensor, theirs[name]))
            torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)
    ours.loss.backward()
    theirs.loss.backward()
    assert_equal_gradients(model, reference)


def pretraining_batch(lengths: list[int], seed: int) -> dict[str, Tensor]:
    batch = ragged_batch(CONFIG, lengths, max(lengths) + 1, seed)
    generator = torch.Generator().manual_seed(seed)
    chosen = (torch.rand(batch["input_ids"].shape, generator=generator) < 0.3) & batch["attention_mask"].bool()
    chosen[0, 0] = True
    labels = torch.where(chosen, torch.randint(0, CONFIG.vocab_size, chosen.shape, generator=generator), -100)
    following = torch.randint(0, 2, (len(lengths),), generator=generator)
    return {**batch, "labels": labels, "next_sentence_label": following}


@settings(deadline=None, max_examples=8)
@given(LENGTHS, SEEDS)
def test_pretraining_agrees_with_transformers(lengths: list[int], seed: int) -> None:
    assert_same(scattered(BertForPreTraining.from_config(CONFIG)), pretraining_batch(lengths, seed))


def test_pretraining_makes_dense_logits_only_when_asked() -> None:
    model = scattered(BertForPreTraining.from_config(CONFIG))
    batch = pretraining_batch([4, 7], 0)
    unlabeled = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    assert model(**batch).prediction_logits is None
    asked, dense = model(**batch, return_logits=True), model(**unlabeled)
    assert dense.loss is None
    assert dense.prediction_logits.shape == (2, 8, CONFIG.vocab_size)
    assert torch.equal(asked.prediction_logits, dense.prediction_logits)


def test_pretraining_loss_is_the_sum_of_its_parts() -> None:
    model = scattered(BertForPreTraining.from_config(CONFIG))
    batch = pretraining_batch([4, 7, 5], 1)
    tokens = model(**{**batch, "next_sentence_label": None}).loss
    sentences = model(**{**batch, "labels": None}).loss
    torch.testing.assert_close(tokens + sentences, model(**batch).loss)


@settings(deadline=None, max_examples=8)
@given(LENGTHS, SEEDS)
def test_packed_sums_are_the_padded_means_before_division(lengths: list[int], seed: int) -> None:
    model = scattered(BertForPreTraining.from_config(CONFIG))
    batch = pretraining_batch(lengths, seed)
    seqs = PackedSequences.from_padded(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"])
    labels = seqs.pack(batch["labels"])
    positions = (labels != -100).nonzero().squeeze(1).int()
    packed = PretrainingLabels(positions, labels[positions].int(), batch["next_sentence_label"].to(torch.int8))
    sums = model.packed_loss_sums(seqs, packed, ("masked_lm", "next_sentence"))
    tokens, sentences = sums["masked_lm"], sums["next_sentence"]
    output = model(**batch, return_logits=True)
    loss = tokens.loss / tokens.num_predictions + sentences.loss / sentences.num_predictions
    torch.testing.assert_close(loss, output.loss)
    right = (output.prediction_logits.argmax(-1) == batch["labels"]).sum()
    assert (int(tokens.num_correct), int(tokens.num_predictions)) == (int(right), positions.numel())
    right = (output.seq_relationship_logits.argmax(-1) == batch["next_sentence_label"]).sum()
    assert (int(sentences.num_correct), int(sentences.num_predictions)) == (int(right), len(lengths))


def test_an_objective_without_a_head_is_refused() -> None:
    model = BertForPreTraining.from_config(replace(CONFIG, sentence_head=False))
    seqs = PackedSequences.from_padded(torch.ones(2, 3, dtype=torch.long))
    labels = PretrainingLabels(torch.tensor([1]), torch.tensor([5]), torch.tensor([0, 1]))
    with pytest.raises(DataError, match="next_sentence"):
        model.packed_loss_sums(seqs, labels, ["masked_lm", "next_sentence"])


def test_sums_of_a_batch_without_predictions_are_zero() -> None:
    model = BertForPreTraining.from_config(CONFIG)
    nothing = torch.zeros(0, dtype=torch.int32)
    seqs = PackedSequences.from_padded(torch.ones(2, 3, dtype=torch.long))
    sums = model.packed_loss_sums(seqs, PretrainingLabels(nothing, nothing, nothing), ["masked_lm"])["masked_lm"]
    assert all(tensor.shape == () and not tensor.any() for tensor in vars(sums).values())


@pytest.mark.parametrize(
    ("num_labels", "problem_type", "labels"),
    [
        (3, None, torch.tensor([0, 2, 1])),
        (3, "single_label_classification", torch.tensor([2, 2, 0])),
        (1, None, torch.tensor([0.5, -1.0, 2.0])),
        (1, "regression", torch.tensor([[0.5], [-1.0], [2.0]])),
        (3, "regression", torch.tensor([[0.5, 1.0, 0.0], [-1.0, 0.0, 0.0], [2.0, 3.0, 1.0]])),
        (3, "multi_label_classification", torch.tensor([[0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])),
        (3, None, torch.tensor([[0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])),
    ],
)
def test_sequence_classification_agrees_with_transformers(
    num_labels: int, problem_type: str | None, labels: Tensor
) -> None:
    config = small_config().with_labels([f"label {index}" for index in range(num_labels)], problem_type)
    model = scattered(BertForSequenceClassification.from_config(config))
    assert_same(model, {**ragged_batch(config, [5, 2, 9], 10), "labels": labels})


@settings(deadline=None, max_examples=6)
@given(LENGTHS, SEEDS)
def test_token_classification_agrees_with_transformers(lengths: list[int], seed: int) -> None:
    batch = ragged_batch(CONFIG, lengths, max(lengths) + 2, seed)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, batch["input_ids"].shape, generator=generator)
    labels[batch["attention_mask"] == 0] = -100
    labels[:, 0] = -100
    assert_same(scattered(BertForTokenClassification.from_config(CONFIG)), {**batch, "labels": labels})


@settings(deadline=None, max_examples=6)
@given(LENGTHS, SEEDS)
def test_question_answering_agrees_with_transformers(lengths: list[int], seed: int) -> None:
    width = max(lengths) + 2
    batch = ragged_batch(CONFIG, lengths, width, seed)
    generator = torch.Generator().manual_seed(seed)
    start, end = torch.randint(-1, width + 4, (2, len(lengths)), generator=generator)
    start[0] = end[0] = 1  # with every position outside there is no mean
    model = scattered(BertForQuestionAnswering.from_config(CONFIG))
    assert_same(model, {**batch, "start_positions": start, "end_positions": end})


HEADS: list[tuple[type[PretrainedModel], dict[str, Any]]] = [
    (BertForSequenceClassification, {"labels": torch.tensor([0, 2])}),
    (BertForTokenClassification, {"labels": torch.tensor([[-100, 1, 2, 0, 1], [-100, 1, -100, -100, -100]])}),
    (BertForQuestionAnswering, {"start_positions": torch.tensor([1, 0]), "end_positions": torch.tensor([2, 1])}),
    (BertForPreTraining, {"labels": torch.tensor([[-100, 9, 8, -100, -100], [4, -100, -100, -100, -100]])}),
]


@pytest.mark.parametrize(("head", "labels"), HEADS)
@pytest.mark.heavy
def test_head_learns_one_batch_under_autocast(head: type[PretrainedModel], labels: dict[str, Tensor]) -> None:
    model = head.from_config(CONFIG.with_dropout(0.1))
    losses = learned_losses(model, {**ragged_batch(CONFIG, [5, 2], 5), **labels}, 40, 5e-3)
    assert losses[-1] < 0.3 * losses[0]


def test_packed_logits_are_the_padded_ones() -> None:
    batch = ragged_batch(CONFIG, [5, 2, 7], 7)
    seqs = PackedSequences.from_padded(**batch)
    tokens = scattered(BertForTokenClassification.from_config(CONFIG)).eval()
    assert torch.equal(tokens.packed_logits(seqs), seqs.pack(tokens(**batch).logits))
    sequences = scattered(BertForSequenceClassification.from_config(CONFIG)).eval()
    assert torch.equal(sequences.packed_logits(seqs), sequences(**batch).logits)
    answers = scattered(BertForQuestionAnswering.from_config(CONFIG)).eval()
    padded = answers(**batch)
    spans = torch.stack([padded.start_logits, padded.end_logits], dim=-1)
    torch.testing.assert_close(answers.packed_logits(seqs), seqs.pack(spans), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("head", [BertForSequenceClassification, BertForTokenClassification])
def test_classifier_dropout_has_its_own_setting(head: type[PretrainedModel]) -> None:
    batch = ragged_batch(CONFIG, [5, 2], 5)
    model = head.from_config(replace(CONFIG, classifier_dropout=0.5)).train()
    assert not torch.equal(model(**batch).logits, model(**batch).logits)
    model = head.from_config(replace(CONFIG.with_dropout(0.1), classifier_dropout=0.0))
    assert model.dropout.p == 0.0


TABULAR = BertConfig.from_size("tiny", vocab_size=40, num_tabular_features=3)
IDS = torch.tensor([[2, 7, 9, 3], [2, 8, 3, 0]])
MASK = IDS != 0
FEATURES = torch.tensor([[0.0, 1.0, -1.0], [2.0, 0.0, 0.5]])


def test_logits_are_those_of_one_layer_over_text_and_numbers() -> None:
    model = BertForSequenceClassification.from_config(TABULAR).eval()
    pooled = model.bert(IDS, MASK).pooler_output
    inner = torch.nn.functional.gelu(torch.cat([pooled, FEATURES], 1) @ model.combine.weight.T + model.combine.bias)
    expected = inner @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(IDS, MASK, tabular_features=FEATURES).logits, expected)


@pytest.mark.parametrize(
    ("tabular_features", "message"),
    [(None, r"shape None; this model reads \(2, 3\)"), (FEATURES[:1], r"shape \(1, 3\); this model reads \(2, 3\)")],
)
def test_numbers_that_do_not_fit_are_refused(tabular_features: torch.Tensor | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        BertForSequenceClassification.from_config(TABULAR)(IDS, MASK, tabular_features=tabular_features)


def test_a_model_of_text_alone_reads_no_numbers() -> None:
    model = BertForSequenceClassification.from_config(replace(TABULAR, num_tabular_features=0))
    assert "combine.weight" not in model.state_dict()
    with pytest.raises(DataError, match="this model reads None"):
        model(IDS, MASK, tabular_features=FEATURES)


def test_a_folder_comes_back_here_and_fails_loudly_in_transformers(tmp_path: Path) -> None:
    model = BertForSequenceClassification.from_config(TABULAR).eval()
    model.save_pretrained(tmp_path)
    again = BertForSequenceClassification.from_pretrained(tmp_path)
    torch.testing.assert_close(
        again(IDS, MASK, tabular_features=FEATURES).logits, model(IDS, MASK, tabular_features=FEATURES).logits
    )
    with pytest.raises(ValueError, match="bert_core"):
        transformers.AutoConfig.from_pretrained(tmp_path)


SELECTION_CONFIG = small_config()
BATCH = ragged_batch(SELECTION_CONFIG, [9, 4, 12], 13)
LABELS = torch.full((3, 13), -100)
LABELS[[0, 0, 1, 2, 2], [0, 4, 0, 0, 7]] = torch.tensor([1, 0, 0, 0, 1])


def model() -> BertForSentenceSelection:
    made = scattered(BertForSentenceSelection.from_config(SELECTION_CONFIG))
    assert isinstance(made, BertForSentenceSelection)
    return made


def test_the_loss_is_the_mean_over_the_labeled_tokens() -> None:
    output = model()(**BATCH, labels=LABELS)
    is_labeled = LABELS != -100
    expected = F.binary_cross_entropy(output.logits.sigmoid()[is_labeled], LABELS[is_labeled].float())
    torch.testing.assert_close(output.loss, expected)


def test_without_labels_there_are_logits_alone_zero_at_padding() -> None:
    output = model()(**BATCH)
    assert output.loss is None
    assert output.logits.shape == (3, 13)
    assert not output.logits[BATCH["attention_mask"] == 0].any()


def test_a_causal_encoder_is_refused() -> None:
    with pytest.raises(ConfigError, match="causal_attention"):
        BertForSentenceSelection.from_config(replace(SELECTION_CONFIG, causal_attention=True))


@pytest.mark.parametrize("family", [*FAMILIES, "modern"])
def test_a_folder_gives_the_same_logits_in_every_family(family: str, tmp_path: Path) -> None:
    config = BertConfig.from_size("2x128", family=family, vocab_size=53).with_dropout(0.0)
    saved = scattered(BertForSentenceSelection.from_config(config, seed=3)).eval()
    saved.save_pretrained(tmp_path)
    again = BertForSentenceSelection.from_pretrained(tmp_path)
    assert again.load_report is not None
    assert (again.load_report.dropped, again.load_report.initialized) == ((), ())
    batch = ragged_batch(config, [5, 8], 8)
    assert torch.equal(again(**batch).logits, saved(**batch).logits)


def test_transformers_reads_the_folder_as_a_token_classifier_of_one_class(tmp_path: Path) -> None:
    import transformers

    made = model().eval()
    made.save_pretrained(tmp_path)
    theirs = transformers.BertForTokenClassification.from_pretrained(tmp_path).eval()
    logits = theirs(**BATCH).logits.squeeze(-1)
    real = BATCH["attention_mask"].bool()
    torch.testing.assert_close(made(**BATCH).logits[real], logits[real], atol=1e-5, rtol=1e-4)
