"""Methods of `Registry` that take a query: runs, their groups by the values of fields, and their number."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import select_items, select_runs
from orchestrator.registry.parameter_values import decode_parameter
from orchestrator.registry.place_tags import PIPELINE
from orchestrator.registry.queries.run_listing import Query
from orchestrator.registry.queries.selection import Selection
from orchestrator.registry.record_table import RecordTable
from orchestrator.registry.records import RunRecord
from orchestrator.registry.run_reader import RunReader
from orchestrator.registry.run_records import load_runs, load_selected
from orchestrator.registry.tables import NameRow, ParameterRow, RunRow, TagRow

if TYPE_CHECKING:
    import pandas


class QueriedRuns(RunReader):
    """Runs and trials that queries select: the part of `Registry` that reads them as tables."""

    def runs(
        self, filter: str = "", *, sort: str = "-created_at", limit: int | None = None, trials: bool = True
    ) -> pandas.DataFrame:
        """`run_table` as a DataFrame, for notebooks."""
        return self.run_table(filter, sort=sort, limit=limit, trials=trials).frame()

    def run_table(
        self,
        filter: str = "",
        *,
        sort: str = "-created_at",
        limit: int | None = None,
        offset: int = 0,
        trials: bool = True,
        archived: bool = True,
    ) -> RecordTable:
        """Runs and trials that a query selects, a record each, newest first unless sorted otherwise.

        Columns: those of `RUN_COLUMNS`, `tags`, then a `metrics.…` and a `params.…` column for each metric and
        parameter that any of these runs has. A parameter is called by the last part of its path, by the whole path
        where several in the table end so. NaN in a record was measured; what was not is not there.

        Args:
            filter: a query, such as `metrics.f1 > 0.9 and params.recipe.size = 'tiny'`; all runs when empty.
            sort: a field, `-field` or `field desc` for descending order; runs without the field come last.
            limit: number of rows at most.
            offset: number of rows that are left out before the first.
            trials: whether trials are included, beside runs without a parent.
            archived: whether archived runs and their trials are included.

        Raises: InputError with a caret under the place that is wrong.
        """
        with self._query(filter, trials, archived) as query:
            return query.table(sort, limit, offset)

    def run_ids(
        self, filter: str = "", *, sort: str = "-created_at", trials: bool = True, archived: bool = True
    ) -> list[str]:
        """Ids of the runs and trials that a query selects, in the order of `run_table`. Raises: as `runs`."""
        with self._query(filter, trials, archived) as query:
            return query.ids(sort)

    def selected(self, filter: str, *, trials: bool = True) -> list[RunRecord]:
        """Records of the runs that a query selects, the newest first; nothing else is read of them."""
        with self._query(filter, trials) as query:
            return load_selected(query.session, query.state, query.conditions())

    def named_in_specs(self, fields: Collection[str], *, except_of: Collection[str] = ()) -> set[str]:
        """Values that these fields have, wherever they stand in a spec, in any run but some."""
        with self._database.session(writing=False) as session:
            return _load_values(session, fields, except_of)

    def runs_naming(
        self, fields: Collection[str], names: Collection[str], *, except_of: Collection[str] = ()
    ) -> list[RunRecord]:
        """Runs that name one of these values in one of these fields of their spec, or of a trial's; the newest first.

        Args:
            except_of: runs and trials whose own specs are not read.
        """
        with self._database.session(writing=False) as session:
            return load_runs(session, self._state(), _load_naming_runs(session, fields, names, except_of))

    def unmatched(self, filter: str) -> list[str]:
        """Tell what a query asks for that no run has: why it finds nothing. Raises: InputError."""
        with self._query(filter) as query:
            return Selection(query.session, query.state).unmatched(filter)

    def grouped(
        self,
        by: str | Sequence[str],
        filter: str = "",
        *,
        aggregates: str | Sequence[str] = (),
        pivot: str | None = None,
        sort: str | None = None,
        trials: bool = True,
        archived: bool = True,
    ) -> RecordTable:
        """Groups of the runs that a query selects, a row each: `grouped("params.recipe.size", "task = 'mrpc'")`.

        Columns: the fields of `by`, then the aggregates. Scores of different measurements or tasks are never taken
        together: where runs have several, `metric` and `task` become fields of `by`. A run with several tags
        is in the group of each.

        Aggregates of the score take completed runs alone, and leave out runs whose trials are selected as well: the
        score of a sweep is that of its best trial. `notes` tell how many. With `count` alone, and of
        a field that is named, as in `mean(metrics.loss)`, every run that is selected counts.

        Args:
            by: fields whose values make a group, as one text with commas or several.
            filter: a query, as `runs` takes it; all runs when empty.
            aggregates: `count`, `n` (how many have a value), `mean`, `sd`, `min`, `max`, `median`, `sum`, `best` and
                `worst`, of the score; or of a field: `max(seconds)`, `mean(best(metrics.loss))`. When empty count, n,
                mean, sd, min and max of the score; with a pivot the mean.
            pivot: field each of whose values becomes a column, such as `seed`.
            sort: a column of the table, `-mean` from the largest down; groups stand in the order of `by` when None.
            trials: whether trials are included, beside runs without a parent.
            archived: whether archived runs and their trials are included.

        Raises: InputError.
        """
        from orchestrator.registry.queries.run_grouping import Grouping, group_runs

        grouping = Grouping.of(by, aggregates, pivot, sort)
        with self._query(filter, trials, archived) as query:
            return group_runs(query, grouping)

    def stages(self, run_id: str) -> list[RunRecord]:
        """Stages of a pipeline that have begun, or were done before, the newest first; none of any other run."""
        of_pipeline = select(TagRow.run_id).where(TagRow.tag == f"{PIPELINE}{run_id}")
        conditions = [RunRow.key.in_(of_pipeline), RunRow.parent_id.is_(None)]
        with self._database.session(writing=False) as session:  # without the parser, which takes longer to load
            return load_selected(session, self._state(), conditions)

    def num_runs(self, filter: str = "", *, trials: bool = True, archived: bool = True) -> int:
        """Number of the runs and trials that a query selects. Raises: InputError, as `runs` does."""
        with self._query(filter, trials, archived) as query:
            return query.count()

    @contextmanager
    def _query(self, filter: str, trials: bool = True, archived: bool = True) -> Iterator[Query]:
        with self._database.session(writing=False) as session:
            yield Query(session, self._state(), filter, trials, archived)


def _load_values(session: Session, fields: Collection[str], except_of: Collection[str]) -> set[str]:
    of_runs = select(ParameterRow.kind, ParameterRow.text).join(RunRow, RunRow.key == ParameterRow.run_id)
    values = of_runs.where(ParameterRow.path.in_(_named(fields))).distinct()
    of_others = ParameterRow.run_id.not_in(select_runs(session, except_of))
    found: set[str] = set()
    for kind, text in session.execute(values.where(of_others, ParameterRow.kind != "null")):
        value = decode_parameter(kind, text)
        found.update(map(str, value if isinstance(value, list) else [value]))
    return found


def _named(fields: Collection[str]) -> Select[int]:
    """Select the keys of the paths that are one of some fields, or end with it."""
    ends = (NameRow.text.endswith(f".{field}", autoescape=True) for field in sorted(fields))
    return select(NameRow.key).where(or_(NameRow.text.in_(fields), *ends))


def _load_naming_runs(
    session: Session, fields: Collection[str], names: Collection[str], except_of: Collection[str] = ()
) -> set[str]:
    """Load the ids of the runs in whose specs one of these fields has one of these values, of any run but some.

    A list has each of its values. Of a trial it is the id of its sweep.
    """
    is_field = ParameterRow.path.in_(_named(fields))
    whole = func.coalesce(RunRow.parent_id, RunRow.key)
    values = select(whole, ParameterRow.kind, ParameterRow.text).join(RunRow, RunRow.key == ParameterRow.run_id)
    is_other = ParameterRow.run_id.not_in(select_runs(session, except_of))
    may_name = or_(ParameterRow.kind == "json", ParameterRow.text.in_(select_items(session, names)))
    found = set()
    for run_id, kind, text in session.execute(values.where(is_field, is_other, may_name)):
        value = decode_parameter(kind, text)
        if not set(names).isdisjoint(map(str, value if isinstance(value, list) else [value])):
            found.add(run_id)
    return found
