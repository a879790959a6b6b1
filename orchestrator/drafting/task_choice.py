"""Choice of what is learned from a table: the columns of text, those of the label, the kind of task.

Names decide where they speak for themselves, else what stands in the columns.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from orchestrator.drafting.columns import ColumnFacts, TableFacts
from orchestrator.drafting.request import DraftKind, DraftRequest
from orchestrator.errors import InputError
from orchestrator.specs.task import Head, TaskSpec
from orchestrator.tasks.bio_tags import fit_one_scheme, other_tags_problem
from orchestrator.tasks.cell_values import is_written_number, number_problem
from orchestrator.tasks.table_files import class_names, table_name
from orchestrator.tasks.types.character_spans import SPAN_EXAMPLE
from orchestrator.tasks.types.squad import are_question_columns

_MAX_CLASS_NUMBERS = 20
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
_LAYOUTS = {
    "ner": "CoNLL columns (in a file whose name ends in .conll), a word and its tag in each row beside a column "
    f"'sentence', lists of words and of tags, or character spans ({SPAN_EXAMPLE}, the end past the last character)",
    "token_classification": "CoNLL columns (in a file whose name ends in .conll), or lists of words and of tags",
    "qa": "SQuAD's JSON, or columns question, context and answers",
    "embedding": "columns of two texts that belong together, and texts or lists of texts 'negative'",
}
_NEAR = re.compile(r"pos(itive?)?s?(_(text|sentence|document|passage)s?)?")
_FAR = re.compile(r"(hard_)?neg(ative?)?s?(_(text|sentence|document|passage)s?)?(_?\d+)?")
_NEAR_OR_FAR = re.compile(r"(hard_)?(pos|neg)(itive?|ative?)?s?(_\w+)?")
_ANSWERS = ("answer", "answers", "answer_text", "qas")
_PLACES = {"start", "end", "begin", "offset", "length", "start_offset", "end_offset"}


class TaskChoice(NamedTuple):
    """Choice of what is learned from files."""

    task: TaskSpec
    """Kind and columns of a task, which has no id and no files yet; without a head one column to pretrain on."""
    remarks: Sequence[str] = ()
    """Choices that a person may want to make otherwise."""
    table: TableFacts | None = None
    """The table of the training file; None of another layout."""


_spec_of = partial(TaskSpec, id="own", on_bad_record="skip")
_pairs_of = partial(_spec_of, head="embedding", objective="in_batch_negatives")


def choose_task(table: TableFacts, request: DraftRequest) -> TaskChoice:
    """Choose columns and kind of task. Raises: InputError where the table has nothing to learn from."""
    asked = request.kind
    if asked in (None, "qa") and _have_passages(table, request):
        return TaskChoice(_spec_of(head="qa"))
    for kind, suits in _KNOWN_BY_COLUMNS:
        if asked in (None, kind) and (choice := suits(table, request)) is not None:
            return choice
    if asked == "ner":
        _refuse_other_layouts(table, table.columns)
    if asked in _LAYOUTS and asked != "embedding":
        raise InputError(f"{table.path} is a table of texts, and a {asked} task reads {_LAYOUTS[asked]}; convert it")
    texts = _text_columns(table, request)
    if asked == "pretraining":
        return TaskChoice(_spec_of(text_columns=texts[:1]))
    if asked == "embedding":
        if len(texts) < 2:
            raise InputError(f"{table.path}: embeddings learn from pairs of texts; name both: --text ONE --text OTHER")
        return TaskChoice(_pairs_of(text_columns=texts))
    others = [column for column in table.columns if column.name not in texts and column.values]
    label = _label_column(table, texts, others, request)
    flags = _flags(others)
    if request.label_column is None and flags and (asked is None or (asked == "multi_label" and label is not None)):
        is_one = label is not None and (label.is_list or _separator(label) is not None)
        is_meant = label is None or (label in flags and label.last_name not in _LABEL_NAMES)
        if is_meant if asked is None else not is_one:
            task = _spec_of(head="multi_label", text_columns=texts, label_columns=tuple(flag.name for flag in flags))
            one = f"--label {flags[0].name} learns that one alone"
            remarks = [f"each column of 0 and 1 is taken for a label of its own; {one}"]
            return TaskChoice(task, [*remarks, *_columns_remarks(table, texts)])
    if asked is None:
        is_sure = request.label_column is not None or (label is not None and not label.is_list)
        _refuse_other_layouts(table, [label] if label is not None and is_sure else table.columns)
    if label is None:
        return _without_label(table, texts, others)
    head, separator = _head_of(table, label, asked)
    _check_label(table, label, head, is_named=request.label_column is not None)
    remarks = []
    if asked is None and separator is not None:
        stands = f"{separator!r} is taken to stand between several labels"
        remarks.append(f"{stands}; --kind classification takes each value whole")
    elif asked is None and head == "classification" and label.is_whole and len(label.distinct) > 2:
        remarks.append("labels are whole numbers, taken as classes; --kind regression estimates them as numbers")
    remarks += [*_other_labels(table, texts, label), *_columns_remarks(table, texts)]
    apart: dict[str, Any] = {} if separator is None else {"label_separator": separator}
    return TaskChoice(_spec_of(head=head, text_columns=texts, label_column=label.name, **apart), remarks)


# Questions, words with tags, triples: known by their columns


def _have_passages(table: TableFacts, request: DraftRequest) -> bool:
    """Whether questions have passages, and answers that are parts of these: no label, nor yes and no."""
    if not are_question_columns(column.name for column in table.columns):
        return False
    named = [[c for c in table.columns if c.last_name in names] for names in (_ANSWERS, _LABEL_NAMES)]
    few = [c for c in named[0] or named[1] if _has_few_values(c) and not isinstance(c.values[0], list | dict)]
    passages = max(table.columns, key=lambda column: column.mean_words).values
    pairs = [(str(value), str(text)) for column in few for value, text in zip(column.values, passages, strict=False)]
    found = sum(
        re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE) is not None for value, text in pairs
    )
    return request.kind == "qa" or 2 * found > len(pairs) or not few


def _tagged_words(table: TableFacts, request: DraftRequest) -> TaskChoice | None:
    """The choice for lists of words and of tags, or texts with character spans."""
    numbered = (column for column in _listing(table, "numbers") if class_names(table.path, column.name))
    tags = next(chain(_listing(table, "tags"), numbered), None)
    words = next((column for column in _listing(table, "words", "tags") if column is not tags), None)
    if tags is not None and words is not None:
        return TaskChoice(_spec_of(head="ner", text_columns=(words.name,), label_column=tags.name))
    spans = next((c for c in _listing(table, "spans") if request.label_column in (None, c.name)), None)
    if spans is None:
        return None
    texts = _text_columns(table, request)
    task = _spec_of(head="ner", text_columns=texts[:1], label_column=spans.name)
    return TaskChoice(task, [*_other_labels(table, texts, spans)])


def _tag_rows(table: TableFacts, request: DraftRequest) -> TaskChoice | None:
    """The choice for a word and its BIO tag in each row, beside its sentence's name."""
    for tags in table.columns:
        are_tags = not tags.distinct.isdisjoint("Oo") and len(tags.distinct) > 1 and fit_one_scheme(tags.distinct)
        if not (are_tags and tags.is_text and request.label_column in (None, tags.name)):
            continue
        others = [column for column in table.columns if column is not tags]
        sentence = next((column for column in others if "sent" in column.name.lower()), None)
        words = [column for column in others if column is not sentence and column.is_text]
        if sentence is None or not words:
            continue
        word = next((column for column in words if column.last_name in ("word", "token")), words[0])
        return TaskChoice(_spec_of(head="ner", text_columns=(sentence.name, word.name), label_column=tags.name))
    return None


