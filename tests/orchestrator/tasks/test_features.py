"""Features: what stands in a window, where labels stand, and how long inputs are cut or split.

Alone: pytest tests/orchestrator/tasks/test_features.py
"""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError, TaskDataError
from orchestrator.tasks import Features, TabularColumns
from orchestrator.tasks.text_windows import truncate_longest_first
from orchestrator.tasks.types.classification import ClassificationExample
from orchestrator.tasks.types.conll import NerExample
from orchestrator.tasks.types.multiple_choice import MultipleChoiceExample
from orchestrator.tasks.types.qa_windows import passage_windows
from orchestrator.tasks.types.regression import RegressionExample
from orchestrator.tasks.types.squad import Answer, QaExample
from tests.orchestrator.tasks.definitions import features_of

CONTEXT = "Ada Lovelace wrote to Charles Babbage in London about the engine. It rained for nine days near Oslo."


def window_texts(features: Features, tokenizer: Tokenizer) -> list[str]:
    bounds = zip(features.cu_seqlens[:-1], features.cu_seqlens[1:], strict=True)
    return [tokenizer.decode(features.input_ids[a:b].tolist(), skip_special_tokens=False) for a, b in bounds]


def test_sentences_and_pairs_become_windows(tokenizer: Tokenizer) -> None:
    examples = [ClassificationExample("0", "The house", None, "b"), ClassificationExample("1", "a river", "the", "a")]
    features = features_of("classification", ("a", "b"), examples, tokenizer, max_seq_length=32)
    assert window_texts(features, tokenizer) == ["[CLS] the house [SEP]", "[CLS] a river [SEP] the [SEP]"]
    assert features.token_type_ids[features.cu_seqlens[1] :].tolist()[-2:] == [1, 1]
    assert features.token_type_ids.sum() == 2
    assert features.head_arrays.labels.tolist() == [1, 0]
    assert features.example_index.tolist() == [0, 1]


def test_special_tokens_written_in_a_text_are_text(tokenizer: Tokenizer) -> None:
    features = features_of(
        "classification", ("a", "b"), [ClassificationExample("0", "[SEP]")], tokenizer, max_seq_length=32
    )
    assert np.count_nonzero(features.input_ids == tokenizer.sep_id) == 1


def test_missing_labels_are_left_out_of_a_loss(tokenizer: Tokenizer) -> None:
    named = features_of("classification", ("a", "b"), [ClassificationExample("0", "x")], tokenizer, max_seq_length=8)
    valued = features_of("regression", (), [RegressionExample("0", "x")], tokenizer, max_seq_length=8)
    tagged = features_of("ner", ("O", "B-PER"), [NerExample("0", ("Ada",))], tokenizer, max_seq_length=8)
    assert named.head_arrays.labels.tolist() == [-100]
    assert np.isnan(valued.head_arrays.labels).all()
    assert set(tagged.head_arrays.token_labels.tolist()) == {-100}


def test_values_are_kept(tokenizer: Tokenizer) -> None:
    features = features_of("regression", (), [RegressionExample("0", "x", "y", 2.5)], tokenizer, max_seq_length=8)
    assert features.head_arrays.labels.dtype == np.float32
    assert features.head_arrays.labels.tolist() == [2.5]


def test_choices_are_windows_that_stay_together(tokenizer: Tokenizer) -> None:
    examples = [
        MultipleChoiceExample("0", "The house", ("a river", "the"), 1),
        MultipleChoiceExample("1", "a river " * 9, ("the", "the house")),
    ]
    features = features_of("multiple_choice", (), examples, tokenizer, max_seq_length=12)
    texts = window_texts(features, tokenizer)
    assert texts[:2] == ["[CLS] the house [SEP] a river [SEP]", "[CLS] the house [SEP] the [SEP]"]
    assert features.example_index.tolist() == [0, 0, 1, 1]
    assert features.head_arrays.labels.tolist() == [1, -100]
    assert features.counts["num_truncated"] == 1
    assert (features.group_size, len(features.group_lengths)) == (2, 2)
    assert features.group_lengths.sum() == len(features.input_ids)
    assert features.windows_of(np.array([1, 0])).tolist() == [2, 3, 0, 1]


def test_groups_of_other_tasks_are_windows(tokenizer: Tokenizer) -> None:
    features = features_of("qa", (), [QaExample("0", "who", CONTEXT)], tokenizer, max_seq_length=16, doc_stride=4)
    assert features.num_windows > 1
    assert features.group_lengths.tolist() == features.lengths.tolist()
    assert features.windows_of(np.array([1, 0])).tolist() == [1, 0]


