"""Translation of queries and sort keys into SQL; names of fields are checked against what runs have."""

from difflib import get_close_matches

from sqlalchemy import ColumnElement, and_, not_, or_, select
from sqlalchemy.orm import Session

from orchestrator.errors import InputError
from orchestrator.registry.filters import Combination, Comparison, Condition, Not, error_at, parse_filter
from orchestrator.registry.query_fields import (
    METRIC_SPLITS,
    NAMES,
    NUMBER_COLUMNS,
    TEXT_COLUMNS,
    TIME_COLUMNS,
    ColumnField,
    Field,
    MetricField,
    ParameterField,
    TagField,
    WrongValueError,
    condition,
)
from orchestrator.registry.tables import MetricRow, ParameterRow
from orchestrator.run_states import RunState


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
        tree = parse_filter(text)
        return None if tree is None else self._expression(tree, text)

    def order(self, text: str) -> tuple[Field, bool]:
        """Sort key, and whether it descends, of `-created_at`, `metrics.f1 desc` or `task`. Raises: InputError."""
        name, _, direction = text.strip().partition(" ")
        direction = direction.strip().lower()
        if direction not in ("", "asc", "desc"):
            raise InputError(f"Cannot sort by {text!r}: after the field, say asc or desc.")
        descends = name.startswith("-") != (direction == "desc")
        return self.field(name.lstrip("-"), name, 0), descends

    def _expression(self, tree: Condition, text: str) -> ColumnElement[bool]:
        if isinstance(tree, Combination):
            join = and_ if tree.word == "and" else or_
            return join(*(self._expression(part, text) for part in tree.parts))
        if isinstance(tree, Not):
            return not_(self._expression(tree.part, text))
        return self._comparison(tree, text)

    def _comparison(self, tree: Comparison, text: str) -> ColumnElement[bool]:
        field = self.field(tree.field, text, tree.place)
        try:
            return condition(field, tree.operator, tree.values)
        except WrongValueError as error:
            raise error_at(text, tree.place, f"{tree.field}: {error}:") from None

    def field(self, name: str, text: str, place: int) -> Field:
        """Field of a name in the text. Raises: InputError, which gives the nearest names."""
        area, _, rest = name.partition(".")
        if area == "metrics" and rest:
            return self._metric(rest, text, place)
        if area == "params" and rest:
            return self._parameter(rest, text, place)
        if name == "state":
            return ColumnField(self._state, "state")
        if name == "tag":
            return TagField()
        for kind, columns in (("text", TEXT_COLUMNS), ("number", NUMBER_COLUMNS), ("time", TIME_COLUMNS)):
            if name in columns:
                return ColumnField(columns[name], kind)
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
            longer = select(ParameterRow.path).where(ParameterRow.path.endswith(f".{path}", autoescape=True))
            paths = sorted(self._session.scalars(longer.distinct().limit(10)))
            if paths:
                listed = ", ".join(f"params.{longer}" for longer in paths)
                raise error_at(text, place, f"params.{path} could be several; say which of {listed}:")
            raise self._unknown(f"params.{path}", text, place)
        return field

    def _lacks(self, table: type[MetricRow | ParameterRow], rows: ColumnElement[bool]) -> bool:
        """Whether no run has such rows but some run has others; in an empty registry no name is wrong."""
        if self._session.scalar(select(table.run_id).where(rows).limit(1)) is not None:
            return False
        return self._session.scalar(select(table.run_id).limit(1)) is not None

    def _unknown(self, name: str, text: str, place: int) -> InputError:
        known = [*NAMES, *self._metric_names(), *self._parameter_names()]
        near = get_close_matches(name, known, n=4, cutoff=0.5)
        if not near:
            area = name.partition(".")[0] + "."
            near = [other for other in known if other.startswith(area)][:8] or [*NAMES, "metrics.NAME", "params.PATH"]
        return error_at(text, place, f"No run has a field {name!r}; nearest: {', '.join(near)}:")

    def _metric_names(self) -> list[str]:
        names = select(MetricRow.split, MetricRow.name).distinct()
        return sorted(
            f"metrics.{name}" if split == "validation" else f"metrics.{split}.{name}"
            for split, name in self._session.execute(names)
        )

    def _parameter_names(self) -> list[str]:
        names = select(ParameterRow.path, ParameterRow.leaf).distinct()
        found = {name for row in self._session.execute(names) for name in row if name is not None}
        return sorted(f"params.{name}" for name in found)
