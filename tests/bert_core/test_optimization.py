"""The optimizer, rates layer by layer, and the operations of a step.

Alone: pytest tests/bert_core/test_optimization.py
"""

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from bert_core.config import BertConfig, count_flops_per_token, count_pretraining_flops
from bert_core.heads import BertForPreTraining, BertForSequenceClassification, BertForTokenClassification
from bert_core.heads.pretraining import PretrainingLabels
from bert_core.kernels import linear
from bert_core.learning_rates import SCHEDULES, learning_rate_factor
from bert_core.model import BertModel
from bert_core.optimization import build_optimizer, depths, learning_rate_scales, set_learning_rate, unfreeze_top_layers
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import small_config


def test_biases_and_layer_norm_do_not_decay() -> None:
    model = BertForPreTraining.from_config(small_config())
    optimizer = build_optimizer(model, learning_rate=1e-3, weight_decay=0.5)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, kept = ([names[id(p)] for p in group["params"]] for group in optimizer.param_groups)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0]
    assert sorted(decayed + kept) == sorted(names.values())
    assert all(("norm." in name or name.endswith("bias")) == (name in kept) for name in names.values())


def test_frozen_weights_are_left_out() -> None:
    model = BertForPreTraining.from_config(small_config())
    model.bert.embeddings.requires_grad_(False)
    optimizer = build_optimizer(model, 1e-3)
    chosen = sum(len(group["params"]) for group in optimizer.param_groups)
    assert chosen == len(list(model.parameters())) - 5


