"""Named entity recognition: tags on first sub-tokens, there and back.

Alone: pytest tests/orchestrator/tasks/types/test_ner.py
"""

from typing import Any

import numpy as np

from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks import (
    TaskDefinition,
    decode,
)
from orchestrator.tasks.types.conll import NerExample
from orchestrator.tasks.types.ner import TagsPrediction
from tests.orchestrator.tasks.definitions import define, features_of


def make_task(head: Any, *labels: str) -> TaskDefinition:
    return define(head, labels)


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


def test_tags_are_those_of_first_sub_tokens_over_all_windows(tokenizer: Tokenizer) -> None:
    task = make_task("ner", "O", "B-PER", "I-PER")
    rng = np.random.default_rng(0)
    tags = [tuple(rng.choice(task.labels, size=size)) for size in (40, 1, 3)]
    examples = [NerExample(str(i), ("Lovelace",) * len(tags[i]), tags[i]) for i in range(3)]
    features = features_of(task.head, task.labels, examples, tokenizer, max_seq_length=16)
    numbers = np.where(features.head_arrays.token_labels < 0, 2, features.head_arrays.token_labels)
    assert features.num_windows > 3
    assert decode(task, features, examples, numbers) == [TagsPrediction(t) for t in tags]
    assert decode(task, features, examples, np.eye(3)[numbers]) == [TagsPrediction(t) for t in tags]
