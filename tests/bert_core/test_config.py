"""The configuration: sizes, checks, config.json.

Alone: pytest tests/bert_core/test_config.py
"""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import transformers

from bert_core.config import SIZES, BertConfig
from bert_core.config_fields import ConfigFields
from bert_core.errors import CheckpointError, ConfigError
from bert_core.families import FAMILIES


@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ("tiny", (2, 128, 2, 512)),
        ("mini", (4, 256, 4, 1024)),
        ("small", (4, 512, 8, 2048)),
        ("medium", (8, 512, 8, 2048)),
        ("base", (12, 768, 12, 3072)),
        ("large", (24, 1024, 16, 4096)),
        ("2x768", (2, 768, 12, 3072)),
        ("10x256", (10, 256, 4, 1024)),
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


def test_sizes_are_the_24_published_ones_with_base_and_large_by_name() -> None:
    assert len(set(SIZES.values())) == 25
    assert SIZES["12x768"] == SIZES["base"]


@pytest.mark.parametrize(("size", "family", "hint"), [("8x257", "bert", "8x256"), ("tiny", "gpt2", "'gpt2'")])
def test_an_unknown_size_or_family_is_named(size: str, family: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        BertConfig.from_size(size, family)


@pytest.mark.parametrize("family", [*FAMILIES, "modern"])
def test_every_family_has_every_size_and_reads_512_tokens(family: str) -> None:
    for size, (num_hidden_layers, hidden_size) in SIZES.items():
        config = BertConfig.from_size(size, family)
        assert (config.num_hidden_layers, config.hidden_size) == (num_hidden_layers, hidden_size)
        assert config.max_seq_length == 512


@pytest.mark.parametrize("size", ["tiny", "base"])
def test_gated_layer_of_the_modern_preset_has_as_many_weights_as_the_plain_one(size: str) -> None:
    plain, gated = BertConfig.from_size(size), BertConfig.from_size(size, "modern")
    assert 3 * gated.intermediate_size == pytest.approx(2 * plain.intermediate_size, rel=0.07)
    assert gated.intermediate_size % 64 == 0


@pytest.mark.parametrize("family", [*FAMILIES, "modern"])
def test_family_reads_what_it_writes(family: str) -> None:
    config = BertConfig.from_size("mini", family, vocab_size=99, hidden_dropout_prob=0.25).with_labels(["x", "y", "z"])
    assert BertConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("family", "changes", "model_type"),
    [
        ("bert", {"hidden_act": "relu"}, "bert"),
        ("bert", {"position_embedding_type": "rotary"}, "bert_core"),
        ("bert", {"token_decoder": "crf"}, "bert_core"),
        ("bert", {"sentence_head": False}, "bert_core"),
        ("bert", {"causal_attention": True}, "bert_core"),
        ("roberta", {"position_offset": 5}, "bert_core"),
        ("roberta", {"hidden_act": "relu"}, "bert_core"),
        ("flaubert", {"norm_placement": "pre", "hidden_act": "relu"}, "flaubert"),
        ("flaubert", {"hidden_act": "silu"}, "bert_core"),
        ("flaubert", {"intermediate_size": 100}, "bert_core"),
        ("distilbert", {"layer_norm_eps": 1e-5}, "bert_core"),
        ("albert", {"num_hidden_groups": 2}, "albert"),
        ("modernbert", {"local_window": 16, "global_every": 1, "hidden_act": "silu"}, "modernbert"),
        ("electra", {"embedding_size": None}, "electra"),
        ("mpnet", {"relative_attention_num_buckets": 16}, "bert_core"),
        ("deberta-v2", {"position_buckets": None, "max_relative_positions": 64, "pos_att_type": "p2c"}, "deberta-v2"),
        ("deberta-v2", {"position_embedding_type": "absolute"}, "bert_core"),
        ("deberta-v2", {"embedding_size": 8}, "bert_core"),
        ("modernbert", {"local_window": None}, "bert_core"),
        ("modernbert", {"use_bias": True}, "bert_core"),
        ("eurobert", {"num_key_value_heads": 2, "tie_word_embeddings": True}, "eurobert"),
        ("eurobert", {"norm": "layer"}, "bert_core"),
        ("neobert", {"intermediate_size": 104}, "neobert"),
        ("neobert", {"intermediate_size": 100}, "bert_core"),
        ("neobert", {"num_key_value_heads": 2}, "bert_core"),
        ("neobert", {"attention_probs_dropout_prob": 0.1}, "neobert"),
    ],
)
def test_what_a_family_cannot_say_is_saved_under_a_type_of_its_own(
    family: str, changes: dict[str, Any], model_type: str
) -> None:
    config = BertConfig.from_size("mini", family, **changes)
    values = config.to_dict()
    assert values["model_type"] == model_type
    again = BertConfig.from_dict(values)
    assert {name: getattr(again, name) for name in changes} == changes
    assert again.heads == config.heads or family == "bert"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 100, "num_attention_heads": 3}, "hidden_size"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0"),
        ({"hidden_act": "tanh"}, "hidden_act"),
        ({"pad_token_id": 40_000}, "pad_token_id"),
        ({"model_type": "gpt2"}, "model_type"),
        ({"head_family": "gpt2"}, "head_family"),
        ({"hidden_size": 9, "num_attention_heads": 3, "position_embedding_type": "rotary"}, "3 wide"),
        ({"num_hidden_groups": 13}, "num_hidden_groups"),
        ({"conv_kernel_size": 3}, "conv_kernel_size 3 and absolute"),
        ({"conv_kernel_size": 3, "causal_attention": True}, "conv_kernel_size 3 and causal"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"num_key_value_heads": 2, "position_embedding_type": "disentangled"}, "num_key_value_heads"),
        ({"position_offset": 512}, "max_position_embeddings"),
        ({"layer_norm_eps": -1}, "layer_norm_eps"),
        ({"id2label": {0: "a", 2: "b"}}, "id2label"),
        ({"id2label": {0: "b", 1: "a", 2: "b"}}, r"id2label has 'b' for the ids 0, 2"),
        ({"layer_pooling": "sum_last_four", "num_hidden_layers": 2}, "layer_pooling"),
        ({"num_lstm_layers": -1}, "num_lstm_layers"),
        ({"num_lstm_layers": 1, "lstm_hidden_size": 255}, "255"),
        ({"num_tabular_features": -1}, "num_tabular_features"),
        ({"max_relative_positions": 9, "position_buckets": 16}, "max_relative_positions 9"),
        ({"norm": "rms", "norm_bias": True}, "norm_bias"),
        ({"prediction_transform": False, "embedding_size": 128}, "embedding_size"),
        ({"first_norm": False}, "norm_placement"),
        ({"first_norm": False, "norm_placement": "pre", "num_hidden_groups": 3}, "num_hidden_groups"),
    ],
)
def test_impossible_model_is_refused_with_its_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BertConfig(**changes)


