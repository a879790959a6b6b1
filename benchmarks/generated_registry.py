"""A big registry for benchmarks and tests: sweeps with trials, parameters, scores, curves and models, made by bulk SQL.

    python -m benchmarks.generated_registry [LOCATION] [--sweeps 5000]    # a temporary file when left out

A few sweeps are recorded as any run is; all others are copies of these, which the database makes itself, with ids,
times, scores and learning rates of their own. So 100,000 runs take a minute or two, and have every column that a
recorded run has.
"""

import argparse
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Double,
    Integer,
    MetaData,
    Table,
    Text,
    and_,
    case,
    cast,
    func,
    insert,
    literal,
    null,
    select,
)

from orchestrator.base.results import MetricEvent, ModelResult, TrialEvents, TrialResult, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.registry.dialects import UtcTime, id_of_run, key_of_run
from orchestrator.registry.roll_up import check_roll_up
from orchestrator.registry.tables import METADATA, OWN_MARKS

NUM_TRIALS = 19
TASKS = (("mrpc", "f1"), ("sst2", "accuracy"), ("cola", "matthews_correlation"), ("rte", "accuracy"))
SIZES = ("tiny", "mini", "small", "base")
NUM_PATTERNS = 8
"""Number of sweeps that are recorded one by one."""
RARE_TAG, NUM_TAGGED = "paper", 20
_NEWEST = datetime(2026, 11, 1, tzinfo=UTC)
_ID_DIGITS = 6
"""Digits of an id that say which copy of a sweep a run belongs to."""
_COPIES = Table(
    "generated_copies",
    MetaData(),
    Column("number", Integer, primary_key=True),
    Column("pattern", Text),
    Column("prefix", Text),
    Column("made_at", UtcTime),
    prefixes=["TEMPORARY"],
)


def fill(registry: Registry, num_sweeps: int) -> list[str]:
    """Fill an empty registry with sweeps of NUM_TRIALS trials each, and return the ids of those recorded one by one."""
    registry.upgrade()
    patterns = [record_sweep(registry, number) for number in range(min(NUM_PATTERNS, num_sweeps))]
    rows: list[dict[str, Any]] = [
        {
            "number": number,
            "pattern": patterns[number % len(patterns)],
            "prefix": f"{number * 2_654_435_761 % 16**_ID_DIGITS:0{_ID_DIGITS}x}",
            "made_at": _NEWEST - timedelta(minutes=5 * number),
        }
        for number in range(len(patterns), num_sweeps)
    ]
    with registry._database.connection(writing=True) as connection:
        _COPIES.create(connection)
        if rows:
            connection.execute(insert(_COPIES), rows)
        for table in METADATA.sorted_tables:
            if table.name == "all_models":
                _copy_models(connection, table)
            elif table.name == "all_runs":
                _copy_runs(connection, table)
            elif table.name == "points":
                _copy_points(connection, table)
            elif "run_id" in table.columns and table.name != "lineage":  # whose edges are of digests, not of runs
                _copy_rows(connection, table)
        tagged = select(_run().c.key).where(_run().c.parent_id.is_not(None)).order_by(_run().c.id).limit(NUM_TAGGED)
        tags = tagged.add_columns(literal("tag"), literal(RARE_TAG))
        connection.execute(insert(OWN_MARKS).from_select(["run_id", "kind", "word"], tags))
        _COPIES.drop(connection)
        check_roll_up(connection, mend=True)
        if connection.dialect.name == "postgresql":  # whose server does so by itself, some minutes later
            connection.exec_driver_sql("ANALYZE")
    return patterns