def test_step_follows_the_formula() -> None:
    weight = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.constant_(weight.weight, 1.0)
    optimizer = build_optimizer(weight, learning_rate=0.1, weight_decay=0.2, betas=(0.9, 0.99), eps=1e-6)
    weight.weight.grad = torch.tensor([[3.0, -0.5]])
    optimizer.step()
    # In the first step the corrected moments are g and g², so that the step is the gradient's sign.
    expected = torch.tensor([[1.0, 1.0]]) * (1 - 0.1 * 0.2) - 0.1 * torch.tensor([[1.0, -1.0]])
    torch.testing.assert_close(weight.weight.detach(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
@pytest.mark.parametrize(("total", "warmup"), [(10, 0), (10, 3), (7, 7), (1, 0)])
def test_learning_rate_agrees_with_transformers(name: str, total: int, warmup: int) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    kind = {"constant": "constant_with_warmup"}.get(name, name)
    schedule = transformers.get_scheduler(kind, optimizer, warmup, total)
    for step in range(total + (name != "cosine")):  # which rises again there, after the last step
        assert learning_rate_factor(step, total, warmup, name) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize("name", ["linear", "cosine", "1-sqrt"])
@pytest.mark.parametrize(("warmup", "decay"), [(0, 4), (3, 7), (3, 17)])
def test_a_short_decay_agrees_with_the_wsd_schedule_of_transformers(name: str, warmup: int, decay: int) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = transformers.get_wsd_schedule(optimizer, warmup, decay, 20, decay_type=name)
    for step in range(20):
        assert learning_rate_factor(step, 20, warmup, name, decay) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


def test_one_cycle_agrees_with_torch() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    # Which comes to its end in the last step, and counts steps from 1.
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=21, pct_start=7 / 21)
    for step in range(20):
        assert learning_rate_factor(step, 20, 6, "one_cycle") == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize("name", ["linear", "cosine", "1-sqrt", "one_cycle"])
def test_a_run_that_goes_on_falls_from_the_peak_in_the_steps_that_are_left(name: str) -> None:
    left = [learning_rate_factor(step, 20, 2, name, first_step=12) for step in range(12, 21)]
    assert left == [learning_rate_factor(step, 8, 0, name) for step in range(9)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_schedule_goes_over_its_peak_or_below_nothing(name: str) -> None:
    for total, warmup, decay in ((7, 3, None), (7, 3, 2), (7, 3, 9), (3, 2, 2), (1, 0, 1), (1, 1, None)):
        factors = [learning_rate_factor(step, total, warmup, name, decay) for step in range(total + 2)]
        assert all(0 <= factor <= 1 for factor in factors)


MODEL = BertForSequenceClassification.from_config(small_config(num_hidden_layers=3))


def test_depth_counts_from_the_embeddings_to_the_head() -> None:
    found = depths(MODEL)
    assert found["bert.embeddings.word.weight"] == found["bert.embeddings.norm.bias"] == 0
    assert [found[f"bert.layers.{place}.qkv.weight"] for place in range(3)] == [1, 2, 3]
    assert found["bert.pooler.weight"] == found["classifier.bias"] == 4


def test_each_layer_steps_by_the_decay_of_the_one_above() -> None:
    scales = learning_rate_scales(MODEL, 0.5)
    names = ("classifier", "bert.layers.2.qkv", "bert.layers.1.qkv", "bert.layers.0.qkv", "bert.embeddings.norm")
    assert [scales[f"{name}.bias"] for name in names] == [1.0, 0.5, 0.25, 0.125, 0.0625]


def test_optimizer_keeps_the_proportions_through_the_run() -> None:
    optimizer = build_optimizer(MODEL, learning_rate=0.1, layer_decay=0.5)
    set_learning_rate(optimizer, 0.01)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in MODEL.named_parameters():
        assert rates[id(parameter)] == pytest.approx(0.01 * learning_rate_scales(MODEL, 0.5)[name])


def test_the_head_has_a_rate_of_its_own_through_the_run() -> None:
    optimizer = build_optimizer(MODEL, learning_rate=0.1, layer_decay=0.5, head_learning_rate=0.3)
    set_learning_rate(optimizer, 0.01)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    of = {name: rates[id(parameter)] for name, parameter in MODEL.named_parameters()}
    assert [of["classifier.weight"], of["bert.pooler.bias"]] == pytest.approx([0.03, 0.03])
    assert of["bert.layers.2.qkv.weight"] == pytest.approx(0.005)


def test_the_crf_and_the_mixture_of_layers_may_have_rates_of_their_own() -> None:
    labels = {"id2label": {0: "O", 1: "B-X"}, "token_decoder": "crf", "layer_pooling": "scalar_mix"}
    model = BertForTokenClassification.from_config(small_config(**labels))
    own = {"crf": 0.5, "layer_pooling": 0.2}
    optimizer = build_optimizer(model, learning_rate=0.1, head_learning_rate=0.3, module_learning_rates=own)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    of = {name: rates[id(parameter)] for name, parameter in model.named_parameters()}
    assert of["crf.transitions"] == pytest.approx(0.5)
    assert of["bert.layer_pooling.weights"] == of["bert.layer_pooling.scale"] == pytest.approx(0.2)
    assert of["classifier.weight"] == pytest.approx(0.3)
    assert of["bert.layers.0.qkv.weight"] == pytest.approx(0.1)


@pytest.mark.parametrize("num_layers", range(5))
def test_thawing_goes_from_the_head_downwards(num_layers: int) -> None:
    model = BertForSequenceClassification.from_config(small_config(num_hidden_layers=3))
    unfreeze_top_layers(model, num_layers)
    learning = {depth for name, depth in depths(model).items() if model.get_parameter(name).requires_grad}
    assert learning == set(range(4 - num_layers, 5))


def test_frozen_layers_stay_bit_for_bit_and_thawed_ones_move_later() -> None:
    model = BertForSequenceClassification.from_config(small_config(num_hidden_layers=2))
    optimizer = build_optimizer(model, 0.1, weight_decay=0.5)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rows = {"input_ids": torch.tensor([[3, 4, 5]]), "labels": torch.tensor([1])}

    def moved(num_layers: int) -> set[int]:
        unfreeze_top_layers(model, num_layers)
        model(**rows).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return {depths(model)[name] for name, tensor in model.state_dict().items() if not tensor.equal(before[name])}

    assert moved(1) == {2, 3}
    assert moved(3) == {0, 1, 2, 3}


def test_a_convolution_lies_with_the_embeddings_that_it_reads() -> None:
    config = small_config(position_embedding_type="disentangled", conv_kernel_size=3)
    found = depths(BertForSequenceClassification.from_config(config))
    assert {depth for name, depth in found.items() if ".convolution." in name} == {0}


def test_shared_layers_are_one() -> None:
    model = BertModel.from_config(small_config(num_hidden_layers=6, num_hidden_groups=1))
    assert set(depths(model).values()) == {0, 1, 2}


BASE = BertConfig.from_size("base")
SMALL = {"num_hidden_layers": 3, "hidden_size": 64, "vocab_size": 300}


@pytest.mark.parametrize(
    "config",
    [
        BertConfig.from_shape(**SMALL),
        BertConfig.from_shape(**SMALL, family="modern"),
        BertConfig.from_shape(**SMALL, feed_forward="gated", num_attention_heads=4, num_key_value_heads=2),
        BertConfig.from_shape(**SMALL, family="albert", embedding_size=32),
        BertConfig.from_shape(**SMALL, prediction_transform=False),
    ],
    ids=["bert", "gated", "shared keys", "narrow embeddings, shared layers", "no transform"],
)
def test_a_step_takes_them_and_those_of_attention(config: BertConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_ONEDNN", False)  # torch does not count what oneDNN computes
    num_sequences, length, num_predictions = 2, 32, 5
    model = BertForPreTraining(config).train()
    seqs = PackedSequences.from_padded(torch.randint(5, 300, (num_sequences, length)))
    labels = PretrainingLabels(torch.arange(num_predictions), torch.arange(num_predictions) + 5, torch.tensor([]))
    with FlopCounterMode(display=False) as counter:
        model.packed_loss_sums(seqs, labels, ("masked_lm",))["masked_lm"].loss.backward()
    expected = count_pretraining_flops(config, num_sequences * length, num_predictions, num_sequences * length**2)
    assert counter.get_total_flops() == expected


def test_bert_base_takes_six_for_each_of_its_85_million_weights() -> None:
    assert count_flops_per_token(BASE) == 6 * 12 * 12 * 768 * 768
