"""Folders in Hugging Face's layout, both ways, and what is wrong with them.

Run alone: pytest tests/bert_core/checkpoints/test_pretrained.py
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.errors import CheckpointError
from bert_core.heads import (
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bert_core.model import BertModel
from tests.bert_core.reference import scattered, small_config

CONFIG = small_config().with_labels(["a", "b", "c"])
CLASSES: list[type[PretrainedModel]] = [
    BertModel,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertForQuestionAnswering,
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pretraining model's folder."""
    scattered(BertForPreTraining.from_config(CONFIG)).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Rewrite the weights as another tool would: without our manifest."""
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")
    (folder / "manifest.json").unlink()


def test_auto_classes_find_the_head(folder: Path) -> None:
    loaded = transformers.AutoModelForPreTraining.from_pretrained(folder)
    assert type(loaded).__name__ == "BertForPreTraining"
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["BertForPreTraining"]


@pytest.mark.parametrize("model_class", CLASSES)
def test_encoder_goes_into_any_head_and_the_rest_is_listed(model_class: type[PretrainedModel], folder: Path) -> None:
    model = model_class.from_pretrained(folder)
    source = BertForPreTraining.from_pretrained(folder)
    encoder = getattr(model, "bert", model)
    assert torch.equal(encoder.layers[1].qkv.weight, source.bert.layers[1].qkv.weight)
    report = model.load_report
    assert report is not None
    expected = {
        BertForSequenceClassification: ("classifier.weight", "classifier.bias"),
        BertForTokenClassification: ("classifier.weight", "classifier.bias"),
        BertForQuestionAnswering: ("qa_outputs.weight", "qa_outputs.bias"),
    }
    assert report.initialized == expected.get(model_class, ())
    assert ("cls.seq_relationship.bias" in report.dropped) == (model_class is not BertForPreTraining)
    assert ("bert.pooler.dense.bias" in report.dropped) == (
        model_class in (BertForTokenClassification, BertForQuestionAnswering)
    )


def test_new_weights_follow_the_seed(folder: Path) -> None:
    first, again, other = (BertForTokenClassification.from_pretrained(folder, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.classifier.weight, again.classifier.weight)
    assert not torch.equal(first.classifier.weight, other.classifier.weight)


def test_old_names_and_a_missing_prefix_are_understood(folder: Path) -> None:
    def age(weights: dict[str, torch.Tensor]) -> None:
        for name in [name for name in weights if name.startswith("bert.")]:
            old = name.removeprefix("bert.").replace("LayerNorm.weight", "LayerNorm.gamma")
            weights[old.replace("LayerNorm.bias", "LayerNorm.beta")] = weights.pop(name)
        weights["embeddings.position_ids"] = torch.arange(32)[None]

    expected = BertForPreTraining.from_pretrained(folder)
    change_weights(folder, age)
    model = BertForPreTraining.from_pretrained(folder)
    assert model.load_report == expected.load_report
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))


def test_half_precision_file_is_loaded_in_full_precision(folder: Path) -> None:
    change_weights(folder, lambda weights: weights.update({n: w.bfloat16() for n, w in weights.items()}))
    assert BertModel.from_pretrained(folder).pooler.weight.dtype == torch.float32


def test_given_config_replaces_the_folder_s(folder: Path) -> None:
    config = BertConfig.from_pretrained(folder).with_dropout(0.3).with_labels(["x", "y"])
    model = BertForSequenceClassification.from_pretrained(folder, config)
    assert model.dropout.p == 0.3
    assert model.classifier.weight.shape == (2, 24)


def test_other_labels_need_a_new_head(tmp_path: Path) -> None:
    trained = scattered(BertForSequenceClassification.from_config(CONFIG))
    trained.save_pretrained(tmp_path)
    config = CONFIG.with_labels(["x", "y"])
    with pytest.raises(CheckpointError, match="encoder_only"):
        BertForSequenceClassification.from_pretrained(tmp_path, config)
    model = BertForSequenceClassification.from_pretrained(tmp_path, config, encoder_only=True)
    assert model.load_report is not None
    assert model.load_report.initialized == ("classifier.weight", "classifier.bias")
    assert torch.equal(model.bert.pooler.weight, trained.bert.pooler.weight)


def test_flipped_bit_is_found_and_the_file_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        BertModel.from_pretrained(folder)


@pytest.mark.parametrize("with_manifest", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_file_cut_short_is_found(folder: Path, share: float, with_manifest: bool) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    if not with_manifest:
        (folder / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        BertModel.from_pretrained(folder)


KEY = "bert.encoder.layer.1.attention.self.key.weight"


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: weights.pop(KEY),
        lambda weights: weights.update({name: weight.to(torch.int8) for name, weight in weights.items()}),
        lambda weights: weights.update({KEY: weights[KEY][:, :-1].contiguous()}),
    ],
    ids=["missing", "quantized", "of another shape"],
)
def test_a_weight_that_is_missing_or_of_another_kind_is_named(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], object]
) -> None:
    change_weights(folder, change)
    with pytest.raises(CheckpointError, match=r"bert\.e"):
        BertModel.from_pretrained(folder)


def test_saving_again_replaces_the_model(folder: Path) -> None:
    other = BertForPreTraining.from_config(CONFIG, seed=9)
    other.save_pretrained(folder)
    again = BertForPreTraining.from_pretrained(folder)
    assert torch.equal(again.prediction.transform.weight, other.prediction.transform.weight)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "manifest.json", "model.safetensors"]


def test_equal_models_give_equal_files(folder: Path, tmp_path: Path) -> None:
    BertForPreTraining.from_pretrained(folder).save_pretrained(tmp_path / "copy")
    for name in ("config.json", "model.safetensors", "manifest.json"):
        assert (tmp_path / "copy" / name).read_bytes() == (folder / name).read_bytes()


def test_a_value_that_cannot_be_computed_with_is_told_with_the_file(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "deberta-v2", "num_attention_heads": 0, "pos_att_type": "c2p"}')
    with pytest.raises(CheckpointError, match=r"config\.json"):
        BertModel.from_pretrained(folder)


def test_weights_of_more_layers_than_the_configuration_s_are_refused(folder: Path) -> None:
    values = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 1}
    (folder / "manifest.json").unlink()
    (folder / "config.json").write_text(json.dumps(values))
    for model_class in (BertModel, BertForPreTraining):
        with pytest.raises(CheckpointError, match=r"config\.json"):
            model_class.from_pretrained(folder)
