"""Translation of queries and sort keys into SQL; names of fields and values are checked against what runs have.

A comparison that no run can ever meet is a slip of the pen, and an error; a word of which a run may come is told where
nothing was found.
"""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Select, and_, literal, not_, or_, select
from sqlalchemy.orm import Session

from orchestrator.errors import InputError
from orchestrator.nearest import nearest
from orchestrator.registry.column_types import replace_unstorable
from orchestrator.registry.place_tags import is_internal
from orchestrator.registry.queries.conditions import WrongValueError, as_text, condition
from orchestrator.registry.queries.fields import FIELDS, Field, Test, history, metric, parameter, state_field, tag_value
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
    quoted,
)
from orchestrator.registry.queries.recorded_names import RecordedNames, some
from orchestrator.registry.tables import RunRow
from orchestrator.run_states import RunState

_NEEDS_PARSING = frozenset("('\"")
"""Signs of a field that is more than a plain name: a function of one, or a name in quotes."""
_AREAS = ("metrics", "params", "tags")


_OFFERED = ("task", "tag", "model", "dataset", "name", "host", "experiment")
"""Fields of text with words to choose from."""
_SAMPLE = 500
"""Rows of a parameter that tell what type it has; only a value of another type is looked for in all of them."""
_WORDS_SAMPLE = 20_000
_REMEDIES = {
    "number": "this is a number; compare it with one, without quotes",
    "boolean": "this is true or false; write it without quotes",
    "text": "this is text; compare it with text in quotes",
}


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
                told += _unmatched_words(self._session, self._names, self._field(each.operand, text), each)
            elif each.operator == "like":
                told += _wrong_patterns(each)
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
            _check_values(self._session, field, tree.operator, values)
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


def _check_values(session: Session, field: Field, operator: str, values: "Sequence[Value | Field]") -> None:
    """Check that some run may be as a comparison says. Raises: WrongValueError, with what the field does have."""
    plain = [value for value in values if isinstance(value, Value) and value is not None]
    if field.kind == "kind" and operator in ("=", "!=", "in"):
        _check_kinds(session, [as_text(value) for value in plain])
    if field.kind != "parameter":
        return
    rows = select(field.table.c.kind).where(field.where)
    sample = rows.limit(_SAMPLE).subquery()
    types = {"text" if kind == "json" else kind for kind in session.scalars(select(sample.c.kind).distinct())}
    if not types:  # no run has it: there is no run at all, or only runs whose value is null
        return
    for value in plain:
        wanted = "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
        if wanted not in types and not _occurs(session, rows, field.parts[wanted].is_not(None)):
            raise WrongValueError("; or ".join(_REMEDIES[each] for each in sorted(types)))
    if operator == "like" and "text" not in types:
        raise WrongValueError(f"like compares text, and this is a {' or '.join(sorted(types))}")
    texts = [as_text(value) for value in plain if isinstance(value, str)]
    if operator not in ("=", "!=", "in") or len(texts) < len(plain) or not texts:
        return
    if not _occurs(session, rows, field.parts["text"].in_(texts)):
        known = _words(session, field)
        near = nearest(texts[0], known)
        there_are = f"did you mean {_listed(near[:1])}? There are" if near else "there are"
        raise WrongValueError(f"no run has {' or '.join(map(_shortened, texts))}; {there_are} {_listed(known)}")


def _unmatched_words(session: Session, names: RecordedNames, field: Field, comparison: Comparison) -> list[str]:
    """Tell which texts of a comparison no run is equal to; such a run may come, so that it is no error."""
    if field.kind == "tag value":
        if _occurs(session, select(field.value), field.where):
            return []
        tags = [f"tags.{key}" for key in names.tag_keys()]
        near = [field_text(f"tags.{one}") for one in nearest(field.name, [tag[5:] for tag in tags])]
        return [f"no run has the tag {_shortened(field.name)}{_those(near, [*map(field_text, tags)])}"]
    operand, told = str(comparison.operand), []
    for value in comparison.values if field.kind in ("text", "kind", "group") else ():
        if not isinstance(value, str) or _occurs(session, select(RunRow.id), condition(session, field, "=", [value])):
            continue
        known = [word for word in _words(session, field) if not is_internal(word)] if operand in _OFFERED else []
        near = nearest(value, known)
        those = _those([*map(repr, near)] if len(near) < len(known) else [], [*map(repr, known)])
        told.append(f"no run has {operand} = {_shortened(value)}{those}")
    return told


def _wrong_patterns(comparison: Comparison) -> list[str]:
    """Tell which patterns of a `like` have a star where the language has a percent sign."""
    return [
        f"any text is % in a pattern: {comparison.operand} like {quoted(value.replace('*', '%'))}"
        for value in comparison.values
        if isinstance(value, str) and "*" in value and "%" not in value
    ]


def _check_kinds(session: Session, wanted: Sequence[str]) -> None:
    from orchestrator.specs.kinds import SPEC_KINDS

    known = [*SPEC_KINDS, "trial"]
    for kind in wanted:
        if kind.lower() in known or _occurs(session, select(RunRow.id), RunRow.kind == kind.lower()):
            continue
        raise WrongValueError(f"no run is ever of the kind {_shortened(kind)}; a kind is {', '.join(map(repr, known))}")


def _occurs(session: Session, rows: Select[str], test: Test) -> bool:
    return session.scalar(rows.with_only_columns(literal(1)).where(test).limit(1)) is not None


def _words(session: Session, field: Field) -> list[str]:
    """Texts of a field, sorted; of a very large registry those that its first rows have."""
    first = select(field.parts["text"].label("word")).where(field.where).limit(_WORDS_SAMPLE).subquery()
    words = session.scalars(select(first.c.word).where(first.c.word.is_not(None)).distinct())
    return sorted(map(_plain, words))


def _those(near: Sequence[str], known: Sequence[str]) -> str:
    """The end of a message about a word that no run has: the nearest ones, else what there is; empty of nothing."""
    if near:
        return f"; nearest: {', '.join(near)}"
    return f"; there are: {', '.join(some(known))}" if known else ""


def _listed(words: Sequence[str]) -> str:
    return ", ".join(some([*map(repr, words)]))


def _plain(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def _shortened(text: str) -> str:
    return repr(_plain(text))
