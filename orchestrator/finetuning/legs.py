"""Checkpoints of the parts of a trial's training, between which trials exchange weights.

Each part has a folder of its own. So what the trials have saved when they were compared stays as it is until all of
them have come to the next comparison, and whoever is killed in between begins its part again from there.
"""

from collections.abc import Mapping
from dataclasses import replace

from bert_core.checkpoints.training_state import TrainingState
from bert_core.errors import CheckpointError
from orchestrator.finetuning.checkpointed_training import with_weights_of, without_history
from orchestrator.finetuning.search_space import Leg, TrialPlan
from orchestrator.results import CheckpointEvent, MetricEvent
from orchestrator.search.axes import Scalar
from orchestrator.storage import delete, join
from orchestrator.training.checkpoints import Checkpoints, delete_checkpoints

_LEGS = "legs"


def leg_folder(trial_folder: str, begins_after: int) -> str:
    """Folder of the checkpoints of a part that begins after an evaluation; 0 is the first part's."""
    return join(trial_folder, f"{_LEGS}/{begins_after:05d}") if begins_after else trial_folder


def present_leg_folder(trial_folder: str, plan: TrialPlan) -> str:
    """Folder of the checkpoints of the part that the plan is at."""
    return leg_folder(trial_folder, plan.legs[-1].begins_after if plan.legs else 0)


def delete_leg_before(trial_folder: str, plan: TrialPlan) -> None:
    """Delete the checkpoints of the part before the one that the plan is at, if there is one."""
    if plan.legs:
        delete_checkpoints(leg_folder(trial_folder, _begin_before(plan)))


def delete_legs(trial_folder: str) -> None:
    """Delete all checkpoints of a trial."""
    delete_checkpoints(trial_folder)
    delete(join(trial_folder, _LEGS))


def leg_identity(leg: Leg) -> dict[str, object]:
    """Part of the identity of checkpoints: where the part of the training begins, from whom and with which values."""
    copied = {"is_copy": True} if leg.is_copy else {}
    return {"the leg": {"begins_after": leg.begins_after, "donor": leg.donor, **copied, **leg.values}}


def read_origin(trial_folder: str, donor_folder: str | None, plan: TrialPlan) -> tuple[CheckpointEvent, TrainingState]:
    """Read the state with which the plan's part begins: the trial's own, or the donor's weights and optimizer in it.

    Measurements and the best weights so far stay the trial's own; one that had diverged has none. Raises:
    CheckpointError.
    """
    before, is_copy = _begin_before(plan), plan.legs[-1].is_copy
    event, state = _read(leg_folder(donor_folder if is_copy and donor_folder else trial_folder, before))
    if is_copy:
        state = without_history(state)
    elif donor_folder is not None:
        donor_event, donor = _read(leg_folder(donor_folder, before))
        if donor_event.step != event.step:
            raise CheckpointError(f"{donor_event.path} is not of step {event.step}, where trials were compared")
        state = with_weights_of(state, donor)
    identity = {**state.extra["identity"], **leg_identity(plan.legs[-1])}
    return event, replace(state, extra={**state.extra, "identity": identity})


def values_metrics(values: Mapping[str, Scalar]) -> dict[str, float]:
    """Values of a recipe's fields by their names among measurements."""
    return {f"recipe.{name}": float(value) for name, value in values.items()}


def with_values(event: MetricEvent, plan: TrialPlan) -> MetricEvent:
    """The measurements of training steps with the values that the plan's part has."""
    if not plan.legs or event.split != "train":
        return event
    return replace(event, values={**event.values, **values_metrics(plan.legs[-1].values)})


def _begin_before(plan: TrialPlan) -> int:
    """The evaluation after which the part before the present one begins."""
    return plan.legs[-2].begins_after if len(plan.legs) > 1 else 0


def _read(folder: str) -> tuple[CheckpointEvent, TrainingState]:
    found = Checkpoints(folder).read_newest(lambda text: None)
    if found is None:
        raise CheckpointError(f"the checkpoint that trials go on from is gone from {folder}; start a new run")
    return found
