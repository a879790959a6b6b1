"""Pairs of a tokenizer with two separators, from the corpus to the answer. Alone:
pytest tests/orchestrator/pretraining/test_byte_level_pairs.py"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bert_core.text.tokenizer_training import train_byte_bpe
from orchestrator.corpus.stream import SplitShards
from orchestrator.inference.pretraining_heads import next_sentence
from orchestrator.pretraining.streams import build_stream, build_validation
from orchestrator.results import Event, MetricEvent
from tests.orchestrator.pretraining.small_run import WORDS, make_job, make_store, run

pytestmark = pytest.mark.training


def test_a_bert_of_byte_level_pieces_is_pretrained_on_pairs(tmp_path: Path) -> None:
    tokenizer = train_byte_bpe([" ".join(WORDS)] * 20, vocab_size=320)
    job = make_job(tmp_path)
    store = make_store(tmp_path / "pieces", tokenizer)
    train, validation = SplitShards(store, "train"), SplitShards(store, "validation")
    stream = build_stream(job.spec, train, tokenizer)
    job = replace(job, tokenizer=tokenizer, stream=stream, validation=build_validation(job.spec, validation, tokenizer))

    ((_, batch),) = stream.batches(range(1))
    sequence = batch.input_ids[: batch.cu_seqlens[1]]
    assert sequence[0] == tokenizer.cls_id
    separators = np.flatnonzero(sequence == tokenizer.sep_id)
    assert len(separators) == 3
    assert separators[1] == separators[0] + 1
    assert separators[2] == len(sequence) - 1
    assert not batch.token_type_ids.any()  # as in what transformers is given for such a tokenizer

    events: list[Event] = []
    loop = run(job, events.append)
    losses = [e.values["loss"] for e in events if isinstance(e, MetricEvent) and e.split == "train"]
    assert losses[-1] < 0.8 * losses[0]

    folder = tmp_path / "model"
    loop.model.save_pretrained(folder)
    tokenizer.save(folder)
    texts = "badan kefel badan kefel", "kefel badan"
    theirs = transformers.BertForPreTraining.from_pretrained(folder).eval()
    with torch.no_grad():
        encoded = transformers.AutoTokenizer.from_pretrained(folder)(*texts, return_tensors="pt")
        expected = theirs(**encoded).seq_relationship_logits.softmax(-1)[0, 0].item()
    assert next_sentence(str(folder), *texts).probability == pytest.approx(expected, abs=1e-5)
