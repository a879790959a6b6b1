"""Hints on values that no run has: another type than the field's, a word that does not occur, and the nearest ones.

A comparison that no run can ever meet is a slip of the pen, and an error; a word of which a run may come is told where
nothing was found.
"""

from collections.abc import Sequence

from sqlalchemy import Select, literal, select
from sqlalchemy.orm import Session

from orchestrator.nearest import nearest
from orchestrator.registry.place_tags import is_internal
from orchestrator.registry.queries.conditions import WrongValueError, as_text, condition
from orchestrator.registry.queries.fields import Field, Test
from orchestrator.registry.queries.query_tree import Comparison, Value, field_text, quoted
from orchestrator.registry.queries.recorded_names import RecordedNames, some
from orchestrator.registry.tables import RunRow

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


def check_values(session: Session, field: Field, operator: str, values: "Sequence[Value | Field]") -> None:
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


def unmatched_words(session: Session, names: RecordedNames, field: Field, comparison: Comparison) -> list[str]:
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


def wrong_patterns(comparison: Comparison) -> list[str]:
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
