"""Random models of every family and head, against transformers: outputs, losses, gradients, folders in both directions;
a published model's weights.

Run alone: pytest tests/bert_core/families/test_parity.py
"""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.families import FAMILIES, NATIVE
from bert_core.families.family import RotaryFamily
from bert_core.heads import (
    BertForMultipleChoice,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bert_core.heads.replaced_tokens import BertForReplacedTokenDetection
from bert_core.model import BertModel
from bert_core.text.tokenization import Tokenizer
from tests.bert_core.reference import assert_equal_gradients, ragged_batch, reference_of, scattered

HEADS = (
    BertModel,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertForQuestionAnswering,
    BertForMultipleChoice,
)
CASES = [
    (family, head)
    for family in FAMILIES.values()
    for head in HEADS
    if family is not NATIVE and hasattr(transformers, family.architecture(head.__name__))
]
CASES.append((FAMILIES["electra"], BertForReplacedTokenDetection))
EVERY = pytest.mark.parametrize(
    ("family", "head"), [pytest.param(f.model_type, h, id=f"{f.model_type}-{h.__name__}") for f, h in CASES]
)
OTHER_NAMES = {
    "AlbertForPreTraining": {"next_sentence_label": "sentence_order_label", "seq_relationship_logits": "sop_logits"},
    "MaskedLM": {"prediction_logits": "logits"},
}


def random_config(family: str, seed: int) -> BertConfig:
    """A small model with everything drawn that the family leaves open."""
    draw = random.Random(f"{family} {seed}")
    num_heads = draw.choice([1, 2, 3])
    hidden_size = num_heads * draw.choice([4, 6, 8])
    shape: dict[str, Any] = {
        "vocab_size": draw.randint(40, 60),
        "hidden_size": hidden_size,
        "num_attention_heads": num_heads,
        "num_hidden_layers": draw.choice([1, 2, 4]),
        "intermediate_size": 4 * hidden_size if family == "flaubert" else draw.randint(9, 40),
        "max_position_embeddings": draw.randint(20, 30),
        "pad_token_id": FAMILIES[family].required.get("pad_token_id", draw.choice([0, 1, 2])),
    }
    if BertConfig.from_size("tiny", family).position_offset:
        shape["position_offset"] = shape["pad_token_id"] + 1
    if family == "flaubert":
        shape |= {"norm_placement": draw.choice(["pre", "post"]), "hidden_act": draw.choice(["gelu", "relu"])}
    elif FAMILIES[family].required.get("hidden_act") is None:
        shape["hidden_act"] = draw.choice(["gelu", "gelu_new", "relu", "silu"])
    left_open: dict[str, list[Any]] = {
        "embedding_size": [5, None if family == "electra" else hidden_size],
        "num_hidden_groups": [1, shape["num_hidden_layers"]],
        "local_window": [4, 5, 40],
        "global_every": [1, 2, 3],
        "local_rotary_base": [100.0],
        "classifier_pooling": ["cls", "mean", "late"] if family == "eurobert" else ["cls", "mean"],
        "position_buckets": [None, 2, 6, 12],
        "max_relative_positions": [None, 8],
        "pos_att_type": ["c2p", "p2c", "c2p|p2c"],
        "share_att_key": [False, True],
        "norm_rel_ebd": ["none", "layer_norm"],
        "conv_kernel_size": [0, 1, 3],
        "conv_act": ["tanh", "gelu"],
        "pooler_activation": ["gelu", "tanh", "relu"],
        "rotary_base": [500.0],
        "num_key_value_heads": [None, 1],
        "tie_word_embeddings": [True, False],
    }
    shape |= {name: draw.choice(values) for name, values in left_open.items() if name in FAMILIES[family].fields}
    if isinstance(FAMILIES[family], RotaryFamily):
        shape |= {"rotary_base": 50.0, "rotary_scaling_factor": draw.choice([1.0, 2.5])}
    if family == "gte":
        shape["type_vocab_size"] = draw.choice([0, 1, 2])
    config = BertConfig.from_size("tiny", family, **shape).with_dropout(0.0)
    return config.with_labels([f"class {number}" for number in range(draw.randint(2, 4))])


def random_model(family: str, head: type[PretrainedModel], seed: int) -> PretrainedModel:
    model = scattered(head.from_config(random_config(family, seed), seed))
    assert model.config.family.model_type == family, "transformers is told of the family itself"
    return model


def labeled_batch(model: PretrainedModel, seed: int) -> dict[str, Tensor]:
    """Ragged rows and labels for the model's head."""
    config, generator = model.config, torch.Generator().manual_seed(seed)
    num_rows, width = 4, 12
    batch = ragged_batch(config, [12, 5, 9, 2], width, seed)

    def draw(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=generator)

    match model:
        case BertForPreTraining():
            chosen = (torch.rand(num_rows, width, generator=generator) < 0.3) & batch["attention_mask"].bool()
            chosen[0, 1] = True
            batch["labels"] = torch.where(chosen, draw(config.vocab_size, num_rows, width), -100)
            if config.sentence_head:
                batch["next_sentence_label"] = draw(2, num_rows)
        case BertForSequenceClassification():
            batch["labels"] = draw(config.num_labels, num_rows)
        case BertForTokenClassification():
            labels = draw(config.num_labels, num_rows, width)
            batch["labels"] = torch.where(batch["attention_mask"].bool(), labels, -100)
        case BertForQuestionAnswering():
            batch |= {"start_positions": draw(width, num_rows), "end_positions": draw(width, num_rows)}
        case BertForReplacedTokenDetection():
            batch["labels"] = draw(2, num_rows, width)
        case BertForMultipleChoice():
            batch = {name: rows.view(2, 2, width) for name, rows in batch.items()} | {"labels": draw(2, 2)}
    return batch


def without_labels(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: batch[name] for name in batch if name in ("input_ids", "attention_mask", "token_type_ids")}


def names_in(reference: Any) -> dict[str, str]:
    return next((names for end, names in OTHER_NAMES.items() if type(reference).__name__.endswith(end)), {}) or (
        {"prediction_logits": "logits"} if type(reference).__name__.endswith("WithLMHeadModel") else {}
    )


def outputs_of(reference: Any, batch: dict[str, Tensor]) -> Any:
    names = names_in(reference)
    return reference(**{names.get(name, name): tensor for name, tensor in batch.items()})


def assert_same_outputs(model: PretrainedModel, reference: Any, batch: dict[str, Tensor]) -> None:
    names = names_in(reference)
    ours, theirs = model(**batch), outputs_of(reference, batch)
    real = batch["attention_mask"].bool()
    compared = 0
    for name, tensor in vars(ours).items():
        if tensor is None:
            continue
        expected = theirs[names.get(name, name)]
        is_by_token = tensor.dim() == 3 or (isinstance(model, BertForReplacedTokenDetection) and name == "logits")
        if is_by_token:  # padding is zero here, and whatever it is there
            tensor, expected = tensor[real], expected[real]
        torch.testing.assert_close(tensor, expected, atol=1e-5, rtol=1e-5)
        compared += 1
    assert compared


@EVERY
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.heavy
@pytest.mark.core
def test_outputs_and_losses_agree(family: str, head: type[PretrainedModel], seed: int) -> None:
    model = random_model(family, head, seed).eval()
    reference, batch = reference_of(model), labeled_batch(model, seed)
    with torch.no_grad():
        assert_same_outputs(model, reference, without_labels(batch))
        assert_same_outputs(model, reference, batch)


@EVERY
@pytest.mark.heavy
@pytest.mark.core
def test_gradients_agree(family: str, head: type[PretrainedModel]) -> None:
    model = random_model(family, head, 3)
    reference, batch = reference_of(model), labeled_batch(model, 3)
    real = batch["attention_mask"].bool()
    for outputs in (model(**batch), outputs_of(reference, batch)):
        loss = outputs.last_hidden_state[real].square().mean() if head is BertModel else outputs.loss
        loss.backward()
    assert_equal_gradients(model, reference)


@EVERY
@pytest.mark.heavy
@pytest.mark.core
def test_folder_goes_there_and_back(family: str, head: type[PretrainedModel], tmp_path: Path) -> None:
    model = random_model(family, head, 4).eval()
    model.save_pretrained(tmp_path / "ours")
    architecture = getattr(transformers, model.config.family.architecture(head.__name__))
    theirs, info = architecture.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    with torch.no_grad():
        assert_same_outputs(model, theirs, without_labels(labeled_batch(model, 4)))
    theirs.save_pretrained(tmp_path / "theirs")
    again = head.from_pretrained(tmp_path / "theirs")
    assert again.config == model.config
    assert again.load_report is not None
    assert again.load_report.dropped == again.load_report.initialized == ()
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def as_published(folder: Path, prefixes: tuple[str, str], changes: dict[str, Any], absent: Sequence[str] = ()) -> None:
    """Give a folder the beginnings of names and the fields of the code before transformers had the family."""
    (folder / "manifest.json").unlink()
    values = json.loads((folder / "config.json").read_text())
    del values["rope_parameters"]
    (folder / "config.json").write_text(json.dumps(values | changes))
    weights = load_file(folder / "model.safetensors")
    found = {name.replace(*prefixes): weight for name, weight in weights.items() if name not in absent}
    save_file(found, folder / "model.safetensors")


def test_a_nomic_bert_as_it_was_published_is_the_same_model(tmp_path: Path) -> None:
    model = random_model("nomic_bert", BertForPreTraining, 1)
    for bias in (model.prediction.bias, model.prediction.transform.bias):
        torch.nn.init.zeros_(bias)
    model.save_pretrained(tmp_path)
    published = {"rotary_emb_base": 50.0, "rope_scaling": {"type": "linear", "factor": 2.5}}
    absent = ["cls.predictions.bias", "cls.predictions.transform.dense.bias"]
    as_published(tmp_path, ("nomic_bert.", "bert."), published, absent)
    again = BertForPreTraining.from_pretrained(tmp_path)
    assert again.config == replace(model.config, rotary_scaling_factor=2.5)
    assert again.load_report is not None
    assert again.load_report.dropped == again.load_report.initialized == ()
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in model.state_dict().items())


