"""Choice of what is learned from a table: the columns of text, those of the label, the kind of task.

Names decide where they speak for themselves, else what stands in the columns.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from orchestrator.base.errors import InputError
from orchestrator.drafting.columns import NAMES_OF_LISTS, ColumnFacts, TableFacts
from orchestrator.drafting.request import DraftRequest
from orchestrator.specs.task import Head, TaskSpec
from orchestrator.tasks.bio_tags import fit_one_form, marks_places, other_tags_problem
from orchestrator.tasks.cell_values import FLAGS, is_written_number, number_problem
from orchestrator.tasks.table_files import class_names, table_name
from orchestrator.tasks.types import TASK_TYPES
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
_PAIRS = {("premise", "hypothesis"), *product(("question", "query"), ("sentence", "document", "passage", "context"))}
_SEPARATORS = ("|", ";", ",")
_ID_NAME = re.compile(r"(.*[^a-z])?(id|uid|guid|index|idx|key|number|nr|no)", re.IGNORECASE)
_MAX_CLASSES = 50
"""Values at most of a column that is taken for the label although its name does not say so."""
_NUMBERS_SHARE = 0.8
"""Share of different values that are numbers, above which a label is one and the others are named."""
_NEAR = re.compile(r"pos(itive?)?s?(_(text|sentence|document|passage)s?)?")
_FAR = re.compile(r"(hard_)?neg(ative?)?s?(_(text|sentence|document|passage)s?)?(_?\d+)?")
_FIRST_ROWS = 200
"""Rows that show the layout of spans."""
_CHOICE = re.compile(r"(ending|choice|option|answer|sol)s?_?[a-e\d]|[a-e]")
"""Names of columns that hold a text to choose each; a and b alone may be a pair."""
_ANSWERS = ("answer", "answers", "answer_text", "qas")
_spec_of = partial(TaskSpec, id="own", on_bad_record="skip")
_pairs_of = partial(_spec_of, head="embedding", objective="in_batch_negatives")
_OF_TAGS = ("ner", "token_classification")


class TaskChoice(NamedTuple):
    task: TaskSpec
    """Kind and columns of a task, which has no id and no files yet; without a head one column to pretrain on."""
    remarks: Sequence[str] = ()
    """Choices that a person may want to make otherwise."""
    table: TableFacts | None = None


def choose_task(table: TableFacts, request: DraftRequest) -> TaskChoice:
    """Choose columns and kind of task. Raises: InputError where the table has nothing to learn from."""
    asked = request.kind
    if asked in (None, "qa") and _have_passages(table, request):
        return TaskChoice(_spec_of(head="qa"))
    for kinds, suits in _KNOWN_BY_COLUMNS:
        if asked in (None, *kinds) and (choice := suits(table, request)) is not None:
            return choice
    _refuse_other_tasks(table, request)
    texts = _text_columns(table, request)
    if asked == "pretraining":
        return TaskChoice(_spec_of(text_columns=texts[:1]))
    if asked == "embedding":
        if len(texts) < 2:
            raise InputError(f"{table.path}: embeddings learn from pairs of texts; name both: --text ONE --text OTHER")
        return TaskChoice(_pairs_of(text_columns=texts))
    others = [column for column in table.columns if column.name not in texts and column.values]
    label = _label_column(table, texts, others, request)
    if (flags := _flags(others)) and _are_labels(flags, label, request):
        task = _spec_of(head="multi_label", text_columns=texts, label_columns=tuple(flag.name for flag in flags))
        one = f"--label {flags[0].name} learns that one alone"
        remark = f"each column of 0 and 1 (or no and yes) is taken for a label of its own; {one}"
        return TaskChoice(task, [remark, *_columns_remarks(table, texts)])
    if asked is None:
        is_named = request.label_column or (label is not None and label.name.lower() in _LABEL_NAMES)
        _refuse_other_layouts(table, [label] if label and (is_named or not label.is_list) else table.columns)
    if label is None:
        return _without_label(table, texts, others)
    head, separator = _head_of(table, label, asked)
    _check_label(table, label, head, is_named=request.label_column is not None)
    remarks = [] if asked else [*_label_remarks(label, head, separator)]
    remarks += [*_other_labels(table, texts, label), *_columns_remarks(table, texts)]
    apart: dict[str, Any] = {} if separator is None else {"label_separator": separator}
    return TaskChoice(_spec_of(head=head, text_columns=texts, label_column=label.name, **apart), remarks)


def _refuse_other_tasks(table: TableFacts, request: DraftRequest) -> None:
    """Refuse what is no task of texts with labels: choices to answer with, and kinds that read other files.

    Raises: InputError.
    """
    choices = [column.name for column in table.columns if column.is_text and _CHOICE.fullmatch(column.last_name)]
    if request.kind is None and not request.text_columns and len(choices) > 1 and len("".join(choices)) > 2:
        way = "write a spec with task.head multiple_choice, or say --kind classification or pretraining"
        raise InputError(f"{table.path}: {', '.join(choices)} look like choices of which one is right; {way}")
    if request.kind in ("ner", "token_classification", "qa"):
        _refuse_other_layouts(table, table.columns if request.kind in _OF_TAGS else ())
        reads = TASK_TYPES[request.kind].labeled_layout
        raise InputError(f"{table.path} is a table of texts, and a {request.kind} task reads {reads}; convert it")


def _are_labels(flags: Sequence[ColumnFacts], label: ColumnFacts | None, request: DraftRequest) -> bool:
    """Whether columns of 0 and 1 are a label each, beside the column that would be the only label."""
    if request.label_column is not None or request.kind not in (None, "multi_label"):
        return False
    if label is None:
        return True
    if request.kind is None:
        return label in flags and label.last_name not in _LABEL_NAMES
    return not label.is_list and _separator(label) is None


def _label_remarks(label: ColumnFacts, head: Head, separator: str | None) -> Iterator[str]:
    """Tell how a label is read, where another kind of task would read it otherwise."""
    if separator is not None:
        stands = f"{separator!r} is taken to stand between several labels"
        yield f"{stands}; --kind classification takes each value whole"
    elif not label.is_list and (mark := _separator(label, is_asked=True)):
        yield f"a label holds {mark!r} as it is; --kind multi_label takes it to stand between several labels"
    elif label.is_number and 2 < len(label.distinct) <= _MAX_CLASS_NUMBERS:
        other = "regression estimates them" if head == "classification" else "classification takes each for a class"
        yield f"labels are numbers, here for {head}; --kind {other}"


# Questions, words with tags, triples: known by their columns


def _have_passages(table: TableFacts, request: DraftRequest) -> bool:
    """Whether questions have passages, and answers other than a few labels such as yes and no."""
    if not are_question_columns(column.name for column in table.columns):
        return False
    named = [[c for c in table.columns if c.last_name in names] for names in (_ANSWERS, _LABEL_NAMES)]
    few = [c for c in named[0] or named[1] if _has_few_values(c) and not isinstance(c.values[0], list | dict)]
    return request.kind == "qa" or not few


def _tag_lists(table: TableFacts, request: DraftRequest) -> TaskChoice | None:
    """The choice for lists of words beside lists of as many tags; BIO tags come first. Raises: InputError."""
    has_texts = any(column.is_text and column.mean_words > 3 for column in table.columns)
    names = [*_listing(table, "tags"), *(c for c in _listing(table, "numbers") if class_names(table.path, c.name))]
    from_behind = _listing(table, "words")[::-1]  # tags stand behind words
    plain = sorted(from_behind, key=lambda column: len(column.words))
    for tags in (*sorted(names, key=_place_of_names), *plain[: None if request.label_column else 1]):
        for words in _listing(table, "words") if request.label_column in (None, tags.name) else ():
            is_asked = words.name in request.text_columns or re.search("word|token|form", words.last_name)
            is_sentence = is_asked or not (has_texts or request.text_columns)
            fits = tags in names or (_lengths(tags) == _lengths(words) and sum(_lengths(tags)) > len(tags.values))
            if words is tags or not is_sentence or not fits:
                continue
            if request.kind == "ner" and tags not in names:
                raise InputError(f"{table.path}: {tags.name!r} has the {other_tags_problem(sorted(tags.words))}")
            is_plain = tags not in names or request.kind == "token_classification"
            shown = ", ".join(map(repr, sorted(tags.words)[:3]))
            remark = f"{tags.name!r} has a tag of each word ({shown}); names have BIO tags, with B- and I-"
            head: Head = "token_classification" if is_plain else "ner"
            task = _spec_of(head=head, text_columns=(words.name,), label_column=tags.name)
            return TaskChoice(task, [remark] if is_plain else [])
    return None


def _lengths(column: ColumnFacts) -> list[int]:
    return [len(value) if isinstance(value, list) else 0 for value in column.values]


def _place_of_names(column: ColumnFacts) -> tuple[bool, bool]:
    """Key that sorts columns of tags: those of names by their own name first, those of chunks last."""
    return "ner" not in column.last_name, "chunk" in column.last_name


def _spans(table: TableFacts, request: DraftRequest) -> TaskChoice | None:
    spans = next((c for c in _listing(table, "spans") if request.label_column in (None, c.name)), None)
    if spans is None:
        return None
    texts = _text_columns(table, request)
    task = _spec_of(head="ner", text_columns=texts[:1], label_column=spans.name)
    return TaskChoice(task, [*_other_labels(table, texts, spans)])


def _tag_rows(table: TableFacts, request: DraftRequest) -> TaskChoice | None:
    """The choice for a word and its tag in each row, beside its sentence's name; BIO tags come first."""
    sentence = next((column for column in table.columns if re.search("sent(?!iment)", column.name.lower())), None)
    texts = [column for column in table.columns if column is not sentence and column.is_text]
    names = list(filter(_has_entity_tags, texts))
    plain = [column for column in texts if re.search("pos|tag", column.last_name) and _has_few_values(column)]
    for tags in (*sorted(names, key=_place_of_names), *plain):
        words = [column for column in texts if column is not tags and column.mean_words < 1.1]
        head: Head = "ner" if tags in names else "token_classification"
        if sentence and words and request.label_column in (None, tags.name) and request.kind in (None, head):
            word = next((column for column in words if column.last_name in ("word", "token")), words[0])
            return TaskChoice(_spec_of(head=head, text_columns=(sentence.name, word.name), label_column=tags.name))
    return None


