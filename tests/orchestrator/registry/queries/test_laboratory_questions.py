"""Questions and their runs. Alone: pytest tests/orchestrator/registry/queries/test_laboratory_questions.py"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from orchestrator.registry import Registry
from orchestrator.registry.tables import StoredRun
from orchestrator.results import DatasetResult, MetricEvent
from orchestrator.run_states import RunState
from tests.orchestrator.registry.samples import new_run, trial_result

TRIALS = ("spring #0", "spring #1", "spring #2", "spring #3")

# Columns of each run, by its name; hours are those since it was made.
RUNS: dict[str, dict[str, Any]] = {
    "words": {"kind": "corpus", "hours": 220, "seconds": 1800.0, "host": "node-a", "state": "COMPLETED"},
    "base": {"kind": "pretrain", "hours": 200, "seconds": 26_000.0, "host": "node-b"},
    "base again": {"kind": "pretrain", "hours": 50, "seconds": 300.0, "host": "node-a", "state": "FAILED"},
    "vanished": {"kind": "pretrain", "hours": 75, "host": "node-c", "state": "RUNNING"},
    "spring": {"kind": "sweep", "task": "sst2", "metric": "accuracy", "hours": 20, "seconds": 5400.0},
    "summer": {"kind": "sweep", "task": "mrpc", "metric": "f1", "hours": 2, "state": "RUNNING"},
    "student": {"kind": "distill", "task": "sst2", "metric": "accuracy", "hours": 10, "seconds": 900.0},
    "judged": {"kind": "evaluate", "task": "sst2", "metric": "accuracy", "hours": 9, "seconds": 40.0},
    "Größe 100% it's": {"kind": "evaluate", "task": "mrpc", "metric": "f1", "hours": 1, "seconds": 30.0},
}
SPECS: dict[str, dict[str, Any]] = {"spring": {"recipe": {"size": "tiny", "init_from": "base"}}}
TAGS = {"base": ["paper", "queue:night"], "spring": ["paper"], "summer": ["broken", "queue:day"]}
SCORES: dict[str, dict[str, dict[str, float]]] = {
    "spring": {"validation": {"accuracy": 0.91}, "test": {"accuracy": 0.89}},
    "summer": {"validation": {"f1": 0.84, "accuracy": 0.79}},
    "student": {"validation": {"accuracy": 0.88, "agreement": 0.95}},
    "judged": {"test": {"accuracy": 0.87}},
    "Größe 100% it's": {"validation": {"f1": 0.84, "accuracy": 0.84}},
}


def fill(registry: Registry) -> None:
    """Record the runs above, and four trials of the sweep `spring`: two learning rates with two seeds each."""
    ids, now = {}, datetime.now(UTC)
    for name, columns in RUNS.items():
        given = {field: columns.get(field) for field in ("kind", "task", "metric")}
        ids[name] = new_run(registry, name=name, spec=SPECS.get(name, {}), tags=TAGS.get(name, []), **given)
        events = [MetricEvent(7, split, scores) for split, scores in SCORES.get(name, {}).items()]
        registry.metrics.record(ids[name], events)
    registry.trials.record(
        ids["spring"],
        [
            trial_result(
                f"k{number}",
                number=number,
                seed=number % 2,
                parameters={"learning_rate": rate},
                metrics={} if score is None else {"accuracy": score},
                state=RunState.FAILED if score is None else RunState.COMPLETED,
            )
            for number, (rate, score) in enumerate([(2e-5, 0.91), (2e-5, 0.90), (1e-3, 0.52), (1e-3, None)])
        ],
    )
    for name in ("words", "base"):
        registry.datasets.record(ids[name], DatasetResult("words", "corpus", "c" * 64, "storage/words", {}))
    registry.datasets.record(ids["spring"], DatasetResult("sst2", "task", "5" * 64, "storage/sst2", {}))
    with registry._database.session(writing=True) as session:
        for name, columns in RUNS.items():
            began = now - timedelta(hours=columns["hours"])
            values = {field: columns.get(field) for field in ("seconds", "host")}
            values |= {"state": columns.get("state", "COMPLETED"), "created_at": began, "heartbeat_at": began}
            values |= {"error": "CUDA out of memory. Tried 2 GiB", "attempt": 3} if name == "base again" else {}
            values |= {"heartbeat_at": now + timedelta(hours=1)} if name == "summer" else {}
            session.execute(update(StoredRun).where(StoredRun.id == ids[name]).values(**values))


@pytest.fixture(scope="module")
def laboratory(module_location: str) -> Iterator[Registry]:
    with Registry(module_location) as registry:
        fill(registry)
        yield registry


QUESTIONS: list[tuple[str, str, tuple[str, ...]]] = [
    # what won
    ("which reach .9 at least", "task = 'sst2' and score >= .9", ("spring", "spring #0", "spring #1")),
    ("which trials collapsed or have no score", "kind = 'trial' and not score > 0.6", TRIALS[2:]),
    ("which have no score at all", "kind = 'trial' and score is null", ("spring #3",)),
    ("the same in full", "params.recipe.learning_rate = 0.001", TRIALS[2:]),
    ("which score lies between", "score between 0.85 and 0.9", ("spring #1", "student")),
    ("by what the ranking score is", "metric = 'f1'", ("Größe 100% it's", "summer")),
    # was it luck, and where
    ("whose test score lies below validation", "metrics.test.accuracy < metrics.accuracy", ("spring",)),
    ("scored on test alone", "metrics.test.accuracy > 0 and metrics.accuracy is null", ("judged",)),
    ("by the beginning of its digest", "dataset like 'ccc%'", ("base", "words")),
    ("what used data of a task", "dataset = 'sst2'", ("spring", *TRIALS)),
    ("what began from the pretrained one", "params.init_from = 'base'", ("spring", *TRIALS)),
    ("what is not of these days", "created_at not between 4d and 0s", ("base", "words")),
    ("what took more than an hour", "seconds > 1h", ("base", "spring")),
    # what went wrong
    ("what failed", "state = 'failed'", ("base again", "spring #3")),
    ("what ran out of memory", "error like '%out of memory%'", ("base again",)),
    ("what needed further attempts", "attempt > 1", ("base again",)),
    ("what vanished", "state = 'LOST'", ("vanished",)),
    ("what is at work", "state in ('running', 'pending')", ("summer",)),
    # tags and names
    ("the trials of what is in the paper", "tag = 'paper' and kind = 'trial'", TRIALS),
    ("which queue", "tags.queue = 'night'", ("base",)),
    ("any queue", "tags.queue", ("base", "summer")),
    ("no queue, of sweeps", "not tags.queue and kind = 'sweep'", ("spring",)),
    ("by a name with a quote", "name = 'Größe 100% it''s'", ("Größe 100% it's",)),
    ("the same in other quotes", 'name = "Größe 100% it\'s"', ("Größe 100% it's",)),
    ("by the first trials", "kind = 'trial' and number < 2", TRIALS[:2]),
    # how conditions join
    ("and before or", "kind = 'corpus' or kind = 'pretrain' and state = 'failed'", ("base again", "words")),
    ("parentheses before both", "(kind = 'corpus' or kind = 'pretrain') and state = 'failed'", ("base again",)),
    ("words in capitals", "kind = 'sweep' AND NOT state = 'completed'", ("summer",)),
    ("over several lines", "kind = 'sweep'\n  and task = 'mrpc'", ("summer",)),
    ("nothing can be so", "score > 0.99", ()),
]


@pytest.mark.parametrize(("query", "names"), [pytest.param(*rest, id=question) for question, *rest in QUESTIONS])
@pytest.mark.heavy
def test_a_question_is_answered_by_just_its_runs(laboratory: Registry, query: str, names: tuple[str, ...]) -> None:
    assert sorted(laboratory.run_table(query).values("name")) == sorted(names)
    assert laboratory.num_runs(query) == len(names)
