"""Trials of a sweep: points of the space, each tried with each seed and fold. Functions alone: no Ray, no state."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from pydantic import ValidationError

from orchestrator.errors import SpecError
from orchestrator.finetuning.recipe_checks import check_recipe
from orchestrator.results import TrialResult
from orchestrator.run_states import RunState
from orchestrator.search.algorithms import SEARCHES, Search
from orchestrator.search.axes import Point, Scalar
from orchestrator.specs import RecipeSpec, SweepSpec
from orchestrator.specs.recipe import SILENT_FIELDS
from orchestrator.specs.validation import rule_of
from orchestrator.tasks import TaskDefinition
from orchestrator.training.batch_order import num_evaluations


@dataclass(frozen=True)
class TrialPlan:
    """One trial to run: its place in the sweep, its point and its whole recipe."""

    number: int
    point: Point
    recipe: RecipeSpec
    fold: int | None = None
    """Fold that it is validated on, where the task has folds."""

    @property
    def seed(self) -> int:
        """Seed of the trial, which its recipe holds."""
        return self.recipe.seed

    @cached_property
    def parameters(self) -> dict[str, object]:
        """Every field of the recipe, as plain values, and the fold."""
        return self.recipe.model_dump(mode="json") | self.replicate

    @cached_property
    def key(self) -> str:
        """The trial's natural key within its sweep: a digest of what makes up its recipe's fingerprint."""
        return _digest(self.recipe.identity_values() | self.replicate)

    @property
    def replicate(self) -> dict[str, int]:
        """Seed, and fold where there are folds, by which it differs from the other trials of its point."""
        return {"seed": self.seed} | ({} if self.fold is None else {"fold": self.fold})

    def result(self, state: RunState, **values: Any) -> TrialResult:
        """Make the result of this trial; `values` are the fields of `TrialResult` that the plan does not know."""
        return TrialResult(self.key, self.number, self.parameters, state, self.seed, **values)


def _digest(values: Mapping[str, object]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_search(spec: SweepSpec, proposed: Sequence[Point] = ()) -> Search:
    """The spec's search algorithm; `proposed` are the points of an earlier attempt, where the algorithm learns."""
    return SEARCHES[spec.search](spec.axes, max_points=spec.trials, seed=spec.search_seed, proposed=proposed)


def listed_values(spec: SweepSpec, name: str) -> tuple[Scalar | None, ...]:
    """All values that a recipe field takes in the sweep; none where it ranges."""
    axis = spec.axes.get(name)
    return (getattr(spec.recipe, name),) if axis is None else axis.listed or ()


def value_bounds(spec: SweepSpec, name: str) -> tuple[float, float]:
    """The smallest and the largest value that a number of the recipe takes in the sweep."""
    ends = (0.0, 1 - 2.0**-53)
    values = listed_values(spec, name) or [spec.axes[name].value_at(share) for share in ends]
    numbers = [float(value) for value in values if value is not None]
    return min(numbers), max(numbers)


def plan_trials(spec: SweepSpec, point: Point, point_number: int) -> list[TrialPlan]:
    """The point's trials, one per seed and fold. Raises: SpecError where a value does not fit its field."""
    plans = []
    for index, (seed, fold) in enumerate(product(spec.seeds, spec.folds)):
        values = {**spec.recipe.model_dump(), **point, "seed": seed}
        try:
            recipe = RecipeSpec.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise SpecError(
                f"space.{field} has {first['input']!r}, which recipe.{field} refuses; {rule_of(first)}"
            ) from None
        plans.append(TrialPlan(point_number * spec.trials_per_point + index, dict(point), recipe, fold))
    return plans


def check_space(spec: SweepSpec, task: TaskDefinition) -> None:
    """Refuse, before anything runs, a range whose inner values its field cannot take, fields that say nothing
    somewhere in the space, and what does not concern the task's type, objective or labels. Raises: SpecError.
    """
    for (field, value), silent in SILENT_FIELDS.items():
        for name in silent if value in listed_values(spec, field) else ():
            if listed_values(spec, name) != (RecipeSpec.model_fields[name].default,):
                place = f"{'space' if name in spec.axes else 'recipe'}.{name}"
                raise SpecError(f"{place} says nothing with {field} {json.dumps(value)}; sweep over them in two specs")
    plan_trials(spec, {name: axis.value_at(0.382) for name, axis in spec.axes.items()}, 0)
    check_recipe(spec.recipe, task, spec.space)


def most_evaluations(spec: SweepSpec) -> int:
    """Evaluations of the longest trial that the sweep can have."""
    epochs, per_epoch = (value_bounds(spec, name)[1] for name in ("epochs", "evaluations_per_epoch"))
    return num_evaluations(epochs, int(per_epoch))
