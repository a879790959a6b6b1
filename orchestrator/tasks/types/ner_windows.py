"""Sentences of words as tokens; a tag belongs to its word's first sub-token (Devlin et al. 2019, section 5.3).

A sentence longer than a window is split between words, so that every word is tagged. A word that the tokenizer drops
(control characters, say) becomes `[UNK]`, a word longer than a window loses its end.

With the context of the document ("the maximal document context provided by the data", same section) a window is filled
with the tokens before and after its words, as evenly as the document allows; tokens of the context have no tag.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby

import numpy as np
from numpy.typing import NDArray

from bert_core.constants import IGNORE_INDEX
from bert_core.text.tokenization import Tokenizer
from orchestrator.specs.recipe import Context
from orchestrator.tasks.features import PER_EXAMPLE, PER_TOKEN, TOKEN_PLACES, HeadArrays, Windows
from orchestrator.tasks.token_windows import cumulative, fill_windows
from orchestrator.tasks.types.conll import NerExample


@dataclass(frozen=True)
class NerArrays(HeadArrays):
    """First tokens of words, and the words' tags. T tokens, K words, N examples."""

    token_labels: NDArray[np.int32] = field(metadata=PER_TOKEN)
    """(T,) tag numbers on first sub-tokens, -100 elsewhere and where tags are not known."""
    word_starts: NDArray[np.int64] = field(metadata=TOKEN_PLACES)
    """(K,) the first sub-token of each word of the split, in order."""
    num_words: NDArray[np.int32] = field(metadata=PER_EXAMPLE)
    """(N,) the number of each sentence's words."""


def build_ner_windows(
    examples: Sequence[NerExample],
    labels: Sequence[str],
    tokenizer: Tokenizer,
    max_seq_length: int,
    context: Context = "sentence",
) -> Windows[NerArrays]:
    """Windows of whole words in order; together they tag every word once."""
    number = {label: i for i, label in enumerate(labels)}
    budget = max_seq_length - 2
    input_ids: list[int] = []
    word_starts: list[int] = []
    tags: list[int] = []
    lengths: list[int] = []
    example_index: list[int] = []
    num_split = 0
    for document in _documents(examples):
        sentences = [[piece[:budget] for piece in _word_pieces(tokenizer, examples[i].words)] for i in document]
        tokens = list(chain.from_iterable(chain.from_iterable(sentences)))
        end = 0
        for index, pieces in zip(document, sentences, strict=True):
            example = examples[index]
            tags.extend(number[tag] for tag in example.tags)
            tags.extend([IGNORE_INDEX] * (len(example.words) - len(example.tags)))
            windows = list(fill_windows(pieces, budget))
            num_split += len(windows) > 1
            for window in windows:
                begin, end = end, end + sum(map(len, window))
                room = budget - (end - begin) if context == "document" else 0
                first, last = _widen(begin, end, room, len(tokens))
                place = len(input_ids) + 1 + begin - first
                for piece in window:
                    word_starts.append(place)
                    place += len(piece)
                input_ids += [tokenizer.cls_id, *tokens[first:last], tokenizer.sep_id]
                lengths.append(2 + last - first)
                example_index.append(index)
    token_labels = np.full(len(input_ids), IGNORE_INDEX, np.int32)
    token_labels[word_starts] = tags
    return Windows(
        input_ids=np.array(input_ids, np.int32),
        token_type_ids=np.zeros(len(input_ids), np.int8),
        cu_seqlens=cumulative(np.array(lengths, np.int64)),
        example_index=np.array(example_index, np.int32),
        head_arrays=NerArrays(
            token_labels=token_labels,
            word_starts=np.array(word_starts, np.int64),
            num_words=np.array([len(example.words) for example in examples], np.int32),
        ),
        counts={"num_split": num_split, "num_words": len(word_starts)},
    )


def _documents(examples: Sequence[NerExample]) -> Iterator[list[int]]:
    """The indices of each document's sentences; a sentence of no document is alone."""
    for document, group in groupby(range(len(examples)), key=lambda index: examples[index].document):
        indices = list(group)
        yield from [[index] for index in indices] if document is None else [indices]


def _word_pieces(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """The ids of each word, at least one."""
    ids, first = tokenizer.encode_words(words)
    present = [position for position in first if position >= 0]
    ends = dict(zip(present, [*present[1:], len(ids)], strict=False))  # no word may be present
    return [ids[position : ends[position]] if position >= 0 else [tokenizer.unk_id] for position in first]


def _widen(begin: int, end: int, room: int, num_tokens: int) -> tuple[int, int]:
    """A span of a document with up to `room` more tokens, half of them on each side where there are so many.

    >>> _widen(4, 6, room=4, num_tokens=20), _widen(1, 3, room=4, num_tokens=20), _widen(1, 3, room=4, num_tokens=5)
    ((2, 8), (0, 6), (0, 5))
    """
    size = min(end - begin + room, num_tokens)
    first = max(0, min(begin - room // 2, num_tokens - size))
    return first, first + size
