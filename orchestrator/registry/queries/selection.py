"""Translation of queries and sort keys into SQL; names of fields are checked against what runs have."""

from sqlalchemy import ColumnElement, and_, not_, or_, select
from sqlalchemy.orm import Session

from orchestrator.errors import InputError
from orchestrator.registry.column_types import replace_unstorable
from orchestrator.registry.queries.conditions import WrongValueError, condition
from orchestrator.registry.queries.fields import FIELDS, Field, Test, history, metric, parameter, state_field, tag_value
from orchestrator.registry.queries.hints import check_values, unmatched_words, wrong_patterns
from orchestrator.registry.queries.query_tree import (
    FUNCTIONS,
    METRIC_SPLITS,
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
    field_text,
    paths_called,
)
from orchestrator.registry.queries.recorded_names import RecordedNames
from orchestrator.registry.tables import RunRow
from orchestrator.run_states import RunState

_NEEDS_PARSING = frozenset("('\"")
"""Signs of a field that is more than a plain name: a function of one, or a name in quotes."""
_AREAS = ("metrics", "params", "tags")


class Selection:
    """Translator of the query language, for one session.

    Args:
        state: state of a run as `state_as_read` gives it.
    """

    def __init__(self, session: Session, state: ColumnElement[RunState]) -> None:
        self._session = session
        self._fields = {"state": state_field(state), **FIELDS}
        self._names = RecordedNames.of(session)

    def where(self, text: str) -> Test | None:
        """Condition for the runs that a query selects; None for all. Raises: InputError with a caret."""
        tree = _parsed(text)
        return None if tree is None else self._expression(tree, text)

    def unmatched(self, text: str) -> list[str]:
        """Tell what a query asks for that no run has, such as a task that no run is of: why it finds nothing."""
        tree, told = _parsed(text), []
        for each in () if tree is None else comparisons(tree):
            if each.operator in ("=", "in"):
                told += unmatched_words(self._session, self._names, self._field(each.operand, text), each)
            elif each.operator == "like":
                told += wrong_patterns(each)
        return told

    def asks_for(self, name: str, text: str) -> bool:
        """Whether a query compares the field of this name with something. Raises: InputError with a caret."""
        tree = _parsed(text) if name in text else None
        compared = () if tree is None else comparisons(tree)
        return any(FieldName(name) in (each.operand, *each.values) for each in compared)

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
        operand: Operand = FieldName(text)
        if _NEEDS_PARSING.intersection(text):
            from orchestrator.registry.queries.filters import parse_operand

            operand = parse_operand(text)
        return self._field(operand, text)

    def _expression(self, tree: Condition, text: str) -> Test:
        if isinstance(tree, Combination):
            join = and_ if tree.word == "and" else or_
            return join(*(self._expression(part, text) for part in tree.parts))
        if isinstance(tree, Not):
            return not_(self._expression(tree.part, text))
        field = self._field(tree.operand, text)
        values = [self._value(value, tree, field, text) for value in tree.values]
        try:
            made = condition(self._session, field, tree.operator, values)
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
            if isinstance(value, HistoryValue) or value.name.startswith(_AREAS) or "text" not in field.parts:
                raise
        quoted = f"'{value.name}'" if tree.operator != "in" else f"('{value.name}', …)"
        hint = f"text stands in quotes: {tree.operand} {tree.operator} {quoted}"
        raise error_at(text, value.place, f"{value.name} is no field, and {hint}:") from None

    def _field(self, operand: Operand, text: str) -> Field:
        """Field of an operand in the text. Raises: InputError, which gives the nearest names."""
        if isinstance(operand, HistoryValue):
            return self._history(operand, text)
        area, _, rest = replace_unstorable(operand.name).partition(".")
        parts = [*filter(None, [rest]), *([] if operand.in_quotes is None else [replace_unstorable(operand.in_quotes)])]
        if area not in _AREAS or not parts:
            if operand.name not in self._fields or operand.in_quotes is not None:
                raise self._unknown(operand, text)
            return self._fields[operand.name]
        if area == "tags":
            return tag_value(".".join(parts))  # a tag may come, so that one of no run is no error
        if area == "metrics":
            series = _measurement(operand)
            if not self._names.has_metric(series):
                raise self._unknown(operand, text)
            return metric(series)
        return parameter(self._path(".".join(parts), operand, text))

    def _path(self, name: str, operand: FieldName, text: str) -> str:
        """Path of a parameter, which a name without dots may be the last part of. Raises: InputError for several."""
        paths = self._names.paths()
        ending = paths_called(name, paths)
        if operand.in_quotes is not None or "." in name or not ending:
            if name in paths or not paths:  # in an empty registry no name is wrong
                return name
            raise self._unknown(operand, text)
        if len(ending) > 1:  # which is looked into only here: names of removed runs are harmless elsewhere
            ending = [path for path in ending if self._names.is_of_a_run(path)] or ending
        if len(ending) > 1:
            several, which = " or ".join(ending), ", ".join(map(_exact, ending))
            raise error_at(text, operand.place, f"params.{name} is {several}; say which: {which}")
        return ending[0]

    def _history(self, operand: HistoryValue, text: str) -> Field:
        if operand.function not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise error_at(text, operand.place, f"{operand.function} is no function; there are {known}:")
        if self._field(operand.metric, text).kind != "number" or not operand.metric.name.startswith("metrics"):
            such = f"metrics.{self._newest_metric() or 'f1'}"
            message = f"{operand.metric} has no history; {operand.function} takes a measurement, such as {such}:"
            raise error_at(text, operand.metric.place, message)
        step = operand.step
        if (operand.function == "at") != (step is not None):
            message = "at takes a step, at(metrics.loss, 1000), and the other functions none:"
            raise error_at(text, operand.place, message)
        if step is not None and not (0 <= step < 2**63 and step == int(step)):
            message = f"a step is a whole number from 0 to 2**63 - 1, and not {str(step)[:40]}:"
            raise error_at(text, operand.place, message)
        return history(operand.function, _measurement(operand.metric), None if step is None else int(step))

    def _newest_metric(self) -> str | None:
        """Measurement that ranks the newest run that has one."""
        newest_first = select(RunRow.metric).where(RunRow.metric.is_not(None)).order_by(RunRow.created_at.desc())
        return self._session.scalar(newest_first.limit(1))

    def _unknown(self, operand: FieldName, text: str) -> InputError:
        name = operand.name if operand.in_quotes is None else f"{operand.name}.{operand.in_quotes}"
        known = self._names.nearest_fields(name, [*self._fields])
        return error_at(text, operand.place, f"No run has a field {name!r}; {known}:")


def _parsed(text: str) -> Condition | None:
    """Tree of a query; None of an empty one. Raises: InputError with a caret."""
    if not text.strip():
        return None
    from orchestrator.registry.queries.filters import parse_filter  # which takes longer to load than most lists

    return parse_filter(text)


def _measurement(operand: FieldName) -> str:
    """Name of a measurement's series, `validation.f1`: what stands in quotes is no split."""
    _, *parts = operand.name.split(".", 1)
    split, _, rest = (parts[0] if parts else "").partition(".")
    if split in METRIC_SPLITS and (rest or operand.in_quotes is not None):
        names = [*filter(None, [rest]), operand.in_quotes]
    else:
        split, names = METRIC_SPLITS[0], [*parts, operand.in_quotes]
    return f"{split}.{replace_unstorable('.'.join(name for name in names if name is not None))}"


def _exact(path: str) -> str:
    """Field of a parameter by its whole path, which stands in quotes where it has no dot."""
    return field_text(f"params.{path}") if "." in path else f'params."{path}"'