def test_keys_for_each_head_are_one_configuration_however_they_are_asked_for() -> None:
    assert BertConfig(num_attention_heads=12, num_key_value_heads=12) == BertConfig()


def test_attention_weights_may_have_a_dropout_of_their_own() -> None:
    config = BertConfig(
        hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3, classifier_dropout=0.4, pooler_dropout=0.5
    )

    def probabilities(changed: BertConfig) -> tuple[float | None, ...]:
        heads = changed.classifier_dropout, changed.pooler_dropout, changed.qa_dropout
        return changed.hidden_dropout_prob, changed.attention_probs_dropout_prob, *heads

    assert probabilities(config.with_dropout(0.1)) == (0.1, 0.1, 0.1, 0.1, 0.0)
    assert probabilities(config.with_dropout(0.1, attention=0.0)) == (0.1, 0.0, 0.1, 0.1, 0.0)
    assert probabilities(config.with_dropout(None, attention=0.0)) == (0.2, 0.0, 0.4, 0.5, 0.0)
    assert config.with_dropout(None) == config


def test_transformers_reads_the_same_fields() -> None:
    config = BertConfig.from_size("tiny", hidden_act="relu").with_labels(["no", "yes", "maybe"])
    theirs = transformers.BertConfig(**config.to_dict())
    assert (theirs.hidden_size, theirs.hidden_act, theirs.num_labels) == (128, "relu", 3)
    assert theirs.id2label == config.id2label
    assert BertConfig.from_dict(theirs.to_dict()) == config


