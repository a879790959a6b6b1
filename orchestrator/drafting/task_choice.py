"""Choice of what is learned from a table: the columns of text, those of the label, the kind of task.

Names decide where they speak for themselves, else what stands in the columns.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.drafting.columns import ColumnFacts, TableFacts, is_number
from orchestrator.drafting.request import DraftKind, DraftRequest
from orchestrator.errors import InputError
from orchestrator.tasks.bio_tags import fit_one_scheme, other_tags_problem
from orchestrator.tasks.cell_values import look_alike, read_number
from orchestrator.tasks.table_files import class_names, table_name
from orchestrator.tasks.types.squad import are_question_columns

MAX_CLASS_NUMBERS = 20
"""Whole numbers of at most so many values are classes; others are values to estimate."""
# fmt: off
_LABEL_NAMES = [
    "label", "labels", "gold_label", "class", "classes", "category", "categories", "target", "sentiment", "intent",
    "topic", "topics", "emotion", "polarity", "rating", "stars", "score", "similarity", "relatedness_score",
    "entailment_judgment", "is_duplicate", "quality", "tag", "tags", "genre",
]
_TEXT_NAMES = [
    "text", "review", "sentence", "content", "body", "comment", "message", "tweet", "post", "description", "question",
    "query", "utterance", "document", "abstract", "title", "input",
]
# fmt: on
_PAIRS = {("premise", "hypothesis"), ("question", "sentence"), ("query", "document"), ("question", "passage")}
_ID_NAME = re.compile(r"(.*[^a-z])?(id|uid|guid|index|idx|key|number|nr|no)", re.IGNORECASE)
_MAX_CLASSES = 50
"""Values at most of a column that is taken for the label although its name does not say so."""
_SEPARATORS = ("|", ";", ",")
_WRITTEN_NUMBER = re.compile(r"[-+]?\d[\d.,]*\s*%?")
"""A number, also with commas in it or a percent sign behind it."""


@dataclass(frozen=True)
class TaskChoice:
    """Choice of what is learned from a table."""

    kind: DraftKind
    text_columns: tuple[str, ...]
    label_column: str | None = None
    label_separator: str | None = None
    """Text between several labels in one value."""
    label_columns: tuple[str, ...] = ()
    """Columns of 0 and 1, each for the label that it is named by."""
    negative_columns: tuple[str, ...] = ()
    """Columns of texts that do not belong to the first one."""
    remarks: Sequence[str] = ()
    """Choices that a person may want to make otherwise."""


def choose_task(table: TableFacts, request: DraftRequest) -> TaskChoice:
    """Choose columns and kind of task. Raises: InputError where the table has nothing to learn from."""
    if request.kind in (None, "qa") and are_question_columns(column.name for column in table.columns):
        return TaskChoice("qa", ())
    if request.kind in (None, "ner"):
        tagged = _tagged_words(table, request) or _tag_rows(table, request)
        if tagged is not None:
            return tagged
    if request.kind == "ner":
        _refuse_other_tags(table)
    if request.kind in ("ner", "qa"):
        reads = (
            "CoNLL columns, or JSONL with lists of words and of tags or with character spans"
            if request.kind == "ner"
            else "SQuAD's JSON, or columns question, context and answers"
        )
        raise InputError(f"{table.path} is a table of texts, and a {request.kind} task reads {reads}; convert it")
    if request.kind in (None, "embedding") and request.label_column is None and (triples := _triples(table)):
        return triples
    texts = _text_columns(table, request)
    if request.kind == "pretraining":
        return TaskChoice("pretraining", texts[:1])
    if request.kind == "embedding":
        if len(texts) < 2:
            raise InputError(
                f"{table.path}: embeddings learn from pairs of texts; name both: --text FIRST --text SECOND"
            )
        return TaskChoice("embedding", texts)
    label = _label_column(table, texts, request)
    flags = _label_flags(table, texts, request)
    if flags and (label is None or label.name in flags):
        return TaskChoice("multi_label", texts, label_columns=flags, remarks=_flag_remarks(table, texts, flags))
    if request.kind is None and (label is None or label.are_words):
        _refuse_other_tags(table)
    if label is None:
        return _without_label(table, texts)
    kind, separator = _kind_of(table, label, request)
    _check_label(table, label, kind, is_named=request.label_column is not None)
    remarks = [
        *_choice_remarks(label, kind, separator, request),
        *_other_labels(table, texts, label),
        *_unread_texts(table, texts),
        *_odd_names(table),
        *(_nearly_equal(table, label) if kind == "classification" else ()),
    ]
    return TaskChoice(kind, texts, label.name, separator, remarks=tuple(remarks))


# Words with tags, and questions


def _tagged_words(table: TableFacts, request: DraftRequest) -> TaskChoice | None:
    """The choice for lists of words and of tags, or texts with character spans; None for another table."""
    named = (column for column in _numbered(table) if class_names(table.path, column.name))
    tags = next((column for column in table.columns if column.are_tags), None) or next(named, None)
    words = next((column for column in table.columns if column.are_words and column is not tags), None)
    if tags is not None and words is not None:
        return TaskChoice("ner", (words.name,), tags.name)
    spans = next((c for c in table.columns if c.are_spans and request.label_column in (None, c.name)), None)
    if spans is None:
        return None
    texts = _text_columns(table, request)
    return TaskChoice("ner", texts[:1], spans.name, remarks=tuple(_other_labels(table, texts, spans)))


def _tag_rows(table: TableFacts, request: DraftRequest) -> TaskChoice | None:
    """The choice for a table with one word and its BIO tag in each row, beside a sentence's name; None for another.

    Raises: InputError for such rows without a sentence's name, which would be taken for examples of classes.
    """
    for tags in table.columns:
        are_tags = not tags.distinct.isdisjoint("Oo") and len(tags.distinct) > 1 and fit_one_scheme(tags.distinct)
        if not (are_tags and tags.is_text and request.label_column in (None, tags.name)):
            continue
        others = [column for column in table.columns if column is not tags]
        sentence = next((column for column in others if "sent" in column.name.lower()), None)
        words = [column for column in others if column is not sentence and column.is_text]
        if sentence is not None and words:
            word = next((column for column in words if _last(column) in ("word", "token")), words[0])
            return TaskChoice("ner", (sentence.name, word.name), tags.name)
        raise InputError(
            f"{table.path}: {tags.name!r} has a tag of a word in each row, so the rows look like the words of "
            "sentences for ner; name the sentence of each in a column 'sentence', or save them as CoNLL columns, in a "
            "file whose name ends in .conll: each line a word, a tab and its tag, a blank line between sentences. If "
            "each row is an example of its own, say --kind classification"
        )
    return None


def _refuse_other_tags(table: TableFacts) -> None:
    """Refuse lists of words beside lists of what are no BIO tags, numbers as Hugging Face has or parts of speech.

    Raises: InputError.
    """
    words = [column for column in table.columns if column.are_words]
    numbered = _numbered(table)
    if words and numbered:
        column = max(numbered, key=lambda column: "ner" in column.name.lower())
        raise InputError(
            f"{table.path}: {column.name!r} has tags as numbers, which say no names; write the names in place "
            f'of them: {{"{words[0].name}": ["Ada", "wrote"], "{column.name}": ["B-PER", "O"]}}. In a data set of '
            f'Hugging Face they are features["{column.name}"].feature.names'
        )
    if words:
        column = min(reversed(words), key=lambda column: len(column.items))  # tags stand behind words
        if any(other is not column and _lengths(other) == _lengths(column) for other in words):
            raise InputError(f"{table.path}: {column.name!r} has the {other_tags_problem(sorted(column.items))}")


def _numbered(table: TableFacts) -> list[ColumnFacts]:
    """Columns of lists of whole numbers."""
    return [column for column in table.columns if column.values and all(map(_are_whole, column.values))]


def _are_whole(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) for item in value)


def _lengths(column: ColumnFacts) -> list[int]:
    return [len(value) for value in column.values if isinstance(value, list)]


def _triples(table: TableFacts) -> TaskChoice | None:
    """The choice for texts beside those that are to be near and far; None for another table."""
    positive = next((column.name for column in table.columns if _last(column) in ("positive", "positives")), None)
    negatives = tuple(column.name for column in table.columns if _last(column).startswith("negative"))
    query = next((c.name for c in table.columns if c.is_text and c.name not in (positive, *negatives)), None)
    if positive is None or query is None:
        return None
    return TaskChoice("embedding", (query, positive), negative_columns=negatives)


# Columns of text and of the label


def _text_columns(table: TableFacts, request: DraftRequest) -> tuple[str, ...]:
    if request.text_columns:
        for name in request.text_columns:
            table.column(name)
        return request.text_columns
    texts = [c for c in table.columns if c.is_text and c.name != request.label_column and not _is_id(c)]
    pairs = [(one, two) for one in texts for two in texts if _is_pair(_last(one), _last(two))]
    if pairs:
        one, two = max(pairs, key=lambda pair: pair[0].mean_words + pair[1].mean_words)
        return one.name, two.name
    named = [column.name for hint in _TEXT_NAMES for column in texts if _last(column) == hint]
    if named:
        return (named[0],)
    longest = max(texts, key=lambda column: column.mean_words, default=None)
    if longest is None or (longest.mean_words < 1.5 and _last(longest) in _LABEL_NAMES):
        _refuse_other_tags(table)
        raise InputError(f"{table.path} has no column of text; it has {table.names}. Name one with --text COLUMN")
    return (longest.name,)


def _last(column: ColumnFacts) -> str:
    """The name of a column in lower case; of one within an object the last part."""
    return column.name.lower().rpartition(".")[2]


def _is_pair(one: str, two: str) -> bool:
    """Whether two columns are a pair by their names: sentence1 and sentence2, text_a and text_b."""
    numbered, lettered = one.replace("1", "2"), re.sub("(?<![a-z])a(?![a-z])", "b", one)
    return (one, two) in _PAIRS or (one != two and two in (numbered, lettered))


def _is_id(column: ColumnFacts) -> bool:
    return _ID_NAME.fullmatch(column.name) is not None or (
        column.is_whole and len(column.distinct) == len(column.values) > MAX_CLASS_NUMBERS
    )


def _label_column(table: TableFacts, texts: tuple[str, ...], request: DraftRequest) -> ColumnFacts | None:
    if request.label_column is not None:
        if request.label_column in texts:
            raise InputError(f"{request.label_column!r} cannot be text and label; name another with --text or --label")
        return table.column(request.label_column)
    others = _others(table, texts)
    for hint in _LABEL_NAMES:
        for column in others:
            if _last(column) == hint:
                return column
    few = _with_few_values(table, texts)
    if few:
        names = [column.name for column in table.columns]
        last_text = max(names.index(name) for name in texts)
        # Most tables have the label behind the text.
        return min(few, key=lambda column: (len(column.distinct), names.index(column.name) < last_text))
    return next((column for column in others if column.is_number and not _is_id(column) and not column.is_whole), None)


def _others(table: TableFacts, texts: tuple[str, ...]) -> list[ColumnFacts]:
    return [column for column in table.columns if column.name not in texts and column.values]


def _with_few_values(table: TableFacts, texts: tuple[str, ...]) -> list[ColumnFacts]:
    """Columns beside the texts whose values are so few that they may be labels."""
    others = (column for column in _others(table, texts) if not _is_id(column))
    return [c for c in others if 2 <= len(c.distinct) <= min(_MAX_CLASSES, max(2, len(c.values) // 3))]


def _label_flags(table: TableFacts, texts: tuple[str, ...], request: DraftRequest) -> tuple[str, ...]:
    """Names of the columns that say yes or no to a label each, where there are several and nothing else was asked."""
    if request.label_column is not None or request.kind not in (None, "multi_label"):
        return ()
    flags = tuple(column.name for column in _others(table, texts) if column.is_yes_or_no)
    return flags if len(flags) > 1 and not any(_last(table.column(name)) in _LABEL_NAMES for name in flags) else ()


def _flag_remarks(table: TableFacts, texts: tuple[str, ...], flags: tuple[str, ...]) -> tuple[str, ...]:
    one = f"each column of 0 and 1 is taken for a label of its own; --label {flags[0]} learns that one alone"
    return (one, *_unread_texts(table, texts))


def _without_label(table: TableFacts, texts: tuple[str, ...]) -> TaskChoice:
    """The choice of pretraining on records without a label. Raises: InputError for a table that it does not read."""
    if table_name(table.path) not in ("JSONL", "Parquet"):
        raise InputError(
            f"{table.path} has no column that looks like a label; it has {table.names}. Name it with --label COLUMN; "
            "to pretrain on the texts, save them as a .txt file with an empty line between documents"
        )
    others = [column.name for column in _others(table, texts) if not _is_id(column)]
    remarks = (
        [f"nothing else is read: {', '.join(others)}; --label {others[-1]} learns one as the label"] if others else []
    )
    return TaskChoice("pretraining", texts[:1], remarks=remarks)


# Kind of the label


def _kind_of(table: TableFacts, label: ColumnFacts, request: DraftRequest) -> tuple[DraftKind, str | None]:
    separator = None if label.is_list else _separator(label)
    if request.kind is not None:
        return request.kind, separator if request.kind == "multi_label" else None
    if label.is_list:
        return "multi_label", None
    if label.is_number:
        is_class = label.is_whole and len(label.distinct) <= MAX_CLASS_NUMBERS
        return ("classification" if is_class else "regression"), None
    if all(_WRITTEN_NUMBER.fullmatch(value) for value in label.distinct):
        raise InputError(f"{_number_problem(table, label)}; or say --kind classification or --kind multi_label")
    return ("classification", None) if separator is None else ("multi_label", separator)


def _number_problem(table: TableFacts, label: ColumnFacts) -> str:
    """Problem of the first value of a column that is no number."""
    wrong = next(value for value in label.values if not is_number(value))
    try:
        read_number(wrong)
    except ValueError as error:
        return f"{table.path}: {label.name}: {error}"
    return f"{table.path}: {label.name}: {wrong!r} is not a number"


def _separator(label: ColumnFacts) -> str | None:
    """The text between several labels of one value: a bar, or what leaves fewer different names than values."""
    for separator in _SEPARATORS:
        several = [value for value in map(str, label.values) if separator in value]
        names = {name.strip() for value in label.distinct for name in value.split(separator)}
        is_short = max((len(name.split()) for name in names), default=0) <= 4
        is_common = len(several) >= 0.05 * len(label.values)
        if is_common and is_short and (separator == "|" or len(names) < len(label.distinct)):
            return separator
    return None


def _check_label(table: TableFacts, label: ColumnFacts, kind: DraftKind, *, is_named: bool) -> None:
    """Check that there is something to learn.

    Args:
        is_named: whether a person named the column, who knows better than its values whether it is an id.

    Raises: InputError.
    """
    distinct, count = len(label.distinct), len(label.values)
    if not count:
        raise InputError(f"{table.path}: the label column {label.name!r} is empty; name another with --label COLUMN")
    if distinct == 1 and table.is_whole:
        only = next(iter(label.distinct))[:60]
        raise InputError(
            f"{table.path}: the label column {label.name!r} has one label only ({only!r}); a model has nothing to tell "
            "apart: add rows with other labels, or name another column with --label COLUMN"
        )
    if kind == "regression" and not label.is_number:
        raise InputError(_number_problem(table, label))
    if kind == "classification" and label.is_number and not label.is_whole and distinct > MAX_CLASS_NUMBERS:
        raise InputError(
            f"{table.path}: {label.name!r} has {distinct:,} different numbers, which are no classes; "
            "--kind regression estimates them"
        )
    if table.num_rows > 2 and _looks_like_an_id(label, kind, is_named):
        raise InputError(
            f"{table.path}: the label column {label.name!r} differs in nearly every row ({distinct:,} values in "
            f"{count:,} rows): an id or a text, not a label. Name another with --label COLUMN; it has {table.names}"
        )


def _looks_like_an_id(label: ColumnFacts, kind: DraftKind, is_named: bool) -> bool:
    """Whether values differ like those of an id or a text; a named column may be a price, or have rare classes."""
    distinct, count = len(label.distinct), len(label.values)
    if label.is_number and not label.is_whole:
        return False
    if kind == "regression":
        return distinct == count and not is_named
    return kind == "classification" and (distinct == count if is_named else distinct > 0.5 * count)


# Remarks


def _choice_remarks(label: ColumnFacts, kind: DraftKind, separator: str | None, request: DraftRequest) -> Iterator[str]:
    """Tell of a kind that the values leave open."""
    if request.kind is not None:
        return
    if separator is not None:
        yield f"{separator!r} is taken to stand between several labels; --kind classification takes each value whole"
    if kind == "classification" and label.is_whole and len(label.distinct) > 2:
        yield "labels are whole numbers, taken as classes; --kind regression estimates them as numbers"


def _other_labels(table: TableFacts, texts: tuple[str, ...], label: ColumnFacts) -> Iterator[str]:
    others = [c for c in table.columns if c.name not in (*texts, label.name) and not c.are_objects]
    likely = [column.name for column in others if column.name.lower() in _LABEL_NAMES]
    names_of = next((c.name for c in others if c.name.lower() in _names_of(label.name)), None)
    if names_of is not None:
        yield f"{names_of} has the names of {label.name}: --label {names_of} learns these"
    elif not likely and label.name.lower() not in _LABEL_NAMES:
        likely = [column.name for column in _with_few_values(table, texts) if column in others]
    if likely:
        yield f"{', '.join(likely)} could be the label as well: --label {likely[0]}"


def _names_of(name: str) -> Iterable[str]:
    return (f"{name.lower()}_{ending}" for ending in ("text", "name", "names", "str"))


def _unread_texts(table: TableFacts, texts: tuple[str, ...]) -> list[str]:
    others = [c.name for c in table.columns if c.name not in texts and c.is_text and c.mean_words > 4]
    return [f"{', '.join(others)} holds text as well and is not read: --text {others[0]}"] if others else []


def _odd_names(table: TableFacts) -> Iterator[str]:
    """Tell of names in the first line that are not seen, or not told apart: with outer blanks, or there twice."""
    names = [column.name for column in table.columns]
    blank = [name for name in names if name != name.strip()]
    if blank:
        yield (
            f"blanks at the ends of the columns' names {', '.join(map(repr, blank))} are taken as part of them; take "
            f"them out of {table.path}"
        )
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield f"{names.count(name)} columns are called {name!r}; the first is read: give the others other names"


def _nearly_equal(table: TableFacts, label: ColumnFacts) -> Iterator[str]:
    """Tell of labels that are easily taken for one another."""
    for values in look_alike(label.distinct):
        named = f"{', '.join(map(repr, values[:-1]))} and {values[-1]!r}"
        yield (
            f"labels {named} look alike and are {len(values)} classes; if one is meant, write it in one way in "
            f"{table.path}"
        )
