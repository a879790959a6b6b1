"""All that differs of two runs, and nothing else. Alone: pytest tests/orchestrator/reports/test_run_differences.py"""

from typing import Any

import pytest

from orchestrator.base.results import DatasetResult, FileCount, MetricEvent, TrialStart
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.reports.run_differences import RunComparison, compare_runs, difference_lines
from orchestrator.reports.run_facts import RunFacts
from tests.orchestrator.registry.samples import made_with, new_run, trial_result

SPEC = {"kind": "pretrain", "name": "words", "model": {"size": "tiny"}, "steps": 10, "seed": 0}


def recorded(registry: Registry, commit: str = "a" * 40, diff: str | None = None, **changes: Any) -> str:
    """A completed run."""
    recorder = Recorder(registry, made_with=made_with(commit, diff))
    run_id = recorder.start(SPEC | changes.pop("spec", {}), "f").id
    data = {"name": "text", "kind": "corpus", "fingerprint": "1" * 64, "path": "/c", "counts": {"num_tokens": 5}}
    recorder.registry.datasets.record(run_id, DatasetResult(**data | changes.pop("data", {})))
    values = {"mlm_loss": 2.0, "tokens_per_s": 100.0} | changes.pop("metrics", {})
    recorder.record_events(run_id, [MetricEvent(10, "validation", values)])
    recorder.complete(run_id, RunOutcome())
    assert not changes
    return run_id


def found(comparison: RunComparison) -> dict[str, tuple[Any, Any]]:
    """Differences but for how long the runs took, which always differs."""
    return {
        f"{each.section}: {each.field}": (each.first, each.second)
        for each in comparison.differences
        if each.field != "seconds"
    }


def test_runs_of_the_same_make_differ_in_nothing(registry: Registry) -> None:
    """Not even where their scores are no numbers."""
    first, second = (recorded(registry, metrics={"mlm_loss": float("nan")}) for _ in range(2))
    comparison = compare_runs(registry, first, second[:6])
    assert found(comparison) == {}
    assert {"run", "spec", "data", "code", "environment", "scores"} <= set(comparison.same)
    assert comparison.unknown == {}


def test_pipelines_differ_in_their_stages_and_in_the_scores_of_these(registry: Registry) -> None:
    pipelines = [new_run(registry, kind="pipeline", name="all", spec={}) for _ in range(2)]
    for pipeline, loss in zip(pipelines, (2.0, 1.5), strict=True):
        stage = new_run(registry, name="all/words", metric="mlm_loss", spec=SPEC, tags=[f"pipeline:{pipeline}"])
        registry.metrics.record(stage, [MetricEvent(10, "validation", {"mlm_loss": loss})])
    differences = found(compare_runs(registry, *pipelines))
    assert differences.keys() == {"scores: words.mlm_loss", "stages: words"}
    assert differences["scores: words.mlm_loss"] == (2.0, 1.5)


def test_stages_that_end_alike_are_all_told(registry: Registry) -> None:
    whole = new_run(registry, kind="pipeline", name="all", spec={})
    for name in ("wiki/tags", "news/tags"):
        new_run(registry, name=name, spec=SPEC, tags=[f"pipeline:{whole}"])
    assert RunFacts(registry, registry.run(whole)).stage_lines.keys() == {"stage wiki/tags", "stage news/tags"}


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({"spec": {"steps": 20}}, {"spec: steps": (10, 20)}),
        ({"spec": {"model": {}}}, {"spec: model.size": ("tiny", None), "spec: model": (None, {})}),
        ({"commit": "b" * 40}, {"code: commit": ("a" * 40, "b" * 40)}),
        (
            {"diff": "+x = 1"},
            {"code: changes": (None, f"{'+x = 1':x>64}"), "code: changed files": (None, ["bert_core/a.py"])},
        ),
        ({"metrics": {"mlm_loss": 1.5}}, {"scores: mlm_loss": (2.0, 1.5)}),
        ({"metrics": {"tokens_per_s": 90.0}}, {"speed: tokens_per_s": (100.0, 90.0)}),
        (
            {"data": {"fingerprint": "2" * 64, "counts": {"num_tokens": 6}, "files": [FileCount("a.txt", 9, 1)]}},
            {
                "data: corpus text.digest": ("1" * 64, "2" * 64),
                "data: corpus text.num_tokens": (5, 6),
                "data: corpus text.a.txt.num_bytes": (None, 9),
            },
        ),
    ],
)
@pytest.mark.heavy
def test_what_differs_is_found(registry: Registry, changes: dict[str, Any], differing: dict[str, Any]) -> None:
    assert found(compare_runs(registry, recorded(registry), recorded(registry, **changes))) == differing


def test_fields_that_only_one_kind_has_are_a_line_of_their_parts(registry: Registry) -> None:
    sweep = {"kind": "sweep", "steps": 5, "task": {"id": "sst2", "head": "qa"}, "recipe": {"a": 1, "b": 2, "c": 3}}
    lines = difference_lines(
        (both := compare_runs(registry, recorded(registry), recorded(registry, spec=sweep))).differences, both
    )
    assert lines[lines.index("Spec") :][:3] == ["Spec", "  steps: 10 → 5", "  only in the second: recipe.*, task.*"]


def test_the_newest_attempt_counts(registry: Registry) -> None:
    run = Recorder(registry, made_with=made_with("a" * 40)).start(SPEC, "f")
    Recorder(registry, made_with=made_with("b" * 40)).resume(run.id)
    assert "code: commit" in found(compare_runs(registry, recorded(registry), run.id))


def test_trials_are_compared_by_their_recipes_and_scores(registry: Registry) -> None:
    recorder = Recorder(registry, made_with=made_with("a" * 40))
    spec = {"kind": "sweep", "task": {"id": "sst2"}, "recipe": {"learning_rate": 1.0, "epochs": 3, "seed": 0}}
    sweep = recorder.start(spec, "f")
    trials = recorder.registry.trials.record(sweep.id, [TrialStart(key, 0, {}, 0) for key in ("a", "b")])
    recorder.registry.trials.record(
        sweep.id,
        [
            trial_result("a", metrics={"accuracy": 0.5}, parameters={"learning_rate": 1.0}),
            trial_result("c", metrics={"accuracy": 0.7}, parameters={"learning_rate": 2.0}, seed=1, number=1),
        ],
    )
    rows = registry.trials.table(sweep.id).records
    first, second = (row["id"] for row in rows if row.get("metrics.accuracy"))
    assert first in trials
    comparison = compare_runs(registry, first, second)
    assert found(comparison) == {
        "spec: recipe.learning_rate": (1.0, 2.0),
        "spec: recipe.seed": (0, 1),
        "scores: accuracy": (0.5, 0.7),
    }
    assert "code" in comparison.same, "the sweep's"


def test_pipelines_name_the_stages_that_differ(registry: Registry) -> None:
    recorder = Recorder(registry)
    pipelines = [recorder.start({"kind": "pipeline", "name": "life"}, "f").id for _ in range(2)]
    stages = [
        recorder.start({"kind": "corpus", "name": "life/text", "tags": [f"pipeline:{each}"]}, "f").id
        for each in pipelines
    ]
    comparison = compare_runs(registry, *pipelines)
    assert found(comparison) == {"stages: text": tuple(stages)}
    assert found(compare_runs(registry, *stages)) == {}
