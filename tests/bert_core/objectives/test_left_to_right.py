"""Left-to-right language modeling: its labels, its loss, and what a token may see.

Alone: pytest tests/bert_core/objectives/test_left_to_right.py
"""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.examples.packing import PackedBatch
from bert_core.heads import BertForPreTraining
from bert_core.heads.pretraining import PretrainingLabels
from bert_core.model import BertModel
from bert_core.objectives import TOKEN_OBJECTIVES
from bert_core.objectives.packed_batches import build_packed_batch
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.packed_examples import MASKING, SEP, restored
from tests.bert_core.reference import scattered, small_config
from tests.bert_core.small_documents import BERT, all_examples, documents

CONFIG = small_config(vocab_size=50_000, max_position_embeddings=64, causal_attention=True)
NO_LABELS = PretrainingLabels(*(torch.empty(0, dtype=torch.long) for _ in range(3)))
OBJECTIVE = TOKEN_OBJECTIVES["left_to_right"]


@pytest.fixture(scope="module")
def model() -> PretrainedModel:
    return scattered(BertForPreTraining.from_config(CONFIG)).eval()


def batch_of(name: str = "left_to_right", *, num_examples: int = 12, cross_documents: bool = False) -> PackedBatch:
    docs, only = documents(), np.arange(num_examples)
    _, segments = all_examples(docs, 48, "none", cross_documents=cross_documents, only=only)
    return build_packed_batch(docs, segments, MASKING, layout=BERT, seed=1, epoch=0, example=only, token_objective=name)


def packed(batch: PackedBatch) -> PackedSequences:
    return PackedSequences.from_numpy(batch.input_ids, batch.token_type_ids, batch.cu_seqlens)


@pytest.mark.parametrize("cross_documents", [False, True])
def test_tokens_are_read_as_they_are_and_all_but_the_first_are_predicted(cross_documents: bool) -> None:
    options = {"num_examples": 60, "cross_documents": cross_documents}
    own, masked = (batch_of(name, **options) for name in ("left_to_right", "masked_lm"))
    assert (own.input_ids == restored(masked)).all()
    assert (len(own.masked_positions), len(own.masked_labels)) == (0, 0)
    assert OBJECTIVE.num_predictions(own) == sum(np.diff(own.cu_seqlens) - 1)
    assert ((own.input_ids == SEP).sum() > own.num_sequences) == cross_documents


@pytest.mark.parametrize("cross_documents", [False, True])
@pytest.mark.heavy
def test_the_loss_is_that_of_the_padded_logits(model: BertForPreTraining, cross_documents: bool) -> None:
    seqs = packed(batch_of(cross_documents=cross_documents))
    with torch.no_grad():
        sums = model.packed_loss_sums(seqs, NO_LABELS, ["left_to_right"])["left_to_right"]
        rows = seqs.unpack(seqs.input_ids)  # (B, S)
        logits = model(rows, seqs.attention_mask).prediction_logits  # (B, S, V)
    targets = rows.masked_fill(~seqs.attention_mask, -100)[:, 1:]
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), targets.flatten(), reduction="sum")
    torch.testing.assert_close(sums.loss, expected, rtol=1e-5, atol=1e-3)
    assert float(sums.num_predictions) == int((targets != -100).sum())
    assert float(sums.num_correct) == int((logits[:, :-1].argmax(-1) == targets).sum())


def test_its_folder_has_the_weights_of_a_masked_model(model: BertForPreTraining, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    again = BertForPreTraining.from_pretrained(tmp_path)
    assert again.config.causal_attention
    assert again.load_report is not None
    assert not again.load_report.initialized
    assert again.state_dict().keys() == BertForPreTraining.from_config(small_config(vocab_size=50)).state_dict().keys()
    encoder = BertModel.from_pretrained(tmp_path)
    assert torch.equal(encoder.embeddings.word.weight, model.bert.embeddings.word.weight)
