"""BIO tags: `B-type` begins an entity, `I-type` goes on, `O` is outside. Tags of other schemes become BIO.

So do character spans. A span is a list `[start, end, label]` (doccano), or an object with `start`, `end` and `label` or
`labels` (Prodigy, spaCy, Label Studio; `start_offset` and `end_offset` in doccano's relations). `end` is the offset
past the last character.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tokenizers import Regex, pre_tokenizers

from orchestrator.tasks.cell_values import unpack_cell

_LETTERS = "BIMELSUWbimelsuw"
_STARTS, _ENDS = "BSUW", "ELSUW"
_OUTSIDE = ("O", "o", "OUT")
TAG_FORMS = (
    re.compile(rf"(?P<letter>[{_LETTERS}])[-_:.](?P<kind>.+)", re.DOTALL),
    re.compile(rf"(?P<kind>.+)[-_](?P<letter>[{_LETTERS}])", re.DOTALL),
)
"""Tags of words within entities in BIO, BIOES, BILOU, BMES and BMEWO, whose letters mean the same wherever they stand:
before the type or behind it."""


def is_bio(tag: str) -> bool:
    return tag == "O" or (len(tag) > 2 and tag[:2] in ("B-", "I-"))


def fit_one_form(tags: Iterable[str]) -> bool:
    """Whether all tags mark entities, with their letters on one side.

    >>> fit_one_form(["S-PER", "O"]), fit_one_form(["b_per", "o"]), fit_one_form(["NNP", "O"])
    (True, True, False)
    """
    within = set(tags).difference(_OUTSIDE)
    return any(all(map(form.fullmatch, within)) for form in TAG_FORMS)


def find_form(counts: Mapping[str, int]) -> re.Pattern[str] | None:
    """The form that most of a column's tags have, with fewer types where both fit as well; None where no tag does.

    Args:
        counts: number of words with each tag.
    """
    num_fitting = {
        form: sum(n for tag, n in counts.items() if tag in _OUTSIDE or form.fullmatch(tag)) for form in TAG_FORMS
    }
    num_kinds = {form: len({match["kind"] for tag in counts if (match := form.fullmatch(tag))}) for form in TAG_FORMS}
    best = max(TAG_FORMS, key=lambda form: (num_fitting[form], -num_kinds[form]))
    return best if num_fitting[best] else None


def to_bio(tags: Iterable[str], form: re.Pattern[str] = TAG_FORMS[0]) -> tuple[str, ...]:
    """A sentence's tags with every entity begun by `B-`; tags of no such form stay as they are.

    An entity goes on until a letter ends it, another one begins, the type changes or a word is outside: in IOB1
    (CoNLL-2003) `B-` stands only between two entities of one type, all others begin with `I-`.
    """
    bio: list[str] = []
    going_on = ""  # type of the entity that the word before has not ended
    for tag in tags:
        found = form.fullmatch(tag)
        if found is None:
            bio.append("O" if tag in _OUTSIDE else tag)
            going_on = ""
            continue
        letter, kind = found["letter"].upper(), found["kind"]
        bio.append(f"{'B' if letter in _STARTS or kind != going_on else 'I'}-{kind}")
        going_on = "" if letter in _ENDS else kind
    return tuple(bio)


def find_bad_tag(tags: Sequence[str], known: Collection[str] | None, are_entities: bool) -> str | None:
    """Say what is wrong with the first bad tag: of entities and not BIO, or outside the tag set; None: all are good."""
    for tag in tags:
        if are_entities and not is_bio(tag):
            return f"tag {tag!r} is not {_READ_TAGS}"
        if not tag.strip():
            return "a word has no tag"
        if known is not None and tag not in known:
            return f"tag {tag!r} is none of the labels {', '.join(known)}"
    return None


_READ_TAGS = "O, B-TYPE or I-TYPE for the first and the further words of a name (or BIOES, BILOU, B_TYPE, b-type)"


def other_tags_problem(tags: Sequence[str]) -> str:
    """Name the first tags of a column that belongs to no scheme, and what to write in place of them."""
    shown = ", ".join(repr(tag[:40]) for tag in tags[:3])
    return (
        f"tags {shown}, and a ner task reads BIO tags, which mark names: {_READ_TAGS}. Write these, or take parts of "
        "speech and other tags of each word as they are: head token_classification"
    )


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
        touched = [i for i, (_, (start, end)) in enumerate(pieces) if max(start, span.start) < min(end, span.end)]
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