def _has_entity_tags(column: ColumnFacts) -> bool:
    """Whether each value is a tag of an entity, or outside of all."""
    return len(column.distinct) > 1 and not column.distinct.isdisjoint("Oo") and fit_one_form(column.distinct)


def _triples(table: TableFacts, request: DraftRequest) -> TaskChoice | None:
    """The choice for texts beside those that are to be near and far, where nothing else is a label."""
    varied = [column for column in table.columns if 2 * len(column.distinct) > len(column.values)]
    far = [c for c in varied if _FAR.fullmatch(c.last_name) and (c.is_text or c.listed == "words")]
    texts = [column for column in varied if column.is_text and column not in far and not _is_id(column)]
    named = [c for c in varied if _NEAR.fullmatch(c.last_name) and (far or c.last_name.startswith("positiv"))]
    near = next(iter(named or (texts[1:] if far and len(texts) == 2 else ())), None)
    query = next((column for column in texts if column is not near), None)
    has_label = any(c.last_name in _LABEL_NAMES or (c.is_number and not _is_id(c)) for c in table.columns)
    is_meant = request.kind is not None or not has_label
    if request.label_column or request.text_columns or near not in texts or query is None or not is_meant:
        return None
    names = tuple(column.name for column in (query, near, *far) if column is not None)
    return TaskChoice(_pairs_of(text_columns=names[:2], negative_columns=names[2:]))


