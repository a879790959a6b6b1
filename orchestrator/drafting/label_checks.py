"""Checks that a column is a label: what it has can be learned, and is told from an id, a text, or numbers of tags."""

import re

from orchestrator.drafting.columns import MAX_CLASS_NUMBERS, ColumnFacts, TableFacts
from orchestrator.drafting.request import DraftKind
from orchestrator.errors import InputError
from orchestrator.tasks.bio_tags import fit_one_scheme, other_tags_problem
from orchestrator.tasks.text_examples import are_texts


def check_label(table: TableFacts, label: ColumnFacts, kind: DraftKind, *, is_named: bool) -> None:
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
        wrong = next(str(value) for value in label.values if not ColumnFacts("", [value]).is_number)[:60]
        hint = "; write a point for the decimal comma" if re.fullmatch(r"-?\d+,\d+", wrong) else ""
        raise InputError(f"{table.path}: {label.name!r} is to be a number and has {wrong!r}{hint}")
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


def refuse_other_tags(table: TableFacts) -> None:
    """Refuse lists of words beside lists of what are no BIO tags, numbers as Hugging Face has or parts of speech.

    Raises: InputError.
    """
    words = [column for column in table.columns if column.values and all(map(are_texts, column.values))]
    numbered = [column for column in table.columns if column.values and all(map(_are_whole, column.values))]
    if words and numbered:
        column = max(numbered, key=lambda column: "ner" in column.name.lower())
        raise InputError(
            f"{table.path}: {column.name!r} has tags as numbers, which say no names; write the names in place "
            f'of them: {{"{words[0].name}": ["Ada", "wrote"], "{column.name}": ["B-PER", "O"]}}. In a data set of '
            f'Hugging Face they are features["{column.name}"].feature.names'
        )
    if words:
        column = min(reversed(words), key=lambda column: len(_items(column)))  # tags stand behind words
        if any(other is not column and _lengths(other) == _lengths(column) for other in words):
            tags = other_tags_problem(sorted(_items(column)))
            raise InputError(f"{table.path}: {column.name!r} has the {tags}")


def _items(column: ColumnFacts) -> set[str]:
    return {item for value in column.values if are_texts(value) for item in value}


def _lengths(column: ColumnFacts) -> list[int]:
    return [len(value) for value in column.values if are_texts(value)]


def refuse_tag_rows(table: TableFacts, label_column: str | None) -> None:
    """Refuse a table with one word and its BIO tag in each row, which would be taken for examples of classes.

    Args:
        label_column: column that a person named as the label, who may mean the tags of another one.

    Raises: InputError.
    """
    for column in table.columns:
        if label_column in (None, column.name) and column.is_text and _are_word_tags(column):
            raise InputError(
                f"{table.path}: {column.name!r} has a tag of a word in each row, so the rows look like the words of "
                "sentences for ner; save them as CoNLL columns, in a file whose name ends in .conll: each line a word, "
                "a tab and its tag, a blank line between sentences. If each row is an example of its own, say --kind "
                "classification"
            )


def _are_word_tags(column: ColumnFacts) -> bool:
    return not column.distinct.isdisjoint("Oo") and len(column.distinct) > 1 and fit_one_scheme(column.distinct)


def _are_whole(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) for item in value)


def _looks_like_an_id(label: ColumnFacts, kind: DraftKind, is_named: bool) -> bool:
    """Whether values differ like those of an id or a text; a named column may be a price, or have rare classes."""
    distinct, count = len(label.distinct), len(label.values)
    if label.is_number and not label.is_whole:
        return False
    if kind == "regression":
        return distinct == count and not is_named
    return kind == "classification" and (distinct == count if is_named else distinct > 0.5 * count)