def test_own_columns_stand_beside_the_tokens(tokenizer: Tokenizer) -> None:
    examples = [RegressionExample("0", "x", numbers=(size,)) for size in (1.0, 3.0, None)]
    columns = TabularColumns.learn(("size",), (), examples)
    features = features_of("regression", (), examples, tokenizer, max_seq_length=8, columns=columns)
    assert features.head_arrays.tabular_features.tolist() == [[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]


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


def test_long_texts_fill_their_window_and_are_counted(tokenizer: Tokenizer) -> None:
    examples = [
        ClassificationExample("0", "the house " * 30, "a river " * 30, "a"),
        ClassificationExample("1", "the house " * 30, None, "a"),
        ClassificationExample("2", "the house", None, "a"),
    ]
    features = features_of("classification", ("a", "b"), examples, tokenizer, max_seq_length=16)
    assert features.lengths.tolist()[:2] == [16, 16]
    assert features.counts["num_truncated"] == 2


def test_tags_stand_on_first_sub_tokens(tokenizer: Tokenizer) -> None:
    example = NerExample("0", ("Zyzzogeton", "\x07", "saw", "Ada"), ("B-PER", "O", "O", "B-PER"))
    features = features_of("ner", ("O", "B-PER"), [example], tokenizer, max_seq_length=64)
    assert features.head_arrays.token_labels[features.head_arrays.word_starts].tolist() == [1, 0, 0, 1]
    assert np.count_nonzero(features.head_arrays.token_labels != -100) == len(example.words)
    assert features.input_ids[features.head_arrays.word_starts[1]] == tokenizer.unk_id
    assert features.head_arrays.word_starts[0] == 1


def test_a_long_sentence_is_split_between_words_and_loses_none(tokenizer: Tokenizer) -> None:
    words = tuple(f"{word}{number}" for number in range(20) for word in ("Lovelace", "river", "extraordinarylongword"))
    examples = [NerExample("0", words, ("O",) * 60), NerExample("1", ("Ada",), ("B-PER",))]
    features = features_of("ner", ("O", "B-PER"), examples, tokenizer, max_seq_length=12)
    assert features.lengths.max() <= 12
    assert features.head_arrays.num_words.tolist() == [60, 1]
    assert len(features.head_arrays.word_starts) == 61
    assert (np.diff(features.head_arrays.word_starts) > 0).all()
    assert features.example_index.tolist() == [0] * (features.num_windows - 1) + [1]
    assert features.counts["num_split"] == 1
    assert set(features.input_ids[features.cu_seqlens[:-1]]) == {tokenizer.cls_id}


def answer_at(text: str) -> Answer:
    return Answer(text, CONTEXT.index(text))


def read_answers(features: Features, contexts: Sequence[str]) -> list[str]:
    """The text between start and end position of each window, empty where they point at [CLS]."""
    texts = []
    for window, example in enumerate(features.example_index):
        first, last = features.head_arrays.start_positions[window], features.head_arrays.end_positions[window]
        begin = features.cu_seqlens[window]
        found = contexts[example][
            features.head_arrays.offsets[begin + first, 0] : features.head_arrays.offsets[begin + last, 1]
        ]
        texts.append(found if first else "")
    return texts


@pytest.mark.parametrize("text", ["Ada", "Charles Babbage", "engine", "nine days near Oslo", "Oslo."])
def test_answer_positions_lead_back_to_the_answer(tokenizer: Tokenizer, text: str) -> None:
    examples = [QaExample("0", "Who wrote?", CONTEXT, (answer_at(text),)), QaExample("1", "Who?", CONTEXT)]
    features = features_of("qa", (), examples, tokenizer, max_seq_length=256)
    assert read_answers(features, [CONTEXT, CONTEXT]) == [text, ""]
    assert features.counts["num_misaligned"] == 0


def test_windows_of_a_passage_hold_the_question_and_only_a_whole_answer(tokenizer: Tokenizer) -> None:
    example = QaExample("0", "who wrote about it", CONTEXT, (answer_at("Charles Babbage"),))
    features = features_of("qa", (), [example], tokenizer, max_seq_length=16, doc_stride=4, max_query_length=3)
    assert features.num_windows > 2
    assert features.lengths.max() <= 16
    answers = read_answers(features, [CONTEXT])
    assert set(answers) == {"Charles Babbage", ""}
    question = tokenizer.encode_ids(["who wrote about it"])[0][:3]
    for begin in features.cu_seqlens[:-1]:
        assert features.input_ids[begin : begin + 5].tolist() == [tokenizer.cls_id, *question, tokenizer.sep_id]
    on_passage = features.head_arrays.offsets[:, 0] >= 0
    assert (features.token_type_ids[on_passage] == 1).all()
    assert np.count_nonzero(features.token_type_ids) == np.count_nonzero(on_passage) + features.num_windows


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 30))
def test_passage_windows_cover_every_token_and_none_is_needless(num_tokens: int, room: int, stride: int) -> None:
    windows = list(passage_windows(num_tokens, room, stride))
    assert set().union(*(range(begin, end) for begin, end in windows)) == set(range(num_tokens))
    assert all(end - begin <= room for begin, end in windows)
    assert [end for _, end in windows] == sorted({end for _, end in windows})


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