def test_layers_of_modernbert_are_read_in_both_spellings() -> None:
    published = {
        "global_attn_every_n_layers": 2,
        "num_hidden_layers": 5,
        "global_rope_theta": 80_000.0,
        "local_rope_theta": 500.0,
        "classifier_pooling": "mean",
        "position_embedding_type": "absolute",  # in the published file, and of no effect
    }
    config = BertConfig.from_dict({"model_type": "modernbert", **published})
    assert (config.global_every, config.rotary_base, config.local_rotary_base) == (2, 80_000.0, 500.0)
    theirs = transformers.ModernBertConfig(**published).to_dict()
    assert theirs["layer_types"][:3] == ["full_attention", "sliding_attention", "full_attention"]
    del theirs["global_attn_every_n_layers"]
    assert BertConfig.from_dict(theirs) == config
    assert transformers.ModernBertConfig(**config.to_dict()).sep_token_id is None, "in no vocabulary but the published"


DEBERTA_V3: dict[str, Any] = {
    "model_type": "deberta-v2",
    "hidden_size": 768,
    "num_attention_heads": 12,
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": "p2c|c2p",
    "position_buckets": 256,
    "max_relative_positions": -1,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}


def test_deberta_is_read_in_both_spellings() -> None:
    config = BertConfig.from_dict(DEBERTA_V3)
    assert (config.position_buckets, config.max_relative_positions, config.pos_att_type) == (256, None, "c2p|p2c")
    theirs = transformers.DebertaV2Config(**DEBERTA_V3).to_dict()
    assert isinstance(theirs["pos_att_type"], list)
    assert BertConfig.from_dict(theirs) == config
    of_v2 = {name: getattr(config, name) for name in ("intermediate_size", "num_hidden_layers")}
    assert BertConfig.from_size("base", "deberta-v2", **of_v2) == config


def test_nomic_bert_is_read_as_it_was_published() -> None:
    published = {
        "n_embd": 24,
        "n_head": 3,
        "n_layer": 2,
        "n_inner": 9,
        "n_positions": 8192,
        "activation_function": "swiglu",
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.0,
        "attn_pdrop": 0.1,
        "rotary_emb_base": 500,
    }
    own = {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 9}
    own |= {"hidden_act": "silu", "layer_norm_eps": 1e-5, "attention_probs_dropout_prob": 0.1}
    config = BertConfig.from_dict({"model_type": "nomic_bert", **published})
    assert config == BertConfig.from_dict({"model_type": "nomic_bert", **own, "rope_parameters": {"rope_theta": 500}})
    assert config.max_seq_length == 2048, "behind the trained positions other angles begin"


def test_eurobert_is_read_in_both_spellings() -> None:
    older = {"clf_pooling": "bos", "rope_theta": 250_000, "num_key_value_heads": 12, "hidden_size": 768}
    config = BertConfig.from_dict({"model_type": "eurobert", **older})
    assert (config.classifier_pooling, config.rotary_base, config.num_key_value_heads) == ("cls", 250_000, None)
    theirs = transformers.EuroBertConfig(classifier_pooling="bos", rope_parameters={"rope_theta": 250_000})
    assert BertConfig.from_dict(theirs.to_dict()) == config


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"num_labels": 3}, ["LABEL_0", "LABEL_1", "LABEL_2"]),
        ({"id2label": ["x", "y", "z"]}, ["x", "y", "z"]),
        ({"id2label": [["0", "x"], ["1", "y"]]}, ["x", "y"]),
        ({"label2id": {"y": 1, "x": 0}}, ["x", "y"]),
        ({"label2id": {"y": 1, "x": 0}, "num_labels": 1}, ["LABEL_0"]),
        ({"label2id": {"y": 1, "x": 0}, "id2label": {"0": "a"}}, ["a"]),
    ],
)
def test_names_of_classes_are_read_in_each_spelling(fields: dict[str, Any], names: list[str]) -> None:
    config = BertConfig.from_dict({"model_type": "bert", **fields})
    assert [config.id2label[index] for index in range(config.num_labels)] == names


def test_two_names_of_one_id_are_refused() -> None:
    with pytest.raises(ConfigError, match="label2id"):
        BertConfig.from_dict({"model_type": "bert", "label2id": {"x": 0, "y": 0}})


