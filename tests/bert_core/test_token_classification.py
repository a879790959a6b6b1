"""The token head with a CRF, its LSTM: loss, what it learns and decodes, its folder. `test_heads.py` has the softmax.

Run alone: pytest tests/bert_core/test_token_classification.py
"""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.heads import BertForTokenClassification
from bert_core.heads.token_classification import BidirectionalLstm
from bert_core.optimization import depths
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import learned_losses, ragged_batch, scattered, small_config

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
