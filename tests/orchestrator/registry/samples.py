"""Runs to try things on, registries with something in every table, and a registry as plain values to compare."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Select, Table, insert, select, update

from orchestrator.base.results import CheckpointEvent, DatasetResult, MetricEvent, ModelResult, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.provenance.capture import Provenance, SourceCode
from orchestrator.registry import Registry
from orchestrator.registry.database import MIGRATIONS, NEWEST_REVISION
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.tables import ALIASES, ATTEMPTS, CODE_DIFFS, LINEAGE, METADATA, OWN_MARKS, SERIES


def new_run(registry: Registry, **changes: Any) -> str:
    """A run's id; every argument of `registry.lifecycle.create` can be changed."""
    given = {"kind": "pretrain", "name": "sample", "fingerprint": "f" * 64, "spec": {"kind": "pretrain"}}
    return registry.lifecycle.create(**{**given, **changes})


def remove(registry: Registry, run_id: str) -> None:
    """Put a run into the trash, whether it has ended or not."""
    registry.lifecycle.finish(run_id, RunState.COMPLETED)
    assert registry.trash.put(run_id, 0)


def model_result(digest: str = "d" * 64, **changes: Any) -> ModelResult:
    """A classifier's folder."""
    given = {"folder": f"storage/{digest}", "digest": digest, "num_parameters": 4_385_920, "head": "classification"}
    return ModelResult(**{**given, **changes})


def trial_result(key: str = "k0", **changes: Any) -> TrialResult:
    """A completed trial."""
    given: dict[str, Any] = {"number": 0, "parameters": {"learning_rate": 1e-4}, "state": RunState.COMPLETED, "seed": 0}
    return TrialResult(key=key, **{**given, **changes})


def made_with(commit: str, diff: str | None = None) -> Provenance:
    """Make of an attempt at a commit, with changes or without."""
    digest = None if diff is None else f"{diff:x>64}"
    code = SourceCode("0.1.0", commit, diff, digest, len(diff or ""), ("bert_core/a.py",) if diff else ())
    return Provenance(code, "orchestrator run a.yaml", ("seed=1",), {"hostname": "a", "versions": {"python": "3.11"}})


def everything(registry: Registry) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, without keys, which another registry counts by itself, and what follows from others."""
    with registry._database.connection(writing=False) as connection:
        return {
            name: sorted((tuple(row) for row in connection.execute(_recorded(table))), key=repr)
            for name, table in METADATA.tables.items()
            if name not in ("names", "open_runs", "ranked_groups")
        }


def _recorded(table: Table) -> Select[Any]:
    rows = select(*(column for column in table.columns if column.name not in ("key", "series")))
    if table.name != "points":
        return rows
    return rows.add_columns(SERIES.c.run_id, SERIES.c.name).join(SERIES, SERIES.c.key == table.c.series)


A_TIME = datetime(2026, 11, 1, 12, tzinfo=UTC)


def fill(registry: Registry, run_id: str = "aaaaaaaaaaaa", *, weights: str = "d" * 64, ends: bool = True) -> str:
    """A sweep of two trials with all that can be recorded of a run, and what people add to it."""
    recorder = Recorder(registry, job_id=run_id)
    spec = {"kind": "sweep", "name": f"söme \u2028 {run_id}", "recipe": {"learning_rate": 0.1}, "tags": ["tried"]}
    recorder.start(spec, run_id * 5, metric="f1", storage_path=f"/srv/lab/runs/{run_id}", run_id=run_id)
    recorder.registry.datasets.record(
        run_id, DatasetResult("corpus", "words", "e" * 64, "/srv/lab/corpora/e", {"n": 1}, [])
    )
    measured = {"loss": 2.5, "nan": float("nan"), "inf": float("inf"), "tiny": 5e-324}
    recorder.record_events(run_id, [MetricEvent(step, "train", measured, 0.1) for step in (1, 2**40)])
    recorder.record_events(run_id, [CheckpointEvent(1, "/srv/lab/c", "c" * 64, 7)])
    recorder.registry.trials.record(run_id, [trial_result("k0", metrics={"f1": 0.5}), trial_result("k1", number=1)])
    recorder.record_model(run_id, model_result(weights))
    if ends:
        recorder.complete(run_id, RunOutcome(model_folder="/srv/lab/m"))
    note(registry, run_id, "looks 'good'\n👍")
    with registry._database.connection(writing=True) as connection:
        connection.execute(insert(OWN_MARKS).values(run_id=run_id, kind="flag", word="pinned", at=A_TIME))
    return run_id


def note(registry: Registry, run_id: str, text: str, when: datetime = A_TIME) -> None:
    """Write a note at a time."""
    with registry._database.connection(writing=True) as connection:
        values = {"run_id": run_id, "kind": "note", "word": text, "text": text, "author": "ann", "at": when}
        connection.execute(insert(OWN_MARKS).values(values))


def fill_every_table(registry: Registry) -> str:
    """The same, and a name for its model."""
    run_id = fill(registry)
    name = registry.models.of_run(run_id)[0].name
    with registry._database.connection(writing=True) as connection:
        connection.execute(insert(ALIASES).values(name=name, alias="production", version=1, set_at=A_TIME))
        connection.execute(insert(CODE_DIFFS).values(digest="c" * 64, diff="+ a = 1", recorded_at=A_TIME))
        connection.execute(update(ATTEMPTS).values(diff_digest="c" * 64, seconds=1.0, cpu_seconds=2.0, gpu_seconds=0.0))
        edge = {"child": "d" * 64, "parent": "e" * 64, "role": "teacher", "child_kind": "model", "child_name": name}
        edge |= {"parent_kind": "corpus", "parent_name": "words", "run_id": run_id}
        connection.execute(insert(LINEAGE).values(**edge, recorded_at=A_TIME))
    return run_id


def newer_migrations(folder: Path, statement: str) -> Path:
    """The migrations and one more, of revision 9999, that executes a statement."""
    shutil.copytree(MIGRATIONS, folder)
    (folder / "9999_newer.py").write_text(
        f"from alembic import op\n\nrevision = '9999'\ndown_revision = '{NEWEST_REVISION}'\n\n\n"
        f"def upgrade() -> None:\n    op.execute({statement!r})\n"
    )
    return folder
