"""Fields of the query language of which a run may have several: tags, notes, registered models, its data."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, String, and_, cast, exists, false, func, or_, select, true
from sqlalchemy.orm import InstrumentedAttribute

from orchestrator.registry.keeping_tables import NoteRow
from orchestrator.registry.queries.query_fields import Column, Field, compare_fields
from orchestrator.registry.queries.query_tree import Value
from orchestrator.registry.queries.query_values import WrongValueError, as_text, compare
from orchestrator.registry.tables import DatasetRow, ModelRow, RunDatasetRow, RunRow, TagRow


class LinkedField(Field):
    """Field of which a run may have several; a comparison is true where one of them compares so."""

    @abstractmethod
    def texts(self) -> Sequence[Any]:
        """Columns of the linked rows that a value is compared with; the first is what a table shows."""

    @abstractmethod
    def is_linked(self) -> ColumnElement[bool]:
        """Condition that joins the linked rows to a run."""

    def pairs(self) -> Select[Any]:
        """Statement that selects each run's id with each of its values."""
        return select(RunRow.id, self.texts()[0]).where(self.is_linked())

    def present(self) -> ColumnElement[bool]:
        return self._runs(true())

    def compared(self, operator: str, value: Value | Field) -> ColumnElement[bool]:
        if not isinstance(value, Value):
            return compare_fields(self, operator, value)
        text = as_text(value)
        return self._runs(or_(*(compare(column, operator, text) for column in self.texts())))

    def scalars(self) -> Mapping[str, Column]:
        return {}

    def sort_keys(self) -> tuple[Column, ...]:
        first = select(func.min(self.texts()[0])).where(self.is_linked())
        return (first.correlate(RunRow).scalar_subquery(),)

    def _runs(self, test: ColumnElement[bool]) -> ColumnElement[bool]:
        return exists().where(self.is_linked(), test).correlate(RunRow)


@dataclass(frozen=True)
class TagField(LinkedField):
    """Field that is any of the tags of a run."""

    def texts(self) -> Sequence[InstrumentedAttribute[str]]:
        return (TagRow.tag,)

    def is_linked(self) -> ColumnElement[bool]:
        return TagRow.run_id == RunRow.id


@dataclass(frozen=True)
class ModelField(LinkedField):
    """Field that is a model that the run registered: by its name, or by name and version, `name@version`."""

    def texts(self) -> Sequence[Any]:
        return ModelRow.name, ModelRow.name + "@" + cast(ModelRow.version, String)

    def is_linked(self) -> ColumnElement[bool]:
        return ModelRow.run_id == RunRow.id

    def _runs(self, test: ColumnElement[bool]) -> ColumnElement[bool]:
        return super()._runs(and_(ModelRow.run_id.is_not(None), test))  # `id NOT IN` a list with a NULL finds nothing


@dataclass(frozen=True)
class DatasetField(LinkedField):
    """Field that is data that the run made or used, a trial what its sweep did: by its name or its fingerprint."""

    def texts(self) -> Sequence[Any]:
        return DatasetRow.name, DatasetRow.fingerprint

    def is_linked(self) -> ColumnElement[bool]:
        return (RunDatasetRow.fingerprint == DatasetRow.fingerprint) & (RunDatasetRow.run_id == RunRow.id)


@dataclass(frozen=True)
class NoteField(LinkedField):
    """Field that is the text of any of the notes on a run."""

    def texts(self) -> Sequence[InstrumentedAttribute[str]]:
        return (NoteRow.text,)

    def is_linked(self) -> ColumnElement[bool]:
        return NoteRow.run_id == RunRow.id


@dataclass(frozen=True)
class TagValueField(Field):
    """Field `tags.KEY`: whether a run has the tag KEY, or what follows the colon in its tag `KEY:VALUE`."""

    key: str

    def rows(self) -> ColumnElement[bool]:
        """Condition for the rows of this tag, of any run."""
        beginning = f"{self.key}:"
        return or_(TagRow.tag == self.key, func.substr(TagRow.tag, 1, len(beginning)) == beginning)

    def _word(self) -> Column:
        return func.substr(TagRow.tag, len(self.key) + 2)

    def _runs(self, test: ColumnElement[bool]) -> ColumnElement[bool]:
        return exists().where(TagRow.run_id == RunRow.id, self.rows(), test).correlate(RunRow)

    def present(self) -> ColumnElement[bool]:
        return self._runs(true())

    def compared(self, operator: str, value: Value | Field) -> ColumnElement[bool]:
        if not isinstance(value, Value):
            return compare_fields(self, operator, value)
        if isinstance(value, bool):
            if operator != "=":
                raise WrongValueError("true and false can be compared with = and != only")
            return self.present() if value else ~self.present()
        if not isinstance(value, str):
            raise WrongValueError(f"this is true, or the text after the colon of a tag '{self.key}:…', in quotes")
        return func.coalesce(self._runs(compare(self._word(), operator, as_text(value))), false())

    def scalars(self) -> Mapping[str, Column]:
        return {"text": self.sort_keys()[0]}

    def sort_keys(self) -> tuple[Column, ...]:
        first = select(func.min(self._word())).where(TagRow.run_id == RunRow.id, self.rows())
        return (first.correlate(RunRow).scalar_subquery(),)
