"""Costs of runs: what each attempt has taken of processors, GPUs and energy."""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import select

from orchestrator.registry.attempt_tables import AttemptCostRow, AttemptRow
from orchestrator.registry.column_types import utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import select_items, upsert_rows
from orchestrator.registry.records import AttemptCostRecord
from orchestrator.registry.run_records import record_columns
from orchestrator.registry.tables import RunRow

_KEYS = ("run_id", "number")
_VALUES = ("seconds", "cpu_seconds", "cpu_measured", "gpu_seconds", "gpu_type", "energy_joules")


class RunCosts:
    """`registry.costs`: writes and reads what attempts have taken. Natural key: (run, attempt)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, cost: AttemptCostRecord) -> None:
        """Record what an attempt has taken so far, in place of what was recorded of it before."""
        with self._database.session(writing=True) as session:
            upsert_rows(session, AttemptCostRow, _KEYS, _VALUES, [asdict(cost)])

    def of_runs(self, run_ids: Collection[str]) -> list[AttemptCostRecord]:
        """Costs of the attempts of some runs, by run and number; none of attempts of which nothing is recorded."""
        columns = select(*record_columns(AttemptCostRecord, AttemptCostRow))
        with self._database.session(writing=False) as session:
            statement = columns.where(AttemptCostRow.run_id.in_(select_items(session, run_ids)))
            rows = session.execute(statement.order_by(*AttemptCostRow.__table__.primary_key))
            return [AttemptCostRecord(*row) for row in rows]

    def trial_seconds(self, sweep_id: str, attempt: int | None = None) -> float | None:
        """Seconds that a sweep's trials have taken in all, those that run included; None of a run without trials.

        Args:
            attempt: number of an attempt, from whose beginning on they are counted; None for all attempts.
        """
        columns = select(RunRow.started_at, RunRow.finished_at, RunRow.seconds).where(RunRow.parent_id == sweep_id)
        with self._database.session(writing=False) as session:
            trials = session.execute(columns).all()
            row = None if attempt is None else session.get(AttemptRow, (sweep_id, attempt))
            now = session.scalar(select(utc_now()))
        since = None if row is None else row.started_at
        return sum(_spent_s(*trial, since, now) for trial in trials) if trials and now is not None else None

    def trial_seconds_of(self, sweep_ids: Collection[str]) -> dict[str, float]:
        """Seconds that the trials of each of some sweeps have taken in all, by sweep; a run without trials has none.

        They are those of `trial_seconds`, read at once.
        """
        columns = select(RunRow.parent_id, RunRow.started_at, RunRow.finished_at, RunRow.seconds)
        with self._database.session(writing=False) as session:
            statement = columns.where(RunRow.parent_id.in_(select_items(session, sweep_ids)))
            # in the order of their index, in which the trials of one sweep are read: the same sum to the last digit
            trials = session.execute(statement.order_by(RunRow.parent_id, RunRow.trial_key)).all()
            now = session.scalar(select(utc_now()))
            assert now is not None
        spent: dict[str, float] = {}
        for sweep_id, started_at, finished_at, seconds in trials:
            assert sweep_id is not None
            spent[sweep_id] = spent.get(sweep_id, 0.0) + _spent_s(started_at, finished_at, seconds, None, now)
        return spent

    def worker_groups(self, run_ids: Collection[str]) -> dict[str, list[Mapping[str, Any]]]:
        """Groups of training workers that runs had, in order over all attempts; a run without any has no entry."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        with self._database.session(writing=False) as session:
            columns = select(AttemptRow.run_id, AttemptRow.workers)
            statement = columns.where(AttemptRow.run_id.in_(select_items(session, run_ids)))
            for run_id, groups in session.execute(statement.order_by(AttemptRow.run_id, AttemptRow.number)):
                if groups:
                    found.setdefault(run_id, []).extend(groups)
        return found


def _spent_s(
    started_at: datetime | None,
    finished_at: datetime | None,
    seconds: float | None,
    since: datetime | None,
    now: datetime,
) -> float:
    """Seconds of a trial after a time. What its process has measured leaves out the time that the trial waited."""
    if started_at is None:
        ended_before = since is not None and finished_at is not None and finished_at < since
        return 0.0 if ended_before else seconds or 0.0
    begun_at = started_at if since is None else max(started_at, since)
    passed_s = max(0.0, ((finished_at or now) - begun_at).total_seconds())
    return passed_s if seconds is None else min(passed_s, seconds)
