"""Comparison of a run's scores with published numbers: the difference, its noise, and why the two may not compare."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from orchestrator.base.errors import NotFoundError
from orchestrator.base.metric_names import COLLAPSED
from orchestrator.registry import Registry
from orchestrator.registry.group_records import scored_trials
from orchestrator.registry.leaderboard import noise_among, trial_groups
from orchestrator.registry.records import RunRecord
from orchestrator.significance.ranking import SeedNoise
from orchestrator.significance.summary import summarize
from orchestrator.specs.references import RANDOM

Row = Mapping[str, Any]
_SAME_SIZE = 1.1
"""Ratio of parameters up to which two models count as equally large: heads and vocabularies differ."""


@dataclass(frozen=True)
class RunScore:
    """Scores of a run on one split: one, or those of the seeds of its best recipe of `num_recipes`."""

    run_id: str
    task: str
    split: str
    metric: str
    scores: Sequence[float]
    noise: SeedNoise | None = None
    """Noise of seeds over the recipes of the run; None where it is not known."""
    num_recipes: int = 1
    millions: float | None = None
    """Parameters of the model, in millions; None where it is not registered."""
    has_own_files: bool = False
    """Whether the task's files are a person's own, and not the official ones in a folder."""
    begins_at_random: bool = False
    refusal: str | None = None
    """Reason why the score is refused, as it flatters the model."""


@cache
def load_numbers() -> tuple[Row, ...]:
    """Load every published number, with the fields of its source and the `millions` of its model's parameters."""
    known = yaml.safe_load(files(__package__).joinpath("published_numbers.yaml").read_text(encoding="utf-8"))
    sources, models = known["sources"], known["models"]
    return tuple(
        {**sources[one["source"]], **one, "millions": models[one["model"]].get("millions")} for one in known["numbers"]
    )


def run_scores(run: RunRecord, registry: Registry) -> Iterator[RunScore]:
    """Yield each score of a run; of a sweep, on the validation data, those of the seeds of its best recipe."""
    if run.task is None:
        return
    spec = run.spec if run.parent_id is None else registry.run(run.parent_id).spec
    task, scored = spec.get("task") or {}, run.spec.get("model")
    parameters = registry.parameters(registry.trials.kept(run.id) or run.id)
    starts = parameters.get("recipe.init_from", (spec.get("recipe") or {}).get("init_from"))
    models = registry.models.left_by(run)
    with suppress(NotFoundError):
        models = models or ([registry.models.get(scored)] if isinstance(scored, str) else [])
    about: dict[str, Any] = {
        "millions": models[0].num_parameters / 1e6 if models and models[0].num_parameters else None,
        "has_own_files": bool(task.get("files")) or not task.get("folder"),
        "begins_at_random": starts == RANDOM and "model" not in spec,
    }
    refusal = registry.test_refusals([run.id]).get(run.id)
    trials = scored_trials(registry.trials.table(run.id).records, str(run.metric))
    recipes = [group.key for group in trial_groups(trials, str(run.metric))]
    for name, value in registry.metrics.latest(run.id).items():
        if name == COLLAPSED or name.startswith(("baseline.", "train.")):
            continue
        metric = name.removeprefix("test.")
        is_test = metric != name
        groups = {} if is_test else {group.key: group for group in trial_groups(trials, metric)}
        of_recipes = [groups[key].scores if key in groups else [] for key in recipes]
        noise = noise_among([*groups.values()])
        own = (of_recipes and of_recipes[0]) or [value]
        split, refused = ("test", refusal) if is_test else ("validation", None)
        yield RunScore(run.id, run.task, split, metric, own, noise, max(1, len(recipes)), refusal=refused, **about)


def compare(score: RunScore, numbers: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows of a score beside the published numbers of its task and metric, the most comparable one first.

    `half_width` is half of the 95 % interval of the difference, None where the noise of seeds is not known.
    """
    summary = summarize(score.scores)
    half_width = score.noise and score.noise.of_mean(summary).half_width()

    def distance(one: Row) -> tuple[bool, bool, bool, float]:
        return "metric" not in one, one["split"] != score.split, "note" in one, _size_ratio(score, one)

    rows = []
    same = (one for one in numbers if one["task"] == score.task and one.get("metric") in (score.metric, None))
    for one in sorted(same, key=distance):
        difference = summary.mean - one["value"]
        if half_width is None:
            noise = "seed noise not known"
        else:
            noise = "more than seed noise" if abs(difference) > half_width else "within seed noise"
        row: dict[str, Any] = {"run": score.run_id, "task": score.task, "split": score.split, "metric": score.metric}
        row |= {"yours": summary.mean, "n": summary.n, "published": one["value"], "model": one["model"]}
        row |= {"source": one["title"], "difference": difference, "half_width": half_width, "noise": noise}
        row |= {"published_split": one["split"], "table": one["table"], "url": one["url"]}
        rows.append(row | {"why": list(_reasons(score, one))})
    return rows


def _size_ratio(score: RunScore, number: Row) -> float:
    """The larger model's parameters by the smaller one's; infinite where those of one are not known."""
    own, theirs = score.millions, number.get("millions")
    return max(own, theirs) / min(own, theirs) if own and theirs else float("inf")


def _reasons(score: RunScore, number: Row) -> Iterator[str]:
    """Yield the reasons why the two may not compare, the gravest first."""
    split, chosen, ratio = number["split"], number["chosen"], _size_ratio(score, number)
    if score.refusal is not None:
        yield f"your score is refused: {score.refusal}"
    if "metric" not in number:
        yield f"the source does not say which of the task's scores it is; yours is {score.metric}"
    if split != score.split:
        yield f"it is of the {split} split, yours of the {score.split} split"
    if score.begins_at_random:
        yield "yours began with random weights, and the published model was pretrained"
    if "note" in number:
        yield f"published with a difference: {number['note']}"
    if ratio == float("inf"):
        yield "the models' sizes cannot be compared"
    elif ratio > _SAME_SIZE:
        yield f"{number['model']} has {number['millions']:.3g} M parameters, yours {score.millions:.3g} M"
    if score.has_own_files:
        yield "your task reads files of its own, which may not be the official split"
    if score.num_recipes > 1 and score.split == "validation":
        yield f"yours is the best of {score.num_recipes} recipes on the split that it is scored on"
    if chosen in ("best_of_grid", "best_of_restarts"):
        where = "split that it is scored on" if split == "validation" else "validation split"
        yield f"published is the {chosen.replace('_', ' ')}, chosen on the {where}"
    if chosen == "unstated":
        yield "how the published one was chosen is not said"
    if chosen == "one_run":
        yield "published is one run, whose own noise is not known"
