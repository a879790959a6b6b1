"""Questions with their passages as tokens: `[CLS] question [SEP] passage [SEP]`, a long passage in windows that begin
`doc_stride` tokens apart (Devlin et al. 2019, section 4.2 and code); between the two stand as many separators as in the
tokenizer's own layout of a pair.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError
from orchestrator.tasks.features import PER_TOKEN, PER_WINDOW, HeadArrays, Windows
from orchestrator.tasks.token_windows import cumulative, passage_windows, segment_types
from orchestrator.tasks.types.squad import Answer, QaExample

_PASSAGES_AT_A_TIME = 256
_JOINER = "\u200d"
_JOINERS = ("\u200c", _JOINER)
"""Zero-width non-joiner and joiner."""
_Passage = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Token ids (n,), and the characters each covers (n, 2)."""


@dataclass(frozen=True)
class QaArrays(HeadArrays):
    """Places of answers, and the characters of the passage that tokens cover. T tokens, W windows."""

    start_positions: NDArray[np.int32] = field(metadata=PER_WINDOW)
    """(W,) the answer's first token within the window; 0, the [CLS], where the window lacks the answer."""
    end_positions: NDArray[np.int32] = field(metadata=PER_WINDOW)
    """(W,) the answer's last token within the window, inclusive."""
    offsets: NDArray[np.int32] = field(metadata=PER_TOKEN)
    """(T, 2) characters of the passage; -1 off the passage."""


def build_qa_windows(
    examples: Sequence[QaExample],
    tokenizer: Tokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> Windows[QaArrays]:
    """Every window of every question; the first answer is the one to learn.

    Raises: SpecError when a question leaves no room for its passage.
    """
    ids, offsets, segments, example_index, positions = [], [], [], [], []
    layout = tokenizer.segment_layout
    suffix = np.array([layout.suffix], np.int32)
    num_misaligned = num_unreachable = 0
    for index, (example, query, passage) in enumerate(_encode(examples, tokenizer)):
        prefix = np.array([layout.prefix, *query[:max_query_length], *layout.between], np.int32)
        room = max_seq_length - len(prefix) - 1
        if room < 1:
            raise SpecError(
                f"recipe.max_seq_length {max_seq_length} leaves no room for a passage after a question of "
                f"{len(prefix) - 1 - len(layout.between)} tokens; raise it, or lower recipe.max_query_length"
            )
        span = answer_tokens(passage[1], example.answers[0]) if example.answers else None
        num_misaligned += bool(example.answers) and span is None
        is_whole_somewhere = False
        off_passage = np.full((len(prefix), 2), -1, np.int32)
        for begin, end in passage_windows(len(passage[0]), room, doc_stride):
            ids += [prefix, passage[0][begin:end], suffix]
            offsets += [off_passage, passage[1][begin:end], off_passage[:1]]
            segments.append((len(prefix), end - begin + 1))
            example_index.append(index)
            inside = span is not None and begin <= span[0] and span[1] < end
            shift = len(prefix) - begin
            positions.append((span[0] + shift, span[1] + shift) if span is not None and inside else (0, 0))
            is_whole_somewhere = is_whole_somewhere or inside
        num_unreachable += span is not None and not is_whole_somewhere
    lengths = np.array(segments, np.int64)
    start_positions, end_positions = np.array(positions, np.int32).T
    return Windows(
        input_ids=np.concatenate(ids),
        token_type_ids=segment_types(lengths, layout.type_of_second),
        cu_seqlens=cumulative(lengths.sum(axis=1)),
        example_index=np.array(example_index, np.int32),
        head_arrays=QaArrays(
            start_positions=np.ascontiguousarray(start_positions),
            end_positions=np.ascontiguousarray(end_positions),
            offsets=np.concatenate(offsets),
        ),
        counts={"num_misaligned": num_misaligned, "num_unreachable": num_unreachable},
    )


def answer_tokens(offsets: NDArray[np.int32], answer: Answer) -> tuple[int, int] | None:
    """First and last token that an answer touches, None when it touches none."""
    first = int(np.searchsorted(offsets[:, 1], answer.start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], answer.start + len(answer.text), side="left")) - 1
    return (first, last) if first <= last else None


def _encode(examples: Sequence[QaExample], tokenizer: Tokenizer) -> Iterator[tuple[QaExample, list[int], _Passage]]:
    """Each question's token ids with its passage, which is tokenized once for all that follow one another on it."""
    groups = [(context, list(group)) for context, group in groupby(examples, key=lambda example: example.context)]
    for start in range(0, len(groups), _PASSAGES_AT_A_TIME):
        chunk = groups[start : start + _PASSAGES_AT_A_TIME]
        passages = tokenizer.encode_batch([context for context, _ in chunk])
        queries = iter(tokenizer.encode_ids([example.question for _, group in chunk for example in group]))
        for encoding, (context, group) in zip(passages, chunk, strict=True):
            tokens = np.array(encoding.ids, np.int32), _token_characters(encoding.offsets, context)
            for example in group:
                yield example, next(queries), tokens


def _token_characters(offsets: Sequence[tuple[int, int]], context: str) -> NDArray[np.int32]:
    """The characters of each token, (n, 2): whole letters, without the space that some tokenizers count to a word."""
    without_space = [(end - len(context[start:end].lstrip()), end) for start, end in offsets]
    letters = without_space if context.isascii() else [whole_letters(context, *span) for span in without_space]
    return np.array(letters, np.int32).reshape(-1, 2)


def whole_letters(text: str, start: int, end: int) -> tuple[int, int]:
    """Widen a span to whole letters: a letter's marks belong to it, and so does what a zero-width joiner adds.

    The rule is that of extended grapheme clusters (Unicode Standard Annex 29, GB9 to GB11), except that a joiner joins
    letters of every script, and that one without anything to join is left out.
    """
    while 0 < start < end and _continues(text, start):
        start -= 1
    while start < end < len(text) and _continues(text, end):
        end += 1
    return start, end


def _continues(text: str, place: int) -> bool:
    """Whether the character at a place belongs to the letter before it."""
    character, before = text[place], text[place - 1]
    if character in _JOINERS:
        after = text[place + 1 : place + 2]
        return bool(after) and (after in _JOINERS or _is_mark(after) or (character == _JOINER and not after.isspace()))
    return _is_mark(character) or (before == _JOINER and not character.isspace())


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Mc", "Me")
