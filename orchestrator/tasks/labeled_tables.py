"""Tables of examples, a reader for each kind of task: which columns are text, which a label, and what is no label."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, TypeGuard

from orchestrator.tasks.bio_tags import find_bad_tag, to_bio
from orchestrator.tasks.examples import (
    ClassificationExample,
    Example,
    MultiLabelExample,
    MultipleChoiceExample,
    NerExample,
    RegressionExample,
)
from orchestrator.tasks.tables import read_plain_rows, read_rows
from orchestrator.tasks.tabular_columns import label_text, read_columns
from orchestrator.tasks.text_files import BadRecords, plain_name


@dataclass(frozen=True)
class TextTable(ABC):
    """One or two columns of text, one of labels, and a person's own columns beside them."""

    text_columns: tuple[str, ...]
    label_column: str
    _: KW_ONLY
    numerical_columns: tuple[str, ...] = ()
    categorical_columns: tuple[str, ...] = ()
    header: bool = True
    labeled: bool = True
    """Without labels their column is not read, nor need it be there, and a file may be plain text."""

    kind: ClassVar[type[ClassificationExample] | type[MultiLabelExample] | type[RegressionExample]]
    """What a row becomes."""

    def read(self, path: str, bad: BadRecords) -> Iterator[Example]:
        """The file's examples in order."""
        texts = (*self.text_columns, *self.numerical_columns, *self.categorical_columns)
        columns = (*texts, self.label_column) if self.labeled else texts
        is_plain = not self.labeled and plain_name(path).endswith(".txt")
        rows = read_plain_rows(path, columns, bad) if is_plain else read_rows(path, columns, bad, self.header)
        for number, (place, values) in enumerate(rows):
            record = dict(zip(columns, values, strict=True))
            try:
                first, *second = _read_texts(record, self.text_columns)
                numbers, categories = read_columns(record, self.numerical_columns, self.categorical_columns)
            except ValueError as error:
                bad.found(place, str(error))
                continue
            try:
                label = self.label_fields(record[self.label_column]) if self.labeled else {}
            except ValueError as error:
                bad.found(place, f"{self.label_column} {error}")
                continue
            pair = second[0] if second else None
            yield self.kind(str(number), first, pair, numbers=numbers, categories=categories, **label)

    @abstractmethod
    def label_fields(self, value: object) -> Mapping[str, Any]:
        """What an example says of its label, by field. Raises: ValueError, saying what is wrong with it."""


@dataclass(frozen=True)
class ClassificationTable(TextTable):
    """Reads texts with a class."""

    classes: Mapping[str, str] | None = None
    """Class name by the label in the file; None takes every label as it stands."""

    kind = ClassificationExample

    def label_fields(self, value: object) -> Mapping[str, str]:
        """The class's name."""
        label = label_text(_present(value))
        if self.classes is None:
            return {"label": label}
        if label not in self.classes:
            raise ValueError(f"{value!r} is none of the labels {', '.join(self.classes)}")
        return {"label": self.classes[label]}


@dataclass(frozen=True)
class MultiLabelTable(TextTable):
    """Reads texts with any number of labels: a list, a JSON list written as text, or names apart by `separator`."""

    labels: tuple[str, ...] | None = None
    """None takes every label as it stands."""
    separator: str = "|"

    kind = MultiLabelExample

    def label_fields(self, value: object) -> Mapping[str, tuple[str, ...]]:
        """The labels' names, each once."""
        found = tuple(dict.fromkeys(self._parse(value)))
        unknown = [label for label in found if self.labels is not None and label not in self.labels]
        if unknown:
            raise ValueError(f"has {unknown[0]!r}, which is none of the labels {', '.join(self.labels or ())}")
        return {"labels": found}

    def _parse(self, value: object) -> list[str]:
        """Raises: ValueError when some of it is no label."""
        if value is None:
            raise ValueError("is missing; an empty text or list stands for an example without labels")
        if isinstance(value, str) and value.strip().startswith("["):
            try:
                value = json.loads(value)
            except json.JSONDecodeError as error:
                raise ValueError(f"begins as a JSON list and is none: {error.msg} at column {error.colno}") from None
        if isinstance(value, str):
            value = [name.strip() for name in value.split(self.separator)] if value.strip() else []
        labels = value if isinstance(value, list) else [value]
        if any(label is None or label == "" or isinstance(label, list | dict) for label in labels):
            raise ValueError(f"{labels!r} holds something that is no label; names stand apart by {self.separator!r}")
        return [label_text(label) for label in labels]


