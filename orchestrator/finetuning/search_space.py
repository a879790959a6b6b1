"""Trials of a sweep: points of the space, each tried with each seed and fold, in a queue that resumes. No Ray."""

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from pydantic import ValidationError

from bert_core.checkpoints.sentence_transformers import SentenceEmbeddingConfig
from orchestrator.base.errors import SpecError
from orchestrator.base.nearest import did_you_mean
from orchestrator.base.results import TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.specs import RecipeSpec, SweepSpec
from orchestrator.specs.recipe import SILENT_FIELDS
from orchestrator.specs.references import split_starts
from orchestrator.specs.search_algorithms import SEARCHES, Search
from orchestrator.specs.search_axes import Point, Scalar
from orchestrator.specs.validation import rule_of
from orchestrator.tasks.types import TYPES
from orchestrator.tasks.types.base import TaskDefinition
from orchestrator.training.batch_order import num_evaluations

_TOGETHER = {"optimizer", "freeze_encoder", "learning_rate_schedule", "warmup_ratio", "decay_ratio"}
"""Fields of which one may refuse values of another."""


@dataclass(frozen=True)
class TrialPlan:
    """One trial to run: its place in the sweep, its point and its whole recipe."""

    number: int
    point: Point
    recipe: RecipeSpec
    fold: int | None = None
    """Fold for validation, where the task has folds."""
    starts: str | None = None
    """The start models of all seeds, where each seed has its own."""

    @property
    def seed(self) -> int:
        return self.recipe.seed

    @cached_property
    def parameters(self) -> dict[str, object]:
        start = {} if self.starts is None else {"init_from": self.starts, "start": self.recipe.init_from}
        return self.recipe.model_dump(mode="json") | start | self.replicate

    @cached_property
    def key(self) -> str:
        """The trial's natural key within its sweep: a digest of what makes up its recipe's fingerprint."""
        values = self.recipe.identity_values() | self.replicate
        return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]

    @property
    def replicate(self) -> dict[str, int]:
        """Seed, and fold where there are folds: the difference to the other trials of the point."""
        return {"seed": self.seed} | ({} if self.fold is None else {"fold": self.fold})

    def result(self, state: RunState, **values: Any) -> TrialResult:
        """Make the result of this trial; `values` are the fields of `TrialResult` that the plan does not know."""
        return TrialResult(self.key, self.number, self.parameters, state, self.seed, **values)


def build_search(spec: SweepSpec, proposed: Sequence[Point] = ()) -> Search:
    """The spec's search algorithm; `proposed` are the points of an earlier attempt, where the algorithm learns."""
    return SEARCHES[spec.search](spec.axes, max_points=spec.trials, seed=spec.search_seed, proposed=proposed)


def listed_values(spec: SweepSpec, name: str) -> tuple[Scalar | None, ...]:
    """All values that a recipe field takes in the sweep; none where it ranges."""
    axis = spec.axes.get(name)
    values = (getattr(spec.recipe, name),) if axis is None else axis.listed or ()
    if name == "init_from":
        return tuple(dict.fromkeys(start for value in values for start in split_starts(str(value))))
    return values


def value_bounds(spec: SweepSpec, name: str) -> tuple[float, float]:
    """The smallest and the largest value that a number of the recipe takes in the sweep."""
    ends = (0.0, 1 - 2.0**-53)
    values = listed_values(spec, name) or [spec.axes[name].value_at(share) for share in ends]
    numbers = [float(value) for value in values if value is not None]
    return min(numbers), max(numbers)


def plan_trials(spec: SweepSpec, point: Point, point_number: int) -> list[TrialPlan]:
    """The point's trials, one per seed and fold. Raises: SpecError where a value does not fit its field."""
    plans = []
    asked = str(point.get("init_from", spec.recipe.init_from))
    models = split_starts(asked)
    starts = None if len(models) == 1 else asked
    for index, (seed, fold) in enumerate(product(spec.seeds, spec.folds)):
        init_from = models[0] if starts is None else models[spec.seeds.index(seed)]
        values = {**spec.recipe.model_dump(), **point, "init_from": init_from, "seed": seed}
        try:
            recipe = RecipeSpec.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            if not first["loc"]:
                raise SpecError(f"space: {rule_of(first)}") from None
            field = ".".join(str(part) for part in first["loc"])
            raise SpecError(
                f"space.{field} has {first['input']!r}, which recipe.{field} refuses; {rule_of(first)}"
            ) from None
        plans.append(TrialPlan(point_number * spec.trials_per_point + index, dict(point), recipe, fold, starts))
    return plans


def check_space(spec: SweepSpec, task: TaskDefinition) -> None:
    """Refuse, before anything runs, points that no recipe takes or that are the same, fields that say nothing somewhere
    in the space, and what does not concern the task's type, objective or labels. Raises: SpecError.
    """
    for (other, value), silent in SILENT_FIELDS.items():
        for name in silent if value in listed_values(spec, other) else ():
            if listed_values(spec, name) != (RecipeSpec.model_fields[name].default,):
                place = f"{'space' if name in spec.axes else 'recipe'}.{name}"
                raise SpecError(f"{place} says nothing with {other} {json.dumps(value)}; sweep over them in two specs")
    check_recipe(spec.recipe, task, spec.space)
    if SEARCHES[spec.search].learns:
        inner, together = {name: axis.value_at(0.382) for name, axis in spec.axes.items()}, _TOGETHER & spec.axes.keys()
        for values in product(*(spec.axes[name].written for name in together)):
            plan_trials(spec, {**inner, **dict(zip(together, values, strict=True))}, 0)
        return
    first: dict[str, Point] = {}
    for number, point in enumerate(build_search(spec).propose()):
        for plan in plan_trials(spec, point, number)[:: len(spec.folds)]:
            if point is not first.setdefault(plan.key, point):
                same = f"{first[plan.key]} and {point} are the same with seed {plan.seed}"
                raise SpecError(f"space: {same}; leave one of them out")


