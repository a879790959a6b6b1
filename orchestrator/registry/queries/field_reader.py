"""Fields of runs, read as columns of plain values by the names that they have in queries."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Text, select, type_coerce
from sqlalchemy.orm import Session

from orchestrator.registry.parameter_values import decode_stored
from orchestrator.registry.queries.query_fields import ColumnField, Field, ParameterField
from orchestrator.registry.queries.query_flags import FlagField
from orchestrator.registry.queries.query_group import GroupField
from orchestrator.registry.queries.query_links import LinkedField, TagValueField
from orchestrator.registry.tables import RunRow

_ROWS_AT_ONCE = 1_000


@dataclass(frozen=True)
class FieldColumns:
    """Values of fields, a column for each. A run that has several values of a field has a row with each."""

    values: Mapping[str, Sequence[Any]]
    runs: Sequence[int]
    """Number of the run that each row is of."""


def read_fields(
    session: Session, fields: Mapping[str, Field], conditions: Sequence[ColumnElement[bool]]
) -> FieldColumns:
    """Read fields, one at least, of each run for which all conditions are true.

    Columns rather than rows: of many runs, an object for each takes longer than the database does.
    """
    single = {name: field for name, field in fields.items() if not isinstance(field, LinkedField)}
    linked = {name: field for name, field in fields.items() if isinstance(field, LinkedField)}
    selected = [*map(_column, single.values()), *([RunRow.id] if linked else [])]
    statement = select(*selected).select_from(RunRow).where(*conditions)
    columns: list[list[Any]] = [[] for _ in selected]
    for rows in session.connection().execute(statement).partitions(_ROWS_AT_ONCE):
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            column += values
    own = {name: _decoded(field, column) for (name, field), column in zip(single.items(), columns, strict=False)}
    read = FieldColumns(own, range(len(columns[0])))
    for name, field in linked.items():
        read = _with_links(read, name, columns[-1], _links(session, field, conditions))
    return FieldColumns({name: read.values[name] for name in fields}, read.runs)


def _column(field: Field) -> Any:
    if isinstance(field, ParameterField | GroupField):
        return field.stored()
    if isinstance(field, ColumnField):
        return type_coerce(field.column, Text) if field.kind == "state" else field.column
    (column,) = field.scalars().values()
    return column


def _decoded(field: Field, stored: list[Any]) -> list[Any]:
    """Values as they are shown; of those that are stored as something else each different one is decoded once."""
    decode = _decoder(field)
    if decode is None:
        return stored
    shown = {value: None if value is None else decode(value) for value in set(stored)}
    return [shown[value] for value in stored]


def _decoder(field: Field) -> Callable[[Any], Any] | None:
    """Function that makes a stored value, which is not None, the value that is shown; None where both are the same."""
    if isinstance(field, ParameterField):
        return decode_stored
    if isinstance(field, GroupField):
        return field.key_of
    if isinstance(field, TagValueField):
        return _tag_value
    if isinstance(field, FlagField):
        return bool
    return None


def _tag_value(word: str) -> str | bool:
    """The text after the colon of a tag; True of a tag without one."""
    return word or True


def _links(
    session: Session, field: LinkedField, conditions: Sequence[ColumnElement[bool]]
) -> Mapping[str, Sequence[str]]:
    """Values of a field of which runs may have several, by the ids of the runs that have one."""
    found: dict[str, list[str]] = defaultdict(list)
    statement = field.pairs().where(*conditions)
    for run_id, value in session.execute(statement.distinct()):
        found[run_id].append(value)
    return found


def _with_links(
    read: FieldColumns, name: str, run_ids: Sequence[str], links: Mapping[str, Sequence[str]]
) -> FieldColumns:
    """The same columns and one more: each row as often as its run has a value there, with None where it has none.

    Args:
        run_ids: id of each run, by its number.
    """
    pairs = [(row, value) for row, run in enumerate(read.runs) for value in links.get(run_ids[run], (None,))]
    values = {other: [column[row] for row, _ in pairs] for other, column in read.values.items()}
    return FieldColumns(values | {name: [value for _, value in pairs]}, [read.runs[row] for row, _ in pairs])
