"""Plans of queries: in which way the database finds the runs that a condition selects.

A condition on the measurements, parameters or tags of a run can be tested run by run, newest first (EXISTS), or
answered at once by the index of these rows (`id IN (SELECT run_id …)`). Run by run is quick where many runs pass, since
a page is soon full, and reads every run where few pass; the other way round it is slow where many pass. So the rows
that pass are counted, up to a bound, before a way is chosen. Of 100,000 runs, the first 100 with a rare score: 634 ms
the one way, 0.1 ms the other; with a frequent one 0.7 ms and 937 ms.

PostgreSQL's own planner makes the two of one another, by its statistics. By these the name of a measurement has nothing
to do with its values, so that it expects thousands of runs where none pass, and reads every run. There the few runs
become an array, which the server makes first: 9 ms in place of 320.
"""

from typing import Any

from sqlalchemy import ColumnElement, Select, any_, func, select
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import BinaryExpression
from sqlalchemy.sql.operators import eq
from sqlalchemy.sql.selectable import Exists
from sqlalchemy.sql.visitors import iterate, replacement_traverse

from orchestrator.registry.tables import ParameterRow, RunRow

MOST_LISTED = 10_000
"""Number of rows up to which runs are listed first, which takes 20 ms at most: run by run may be quicker for one
condition, and takes many times that where two conditions hardly ever meet."""


def plan(session: Session, condition: ColumnElement[bool], *, whole: bool) -> ColumnElement[bool]:
    """Return the same condition on runs in the form that the database answers soonest.

    Args:
        whole: whether every run that passes is wanted, to count or to list them, rather than the first ones.
    """
    dialect = session.get_bind().dialect.name
    if whole and dialect != "sqlite":
        return condition

    def replace(element: Any, **_: Any) -> ColumnElement[bool] | None:
        listed = _listed(element, dialect) if isinstance(element, Exists) else None
        return listed if listed is not None and (whole or _has_few(session, element)) else None

    planned: ColumnElement[bool] = replacement_traverse(condition, {}, replace)
    return planned


def _listed(exists: Exists, dialect: str) -> ColumnElement[bool] | None:
    """The condition as a list of runs; None where it is more than one test of a run's rows."""
    parts = _parts(exists)
    if parts is None:
        return None
    ids = select(parts[0]).where(*parts[1])
    return RunRow.id.in_(ids) if dialect == "sqlite" else RunRow.id == any_(func.array(ids.scalar_subquery()))


def _has_few(session: Session, exists: Exists) -> bool:
    """Whether few rows pass; the count never reads many more than that, but for rows that no index orders."""
    parts = _parts(exists)
    if parts is None or any(_is_text(part) for part in parts[1]):
        return False
    some = select(parts[0]).where(*parts[1]).limit(MOST_LISTED + 1)
    return (session.scalar(select(func.count()).select_from(some.subquery())) or 0) <= MOST_LISTED


def _parts(exists: Exists) -> tuple[ColumnElement[Any], list[ColumnElement[Any]]] | None:
    """The column that names the run of a row, and the tests of the row; None where other columns of runs are tested."""
    clause = next((part.whereclause for part in iterate(exists) if isinstance(part, Select)), None)
    clauses = list(getattr(clause, "clauses", [clause]))
    links = [part for part in clauses if _links_run(part)]
    if len(links) != 1:
        return None
    tests = [part for part in clauses if part is not links[0]]
    return None if any(_names_runs(part) for test in tests for part in iterate(test)) else (links[0].left, tests)


def _links_run(clause: Any) -> bool:
    return (
        isinstance(clause, BinaryExpression)
        and clause.operator is eq
        and getattr(clause.left, "key", None) == "run_id"
        and getattr(clause.right, "key", None) == RunRow.id.key
        and _names_runs(clause.right)
    )


def _names_runs(part: Any) -> bool:
    return getattr(getattr(part, "table", None), "name", None) == RunRow.__tablename__


def _is_text(test: ColumnElement[Any]) -> bool:
    """Whether a test is of a parameter's text, which is in no index: counting would read every run's."""
    return any(
        getattr(part, "key", None) == ParameterRow.text.key
        and getattr(getattr(part, "table", None), "name", None) == ParameterRow.__tablename__
        for part in iterate(test)
    )
