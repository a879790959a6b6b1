"""Scores of recorded runs, as they are compared with published ones."""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.errors import NotFoundError
from orchestrator.published.comparison import RunScore
from orchestrator.registry.groups.scored_trials import scored_groups, scored_trials
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.specs.references import RANDOM

_TEST = "test."


def run_scores(run: RunRecord, registry: Registry) -> Iterator[RunScore]:
    """Yield each score of a run on the validation and the test split; of a sweep those of its best recipe's seeds.

    The test split has one score of a sweep, of its best trial.
    """
    if run.task is None:
        return
    about = _about(run, registry)
    latest = registry.metrics.latest(run.id)
    refusal = registry.test_refusals([run.id]).get(run.id)
    recipes = scored_groups(registry.trials.table(run.id).records, str(run.metric))
    for name, value in latest.items():
        split, metric = ("test", name.removeprefix(_TEST)) if name.startswith(_TEST) else ("validation", name)
        own = [value]
        if recipes and split == "validation":
            own = [row[f"metrics.{metric}"] for row in scored_trials(recipes[0], metric)] or own
        refused = refusal if split == "test" else None
        yield RunScore(run.id, run.task, split, metric, own, max(1, len(recipes)), refusal=refused, **about)


def _about(run: RunRecord, registry: Registry) -> Mapping[str, Any]:
    """Facts about a run's model and data that decide whether it compares."""
    spec = run.spec if run.parent_id is None else registry.run(run.parent_id).spec
    recipe, task = spec.get("recipe") or {}, spec.get("task") or {}
    deciding = registry.trials.kept(run.id) or run.id
    starts = registry.parameters(deciding).get("recipe.init_from", recipe.get("init_from"))
    return {
        "num_parameters": _num_parameters(run, registry),
        "own_files": bool(task.get("files")) or not task.get("folder"),
        "begins_at_random": starts == RANDOM and "model" not in spec,
    }


def _num_parameters(run: RunRecord, registry: Registry) -> int | None:
    """Parameters of the model that a run left, or that it scored; None where it is not registered."""
    for model in registry.models.left_by(run):
        return model.num_parameters
    scored = run.spec.get("model")
    try:
        return registry.models.get(scored).num_parameters if isinstance(scored, str) else None
    except NotFoundError:
        return None
