"""Fields of runs, read as plain values by the names that they have in queries."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Text, select, type_coerce
from sqlalchemy.orm import Session

from orchestrator.registry.parameter_values import decode_parameter
from orchestrator.registry.queries.query_fields import ColumnField, Field, ParameterField
from orchestrator.registry.queries.query_group import GroupField
from orchestrator.registry.queries.query_links import LinkedField, TagValueField
from orchestrator.registry.queries.selection import Selection
from orchestrator.registry.tables import ExperimentRow, RunRow


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
        decoders = [(name, decode) for name, field in single.items() if (decode := _decoder(field)) is not None]
        statement = select(RunRow.id, *columns).join(ExperimentRow, ExperimentRow.id == RunRow.experiment_id)
        linked = {
            name: self._values(field, conditions) for name, field in fields.items() if isinstance(field, LinkedField)
        }
        for run_id, *stored in self._session.connection().execute(statement.where(*conditions)):
            row = dict(zip(single, stored, strict=True))
            for name, decode in decoders:
                if row[name] is not None:
                    row[name] = decode(row[name])
            if not linked:
                yield row
                continue
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
        return type_coerce(field.column, Text) if field.kind == "state" else field.column
    (column,) = field.scalars().values()
    return column


def _decoder(field: Field) -> Callable[[Any], Any] | None:
    """Function that makes a stored value, which is not None, the value that is shown; None where both are the same."""
    if isinstance(field, ParameterField):
        return _decoded_parameter
    if isinstance(field, GroupField):
        return field.key_of
    if isinstance(field, TagValueField):
        return _tag_value
    return None


def _decoded_parameter(stored: str) -> Any:
    kind, _, text = stored.partition(":")
    return decode_parameter(kind, text)


def _tag_value(word: str) -> str | bool:
    """The text after the colon of a tag; True of a tag without one."""
    return word or True