def check_recipe(recipe: RecipeSpec, task: TaskDefinition, axes: Container[str] = ()) -> None:
    """Check that a model can be fine-tuned for a task and that the task has a use for every field that was given.

    Args:
        axes: fields that a search varies.

    Raises: SpecError.
    """
    task_type = task.type
    if task_type.is_searched:
        raise SpecError(f"task.head: a {task.head} task is evaluated, not learned; learn pairs with head: embedding")
    made_for: dict[str, list[str]] = {}
    for other in TYPES:
        for name in sorted(() if other.is_searched else other.recipe_fields - task_type.recipe_fields):
            made_for.setdefault(name, []).append(other.name)
    for name, uses in made_for.items():
        value = getattr(recipe, name)
        if name in axes or value != RecipeSpec.model_fields[name].default:
            section, given = ("space", "the axis") if name in axes else ("recipe", repr(value))
            use = f"it is for {' and '.join(uses)}; the task's head is {task_type.name}"
            raise SpecError(f"{section}.{name}: {use}: leave {given} out")
    for label in recipe.class_weights if isinstance(recipe.class_weights, dict) else ():
        if label not in task.labels:
            known = did_you_mean(label, task.labels)
            raise SpecError(f"recipe.class_weights: task {task.id} has no label {label!r}{known}")


def check_prompts(recipe: RecipeSpec, embedding: SentenceEmbeddingConfig) -> None:
    """Check that a recipe mentions the prompts that the model it starts from was trained with. Raises: SpecError."""
    for name in ("query_prompt", "document_prompt"):
        if getattr(recipe, name) is None and (own := getattr(embedding, name)):
            raise SpecError(
                f"recipe.{name}: the model that training starts from has {own!r} before each text; write that, "
                'another one, or "" for none'
            )


def most_evaluations(spec: SweepSpec) -> int:
    epochs, per_epoch = (value_bounds(spec, name)[1] for name in ("epochs", "evaluations_per_epoch"))
    return num_evaluations(epochs, int(per_epoch))


class TrialQueue:
    """The trials of a sweep in order; those that an earlier attempt finished are counted, but not handed out again.

    Args:
        metric: the score that ranks trials; a search learns from its mean over a point's trials.
        finished: results of an earlier attempt by trial key.
        proposed: the points of an earlier attempt of a search that learns; they come again first, under their numbers.
        on_proposed: given each new point of a search that learns, before a trial of it is handed out: without them a
            later attempt could not propose the same.
    """

    def __init__(
        self,
        spec: SweepSpec,
        metric: str,
        finished: Mapping[str, TrialResult],
        *,
        proposed: Sequence[Point] = (),
        on_proposed: Callable[[Point], object] = lambda point: None,
    ) -> None:
        self.spec, self._metric, self._finished = spec, metric, finished
        self._num_saved, self._on_proposed = len(proposed), on_proposed
        self._search = build_search(spec, proposed)
        self._proposals = self._search.propose()
        self._num_points = self._num_running = 0
        self._scores: dict[int, list[float | None]] = defaultdict(list)
        """Scores of the trials that have ended, by the number of a point some of whose trials have not."""
        self._waiting: deque[TrialPlan] = deque()

    @cached_property
    def num_trials(self) -> int:
        """Largest number of trials, finished ones included."""
        return self._search.num_points * self.spec.trials_per_point

    def next(self) -> TrialPlan | None:
        """The next trial to run; None when there is no other."""
        if not self._fill():
            return None
        self._num_running += 1
        return self._waiting.popleft()

    def is_done(self) -> bool:
        return self._num_running == 0 and not self._fill()

    def record(self, plan: TrialPlan, result: TrialResult) -> None:
        self._num_running -= 1
        self._close(plan, result)

    def _fill(self) -> bool:
        """Propose points until a trial waits to start; return False when there is no other."""
        while not self._waiting:
            point = next(self._proposals, None)
            if point is None:
                return False
            plans = plan_trials(self.spec, point, self._num_points)
            self._num_points += 1
            if self._search.learns and self._num_points > self._num_saved:
                self._on_proposed(point)
            for plan in plans:
                if plan.key in self._finished:
                    self._close(plan, self._finished[plan.key])
                else:
                    self._waiting.append(plan)
        return True

    def _close(self, plan: TrialPlan, result: TrialResult) -> None:
        """Count a trial as ended; after the last of its point the search is told their mean score."""
        number = plan.number // self.spec.trials_per_point
        self._scores[number].append(result.metrics.get(self._metric))
        if len(self._scores[number]) == self.spec.trials_per_point:
            scores = [score for score in self._scores.pop(number) if score is not None]
            is_whole = len(scores) == self.spec.trials_per_point or len(self.spec.folds) == 1
            self._search.tell(number, sum(scores) / len(scores) if scores and is_whole else None)