def _triples(table: TableFacts, request: DraftRequest) -> TaskChoice | None:
    """The choice for texts beside those that are to be near and far."""
    far = [c for c in table.columns if _FAR.fullmatch(c.last_name) and (c.is_text or c.listed in ("words", "tags"))]
    texts = [column for column in table.columns if column.is_text and column not in far and not _is_id(column)]
    named = [c for c in texts if _NEAR.fullmatch(c.last_name) and (far or c.last_name.startswith("positiv"))]
    near = next(iter(named or (texts[1:] if far and len(texts) == 2 else ())), None)
    query = next((column for column in texts if column is not near), None)
    if request.label_column is not None or near is None or query is None:
        return None
    names = tuple(column.name for column in (query, near, *far))
    return TaskChoice(_pairs_of(text_columns=names[:2], negative_columns=names[2:]))


def _plain_tags(table: TableFacts, request: DraftRequest) -> TaskChoice | None:
    """The choice for lists of words beside lists of as many tags that mark no names, as parts of speech."""
    lists = _listing(table, "words", "tags")
    tags = min(reversed(lists), key=lambda column: len(column.words), default=None)  # tags stand behind words
    if tags is None or request.label_column not in (None, tags.name):
        return None
    lengths = {one.name: [len(value) for value in one.values if isinstance(value, list)] for one in lists}
    words = next((one for one in lists if one is not tags and lengths[one.name] == lengths[tags.name]), None)
    if words is None:
        return None
    if request.kind == "ner":
        raise InputError(f"{table.path}: {tags.name!r} has the {other_tags_problem(sorted(tags.words))}")
    task = _spec_of(head="token_classification", text_columns=(words.name,), label_column=tags.name)
    shown = ", ".join(map(repr, sorted(tags.words)[:3]))
    return TaskChoice(task, [f"{tags.name!r} has a tag of each word ({shown}); names have BIO tags, with B- and I-"])


