"""The token head with a CRF: its loss, what it learns and decodes, its folder. `test_heads.py` has the softmax.

Run alone: pytest tests/bert_core/test_token_classification.py
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bert_core.heads import BertForTokenClassification
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
