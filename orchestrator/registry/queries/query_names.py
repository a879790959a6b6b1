"""Names of fields that runs have, read by skipping through indexes, the nearest to one that none has, and their values.

A registry of 100,000 runs has millions of rows of parameters and some hundred names of them. Each name is found by one
look-up in an index, the smallest name after the one before, so that a misspelt field costs milliseconds.
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, select, true
from sqlalchemy.orm import Session, aliased

from orchestrator.nearest import nearest
from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.parameter_values import decode_parameter
from orchestrator.registry.place_tags import is_internal
from orchestrator.registry.queries.query_fields import METRIC_SPLITS, NAMES
from orchestrator.registry.queries.query_tree import field_text
from orchestrator.registry.run_records import metric_name
from orchestrator.registry.tables import MetricRow, ParameterRow, RunRow, TagRow

MAX_NAMES = 2_000
"""Number of names of one sort that are read at most."""
_NUM_LISTED = 8


def distinct(
    session: Session, column: Any, where: ColumnElement[bool] | None = None, most: int | None = MAX_NAMES
) -> list[str]:
    """The distinct values of an indexed column of text, in order, without reading every row.

    Args:
        where: condition on columns that stand before it in the index.
        most: number of values that are read at most; None for all.
    """
    condition = true() if where is None else where
    found = select(func.min(column).label("name")).where(condition).cte("found", recursive=True)
    following = select(func.min(column)).where(condition, column > found.c.name).scalar_subquery()
    found = found.union_all(select(following).where(found.c.name.is_not(None)))
    row = aliased(found)
    return list(session.scalars(select(row.c.name).where(row.c.name.is_not(None)).limit(most)))


def metric_fields(session: Session) -> list[str]:
    """Fields of the measurements that runs have: `metrics.f1`, `metrics.test.f1`."""
    return [
        f"metrics.{metric_name(split, name)}"
        for split in METRIC_SPLITS
        for name in distinct(session, MetricRow.name, MetricRow.split == split)
    ]


def parameter_paths(session: Session) -> list[str]:
    """Dotted paths of the parameters that runs have."""
    return distinct(session, ParameterRow.path)


def parameter_fields(session: Session) -> list[str]:
    """Fields of the parameters that runs have, by their short names and by their paths."""
    names = dict.fromkeys([*distinct(session, ParameterRow.leaf), *parameter_paths(session)])
    return [f"params.{name}" for name in names]


def tag_fields(session: Session) -> list[str]:
    """Fields of the tags that runs have: `tags.paper`, and `tags.drift` of `drift:seed`."""
    tags = [tag for tag in distinct(session, TagRow.tag) if not is_internal(tag)]
    return [f"tags.{key}" for key in dict.fromkeys(tag.partition(":")[0] for tag in tags)]


def near_tags(session: Session, key: str) -> str:
    """The end of a message about a tag that no run has: the nearest fields, else what there is."""
    known = tag_fields(session)
    near = nearest(key, [field.removeprefix("tags.") for field in known])
    if near:
        return f"; nearest: {', '.join(field_text(f'tags.{one}') for one in near)}"
    return f"; there are: {', '.join(_some([*map(field_text, known)]))}" if known else ""


def load_values(session: Session, fields: Collection[str], except_of: Collection[str] = ()) -> set[str]:
    """Load the values that these fields have, wherever they stand in a spec, in any run but some."""
    every_path = distinct(session, ParameterRow.path, most=None)  # one that is missed may name what is about to go
    paths = [path for path in every_path if path.rpartition(".")[2] in fields]
    of_runs = select(ParameterRow.kind, ParameterRow.text).join(RunRow, RunRow.id == ParameterRow.run_id)
    values = of_runs.where(ParameterRow.path.in_(paths)).distinct()
    of_others = ParameterRow.run_id.not_in(select_items(session, except_of))
    found: set[str] = set()
    for kind, text in session.execute(values.where(of_others, ParameterRow.kind != "null")):
        value = decode_parameter(kind, text)
        found.update(map(str, value if isinstance(value, list) else [value]))
    return found


def nearest_fields(session: Session, name: str) -> str:
    """Tell what a person may have meant by the name of a field that no run has, else which fields there are."""
    known = [*NAMES, *metric_fields(session), *parameter_fields(session)]
    near = nearest(name, known)
    if near:
        return f"nearest: {', '.join(map(field_text, near))}"
    area = name.partition(".")[0] + "."
    there = [field_text(other) for other in known if other.startswith(area)]
    return "there are: " + ", ".join(_some(there) if there else [*NAMES, "metrics.NAME", "params.PATH", "tags.NAME"])


def listed(values: Sequence[str]) -> str:
    """Values for a message, in quotes, not too many of them."""
    return ", ".join(value if value == "…" else repr(value) for value in _some(values))


def _some(names: Sequence[str]) -> list[str]:
    return [*names[:_NUM_LISTED], *(["…"] if len(names) > _NUM_LISTED else [])]
