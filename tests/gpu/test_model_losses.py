"""Heads and objectives that are compared: all that there are. Run alone: pytest tests/gpu/test_model_losses.py"""

import inspect
import pkgutil
import re
from importlib import import_module
from types import ModuleType

import pytest
import torch
from torch import nn

import bert_core.heads
import bert_core.layers
from benchmarks.gpu.model_losses import HEADS, build_model, float64_everywhere, head_loss, random_inputs
from benchmarks.gpu.setting import product_precision
from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config_fields import ConfigFields
from bert_core.families import FAMILY_NAMES
from bert_core.objectives import OBJECTIVES, SENTENCE_OBJECTIVES

WITHOUT_A_FORM = {"id2label", "problem_type", "classifier_dropout", "qa_dropout", "lstm_hidden_size"}
"""Fields of heads that neither add weights nor another loss of tokens or sequences: names, dropouts and a width."""


def classes_in(package: ModuleType) -> set[type[nn.Module]]:
    """All kinds of modules that the files of a package define."""
    files = [import_module(found.name) for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return {
        kind
        for file in files
        for _, kind in inspect.getmembers(file, inspect.isclass)
        if issubclass(kind, nn.Module) and kind.__module__ == file.__name__
    }


def test_every_model_with_a_head_is_compared() -> None:
    models = {kind for kind in classes_in(bert_core.heads) if issubclass(kind, PretrainedModel)}
    assert models == {head.model_class for head in HEADS.values()}, "list it in benchmarks/gpu/model_losses.py"


def test_every_objective_is_compared() -> None:
    listed = {objective for head in HEADS.values() for objective in head.objectives}
    assert listed == set(OBJECTIVES), "list it in benchmarks/gpu/model_losses.py"


def test_every_kind_of_layer_is_in_a_model_that_is_compared() -> None:
    built = {
        type(module) for family in FAMILY_NAMES for head in HEADS for module in build_model(family, head).modules()
    }
    assert classes_in(bert_core.layers) | classes_in(bert_core.heads) <= built


def test_every_choice_of_a_head_is_compared_or_named_here() -> None:
    (section,) = re.findall(r"# Heads: (.*?)\n\n    # ", inspect.getsource(ConfigFields), re.DOTALL)
    fields = set(re.findall(r"^    (\w+): ", section, re.MULTILINE))
    changed = {name for head in HEADS.values() for name in head.changes} & fields
    assert fields == changed | WITHOUT_A_FORM
    assert not changed & WITHOUT_A_FORM


@pytest.mark.parametrize("head", HEADS)
def test_each_head_gives_every_weight_of_it_a_gradient(head: str) -> None:
    model = build_model("bert", head)
    head_loss(model, head, random_inputs(model, head)).backward()
    without = [name for name, p in model.named_parameters() if p.grad is None and not name.startswith("bert.")]
    is_asked_of_pairs = not set(SENTENCE_OBJECTIVES).isdisjoint(HEADS[head].objectives)
    assert [name for name in without if is_asked_of_pairs or not name.startswith("next_sentence.")] == []


def test_a_reference_has_64_bits_where_the_model_says_32() -> None:
    head = "BertForTokenClassification, LSTM"
    model = build_model("bert", head).double()
    with float64_everywhere():
        assert head_loss(model, head, random_inputs(model, head)).dtype == torch.float64
    assert torch.ones(1, dtype=torch.float64).float().dtype == torch.float32


def test_an_lstm_has_the_precision_of_other_products() -> None:
    """cuDNN has a switch of its own, which is on by default."""
    before = torch.backends.cudnn.allow_tf32
    for precision, expected in (("fp32", False), ("tf32", True)):
        with product_precision(precision):
            assert torch.backends.cudnn.allow_tf32 is expected
    assert torch.backends.cudnn.allow_tf32 is before
