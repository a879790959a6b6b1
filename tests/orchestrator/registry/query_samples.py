"""Runs to ask about, as plain values and in a registry, and the language's meaning written once more without SQL."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import update

from orchestrator.base.results import DatasetResult, MetricEvent, ModelResult
from orchestrator.registry import Registry
from orchestrator.registry.query_language import (
    Age,
    Combination,
    Comparison,
    Condition,
    Operand,
    Value,
)
from orchestrator.registry.tables import ALL_RUNS
from tests.orchestrator.registry.samples import model_result, new_run

WORDS = ["sst2", "cola", "it's", 'a "b"', "100%", "C:\\new", "Ünïcode", ""]
NUMBERS = [0.0, 0.5, -1.0, 5e-5, 1e9, 3.0]
HOSTS = ["node-a", "node-b"]
NOW = datetime.now(UTC)
"""When the registry is filled: ages of the sample runs are hours away from every age that is asked for."""
DAYS = [f"{NOW - timedelta(days=days):%Y-%m-%d}" for days in range(0, 14, 3)]
AGES = [Age(1.0, "h"), Age(90.0, "m"), Age(2.0, "d"), Age(1.0, "w"), Age(1.5, "w")]

# What the sample runs hold, by the name of the query language; None stands for what a run does not have.
SAMPLES: list[dict[str, Any]] = [
    {
        "task": WORDS[index % 8] if index % 5 else None,
        "name": WORDS[(index * 3) % 8],
        "seed": index % 4 if index % 3 else None,
        "seconds": index * 700.0 if index % 4 else None,
        "host": HOSTS[index % 2] if index % 3 else None,
        "created_at": NOW - timedelta(hours=12.25 * index + 2.5),
        "metrics.f1": NUMBERS[index % 6] if index % 4 else None,
        "metrics.test.f1": NUMBERS[(index + 2) % 6] if index % 2 else None,
        "metrics.train.loss": float(index),
        "params.learning_rate": NUMBERS[(index * 5) % 6] if index % 7 else None,
        "params.recipe.size": WORDS[(index + 1) % 8] if index % 6 else None,
        "params.cased": bool(index % 2) if index % 5 else None,
        "tag": ["odd", "drift:head"] if index % 2 else ["even", "tiny"] if index % 4 else [],
        "model": ["best", "best@1"] if index == 3 else ["best", "best@2", "other", "other@1"] if index == 5 else [],
        "dataset": ["corpus", "c" * 64] if index % 6 == 1 else [],
        # history of metrics.train.loss: (step, value)
        "history": [(5, 40.0 - index), (10, math.nan if index % 3 else 50.0), (20, 30.0 + index), (100, float(index))],
    }
    for index in range(24)
]


def fill(registry: Registry) -> None:
    """Record the sample runs; the id of each is its number."""
    for index, sample in enumerate(SAMPLES):
        recipe = {"learning_rate": sample["params.learning_rate"], "size": sample["params.recipe.size"]}
        run_id = new_run(
            registry,
            run_id=f"{index:02d}",
            name=sample["name"],
            task=sample["task"],
            seed=sample["seed"],
            spec={"recipe": recipe, "cased": sample["params.cased"]},
            tags=sample["tag"],
        )
        for split in ("validation", "test"):
            value = sample["metrics.f1" if split == "validation" else "metrics.test.f1"]
            if value is not None:
                registry.metrics.record(run_id, [MetricEvent(1, split, {"f1": value})])  # type: ignore[arg-type]
        for step, value in sample["history"]:
            registry.metrics.record(run_id, [MetricEvent(step, "train", {"loss": value})])
        if sample["dataset"]:
            data = DatasetResult("corpus", "corpus", "c" * 64, "storage/corpus", {"num_tokens": 1})
            registry.datasets.record(run_id, data)
    for name, index in (("best", 3), ("best", 5), ("other", 5)):
        model: ModelResult = model_result(digest=f"{index}" * 64)
        registry.models.register(name, model, run_id=f"{index:02d}")
    registry.models.register("best", model_result(digest="7" * 64))  # of no run
    with registry._database.connection(writing=True) as connection:
        for index, sample in enumerate(SAMPLES):
            values = {name: sample[name] for name in ("created_at", "seconds", "host")}
            connection.execute(update(ALL_RUNS).where(ALL_RUNS.c.id == f"{index:02d}").values(**values))


def found(registry: Registry, query: str) -> list[int]:
    """Numbers of the sample runs that a query selects; listed whole, as a page and counted they are the same."""
    ids = sorted(registry.run_table(query).values("id"))
    assert sorted(registry.run_table(query, limit=len(SAMPLES)).values("id")) == ids
    assert registry.num_runs(query) == len(ids)
    return [int(run_id) for run_id in ids]


def selected(condition: Any) -> list[int]:
    """Numbers of the sample runs of which a function is true."""
    return [index for index, run in enumerate(SAMPLES) if condition(run)]


def holds(tree: Condition, run: Mapping[str, Any]) -> bool:
    """The language's meaning in plain Python: whether a query is true of a run."""
    if isinstance(tree, Combination) and tree.word == "not":
        return not holds(tree.parts[0], run)
    if isinstance(tree, Combination):
        return (all if tree.word == "and" else any)(holds(part, run) for part in tree.parts)
    if tree.operator == "in":
        return any(holds(Comparison(tree.operand, "=", (value,)), run) for value in tree.values)
    if tree.operator == "!=":
        return not holds(Comparison(tree.operand, "=", tree.values), run)
    have = value_of(tree.operand, run)
    if str(tree.operand).startswith("tags.") and isinstance(tree.values[0], bool):
        return (have is not None) == tree.values[0]
    if tree.operator == "between":
        low, high = tree.values
        last = (
            moment(high) + timedelta(days=1, microseconds=-1) if isinstance(have, datetime) and is_day(high) else high
        )
        return compares(have, ">=", low, run) and compares(have, "<=", last, run)
    return compares(have, tree.operator, tree.values[0], run)