def test_a_gte_of_the_type_new_has_the_stretched_angles_it_was_trained_with(tmp_path: Path) -> None:
    """The reference is transformers' model with the frequencies of https://kexue.fm/archives/9706, equation 6."""
    model = random_model("gte", BertForPreTraining, 6).eval()
    model.save_pretrained(tmp_path)
    published = {"model_type": "new", "rope_theta": 50, "rope_scaling": {"type": "ntk", "factor": 2.0}}
    as_published(tmp_path, ("gte.", "new."), published)
    ours, theirs = BertForPreTraining.from_pretrained(tmp_path), reference_of(model)
    size = model.config.head_size
    theirs.gte.rotary_emb.inv_freq = (50 * 2.0) ** (-torch.arange(0, size, 2) / size) / 2.0 ** (2 / size)
    batch = without_labels(labeled_batch(model, 6))
    with torch.no_grad():
        assert_same_outputs(ours, theirs, batch)
        assert_same_outputs(ours, reference_of(ours), batch)


def test_transformers_passes_over_the_head_for_span_borders(tmp_path: Path) -> None:
    config = replace(random_config("bert", 5), span_boundary_objective=True)
    model = scattered(BertForPreTraining.from_config(config)).eval()
    model.save_pretrained(tmp_path)
    theirs, info = transformers.BertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert all(name.startswith("span_boundary.") for name in info["unexpected_keys"])
    assert not info["missing_keys"]
    with torch.no_grad():
        assert_same_outputs(model, theirs, without_labels(labeled_batch(model, 5)))
    again = BertForPreTraining.from_pretrained(tmp_path)
    assert again.config == model.config
    assert torch.equal(again.span_boundary.first.weight, model.span_boundary.first.weight)


