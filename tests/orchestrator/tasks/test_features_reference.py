"""Windows agree with those of transformers. Alone: pytest tests/orchestrator/tasks/test_features_reference.py"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import TRAINERS
from orchestrator.specs import TaskSpec
from orchestrator.tasks import load_task
from orchestrator.tasks.types.squad import QaExample
from tests.orchestrator.tasks.definitions import features_of
from tests.shared_data import shared_file

Both = tuple[Tokenizer, Any]


@pytest.fixture(scope="module")
def passages() -> list[QaExample]:
    spec = TaskSpec(id="squad", folder=str(shared_file("squad")), max_validation_examples=300)
    return list(load_task(spec).examples("validation"))


@pytest.fixture(scope="module", params=TRAINERS)
def both(request: pytest.FixtureRequest, passages: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A tokenizer of each kind, and the one that transformers reads from its folder."""
    from transformers import AutoTokenizer

    folder: Path = tmp_path_factory.mktemp("tokenizer")
    texts = sorted({example.context for example in passages})
    tokenizer = TRAINERS[request.param](texts, 2000, request.param != "byte_bpe", 2)
    tokenizer.save(folder)
    return tokenizer, AutoTokenizer.from_pretrained(str(folder))


@pytest.mark.heavy
def test_passages_are_cut_into_the_same_windows(passages: list[Any], both: Both) -> None:
    tokenizer, reference = both
    num_windows = 0
    for example in passages:
        ours = features_of("qa", (), [example], tokenizer, max_seq_length=160, doc_stride=40)
        room = 160 - len(tokenizer.encode_ids([example.question])[0]) - tokenizer.segment_layout.num_pair_specials
        theirs = reference(
            example.question,
            example.context,
            truncation="only_second",
            max_length=160,
            stride=room - 40,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
        )
        assert ours.input_ids.tolist() == [i for window in theirs["input_ids"] for i in window]
        assert ours.token_type_ids.tolist() == [i for window in theirs["token_type_ids"] for i in window]
        offsets = np.array([pair for window in theirs["offset_mapping"] for pair in window])
        # The library leaves the space with the word that a window of byte-level BPE begins with.
        offsets[:, 0] += [example.context[start:end].startswith(" ") for start, end in offsets]
        on_passage = ours.head_arrays.offsets[:, 0] >= 0
        assert (ours.head_arrays.offsets[on_passage] == offsets[on_passage]).all()
        num_windows += ours.num_windows
    assert num_windows > len(passages), "some passage must be longer than a window"


@pytest.mark.parametrize("max_seq_length", [512, 39, 40])
@pytest.mark.heavy
def test_pairs_become_the_same_tokens(both: Both, max_seq_length: int) -> None:
    """Where an odd number of tokens is shared evenly, the first text has one more, as in BERT's code."""
    tokenizer, reference = both
    spec = TaskSpec(id="mrpc", folder=str(shared_file("glue/MRPC")))
    pairs: list[Any] = list(load_task(spec).examples("validation"))
    ours = features_of(
        "classification", ("not_equivalent", "equivalent"), pairs, tokenizer, max_seq_length=max_seq_length
    )
    even = (max_seq_length - tokenizer.segment_layout.num_pair_specials) % 2 == 0
    assert (ours.counts["num_truncated"] == 0) == (max_seq_length == 512)
    num_equal = 0
    for window, pair in enumerate(pairs):
        theirs = reference(
            pair.text, pair.text_pair, truncation="longest_first", max_length=max_seq_length, return_token_type_ids=True
        )
        tokens = slice(ours.cu_seqlens[window], ours.cu_seqlens[window + 1])
        equal = ours.input_ids[tokens].tolist() == theirs["input_ids"]
        assert not equal or ours.token_type_ids[tokens].tolist() == theirs["token_type_ids"]
        assert len(theirs["input_ids"]) == ours.lengths[window]
        num_equal += equal
    assert num_equal == len(pairs) or not even
