"""Numbers beside the text in a sequence classifier: they count, are asked for, and transformers fails loudly.

Alone: pytest tests/bert_core/test_tabular_features.py
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from bert_core.config import BertConfig
from bert_core.errors import ConfigError, DataError
from bert_core.heads import BertForSequenceClassification

CONFIG = BertConfig.from_size("tiny", vocab_size=40, num_tabular_features=3)
IDS = torch.tensor([[2, 7, 9, 3], [2, 8, 3, 0]])
MASK = IDS != 0
FEATURES = torch.tensor([[0.0, 1.0, -1.0], [2.0, 0.0, 0.5]])


def test_logits_depend_on_the_numbers_of_their_own_row_alone() -> None:
    model = BertForSequenceClassification.from_config(CONFIG).eval()
    before = model(IDS, MASK, tabular_features=FEATURES).logits
    changed = FEATURES.clone()
    changed[1] += 1.0
    after = model(IDS, MASK, tabular_features=changed).logits
    torch.testing.assert_close(after[0], before[0])
    assert not torch.allclose(after[1], before[1])


def test_logits_are_those_of_one_layer_over_text_and_numbers() -> None:
    model = BertForSequenceClassification.from_config(CONFIG).eval()
    pooled = model.bert(IDS, MASK).pooler_output
    inner = torch.nn.functional.gelu(torch.cat([pooled, FEATURES], 1) @ model.combine.weight.T + model.combine.bias)
    expected = inner @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(IDS, MASK, tabular_features=FEATURES).logits, expected)


@pytest.mark.parametrize(
    ("tabular_features", "message"),
    [(None, r"shape None; this model reads \(2, 3\)"), (FEATURES[:1], r"shape \(1, 3\); this model reads \(2, 3\)")],
)
def test_numbers_that_do_not_fit_are_refused(tabular_features: torch.Tensor | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        BertForSequenceClassification.from_config(CONFIG)(IDS, MASK, tabular_features=tabular_features)


def test_a_model_of_text_alone_reads_no_numbers() -> None:
    model = BertForSequenceClassification.from_config(replace(CONFIG, num_tabular_features=0))
    assert "combine.weight" not in model.state_dict()
    with pytest.raises(DataError, match="this model reads None"):
        model(IDS, MASK, tabular_features=FEATURES)


def test_a_folder_comes_back_here_and_fails_loudly_in_transformers(tmp_path: Path) -> None:
    model = BertForSequenceClassification.from_config(CONFIG).eval()
    model.save_pretrained(tmp_path)
    again = BertForSequenceClassification.from_pretrained(tmp_path)
    torch.testing.assert_close(
        again(IDS, MASK, tabular_features=FEATURES).logits, model(IDS, MASK, tabular_features=FEATURES).logits
    )
    with pytest.raises(ValueError, match="bert_core"):
        transformers.AutoConfig.from_pretrained(tmp_path)


def test_a_negative_number_of_features_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_tabular_features is -1"):
        replace(CONFIG, num_tabular_features=-1)
