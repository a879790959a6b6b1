"""Fields of runs, read as plain values by the names that they have in queries."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from orchestrator.registry.parameter_values import decode_parameter
from orchestrator.registry.queries.query_fields import ColumnField, Field, ParameterField
from orchestrator.registry.queries.query_group import GroupField
from orchestrator.registry.queries.query_links import LinkedField, TagValueField
from orchestrator.registry.queries.selection import Selection
from orchestrator.registry.tables import ExperimentRow, RunRow
from orchestrator.run_states import RunState


class FieldReader:
    """Reads fields of runs as plain values."""

    def __init__(self, session: Session, selection: Selection) -> None:
        self._session = session
        self._selection = selection

    def rows(self, names: Sequence[str], conditions: Sequence[ColumnElement[bool]]) -> Iterator[dict[str, Any]]:
        """Fields of each run by name; a run that has several values of a field comes once with each."""
        fields = {name: self._selection.field(name) for name in names}
        single = {name: field for name, field in fields.items() if not isinstance(field, LinkedField)}
        columns = [_column(field) for field in single.values()]
        statement = select(RunRow.id, *columns).join(ExperimentRow, ExperimentRow.id == RunRow.experiment_id)
        linked = {
            name: self._values(field, conditions) for name, field in fields.items() if isinstance(field, LinkedField)
        }
        for run_id, *stored in self._session.execute(statement.where(*conditions)):
            row = {name: _decoded(field, value) for (name, field), value in zip(single.items(), stored, strict=True)}
            several = [row]
            for name, values in linked.items():
                several = [{**one, name: value} for one in several for value in values.get(run_id, [None])]
            yield from several

    def _values(self, field: LinkedField, conditions: Sequence[ColumnElement[bool]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        statement = field.pairs().join(ExperimentRow, ExperimentRow.id == RunRow.experiment_id).where(*conditions)
        for run_id, value in self._session.execute(statement.distinct()):
            found[run_id].append(value)
        return found


def _column(field: Field) -> Any:
    if isinstance(field, ParameterField | GroupField):
        return field.stored()
    if isinstance(field, ColumnField):
        return field.column
    (column,) = field.scalars().values()
    return column


def _decoded(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(field, ParameterField):
        kind, _, text = str(value).partition(":")
        return decode_parameter(kind, text)
    if isinstance(field, GroupField):
        return field.key_of(value)
    if isinstance(field, TagValueField):
        return value or True  # a tag without a colon
    return str(value) if isinstance(value, RunState) else value
