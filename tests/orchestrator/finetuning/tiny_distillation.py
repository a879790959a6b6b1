"""A teacher of a tiny task, and a bench that distils it in this process."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.base.results import DistillResult, Event
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.distillation_job import DistillJob, distill
from orchestrator.finetuning.training_checkpoints import TrialCheckpoint
from orchestrator.finetuning.trial import prepare_trial_features, train_and_save
from orchestrator.specs import DistillSpec, TaskSpec
from orchestrator.storage import delete
from orchestrator.tasks.loading import load_task
from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.finetuning import tiny_tasks


def train_teacher(task_spec: TaskSpec, folder: Path, **recipe_fields: object) -> str:
    """The folder of a model of two layers that has learned the task."""
    task, tokenizer = load_task(task_spec), tiny_tasks.load_tokenizer(folder)
    recipe = tiny_tasks.RECIPE.model_copy(update={"epochs": 6.0, **recipe_fields})
    train, validation = (
        prepare_trial_features(task, split, recipe, tokenizer, str(folder / "cache"))
        for split in ("train", "validation")
    )
    model = build_model(task, recipe, None, tokenizer)
    path = str(folder / "teacher")
    checkpoint = TrialCheckpoint(Checkpoints(path), {}, lambda *told: None, metric=task.metric, interval_s=math.inf)
    train_and_save(model, tokenizer, task, train, validation, recipe, path, checkpoint)
    return f"{path}/model"


class Bench:
    """Distils one teacher, and keeps what is reported."""

    def __init__(self, task: TaskSpec, teacher: str, folder: Path) -> None:
        self.task, self.teacher, self.folder = task, teacher, folder
        self.events: list[Event] = []
        self.on_saved: Callable[[int], None] = lambda step: None

    def spec(self, **fields: object) -> DistillSpec:
        recipe = {**tiny_tasks.RECIPE.model_dump(), "epochs": 6.0, **fields.pop("recipe", {})}  # type: ignore[dict-item]
        return DistillSpec.model_validate({"teacher": "teacher", "task": self.task, "recipe": recipe, **fields})

    def run(self, init_folder: str | None = None, attempt: int = 1, **fields: object) -> DistillResult:
        """A first attempt begins with an empty folder."""
        spec = self.spec(**fields)
        if attempt == 1:
            delete(str(self.folder / "run"))
        job = DistillJob(
            spec=spec,
            task=load_task(spec.task),
            teacher_folder=self.teacher,
            init_folder=init_folder,
            run_folder=str(self.folder / "run"),
            cache=str(self.folder / "cache"),
            unlabeled=spec.unlabeled,
            attempt=attempt,
            use_gpu=bool(spec.execution.gpus) and spec.execution.gpus != "auto",
        )
        return distill(job, self.report, self.on_saved)

    def report(self, events: Sequence[Event]) -> None:
        """Keep what a distillation reports."""
        self.events += events
