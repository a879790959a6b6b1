"""The configuration: sizes, checks, config.json. Run alone: pytest tests/bert_core/test_config.py"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers

from bert_core.config import SIZES, BertConfig
from bert_core.errors import CheckpointError, ConfigError


@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ("tiny", (2, 128, 2, 512)),
        ("mini", (4, 256, 4, 1024)),
        ("small", (4, 512, 8, 2048)),
        ("medium", (8, 512, 8, 2048)),
        ("base", (12, 768, 12, 3072)),
        ("large", (24, 1024, 16, 4096)),
    ],
)
def test_size_has_the_published_shape(size: str, shape: tuple[int, ...]) -> None:
    config = BertConfig.from_size(size)
    assert shape == (
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
    )


def test_sizes_are_all_tested_above() -> None:
    assert len(SIZES) == 6


def test_unknown_size_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'huge' is not known; use one of tiny, mini"):
        BertConfig.from_size("huge")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 100, "num_attention_heads": 3}, "hidden_size 100 cannot be split over 3 heads"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers is 2.0"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0"),
        ({"hidden_act": "tanh"}, "hidden_act 'tanh' is not known; use one of gelu"),
        ({"problem_type": "ranking"}, "problem_type 'ranking' is not known"),
        ({"pad_token_id": 40_000}, "pad_token_id 40000 lies outside a vocabulary of 30522"),
        ({"id2label": {0: "a", 2: "b"}}, r"id2label has the ids \[0, 2\]"),
    ],
)
def test_impossible_model_is_refused_with_its_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BertConfig(**changes)


def test_dict_gives_the_same_configuration_back() -> None:
    config = BertConfig.from_size("mini", vocab_size=99).with_dropout(0.2).with_labels(["x", "y", "z"], "regression")
    assert BertConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_transformers_reads_the_same_fields() -> None:
    config = BertConfig.from_size("tiny", hidden_act="relu").with_labels(["no", "yes", "maybe"])
    theirs = transformers.BertConfig(**config.to_dict())
    assert (theirs.hidden_size, theirs.hidden_act, theirs.num_labels) == (128, "relu", 3)
    assert theirs.id2label == config.id2label
    assert BertConfig.from_dict(theirs.to_dict()) == config


def test_num_labels_alone_gives_default_names() -> None:
    assert BertConfig.from_dict({"model_type": "bert", "num_labels": 3}).label2id["LABEL_2"] == 2


def test_config_of_google_without_model_type_is_read() -> None:
    values = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512, "directionality": "bidi"}
    assert BertConfig.from_dict(values).hidden_size == 128


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "roberta"}, "model_type is 'roberta'; only 'bert'"),
        ({}, "model_type is None"),
        ({"model_type": "bert", "is_decoder": True}, "is_decoder is True"),
        (
            {"model_type": "bert", "position_embedding_type": "relative_key"},
            "position_embedding_type is 'rel",
        ),
    ],
)
def test_other_models_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BertConfig.from_dict(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"config\.json cannot be read \(No such file or directory\)"),
        ('{"hidden_size": 12', r"config\.json is not JSON"),
        ("[1]", r"config\.json holds no JSON object"),
        ('{"model_type": "gpt2"}', r"config\.json: model_type is 'gpt2'"),
        ('{"model_type": "bert", "hidden_size": "wide"}', r"config\.json: hidden_size is 'wide'"),
    ],
)
def test_broken_config_file_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=message):
        BertConfig.from_pretrained(tmp_path)


def test_config_needs_no_torch() -> None:
    program = "import sys, bert_core; bert_core.BertConfig(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
