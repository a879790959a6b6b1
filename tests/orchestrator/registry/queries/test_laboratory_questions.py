"""Questions that a laboratory asks its registry, as texts of the query language, each with the runs that answer it.

pytest tests/orchestrator/registry/queries/test_laboratory_questions.py
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from orchestrator.registry import Registry
from orchestrator.registry.tables import RunRow
from orchestrator.results import DatasetResult, MetricEvent
from orchestrator.run_states import RunState
from tests.orchestrator.registry.samples import model_result, new_run, trial_result

COMMIT = "0.1.0+g1f2e3d4c5b6a"
TRIALS = ("spring #0", "spring #1", "spring #2", "spring #3")

# Columns of each run, by its name; hours are those since it was made.
RUNS: dict[str, dict[str, Any]] = {
    "words": {"kind": "corpus", "hours": 220, "seconds": 1800.0, "host": "node-a", "state": "COMPLETED"},
    "base": {"kind": "pretrain", "hours": 200, "seconds": 26_000.0, "host": "node-b", "code_version": COMMIT},
    "base again": {"kind": "pretrain", "hours": 50, "seconds": 300.0, "host": "node-a", "state": "FAILED"},
    "vanished": {"kind": "pretrain", "hours": 75, "host": "node-c", "state": "RUNNING"},
    "spring": {"kind": "sweep", "task": "sst2", "metric": "accuracy", "hours": 20, "seconds": 5400.0},
    "summer": {"kind": "sweep", "task": "mrpc", "metric": "f1", "hours": 2, "state": "RUNNING"},
    "student": {"kind": "distill", "task": "sst2", "metric": "accuracy", "hours": 10, "seconds": 900.0},
    "judged": {"kind": "evaluate", "task": "sst2", "metric": "accuracy", "hours": 9, "seconds": 40.0},
    "Größe 100% it's": {"kind": "evaluate", "task": "mrpc", "metric": "f1", "hours": 1, "seconds": 30.0},
}
SPECS: dict[str, dict[str, Any]] = {
    "base": {"recipe": {"size": "small", "steps": 1000}, "resume": False},
    "base again": {"recipe": {"size": "base", "steps": 4000}, "resume": True},
    "spring": {"task": {"id": "sst2", "max_train_examples": 100}, "recipe": {"size": "tiny", "init_from": "base"}},
    "summer": {"task": {"id": "mrpc"}, "recipe": {"size": "small", "init_from": "random"}},
    "student": {"teacher": "spring@1", "recipe": {"size": "tiny"}},
    "judged": {"model": "spring@1"},
}
TAGS = {"base": ["paper", "queue:night"], "spring": ["paper"], "summer": ["broken", "queue:day"]}
SCORES: dict[str, dict[str, dict[str, float]]] = {
    "spring": {"validation": {"accuracy": 0.91}, "test": {"accuracy": 0.89}},
    "summer": {"validation": {"f1": 0.84, "accuracy": 0.79}},
    "student": {"validation": {"accuracy": 0.88, "agreement": 0.95}},
    "judged": {"test": {"accuracy": 0.87}},
    "Größe 100% it's": {"validation": {"f1": 0.84, "accuracy": 0.84}},
}
LOSSES = {
    "base": {1: 9.0, 500: 3.0, 1000: 3.5},
    "base again": {1: 9.5, 500: float("nan")},
    "vanished": {1: 9.1, 40: 8.0},
}


def fill(registry: Registry) -> None:
    """Record the runs above, and four trials of the sweep `spring`: two learning rates with two seeds each."""
    ids, now = {}, datetime.now(UTC)
    for name, columns in RUNS.items():
        given = {field: columns.get(field) for field in ("kind", "task", "metric")}
        ids[name] = new_run(registry, name=name, spec=SPECS.get(name, {}), tags=TAGS.get(name, []), **given)
        events = [MetricEvent(7, split, scores) for split, scores in SCORES.get(name, {}).items()]
        events += [MetricEvent(step, "train", {"loss": loss}) for step, loss in LOSSES.get(name, {}).items()]
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
    for name, run in (("base", "base"), ("spring", "spring"), ("spring", "student")):
        registry.models.register(name, model_result(run * 8), run_id=ids[run])
    with registry._database.session(writing=True) as session:
        for name, columns in RUNS.items():
            began = now - timedelta(hours=columns["hours"])
            values = {field: columns.get(field) for field in ("seconds", "host", "code_version")}
            values |= {"state": columns.get("state", "COMPLETED"), "created_at": began, "heartbeat_at": began}
            values |= {"error": "CUDA out of memory. Tried 2 GiB", "attempt": 3} if name == "base again" else {}
            values |= {"heartbeat_at": now + timedelta(hours=1)} if name == "summer" else {}
            session.execute(update(RunRow).where(RunRow.id == ids[name]).values(**values))


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def laboratory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    if request.param == "sqlite":
        location = str(tmp_path_factory.mktemp("laboratory") / "registry.sqlite")
    else:
        location = request.getfixturevalue("postgres_module_location")
    with Registry(location) as registry:
        fill(registry)
        yield registry


QUESTIONS: list[tuple[str, str, tuple[str, ...]]] = [
    # what won
    ("which runs on sst2 are above .9", "task = 'sst2' and score > 0.9", ("spring", "spring #0")),
    ("which reach .9 at least", "task = 'sst2' and score >= .9", ("spring", "spring #0", "spring #1")),
    ("which trials collapsed or have no score", "kind = 'trial' and not score > 0.6", TRIALS[2:]),
    ("which have no score at all", "kind = 'trial' and score is null", ("spring #3",)),
    ("which learning rates are small", "params.learning_rate <= 2e-5", TRIALS[:2]),
    ("which are one of these", "params.learning_rate in (1e-3, 3e-3)", TRIALS[2:]),
    ("the same in full", "params.recipe.learning_rate = 0.001", TRIALS[2:]),
    ("which score lies between", "score between 0.85 and 0.9", ("spring #1", "student")),
    ("the same from both sides", "0.85 <= score <= 0.9", ("spring #1", "student")),
    ("which seed 1 did well", "seed == 1 and metrics.accuracy > 0.8", ("spring #1",)),
    ("by what the ranking score is", "metric = 'f1'", ("Größe 100% it's", "summer")),
    # was it luck, and where
    ("whose test score is known", "metrics.test.accuracy is not null", ("judged", "spring")),
    ("whose test score lies below validation", "metrics.test.accuracy < metrics.accuracy", ("spring",)),
    ("whose f1 is above its accuracy", "metrics.f1 > metrics.accuracy", ("summer",)),
    ("whose f1 is its accuracy", "metrics.f1 = metrics.accuracy", ("Größe 100% it's",)),
    ("scored on test alone", "metrics.test.accuracy > 0 and metrics.accuracy is null", ("judged",)),
    ("students that agree with their teacher", "metrics.agreement >= 0.95", ("student",)),
    # how it learned
    ("whose loss was once below 3.2", "best(metrics.train.loss) < 3.2", ("base",)),
    ("whose loss rose at the end", "last(metrics.train.loss) > min(metrics.train.loss)", ("base",)),
    (
        "whose loss fell since its first step",
        "first(metrics.train.loss) > last(metrics.train.loss)",
        ("base", "vanished"),
    ),
    ("whose loss was below 5 by step 600", "at(metrics.train.loss, 600) < 5", ("base",)),
    ("whose loss began above 9", "max(metrics.train.loss) > 9", ("base again", "vanished")),
    ("what measured a loss", "first(metrics.train.loss) is not null", ("base", "base again", "vanished")),
    # on which data, from which model
    ("what used the corpus", "dataset = 'words'", ("base", "words")),
    ("by the beginning of its digest", "dataset like 'ccc%'", ("base", "words")),
    ("what used data of a task", "dataset = 'sst2'", ("spring", *TRIALS)),
    (
        "what has no data recorded and a task",
        "dataset is null and task is not null",
        ("Größe 100% it's", "judged", "student", "summer"),
    ),
    ("what made this version", "model = 'spring@2'", ("student",)),
    ("what made any version of it", "model = 'spring'", ("spring", "student")),
    ("what made a model at all", "model is not null", ("base", "spring", "student")),
    ("what began from the pretrained one", "params.init_from = 'base'", ("spring", *TRIALS)),
    (
        "what was taught by it, or judged it",
        "params.teacher = 'spring@1' or params.model = 'spring@1'",
        ("judged", "student"),
    ),
    ("what had few examples", "params.max_train_examples <= 100", ("spring", *TRIALS)),
    (
        "what is of this size",
        "params.size in ('tiny', 'small') and kind != 'trial'",
        ("base", "spring", "student", "summer"),
    ),
    ("what is like this size", "params.size like 'S%'", ("base", "summer")),
    ("what went on from elsewhere", "params.resume = true", ("base again",)),
    ("what did not", "params.resume = false", ("base",)),
    # when, how long, where, with which code
    (
        "what was made in the last day",
        "created_at > 1d and kind != 'trial'",
        ("Größe 100% it's", "judged", "spring", "student", "summer"),
    ),
    ("what was made in the last 90 minutes", "created_at > 90m and kind != 'trial'", ("Größe 100% it's",)),
    ("what is older than a week", "created_at < 1w", ("base", "words")),
    ("what was made two to four days ago", "created_at between 4d and 2d", ("base again", "vanished")),
    ("what is not of these days", "created_at not between 4d and 0s", ("base", "words")),
    ("what took more than an hour", "seconds > 1h", ("base", "spring")),
    ("what took minutes", "seconds between 5m and 30m", ("base again", "student", "words")),
    ("what took less than a minute", "seconds < 60 and kind != 'trial'", ("Größe 100% it's", "judged")),
    ("what ran on either host", "host in ('node-a', 'node-c')", ("base again", "vanished", "words")),
    ("what ran on a host like that", "host like 'NODE-_'", ("base", "base again", "vanished", "words")),
    ("what was made with this commit", "commit = '1f2e3d'", ("base",)),
    ("whose code is not known", "kind = 'pretrain' and code is null", ("base again", "vanished")),
    # what went wrong
    ("what failed", "state = 'failed'", ("base again", "spring #3")),
    ("what ran out of memory", "error like '%out of memory%'", ("base again",)),
    ("what needed further attempts", "attempt > 1", ("base again",)),
    ("what vanished", "state = 'LOST'", ("vanished",)),
    ("what is at work", "state in ('running', 'pending')", ("summer",)),
    (
        "what neither ended well nor is at work",
        "not (state = 'completed' or state = 'running')",
        ("base again", "spring #3", "vanished"),
    ),
    # tags and names
    ("what is in the paper", "tag = 'paper'", ("base", "spring", *TRIALS)),
    ("the trials of what is in the paper", "tag = 'paper' and kind = 'trial'", TRIALS),
    ("what is not broken, untagged runs too", "tag != 'broken' and task = 'mrpc'", ("Größe 100% it's",)),
    ("what is tagged, and not so", "tag is not null and not tag = 'paper'", ("summer",)),
    ("which queue", "tags.queue = 'night'", ("base",)),
    ("any queue", "tags.queue", ("base", "summer")),
    ("no queue, of sweeps", "not tags.queue and kind = 'sweep'", ("spring",)),
    ("by a name with a quote", "name = 'Größe 100% it''s'", ("Größe 100% it's",)),
    ("the same in other quotes", 'name = "Größe 100% it\'s"', ("Größe 100% it's",)),
    ("by the beginning of a name", "name like 'base%'", ("base", "base again")),
    ("by the first trials", "kind = 'trial' and number < 2", TRIALS[:2]),
    ("by a kind or another", "kind in ('corpus', 'distill')", ("student", "words")),
    # how conditions join
    (
        "and before or",
        "kind = 'corpus' or kind = 'pretrain' and state = 'failed'",
        ("base again", "words"),
    ),
    (
        "parentheses before both",
        "(kind = 'corpus' or kind = 'pretrain') and state = 'failed'",
        ("base again",),
    ),
    ("not before and", "not kind = 'trial' and seconds is null", ("summer", "vanished")),
    ("words in capitals", "kind = 'sweep' AND NOT state = 'completed'", ("summer",)),
    ("a value before its field", "'corpus' = kind", ("words",)),
    ("over several lines", "kind = 'sweep'\n  and task = 'mrpc'", ("summer",)),
    ("nothing can be so", "score > 0.99", ()),
]


@pytest.mark.parametrize(("query", "names"), [pytest.param(*rest, id=question) for question, *rest in QUESTIONS])
@pytest.mark.heavy
def test_a_question_is_answered_by_just_its_runs(laboratory: Registry, query: str, names: tuple[str, ...]) -> None:
    assert sorted(laboratory.run_table(query).values("name")) == sorted(names)
    assert laboratory.num_runs(query) == len(names)