_KNOWN_BY_COLUMNS = ((_OF_TAGS, _tag_lists), (("ner",), _spans), (_OF_TAGS, _tag_rows), (("embedding",), _triples))
"""Kinds whose tables are known by their columns, whatever their texts."""


def _refuse_other_layouts(table: TableFacts, columns: Sequence[ColumnFacts]) -> None:
    """Refuse tags, spans, triples and questions in layouts that no task reads. Raises: InputError."""
    has_questions = any("question" in column.last_name for column in table.columns)
    head: Head
    for column in sorted(columns, key=lambda column: "ner" not in column.last_name):
        shown = str(column.values[0])[:40] if column.values else ""
        if any(map(marks_places, column.values[:_FIRST_ROWS])):
            head, looks = "ner", "looks like spans, names with character offsets, in another layout"
        elif column.listed == "tags" or _has_entity_tags(column):
            head, looks = "ner", f"has BIO tags ({shown!r}), and no column has the words of their sentences"
        elif column.listed == "numbers" and _listing(table, "words", "tags"):
            head, looks = "ner", f"has tags as numbers (of `datasets`: features[{column.name!r}].feature.names)"
        elif has_questions and column.last_name in _ANSWERS and not _has_few_values(column):
            head, looks = "qa", "looks like answers to questions"
        else:
            continue
        way = f"write {TASK_TYPES[head].labeled_layout}, or say --kind pretraining or classification"
        raise InputError(f"{table.path}: {column.name!r} {looks}; {way}")


def _listing(table: TableFacts, *kinds: str) -> list[ColumnFacts]:
    return [column for column in table.columns if column.listed in kinds]


