"""Windows agree with those that the transformers library makes of real pairs and passages.

Alone: pytest tests/orchestrator/tasks/test_features_reference.py
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core.tokenization import Tokenizer
from bert_core.tokenizer_training import train_wordpiece
from orchestrator.specs import TaskSpec
from orchestrator.tasks import Example, build_features, load_task
from tests.shared_data import shared_file


@pytest.fixture(scope="module")
def passages() -> list[Example]:
    spec = TaskSpec(id="squad", folder=str(shared_file("squad")), max_validation_examples=300)
    return list(load_task(spec).examples("validation"))


@pytest.fixture(scope="module")
def both(passages: list[Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any]:
    from transformers import AutoTokenizer

    folder: Path = tmp_path_factory.mktemp("tokenizer")
    tokenizer = train_wordpiece(sorted({example.context for example in passages}), vocab_size=2000)
    tokenizer.save(folder)
    return tokenizer, AutoTokenizer.from_pretrained(str(folder))


def test_passages_are_cut_into_the_same_windows(passages: list[Any], both: tuple[Tokenizer, Any]) -> None:
    tokenizer, reference = both
    num_windows = 0
    for example in passages:
        ours = build_features("qa", (), [example], tokenizer, max_seq_length=160, doc_stride=40)
        room = 160 - len(tokenizer.encode_ids([example.question])[0]) - 3
        theirs = reference(
            example.question,
            example.context,
            truncation="only_second",
            max_length=160,
            stride=room - 40,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        assert ours.input_ids.tolist() == [i for window in theirs["input_ids"] for i in window]
        assert ours.token_type_ids.tolist() == [i for window in theirs["token_type_ids"] for i in window]
        offsets = np.array([pair for window in theirs["offset_mapping"] for pair in window])
        on_passage = ours.offsets[:, 0] >= 0
        assert (ours.offsets[on_passage] == offsets[on_passage]).all()
        num_windows += ours.num_windows
    assert num_windows > len(passages), "some passage must be longer than a window"


def test_pairs_that_fit_become_the_same_tokens(both: tuple[Tokenizer, Any]) -> None:
    tokenizer, reference = both
    spec = TaskSpec(id="mrpc", folder=str(shared_file("glue/MRPC")))
    pairs: list[Any] = list(load_task(spec).examples("validation"))
    ours = build_features("classification", ("not_equivalent", "equivalent"), pairs, tokenizer, max_seq_length=512)
    theirs = reference([pair.text for pair in pairs], [pair.text_pair for pair in pairs])
    assert ours.counts["num_truncated"] == 0
    assert ours.input_ids.tolist() == [i for window in theirs["input_ids"] for i in window]
    assert ours.token_type_ids.tolist() == [i for window in theirs["token_type_ids"] for i in window]