def test_a_masked_token_head_of_deberta_is_read_under_its_old_names(tmp_path: Path) -> None:
    model = random_model("deberta-v2", BertForPreTraining, 6)
    legacy = transformers.DebertaV2ForMaskedLM(
        transformers.DebertaV2Config(**model.config.to_dict() | {"legacy": True})
    )
    scattered(legacy.eval()).save_pretrained(tmp_path)
    again = BertForPreTraining.from_pretrained(tmp_path)
    assert again.load_report is not None
    assert again.load_report.dropped == again.load_report.initialized == ()
    with torch.no_grad():
        assert_same_outputs(again, legacy, without_labels(labeled_batch(model, 6)))


SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Vielleicht auch naïve Umlaute: Ärger, 東京 and 1,234.56 €?",
    "no",
    "BERT was published in 2018; " * 20,
]


@pytest.mark.published
def test_published_weights_give_the_outputs_of_transformers(minilm_folder: Path) -> None:
    theirs = transformers.AutoModel.from_pretrained(minilm_folder, attn_implementation="eager").eval()
    ours = BertModel.from_pretrained(minilm_folder)
    assert ours.load_report is not None
    assert ours.load_report.dropped == ours.load_report.initialized == ()
    batch = transformers.AutoTokenizer.from_pretrained(minilm_folder)(SENTENCES, padding=True, return_tensors="pt")
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        found, expected = ours(**batch), theirs(**batch)
    torch.testing.assert_close(found.last_hidden_state[real], expected.last_hidden_state[real], atol=1e-5, rtol=0)
    torch.testing.assert_close(found.pooler_output, expected.pooler_output, atol=1e-5, rtol=0)


@pytest.mark.published
def test_the_published_tokenizer_gives_the_same_ids(minilm_folder: Path) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(minilm_folder)
    theirs.backend_tokenizer.no_truncation()
    found = Tokenizer.load(minilm_folder).encode_ids(SENTENCES)
    assert found == theirs(SENTENCES, add_special_tokens=False)["input_ids"]


@pytest.mark.published
def test_the_published_folder_written_here_is_the_same_model_there(minilm_folder: Path, tmp_path: Path) -> None:
    BertModel.from_pretrained(minilm_folder).save_pretrained(tmp_path)
    again = transformers.AutoModel.from_pretrained(tmp_path).state_dict()
    for name, tensor in transformers.AutoModel.from_pretrained(minilm_folder).state_dict().items():
        assert torch.equal(again[name], tensor), name