def value_of(operand: Operand, run: Mapping[str, Any]) -> Any:
    """Value of an operand in a run; a list where there may be several, None where there is none."""
    if operand.function:
        step = 2**63 if operand.step is None else operand.step
        points = [(at, value) for at, value in run["history"] if at <= step]
        values = [value for _, value in points if not math.isnan(value)]
        if operand.function in ("first", "last", "at"):
            return points[0 if operand.function == "first" else -1][1] if points else None
        return min(values) if operand.function in ("min", "best") else max(values)
    key = operand.name.removeprefix("tags.")
    if operand.name.startswith("tags."):
        tags = [tag for tag in run["tag"] if tag.partition(":")[0] == key]
        return tags[0].partition(":")[2] if tags else None
    return run[operand.name]


def compares(have: Any, operator: str, value: Any, run: Mapping[str, Any]) -> bool:
    if isinstance(value, Operand):
        value = value_of(value, run)
        if value is None:
            return False
    if value is None:
        return have is None or have == []
    if isinstance(value, float) and math.isnan(value):
        return isinstance(have, float) and math.isnan(have)
    if isinstance(have, list):
        return any(compares(one, operator, value, run) for one in have)
    if have is None:
        return False
    if isinstance(have, datetime):
        if operator == "=" and is_day(value):
            return moment(value) <= have < moment(value) + timedelta(days=1)
        value = moment(value)
    elif isinstance(value, Age):
        value = value.seconds
    if operator == "like":
        signs = re.findall(r"\\[%_\\]|.", str(value), re.DOTALL)
        pattern = "".join({"%": ".*", "_": "."}.get(sign, re.escape(sign[-1])) for sign in signs)
        return bool(re.fullmatch(pattern, have, re.DOTALL | re.IGNORECASE))
    results = {"=": have == value, "<": have < value, "<=": have <= value, ">": have > value, ">=": have >= value}
    return results[operator]


def is_day(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 10


def moment(value: Any) -> datetime:
    """The moment that a day or an age stands for."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, Age):
        return NOW - timedelta(seconds=value.seconds)
    time = datetime.fromisoformat(value)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def written(tree: Condition) -> str:
    """The tree as text, every part in parentheses."""
    if isinstance(tree, Combination) and tree.word == "not":
        return f"NOT ({written(tree.parts[0])})"
    if isinstance(tree, Combination):
        return f" {tree.word} ".join(f"({written(part)})" for part in tree.parts)
    values = [literal(value) for value in tree.values]
    if tree.operator == "in":
        return f"{tree.operand} in ({', '.join(values)})"
    if tree.operator == "between":
        return f"{tree.operand} between {values[0]} AND {values[1]}"
    if tree.values == (None,) and len(str(tree.operand)) % 2:
        return f"{tree.operand} is {'' if tree.operator == '=' else 'not '}null"
    return f"{tree.operand} {tree.operator} {values[0]}"


def literal(value: Value | Operand) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "TRUE", False: "false"}[value]
    if isinstance(value, float) and (math.isnan(value) or math.isinf(value)):
        return str(value)
    return repr(value) if isinstance(value, float) else str(value)
