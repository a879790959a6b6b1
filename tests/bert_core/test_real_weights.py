"""A published model's weights, here and in transformers. Run alone: pytest tests/bert_core/test_real_weights.py"""

from pathlib import Path

import pytest
import torch
import transformers

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.heads import BertForSequenceClassification, BertForTokenClassification
from bert_core.model import BertModel
from bert_core.text.tokenization import Tokenizer

pytestmark = pytest.mark.published

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Vielleicht auch naïve Umlaute: Ärger, 東京 and 1,234.56 €?",
    "no",
    "BERT was published in 2018; " * 20,
]


def test_outputs_equal_those_of_transformers(minilm_folder: Path) -> None:
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


def test_tokenizer_gives_the_same_ids(minilm_folder: Path) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(minilm_folder)
    theirs.backend_tokenizer.no_truncation()
    found = Tokenizer.load(minilm_folder).encode_ids(SENTENCES)
    assert found == theirs(SENTENCES, add_special_tokens=False)["input_ids"]


def test_folder_written_here_is_the_same_model_there(minilm_folder: Path, tmp_path: Path) -> None:
    BertModel.from_pretrained(minilm_folder).save_pretrained(tmp_path)
    again = transformers.AutoModel.from_pretrained(tmp_path).state_dict()
    for name, tensor in transformers.AutoModel.from_pretrained(minilm_folder).state_dict().items():
        assert torch.equal(again[name], tensor), name


@pytest.mark.parametrize("head", [BertForSequenceClassification, BertForTokenClassification])
def test_head_starts_on_the_published_encoder(head: type[PretrainedModel], minilm_folder: Path) -> None:
    model = head.from_pretrained(minilm_folder)
    assert model.load_report is not None
    assert model.load_report.initialized == ("classifier.weight", "classifier.bias")
    encoder = BertModel.from_pretrained(minilm_folder)
    assert torch.equal(model.bert.layers[5].qkv.weight, encoder.layers[5].qkv.weight)
