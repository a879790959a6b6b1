"""Data that runs made or used: token stores, the splits of tasks, tokenizers; and their training checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import select

from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import upsert_rows
from orchestrator.registry.record_table import RecordTable, record_table
from orchestrator.registry.records import CheckpointRecord
from orchestrator.registry.run_records import load_records
from orchestrator.registry.tables import CHECKPOINTS, DATASETS, OWN_DATASETS, RUN_DATASETS
from orchestrator.results import CheckpointEvent, DatasetResult, TokenizerResult


class RunDatasets:
    """`registry.datasets`: writes and reads data and which runs used it. Natural key: the data's fingerprint."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, run_id: str, result: DatasetResult) -> None:
        """Record data and that this run made or used it."""
        files = [asdict(file) for file in result.files]
        row = {"kind": result.kind, "name": result.name, "fingerprint": result.fingerprint, "path": result.path}
        own = {"counts": dict(result.counts), "files": files, "tokenizer_digest": result.tokenizer_digest}
        self._record(run_id, {**row, **own})

    def record_tokenizer(self, run_id: str, result: TokenizerResult) -> None:
        """Record a tokenizer and that this run trained it."""
        row = {"kind": "tokenizer", "name": "tokenizer", "fingerprint": result.fingerprint, "path": result.folder}
        self._record(run_id, {**row, "counts": {"vocab_size": result.vocab_size}, "files": []})

    def _record(self, run_id: str, row: dict[str, Any]) -> None:
        link = {"run_id": run_id, "fingerprint": row["fingerprint"]}
        with self._database.connection(writing=True) as connection:
            changing = tuple(name for name in ("path", "counts", "files", "tokenizer_digest") if name in row)
            upsert_rows(connection, DATASETS, ("fingerprint",), changing, [row])
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
        with self._database.connection(writing=False) as connection:
            rows = connection.execute(
                statement.where(RUN_DATASETS.c.run_id == run_id).order_by(data.kind, data.name)
            ).all()
        return record_table([column.key for column in columns], rows)


class RunCheckpoints:
    """`registry.checkpoints`: writes and reads the checkpoints of runs. Natural key: (run, step)."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
