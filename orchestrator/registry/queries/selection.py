"""Translation of queries and sort keys into SQL; names of fields are checked against what runs have."""

from sqlalchemy import ColumnElement, and_, not_, or_, select
from sqlalchemy.orm import Session

from orchestrator.errors import InputError
from orchestrator.registry.queries.query_checks import check_values, words_of_none, wrong_patterns
from orchestrator.registry.queries.query_commit import CommitField
from orchestrator.registry.queries.query_conditions import condition
from orchestrator.registry.queries.query_fields import (
    COLUMNS,
    FLAGS,
    METRIC_SPLITS,
    ColumnField,
    Field,
    KindField,
    MetricField,
    ParameterField,
    ScoreField,
)
from orchestrator.registry.queries.query_flags import FlagField
from orchestrator.registry.queries.query_group import GroupField
from orchestrator.registry.queries.query_history import FUNCTIONS, HistoryField
from orchestrator.registry.queries.query_links import DatasetField, ModelField, NoteField, TagField, TagValueField
from orchestrator.registry.queries.query_names import nearest_fields, parameter_paths
from orchestrator.registry.queries.query_tree import (
    Combination,
    Comparison,
    Condition,
    FieldName,
    HistoryValue,
    Not,
    Operand,
    Value,
    comparisons,
    error_at,
)
from orchestrator.registry.queries.query_values import WrongValueError
from orchestrator.registry.tables import MetricRow, ParameterRow, RunRow
from orchestrator.run_states import RunState

_FIELDS_BY_NAME: dict[str, Field] = {
    "score": ScoreField(),
    "kind": KindField(RunRow.kind, "text"),
    "commit": CommitField(),
    "tag": TagField(),
    "model": ModelField(),
    "dataset": DatasetField(),
    "note": NoteField(),
    **{flag: FlagField(flag) for flag in FLAGS},
}
_NEEDS_PARSING = frozenset("('\"")
"""Signs of a field that is more than a plain name: a function of one, or a name in quotes."""
_AREAS = ("metrics.", "params.", "tags.")


