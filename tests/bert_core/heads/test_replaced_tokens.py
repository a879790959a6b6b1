"""Replaced tokens: how they are drawn, both losses by their definitions, folders.

The discriminator against transformers: tests/bert_core/families/test_parity.py. Alone:
pytest tests/bert_core/heads/test_replaced_tokens.py
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.examples.packing import PackedBatch
from bert_core.heads import BertForPreTraining, BertForSequenceClassification
from bert_core.heads.pretraining import PretrainingLabels
from bert_core.heads.replaced_tokens import (
    BertForReplacedTokenDetection,
    GeneratorAndDiscriminator,
    draw_tokens,
    generator_config,
)
from bert_core.model import BertModel
from bert_core.objectives import build_packed_batch
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.packed_examples import MASKING, restored
from tests.bert_core.reference import scattered
from tests.bert_core.small_documents import BERT, all_examples, documents

SHAPE = {"num_attention_heads": 4, "vocab_size": 60, "embedding_size": 24}
CONFIG = BertConfig.from_shape(2, 32, "electra", **SHAPE).with_dropout(0.0)
DRAWS = torch.tensor([0, 2**30, 2**31 - 1, 123456789])
BOTH = ("generator", "replaced_tokens")


def made(config: BertConfig = CONFIG) -> GeneratorAndDiscriminator:
    model = scattered(GeneratorAndDiscriminator.from_config(config, seed=2)).eval()
    assert isinstance(model, GeneratorAndDiscriminator)
    return model


def example() -> tuple[PackedSequences, PretrainingLabels]:
    """Sequences of 9 and 6 tokens, of which four are masked."""
    ids = torch.randint(5, 60, (15,), generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([1, 4, 7, 11])
    labels = PretrainingLabels(positions, ids[positions], torch.empty(0), DRAWS)
    ids = ids.index_fill(0, positions, 4)
    return PackedSequences.from_lengths(ids, torch.zeros_like(ids), torch.tensor([0, 9, 15])), labels


def test_equally_spaced_numbers_draw_each_token_as_often_as_its_probability_says() -> None:
    generator = torch.Generator().manual_seed(3)
    words, bias = torch.randn(200, 8, generator=generator), torch.randn(200, generator=generator)
    inner, num_draws = torch.randn(8, generator=generator), 5000
    draws = torch.arange(num_draws) * (2**31 // num_draws)
    drawn = draw_tokens(inner.expand(num_draws, -1), words, bias, draws)
    shares = F.linear(inner, words, bias).softmax(-1)
    assert (drawn.bincount(minlength=200) - num_draws * shares).abs().max() < 1.5
    assert (drawn.diff() >= 0).all(), "the larger the number, the later in the vocabulary"


@pytest.mark.parametrize("draw", [0, 2**31 - 1])
def test_the_smallest_and_the_largest_number_draw_a_token_that_can_be(draw: int) -> None:
    bias = torch.tensor([-1e9, 0.0, 1.0, -1e9])
    (drawn,) = draw_tokens(torch.zeros(1, 2), torch.zeros(4, 2), bias, torch.tensor([draw])).tolist()
    assert drawn == (1 if draw == 0 else 2)


def test_a_weight_that_is_no_number_gives_such_a_loss() -> None:
    model = made()
    model.bert.layers[0].qkv.weight.data.fill_(torch.nan)
    assert model.packed_loss_sums(*example(), BOTH)["generator"].loss.isnan()


def losses_by_definition(
    model: GeneratorAndDiscriminator, seqs: PackedSequences, labels: PretrainingLabels, drawn: Tensor
) -> tuple[Tensor, Tensor]:
    """Sums over padded rows, by both models as they are saved."""
    rows, mask = seqs.unpack(seqs.input_ids), seqs.attention_mask
    truth = torch.full((seqs.num_tokens,), -100).index_copy(0, labels.masked_positions, labels.masked_labels)
    logits = model(rows, mask).prediction_logits
    generator = F.cross_entropy(logits[mask], truth, reduction="sum")
    read = seqs.input_ids.index_copy(0, labels.masked_positions, drawn)
    is_other = read != torch.where(truth == -100, seqs.input_ids, truth)
    found = model.discriminator(seqs.unpack(read), mask).logits[mask].sigmoid()
    return generator, -torch.where(is_other, found, 1 - found).log().sum()


def test_losses_follow_the_definition_and_no_gradient_goes_through_what_is_drawn() -> None:
    model, (seqs, labels) = made(), example()
    sums = model.packed_loss_sums(seqs, labels, BOTH)
    states = model.prediction.inner(model.bert.encode(seqs, labels.masked_positions))
    drawn = draw_tokens(states, model.bert.embeddings.word.weight, model.prediction.bias, labels.draws)
    expected = losses_by_definition(model, seqs, labels, drawn)
    torch.testing.assert_close([sums[name].loss for name in BOTH], list(expected), rtol=1e-5, atol=1e-5)
    own = [parameter for name, parameter in model.named_parameters() if not name.startswith("discriminator.")]
    gradients = torch.autograd.grad(sums["replaced_tokens"].loss, own, allow_unused=True, retain_graph=True)
    assert not any(gradient is not None for gradient in gradients)
    words = model.discriminator.bert.embeddings.word.weight
    parts = [torch.autograd.grad(sums[name].loss, words, retain_graph=True)[0] for name in BOTH]
    assert all(part.any() for part in parts), "both learn the embeddings"


def test_a_token_that_is_drawn_as_it_was_counts_as_not_replaced() -> None:
    model, (seqs, labels) = made(), example()
    with torch.no_grad():
        model.prediction.bias[7] = 100.0  # the generator always draws it
    labels = PretrainingLabels(labels.masked_positions, torch.tensor([7, 9, 9, 7]), torch.empty(0), DRAWS)
    assert float(model.packed_loss_sums(seqs, labels, BOTH)["generator"].num_correct) == 2


@pytest.mark.heavy
def test_the_discriminator_learns_which_tokens_were_replaced() -> None:
    model, (seqs, labels) = GeneratorAndDiscriminator.from_config(CONFIG, seed=2), example()
    optimizer, rights = torch.optim.Adam(model.parameters(), lr=3e-3), []
    for _ in range(60):
        generator, detection = model.packed_loss_sums(seqs, labels, BOTH).values()
        optimizer.zero_grad()
        (generator.loss / 4 + 50 * detection.loss / 15).backward()
        optimizer.step()
        rights.append(float(detection.num_correct))
    assert rights[0] < 15 == min(rights[-5:])


def batch(only: np.ndarray, seed: int = 1) -> PackedBatch:
    docs = documents()
    _, segments = all_examples(docs, 48, "none", only=only)
    options = {"layout": BERT, "seed": seed, "epoch": 0, "example": only, "token_objective": "replaced_tokens"}
    return build_packed_batch(docs, segments, MASKING, **options)


def test_a_batch_has_a_number_below_two_to_the_31_for_each_masked_token() -> None:
    found = batch(np.arange(40))
    assert found.draws.shape == found.masked_positions.shape
    assert 0 <= found.draws.min() < 2**26
    assert found.draws.max() > 2**31 - 2**26
    assert len(set(found.draws.tolist())) == len(found.draws)
    assert not set(found.draws.tolist()) & set(batch(np.arange(40), seed=2).draws.tolist())
    assert (restored(found) == restored(batch(np.arange(40), seed=2))).all()


@pytest.mark.parametrize("family", ["electra", "bert", "albert", "flaubert", "mpnet", "modern", "modernbert"])
def test_both_are_saved_whole_and_train_on_where_they_were(family: str, tmp_path: Path) -> None:
    model = made(BertConfig.from_shape(2, 64, family, vocab_size=60, num_attention_heads=2).with_dropout(0.0))
    model.save_pretrained(tmp_path)
    again = GeneratorAndDiscriminator.from_pretrained(tmp_path, seed=9)
    assert again.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    seqs, labels = example()
    found, expected = (one.packed_loss_sums(seqs, labels, BOTH) for one in (again, model))
    assert all(torch.equal(found[name].loss, expected[name].loss) for name in BOTH)
    generator = BertForPreTraining.from_pretrained(tmp_path / "generator")
    encoder = BertModel.from_pretrained(tmp_path)
    assert torch.equal(generator.bert.embeddings.word.weight, encoder.embeddings.word.weight)
    assert torch.equal(generator.bert.encode(seqs), model.bert.encode(seqs))


def test_a_configuration_with_other_dropout_and_more_positions_is_that_of_both(tmp_path: Path) -> None:
    config = BertConfig.from_shape(1, 32, "modern", vocab_size=60, max_position_embeddings=20)
    made(config).save_pretrained(tmp_path)
    other = replace(config, max_position_embeddings=40, hidden_dropout_prob=0.3)
    both = GeneratorAndDiscriminator.from_pretrained(tmp_path, other)
    for found in (both.config, both.discriminator.config):
        assert (found.max_seq_length, found.hidden_dropout_prob) == (40, 0.3)


def test_transformers_loads_both(tmp_path: Path) -> None:
    model = made()
    model.save_pretrained(tmp_path)
    theirs, info = transformers.ElectraForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    ids = torch.arange(5, 17)[None]
    torch.testing.assert_close(theirs(ids).logits, model.discriminator(ids).logits, rtol=1e-5, atol=1e-5)
    theirs, info = transformers.ElectraForMaskedLM.from_pretrained(tmp_path / "generator", output_loading_info=True)
    assert not any(info.values())
    torch.testing.assert_close(theirs(ids).logits, model(ids).prediction_logits, rtol=1e-5, atol=1e-5)


def test_a_discriminator_starts_other_heads_and_takes_a_new_generator(tmp_path: Path) -> None:
    model = made()
    model.discriminator.save_pretrained(tmp_path)
    new = GeneratorAndDiscriminator.from_pretrained(tmp_path, generator_size=0.5)
    assert new.config.hidden_size == 16
    assert torch.equal(new.bert.embeddings.word.weight, model.bert.embeddings.word.weight)
    classifier = BertForSequenceClassification.from_pretrained(tmp_path)
    assert classifier.load_report is not None
    assert all(name.startswith("discriminator_predictions.") for name in classifier.load_report.dropped)
    assert torch.equal(classifier.bert.layers[0].qkv.weight, model.discriminator.bert.layers[0].qkv.weight), (
        "the encoder is the discriminator's"
    )
    BertForPreTraining.from_config(replace(CONFIG, causal_attention=True)).save_pretrained(tmp_path / "causal")
    for bert in (one := GeneratorAndDiscriminator.from_pretrained(tmp_path / "causal")).bert, one.discriminator.bert:
        assert not any(layer.causal_attention for layer in bert.layers)
    started = GeneratorAndDiscriminator.from_pretrained(tmp_path, encoder_only=True).discriminator
    assert isinstance(started, BertForReplacedTokenDetection)
    assert not torch.equal(
        started.discriminator_predictions.dense.weight, model.discriminator.discriminator_predictions.dense.weight
    )


@pytest.mark.parametrize(("share", "width", "heads"), [(0.25, 192, 3), (0.5, 384, 6), (0.01, 8, 1), (1.0, 768, 12)])
def test_a_generator_is_as_deep_and_its_heads_are_about_as_wide(share: float, width: int, heads: int) -> None:
    config = BertConfig.from_size("base", "bert", vocab_size=60)
    found = generator_config(config, share)
    assert (found.hidden_size, found.num_attention_heads, found.num_hidden_layers) == (width, heads, 12)
    assert found.embedding_size == (None if share == 1 else 768)
    assert found.intermediate_size == round(3072 * share)