# Columns of text and of the label


def _text_columns(table: TableFacts, request: DraftRequest) -> tuple[str, ...]:
    if request.text_columns:
        return tuple(table.column(name).name for name in request.text_columns)
    texts = [c for c in table.columns if c.is_text and c.name != request.label_column and not _is_id(c)]
    texts = [column for column in texts if 2 * len(column.values) >= table.num_rows] or texts
    pairs = [(one, two) for one in texts for two in texts if _is_pair(one, two, texts)]
    if pairs:
        one, two = max(pairs, key=lambda pair: pair[0].mean_words + pair[1].mean_words)
        return one.name, two.name
    named = [column.name for hint in _TEXT_NAMES for column in texts if column.last_name == hint]
    if named:
        return (named[0],)
    longest = max(texts, key=lambda column: column.mean_words, default=None)
    if longest is None or (longest.mean_words < 1.5 and longest.last_name in _LABEL_NAMES):
        _refuse_other_layouts(table, table.columns)
        raise InputError(f"{table.path} has no column of text, only {table.names}; write texts in one (--text COLUMN)")
    return (longest.name,)


def _is_pair(one: ColumnFacts, two: ColumnFacts, texts: Sequence[ColumnFacts]) -> bool:
    """Whether two columns are a pair by their names, as sentence1 and sentence2, and no other has longer texts."""
    first, second = one.last_name, two.last_name
    numbered, lettered = first.replace("1", "2"), re.sub("(?<=[a-z]_)a$", "b", first)
    longest = max((column.mean_words for column in texts if column not in (one, two)), default=0.0)
    is_long = re.sub(r"_?[1a]$", "", first) in _TEXT_NAMES or 2 * min(one.mean_words, two.mean_words) > max(3, longest)
    return (first, second) in _PAIRS or (first != second and second in (numbered, lettered) and is_long)


def _is_id(column: ColumnFacts) -> bool:
    is_called = _ID_NAME.fullmatch(column.name) is not None and "class" not in column.last_name
    return is_called or (column.is_whole and len(column.distinct) == len(column.values) > _MAX_CLASS_NUMBERS)


def _label_column(
    table: TableFacts, texts: tuple[str, ...], others: Sequence[ColumnFacts], request: DraftRequest
) -> ColumnFacts | None:
    if request.label_column is not None:
        if request.label_column in texts:
            raise InputError(f"{request.label_column!r} cannot be text and label; name another with --text or --label")
        return table.column(request.label_column)
    exact = [column for hint in _LABEL_NAMES for column in others if column.last_name == hint]
    if named := exact or [c for hint in _LABEL_NAMES for c in others if c.last_name.endswith(f"_{hint}")]:
        return named[0]
    if few := [column for column in others if _has_few_values(column) and 10 * len(column.values) >= table.num_rows]:
        names = [column.name for column in table.columns]
        last_text = max(names.index(name) for name in texts)
        # Most tables have the label behind the text.
        flags = {flag.name for flag in _flags(others)}  # two stand beside another label; more are labels themselves
        last = {c.name for c in few if (len(flags) == 2 and c.name in flags) or isinstance(c.values[0], dict)}
        last |= {column.name for column in few if len(column.values) < 0.9 * table.num_rows}
        return min(few, key=lambda c: (c.name in last, len(c.distinct), names.index(c.name) < last_text))
    numbers = [column for column in others if not _is_id(column) and not column.is_whole]
    return next((c for c in numbers if c.is_number or (c.distinct and all(map(is_written_number, c.distinct)))), None)


def _flags(columns: Sequence[ColumnFacts]) -> list[ColumnFacts]:
    """Columns of 0 and 1 (or no and yes, or -1 for unknown), one a label; empty for a single one."""
    pairs = [frozenset(map(str.lower, column.distinct)) for column in columns]
    usual = max((pair for pair in pairs if {*map(FLAGS.get, pair)} == {False, True}), key=pairs.count, default=None)
    flags = [column for column, pair in zip(columns, pairs, strict=True) if pair == usual]
    more = [c for c in columns if "0" in c.distinct <= {"-1", "0", "1"} and c.last_name not in _LABEL_NAMES]
    return [column for column in columns if column in flags or column in more] if len(flags) > 1 else []