_KNOWN_BY_COLUMNS: Sequence[tuple[DraftKind, Callable[[TableFacts, DraftRequest], TaskChoice | None]]] = (
    ("ner", _tagged_words),
    ("ner", _tag_rows),
    ("embedding", _triples),
    ("token_classification", _plain_tags),
    ("ner", _plain_tags),
)
"""Kinds whose tables are known by their columns, whatever their texts."""


def _refuse_other_layouts(table: TableFacts, columns: Sequence[ColumnFacts]) -> None:
    """Refuse tags, spans, triples and questions in layouts that no task reads. Raises: InputError."""
    has_questions = any("question" in column.last_name for column in table.columns)
    for column in sorted(columns, key=lambda column: "ner" not in column.last_name):
        if any(map(_marks_places, column.values[:100])):
            head, looks = "ner", "looks like spans, names with character offsets, in another layout"
        elif _are_tags(column):
            head, looks = "ner", f"has BIO tags ({str(column.values[0])[:40]!r}) beside no list of words"
        elif column.listed == "numbers" and _listing(table, "words", "tags"):
            head, looks = "ner", f"has tags as numbers (of `datasets`: features[{column.name!r}].feature.names)"
        elif column.is_list and _NEAR_OR_FAR.fullmatch(column.last_name):
            head, looks = "embedding", "looks like texts near to or far from another"
        elif has_questions and column.last_name in _ANSWERS and not _has_few_values(column):
            head, looks = "qa", "looks like answers to questions"
        else:
            continue
        raise InputError(
            f"{table.path}: {column.name!r} {looks}; a task of {head} reads {_LAYOUTS[head]}: write that, or say "
            "--kind pretraining or classification"
        )


def _marks_places(value: object) -> bool:
    """Whether a value holds objects with a start and an end, or lists of two offsets and a name."""
    if isinstance(value, dict):
        return len(_PLACES & value.keys()) > 1 or any(map(_marks_places, value.values()))
    if not isinstance(value, list):
        return False
    kinds = sorted(type(item).__name__ for item in value)
    return kinds in (["int", "int", "str"], ["float", "float", "str"]) or any(map(_marks_places, value))


def _are_tags(column: ColumnFacts) -> bool:
    """Whether values are BIO tags: one, several in a text or a list of them."""
    rows = [re.findall(r"[^\s,]+", value) for value in column.values if isinstance(value, str)]
    tags = set(chain(column.words, *rows))
    is_one = column.listed == "tags" or (column.is_text and len(tags) < sum(map(len, rows)) / 2)
    return is_one and 0 < len(tags - {"O", "o"}) < len(tags) and fit_one_scheme(tags)


def _listing(table: TableFacts, *kinds: str) -> list[ColumnFacts]:
    return [column for column in table.columns if column.listed in kinds]


# Columns of text and of the label