def test_a_family_that_is_not_read_is_named_with_the_file_and_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "luke"}')
    with pytest.raises(CheckpointError, match=r"config\.json.*'luke'.*roberta"):
        BertConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "gpt2"}, "model_type"),
        ({}, "model_type is None"),
        ({"model_type": "roberta", "hidden_act": "relu"}, "hidden_act"),
        ({"model_type": "albert", "inner_group_num": 2}, "inner_group_num is 2"),
        ({"model_type": "flaubert", "n_langs": 2}, "n_langs is 2"),
        ({"model_type": "bert", "quantization_config": {}}, "quantization_config is {}"),
        ({"model_type": "bert", "is_decoder": True}, "is_decoder is True"),
        ({"model_type": "bert", "position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"model_type": "mpnet", "relative_attention_num_buckets": 16}, "relative_attention_num_buckets is 16"),
        ({"model_type": "electra", "summary_activation": None}, "summary_activation is None"),
        ({"model_type": "deberta-v2"}, "relative_attention is False"),
        (DEBERTA_V3 | {"position_biased_input": True}, "position_biased_input is True"),
        (DEBERTA_V3 | {"conv_kernel_size": 3, "conv_groups": 2}, "conv_groups is 2"),
        (DEBERTA_V3 | {"conv_kernel_size": 4}, "conv_kernel_size 4"),
        (DEBERTA_V3 | {"attention_head_size": 32}, "attention_head_size is 32"),
        (DEBERTA_V3 | {"embedding_size": 128}, "embedding_size is 128"),
        (DEBERTA_V3 | {"pooler_hidden_size": 128}, "pooler_hidden_size is 128"),
        (DEBERTA_V3 | {"pos_att_type": "p2p|c2p"}, "pos_att_type 'c2p|p2p'"),
        (DEBERTA_V3 | {"norm_rel_ebd": "rms"}, "norm_rel_ebd 'rms'"),
        ({"model_type": "eurobert", "head_dim": 32}, "head_dim is 32"),
        ({"model_type": "eurobert", "rope_parameters": {"rope_type": "yarn"}}, "rope_scaling"),
        ({"model_type": "eurobert", "classifier_pooling": "max"}, "classifier_pooling"),
        ({"model_type": "bert", "tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ({"model_type": "modernbert", "mlp_bias": True}, "mlp_bias is True"),
        ({"model_type": "modernbert", "embedding_dropout": 0.1}, "embedding_dropout"),
        ({"model_type": "modernbert", "classifier_pooling": "late"}, "classifier_pooling"),
        ({"model_type": "modernbert", "classifier_activation": "silu"}, "classifier_activation"),
        ({"model_type": "modernbert", "layer_types": ["sliding_attention", "full_attention"]}, "layer_types"),
        ({"model_type": "modernbert", "rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_parameters"),
        ({"model_type": "modernbert", "rope_parameters": {"sliding_attention": None}}, "rope_parameters"),
        ({"model_type": "modernbert", "layer_types": ["full_attention"], "num_hidden_layers": 3}, "layer_types"),
        ({"model_type": "nomic_bert", "activation_function": "gelu"}, "activation_function is 'gelu'"),
        ({"model_type": "nomic_bert", "rotary_emb_fraction": 0.5}, "rotary_emb_fraction is 0.5"),
        ({"model_type": "nomic_bert", "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_scaling"),
        ({"model_type": "new", "layer_norm_type": "rms_norm"}, "layer_norm_type is 'rms_norm'"),
        ({"model_type": "new", "rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.5}}, "rope_scaling"),
    ],
)
def test_other_models_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BertConfig.from_dict(values)


@pytest.mark.parametrize(
    "text",
    [None, '{"hidden_size": 12', "[1]", '{"model_type": "gpt2"}', '{"model_type": "bert", "id2label": 5}'],
)
def test_broken_config_file_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        BertConfig.from_pretrained(tmp_path)


def test_config_needs_no_torch() -> None:
    program = "import sys, bert_core; bert_core.BertConfig(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    "name", [item.name for item in fields(ConfigFields) if item.name not in ("id2label", "model_type", "head_family")]
)
def test_every_field_of_a_model_refuses_what_is_none_of_its_kind(name: str) -> None:
    """A list fits no field but the names of classes: whatever is added to the configuration is checked."""
    with pytest.raises(ConfigError, match=name):
        ConfigFields(**{name: ["no"]})


def test_config_of_google_without_model_type_is_read() -> None:
    values = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512, "directionality": "bidi"}
    assert BertConfig.from_dict(values).hidden_size == 128


def test_every_field_of_a_configuration_is_written_and_read_back() -> None:
    config = BertConfig(model_type="bert_core", hidden_act="silu", num_lstm_layers=1, lstm_hidden_size=8)
    values = config.to_dict()
    assert values.keys() >= {item.name for item in fields(ConfigFields)}
    assert BertConfig.from_dict(values) == config
