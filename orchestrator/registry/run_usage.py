"""Data, training checkpoints and costs of runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import select, update

from orchestrator.registry.database import RegistryPart
from orchestrator.registry.dialects import select_runs, upsert_rows, utc_now
from orchestrator.registry.records import AttemptCostRecord, CheckpointRecord, RecordTable, record_table
from orchestrator.registry.run_records import load_records, record_columns
from orchestrator.registry.tables import ATTEMPTS, CHECKPOINTS, DATASETS, OWN_DATASETS, RUN_DATASETS, RUNS
from orchestrator.results import CheckpointEvent, DatasetResult, TokenizerResult


class RunDatasets(RegistryPart):
    """`registry.datasets`: writes and reads data and which runs used it. Natural key: the data's fingerprint."""

    def record(self, run_id: str, result: DatasetResult) -> None:
        """Record data and that this run made or used it."""
        self._record(run_id, {name: value for name, value in asdict(result).items() if name != "reused"})

    def record_tokenizer(self, run_id: str, result: TokenizerResult) -> None:
        """Record a tokenizer and that this run trained it."""
        own = {"fingerprint": result.fingerprint, "path": result.folder, "counts": {"vocab_size": result.vocab_size}}
        self._record(run_id, {"kind": "tokenizer", "name": "tokenizer", "files": [], "tokenizer_digest": None, **own})

    def _record(self, run_id: str, row: dict[str, Any]) -> None:
        link, changing = {"run_id": run_id, "fingerprint": row["fingerprint"]}, ("path", "counts", "files")
        with self._database.connection(writing=True) as connection:
            upsert_rows(connection, DATASETS, ("fingerprint",), (*changing, "tokenizer_digest"), [row])
            upsert_rows(connection, OWN_DATASETS, tuple(link), (), [link])

    def tokenizer_at(self, path: str) -> str | None:
        """Fingerprint of the tokenizer that was last trained into a folder; None where none was."""
        statement = select(DATASETS.c.fingerprint).where(DATASETS.c.kind == "tokenizer", DATASETS.c.path == path)
        with self._database.connection(writing=False) as connection:
            return connection.scalar(statement.order_by(DATASETS.c.recorded_at.desc()).limit(1))

    def table(self, run_id: str) -> RecordTable:
        """Data that a run made or used, of a trial those of its sweep, a record each."""
        data = DATASETS.c
        columns = (data.name, data.kind, data.fingerprint, data.path, data.counts, data.files, data.recorded_at)
        statement = select(*columns).join(RUN_DATASETS, RUN_DATASETS.c.fingerprint == data.fingerprint)
        ordered = statement.where(RUN_DATASETS.c.run_id == run_id).order_by(data.kind, data.name)
        with self._database.connection(writing=False) as connection:
            return record_table([column.key for column in columns], connection.execute(ordered).all())


class RunCheckpoints(RegistryPart):
    """`registry.checkpoints`: writes and reads the checkpoints of runs. Natural key: (run, step)."""

    def record(self, run_id: str, events: Iterable[CheckpointEvent]) -> None:
        """Record checkpoints that are complete on the storage."""
        rows = [{"run_id": run_id, **asdict(event)} for event in events]
        if rows:
            with self._database.connection(writing=True) as connection:
                upsert_rows(connection, CHECKPOINTS, ("run_id", "step"), ("path", "digest", "num_bytes"), rows)

    def of_run(self, run_id: str) -> list[CheckpointRecord]:
        """Checkpoints of a run, oldest first; some of them may have been deleted since."""
        statement = select(CHECKPOINTS).where(CHECKPOINTS.c.run_id == run_id).order_by(CHECKPOINTS.c.step)
        with self._database.connection(writing=False) as connection:
            return load_records(connection, statement, CheckpointRecord)


class RunCosts(RegistryPart):
    """`registry.costs`: writes and reads what attempts have taken. Natural key: (run, attempt)."""

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
        its = ATTEMPTS.c.run_id == sweep_id, ATTEMPTS.c.number == attempt
        with self._database.connection(writing=False) as connection:
            trials = connection.execute(columns).all()
            begun_at, now = connection.execute(select(ATTEMPTS.c.started_at, utc_now()).where(*its)).one()
        spent_s = []
        for started_at, finished_at, seconds in trials:
            if started_at is None:  # recorded with its end alone
                spent_s.append(0.0 if finished_at is not None and finished_at < begun_at else seconds or 0.0)
            else:  # what the trial's process has measured leaves out the time that the trial waited
                passed_s = max(0.0, ((finished_at or now) - max(started_at, begun_at)).total_seconds())
                spent_s.append(passed_s if seconds is None else min(passed_s, seconds))
        return sum(spent_s) if spent_s else None