def record_sweep(registry: Registry, number: int) -> str:
    """Record one sweep as its driver does: its trials, their curves and results, its model."""
    task, metric = TASKS[number % len(TASKS)]
    recipe = {
        "size": SIZES[number % len(SIZES)],
        "init_from": "reviews/pretraining",
        "learning_rate": 2e-5,
        "epochs": 3.0,
        "batch_size": 32,
        "warmup_ratio": 0.1,
        "weight_decay": 0.01,
        "max_seq_length": 128,
        "dropout": 0.1,
        "precision": "bf16",
        "layerwise_decay": None,
        "frozen_layers": 0,
    }
    spec = {"kind": "sweep", "task": {"id": task}, "recipe": recipe, "seeds": [0, 1, 2]}
    sweep = registry.lifecycle.create(
        kind="sweep",
        name=f"{task}-{number}",
        fingerprint=f"{number:064x}",
        spec=spec,
        task=task,
        metric=metric,
        run_id=f"{number:012x}",  # not a drawn one, whose digits a copy might get
    )
    registry.lifecycle.start_attempt(sweep, host="bench", pid=1)
    registry.trials.set_data(sweep, {"train": f"{number:016x}", "validation": "5" * 16})
    for trial in range(NUM_TRIALS):
        parameters = {"learning_rate": 1e-5 * (1 + trial // 3), "epochs": 2.0 + trial % 2}
        seed, score = trial % 3, 0.5 + 0.02 * trial
        curve = [MetricEvent(step, "train", {"loss": 1 / (step + 1)}, step / 10) for step in range(12)]
        evaluations = [
            MetricEvent(4 * step, "validation", {metric: score, "loss": 0.4, "gap": 0.1}) for step in range(3)
        ]
        scores = {metric: score, "loss": 0.4, f"baseline.{metric}": 0.5, "num_examples": 408.0}
        registry.trials.record(
            sweep,
            [
                TrialStart(f"k{trial}", trial, parameters, seed),
                TrialEvents(f"k{trial}", [*curve, *evaluations]),
                TrialResult(f"k{trial}", trial, parameters, RunState.COMPLETED, seed, 8, scores, seconds=60.0),
            ],
        )
    registry.metrics.record(sweep, [MetricEvent(8, "validation", {metric: 0.9})], final=True)
    registry.models.register(f"bench-{number}", ModelResult(f"models/{number}", f"{number:064x}", 1, "ner"), sweep)
    registry.lifecycle.finish(sweep, RunState.COMPLETED, seconds=1000.0)
    return sweep


def _run() -> Table:
    return METADATA.tables["all_runs"]


def _renamed(column: Any) -> Any:
    """Id of a run's copy: the digits of the copy in place of its first ones; none where there is none."""
    return _COPIES.c.prefix.concat(func.substr(column, _ID_DIGITS + 1))


def _copy_of(key: Any) -> Any:
    """Key of a run's copy."""
    return key_of_run(_renamed(id_of_run(key)))


def _copy_runs(connection: Connection, runs: Table) -> None:
    of_pattern = (runs.c.parent_id == key_of_run(_COPIES.c.pattern), runs.c.id == _COPIES.c.pattern)
    for condition in reversed(of_pattern):  # the sweeps first, which the trials name
        given: dict[str, Any] = {
            name: case((runs.c[name].is_(None), null()), else_=_COPIES.c.made_at)
            for name in ("created_at", "started_at", "finished_at", "heartbeat_at")
        }
        given |= {name: _renamed(runs.c[name]) for name in ("id", "group_key")}
        given["parent_id"] = _copy_of(runs.c.parent_id)
        joined = select().join_from(runs, _COPIES, condition)
        _insert(connection, runs, given, joined.order_by(_COPIES.c.made_at, runs.c.number))  # as they were recorded


def _copy_rows(connection: Connection, table: Table) -> None:
    """Copy the rows of runs, scores and learning rates moved by a little, a different amount for each run."""
    runs, columns = _run(), table.columns
    given: dict[str, Any] = {"run_id": _copy_of(columns["run_id"])}
    if "value" in columns:
        given["value"] = _moved(columns["value"])
    if "path" in columns and "number" in columns:
        is_rate = columns["path"] == "recipe.learning_rate"
        rate = columns["number"] * (1.0 + cast(_spread(), Double) / 1_000.0)
        given["number"] = case((is_rate, rate), else_=columns["number"])
        given["text"] = case((is_rate, cast(rate, Text)), else_=columns["text"])
    joined = select().join_from(table, runs, runs.c.key == columns["run_id"])
    joined = joined.join(_COPIES, func.coalesce(runs.c.parent_id, runs.c.key) == key_of_run(_COPIES.c.pattern))
    _insert(connection, table, given, joined.order_by(_COPIES.c.prefix))


def _copy_points(connection: Connection, points: Table) -> None:
    """Copy the histories of series, which are copied already, moved as their latest values are."""
    runs, series = _run(), METADATA.tables["series"]
    copies = series.alias()
    is_copy = and_(copies.c.run_id == _copy_of(series.c.run_id), copies.c.name == series.c.name)
    joined = select().join_from(points, series, series.c.key == points.c.series)
    joined = joined.join(runs, runs.c.key == series.c.run_id)
    joined = joined.join(_COPIES, func.coalesce(runs.c.parent_id, runs.c.key) == key_of_run(_COPIES.c.pattern))
    given = {"series": copies.c.key, "value": _moved(points.c.value)}
    _insert(connection, points, given, joined.join(copies, is_copy).order_by(copies.c.key, points.c.step))


def _spread() -> Any:
    """A number from 0 to 999 for each run."""
    return (_COPIES.c.number * 7_919 + func.coalesce(_run().c.number, 0) * 104_729) % 1_000


def _moved(value: Any) -> Any:
    return value + cast(_spread() - 500, Double) / 10_000.0


def _copy_models(connection: Connection, models: Table) -> None:
    given = {
        "name": literal("bench-").concat(cast(_COPIES.c.number, Text)),
        "run_id": _copy_of(models.c.run_id),
        "digest": _COPIES.c.prefix.concat(func.substr(models.c.digest, _ID_DIGITS + 1)),
        "created_at": _COPIES.c.made_at,
    }
    _insert(
        connection, models, given, select().join_from(models, _COPIES, models.c.run_id == key_of_run(_COPIES.c.pattern))
    )


def _insert(connection: Connection, table: Table, given: dict[str, Any], joined: Any) -> None:
    copied = [column for column in table.columns if column.name != "key"]
    values = joined.with_only_columns(*(given.get(column.name, column) for column in copied))
    connection.execute(insert(table).from_select(copied, values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("location", nargs="?")
    parser.add_argument("--sweeps", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        location = options.location or str(Path(folder) / "registry.sqlite")
        begun = time.process_time()
        with Registry(location) as registry:
            fill(registry, options.sweeps)
            with registry._database.connection(writing=False) as connection:
                for name, table in METADATA.tables.items():
                    print(f"{connection.scalar(select(func.count()).select_from(table)):>12,} {name}")
        print(f"{time.process_time() - begun:.1f} s of CPU")


if __name__ == "__main__":
    main()
