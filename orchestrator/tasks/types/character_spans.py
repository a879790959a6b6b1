"""Labeled spans of a text, by character offsets, and the BIO tags of the words that they touch.

A span is a list `[start, end, label]` (doccano), or an object with `start`, `end` and `label` or `labels` (Prodigy,
spaCy, Label Studio; `start_offset` and `end_offset` in doccano's relations). `end` is the offset past the last
character.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tokenizers import Regex, pre_tokenizers

from orchestrator.tasks.cell_values import unpack_cell

_WORDS = pre_tokenizers.Sequence(
    [pre_tokenizers.Split(Regex(r"\p{Han}"), "isolated"), pre_tokenizers.BertPreTokenizer()]
)
"""Words of BERT: apart at white space; marks of punctuation and Chinese characters are words of their own."""
_PLACES = {"start", "end", "begin", "offset", "length", "start_offset", "end_offset"}
SPAN_EXAMPLE = '[[0, 3, "PER"]] or [{"start": 0, "end": 3, "label": "PER"}]'


class Span(NamedTuple):
    """A labeled part of a text, by the offsets of its first character and past its last."""

    start: int
    end: int
    label: str


def words_of(text: str) -> list[str]:
    """The words of a text, as BERT splits it before it looks for pieces.

    >>> words_of("Ada's 3.5 km, 北京")
    ['Ada', "'", 's', '3', '.', '5', 'km', ',', '北', '京']
    """
    return [word for word, _ in _WORDS.pre_tokenize_str(text)]


def read_spans(value: object) -> list[Span] | None:
    """The spans that a value lists, or a cell of a table; None where it is no list of spans.

    >>> read_spans([[0, 3, "PER"]]) == read_spans([{"start": 0, "end": 3, "labels": ["PER"]}]) == [Span(0, 3, "PER")]
    True
    """
    value = unpack_cell(value)
    spans = [_read_span(item) for item in value] if isinstance(value, list) else [None]
    read = [span for span in spans if span is not None]
    return read if len(read) == len(spans) else None


def marks_places(value: object) -> bool:
    """Whether objects with a start and an end, or lists of two offsets and a name, stand anywhere in a value.

    >>> marks_places({"points": [{"start": 0, "end": 2}]}), marks_places([["PER", 0, 3]]), marks_places(["a", 1])
    (True, True, False)
    """
    if isinstance(value, Mapping):
        return len(_PLACES & value.keys()) > 1 or any(map(marks_places, value.values()))
    if not isinstance(value, list):
        return False
    kinds = sorted(type(item).__name__ for item in value)
    return kinds in (["int", "int", "str"], ["float", "float", "str"]) or any(map(marks_places, value))


def _read_span(item: object) -> Span | None:
    if isinstance(item, Mapping):
        labels = item.get("labels")
        label = labels[0] if isinstance(labels, list) and len(labels) == 1 else item.get("label")
        item = [item.get("start", item.get("start_offset")), item.get("end", item.get("end_offset")), label]
    if not isinstance(item, list) or len(item) != 3:
        return None
    start, end, label = item
    are_offsets = type(start) is int and type(end) is int and 0 <= start <= end
    return Span(start, end, label) if are_offsets and isinstance(label, str) and label else None


def tag_words(text: str, spans: Iterable[Span], misfits: Counter[str]) -> tuple[list[str], list[str]]:
    """The words of a text, and their BIO tags. A span is put on all words that it touches.

    Args:
        misfits: gets the number of spans that cut a word, share one with an earlier span or hold none.
    """
    pieces = _WORDS.pre_tokenize_str(text)
    tags = ["O"] * len(pieces)
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        touched = [i for i, (_, (start, end)) in enumerate(pieces) if start < span.end and end > span.start]
        if not touched:
            misfits["spans without a word, left out"] += 1
        elif tags[touched[0]] != "O":
            misfits["spans that share a word with an earlier one, left out"] += 1
        else:
            inside = [place for i in touched for place in pieces[i][1]]
            marked = text[span.start : span.end]
            start = span.start + len(marked) - len(marked.lstrip())
            end = span.start + len(marked.rstrip())
            if (start, end) != (inside[0], inside[-1]):
                misfits["spans that begin or end within a word, put on whole words"] += 1
            tags[touched[0]] = f"B-{span.label}"
            for i in touched[1:]:
                tags[i] = f"I-{span.label}"
    return [word for word, _ in pieces], tags
