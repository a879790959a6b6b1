"""The token head with a CRF, its LSTM: loss, what it learns and decodes, its folder. `test_heads.py` has the softmax.

Run alone: pytest tests/bert_core/test_token_classification.py
"""

import warnings
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.errors import DataError
from bert_core.heads import BertForTokenClassification
from bert_core.heads.token_classification import (
    BidirectionalLstm,
    LinearChainCrf,
    best_paths,
    bio_penalties,
    log_partitions,
    path_scores,
)
from bert_core.optimization import depths
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import learned_losses, ragged_batch, scattered, small_config
from tests.synchronizations import counted_synchronizations

LABELS = ("O", "B-PER", "I-PER")
CONFIG = replace(small_config().with_labels(LABELS), token_decoder="crf")
TAGS = torch.tensor([[-100, 1, -100, 2, 0], [-100, 0, 1, -100, -100], [-100, -100, -100, -100, -100]])


def batch_of_words() -> dict[str, Tensor]:
    """Three rows, the last of them without a word; a label at padding does not count."""
    labels = TAGS.clone()
    labels[2, 4] = 1
    return {**ragged_batch(CONFIG, [5, 3, 2], 5), "labels": labels}


def test_loss_is_the_share_of_a_word() -> None:
    model, batch = scattered(BertForTokenClassification.from_config(CONFIG)), batch_of_words()
    output = model(**batch)
    assert output.logits.shape == (3, 5, 3)
    total = torch.zeros(())
    for logits, labels in zip(output.logits[:2], TAGS, strict=False):
        is_word = labels != -100
        total += model.crf.log_likelihood(logits[is_word], labels[is_word], is_word.sum()[None]).sum()
    torch.testing.assert_close(output.loss, -total / 5)


def test_a_batch_without_a_word_loses_nothing() -> None:
    model, batch = scattered(BertForTokenClassification.from_config(CONFIG)), batch_of_words()
    loss = model(**(batch | {"labels": torch.full_like(batch["labels"], -100)})).loss
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert not model.crf.transitions.grad.any()


def test_every_weight_gets_a_gradient() -> None:
    model = scattered(BertForTokenClassification.from_config(CONFIG))
    model(**batch_of_words()).loss.backward()
    assert all(parameter.grad.abs().sum() > 0 for name, parameter in model.named_parameters() if "crf." in name)
    assert model.classifier.weight.grad.isfinite().all()


def decode(model: BertForTokenClassification, batch: dict[str, Tensor]) -> list[int]:
    seqs = PackedSequences.from_padded(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"])
    is_word = seqs.pack(TAGS) != -100
    with torch.no_grad():
        return model.decode(model.packed_logits(seqs)[is_word], torch.tensor([3, 2, 0])).tolist()


def test_it_learns_one_batch_under_autocast_and_decodes_it() -> None:
    model, batch = BertForTokenClassification.from_config(CONFIG), batch_of_words()
    learned_losses(model, batch, 40, 5e-3)
    assert decode(model.eval(), batch) == [1, 2, 0, 0, 1]


@pytest.mark.parametrize("decoder", ["softmax", "crf"])
def test_a_folder_gives_the_decoder_back(decoder: str, tmp_path: Path) -> None:
    config = replace(CONFIG, token_decoder=decoder)
    model = scattered(BertForTokenClassification.from_config(config)).eval()
    model.save_pretrained(tmp_path)
    loaded = BertForTokenClassification.from_pretrained(tmp_path)
    assert loaded.load_report.initialized == loaded.load_report.dropped == ()
    assert decode(loaded, batch_of_words()) == decode(model, batch_of_words())
    assert [name for name in loaded.state_dict() if "crf." in name] == (
        ["crf.transitions", "crf.start", "crf.end"] if decoder == "crf" else []
    )


LSTM_CONFIG = small_config(num_lstm_layers=2, lstm_hidden_size=10).with_labels(["O", "B-PER", "I-PER"])


def packed(lengths: list[int]) -> PackedSequences:
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0)
    ids = torch.arange(int(cu_seqlens[-1])) % 50
    return PackedSequences.from_lengths(ids, torch.zeros_like(ids), cu_seqlens)


