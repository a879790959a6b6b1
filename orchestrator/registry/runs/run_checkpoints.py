"""Training checkpoints of runs, as rows: where they lie and what they weigh."""

from collections.abc import Iterable
from dataclasses import asdict

from sqlalchemy import select

from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import upsert_rows
from orchestrator.registry.records import CheckpointRecord
from orchestrator.registry.run_records import load_records
from orchestrator.registry.tables import CheckpointRow
from orchestrator.results import CheckpointEvent


class RunCheckpoints:
    """`registry.checkpoints`: writes and reads the checkpoints of runs. Natural key: (run, step)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, run_id: str, events: Iterable[CheckpointEvent]) -> None:
        """Record checkpoints that are complete on the storage."""
        rows = [{"run_id": run_id, **asdict(event)} for event in events]
        if rows:
            with self._database.session(writing=True) as session:
                upsert_rows(session, CheckpointRow, ("run_id", "step"), ("path", "digest", "num_bytes"), rows)

    def of_run(self, run_id: str) -> list[CheckpointRecord]:
        """Checkpoints of a run, oldest first; some of them may have been deleted since."""
        statement = select(CheckpointRow).where(CheckpointRow.run_id == run_id).order_by(CheckpointRow.step)
        with self._database.session(writing=False) as session:
            return load_records(session, statement, CheckpointRecord)
