"""Choice of what is learned from a table: the columns of text, the column of the label, the kind of task.

Names decide where they speak for themselves, else what stands in the columns.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.drafting.columns import MAX_CLASS_NUMBERS, ColumnFacts, TableFacts
from orchestrator.drafting.label_checks import check_label, refuse_other_tags, refuse_tag_rows
from orchestrator.drafting.request import DraftKind, DraftRequest
from orchestrator.errors import InputError
from orchestrator.tasks.table_files import table_name

_LABEL_NAMES = (
    "label",
    "labels",
    "gold_label",
    "class",
    "classes",
    "category",
    "categories",
    "target",
    "sentiment",
    "intent",
    "topic",
    "topics",
    "emotion",
    "polarity",
    "rating",
    "stars",
    "score",
    "similarity",
    "relatedness_score",
    "entailment_judgment",
    "is_duplicate",
    "quality",
    "tag",
    "tags",
    "genre",
)
_TEXT_NAMES = (
    "text",
    "review",
    "sentence",
    "content",
    "body",
    "comment",
    "message",
    "tweet",
    "post",
    "description",
    "question",
    "query",
    "utterance",
    "document",
    "abstract",
    "title",
    "input",
)
_PAIRS = {("premise", "hypothesis"), ("question", "sentence"), ("query", "document"), ("question", "passage")}
_ID_NAME = re.compile(r"(.*[^a-z])?(id|uid|guid|index|idx|key|number|nr|no)", re.IGNORECASE)
_MAX_CLASSES = 50
"""Values at most of a column that is taken for the label although its name does not say so."""
_SEPARATORS = ("|", ";", ",")


@dataclass(frozen=True)
class TaskChoice:
    """Choice of what is learned from a table."""

    kind: DraftKind
    text_columns: tuple[str, ...]
    label_column: str | None = None
    label_separator: str | None = None
    """Text between several labels in one value."""
    remarks: Sequence[str] = field(default=())
    """Choices that a person may want to make otherwise."""


def choose_task(table: TableFacts, request: DraftRequest) -> TaskChoice:
    """Choose columns and kind of task. Raises: InputError where the table has nothing to learn from."""
    tags = next((column for column in table.columns if column.are_tags), None)
    if tags is not None and request.kind in (None, "ner"):
        words = next((c for c in table.columns if c.is_list and c is not tags), None)
        if words is not None:
            return TaskChoice("ner", (words.name,), tags.name)
    spans = next((c for c in table.columns if c.are_spans and request.label_column in (None, c.name)), None)
    if spans is not None and request.kind in (None, "ner"):
        texts = _text_columns(table, request)
        return TaskChoice("ner", texts[:1], spans.name, remarks=tuple(_other_labels(table, texts, spans)))
    if request.kind in (None, "ner"):
        refuse_tag_rows(table, request.label_column)
    if request.kind == "ner":
        refuse_other_tags(table)
    if request.kind in ("ner", "qa"):
        reads = (
            "CoNLL columns, or JSONL with lists of words and of tags or with character spans"
            if request.kind == "ner"
            else "SQuAD's JSON"
        )
        raise InputError(f"{table.path} is a table of texts, and a {request.kind} task reads {reads}; convert it")
    texts = _text_columns(table, request)
    if request.kind == "pretraining":
        return TaskChoice("pretraining", texts[:1])
    label = _label_column(table, texts, request)
    if request.kind is None and (label is None or label.is_list):
        refuse_other_tags(table)
    if label is None:
        if table_name(table.path) in ("JSONL", "Parquet"):  # which pretraining reads
            return TaskChoice("pretraining", texts[:1], remarks=_several_texts(table, texts))
        raise InputError(
            f"{table.path} has no column that looks like a label; it has {table.names}. Name it with --label COLUMN; "
            "to pretrain on the texts, save them as a .txt file with an empty line between documents"
        )
    kind, separator = _kind_of(label, request)
    check_label(table, label, kind, is_named=request.label_column is not None)
    remarks = [*_other_labels(table, texts, label), *_several_texts(table, texts), *_odd_names(table, label)]
    if kind == "classification":
        remarks += _nearly_equal(table, label)
    if kind == "classification" and label.is_whole and len(label.distinct) > 2:
        remarks.append("labels are whole numbers, taken as classes; --kind regression estimates them as numbers")
    return TaskChoice(kind, texts, label.name, separator, tuple(remarks))


def _text_columns(table: TableFacts, request: DraftRequest) -> tuple[str, ...]:
    if request.text_columns:
        for name in request.text_columns:
            table.column(name)
        return request.text_columns
    texts = [c for c in table.columns if c.is_text and c.name != request.label_column and not _is_id(c)]
    names = [column.name for column in texts]
    pairs = [(one, two) for one in texts for two in texts if _is_pair(one.name, two.name)]
    if pairs:
        one, two = max(pairs, key=lambda pair: pair[0].mean_words + pair[1].mean_words)
        return one.name, two.name
    named = [name for hint in _TEXT_NAMES for name in names if name.lower() == hint]
    if named:
        return (named[0],)
    longest = max(texts, key=lambda column: column.mean_words, default=None)
    if longest is None or (longest.mean_words < 1.5 and longest.name.lower() in _LABEL_NAMES):
        refuse_other_tags(table)
        raise InputError(f"{table.path} has no column of text; it has {table.names}. Name one with --text COLUMN")
    return (longest.name,)


def _label_column(table: TableFacts, texts: tuple[str, ...], request: DraftRequest) -> ColumnFacts | None:
    if request.label_column is not None:
        if request.label_column in texts:
            raise InputError(f"{request.label_column!r} cannot be text and label; name another with --text or --label")
        return table.column(request.label_column)
    others = [column for column in table.columns if column.name not in texts and column.values]
    for hint in _LABEL_NAMES:
        for column in others:
            if column.name.lower() == hint:
                return column
    few = _with_few_values(table, texts)
    if few:
        names = [column.name for column in table.columns]
        last_text = max(names.index(name) for name in texts)
        # Most tables have the label behind the text.
        return min(few, key=lambda column: (len(column.distinct), names.index(column.name) < last_text))
    return next((column for column in others if column.is_number and not _is_id(column) and not column.is_whole), None)


def _with_few_values(table: TableFacts, texts: tuple[str, ...]) -> list[ColumnFacts]:
    """Columns beside the texts whose values are so few that they may be labels."""
    others = (column for column in table.columns if column.name not in texts and column.values and not _is_id(column))
    return [c for c in others if 2 <= len(c.distinct) <= min(_MAX_CLASSES, max(2, len(c.values) // 3))]


def _kind_of(label: ColumnFacts, request: DraftRequest) -> tuple[DraftKind, str | None]:
    separator = None if label.is_list else _separator(label)
    if request.kind is not None:
        return request.kind, separator if request.kind == "multi_label" else None
    if label.is_list:
        return "multi_label", None
    if label.is_number:
        is_class = label.is_whole and len(label.distinct) <= MAX_CLASS_NUMBERS
        return ("classification" if is_class else "regression"), None
    return ("classification", None) if separator is None else ("multi_label", separator)


def _separator(label: ColumnFacts) -> str | None:
    """The text between several labels of one value: a bar, or what leaves fewer different names than values."""
    for separator in _SEPARATORS:
        several = [value for value in map(str, label.values) if separator in value]
        names = {name.strip() for value in label.distinct for name in value.split(separator)}
        is_short = max((len(name.split()) for name in names), default=0) <= 4
        if (
            len(several) >= 0.05 * len(label.values)
            and is_short
            and (separator == "|" or len(names) < len(label.distinct))
        ):
            return separator
    return None


def _other_labels(table: TableFacts, texts: tuple[str, ...], label: ColumnFacts) -> Iterator[str]:
    others = [c.name for c in table.columns if c.name not in (*texts, label.name) and c.name.lower() in _LABEL_NAMES]
    if not others and label.name.lower() not in _LABEL_NAMES:
        others = [column.name for column in _with_few_values(table, texts) if column is not label]
    if others:
        yield f"{', '.join(others)} could be the label as well: --label {others[0]}"


def _odd_names(table: TableFacts, label: ColumnFacts) -> Iterator[str]:
    """Tell of names in the first line that are not seen, or not told apart: with outer blanks, or there twice."""
    names = [column.name for column in table.columns]
    blank = [name for name in names if name != name.strip()]
    if blank:
        values = sorted(value for value in label.distinct if value != value.strip())
        likewise = f" and of labels as {values[0]!r}" if values else ""
        yield (
            f"blanks at the ends of the columns' names {', '.join(map(repr, blank))}{likewise} are taken as part of "
            f"them; take them out of {table.path}"
        )
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield f"{names.count(name)} columns are called {name!r}; the first is read: give the others other names"


def _nearly_equal(table: TableFacts, label: ColumnFacts) -> Iterator[str]:
    """Tell of labels that differ in case or blanks alone."""
    alike: dict[str, list[str]] = {}
    for value in sorted(label.distinct):
        alike.setdefault(" ".join(value.split()).casefold(), []).append(value)
    for values in (values for values in alike.values() if len(values) > 1):
        named = f"{', '.join(map(repr, values[:-1]))} and {values[-1]!r}"
        yield (
            f"labels {named} differ in case or blanks alone and are {len(values)} classes; if one is meant, write it "
            f"in one way in {table.path}"
        )


def _several_texts(table: TableFacts, texts: tuple[str, ...]) -> list[str]:
    others = [c.name for c in table.columns if c.name not in texts and c.is_text and c.mean_words > 4]
    return [f"{', '.join(others)} holds text as well and is not read: --text {others[0]}"] if others else []


def _is_pair(first: str, second: str) -> bool:
    """Whether two columns are a pair by their names: sentence1 and sentence2, text_a and text_b."""
    one, two = first.lower(), second.lower()
    numbered, lettered = one.replace("1", "2"), re.sub("(?<![a-z])a(?![a-z])", "b", one)
    return (one, two) in _PAIRS or (one != two and two in (numbered, lettered))


def _is_id(column: ColumnFacts) -> bool:
    return _ID_NAME.fullmatch(column.name) is not None or (
        column.is_whole and len(column.distinct) == len(column.values) > MAX_CLASS_NUMBERS
    )
