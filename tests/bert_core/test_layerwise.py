"""Depths, learning rates by depth, gradual unfreezing. Run alone: pytest tests/bert_core/test_layerwise.py"""

import pytest
import torch

from bert_core.heads import BertForSequenceClassification
from bert_core.layerwise import depths, learning_rate_scales, unfreeze_top_layers
from bert_core.model import BertModel
from bert_core.optimization import build_optimizer, set_learning_rate
from tests.bert_core.reference import small_config

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


def test_without_decay_there_are_two_groups() -> None:
    assert len(build_optimizer(MODEL, 0.1).param_groups) == 2


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


def test_shared_layers_are_one() -> None:
    model = BertModel.from_config(small_config(num_hidden_layers=6, num_hidden_groups=1))
    assert set(depths(model).values()) == {0, 1, 2}