def _has_few_values(column: ColumnFacts) -> bool:
    most = min(_MAX_CLASSES, max(2, len(column.values) // 3))
    return 2 <= len(column.distinct) <= most and not _is_id(column)


def _without_label(table: TableFacts, texts: tuple[str, ...], others: Sequence[ColumnFacts]) -> TaskChoice:
    """The choice of pretraining on records without a label. Raises: InputError for a table that it does not read."""
    if table_name(table.path) not in ("JSONL", "Parquet"):
        raise InputError(
            f"{table.path} has no column that looks like a label; it has {table.names}. Name it with --label COLUMN; "
            "to pretrain on the texts, save them as a .txt file with an empty line between documents"
        )
    unread = [*texts[1:], *(column.name for column in others if not _is_id(column))]
    others_way = f"--label {unread[-1]} learns one as the label, --kind embedding pairs of texts" if unread else ""
    remarks = [f"nothing else is read: {', '.join(unread)}; {others_way}"] if unread else []
    return TaskChoice(_spec_of(text_columns=texts[:1]), remarks)


def _head_of(table: TableFacts, label: ColumnFacts, asked: Head | None) -> tuple[Head, str | None]:
    """The kind of task that learns a label, and what stands between several labels of one value."""
    separator = None if label.is_list else _separator(label, is_asked=asked == "multi_label")
    if asked is not None:
        return asked, separator if asked == "multi_label" else None
    if label.is_list:
        return "multi_label", None
    if label.is_number:
        is_class = label.is_whole and len(label.distinct) <= _MAX_CLASS_NUMBERS
        return ("classification" if is_class else "regression"), None
    num_numbers = sum(map(is_written_number, label.distinct))
    if num_numbers > _NUMBERS_SHARE * len(label.distinct) and label.last_name not in NAMES_OF_LISTS:
        problem = next(filter(None, map(number_problem, label.values)))
        raise InputError(f"{table.path}: {label.name}: {problem}; or say --kind classification or --kind multi_label")
    return ("classification" if separator is None else "multi_label"), separator


def _separator(label: ColumnFacts, *, is_asked: bool = False) -> str | None:
    """The sign between several labels of one value: a bar, or what leaves fewer different names than values.

    Args:
        is_asked: whether values are lists of labels; then the first that stands in some.
    """
    for separator in _SEPARATORS:
        is_common = sum(separator in str(value) for value in label.values) >= 0.05 * len(label.values)
        names = {name.strip() for value in label.distinct for name in value.split(separator)}
        is_short = all(len(name.split()) <= 4 for name in names)
        if is_common and is_short and (is_asked or separator == "|" or len(names) < len(label.distinct)):
            return separator
    return None


def _check_label(table: TableFacts, label: ColumnFacts, head: Head, *, is_named: bool) -> None:
    """Check that there is something to learn; whoever names a column knows whether it is an id. Raises: InputError."""
    distinct, count = len(label.distinct), len(label.values)
    # A named column may be a price, or have rare classes.
    of_classes, of_numbers = (count - 1, count) if is_named else (count // 2, count - label.is_whole)
    of_classes = min(of_classes, _MAX_CLASS_NUMBERS) if label.is_number and not label.is_whole else of_classes
    most = {"classification": of_classes, "regression": of_numbers}.get(head, count)
    if table.num_rows > 2 and distinct > max(1, most):
        raise InputError(
            f"{table.path}: the label column {label.name!r} has {distinct:,} values in {count:,} rows: an id, a text "
            f"or a number (--kind regression), no label. Name another with --label COLUMN; it has {table.names}"
        )


def _other_labels(table: TableFacts, texts: tuple[str, ...], label: ColumnFacts) -> Iterator[str]:
    others = [c for c in table.columns if c.name not in (*texts, label.name) and {*map(type, c.values)} != {dict}]
    named = [column for column in others if column.last_name in _LABEL_NAMES]
    likely = named or [column for column in others if _has_few_values(column)]
    if likely:
        are_alike = all(len(c.distinct) == 2 and c.distinct == label.distinct for c in likely)
        way = "; --kind multi_label takes columns of 0 and 1 for a label each" if are_alike else ""
        yield f"{', '.join(c.name for c in likely)} could be the label as well: --label {likely[0].name}{way}"


def _columns_remarks(table: TableFacts, texts: tuple[str, ...]) -> Iterator[str]:
    others = [c.name for c in table.columns if c.name not in texts and c.is_text and c.mean_words > 4]
    if others:
        yield f"{', '.join(others)} holds text as well and is not read: --text {others[0]}"
    if lists := ", ".join(c.name for c in _listing(table, "words") if c.last_name not in _LABEL_NAMES):
        yield f"{lists}: lists of texts, which are not read; of choices to answer with: task.head multiple_choice"