class Selection:
    """Translator of the query language, for one session.

    Args:
        state: state of a run as `state_as_read` gives it.
    """

    def __init__(self, session: Session, state: ColumnElement[RunState]) -> None:
        self._session = session
        self._state = state

    def where(self, text: str) -> ColumnElement[bool] | None:
        """Condition for the runs that a query selects; None for all. Raises: InputError with a caret."""
        if not text.strip():
            return None
        # the parser takes longer to load than most lists
        from orchestrator.registry.queries.filters import parse_filter

        return self._expression(parse_filter(text), text)

    def unmatched(self, text: str) -> list[str]:
        """Tell what a query asks for that no run has, such as a task that no run is of: why it finds nothing."""
        if not text.strip():
            return []
        from orchestrator.registry.queries.filters import parse_filter

        unmatched = []
        for comparison in comparisons(parse_filter(text)):
            if comparison.operator in ("=", "in"):
                unmatched += words_of_none(self._session, self._field(comparison.operand, text), comparison)
            elif comparison.operator == "like":
                unmatched += wrong_patterns(comparison)
        return unmatched

    def asks_for(self, name: str, text: str) -> bool:
        """Whether a query compares the field of this name with something. Raises: InputError with a caret."""
        if name not in text:
            return False
        from orchestrator.registry.queries.filters import parse_filter

        compared = comparisons(parse_filter(text))
        fields = (each for one in compared for each in (one.operand, *one.values) if not isinstance(each, Value))
        return name in map(str, fields)

    def order(self, text: str) -> tuple[Field, bool]:
        """Sort key, and whether it descends: `-created_at`, `best(metrics.f1) desc`, `task`. Raises: InputError."""
        name, _, direction = text.strip().rpartition(" ")
        if direction.lower() not in ("asc", "desc"):
            name, direction = text.strip(), ""
        descends = name.startswith("-") != (direction.lower() == "desc")
        bare = name.removeprefix("-").strip()
        if " " in bare and not _NEEDS_PARSING.intersection(bare):
            raise InputError(f"Cannot sort by {text!r}: after the field, say asc or desc.")
        return self.field(bare), descends

    def field(self, text: str) -> Field:
        """Field of a text that is nothing but one: `metrics.f1`, `best(metrics.f1)`. Raises: InputError."""
        from_text: Operand = FieldName(text)
        if _NEEDS_PARSING.intersection(text):
            from orchestrator.registry.queries.filters import parse_operand

            from_text = parse_operand(text)
        return self._field(from_text, text)

    def _expression(self, tree: Condition, text: str) -> ColumnElement[bool]:
        if isinstance(tree, Combination):
            join = and_ if tree.word == "and" else or_
            return join(*(self._expression(part, text) for part in tree.parts))
        if isinstance(tree, Not):
            return not_(self._expression(tree.part, text))
        return self._comparison(tree, text)

    def _comparison(self, tree: Comparison, text: str) -> ColumnElement[bool]:
        field = self._field(tree.operand, text)
        values = tuple(self._value(value, tree, field, text) for value in tree.values)
        try:
            made = condition(field, tree.operator, values)
            check_values(self._session, field, tree.operator, values)
        except WrongValueError as error:
            raise error_at(text, tree.operand.place, f"{tree.operand}: {error}:") from None
        return made

    def _value(self, value: Value | Operand, tree: Comparison, field: Field, text: str) -> Value | Field:
        """The value, or the field that is compared with. Raises: InputError for a word that should stand in quotes."""
        if not isinstance(value, Operand):
            return value
        try:
            return self._field(value, text)
        except InputError:
            takes_text = "text" in field.scalars() or not field.scalars()
            if isinstance(value, HistoryValue) or value.name.startswith(_AREAS) or not takes_text:
                raise
        quoted = f"'{value.name}'" if tree.operator != "in" else f"('{value.name}', …)"
        hint = f"text stands in quotes: {tree.operand} {tree.operator} {quoted}"
        raise error_at(text, value.place, f"{value.name} is no field, and {hint}:") from None

    def _field(self, operand: Operand, text: str) -> Field:
        """Field of an operand in the text. Raises: InputError, which gives the nearest names."""
        if isinstance(operand, FieldName):
            return self._named(operand.name, text, operand.place)
        if operand.function not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise error_at(text, operand.place, f"{operand.function} is no function; there are {known}:")
        metric = self._field(operand.metric, text)
        if isinstance(metric, ScoreField) or not isinstance(metric, MetricField):
            such = f"metrics.{self._newest_metric() or 'f1'}"
            message = f"{operand.metric} has no history; {operand.function} takes a measurement, such as {such}:"
            raise error_at(text, operand.metric.place, message)
        try:
            return HistoryField(operand.function, metric, operand.step)
        except WrongValueError as error:
            raise error_at(text, operand.place, f"{error}:") from None

    def _newest_metric(self) -> str | None:
        """Measurement that ranks the newest run that has one."""
        newest_first = select(RunRow.metric).where(RunRow.metric.is_not(None)).order_by(RunRow.created_at.desc())
        return self._session.scalar(newest_first.limit(1))

    def _named(self, name: str, text: str, place: int) -> Field:
        area, _, rest = name.partition(".")
        if area == "metrics" and rest:
            return self._metric(rest, text, place)
        if area == "params" and rest:
            return self._parameter(rest, text, place)
        if area == "tags" and rest:
            return TagValueField(rest)  # a tag may come, so that one of no run is no error
        if name in _FIELDS_BY_NAME:
            return _FIELDS_BY_NAME[name]
        if name == "group":
            return GroupField(RunRow.group_key, "text", self._session)
        if name in COLUMNS:
            kind, column = COLUMNS[name]
            return ColumnField(self._state if column is None else column, kind)
        raise self._unknown(name, text, place)

    def _metric(self, name: str, text: str, place: int) -> MetricField:
        split, _, rest = name.partition(".")
        field = MetricField(split, rest) if split in METRIC_SPLITS and rest else MetricField("validation", name)
        if self._lacks(MetricRow, field.rows()):
            raise self._unknown(f"metrics.{name}", text, place)
        return field

    def _parameter(self, path: str, text: str, place: int) -> ParameterField:
        field = ParameterField(path)
        if self._lacks(ParameterRow, field.rows()):
            paths = [f"params.{longer}" for longer in parameter_paths(self._session) if longer.endswith(f".{path}")]
            if paths:
                shown = ", ".join(paths[:10])
                raise error_at(text, place, f"params.{path} could be several; say which of {shown}:")
            raise self._unknown(f"params.{path}", text, place)
        return field

    def _lacks(self, table: type[MetricRow | ParameterRow], rows: ColumnElement[bool]) -> bool:
        """Whether no run has such rows but some run has others; in an empty registry no name is wrong."""
        if self._session.scalar(select(table.run_id).where(rows).limit(1)) is not None:
            return False
        return self._session.scalar(select(table.run_id).limit(1)) is not None

    def _unknown(self, name: str, text: str, place: int) -> InputError:
        return error_at(text, place, f"No run has a field {name!r}; {nearest_fields(self._session, name)}:")