def new_layers(seed: int = 0, num_layers: int = 2, dropout: float = 0.0) -> BidirectionalLstm:
    layers = BidirectionalLstm(6, 8, num_layers, dropout)
    layers.initialize(seed)
    return layers


def cell_by_cell(lstm: nn.LSTM, sentence: Tensor) -> Tensor:
    """One sentence, layer by layer, direction by direction, token by token: (S, W) → (S, R)."""
    for layer in range(lstm.num_layers):
        ways = []
        for ending, places in (("", range(len(sentence))), ("_reverse", reversed(range(len(sentence))))):
            cell = nn.LSTMCell(sentence.shape[1], lstm.hidden_size)
            weights = {name: getattr(lstm, f"{name}_l{layer}{ending}") for name, _ in cell.named_parameters()}
            state = (torch.zeros(1, lstm.hidden_size), torch.zeros(1, lstm.hidden_size))
            outputs = {}
            for place in places:
                state = torch.func.functional_call(cell, weights, (sentence[place : place + 1], state))
                outputs[place] = state[0][0]
            ways.append(torch.stack([outputs[place] for place in range(len(sentence))]))
        sentence = torch.cat(ways, dim=1)
    return sentence


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(1, 3))
def test_values_and_gradients_agree_with_a_loop_over_cells(lengths: list[int], num_layers: int) -> None:
    layers = new_layers(num_layers=num_layers)
    hidden = torch.randn(sum(lengths), 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    ours = layers(hidden, packed(lengths))
    theirs = torch.cat([cell_by_cell(layers.lstm, sentence) for sentence in hidden.split(lengths)])
    torch.testing.assert_close(ours, theirs)
    inputs = (hidden, *layers.parameters())
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    mine, others = (torch.autograd.grad((side * weights).sum(), inputs) for side in (ours, theirs))
    for one, other in zip(mine, others, strict=True):
        torch.testing.assert_close(one, other)


def test_lengths_are_taken_from_the_host_where_they_are_there() -> None:
    """Reading them from a GPU would make the host wait for it in each step."""
    layers, hidden = new_layers(), torch.randn(9, 6, generator=torch.Generator().manual_seed(0))
    seqs = packed([3, 5, 1])
    known = replace(seqs, cu_seqlens=torch.zeros(4), host_lengths=np.array([3, 5, 1])).to("cpu")
    assert torch.equal(layers(hidden, known), layers(hidden, seqs))


def test_weights_are_drawn_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = nn.utils.parameters_to_vector(new_layers(4).parameters())
    torch.manual_seed(2)
    assert torch.equal(nn.utils.parameters_to_vector(new_layers(4).parameters()), first)
    assert not torch.equal(nn.utils.parameters_to_vector(new_layers(5).parameters()), first)
    assert 0.45 < first.detach().abs().max() <= 0.5  # 1 / √(8 / 2)


def test_a_model_draws_them_and_leaves_its_encoder_as_it_was() -> None:
    model = BertForTokenClassification.from_config(LSTM_CONFIG, seed=3)
    again = BidirectionalLstm(24, 10, 2, 0.0)
    again.initialize(3)
    plain = BertForTokenClassification.from_config(replace(LSTM_CONFIG, num_lstm_layers=0), seed=3)
    for part, expected in (("lstm", again), ("bert", plain.bert)):
        found = model.get_submodule(part).state_dict()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.state_dict().items())


