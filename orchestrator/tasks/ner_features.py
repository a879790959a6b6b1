"""Sentences of words as tokens; a tag belongs to its word's first sub-token (Devlin et al. 2019, section 5.3).

A sentence longer than a window is split between words, so that every word is tagged. A word that the tokenizer drops
(control characters, say) becomes `[UNK]`, a word longer than a window loses its end.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from bert_core.masking import IGNORED
from bert_core.tokenization import Tokenizer
from orchestrator.tasks.examples import NerExample
from orchestrator.tasks.windows import Windows, cumulative


def build_ner_windows(
    examples: Sequence[NerExample], labels: Sequence[str], tokenizer: Tokenizer, max_seq_length: int
) -> Windows:
    """Windows of whole words in order; together they hold every word once."""
    number = {label: i for i, label in enumerate(labels)}
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    input_ids: list[int] = []
    word_starts: list[int] = []
    tags: list[int] = []
    lengths: list[int] = []
    example_index: list[int] = []
    num_split = 0
    for index, example in enumerate(examples):
        pieces = [piece[: max_seq_length - 2] for piece in _word_pieces(tokenizer, example.words)]
        windows = list(_fill_windows(pieces, max_seq_length - 2))
        num_split += len(windows) > 1
        for window in windows:
            begin = len(input_ids)
            input_ids.append(cls)
            for piece in window:
                word_starts.append(len(input_ids))
                input_ids.extend(piece)
            input_ids.append(sep)
            lengths.append(len(input_ids) - begin)
            example_index.append(index)
        tags.extend(number[tag] for tag in example.tags)
        tags.extend([IGNORED] * (len(example.words) - len(example.tags)))
    token_labels = np.full(len(input_ids), IGNORED, np.int32)
    token_labels[word_starts] = tags
    return Windows(
        arrays={
            "input_ids": np.array(input_ids, np.int32),
            "token_type_ids": np.zeros(len(input_ids), np.int8),
            "cu_seqlens": cumulative(np.array(lengths, np.int64)),
            "example_index": np.array(example_index, np.int32),
            "token_labels": token_labels,
            "word_starts": np.array(word_starts, np.int64),
            "num_words": np.array([len(example.words) for example in examples], np.int32),
        },
        counts={"num_split": num_split, "num_words": len(word_starts)},
    )


def _word_pieces(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """The ids of each word, at least one."""
    ids, first = tokenizer.encode_words(words)
    present = [position for position in first if position >= 0]
    ends = dict(zip(present, chain(present[1:], [len(ids)]), strict=True))
    return [ids[position : ends[position]] if position >= 0 else [tokenizer.unk_id] for position in first]


def _fill_windows(pieces: Sequence[list[int]], budget: int) -> Iterator[list[list[int]]]:
    """Words in order, as many to a window as fit."""
    window: list[list[int]] = []
    used = 0
    for piece in pieces:
        if used + len(piece) > budget:
            yield window
            window, used = [], 0
        window.append(piece)
        used += len(piece)
    yield window
