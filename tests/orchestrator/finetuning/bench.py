"""A bench that fine-tunes a model on one task in this process."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from orchestrator.base.results import MessageEvent, MetricEvent, TrialResult
from orchestrator.finetuning.search_space import TrialPlan
from orchestrator.finetuning.training import _Training
from orchestrator.finetuning.trial import TrialJob, run_trial, trial_folder
from orchestrator.specs import RecipeSpec, TaskSpec
from orchestrator.storage import join
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.scoring import majority_baseline
from tests.orchestrator.finetuning import tiny_tasks


class Killed(BaseException):
    """Stands for the end of a process."""


class Bench:
    """Runs trials of one task in this process, and keeps what they report."""

    def __init__(self, task: TaskSpec, folder: Path, models: Mapping[str, str] | None = None) -> None:
        self.task = load_task(task)
        self.folder = folder
        tokenizer = tiny_tasks.save_tokenizer(folder)
        self.job = TrialJob(
            task=self.task,
            baseline=majority_baseline(self.task, "validation"),
            folders={"own": tokenizer, **(models or {})},
            run_folder=str(folder / "run"),
            mark=str(folder),
            cache=str(folder / "cache"),
            num_threads=1,
            gpus=0.0,
        )
        self.events: list[MetricEvent] = []
        self.messages: list[MessageEvent] = []
        self.scores: list[float | None] = []

    def run(self, killed_at: int | None = None, **changes: object) -> TrialResult:
        """Run one trial; `changes` are fields of its recipe.

        `killed_at` is the number of the evaluation whose report its process does not survive.
        """
        recipe = RecipeSpec.model_validate({**tiny_tasks.RECIPE.model_dump(), "tokenizer": "own", **changes})
        plan = TrialPlan(0, {}, recipe)
        self.key = plan.key
        self.events, self.messages, self.scores = [], [], []

        def report(events: Sequence[MetricEvent | MessageEvent], score: float | None, number: int) -> None:
            self.events += [event for event in events if isinstance(event, MetricEvent)]
            self.messages += [event for event in events if isinstance(event, MessageEvent)]
            self.scores.append(score)
            if number == killed_at:
                raise Killed

        step = _Training.step
        self.num_trained_steps = 0

        def counted(training: _Training[Any], number: int, groups: Any) -> None:
            self.num_trained_steps += 1
            step(training, number, groups)

        with patch.object(_Training, "step", counted):
            return run_trial(self.job, plan, report)

    @property
    def model_folder(self) -> str:
        return join(trial_folder(self.job.run_folder, self.key), "model")

    def validation(self, name: str) -> list[float]:
        return [event.values[name] for event in self.events if event.split == "validation"]
