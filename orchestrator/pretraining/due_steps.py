"""Steps of a run after which something is due: a line of the log, an evaluation, a checkpoint, a snapshot.

All of them follow from the spec and the number of steps that have ended, so that every worker knows them alike.
"""

from dataclasses import dataclass

from orchestrator.specs import PretrainSpec

EVALUATIONS_BY_DEFAULT = 10


@dataclass(frozen=True)
class DueSteps:
    """Rules of what is due after so many steps of a run. After the last one everything but a snapshot is."""

    spec: PretrainSpec
    has_validation: bool

    def is_logged(self, step: int) -> bool:
        """Whether the training loss is read: at its interval, and with each checkpoint."""
        return self._is_due(step, self.spec.execution.log_every_steps) or self.is_checkpoint(step)

    def is_evaluation(self, step: int) -> bool:
        """Whether the validation examples are evaluated."""
        interval = self.spec.execution.evaluate_every_steps or max(1, self.spec.steps // EVALUATIONS_BY_DEFAULT)
        return self.has_validation and self._is_due(step, interval)

    def is_checkpoint(self, step: int) -> bool:
        """Whether a checkpoint is due by its interval of steps; that of minutes is a matter of the clock."""
        interval = self.spec.execution.checkpoint_every_steps
        return step == self.spec.steps or (interval is not None and step % interval == 0)

    def is_snapshot(self, step: int) -> bool:
        """Whether the model is kept as it is."""
        return step in self.spec.execution.snapshot_steps

    def _is_due(self, step: int, interval: int) -> bool:
        return step % interval == 0 or step == self.spec.steps