@pytest.mark.parametrize("layer_pooling", ["last", "concat_last_four", "scalar_mix"])
@pytest.mark.parametrize("decoder", ["softmax", "crf"])
def test_a_folder_gives_the_model_back_under_a_type_of_its_own(
    decoder: str, layer_pooling: str, tmp_path: Path
) -> None:
    config = replace(LSTM_CONFIG, token_decoder=decoder, layer_pooling=layer_pooling, num_hidden_layers=4)
    model = scattered(BertForTokenClassification.from_config(config)).eval()
    model.save_pretrained(tmp_path)
    again = BertForTokenClassification.from_pretrained(tmp_path)
    assert again.load_report.initialized == again.load_report.dropped == ()
    assert (again.config.model_type, again.config.token_input_size) == ("bert_core", 10)
    seqs = model.bert.pack(**ragged_batch(config, [5, 3], 6))
    with torch.no_grad():
        assert torch.equal(again.packed_logits(seqs), model.packed_logits(seqs))


@pytest.mark.parametrize("decoder", ["softmax", "crf"])
@pytest.mark.heavy
def test_every_weight_learns_under_autocast_as_one_of_the_head(decoder: str) -> None:
    config = replace(LSTM_CONFIG, token_decoder=decoder).with_dropout(0.1)
    model = BertForTokenClassification.from_config(config)
    batch = {**ragged_batch(config, [5, 4], 5), "labels": torch.tensor([[-100, 0, 1, 2, 0], [-100, 1, 0, 1, 0]])}
    losses = learned_losses(model, batch, 60, 1e-2)
    assert losses[-1] < 0.2 * losses[0]
    names = [name for name, parameter in model.named_parameters() if name.startswith("lstm.")]
    assert all(model.get_parameter(name).grad.abs().sum() > 0 for name in names)
    assert {depths(model)[name] for name in names} == {depths(model)["classifier.weight"]} == {3}


def test_dropout_acts_between_layers_alone() -> None:
    layers = new_layers(dropout=0.5).train()
    hidden, seqs = torch.ones(4, 6), packed([4])
    torch.manual_seed(0)
    first = layers(hidden, seqs)
    assert not torch.equal(layers(hidden, seqs), first)
    torch.manual_seed(0)
    assert torch.equal(layers(hidden, seqs), first)
    with warnings.catch_warnings(action="error"):  # torch warns of a dropout that has no place to act
        assert torch.equal(*(new_layers(num_layers=1, dropout=0.5).train()(hidden, seqs) for _ in range(2)))


def test_they_are_as_wide_as_the_encoder_unless_said() -> None:
    assert BertConfig(num_lstm_layers=2, layer_pooling="concat_last_four").token_input_size == 768
    assert BertConfig(num_lstm_layers=2, lstm_hidden_size=512).token_input_size == 512
    assert BertConfig(lstm_hidden_size=512, layer_pooling="concat_last_four").token_input_size == 4 * 768


BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=4)
SEEDS = st.integers(0, 1000)


