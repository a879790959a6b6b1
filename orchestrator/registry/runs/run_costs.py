"""Costs of attempts: how long each has worked, and what it held of processors and GPUs meanwhile."""

from collections.abc import Collection
from dataclasses import asdict

from sqlalchemy import select, update

from orchestrator.registry.column_types import utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import select_runs
from orchestrator.registry.records import AttemptCostRecord
from orchestrator.registry.run_records import record_columns
from orchestrator.registry.tables import ATTEMPTS, RUNS


class RunCosts:
    """`registry.costs`: writes and reads what attempts have taken. Natural key: (run, attempt)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, cost: AttemptCostRecord) -> None:
        """Record what an attempt has taken so far, in place of what was recorded of it before."""
        its = ATTEMPTS.c.run_id == cost.run_id, ATTEMPTS.c.number == cost.number
        with self._database.connection(writing=True) as connection:
            connection.execute(update(ATTEMPTS).where(*its).values(asdict(cost)))

    def of_runs(self, run_ids: Collection[str]) -> list[AttemptCostRecord]:
        """Costs of the attempts of some runs, by run and number; none of attempts of which nothing is recorded."""
        columns = select(*record_columns(AttemptCostRecord, ATTEMPTS)).where(ATTEMPTS.c.seconds.is_not(None))
        with self._database.connection(writing=False) as connection:
            statement = columns.where(ATTEMPTS.c.run_id.in_(select_runs(connection, run_ids)))
            rows = connection.execute(statement.order_by(ATTEMPTS.c.run_id, ATTEMPTS.c.number))
            return [AttemptCostRecord(*row) for row in rows]

    def trial_seconds(self, sweep_id: str, attempt: int) -> float | None:
        """Seconds that a sweep's trials have worked in one attempt, those at work included; None without trials."""
        columns = select(RUNS.c.started_at, RUNS.c.finished_at, RUNS.c.seconds).where(RUNS.c.parent_id == sweep_id)
        with self._database.connection(writing=False) as connection:
            trials = connection.execute(columns).all()
            its = ATTEMPTS.c.run_id == sweep_id, ATTEMPTS.c.number == attempt
            begun_at, now = connection.execute(select(ATTEMPTS.c.started_at, utc_now()).where(*its)).one()
        if not trials:
            return None
        spent_s = 0.0
        for started_at, finished_at, seconds in trials:
            if started_at is None:  # recorded with its end alone
                spent_s += 0.0 if finished_at is not None and finished_at < begun_at else seconds or 0.0
                continue
            passed_s = max(0.0, ((finished_at or now) - max(started_at, begun_at)).total_seconds())
            # What its process has measured leaves out the time that the trial waited.
            spent_s += passed_s if seconds is None else min(passed_s, seconds)
        return spent_s
