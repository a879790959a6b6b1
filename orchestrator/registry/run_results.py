"""Measurements, data, training checkpoints and costs, as runs record them while they work.

Of a measurement there is a history by step, and the latest value. NaN is NULL: SQLite keeps no NaN.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict
from functools import lru_cache
from math import isnan, nan
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Integer, Text, bindparam, func, literal_column, select, update

from orchestrator.base.results import DatasetResult
from orchestrator.base.run_states import RunState
from orchestrator.registry.connections import Prepared, WriteTransaction
from orchestrator.registry.database import RegistryPart
from orchestrator.registry.dialects import key_of_run, replace_unstorable, select_runs, upsert, upsert_rows, utc_now
from orchestrator.registry.parameters import name_keys
from orchestrator.registry.query_language import METRIC_SPLITS, metric_name, series_order
from orchestrator.registry.records import AttemptCostRecord, CheckpointRecord, RecordTable, record_columns, record_table
from orchestrator.registry.tables import (
    ALL_RUNS,
    ATTEMPTS,
    CHECKPOINTS,
    DATASETS,
    OPEN_RUNS,
    OWN_DATASETS,
    POINTS,
    RUN_DATASETS,
    RUNS,
    SERIES,
)

if TYPE_CHECKING:
    from orchestrator.base.results import CheckpointEvent, MetricEvent, TokenizerResult

Curve = tuple[str, str, str]
"""Run, split and name of measurements."""
_FIRST_STEP, _LAST_STEP = 1 - 2**63, 2**63 - 1
"""Steps before and after all others."""


class RunMetrics(RegistryPart):
    """`registry.metrics`: writes and reads measurements. Natural key: (run, split, name, step)."""

    def record(self, run_id: str, events: "Iterable[MetricEvent]", *, final: bool = False) -> int:
        """Record measurements and return how many; the value of the highest step becomes the latest value.

        `final` ones are the run's result: they become the latest values whatever their step, until another result.
        """
        events = list(events)
        if not events:
            return 0
        with self._database.transaction() as transaction:
            number = write_metrics(transaction, [(run_id, events)], final=final)
            if final or transaction.new_keys:  # else this process has opened the run, whose end empties the keys
                transaction.run(open_statement(transaction.dialect), {"run_id": run_id})
        return number

    def latest(self, run_id: str) -> dict[str, float]:
        """Latest values of a run by their names in queries: `f1` is the validation split's, `test.f1` the test's."""
        columns = select(SERIES.c.name, SERIES.c.value).where(SERIES.c.run_id == run_id)
        values = sorted(self._database.rows(columns), key=lambda row: series_order(row.name))
        return {metric_name(name): nan if value is None else value for name, value in values}

    def last_step(self, run_id: str) -> int | None:
        """Highest step at which something was measured; None where nothing was."""
        step: int | None = self._database.scalar(select(func.max(SERIES.c.step)).where(SERIES.c.run_id == run_id))
        return step

    def history(self, run_id: str, name: str | None = None) -> RecordTable:
        """Measurements of a run, a record each, by split, name and step.

        `name` is a measurement of every split (`mlm_loss`) or of one (`train.mlm_loss`).
        """
        columns = SERIES.c.name, POINTS.c.step, POINTS.c.epoch, POINTS.c.value
        statement = select(*columns).join(SERIES, SERIES.c.key == POINTS.c.series).where(SERIES.c.run_id == run_id)
        if name is not None:
            is_of_one = name.partition(".")[0] in METRIC_SPLITS and "." in name
            series = [name] if is_of_one else [f"{split}.{name}" for split in METRIC_SPLITS]
            statement = statement.where(SERIES.c.name.in_(series))
        points = sorted(self._database.rows(statement), key=lambda point: (series_order(point.name), point.step))
        rows = [(*one.split(".", 1), *place, nan if value is None else value) for one, *place, value in points]
        names = ("split", "name", "step", "epoch", "value")
        return record_table(names, rows, step="int64", epoch="float64", value="float64")


def write_metrics(
    transaction: WriteTransaction, measured: "Iterable[tuple[str, Iterable[MetricEvent]]]", *, final: bool
) -> int:
    """Write measurements of runs into their histories, bring the latest values up to date, and return how many.

    Of `final` ones, which are results, the last one counts; of others the one of the highest step.
    """
    curves: dict[Curve, tuple[list[int], list[float], list[float]]] = {}
    for run_id, events in measured:
        for step, split, measurements, epoch in events:
            at_step, at_epoch = int(step), nan if epoch is None else float(epoch)  # plain: a server takes them as text
            for name, value in measurements.items():
                key = run_id, split, name
                if key not in curves:
                    curves[key] = [], [], []
                steps, values, epochs = curves[key]
                steps.append(at_step)
                values.append(float(value))
                epochs.append(at_epoch)
    points: tuple[list[Any], ...] = [], [], [], []  # series, steps, values, epochs
    latest = []
    for series, curve in zip(_series_keys(transaction, curves), curves.values(), strict=True):
        steps, values, epochs = curve
        its_points: tuple[list[Any], ...] = [series] * len(steps), steps, values, epochs
        for column, more in zip(points, its_points, strict=True):
            column += more
        newest = -1 if final else -1 - steps[::-1].index(max(steps))
        row = {"series": series, "step": steps[newest], "value": None if isnan(values[newest]) else values[newest]}
        latest.append(row | {"is_final": int(final), "last": _LAST_STEP if final else steps[newest]})
    # A result has no epoch of its own; the point that it confirms keeps the epoch it was measured at.
    transaction.upsert(POINTS, points, ("series", "step"), ("value",) if final else ("value", "epoch"))
    transaction.run_many(_latest_statement(transaction.dialect), latest)
    return len(points[0])


def _series_keys(transaction: WriteTransaction, curves: Collection[Curve]) -> list[int]:
    """Keys of the series of curves, which are made where they are not there yet."""
    keys, new = transaction.keys, transaction.new_keys
    if missing := [curve for curve in curves if curve not in keys and curve not in new]:
        texts = [f"{split}.{replace_unstorable(name)}" for _, split, name in missing]
        names, statement = name_keys(transaction, texts), _series_statement(transaction.dialect)
        for curve, text in zip(missing, texts, strict=True):
            ((new[curve],),) = transaction.read(statement, {"run": curve[0], "named": names[text]})
    return [keys.get(curve) or new[curve] for curve in curves]


@lru_cache
def _series_statement(dialect: str) -> Prepared:
    """Find or make a series; a new one has no value before its points are written."""
    found = upsert(dialect, SERIES, ("run_id", "name"), ("run_id",)).values(
        run_id=key_of_run(bindparam("run", type_=Text)),
        name=bindparam("named", type_=Integer),
        step=literal_column(str(_FIRST_STEP)),
        final=literal_column("0"),
    )
    return Prepared(found.returning(SERIES.c.key), dialect, ["run", "named"])


@lru_cache
def _latest_statement(dialect: str) -> Prepared:
    """Bring a series up to date, unless it has a result, or a later step: its final and its step have limits."""
    series, is_final = (bindparam(name, type_=Integer) for name in ("series", "is_final"))
    last = bindparam("last", type_=BigInteger)
    changed = update(SERIES).where(SERIES.c.key == series, SERIES.c.final <= is_final, SERIES.c.step <= last)
    values = {name: bindparam(name, type_=SERIES.c[name].type) for name in ("step", "value")}
    names = (*values, "series", "is_final", "last")
    return Prepared(changed.values(values | {"final": is_final}), dialect, names)


@lru_cache
def open_statement(dialect: str) -> Prepared:
    """Open a run again whose trials or scores change after its end (`roll_up.py`)."""
    run = select(ALL_RUNS.c.key).where(ALL_RUNS.c.id == bindparam("run_id", type_=Text))
    run = run.where(ALL_RUNS.c.state != RunState.RUNNING)  # which is open anyway
    return Prepared(upsert(dialect, OPEN_RUNS, ("run_id",)).from_select(["run_id"], run), dialect, ["run_id"])


class RunDatasets(RegistryPart):
    """`registry.datasets`: writes and reads data and which runs used it. Natural key: the data's fingerprint."""

    def record(self, run_id: str, result: "DatasetResult") -> None:
        """Record data and that this run made or used it."""
        row = asdict(result)
        del row["reused"]
        with self._database.connection(writing=True) as connection:
            upsert_rows(connection, DATASETS, [row], ("path", "counts", "files", "tokenizer_digest"))
            upsert_rows(connection, OWN_DATASETS, [{"run_id": run_id, "fingerprint": result.fingerprint}])

    def record_tokenizer(self, run_id: str, result: "TokenizerResult") -> None:
        """Record a tokenizer and that this run trained it."""
        counts = {"vocab_size": result.vocab_size}
        self.record(run_id, DatasetResult("tokenizer", "tokenizer", result.fingerprint, result.folder, counts))

    def tokenizer_at(self, path: str) -> str | None:
        """Fingerprint of the tokenizer that was last trained into a folder; None where none was."""
        statement = select(DATASETS.c.fingerprint).where(DATASETS.c.kind == "tokenizer", DATASETS.c.path == path)
        fingerprint: str | None = self._database.scalar(statement.order_by(DATASETS.c.recorded_at.desc()).limit(1))
        return fingerprint

    def table(self, run_id: str) -> RecordTable:
        """Data that a run made or used, of a trial those of its sweep, a record each."""
        names = ("name", "kind", "fingerprint", "path", "counts", "files", "recorded_at")
        data = select(*(DATASETS.c[name] for name in names))
        used = data.join(RUN_DATASETS, RUN_DATASETS.c.fingerprint == DATASETS.c.fingerprint)
        its = used.where(RUN_DATASETS.c.run_id == run_id).order_by(DATASETS.c.kind, DATASETS.c.name)
        return record_table(names, self._database.rows(its))


class RunCheckpoints(RegistryPart):
    """`registry.checkpoints`: writes and reads the checkpoints of runs. Natural key: (run, step)."""

    def record(self, run_id: str, events: "Iterable[CheckpointEvent]") -> None:
        """Record checkpoints that are complete on the storage."""
        rows = [{"run_id": run_id, **asdict(event)} for event in events]
        if rows:
            with self._database.connection(writing=True) as connection:
                upsert_rows(connection, CHECKPOINTS, rows, ("path", "digest", "num_bytes"))

    def of_run(self, run_id: str) -> list[CheckpointRecord]:
        """Checkpoints of a run, oldest first; some of them may have been deleted since."""
        found = select(*record_columns(CheckpointRecord, CHECKPOINTS)).where(CHECKPOINTS.c.run_id == run_id)
        return [CheckpointRecord(*row) for row in self._database.rows(found.order_by(CHECKPOINTS.c.step))]


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
        theirs = columns.where(ATTEMPTS.c.run_id.in_(select_runs(run_ids)))
        ordered = theirs.order_by(ATTEMPTS.c.run_id, ATTEMPTS.c.number)
        return [AttemptCostRecord(*row) for row in self._database.rows(ordered)]

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
