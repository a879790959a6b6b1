"""The head over sentences: against a token classifier of transformers, its loss, its folders in every family.

Alone: pytest tests/bert_core/heads/test_sentence_selection.py
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from bert_core.config import BertConfig
from bert_core.errors import ConfigError
from bert_core.families import FAMILIES
from bert_core.heads.sentence_selection import BertForSentenceSelection
from tests.bert_core.reference import ragged_batch, scattered, small_config

CONFIG = small_config()
BATCH = ragged_batch(CONFIG, [9, 4, 12], 13)
LABELS = torch.full((3, 13), -100)
LABELS[[0, 0, 1, 2, 2], [0, 4, 0, 0, 7]] = torch.tensor([1, 0, 0, 0, 1])


def model() -> BertForSentenceSelection:
    made = scattered(BertForSentenceSelection.from_config(CONFIG))
    assert isinstance(made, BertForSentenceSelection)
    return made


def test_the_loss_is_the_mean_over_the_labeled_tokens() -> None:
    output = model()(**BATCH, labels=LABELS)
    is_labeled = LABELS != -100
    expected = F.binary_cross_entropy(output.logits.sigmoid()[is_labeled], LABELS[is_labeled].float())
    torch.testing.assert_close(output.loss, expected)


def test_without_labels_there_are_logits_alone_zero_at_padding() -> None:
    output = model()(**BATCH)
    assert output.loss is None
    assert output.logits.shape == (3, 13)
    assert not output.logits[BATCH["attention_mask"] == 0].any()


def test_a_causal_encoder_is_refused() -> None:
    with pytest.raises(ConfigError, match="causal_attention"):
        BertForSentenceSelection.from_config(replace(CONFIG, causal_attention=True))


@pytest.mark.parametrize("family", [*FAMILIES, "modern"])
def test_a_folder_gives_the_same_logits_in_every_family(family: str, tmp_path: Path) -> None:
    config = BertConfig.from_size("2x128", family=family, vocab_size=53).with_dropout(0.0)
    saved = scattered(BertForSentenceSelection.from_config(config, seed=3)).eval()
    saved.save_pretrained(tmp_path)
    again = BertForSentenceSelection.from_pretrained(tmp_path)
    assert again.load_report is not None
    assert (again.load_report.dropped, again.load_report.initialized) == ((), ())
    batch = ragged_batch(config, [5, 8], 8)
    assert torch.equal(again(**batch).logits, saved(**batch).logits)


def test_transformers_reads_the_folder_as_a_token_classifier_of_one_class(tmp_path: Path) -> None:
    import transformers

    made = model().eval()
    made.save_pretrained(tmp_path)
    theirs = transformers.BertForTokenClassification.from_pretrained(tmp_path).eval()
    logits = theirs(**BATCH).logits.squeeze(-1)
    real = BATCH["attention_mask"].bool()
    torch.testing.assert_close(made(**BATCH).logits[real], logits[real], atol=1e-5, rtol=1e-4)