def random_chain(lengths: list[int], num_labels: int, seed: int) -> tuple[Tensor, ...]:
    """Emissions (B, W, C), mask (B, W), transitions (C, C), start (C,), end (C,) in float64."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((len(lengths), max(lengths), num_labels), (num_labels, num_labels), (num_labels,), (num_labels,))
    emissions, *scores = (2 * torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes)
    return emissions, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None], *scores


def every_path(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> dict[tuple[int, ...], float]:
    """The score of each path of one sentence without padding: (W, C)."""
    scores = {}
    for path in product(range(emissions.shape[1]), repeat=len(emissions)):
        score = float(start[path[0]] + end[path[-1]])
        score += sum(float(row[tag]) for row, tag in zip(emissions, path, strict=True))
        score += sum(float(transitions[a, b]) for a, b in pairwise(path))
        scores[path] = score
    return scores


@pytest.mark.heavy
@pytest.mark.core
@settings(deadline=None, max_examples=20)
@given(LENGTHS, st.integers(1, 4), SEEDS)
def test_scores_sums_marginals_and_best_paths_agree_with_every_path(
    lengths: list[int], num_labels: int, seed: int
) -> None:
    emissions, mask, *scores = random_chain(lengths, num_labels, seed)
    emissions.requires_grad_()
    tags = torch.randint(0, num_labels, mask.shape, generator=torch.Generator().manual_seed(seed))
    partitions = log_partitions(emissions, mask, *scores)
    (marginals,) = torch.autograd.grad(partitions.sum(), emissions)
    found = path_scores(emissions, tags, mask, *scores).tolist()
    best = best_paths(emissions, mask, *scores)
    for row, length in enumerate(lengths):
        paths = every_path(emissions[row, :length].detach(), *scores)
        values = torch.tensor(list(paths.values()), dtype=torch.float64)
        probabilities = values.softmax(0)
        expected = torch.zeros_like(marginals[row])
        for path, probability in zip(paths, probabilities, strict=True):
            expected[range(length), path] += probability
        torch.testing.assert_close(partitions[row], values.logsumexp(0))
        torch.testing.assert_close(marginals[row], expected)
        assert found[row] == pytest.approx(paths[tuple(tags[row, :length].tolist())])
        assert tuple(best[row, :length].tolist()) == max(paths, key=lambda path: paths[path])


def plain_log_partitions(emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """The forward algorithm as in the books: padding keeps what the word before it had."""
    forward = start + emissions[:, 0]
    for word in range(1, emissions.shape[1]):
        onward = (forward[:, :, None] + transitions + emissions[:, word, None]).logsumexp(1)
        forward = torch.where(mask[:, word, None], onward, forward)
    return (forward + end).logsumexp(1)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=4), SEEDS)
def test_long_sentences_have_values_and_gradients_of_the_plain_recursion(lengths: list[int], seed: int) -> None:
    emissions, mask, *scores = random_chain([2, *lengths], 5, seed)
    inputs = [tensor.requires_grad_() for tensor in (emissions, *scores)]
    results = []
    for compute in (log_partitions, plain_log_partitions):
        partitions = compute(emissions, mask, *scores)
        results.append([partitions.detach(), *torch.autograd.grad(partitions.sum(), inputs)])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


def test_gradients_agree_with_finite_differences() -> None:
    emissions, mask, *scores = random_chain([3, 1, 4], 3, 0)
    tags = torch.tensor([[0, 2, 1, 0], [1, 0, 0, 0], [2, 2, 0, 1]])

    def log_likelihood(emissions: Tensor, *scores: Tensor) -> Tensor:
        return path_scores(emissions, tags, mask, *scores) - log_partitions(emissions, mask, *scores)

    assert torch.autograd.gradcheck(log_likelihood, [t.requires_grad_() for t in (emissions, *scores)])


def random_crf(seed: int = 0) -> LinearChainCrf:
    crf = LinearChainCrf(BIO).requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for parameter in crf.parameters():
        parameter.normal_(generator=generator)
    return crf


def keeps_bio(path: list[str]) -> bool:
    return all(tag[0] != "I" or before[2:] == tag[2:] for before, tag in zip(["O", *path], path, strict=False))


@settings(deadline=None, max_examples=20)
@given(LENGTHS, SEEDS)
@pytest.mark.heavy
def test_the_best_path_is_the_best_of_those_that_keep_bio(lengths: list[int], seed: int) -> None:
    crf = random_crf(seed)
    emissions = 3 * torch.randn(sum(lengths), len(BIO), generator=torch.Generator().manual_seed(seed))
    decoded = crf.decode(emissions, torch.tensor(lengths)).split(lengths)
    for sentence, tags in zip(emissions.split(lengths), decoded, strict=True):
        paths = every_path(sentence, crf.transitions, crf.start, crf.end)
        allowed = {path: score for path, score in paths.items() if keeps_bio([BIO[tag] for tag in path])}
        assert allowed[tuple(tags.tolist())] == pytest.approx(max(allowed.values()), abs=1e-4)


def test_paths_that_keep_bio_share_all_the_probability() -> None:
    crf, emissions = random_crf(), torch.randn(3, len(BIO), generator=torch.Generator().manual_seed(0))
    paths = [path for path in product(range(len(BIO)), repeat=3) if keeps_bio([BIO[tag] for tag in path])]
    tags = torch.tensor(paths).flatten()
    found = crf.log_likelihood(emissions.repeat(len(paths), 1), tags, torch.full((len(paths),), 3))
    assert float(found.exp().sum()) == pytest.approx(1.0)


def test_a_gold_path_that_breaks_bio_has_its_share_of_all_paths() -> None:
    crf, emissions = random_crf(), torch.randn(2, len(BIO), generator=torch.Generator().manual_seed(0))
    paths = every_path(emissions, crf.transitions, crf.start, crf.end)
    total = torch.tensor(list(paths.values())).logsumexp(0)
    for path in [(2, 2), (0, 4), (1, 4)]:
        found = crf.log_likelihood(emissions, torch.tensor(path), torch.tensor([2]))
        assert float(found) == pytest.approx(float(paths[path] - total), abs=1e-5)


def test_tags_outside_bio_are_free() -> None:
    assert not any(penalties.any() for penalties in bio_penalties(("NOUN", "VERB", "I-PER", "O")))
    transitions, start = bio_penalties(BIO)
    assert [label for label, penalty in zip(BIO, start, strict=True) if penalty] == ["I-PER", "I-LOC"]
    assert int((transitions < 0).sum()) == 2 * 3


def test_words_of_any_number_lie_end_to_end_and_a_sentence_may_have_none() -> None:
    crf, emissions = random_crf(), torch.randn(6, len(BIO), generator=torch.Generator().manual_seed(0))
    tags, lengths = torch.tensor([0, 1, 2, 2, 3, 0]), torch.tensor([1, 0, 3, 2])
    together = crf.log_likelihood(emissions, tags, lengths)
    alone = [crf.log_likelihood(emissions[a:b], tags[a:b], torch.tensor([b - a])) for a, b in ((0, 1), (1, 4), (4, 6))]
    torch.testing.assert_close(together, torch.cat([alone[0], torch.zeros(1), *alone[1:]]))
    pieces = [crf.decode(emissions[a:b], torch.tensor([b - a])) for a, b in ((0, 1), (1, 4), (4, 6))]
    assert torch.equal(crf.decode(emissions, lengths), torch.cat(pieces))


def test_a_bound_of_the_lengths_gives_the_same_and_spares_a_wait() -> None:
    crf, lengths, tags = random_crf(), torch.tensor([1, 0, 3, 2]), torch.tensor([0, 1, 2, 2, 3, 0])
    emissions = torch.randn(6, len(BIO), generator=torch.Generator().manual_seed(0))
    behind = torch.cat([emissions, torch.full((2, len(BIO)), 50.0)])  # rows of no sentence
    with counted_synchronizations() as waits:
        bounded = crf.log_likelihood(behind, torch.cat([tags, tags[:2]]), lengths, max_length=7)
    assert waits == []
    torch.testing.assert_close(bounded, crf.log_likelihood(emissions, tags, lengths))
    assert torch.equal(crf.decode(emissions, lengths, max_length=7), crf.decode(emissions, lengths))


def test_half_precision_is_left_at_the_door() -> None:
    crf, tags, lengths = random_crf(), torch.tensor([0, 1, 2]), torch.tensor([3])
    emissions = torch.randn(3, len(BIO), generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = crf.log_likelihood(emissions.float(), tags, lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = crf.log_likelihood(emissions, tags, lengths)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_what_cannot_be_scored_is_refused() -> None:
    crf = random_crf()
    with pytest.raises(DataError, match="no word to tag; labels of -100"):
        crf.log_likelihood(torch.zeros(0, len(BIO)), torch.zeros(0, dtype=torch.long), torch.tensor([0, 0]))
    with pytest.raises(DataError, match="not finite; the model has diverged"):
        crf.decode(torch.full((1, len(BIO)), float("nan")), torch.tensor([1]))
