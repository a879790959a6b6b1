"""Trials of a sweep: points of the space, each tried with each seed. Functions alone: no Ray, no state."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from orchestrator.errors import SpecError
from orchestrator.finetuning.recipe_checks import check_recipe
from orchestrator.results import TrialResult
from orchestrator.run_states import RunState
from orchestrator.search import SEARCHES
from orchestrator.search.axes import Point, Scalar
from orchestrator.search.base import Search
from orchestrator.search.schedulers import SCHEDULERS
from orchestrator.search.schedulers.base import Bracket
from orchestrator.specs import RecipeSpec, SweepSpec
from orchestrator.specs.problems import rule_of
from orchestrator.specs.recipe import UNFROZEN_FIELDS
from orchestrator.specs.task import EmbeddingObjectiveName, Head
from orchestrator.training.batch_order import num_evaluations


@dataclass(frozen=True)
class Leg:
    """Part of a trial's training, from a comparison with others on."""

    begins_after: int
    """Number of the evaluation after which the trials were compared."""
    values: Mapping[str, Scalar]
    """Value of each of the sweep's axes in this part."""
    donor: str | None = None
    """Key of the trial whose weights and optimizer it goes on from; None for its own."""
    is_copy: bool = False
    """Whether the trial had diverged: nothing of its own is kept then, neither measurements nor best weights."""


@dataclass(frozen=True)
class TrialPlan:
    """One trial to run: its place in the sweep, its point and the whole recipe that it begins with."""

    number: int
    point: Point
    recipe: RecipeSpec
    pause_after: int | None = None
    """Number of the evaluation after which the trial waits for others; None for a trial that runs to its end."""
    legs: tuple[Leg, ...] = ()
    """Parts of the training after the first one, up to the present one, where trials exchange weights."""

    @property
    def seed(self) -> int:
        """Seed of the trial, which its recipe holds."""
        return self.recipe.seed

    @cached_property
    def parameters(self) -> dict[str, object]:
        """Every field of the recipe that it begins with, as plain values."""
        return self.recipe.model_dump(mode="json")

    @cached_property
    def key(self) -> str:
        """The trial's natural key within its sweep: a digest of what makes up its recipe's fingerprint."""
        return _digest(self.recipe.identity_values())

    @property
    def present_recipe(self) -> RecipeSpec:
        """The recipe of the present part of the training."""
        return (
            RecipeSpec.model_validate({**self.recipe.model_dump(), **self.legs[-1].values})
            if self.legs
            else self.recipe
        )

    def values_at(self, evaluation: int) -> Mapping[str, Scalar]:
        """Values of the sweep's axes with which the trial came to its evaluation of this number."""
        begun = [leg.values for leg in self.legs if leg.begins_after < evaluation]
        return begun[-1] if begun else self.point

    def result(self, state: RunState, **values: Any) -> TrialResult:
        """Make the result of this trial; `values` are the fields of `TrialResult` that the plan does not know."""
        return TrialResult(self.key, self.number, self.parameters, state, self.seed, **values)


def _digest(values: Mapping[str, object]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_search(spec: SweepSpec, proposed: Sequence[Point] = ()) -> Search:
    """The spec's search algorithm; `proposed` are the points of an earlier attempt, where the algorithm learns."""
    return SEARCHES[spec.search](spec.axes, max_points=spec.trials, seed=spec.search_seed, proposed=proposed)


def build_brackets(spec: SweepSpec) -> Iterator[Bracket]:
    """The brackets in which trials wait for one another; none where the spec's scheduler has none."""
    return SCHEDULERS[spec.scheduler].brackets(
        max_evaluations=most_evaluations(spec),
        reduction_factor=spec.reduction_factor,
        grace_evaluations=spec.grace_evaluations,
    )


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
    """The point's trials, one per seed. Raises: SpecError where a value does not fit its field."""
    plans = []
    for index, seed in enumerate(spec.seeds):
        values = {**spec.recipe.model_dump(), **point, "seed": seed}
        try:
            recipe = RecipeSpec.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise SpecError(
                f"space.{field} has {first['input']!r}, which recipe.{field} refuses; {rule_of(first)}"
            ) from None
        plans.append(TrialPlan(point_number * len(spec.seeds) + index, dict(point), recipe))
    return plans


def check_space(spec: SweepSpec, head: Head, objective: EmbeddingObjectiveName | None = None) -> None:
    """Refuse, before anything runs, a range whose inner values its field cannot take, fields that contradict one
    another somewhere in the space, and fields that do not concern the task's head or objective. Raises: SpecError.
    """
    for name in UNFROZEN_FIELDS if True in listed_values(spec, "freeze_encoder") else ():
        if listed_values(spec, name) != (RecipeSpec.model_fields[name].default,):
            raise SpecError(f"freeze_encoder and {name} contradict one another; sweep over them in two specs")
    if 0 in listed_values(spec, "num_lstm_layers") and listed_values(spec, "lstm_hidden_size") != (None,):
        raise SpecError(
            "space.num_lstm_layers has 0, where recipe.lstm_hidden_size says nothing; sweep over them in two specs"
        )
    plan_trials(spec, {name: axis.value_at(0.382) for name, axis in spec.axes.items()}, 0)
    check_recipe(spec.recipe, head, objective, spec.space)
    _check_brackets(spec)


def _check_brackets(spec: SweepSpec) -> None:
    """Refuse a scheduler that would compare no trials. Raises: SpecError."""
    first = next(build_brackets(spec), None)
    if first is None:
        return
    exchanges, have = SCHEDULERS[spec.scheduler].exchanges, most_evaluations(spec)
    if not first.rungs and exchanges:
        raise SpecError(
            f"scheduler {spec.scheduler} would compare no trials: it does so after every {spec.grace_evaluations} "
            f"evaluations of a trial (grace_evaluations) but the last, and there are {have}; "
            "raise recipe.epochs or evaluations_per_epoch, or lower grace_evaluations"
        )
    if not first.rungs:
        raise SpecError(
            f"scheduler {spec.scheduler} would end no trial early: it needs {spec.grace_evaluations} × "
            f"{spec.reduction_factor} evaluations of a trial (grace_evaluations × reduction_factor), and there are "
            f"{have}; raise recipe.epochs or evaluations_per_epoch, or lower one of these two"
        )
    if exchanges and build_search(spec).num_points * len(spec.seeds) < 2:
        raise SpecError(
            f"scheduler {spec.scheduler} compares trials with one another, and the sweep has only one; "
            "add seeds, values in space or `trials`"
        )


def most_evaluations(spec: SweepSpec) -> int:
    """Evaluations of the longest trial that the sweep can have."""
    epochs, per_epoch = (value_bounds(spec, name)[1] for name in ("epochs", "evaluations_per_epoch"))
    return num_evaluations(epochs, int(per_epoch))
