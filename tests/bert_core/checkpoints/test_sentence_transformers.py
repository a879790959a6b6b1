"""The files of a sentence-transformers folder, both ways, and what is wrong with them.

Alone: pytest tests/bert_core/checkpoints/test_sentence_transformers.py
"""

import json
from pathlib import Path
from typing import Any

import pytest

from bert_core.checkpoints.sentence_transformers import (
    SentenceEmbeddingConfig,
    read_sentence_embedding,
    write_sentence_embedding,
)
from bert_core.errors import CheckpointError, ConfigError

CONFIGS = [
    SentenceEmbeddingConfig("mean", normalize=True, max_seq_length=256),
    SentenceEmbeddingConfig("cls", normalize=False, max_seq_length=None),
    SentenceEmbeddingConfig("max", normalize=True, max_seq_length=3),
]


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of mean pooling and unit vectors."""
    write_sentence_embedding(tmp_path, CONFIGS[0], hidden_size=24)
    return tmp_path


@pytest.mark.parametrize("config", CONFIGS)
def test_what_is_written_is_read_again(config: SentenceEmbeddingConfig, tmp_path: Path) -> None:
    names = write_sentence_embedding(tmp_path, config, hidden_size=24)
    assert read_sentence_embedding(tmp_path) == config
    assert sorted(names) == sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.json"))


def test_the_layout_is_that_of_sentence_transformers(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    assert [module["idx"] for module in modules] == [0, 1, 2]
    assert [module["path"] for module in modules] == ["", "1_Pooling", "2_Normalize"]
    assert [module["type"] for module in modules] == [
        f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize")
    ]
    assert json.loads((folder / "1_Pooling/config.json").read_text()) == {
        "word_embedding_dimension": 24,
        "pooling_mode_cls_token": False,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_tokens": True,
    }
    assert json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"] == 256


def test_the_layout_of_version_6_is_read(folder: Path) -> None:
    types = ["base.modules.transformer.Transformer", "sentence_transformer.modules.pooling.Pooling"]
    modules = [
        {"path": path, "type": f"sentence_transformers.{t}"} for path, t in zip(["", "pool"], types, strict=True)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "pool").mkdir()
    (folder / "pool/config.json").write_text(json.dumps({"embedding_dimension": 24, "pooling_mode": "cls"}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"transformer_task": "feature-extraction"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 128}))
    assert read_sentence_embedding(folder) == SentenceEmbeddingConfig("cls", normalize=False, max_seq_length=128)


def test_a_plain_encoder_gives_the_mean(tmp_path: Path) -> None:
    assert read_sentence_embedding(tmp_path) == SentenceEmbeddingConfig("mean", normalize=False, max_seq_length=None)


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
        ("sentence_bert_config.json", {"max_seq_length": "many"}, "max_seq_length"),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "default_prompt_name"),
        ("config_sentence_transformers.json", {"truncate_dim": 64}, "truncate_dim"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "'max'"),
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "'lasttoken'"),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}, r"the pooling \[\]"),
    ],
)
def test_what_would_change_the_vectors_is_refused(folder: Path, file: str, values: dict, message: str) -> None:
    change(folder / file, **values)
    with pytest.raises(CheckpointError, match=message):
        read_sentence_embedding(folder)


def test_another_step_is_refused(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[2]["type"] = "sentence_transformers.models.Dense"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match="asks for Transformer, Pooling, Dense"):
        read_sentence_embedding(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [('[{"path": ""}]', "without type or path"), ("[", "is not JSON"), ("{}", "holds no JSON list")],
)
def test_a_broken_file_is_named(folder: Path, text: str, message: str) -> None:
    (folder / "modules.json").write_text(text)
    with pytest.raises(CheckpointError, match=rf"modules\.json.*{message}"):
        read_sentence_embedding(folder)


def test_a_missing_pooling_is_named(folder: Path) -> None:
    (folder / "1_Pooling/config.json").unlink()
    with pytest.raises(CheckpointError, match=r"1_Pooling/config\.json"):
        read_sentence_embedding(folder)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="'sum'"):
        SentenceEmbeddingConfig("sum")
    with pytest.raises(ConfigError, match="max_seq_length is 2"):
        SentenceEmbeddingConfig(max_seq_length=2)
