"""BIO tags: `B-type` begins an entity, `I-type` goes on, `O` is outside. Tags of other schemes become BIO.

So do character spans. A span is a list `[start, end, label]` (doccano), or an object with `start`, `end` and `label` or
`labels` (Prodigy, spaCy, Label Studio; `start_offset` and `end_offset` in doccano's relations). `end` is the offset
past the last character.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tokenizers import Regex, pre_tokenizers

from orchestrator.tasks.cell_values import unpack_cell


@dataclass(frozen=True, slots=True)
class TagScheme:
    """A way to write the entities of a sentence: a letter, a separator and a type for each word within one.

    An entity goes on until a letter ends it, another one begins, the type changes or a word is outside.
    """

    name: str
    letters: str
    """Letters of an entity's first and further words; behind these, where they have their own, of its last word and of
    an entity of one word."""
    separator: str = "-"
    outside: str = "O"
    is_type_first: bool = False
    """Whether the type stands before the letter."""

    @property
    def starts(self) -> str:
        return self.letters[0] + self.letters[3:]

    @property
    def ends(self) -> str:
        return self.letters[2:]

    def fits(self, tag: str) -> bool:
        return tag == self.outside or self.split(tag)[0] != ""

    def split(self, tag: str) -> tuple[str, str]:
        """The letter and the type of a word within an entity; empty for any other tag."""
        ends = tag[-1:] + tag[-2:-1] if self.is_type_first else tag[:2]
        if len(tag) < 3 or ends[1] != self.separator or ends[0] not in self.letters:
            return "", ""
        return ends[0], tag[:-2] if self.is_type_first else tag[2:]

    def to_bio(self, tags: Sequence[str]) -> tuple[str, ...]:
        """A sentence's tags with every entity begun by `B-`; tags that do not fit stay as they are.

        In IOB1 (CoNLL-2003) `B-` stands only between two entities of one type, all others begin with `I-`.
        """
        bio: list[str] = []
        going_on = ""  # type of the entity that the word before has not ended
        for tag in tags:
            letter, kind = self.split(tag)
            if not letter:
                bio.append("O" if tag == self.outside else tag)
                going_on = ""
                continue
            begins = letter in self.starts or kind != going_on
            bio.append(f"{'B' if begins else 'I'}-{kind}")
            going_on = "" if letter in self.ends else kind
        return tuple(bio)


BIO = TagScheme("BIO", "BI")
_LETTERS = {"BIO": "BI", "BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES", "BMEWO": "BMEW"}
"""Letters of each scheme, by its name."""
_FORMS = {"": ("-", False), " with underscores": ("_", False), " with colons": (":", False)} | {
    " with points": (".", False),
    " behind the types": ("-", True),
    " behind the types with underscores": ("_", True),
}
"""Separators, and whether the type stands before the letter."""
_CASES = {"": (str.upper, "O"), " in lower case": (str.lower, "o")} | {
    " with letters in lower case": (str.lower, "O"),
    " with OUT for O": (str.upper, "OUT"),
}
"""Case of the letters, and the tag of a word outside."""
SCHEMES: tuple[TagScheme, ...] = tuple(
    TagScheme(name + case + form, write(letters), separator, outside, is_type_first)
    for case, (write, outside) in _CASES.items()
    for form, (separator, is_type_first) in _FORMS.items()
    for name, letters in _LETTERS.items()
)
"""All schemes; the first of those that fit is meant."""


def find_scheme(counts: Mapping[str, int]) -> TagScheme | None:
    """The scheme that most of a column's tags fit, BIO where others fit no better; None where no tag fits any.

    Args:
        counts: number of words with each tag.
    """
    fitting = {scheme: sum(n for tag, n in counts.items() if scheme.fits(tag)) for scheme in SCHEMES}
    best = max(SCHEMES, key=lambda scheme: fitting[scheme])  # the first of the best ones
    return best if fitting[best] else None


def is_tag(tag: str) -> bool:
    return any(scheme.fits(tag) for scheme in SCHEMES)


def fit_one_scheme(tags: Iterable[str]) -> bool:
    """Whether all tags belong to one scheme.

    >>> fit_one_scheme(["S-PER", "O"]), fit_one_scheme(["b_per", "o"]), fit_one_scheme(["NNP", "O"])
    (True, True, False)
    """
    distinct = set(tags)
    return any(all(map(scheme.fits, distinct)) for scheme in SCHEMES)


def find_bad_tag(tags: Sequence[str], known: Collection[str] | None, are_entities: bool) -> str | None:
    """Say what is wrong with the first bad tag: of entities and not BIO, or outside the tag set; None: all are good."""
    for tag in tags:
        if are_entities and not BIO.fits(tag):
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
