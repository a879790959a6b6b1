"""Measurements of runs: a history by step, and the latest value of each. NaN is NULL: SQLite keeps no NaN."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, Integer, Text, bindparam, func, literal_column, select, update

from orchestrator.errors import InputError
from orchestrator.registry.connections import Prepared, WriteTransaction
from orchestrator.registry.database import RegistryPart
from orchestrator.registry.dialects import key_of_run, replace_unstorable, upsert
from orchestrator.registry.parameters import name_keys
from orchestrator.registry.query_tree import METRIC_SPLITS
from orchestrator.registry.records import RecordTable, record_table
from orchestrator.registry.run_records import metric_name
from orchestrator.registry.tables import ALL_RUNS, OPEN_RUNS, POINTS, SERIES
from orchestrator.results import MetricEvent
from orchestrator.run_states import RunState

Curves = dict[tuple[str, str, str], tuple[list[int], list[float], list[float]]]
"""Steps, values and epochs of points by their run, split and name; an epoch that is not known is NaN."""
_FIRST_STEP, _LAST_STEP = 1 - 2**63, 2**63 - 1
"""Steps before and after all others."""


class RunMetrics(RegistryPart):
    """`registry.metrics`: writes and reads measurements. Natural key: (run, split, name, step)."""

    def record(self, run_id: str, events: Iterable[MetricEvent], *, final: bool = False) -> int:
        """Record measurements and return how many; the value of the highest step becomes the latest value.

        Args:
            final: whether these belong to the run's result: they become the latest values whatever their step, and
                stay so until another result is recorded.
        """
        curves = metric_curves([(run_id, events)])
        if curves:
            with self._database.transaction() as transaction:
                if final or not curves.keys() <= transaction.keys.keys():  # which an end of the run here empties
                    transaction.run(open_statement(transaction.dialect), {"run_id": run_id})
                write_metrics(transaction, curves, final=final)
        return sum(len(steps) for steps, _, _ in curves.values())

    def latest(self, run_id: str) -> dict[str, float]:
        """Latest values of a run by their names in queries: `f1` is the validation split's, `test.f1` the test's."""
        columns = select(SERIES.c.name, SERIES.c.value).where(SERIES.c.run_id == run_id)
        with self._database.connection(writing=False) as connection:
            values = dict(connection.execute(columns).all())
        return {metric_name(name): _measured(values[name]) for name in _in_order(values)}

    def last_step(self, run_id: str) -> int | None:
        """Highest step at which something was measured; None where nothing was."""
        with self._database.connection(writing=False) as connection:
            step: int | None = connection.scalar(select(func.max(SERIES.c.step)).where(SERIES.c.run_id == run_id))
            return step

    def history(self, run_id: str, name: str | None = None) -> RecordTable:
        """Measurements of a run, a record each, by split, name and step.

        Args:
            name: one measurement of every split (`mlm_loss`) or of one split (`train.mlm_loss`); all when None.
        """
        points = select(SERIES.c.name, POINTS.c.step, POINTS.c.epoch, POINTS.c.value)
        statement = points.join(SERIES, SERIES.c.key == POINTS.c.series).where(SERIES.c.run_id == run_id)
        if name is not None:
            is_of_one = name.partition(".")[0] in METRIC_SPLITS and "." in name
            names = [name] if is_of_one else [f"{split}.{name}" for split in METRIC_SPLITS]
            statement = statement.where(SERIES.c.name.in_(names))
        found: dict[str, list[Any]] = defaultdict(list)
        with self._database.connection(writing=False) as connection:
            for series, *point in connection.execute(statement.order_by(POINTS.c.series, POINTS.c.step)):
                found[series].append(point)
        rows = [
            (*series.split(".", 1), step, epoch, _measured(value))
            for series in _in_order(found)
            for step, epoch, value in found[series]
        ]
        columns = ("split", "name", "step", "epoch", "value")
        return record_table(columns, rows, step="int64", epoch="float64", value="float64")


def _in_order(series: Iterable[str]) -> list[str]:
    """Names of series: those of the validation first, then of the training, then of a test."""
    return sorted(sorted(series), key=lambda name: name.partition(".")[0], reverse=True)


def _measured(value: float | None) -> float:
    return math.nan if value is None else value


def metric_curves(measured: Iterable[tuple[str, Iterable[MetricEvent]]]) -> Curves:
    """Measurements of runs' events, by curve. Raises: InputError."""
    curves: Curves = {}
    try:
        for run_id, events in measured:
            for event in events:
                step, split = int(event.step), event.split  # plain numbers: a server takes them as text
                epoch = math.nan if event.epoch is None else float(event.epoch)
                for name, value in event.values.items():
                    key = (run_id, split, name)
                    if key not in curves:
                        curves[key] = ([], [], [])
                    steps, values, epochs = curves[key]
                    steps.append(step)
                    values.append(float(value))
                    epochs.append(epoch)
    except OverflowError:
        raise InputError("A measurement is larger than any number that the registry holds, 1.8e308.") from None
    return curves


def write_metrics(transaction: WriteTransaction, curves: Curves, *, final: bool) -> None:
    """Write points of any runs into their histories and bring the latest values up to date.

    Args:
        final: whether they are results, of which the last one counts, rather than measurements, of which the one of
            the highest step does.
    """
    if not curves:
        return
    points: dict[str, list[Any]] = {"series": [], "step": [], "value": [], "epoch": []}
    latest = []
    for series, (steps, values, epochs) in zip(_series_keys(transaction, curves), curves.values(), strict=True):
        number = len(steps)
        points["series"] += [series] * number
        points["step"] += steps
        points["value"] += values
        points["epoch"] += epochs
        newest = number - 1 if final or number == 1 else number - 1 - steps[::-1].index(max(steps))
        value, limit = values[newest], _LAST_STEP if final else steps[newest]
        stored = None if math.isnan(value) else value
        latest.append({"series": series, "step": steps[newest], "value": stored, "is_final": int(final), "last": limit})
    # A result has no epoch of its own; the point that it confirms keeps the epoch it was measured at.
    transaction.upsert(POINTS, points, ["series", "step"], ["value"] if final else ["value", "epoch"])
    transaction.run_many(_latest_statement(transaction.dialect), latest)


def _series_keys(transaction: WriteTransaction, curves: Curves) -> list[int]:
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