def _text_columns(table: TableFacts, request: DraftRequest) -> tuple[str, ...]:
    if request.text_columns:
        return tuple(table.column(name).name for name in request.text_columns)
    texts = [c for c in table.columns if c.is_text and c.name != request.label_column and not _is_id(c)]
    texts = [column for column in texts if 2 * len(column.values) >= table.num_rows] or texts
    pairs = [(one, two) for one in texts for two in texts if _is_pair(one.last_name, two.last_name)]
    if pairs:
        one, two = max(pairs, key=lambda pair: pair[0].mean_words + pair[1].mean_words)
        return one.name, two.name
    named = [column.name for hint in _TEXT_NAMES for column in texts if column.last_name == hint]
    if named:
        return (named[0],)
    longest = max(texts, key=lambda column: column.mean_words, default=None)
    if longest is None or (longest.mean_words < 1.5 and longest.last_name in _LABEL_NAMES):
        _refuse_other_layouts(table, table.columns)
        raise InputError(f"{table.path} has no column of text; it has {table.names}. Name one with --text COLUMN")
    return (longest.name,)


def _is_pair(one: str, two: str) -> bool:
    """Whether two columns are a pair by their names: sentence1 and sentence2, text_a and text_b."""
    numbered, lettered = one.replace("1", "2"), re.sub("(?<![a-z])a(?![a-z])", "b", one)
    return (one, two) in _PAIRS or (one != two and two in (numbered, lettered))


def _is_id(column: ColumnFacts) -> bool:
    return _ID_NAME.fullmatch(column.name) is not None or (
        column.is_whole and len(column.distinct) == len(column.values) > _MAX_CLASS_NUMBERS
    )


def _label_column(
    table: TableFacts, texts: tuple[str, ...], others: Sequence[ColumnFacts], request: DraftRequest
) -> ColumnFacts | None:
    if request.label_column is not None:
        if request.label_column in texts:
            raise InputError(f"{request.label_column!r} cannot be text and label; name another with --text or --label")
        return table.column(request.label_column)
    named = [column for hint in _LABEL_NAMES for column in others if column.last_name == hint]
    if named:
        return named[0]
    if few := [column for column in others if _has_few_values(column) and 10 * len(column.values) >= table.num_rows]:
        names = [column.name for column in table.columns]
        last_text = max(names.index(name) for name in texts)
        # Most tables have the label behind the text.
        flags = {flag.name for flag in _flags(others)}  # two stand beside another label; more are labels themselves
        last = {c.name for c in few if (len(flags) == 2 and c.name in flags) or isinstance(c.values[0], dict)}
        return min(few, key=lambda c: (c.name in last, len(c.distinct), names.index(c.name) < last_text))
    numbers = [column for column in others if not _is_id(column) and not column.is_whole]
    return next((c for c in numbers if c.is_number or (c.distinct and all(map(is_written_number, c.distinct)))), None)


def _flags(columns: Sequence[ColumnFacts]) -> list[ColumnFacts]:
    """Columns that say of each row whether it has a label, or (-1) that nobody knows; none where it is one alone."""
    flags = [c for c in columns if c.distinct in ({"0", "1"}, {"false", "true"})]
    more = [c for c in columns if "0" in c.distinct <= {"-1", "0", "1"} and c.last_name not in _LABEL_NAMES]
    return [column for column in columns if column in flags or column in more] if len(flags) > 1 else []