@dataclass(frozen=True)
class RegressionTable(TextTable):
    """Reads texts with a number."""

    kind = RegressionExample

    def label_fields(self, value: object) -> Mapping[str, float]:
        """The number."""
        return {"value": self.value_of(_present(value))}

    def value_of(self, label: object) -> float:
        """The number that a label is. Raises: ValueError, saying what is wrong with it."""
        try:
            value = float(label)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"{label!r} is not a number")
        return value


@dataclass(frozen=True)
class MultipleChoiceTable:
    """Reads texts with several ways to go on. Where there are two columns of text, the second begins every choice."""

    text_columns: tuple[str, ...]
    choice_columns: tuple[str, ...]
    label_column: str
    labeled: bool = True

    def read(self, path: str, bad: BadRecords) -> Iterator[MultipleChoiceExample]:
        """The file's examples in order."""
        columns = (*self.text_columns, *self.choice_columns, *([self.label_column] if self.labeled else ()))
        for number, (place, values) in enumerate(read_rows(path, columns, bad)):
            record = dict(zip(columns, values, strict=True))
            try:
                text, *beginning = _read_texts(record, self.text_columns)
                endings = _read_texts(record, self.choice_columns)
                right = self._find_right(record[self.label_column]) if self.labeled else None
            except ValueError as error:
                bad.found(place, str(error))
                continue
            choices = tuple(" ".join(filter(None, (*beginning, ending))) for ending in endings)
            yield MultipleChoiceExample(str(number), text, choices, right)

    def _find_right(self, value: object) -> int:
        """The place of the column that a label names, or numbers from 0."""
        label = label_text(value)
        if label in self.choice_columns:
            return self.choice_columns.index(label)
        places = [str(place) for place in range(len(self.choice_columns))]
        if label not in places:
            known = f"{', '.join(self.choice_columns)} nor a number from 0 to {places[-1]}"
            raise ValueError(f"{self.label_column} {value!r} is neither one of {known}")
        return int(label)


@dataclass(frozen=True)
class NerTable:
    """Reads sentences whose words and tags are lists (JSONL, Parquet)."""

    tokens_column: str
    tags_column: str
    tags: tuple[str, ...] | None = None
    """The tag set; None takes every BIO tag."""
    labeled: bool = True

    def read(self, path: str, bad: BadRecords) -> Iterator[NerExample]:
        """The file's sentences in order, tags as BIO."""
        columns = (self.tokens_column, *([self.tags_column] if self.labeled else ()))
        for number, (place, values) in enumerate(read_rows(path, columns, bad)):
            lists = [value for value in values if _is_texts(value)]
            if len(lists) < len(columns):
                bad.found(place, f"{' and '.join(columns)} must be lists of text")
                continue
            words, tags = lists[0], lists[1] if self.labeled else None
            if tags is not None and len(words) != len(tags):
                bad.found(place, f"{len(words)} {self.tokens_column} but {len(tags)} {self.tags_column}")
                continue
            bio = () if tags is None else to_bio(tags)
            problem = find_bad_tag(bio, self.tags)
            if problem:
                bad.found(place, problem)
            elif words:
                yield NerExample(str(number), tuple(words), bio)


def _present(label: object) -> object:
    """Raises: ValueError when the label is missing."""
    if label is None or label == "":
        raise ValueError("is empty")
    return label


def _is_texts(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _read_texts(record: Mapping[str, object], names: tuple[str, ...]) -> list[str]:
    """Raises: ValueError, naming the column that holds no text."""
    texts = [record[name] for name in names]
    if not _is_texts(texts):
        wrong = next(name for name in names if not isinstance(record[name], str))
        raise ValueError(f"{wrong} holds no text")
    return texts
