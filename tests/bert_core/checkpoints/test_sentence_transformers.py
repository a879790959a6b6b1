"""The files of a sentence-transformers folder, both ways, and what is wrong with them.

Alone: pytest tests/bert_core/checkpoints/test_sentence_transformers.py
"""

import json
from pathlib import Path

import pytest

from bert_core.checkpoints.sentence_transformers import (
    DenseConfig,
    SentenceEmbeddingConfig,
    read_sentence_embedding,
    write_sentence_embedding,
)
from bert_core.errors import CheckpointError, ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of mean pooling, a Dense layer and unit vectors."""
    config = SentenceEmbeddingConfig("mean", normalize=True, max_seq_length=256, dense=(DenseConfig(24, 8),))
    write_sentence_embedding(tmp_path, config, hidden_size=24)
    return tmp_path


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
    ("prompts", "expected"),
    [
        ({"query": "query: ", "passage": "passage: "}, ("query: ", "passage: ")),
        ({"corpus": "c ", "document": "d ", "STS": "s "}, ("", "d ")),
        ({"query": None, "document": ""}, ("", "")),
        (None, ("", "")),
    ],
)
def test_prompts_are_read_by_their_names(folder: Path, prompts: object, expected: tuple[str, str]) -> None:
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    found = read_sentence_embedding(folder)
    assert (found.query_prompt, found.document_prompt) == expected
    assert found.prompt() == found.document_prompt
    write_sentence_embedding(folder, found, hidden_size=24)
    assert read_sentence_embedding(folder) == found


def test_a_prompt_of_another_name_may_be_the_default_until_training_has_prompts_of_its_own() -> None:
    own = SentenceEmbeddingConfig(prompts={"passage": "p ", "STS": "s "}, default_prompt_name="STS")
    assert (own.prompt(), own.prompt("passage"), own.prompt("query")) == ("s ", "p ", "")
    with pytest.raises(ConfigError, match="'corpus'"):
        own.prompt("corpus")
    trained = own.with_prompts("q ", "")
    assert (trained.prompt(), trained.query_prompt, trained.prompt("STS")) == ("", "q ", "s ")


def test_prompts_that_are_left_out_of_the_pooling_are_refused(folder: Path) -> None:
    content = json.loads((folder / "1_Pooling/config.json").read_text())
    (folder / "1_Pooling/config.json").write_text(json.dumps(content | {"include_prompt": False}))
    assert read_sentence_embedding(folder).query_prompt == ""
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "query: "}}))
    with pytest.raises(CheckpointError, match="1_Pooling"):
        read_sentence_embedding(folder)


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
        ("sentence_bert_config.json", {"max_seq_length": "many"}, "max_seq_length"),
        ("config_sentence_transformers.json", {"default_prompt_name": "STS"}, "'STS'"),
        ("config_sentence_transformers.json", {"truncate_dim": 0}, "truncate_dim"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "euclidean"}, "similarity_fn_name"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, "activation"),
        ("2_Dense/config.json", {"out_features": None}, "out_features"),
        ("2_Dense/config.json", {"use_residual": True}, "use_residual"),
        ("config_sentence_transformers.json", {"prompts": {"query": 5}}, "prompt"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "'max'"),
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "'lasttoken'"),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}, r"the pooling \[\]"),
    ],
)
def test_what_would_change_the_vectors_is_refused(folder: Path, file: str, values: dict, message: str) -> None:
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(content | values))
    with pytest.raises(CheckpointError, match=message):
        read_sentence_embedding(folder)


@pytest.mark.parametrize("kinds", [["LSTM"], ["Normalize", "Dense"]])
def test_other_steps_are_refused(folder: Path, kinds: list[str]) -> None:
    modules = json.loads((folder / "modules.json").read_text())[:2]
    modules += [{"type": f"sentence_transformers.models.{kind}", "path": kind} for kind in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match=", ".join(kinds)):
        read_sentence_embedding(folder)


@pytest.mark.parametrize("text", ['[{"path": ""}]', "[", "{}"])
def test_a_broken_file_is_named(folder: Path, text: str) -> None:
    (folder / "modules.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"modules\.json"):
        read_sentence_embedding(folder)
