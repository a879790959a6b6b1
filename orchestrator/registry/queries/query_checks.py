"""Checks of a query's values against what a field has in the runs that there are: its type, and words that occur.

A comparison that no run can ever meet is a slip of the pen. It is told with what the field does have.
"""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, func, literal, select
from sqlalchemy.orm import Session

from orchestrator.nearest import nearest
from orchestrator.registry.place_tags import is_internal
from orchestrator.registry.queries.query_fields import ColumnField, Field, ParameterField
from orchestrator.registry.queries.query_links import LinkedField, TagValueField
from orchestrator.registry.queries.query_names import listed, near_tags
from orchestrator.registry.queries.query_tree import Comparison, Value, quoted
from orchestrator.registry.queries.query_values import WrongValueError, as_text
from orchestrator.registry.tables import ModelRow, ParameterRow, RunRow, TagRow, of_whole_run

_WORDS = {
    "task": RunRow.task,
    "tag": TagRow.tag,
    "model": ModelRow.name,
    "name": RunRow.name,
    "host": RunRow.host,
    "experiment": of_whole_run("name"),
}
"""Columns of text with words to choose from."""
_SAMPLE = 500
"""Rows of a parameter that tell what type it has; only a value of another type is looked for in all of them."""
_WORDS_SAMPLE = 20_000
_REMEDIES = {
    "number": "this is a number; compare it with one, without quotes",
    "boolean": "this is true or false; write it without quotes",
    "text": "this is text; compare it with text in quotes",
}


def check_values(session: Session, field: Field, operator: str, values: Sequence[Value | Field]) -> None:
    """Check that some run may be as a comparison says. Raises: WrongValueError, with what the field does have."""
    plain = [value for value in values if isinstance(value, Value) and value is not None]
    if isinstance(field, ParameterField):
        _check_parameter(session, field, operator, plain)
    elif isinstance(field, ColumnField) and field.column is RunRow.kind and operator in ("=", "!=", "in"):
        for value in plain:
            _check_kind(session, as_text(value))


def words_of_none(session: Session, field: Field, comparison: Comparison) -> list[str]:
    """Tell which texts of a comparison no run is equal to; such a run may come, so that it is no error."""
    if isinstance(field, TagValueField):
        is_there = session.scalar(select(literal(1)).where(field.rows()).limit(1)) is not None
        return [] if is_there else [f"no run has the tag {_shortened(field.key)}{near_tags(session, field.key)}"]
    if not (isinstance(field, LinkedField) or (isinstance(field, ColumnField) and field.kind == "text")):
        return []
    unmatched = []
    for value in comparison.values:
        if not isinstance(value, str):
            continue
        if session.scalar(select(RunRow.id).where(field.compared("=", value)).limit(1)) is not None:
            continue
        remark = _near_words(session, str(comparison.operand), value)
        unmatched.append(f"no run has {comparison.operand} = {_shortened(value)}{remark}")
    return unmatched


def wrong_patterns(comparison: Comparison) -> list[str]:
    """Tell which patterns of a `like` have a star where the language has a percent sign."""
    return [
        f"any text is % in a pattern: {comparison.operand} like {quoted(value.replace('*', '%'))}"
        for value in comparison.values
        if isinstance(value, str) and "*" in value and "%" not in value
    ]


def _near_words(session: Session, operand: str, value: str) -> str:
    """The end of a message about a text that no run has: the nearest ones, else what there is; empty where unknown."""
    if operand not in _WORDS:
        return ""
    some = select(_WORDS[operand].label("word")).limit(_WORDS_SAMPLE).subquery()
    words = session.scalars(select(some.c.word).where(some.c.word.is_not(None)).distinct().order_by(some.c.word))
    known = [word for word in words if not is_internal(word)]
    near = nearest(value, known)
    if near and len(near) < len(known):
        return f"; nearest: {listed(near)}"
    return f"; there are: {listed(known)}" if known else ""


def _check_parameter(session: Session, field: ParameterField, operator: str, values: Sequence[Value]) -> None:
    kinds = _kinds(session, field)
    if not kinds:  # no run has it: there is no run at all, or only runs whose value is null
        return
    for value in values:
        wanted = _kind_of(value)
        if wanted not in kinds and not _occurs(session, field, *_is_of(wanted)):
            raise WrongValueError("; or ".join(_REMEDIES[kind] for kind in sorted(kinds)))
    if operator == "like" and "text" not in kinds:
        raise WrongValueError(f"like compares text, and this is a {' or '.join(sorted(kinds))}")
    texts = [as_text(value) for value in values if isinstance(value, str)]
    if operator not in ("=", "!=", "in") or len(texts) < len(values) or not texts:
        return
    if not _occurs(session, field, *_is_of("text"), ParameterRow.text.in_(texts)):
        known = _words(session, field)
        near = nearest(texts[0], known)
        there_are = f"did you mean {listed(near[:1])}? There are" if near else "there are"
        raise WrongValueError(f"no run has {' or '.join(map(_shortened, texts))}; {there_are} {listed(known)}")


def _check_kind(session: Session, kind: str) -> None:
    recent = select(RunRow.kind).order_by(RunRow.created_at.desc()).limit(_SAMPLE)
    kinds = set(session.scalars(recent))
    if not kinds or kind.lower() in {one.lower() for one in kinds}:
        return
    from orchestrator.specs.kinds import SPEC_KINDS

    known = [*SPEC_KINDS, "trial"]
    of_kind = func.lower(RunRow.kind) == kind.lower()
    if kind.lower() in known or session.scalar(select(literal(1)).where(of_kind).limit(1)) is not None:
        return
    raise WrongValueError(f"no run is ever of the kind {_shortened(kind)}; a kind is {', '.join(map(repr, known))}")


def _kinds(session: Session, field: ParameterField) -> set[str]:
    """Types of a parameter, as its first rows have it: number, boolean and text, which lists are compared as."""
    some = select(ParameterRow.kind).where(field.rows(), ParameterRow.kind != "null").limit(_SAMPLE).subquery()
    return {"text" if kind == "json" else kind for kind in session.scalars(select(some.c.kind).distinct())}


def _kind_of(value: Value) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, float) else "text"


def _is_of(kind: str) -> tuple[ColumnElement[bool], ...]:
    """Conditions for the rows of a type; the second one follows from the first, and an index has its column."""
    if kind == "text":
        return ParameterRow.kind.in_(("text", "json")), ParameterRow.number.is_(None)
    return ParameterRow.kind == kind, ParameterRow.number.is_not(None)


def _occurs(session: Session, field: ParameterField, *tests: ColumnElement[bool]) -> bool:
    return session.scalar(select(literal(1)).where(field.rows(), *tests).limit(1)) is not None


def _words(session: Session, field: ParameterField) -> list[str]:
    """Texts of a parameter, sorted; of a very large registry those that its first rows have."""
    some = select(ParameterRow.text).where(field.rows(), *_is_of("text")).limit(_WORDS_SAMPLE).subquery()
    return [_plain(text) for text in sorted(session.scalars(select(some.c.text).distinct()))]


def _plain(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def _shortened(text: str) -> str:
    return repr(_plain(text))
