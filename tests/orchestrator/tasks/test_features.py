"""Features: missing labels, groups of windows, lengths that leave no room, truncation.

Alone: pytest tests/orchestrator/tasks/test_features.py
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError, TaskDataError
from orchestrator.tasks.text_windows import truncate_longest_first
from orchestrator.tasks.types.classification import ClassificationExample
from orchestrator.tasks.types.conll import NerExample
from orchestrator.tasks.types.regression import RegressionExample
from orchestrator.tasks.types.squad import QaExample
from tests.orchestrator.tasks.definitions import features_of

CONTEXT = "Ada Lovelace wrote to Charles Babbage in London about the engine. It rained for nine days near Oslo."


def test_missing_labels_are_left_out_of_a_loss(tokenizer: Tokenizer) -> None:
    named = features_of("classification", ("a", "b"), [ClassificationExample("0", "x")], tokenizer, max_seq_length=8)
    valued = features_of("regression", (), [RegressionExample("0", "x")], tokenizer, max_seq_length=8)
    tagged = features_of("ner", ("O", "B-PER"), [NerExample("0", ("Ada",))], tokenizer, max_seq_length=8)
    assert named.head_arrays.labels.tolist() == [-100]
    assert np.isnan(valued.head_arrays.labels).all()
    assert set(tagged.head_arrays.token_labels.tolist()) == {-100}


def test_groups_of_other_tasks_are_windows(tokenizer: Tokenizer) -> None:
    features = features_of("qa", (), [QaExample("0", "who", CONTEXT)], tokenizer, max_seq_length=16, doc_stride=4)
    assert features.num_windows > 1
    assert features.group_lengths.tolist() == features.lengths.tolist()
    assert features.windows_of(np.array([1, 0])).tolist() == [1, 0]


def pop_longest(a: int, b: int, budget: int) -> tuple[int, int]:
    while a + b > budget:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 25)), min_size=1))
def test_truncation_takes_tokens_one_by_one_from_the_longer_text(cases: list[tuple[int, int, int]]) -> None:
    a, b, budget = (np.array(column) for column in zip(*cases, strict=True))
    kept = truncate_longest_first(a, b, budget)
    assert list(zip(*(side.tolist() for side in kept), strict=True)) == [pop_longest(*case) for case in cases]


def test_token_index_gathers_windows_in_the_order_asked_for(tokenizer: Tokenizer) -> None:
    texts = ["the house", "a river near Oslo", "the engine drives"]
    examples = [ClassificationExample(str(i), text, None, "a") for i, text in enumerate(texts)]
    features = features_of("classification", ("a", "b"), examples, tokenizer, max_seq_length=32)
    bounds = features.cu_seqlens
    expected = [i for window in (2, 0, 2) for i in range(bounds[window], bounds[window + 1])]
    assert features.token_index(np.array([2, 0, 2])).tolist() == expected


def test_lengths_that_leave_no_room_are_named(tokenizer: Tokenizer) -> None:
    question = QaExample("0", "who wrote about it", CONTEXT)
    with pytest.raises(SpecError, match=r"max_seq_length 8 leaves no room for a passage.*max_query_length"):
        features_of("qa", (), [question], tokenizer, max_seq_length=8)
    with pytest.raises(SpecError, match="max_seq_length 3 leaves no room"):
        features_of("ner", ("O",), [NerExample("0", ("a",))], tokenizer, max_seq_length=3)
    with pytest.raises(TaskDataError, match="no example to tokenize"):
        features_of("ner", ("O",), [], tokenizer, max_seq_length=8)