def _has_few_values(column: ColumnFacts) -> bool:
    """Whether a column's values are so few that they may be labels."""
    most = min(_MAX_CLASSES, max(2, len(column.values) // 3))
    return 2 <= len(column.distinct) <= most and not _is_id(column)


def _without_label(table: TableFacts, texts: tuple[str, ...], others: Sequence[ColumnFacts]) -> TaskChoice:
    """The choice of pretraining on records without a label. Raises: InputError for a table that it does not read."""
    if table_name(table.path) not in ("JSONL", "Parquet"):
        raise InputError(
            f"{table.path} has no column that looks like a label; it has {table.names}. Name it with --label COLUMN; "
            "to pretrain on the texts, save them as a .txt file with an empty line between documents"
        )
    unread = [column.name for column in others if not _is_id(column)]
    told = f"nothing else is read: {', '.join(unread)}; --label {unread[-1]} learns one as the label" if unread else ""
    return TaskChoice(_spec_of(text_columns=texts[:1]), [told] if told else ())


def _head_of(table: TableFacts, label: ColumnFacts, asked: Head | None) -> tuple[Head, str | None]:
    """The kind of task that learns a label, and what stands between several labels of one value."""
    separator = None if label.is_list else _separator(label)
    if asked is not None:
        return asked, separator if asked == "multi_label" else None
    if label.is_list:
        return "multi_label", None
    if label.is_number:
        is_class = label.is_whole and len(label.distinct) <= _MAX_CLASS_NUMBERS
        return ("classification" if is_class else "regression"), None
    if label.values and all(map(is_written_number, label.distinct)):
        problem = next(filter(None, map(number_problem, label.values)))
        raise InputError(f"{table.path}: {label.name}: {problem}; or say --kind classification or --kind multi_label")
    return ("classification" if separator is None else "multi_label"), separator


def _separator(label: ColumnFacts) -> str | None:
    """The text between several labels of one value: a bar, or what leaves fewer different names than values."""
    for separator in ("|", ";", ","):
        is_common = sum(separator in str(value) for value in label.values) >= 0.05 * len(label.values)
        names = {name.strip() for value in label.distinct for name in value.split(separator)}
        is_short = all(len(name.split()) <= 4 for name in names)
        if is_common and is_short and (separator == "|" or len(names) < len(label.distinct)):
            return separator
    return None


def _check_label(table: TableFacts, label: ColumnFacts, head: Head, *, is_named: bool) -> None:
    """Check that there is something to learn; whoever names a column knows whether it is an id. Raises: InputError."""
    distinct, count = len(label.distinct), len(label.values)
    is_fraction = label.is_number and not label.is_whole
    if head == "classification" and is_fraction and distinct > _MAX_CLASS_NUMBERS:
        raise InputError(
            f"{table.path}: {label.name!r} has {distinct:,} different numbers, which are no classes; "
            "--kind regression estimates them"
        )
    # A named column may be a price, or have rare classes.
    most = {"regression": count if is_named else count - 1, "classification": count - 1 if is_named else count // 2}
    if table.num_rows > 2 and distinct > 1 and not is_fraction and distinct > most.get(head, count):
        raise InputError(
            f"{table.path}: the label column {label.name!r} differs in nearly every row ({distinct:,} values in "
            f"{count:,} rows): an id or a text, not a label. Name another with --label COLUMN; it has {table.names}"
        )


def _other_labels(table: TableFacts, texts: tuple[str, ...], label: ColumnFacts) -> Iterator[str]:
    others = [c for c in table.columns if c.name not in (*texts, label.name) and {*map(type, c.values)} != {dict}]
    likely = [column.name for column in others if column.name.lower() in _LABEL_NAMES]
    names_of = next((column.name for column in others if label.is_whole and _are_names(column, label)), None)
    flags = _flags([column for column in table.columns if column.name not in texts])
    if flags and label.last_name in _LABEL_NAMES:
        likely = []
        left = ", ".join(flag.name for flag in flags if flag is not label)
        yield f"{left} have 0 and 1 alone and are not read: --kind multi_label takes each such column for a label"
    if names_of is not None:
        yield f"{names_of} has the names of {label.name}: --label {names_of} learns these"
    elif not likely and label.name.lower() not in _LABEL_NAMES:
        likely = [column.name for column in others if _has_few_values(column)]
    if likely:
        yield f"{', '.join(likely)} could be the label as well: --label {likely[0]}"


def _are_names(column: ColumnFacts, label: ColumnFacts) -> bool:
    """Whether a column has a text for each number of the label."""
    pairs = set(zip(map(str, column.values), map(str, label.values), strict=False))
    return column.is_text and len(pairs) == len(column.distinct) == len(label.distinct) > 1


def _columns_remarks(table: TableFacts, texts: tuple[str, ...]) -> Iterator[str]:
    """Tell of texts that are not read, and of names of columns that are not seen, or not told apart."""
    others = [c.name for c in table.columns if c.name not in texts and c.is_text and c.mean_words > 4]
    if others:
        yield f"{', '.join(others)} holds text as well and is not read: --text {others[0]}"

    names = [column.name for column in table.columns]
    blank = ", ".join(repr(name) for name in names if name != name.strip())
    if blank:
        ends = f"blanks at the ends of the columns' names {blank}"
        yield f"{ends} are taken as part of them; take them out of {table.path}"
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield f"{names.count(name)} columns are called {name!r}; the first is read: give the others other names"
